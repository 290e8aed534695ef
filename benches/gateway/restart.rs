//! A store with many keys: how long it takes to fill, to stop and to start again, and the memory it then needs.

use std::{
    cell::Cell,
    fmt::Write,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    load,
    options::Options,
    server::{Running, Target},
};

/// Both servers' limit of operations in a txn.
const PUTS_PER_TXN: usize = 128;
const FILL_CONNECTIONS: usize = 8;

struct Restart {
    fill: Duration,
    stop: Duration,
    start: Duration,
    rss_bytes: u64,
    anonymous_bytes: u64,
    rss_after_read_bytes: u64,
    anonymous_after_read_bytes: u64,
    disk_bytes: u64,
}

/// A row of the table: its title, and its figure.
type Row = (&'static str, fn(&Restart) -> f64);

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}

/// Fills, stops and starts each server, and prints the table.
pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!("restart on {} keys of {} bytes", options.restart_keys, options.value_bytes);
    let found: Vec<Restart> = targets.iter().map(|target| one_restart(options, target)).collect();
    print!("{:<26}", "");
    targets.iter().for_each(|target| print!("{:>14}", target.name));
    println!();
    let rows: [Row; 8] = [
        ("fill s", |r| r.fill.as_secs_f64()),
        ("stop (SIGTERM) s", |r| r.stop.as_secs_f64()),
        ("start to healthy s", |r| r.start.as_secs_f64()),
        ("RSS when healthy MiB", |r| mib(r.rss_bytes)),
        ("anon when healthy MiB", |r| mib(r.anonymous_bytes)),
        ("RSS after reading MiB", |r| mib(r.rss_after_read_bytes)),
        ("anon after reading MiB", |r| mib(r.anonymous_after_read_bytes)),
        ("data directory MiB", |r| mib(r.disk_bytes)),
    ];
    for (title, figure) in rows {
        print!("{title:<26}");
        found.iter().for_each(|restart| print!("{:>14.2}", figure(restart)));
        if let [ours, theirs] = found.as_slice() {
            print!("   ratio {:.2}", figure(ours) / figure(theirs));
        }
        println!();
    }
}

fn one_restart(options: &Options, target: &Target) -> Restart {
    let data_dir = options.dir.join(format!("restart-{}", target.name));
    let _ = fs::remove_dir_all(&data_dir);
    let (server, _) = target.start(&data_dir);
    let filling = Instant::now();
    fill(&server, options);
    let fill = filling.elapsed();
    let stop = server.stop();
    let (server, start) = target.start(&data_dir);
    let (rss_bytes, anonymous_bytes) = server.memory_bytes();
    // Everything is there: counted, then read.
    assert_eq!(count(&server), options.restart_keys, "keys of {} after its restart", target.name);
    read_all(&server, options);
    let (rss_after_read_bytes, anonymous_after_read_bytes) = server.memory_bytes();
    server.stop();
    let disk_bytes = directory_bytes(&data_dir);
    fs::remove_dir_all(&data_dir).unwrap();
    Restart {
        fill,
        stop,
        start,
        rss_bytes,
        anonymous_bytes,
        rss_after_read_bytes,
        anonymous_after_read_bytes,
        disk_bytes,
    }
}

/// Nine bytes: whole groups of base64.
fn key(number: usize) -> String {
    base64_simd::STANDARD.encode_to_string(format!("k{number:08}"))
}

fn fill(server: &Running, options: &Options) {
    let (address, keys) = (server.address, options.restart_keys);
    let value_bytes = options.value_bytes;
    let filled = Cell::new(0);
    load::run(address, FILL_CONNECTIONS, move |_| {
        let numbers = filled.get()..(filled.get() + PUTS_PER_TXN).min(keys);
        filled.set(numbers.end);
        if numbers.is_empty() {
            return None;
        }
        let mut body = String::from(r#"{"success":["#);
        for number in numbers.clone() {
            let comma = if number == numbers.start { "" } else { "," };
            let value = base64_simd::STANDARD.encode_to_string(format!("{number:0value_bytes$}"));
            write!(body, r#"{comma}{{"request_put":{{"key":"{}","value":"{value}"}}}}"#, key(number)).unwrap();
        }
        body.push_str("]}");
        Some(load::post(address, "/v3/kv/txn", &body))
    });
}

fn count(server: &Running) -> usize {
    let answer = load::ask(server.address, "/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","count_only":true}"#);
    let count = answer.split_once(r#""count":""#).and_then(|(_, rest)| rest.split_once('"')?.0.parse().ok());
    count.unwrap_or_else(|| panic!("no count in {answer}"))
}

/// Reads the whole store once, page by page.
fn read_all(server: &Running, options: &Options) {
    const PAGE_KEYS: usize = 1000;
    let (address, keys) = (server.address, options.restart_keys);
    let read = Cell::new(0);
    load::run(address, 1, move |_| {
        let from = read.get();
        read.set(from + PAGE_KEYS);
        let body = format!(r#"{{"key":"{}","range_end":"AA==","limit":{PAGE_KEYS}}}"#, key(from));
        (from < keys).then(|| load::post(address, "/v3/kv/range", &body))
    });
}

/// What the files in a directory, and below, take of the disk.
fn directory_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => directory_bytes(&entry.path()),
            metadata => metadata.blocks() * 512,
        })
        .sum()
}
