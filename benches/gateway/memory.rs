//! What keys cost in memory, at several numbers of keys, after filling and after a restart, and how long that takes.

use std::fs;

use crate::{
    list::keys,
    options::Options,
    server::{Running, Target},
    table::Table,
};

/// Fills each server with each number of keys, and prints the table.
pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!("memory of keys of 32 bytes with {} bytes of value", options.value_bytes);
    let mut table = Table::new(targets);
    for keys in &options.memory_keys {
        for (which, target) in targets.iter().enumerate() {
            one_fill(options, target, *keys, which, &mut table);
        }
    }
    table.print();
}

fn one_fill(options: &Options, target: &Target, keys: usize, which: usize, table: &mut Table) {
    assert!((1..=keys::KEYS_MAX).contains(&keys), "{keys} keys are too few or too many");
    let data_dir = options.dir.join(format!("memory-{}", target.name));
    let _ = fs::remove_dir_all(&data_dir);
    let (server, _) = target.start(&data_dir);
    let empty_bytes = resting_bytes(&server);
    keys::fill(server.address, keys, options.value_bytes);
    let mut add = |when: &str, bytes: u64| {
        table.add(&format!("{keys} keys: anon {when} MiB"), which, bytes as f64 / 1048576.0);
        let grown = bytes.saturating_sub(empty_bytes) as f64;
        table.add(&format!("{keys} keys: bytes per key {when}"), which, grown / keys as f64);
    };
    add("after filling", resting_bytes(&server));
    server.stop();
    let (server, start) = target.start(&data_dir);
    add("after restart", resting_bytes(&server));
    server.stop();
    table.add(&format!("{keys} keys: start to healthy s"), which, start.as_secs_f64());
    fs::remove_dir_all(&data_dir).unwrap();
    println!("  {keys} keys in {}", target.name);
}

/// Anonymous memory of a server that is at rest.
fn resting_bytes(server: &Running) -> u64 {
    server.settle();
    server.memory_bytes().1
}
