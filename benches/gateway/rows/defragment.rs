//! Requests while a half empty file is defragmented: their latencies beside those of a quiet time, and what the file gave
//! back.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{P99_MILLIS, Processors, say, turns};
use crate::{
    figures::Figures,
    fill::{Template, field, put_op, txns},
    load::{self, Load},
    open_loop::{self, Kind},
    options::{Options, Row},
    server::{Running, Target, remove},
};

const VALUE_BYTES: usize = 1_024;
/// 200 reads and 200 writes a second.
const INTERVAL: Duration = Duration::from_millis(5);
/// Load before the defragmentation is asked for, and after it was answered.
const MARGIN: Duration = Duration::from_millis(500);
/// What a key takes in the file beside its value, in bytes.
const KEY_OVERHEAD_BYTES: usize = 75;
/// Keys that are deleted together: so many that pages of the file come free as a whole.
const STRETCH_KEYS: usize = 256;
/// Of the keys that stay, so many are written once more in the end, so that free room is not only where stretches were.
const OVERWRITTEN_DIVISOR: usize = 10;

/// The largest latency of any request while the file is defragmented.
pub(crate) const LARGEST_MILLIS: &str = "largest ms while defragmenting";

/// Fills each server once, and defragments a copy in each round.
pub(super) fn run(options: &Options, targets: &[Target], figures: &mut Figures) {
    let value_bytes = options.value_bytes.unwrap_or(VALUE_BYTES);
    let keys = options.defragment_mb * 1_000_000 / (value_bytes + KEY_OVERHEAD_BYTES);
    println!(
        "defragmenting {} MB, half of them free, values of {value_bytes} bytes, under 200 reads and 200 writes a second",
        options.defragment_mb
    );
    let fill = |server: &Running| {
        fill_keys(server.address, keys, value_bytes);
        make_holes(server.address, keys, value_bytes);
    };
    let templates: Vec<Template> =
        targets.iter().map(|target| Template::fill(options, target, "defragment", fill)).collect();
    for round in 0..options.rounds {
        for which in turns(round, targets) {
            let (mut server, data_dir) = templates[which].start(options, &targets[which], "defragment");
            one_round(options, round, &targets[which], &server, keys, figures);
            server.stop();
            remove(&data_dir);
        }
    }
    templates.into_iter().for_each(Template::remove);
}

fn one_round(options: &Options, round: usize, target: &Target, server: &Running, keys: usize, figures: &mut Figures) {
    let address = server.address;
    let value = vec![b'w'; options.value_bytes.unwrap_or(VALUE_BYTES)];
    let value = base64_simd::STANDARD.encode_to_string(value);
    let read =
        |n| load::post(address, "/v3/kv/range", &format!(r#"{{"key":"{}"}}"#, key(staying(scattered(n, keys), keys))));
    let write = |n| {
        let key = key(staying(scattered(n + 1_000_000, keys), keys));
        load::post(address, "/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#))
    };
    let kinds = [Kind { interval: INTERVAL, request: &read }, Kind { interval: INTERVAL, request: &write }];

    let ends_at = Instant::now() + options.duration().max(2 * MARGIN);
    let quiet = open_loop::run(address, &kinds, &|| Instant::now() >= ends_at);
    let sizes_before = sizes(address);
    let before = Processors::now(server);
    let is_over = AtomicBool::new(false);
    let (disturbed, took) = thread::scope(|scope| {
        let defragmentation = scope.spawn(|| {
            thread::sleep(MARGIN);
            let started = Instant::now();
            load::ask(address, "/v3/maintenance/defragment", "{}");
            let took = started.elapsed();
            thread::sleep(MARGIN);
            is_over.store(true, Ordering::Relaxed);
            took
        });
        let disturbed = open_loop::run(address, &kinds, &|| is_over.load(Ordering::Relaxed));
        (disturbed, defragmentation.join().unwrap())
    });
    let requests: usize = disturbed.iter().map(Load::count).sum();
    before.add_to(figures, Row::Defragment, target.side, server, requests as f64);
    let mut add = |name: &str, value| figures.add(Row::Defragment, name, target.side, value);
    add("duration s", took.as_secs_f64());
    for (period, loads) in [("quiet", quiet), ("while defragmenting", disturbed)] {
        let all = Load::new(loads[0].elapsed, loads.into_iter().flat_map(|load| load.latencies_nanos).collect());
        for (name, share) in [("p50 ms", 0.5), (P99_MILLIS, 0.99), ("largest ms", 1.0)] {
            add(&format!("{name} {period}"), all.quantile_millis(share));
        }
    }
    for (when, [file, in_use]) in [("before", sizes_before), ("after", sizes(address))] {
        add(&format!("file {when} MB"), file / 1e6);
        add(&format!("in use {when} MB"), in_use / 1e6);
    }
    say(round, target, Row::Defragment, &format!("{:.2} s", took.as_secs_f64()));
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

fn fill_keys(address: SocketAddr, keys: usize, value_bytes: usize) {
    let value = base64_simd::STANDARD.encode_to_string(vec![b'v'; value_bytes]);
    txns(address, keys, move |number| put_op(&key(number), &value));
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
    // A txn writes no key twice.
    let overwritten: BTreeSet<usize> =
        (0..keys).step_by(OVERWRITTEN_DIVISOR).map(|number| staying(number, keys)).collect();
    let overwritten: Vec<usize> = overwritten.into_iter().collect();
    txns(address, overwritten.len(), move |number| put_op(&key(overwritten[number]), &value));
    let status = load::ask(address, "/v3/maintenance/status", "{}");
    let revision = field(&status, "revision");
    load::ask(address, "/v3/kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#));
}

/// The file's length and the part of it that is in use, in bytes.
fn sizes(address: SocketAddr) -> [f64; 2] {
    let status = load::ask(address, "/v3/maintenance/status", "{}");
    ["dbSize", "dbSizeInUse"].map(|name| field(&status, name).parse().unwrap())
}
