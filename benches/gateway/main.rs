//! The benchmark: revgate and a real etcd, measured side by side with the same client, over the same HTTP and JSON, on the
//! same disk: `cargo bench --bench gateway`, and `-- --help`.
//!
//! The two take turns round by round, on fresh data directories, so that whatever else the machine does falls on both.
//! Ratios are the median of each round's ratio. Two ceilings are measured in the same rounds: an axum route that parses
//! and answers a constant, and `fdatasync` in a loop. Client and servers share the processors, so the client does as
//! little as possible: one thread, requests made before, answers looked at no more than needed to know that they are whole
//! and right.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first thing that goes wrong")]

mod ceilings;
mod figures;
mod fill;
mod list;
mod load;
mod machine;
mod open_loop;
mod options;
mod profile;
mod report;
mod rows;
mod server;
mod table;
mod watch;

use std::{fs, time::Instant};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use self::{figures::Figures, options::Options, server::Target};

fn main() {
    let options = Options::of_command_line();
    if options.serve_ceiling {
        return ceilings::serve();
    }
    if let Some(count) = options.processors {
        keep_to_processors(count);
    }
    let started = Instant::now();
    fs::create_dir_all(&options.dir).unwrap();
    let files_max = raise_file_limit();
    let targets = targets(&options);
    println!("{files_max} files may be open\n");
    let mut figures = Figures::default();
    rows::run(&options, &targets, &mut figures);
    if !figures.by_row().is_empty() {
        report::write(&options, &targets, &figures, started.elapsed());
    }
}

fn targets(options: &Options) -> Vec<Target> {
    let mut targets = vec![Target::revgate(&options.revgate)];
    match options.etcd() {
        Some(etcd) => targets.push(Target::etcd(&etcd)),
        None if options.alone => {}
        None => {
            eprintln!("there is no etcd to measure beside revgate: name one with --etcd, or say --alone");
            std::process::exit(2);
        }
    }
    for target in &targets {
        println!("{}: {}", target.name, target.version());
    }
    targets
}

/// Has this process, and those it starts, use only so many of the processors.
fn keep_to_processors(count: usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut kept = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at)).take(count.max(1)).for_each(|at| kept.set(at));
    sched_setaffinity(None, &kept).unwrap();
}

/// Each connection is a file, here and in the servers, which inherit the limit.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}
