//! A store with many keys: the memory it takes, how long it takes to start again, lists of all of it, and pages.

use std::time::{Duration, Instant};

use super::{PER_SECOND, Processors, say, turns};
use crate::{
    figures::{Figures, Side},
    list::{Filled, pages},
    mib,
    options::{Options, Row},
    profile::Profile,
    server::Target,
};

pub(super) const ROWS: [Row; 4] = [Row::Memory, Row::Restart, Row::List, Row::Page];
pub(crate) const START_SECONDS: &str = "start to healthy s";
pub(crate) const RESIDENT_MIB: &str = "resident MiB";

/// Fills both servers once, then takes the rounds on the one and the other. Who is not measured is at rest.
pub(super) fn run(options: &Options, targets: &[Target], figures: &mut Figures) {
    println!("a store of {} keys of 32 bytes, values of {} bytes", options.keys, options.value_bytes());
    let mut filled: Vec<Filled<'_>> = targets.iter().map(|target| fill(options, target, figures)).collect();
    for round in 0..options.rounds {
        for which in turns(round, targets) {
            let filled = &mut filled[which];
            if options.measures(Row::Restart) {
                restart(round, filled, figures);
            }
            if options.measures(Row::List) {
                list(options, round, filled, figures);
            }
            if options.measures(Row::Page) {
                page(round, filled, options.duration(), figures);
            }
        }
    }
    filled.into_iter().for_each(Filled::remove);
}

fn fill<'a>(options: &Options, target: &'a Target, figures: &mut Figures) -> Filled<'a> {
    let began = Instant::now();
    let filled = Filled::fill(target, options);
    let side = target.side;
    figures.add(Row::Memory, "fill and come to rest s", side, began.elapsed().as_secs_f64());
    let (resident, anonymous) = filled.server.memory_bytes();
    figures.add(Row::Memory, RESIDENT_MIB, side, mib(resident));
    figures.add(Row::Memory, "anonymous MiB", side, mib(anonymous));
    println!("  {:<8} is filled: {:.0} MiB resident", target.name, mib(resident));
    filled
}

fn restart(round: usize, filled: &mut Filled<'_>, figures: &mut Figures) {
    let side = filled.target.side;
    let (stop, start) = filled.restart();
    assert_eq!(filled.count(), filled.keys, "keys of {} after its restart", filled.target.name);
    figures.add(Row::Restart, START_SECONDS, side, start.as_secs_f64());
    figures.add(Row::Restart, "CPU s until then", side, filled.server.processor_seconds());
    figures.add(Row::Restart, "stop s", side, stop.as_secs_f64());
    filled.server.settle();
    let (resident, anonymous) = filled.server.memory_bytes();
    figures.add(Row::Restart, "resident MiB after", side, mib(resident));
    figures.add(Row::Restart, "anonymous MiB after", side, mib(anonymous));
    say(round, filled.target, Row::Restart, &format!("{:.2} s", start.as_secs_f64()));
}

fn list(options: &Options, round: usize, filled: &mut Filled<'_>, figures: &mut Figures) {
    let (name, side) = (filled.target.name, filled.target.side);
    let profile = Profile::start(options, Row::List, filled.target, &filled.server);
    let before = Processors::now(&filled.server);
    let (took, growth) = filled.watched(|filled| {
        let started = Instant::now();
        filled.list_once().map(|bytes| (started.elapsed().as_secs_f64(), bytes))
    });
    drop(profile);
    // A server that took too much memory was killed, and has no figure.
    let Some(took) = took else { return };
    let (seconds, bytes) = took.unwrap_or_else(|broken| panic!("the list of {name}: {}", broken.how));
    before.add_to(figures, Row::List, side, &filled.server, 1.0);
    figures.add(Row::List, "list s", side, seconds);
    figures.add(Row::List, "GB/s", side, bytes as f64 / 1e9 / seconds);
    figures.add(Row::List, "anonymous MiB more", side, growth.mib());
    say(round, filled.target, Row::List, &format!("{seconds:.3} s for {bytes} bytes"));
}

fn page(round: usize, filled: &Filled<'_>, duration: Duration, figures: &mut Figures) {
    let side: Side = filled.target.side;
    let before = Processors::now(&filled.server);
    let load = pages::random(filled, duration, round as u64);
    before.add_to(figures, Row::Page, side, &filled.server, load.count() as f64);
    super::add_load(figures, Row::Page, side, &load);
    say(round, filled.target, Row::Page, &format!("{:.1} {PER_SECOND}", load.per_second()));
}
