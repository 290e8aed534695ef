//! Keeps the house standing: reads the sources and fails on whatever goes against its plan.
//!
//! Checked: imports go down the floors only, nothing is async below the consensus, a library's name stays in its room,
//! `unsafe` stays in one file, files stay short and say what they are for, and the map in `lib.rs` names every room.
//! What stands under `#[cfg(test)]` may import what it likes, but gets no `unsafe` either.

mod floors;
mod samples;
mod scan;

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use self::{
    floors::{
        ASYNC_FLOOR_MIN, FILE_LINES_MAX, LIBRARIES, PROST_NAMES_FOR_ALL, ROOMS, Room, UNSAFE_FILE, floor_of, may_import,
    },
    scan::{PathFound, Token},
};

/// One thing that is not as the plan has it.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// Path below `src`.
    file: String,
    /// Line, from 1.
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.file, self.line, self.what)
    }
}

/// One source file.
struct Source {
    /// Path below `src`, with `/`.
    file: String,
    text: String,
    tokens: Vec<Token>,
}

#[test]
fn sources_keep_to_the_plan() {
    let violations = check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("sources are readable");
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} places go against the plan of the house:\n{}", lines.len(), lines.join("\n"));
}

/// Everything under `src` that goes against the plan.
fn check(src: &Path) -> io::Result<Vec<Violation>> {
    let mut sources = Vec::new();
    for path in rust_files(src)? {
        let text = fs::read_to_string(&path)?;
        let relative = path.strip_prefix(src).map_err(io::Error::other)?;
        let tokens = scan::tokens(&text);
        sources.push(Source { file: relative.to_string_lossy().replace('\\', "/"), text, tokens });
    }
    let test_files = test_only_files(&sources);
    let mut violations = Vec::new();
    for source in &sources {
        let is_test_only = test_files.iter().any(|place| is_in(&source.file, place));
        check_form(source, is_test_only, &mut violations);
        if source.file == "lib.rs" {
            check_map(source, &sources, &mut violations);
        } else if !is_test_only {
            check_code(source, &mut violations);
        }
    }
    Ok(violations)
}

fn rust_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Files, and directories with `/` at the end, that are compiled for tests only.
fn test_only_files(sources: &[Source]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources {
        let directory = match source.file.rsplit_once('/') {
            Some((directory, "mod.rs")) => format!("{directory}/"),
            None if matches!(source.file.as_str(), "lib.rs" | "main.rs") => String::new(),
            _ => format!("{}/", source.file.trim_end_matches(".rs")),
        };
        for module in scan::without_tests(&source.tokens).test_modules {
            found.insert(format!("{directory}{module}.rs"));
            found.insert(format!("{directory}{module}/"));
        }
    }
    found
}

/// Whether a file is the place, or lies in it.
fn is_in(file: &str, place: &str) -> bool {
    file == place || (place.ends_with('/') && file.starts_with(place))
}

/// What holds for every file, tests included; only files of tests need not say what they are for.
fn check_form(source: &Source, is_test_only: bool, violations: &mut Vec<Violation>) {
    let mut report = |line, what| violations.push(Violation { file: source.file.clone(), line, what });
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        report(lines, format!("{lines} lines, more than {FILE_LINES_MAX}"));
    }
    if !is_test_only && !source.text.starts_with("//!") {
        report(1, "does not begin with a //! comment that says what the module is for".to_owned());
    }
    if source.file != UNSAFE_FILE {
        for token in source.tokens.iter().filter(|token| token.text == "unsafe") {
            report(token.line, format!("`unsafe` outside {UNSAFE_FILE}"));
        }
    }
}

/// The map of the house: every room that is there is named in it.
fn check_map(lib: &Source, sources: &[Source], violations: &mut Vec<Violation>) {
    let map: String = lib.text.lines().filter(|line| line.starts_with("//!")).collect();
    for room in &ROOMS {
        let is_there = sources.iter().any(|source| {
            source.file == format!("{}.rs", room.name) || is_in(&source.file, &format!("{}/", room.name))
        });
        if is_there && !map.contains(&format!("`{}`", room.name)) {
            let what = format!("the map in the //! comment does not name the room `{}`", room.name);
            violations.push(Violation { file: lib.file.clone(), line: 1, what });
        }
    }
}

/// What holds for code that ships.
fn check_code(source: &Source, violations: &mut Vec<Violation>) {
    let mut report = |line, what| violations.push(Violation { file: source.file.clone(), line, what });
    let name = source.file.split(['/', '.']).next().unwrap_or_default();
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        report(1, format!("`{name}` is not a room of the house: give it a floor in the plan"));
        return;
    };
    let code = scan::without_tests(&source.tokens).tokens;
    if room.floor < ASYNC_FLOOR_MIN {
        for token in code.iter().filter(|token| matches!(token.text.as_str(), "async" | "await")) {
            report(token.line, format!("`{}` below floor {ASYNC_FLOOR_MIN}", token.text));
        }
    }
    for path in scan::paths(&code) {
        if let Some(what) = wrong_import(room, &source.file, &path).or_else(|| wrong_library(&source.file, &path)) {
            report(path.line, what);
        }
    }
}

/// What is wrong with a path as an import of another room, if anything.
fn wrong_import(room: &Room, file: &str, path: &PathFound) -> Option<String> {
    let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
    let to = match parts.as_slice() {
        ["crate", to, ..] => *to,
        ["revgate", to, ..] if room.name == "main" => *to,
        ["super", ..] => {
            let climbs = parts.iter().take_while(|part| **part == "super").count();
            let to = parts.get(climbs)?;
            // Only a climb to the crate's root leaves the room.
            if climbs < depth_of(file) || floor_of(to).is_none() {
                return None;
            }
            to
        }
        _ => return None,
    };
    if may_import(room, to) {
        return None;
    }
    let (here, there) = (room.floor, floor_of(to));
    Some(match there {
        Some(there) if there > here => format!("imports `{to}` (floor {there}), which is above floor {here}"),
        Some(_) => format!("imports `{to}`, which is a neighbour on floor {here}"),
        None => format!("imports `{to}`, which is not a room of the house"),
    })
}

/// How many modules deep a file is: 1 for `wal/mod.rs`, 2 for `wal/reader.rs`.
fn depth_of(file: &str) -> usize {
    let parts = file.split('/').count();
    if file.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// What is wrong with a path as a use of a library, if anything.
fn wrong_library(file: &str, path: &PathFound) -> Option<String> {
    // A library is the first name of a path, or, where it is re-exported, one inside it.
    let (library, places) = LIBRARIES
        .iter()
        .find(|(library, _)| path.parts.first().is_some_and(|first| first == library))
        .filter(|_| path.parts.len() > 1)?;
    if places.iter().any(|place| is_in(file, place)) {
        return None;
    }
    let shared = *library == "prost" && PROST_NAMES_FOR_ALL.contains(&path.parts[1].as_str());
    (!shared).then(|| format!("`{}` outside {}", path.parts.join("::"), places.join(", ")))
}
