//! Requests while a half empty file is defragmented: their latencies beside those of a quiet time, and what the file gave
//! back.

use std::{
    cell::Cell,
    fmt::Write,
    fs,
    net::SocketAddr,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    load,
    open_loop::{self, Kind, Latencies},
    options::Options,
    server::Target,
};

/// 200 reads and 200 writes a second.
const INTERVAL: Duration = Duration::from_millis(5);
/// Load before the defragmentation is asked for, and after it was answered.
const MARGIN: Duration = Duration::from_secs(1);
/// Both servers' limit of operations in a txn.
const OPS_PER_TXN: usize = 128;
const FILL_CONNECTIONS: usize = 8;
/// What a key takes in the file beside its value, in bytes.
const KEY_OVERHEAD_BYTES: usize = 75;
/// Keys that are deleted together: so many that pages of the file come free as a whole.
const STRETCH_KEYS: usize = 256;
/// Of the keys that stay, so many are written once more in the end, so that free room is not only where stretches were.
const OVERWRITTEN_DIVISOR: usize = 10;

struct Found {
    /// Reads and writes.
    quiet: Vec<Latencies>,
    disturbed: Vec<Latencies>,
    before: Size,
    after: Size,
    took: Duration,
}

/// The file's length and the part of it that is in use, in bytes.
#[derive(Clone, Copy)]
struct Size {
    file: f64,
    in_use: f64,
}

/// Fills, measures and defragments each server, and prints the tables.
pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!(
        "defragmenting {} MB, half of them free, values of {} bytes, under 200 reads and 200 writes a second (due times)",
        options.defragment_mb, options.value_bytes
    );
    let found: Vec<Found> = targets.iter().map(|target| one_server(options, target)).collect();
    println!("{:<10}{:>12}{:>12}{:>12}{:>12}{:>9}", "", "file MB", "in use MB", "after MB", "in use MB", "took s");
    for (target, found) in targets.iter().zip(&found) {
        let figures =
            [found.before.file, found.before.in_use, found.after.file, found.after.in_use].map(|size| size / 1e6);
        print!("{:<10}", target.name);
        figures.iter().for_each(|figure| print!("{figure:>12.1}"));
        println!("{:>9.2}", found.took.as_secs_f64());
    }
    println!("\n{:<32}{:>9}{:>10}{:>10}{:>10}", "latency from due time, ms", "requests", "p50", "p99", "largest");
    for (target, found) in targets.iter().zip(&found) {
        for (period, kinds) in [("undisturbed", &found.quiet), ("defragmenting", &found.disturbed)] {
            for (kind, latencies) in ["reads", "writes"].iter().zip(kinds) {
                print!("{:<32}{:>9}", format!("{} {period} {kind}", target.name), latencies.count());
                [0.5, 0.99, 1.0].iter().for_each(|share| print!("{:>10.2}", latencies.quantile_millis(*share)));
                println!();
            }
        }
    }
    println!();
}

fn one_server(options: &Options, target: &Target) -> Found {
    let data_dir = options.dir.join(format!("defragment-{}", target.name));
    let _ = fs::remove_dir_all(&data_dir);
    let (server, _) = target.start(&data_dir);
    let address = server.address;
    let keys = options.defragment_mb * 1_000_000 / (options.value_bytes + KEY_OVERHEAD_BYTES);
    fill(address, keys, options.value_bytes);
    make_holes(address, keys, options.value_bytes);
    let value = base64_simd::STANDARD.encode_to_string(vec![b'w'; options.value_bytes]);
    let read =
        |n| load::post(address, "/v3/kv/range", &format!(r#"{{"key":"{}"}}"#, key(staying(scattered(n, keys), keys))));
    let write = |n| {
        let key = key(staying(scattered(n + 1_000_000, keys), keys));
        load::post(address, "/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#))
    };
    let kinds = [Kind { interval: INTERVAL, request: &read }, Kind { interval: INTERVAL, request: &write }];

    let ends_at = Instant::now() + options.duration.max(2 * MARGIN);
    let quiet = open_loop::run(address, &kinds, &|| Instant::now() >= ends_at);
    let before = size(address);
    let is_over = AtomicBool::new(false);
    let (disturbed, (took, after)) = thread::scope(|scope| {
        let defragmentation = scope.spawn(|| {
            thread::sleep(MARGIN);
            let started = Instant::now();
            load::ask(address, "/v3/maintenance/defragment", "{}");
            let took = started.elapsed();
            let after = size(address);
            thread::sleep(MARGIN);
            is_over.store(true, Ordering::Relaxed);
            (took, after)
        });
        let disturbed = open_loop::run(address, &kinds, &|| is_over.load(Ordering::Relaxed));
        (disturbed, defragmentation.join().unwrap())
    });
    server.stop();
    fs::remove_dir_all(&data_dir).unwrap();
    println!("  {} is done", target.name);
    Found { quiet, disturbed, before, after, took }
}

/// A number below `end` that has nothing to do with those of the numbers beside `n`.
fn scattered(n: u64, end: usize) -> usize {
    let mixed = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((mixed ^ (mixed >> 33)) % end as u64) as usize
}

fn is_deleted(stretch: usize) -> bool {
    scattered(stretch as u64, 2) == 0
}

/// A key near this one that is not deleted.
fn staying(number: usize, keys: usize) -> usize {
    let stretches = keys.div_ceil(STRETCH_KEYS);
    let mut stretch = number / STRETCH_KEYS;
    while is_deleted(stretch) {
        stretch = (stretch + 1) % stretches;
    }
    (stretch * STRETCH_KEYS + number % STRETCH_KEYS).min(keys - 1)
}

/// Nine bytes: whole groups of base64.
fn key(number: usize) -> String {
    base64_simd::STANDARD.encode_to_string(format!("k{number:08}"))
}

fn fill(address: SocketAddr, keys: usize, value_bytes: usize) {
    let value = base64_simd::STANDARD.encode_to_string(vec![b'v'; value_bytes]);
    let puts = move |number: usize| format!(r#"{{"request_put":{{"key":"{}","value":"{value}"}}}}"#, key(number));
    txns(address, keys, puts);
}

/// Deletes a random half of the stretches of keys, overwrites some of the other half, and compacts.
fn make_holes(address: SocketAddr, keys: usize, value_bytes: usize) {
    let stretches = keys.div_ceil(STRETCH_KEYS);
    let deleted: Vec<usize> = (0..stretches).filter(|stretch| is_deleted(*stretch)).collect();
    let (count, deletes) = (deleted.len(), move |number: usize| {
        let (from, end) = (deleted[number] * STRETCH_KEYS, (deleted[number] + 1) * STRETCH_KEYS);
        format!(r#"{{"request_delete_range":{{"key":"{}","range_end":"{}"}}}}"#, key(from), key(end))
    });
    txns(address, count, deletes);
    let value = base64_simd::STANDARD.encode_to_string(vec![b'u'; value_bytes]);
    let overwrites = move |number: usize| {
        let key = key(staying(number * OVERWRITTEN_DIVISOR, keys));
        format!(r#"{{"request_put":{{"key":"{key}","value":"{value}"}}}}"#)
    };
    // A txn writes no key twice.
    one_by_one(address, keys / OVERWRITTEN_DIVISOR, overwrites);
    let status = load::ask(address, "/v3/maintenance/status", "{}");
    let revision = field(&status, "revision");
    load::ask(address, "/v3/kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#));
}

/// Operations, so many to a txn, on some connections.
fn txns(address: SocketAddr, operations: usize, operation: impl Fn(usize) -> String + 'static) {
    let done = Cell::new(0);
    load::run(address, FILL_CONNECTIONS, move |_| {
        let numbers = done.get()..(done.get() + OPS_PER_TXN).min(operations);
        done.set(numbers.end);
        if numbers.is_empty() {
            return None;
        }
        let mut body = String::from(r#"{"success":["#);
        for number in numbers.clone() {
            let comma = if number == numbers.start { "" } else { "," };
            write!(body, "{comma}{}", operation(number)).unwrap();
        }
        body.push_str("]}");
        Some(load::post(address, "/v3/kv/txn", &body))
    });
}

fn one_by_one(address: SocketAddr, operations: usize, operation: impl Fn(usize) -> String + 'static) {
    let done = Cell::new(0);
    load::run(address, FILL_CONNECTIONS, move |_| -> Option<Rc<[u8]>> {
        let number = done.replace(done.get() + 1);
        let body = (number < operations).then(|| format!(r#"{{"success":[{}]}}"#, operation(number)))?;
        Some(load::post(address, "/v3/kv/txn", &body))
    });
}

fn size(address: SocketAddr) -> Size {
    let status = load::ask(address, "/v3/maintenance/status", "{}");
    let bytes = |name| field(&status, name).parse().unwrap_or_else(|_| panic!("no {name} in {status}"));
    Size { file: bytes("dbSize"), in_use: bytes("dbSizeInUse") }
}

/// A number in quotes.
fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let found = answer.split_once(&format!(r#""{name}":""#)).and_then(|(_, rest)| rest.split_once('"'));
    found.unwrap_or_else(|| panic!("no {name} in {answer}")).0
}
