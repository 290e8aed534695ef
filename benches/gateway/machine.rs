//! What the figures depend on and nobody remembers later: the machine, the programs, the command.

use std::{fs, path::Path, process::Command};

use crate::{options::Options, server::Target};

/// What there is to know, by name.
pub(crate) fn describe(options: &Options, targets: &[Target]) -> Vec<(String, String)> {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let mut known = vec![
        ("date".to_owned(), date()),
        ("processor".to_owned(), format!("{}, {processors} cores, shared by client and server", processor_model())),
        ("memory".to_owned(), format!("{:.1} GiB", memory_gib())),
        ("kernel".to_owned(), line_of("/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease")),
        ("file system".to_owned(), file_system(&options.dir)),
    ];
    known.extend(targets.iter().map(|target| (target.name.to_owned(), target.version())));
    known.push(("command".to_owned(), command()));
    known
}

/// As it can be typed again: the paths of the programs are this machine's own.
fn command() -> String {
    let mut command = "cargo bench --bench gateway".to_owned();
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let own = ["--etcd", "--revgate", "--dir", "--out"];
    let mut said = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.split_once('=') {
            _ if own.contains(&argument.as_str()) => drop(arguments.next()),
            Some((name, _)) if own.contains(&name) => {}
            _ => said.push(argument),
        }
    }
    if !said.is_empty() {
        command = format!("{command} -- {}", said.join(" "));
    }
    command
}

fn date() -> String {
    let said = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    said.map_or_else(|_| "unknown".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn processor_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown", |(_, model)| model.trim()).to_owned()
}

fn memory_gib() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0.0) / 1_048_576.0
}

fn line_of(system: &str, release: &str) -> String {
    [system, release].map(|path| fs::read_to_string(path).unwrap_or_default().trim().to_owned()).join(" ")
}

/// The type of the file system that a directory is on: that of the mount with the longest path that leads there.
fn file_system(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(mount, _)| dir.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len());
    found.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
