//! One live watcher, alone and beside many that replay history from its first revision.
//!
//! Client and server share the processors. What is measured is how the server lets a live event through, so those that
//! replay are read from by a thread of lower priority, for every server alike: else the live watcher's own thread would
//! wait behind theirs.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    thread,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    fleet::{Fleet, Plan},
    puts::{self, CONNECTIONS, Pace, Puts},
    quantile,
};
use crate::{
    options::Options,
    server::{Running, Target, remove},
};

const WATCHERS: usize = 200;
const REVISIONS: usize = 100_000;

const HISTORY_PREFIX: &str = "history/";
const LIVE_PREFIX: &str = "live/";
const VALUE_BYTES: usize = 192;
/// Connections that write the history.
const FILL_CONNECTIONS: usize = 64;
const FILL_MAX: Duration = Duration::from_secs(3600);
const ARRIVAL_MAX: Duration = Duration::from_secs(60);

fn watchers(options: &Options) -> usize {
    options.watchers.unwrap_or(WATCHERS)
}

fn revisions(options: &Options) -> usize {
    options.revisions.unwrap_or(REVISIONS)
}

struct Figures {
    alone: Vec<u32>,
    beside: Vec<u32>,
    replay: Duration,
    events: u64,
    missing: u64,
    disorder: u64,
}

pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!(
        "a live watcher at {:.0} puts a second, alone and beside {} replays of {} revisions",
        options.live_rate,
        watchers(options),
        revisions(options)
    );
    println!(
        "           alone: p50 ms   p99 ms   beside: p50 ms   p99 ms   times   replays: s  events/s  missing  disorder"
    );
    for target in targets {
        let figures = measure(options, target);
        let (alone, beside) = (quantile(&figures.alone, 0.99), quantile(&figures.beside, 0.99));
        println!(
            "  {:<8} {:>13.2} {:>8.2} {:>16.2} {:>8.2} {:>7.2} {:>12.1} {:>9.0} {:>8} {:>9}",
            target.name,
            quantile(&figures.alone, 0.5),
            alone,
            quantile(&figures.beside, 0.5),
            beside,
            beside / alone,
            figures.replay.as_secs_f64(),
            figures.events as f64 / figures.replay.as_secs_f64(),
            figures.missing,
            figures.disorder
        );
        if figures.missing > 0 {
            println!("           stopped after {} s", options.replay_limit().as_secs());
        }
    }
}

fn measure(options: &Options, target: &Target) -> Figures {
    let (mut server, data_dir) = target.start_fresh(options, "replays");
    let value_bytes = options.value_bytes.unwrap_or(VALUE_BYTES);
    let history = Puts::new(HISTORY_PREFIX, revisions(options), value_bytes);
    puts::start(server.address, &history, Pace::Free, FILL_CONNECTIONS, FILL_MAX).join().unwrap();

    let (mut alone, _) = live(options, &server, || thread::sleep(options.duration()));
    let (mut replay, mut events, mut missing, mut disorder) = (Duration::ZERO, 0, 0, 0);
    let (beside, _) = live(options, &server, || {
        let reading = CancellationToken::new();
        reading.cancel();
        let plan = Plan {
            watchers: watchers(options),
            prefixes: vec![HISTORY_PREFIX.to_owned()],
            start_revision: 1,
            measured: None,
            permits: None,
            reading,
            in_background: true,
        };
        let begun = Instant::now();
        let fleet = Fleet::launch(server.address, &plan);
        let all = (watchers(options) * revisions(options)) as u64;
        fleet.wait_events(all, options.replay_limit());
        replay = begun.elapsed();
        events = fleet.events();
        missing = all.saturating_sub(events);
        disorder = fleet.stop().1;
    });
    // Before and after, as a shared machine does not stay the same.
    alone.extend(live(options, &server, || thread::sleep(options.duration())).0);
    alone.sort_unstable();
    server.stop();
    remove(&data_dir);
    Figures { alone, beside, replay, events, missing, disorder }
}

/// Latencies of a live watcher while something else goes on.
fn live(options: &Options, server: &Running, meanwhile: impl FnOnce()) -> (Vec<u32>, u64) {
    let limit = options.replay_limit() + options.duration();
    let puts = Puts::new(LIVE_PREFIX, (options.live_rate * limit.as_secs_f64()) as usize, VALUE_BYTES);
    let reading = CancellationToken::new();
    reading.cancel();
    let fleet = Fleet::launch(
        server.address,
        &Plan {
            watchers: 1,
            prefixes: vec![LIVE_PREFIX.to_owned()],
            start_revision: 0,
            measured: Some((Arc::clone(&puts), Arc::new(AtomicUsize::new(0)))),
            permits: None,
            reading,
            in_background: false,
        },
    );
    let putting = puts::start(server.address, &puts, Pace::Rate(options.live_rate), CONNECTIONS, limit);
    meanwhile();
    puts.end();
    putting.join().unwrap();
    assert!(fleet.wait_events(puts.count() as u64, ARRIVAL_MAX), "the live watcher missed events");
    fleet.stop()
}
