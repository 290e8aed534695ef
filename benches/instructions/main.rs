//! What single operations cost, in instructions: a figure that does not depend on what else the machine does, so that CI can
//! hold it against a limit. Built and run by `.ci/suites/instructions.sh`:
//!
//! - `instructions --list` names the operations,
//! - `instructions NAME` counts one under valgrind, and fails if it costs more than `limits.txt` says,
//! - `instructions --update` counts all, and writes `limits.txt` anew,
//! - `instructions --run NAME` does the operation, some hundred times (this is what runs under valgrind).
//!
//! Only what happens inside [`counted`] is counted, on the thread that calls it. Preparations are not.

#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first thing that goes wrong")]

mod engine;
mod json;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Prepares an operation, and does it again and again, each time within [`counted`]; how often.
type Operation = fn(&Path) -> u64;

const OPERATIONS: [(&str, Operation); 12] = [
    ("json-read-put", json::read_put),
    ("json-read-range", json::read_range),
    ("json-read-txn", json::read_txn),
    ("json-write-range-of-500", json::write_range),
    ("json-write-event", json::write_event),
    ("apply-put", engine::apply_put),
    ("store-get", engine::store_get),
    ("index-look-up", engine::index_look_up),
    ("index-insert", engine::index_insert),
    ("bolt-get", engine::bolt_get),
    ("bolt-commit-of-1000", engine::bolt_commit),
    ("wal-encode-batch-of-64", engine::wal_encode),
];

/// What a count may be above its limit, as a share: hashes are seeded anew in each run, and libraries get new releases.
const TOLERANCE: f64 = 0.03;
/// How often an operation is counted before it is believed that it costs more.
const COUNTS_MAX: usize = 3;
/// Below this share of its limit, the limit should be lowered.
const FAR_BELOW: f64 = 0.93;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--list"] => OPERATIONS.iter().for_each(|(name, _)| println!("{name}")),
        ["--update"] => update(),
        ["--run", name] => {
            let work = Work::new();
            println!("{}", operation(name)(&work.0));
        }
        [name] if OPERATIONS.iter().any(|(known, _)| *known == name) => return judge(name),
        _ => {
            eprintln!("usage: instructions --list | --update | NAME");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Does something whose instructions count. Its name is what valgrind looks for.
#[inline(never)]
pub(crate) fn counted<T>(mut work: impl FnMut() -> T) -> T {
    std::hint::black_box(work())
}

fn operation(name: &str) -> Operation {
    OPERATIONS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no operation is named {name}")).1
}

/// Holds one operation against its limit.
fn judge(name: &str) -> ExitCode {
    let Some(limit) = limits().remove(name) else {
        println!("{name} has no limit: `instructions --update` writes one");
        return ExitCode::FAILURE;
    };
    let share_of = |found: u64| found as f64 / limit as f64;
    // The least of some: threads that hand over to each other do not always find each other in the same state.
    let mut found = count(name);
    for _ in 1..COUNTS_MAX {
        if share_of(found) > 1.0 + TOLERANCE {
            found = found.min(count(name));
        }
    }
    let share = share_of(found);
    println!("{name}: {found} instructions, {:+.1} % of its limit of {limit}", (share - 1.0) * 100.0);
    if share > 1.0 + TOLERANCE {
        println!(
            "That is too many. If it has to be so, write the limit anew with `instructions --update`, and say why."
        );
        return ExitCode::FAILURE;
    }
    if share < FAR_BELOW {
        println!("That is far below: lower the limit, so that what was won is not lost again unnoticed.");
    }
    ExitCode::SUCCESS
}

fn update() {
    let mut text = String::from(
        "# Instructions that an operation takes, as counted by valgrind on an x86-64 processor with AVX2; see main.rs.\n",
    );
    for (name, _) in OPERATIONS {
        let found = count(name);
        println!("{name}: {found}");
        text.push_str(&format!("{name} {found}\n"));
    }
    fs::write(limits_path(), text).unwrap();
}

/// Instructions of an operation, once.
fn count(name: &str) -> u64 {
    let work = Work::new();
    let counts = work.0.join("counts");
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--toggle-collect=*instructions*counted*"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--run", name])
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
    let times: u64 = said.trim().parse().unwrap_or_else(|_| panic!("no number: {said}"));
    let counts = fs::read_to_string(&counts).unwrap();
    let total =
        counts.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
    let total: u64 = total.and_then(|total| total.trim().parse().ok()).unwrap_or_default();
    assert!(total > 0, "{name}: nothing was counted");
    total / times
}

fn limits_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/limits.txt")
}

fn limits() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(limits_path()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, limit)| (name.to_owned(), limit.parse().unwrap()))
        .collect()
}

/// A directory that goes when this does.
struct Work(PathBuf);

impl Work {
    fn new() -> Work {
        let dir = std::env::temp_dir().join(format!("revgate-instructions-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Work(dir)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What is left of it is in the system's directory for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}
