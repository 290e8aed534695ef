//! Watches over WebSockets, measured on revgate and, side by side in the same run, on a real etcd:
//! `cargo bench --bench watch -- --help`.
//!
//! Four measurements, each on fresh servers: fan-out, idle watchers, watchers that stop reading, and replays of history
//! beside a live watcher. The client shares the processors with the server, so it does as little as possible: it parses
//! frames by hand and looks for one field in them.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first thing that goes wrong")]

#[path = "watch/fan_out.rs"]
mod fan_out;
#[path = "watch/fleet.rs"]
mod fleet;
#[path = "watch/frames.rs"]
mod frames;
#[path = "watch/idle.rs"]
mod idle;
#[path = "gateway/load.rs"]
#[allow(dead_code, reason = "another benchmark uses the rest")]
mod load;
#[path = "watch/options.rs"]
mod options;
#[path = "watch/puts.rs"]
mod puts;
#[path = "watch/replays.rs"]
mod replays;
#[path = "gateway/server.rs"]
#[allow(dead_code, reason = "another benchmark uses the rest")]
mod server;
#[path = "watch/stalled.rs"]
mod stalled;

use std::{fs, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::{
    options::Options,
    server::{Running, Target},
};

/// One of the measurements.
type Mode = fn(&Options, &[Target]);

fn main() {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return print!("{}", options::HELP),
        Err(complaint) => {
            eprintln!("{complaint}\n\n{}", options::HELP);
            std::process::exit(2);
        }
    };
    fs::create_dir_all(&options.dir).unwrap();
    let files_max = raise_file_limit();
    let mut targets = vec![Target::revgate(&options.revgate)];
    match &options.etcd {
        Some(etcd) => targets.push(Target::etcd(etcd)),
        None => println!("no --etcd: revgate alone is measured, and there are no ratios\n"),
    }
    for target in &targets {
        println!("{}: {}", target.name, target.version());
    }
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    println!("machine: {processors} processors shared by client and server; {files_max} files may be open\n");
    let modes: [(usize, Mode); 4] = [
        (options.fan_out, fan_out::run),
        (options.idle, idle::run),
        (options.stalled, stalled::run),
        (options.replays, replays::run),
    ];
    for (_, run) in modes.iter().filter(|(size, _)| *size > 0) {
        run(&options, &targets);
        println!();
    }
}

/// Each watcher is a file, here and in the servers, which inherit the limit.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

/// A server on a data directory that was not there before.
fn start_fresh(options: &Options, target: &Target, mode: &str) -> Running {
    let data_dir = options.dir.join(format!("watch-{mode}-{}", target.name));
    let _ = fs::remove_dir_all(&data_dir);
    target.start(&data_dir).0
}

/// The value below which this share of sorted figures lies.
fn quantile(sorted: &[u32], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share) as usize).map_or(0.0, |micros| f64::from(*micros) / 1e3)
}

/// Microseconds, as figures keep them.
fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}
