//! Puts and gets over HTTP, lists, a restart on a filled store, puts during a compaction, and requests while the file is
//! defragmented, measured on revgate and, side by side in the same run, on a real etcd:
//! `cargo bench --bench gateway -- --help`.
//!
//! Both servers get the same client, the same disk and fresh data directories, and take turns round by round, so that
//! whatever else the machine does falls on both. Ratios are the median of each round's ratio.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first thing that goes wrong")]

#[path = "gateway/compaction.rs"]
mod compaction;
#[path = "gateway/defragment.rs"]
mod defragment;
#[path = "gateway/list.rs"]
mod list;
#[path = "gateway/load.rs"]
mod load;
#[path = "gateway/memory.rs"]
mod memory;
#[path = "gateway/open_loop.rs"]
mod open_loop;
#[path = "gateway/options.rs"]
mod options;
#[path = "gateway/restart.rs"]
mod restart;
#[path = "gateway/server.rs"]
mod server;
#[path = "gateway/steady.rs"]
mod steady;
#[path = "gateway/table.rs"]
mod table;

use std::{fs, io::Write, path::Path, time::Instant};

use self::{options::Options, server::Target};

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
    let targets = targets(&options);
    print_machine(&options);
    if options.rounds > 0 {
        steady::run(&options, &targets);
    }
    if options.restart_keys > 0 {
        restart::run(&options, &targets);
    }
    if options.compact_revisions > 0 {
        compaction::run(&options, &targets);
    }
    if options.defragment_mb > 0 {
        defragment::run(&options, &targets);
    }
    if options.list_keys > 0 {
        list::run(&options, &targets);
    }
    if !options.memory_keys.is_empty() {
        memory::run(&options, &targets);
    }
}

fn targets(options: &Options) -> Vec<Target> {
    let mut targets = vec![Target::revgate(&options.revgate)];
    match &options.etcd {
        Some(etcd) => targets.push(Target::etcd(etcd)),
        None => println!("no --etcd: revgate alone is measured, and there are no ratios\n"),
    }
    for target in &targets {
        println!("{}: {}", target.name, target.version());
    }
    targets
}

/// What the figures depend on and nobody remembers later.
fn print_machine(options: &Options) {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let sync = median_sync_micros(&options.dir);
    println!("machine: {processors} processors shared by client and server; write and fdatasync of 4 KiB: {sync} us\n");
}

/// Median of a hundred times.
fn median_sync_micros(dir: &Path) -> u128 {
    let path = dir.join("sync-probe");
    let mut file = fs::File::create(&path).unwrap();
    let mut times: Vec<u128> = (0..100)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&[1; 4096]).unwrap();
            file.sync_data().unwrap();
            start.elapsed().as_micros()
        })
        .collect();
    fs::remove_file(&path).unwrap();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The middle of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 }
}
