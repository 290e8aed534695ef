//! What a watcher costs in memory to which nothing happens.

use std::fs;

use tokio_util::sync::CancellationToken;

use super::fleet::{Fleet, Plan};
use crate::{
    options::Options,
    server::{Target, remove},
};

/// What the kernel counts its socket memory in, in bytes.
const PAGE_BYTES: u64 = 4096;
const WATCHERS: usize = 9_900;
/// Watchers opened and closed before, so that what the server keeps for good is not counted.
const WARM_UP_WATCHERS: usize = 100;

pub(crate) fn run(options: &Options, targets: &[Target]) {
    let watchers = options.watchers.unwrap_or(WATCHERS);
    println!("{watchers} idle watchers");
    println!("           anonymous KiB each    all of the process' KiB each    kernel's sockets, both ends, KiB each");
    let mut each = Vec::new();
    for target in targets {
        let (mut server, data_dir) = target.start_fresh(options, "idle");
        let plan = Plan {
            watchers: WARM_UP_WATCHERS.min(watchers),
            prefixes: vec!["bench/".to_owned()],
            start_revision: 0,
            measured: None,
            permits: None,
            reading: CancellationToken::new(),
            in_background: false,
        };
        Fleet::launch(server.address, &plan).stop();
        let (before, sockets_before) = (server.memory_bytes(), socket_bytes());
        let fleet = Fleet::launch(server.address, &Plan { watchers, ..plan });
        let (after, sockets_after) = (server.memory_bytes(), socket_bytes());
        let kib = |after: u64, before: u64| after.saturating_sub(before) as f64 / 1024.0 / watchers as f64;
        let anonymous = kib(after.1, before.1);
        println!(
            "  {:<8} {:>18.2} {:>31.2} {:>40.2}",
            target.name,
            anonymous,
            kib(after.0, before.0),
            kib(sockets_after, sockets_before)
        );
        each.push(anonymous);
        fleet.stop();
        server.stop();
        remove(&data_dir);
    }
    if let [ours, theirs] = each[..] {
        println!("  a watcher of revgate's takes {:.3} times as much", ours / theirs);
    }
}

/// What the kernel holds for TCP sockets of the whole machine.
fn socket_bytes() -> u64 {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap();
    let pages = line.split_whitespace().skip_while(|word| *word != "mem").nth(1).unwrap();
    pages.parse::<u64>().unwrap() * PAGE_BYTES
}
