//! Many watchers of one prefix: how many events reach them a second, and how long one takes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{CPU_PER_THOUSAND, P50_MILLIS, P99_MILLIS, say, turns};
use crate::{
    figures::Figures,
    options::{Options, Row},
    server::{Running, Target, processor_seconds, remove},
    watch::{
        fleet::{Fleet, Plan},
        puts::{self, CONNECTIONS, Pace, Puts},
        quantile,
    },
};

const WATCHERS: usize = 1_000;
const PREFIX: &str = "bench/";
const PUTS_MAX: usize = 1 << 20;
const VALUE_BYTES: usize = 192;
const WARM_UP: Duration = Duration::from_secs(1);
/// Time for the last events to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);
/// Share of what the slowest server held that all get in the second half.
const SHARE_HELD: f64 = 0.9;

/// What one load came to.
struct Found {
    puts_per_second: f64,
    deliveries_per_second: f64,
    /// From when a put was sent until a watcher had its event, in microseconds, sorted.
    latencies: Vec<u32>,
    server_seconds_per_thousand: f64,
    client_seconds_per_thousand: f64,
}

/// Runs all rounds: first puts as fast as all watchers follow, then puts at a rate that every server can hold.
pub(super) fn run(options: &Options, targets: &[Target], figures: &mut Figures) {
    println!("puts that go to {} watchers each, {} s each", watchers(options), options.seconds);
    for round in 0..options.rounds {
        let mut slowest = f64::INFINITY;
        for which in turns(round, targets) {
            let found = measure(options, &targets[which], None);
            slowest = slowest.min(found.puts_per_second);
            let mut add = |name: &str, value| figures.add(Row::FanOut, name, targets[which].side, value);
            add("deliveries a second", found.deliveries_per_second);
            add(CPU_PER_THOUSAND, found.server_seconds_per_thousand);
            add("client CPU s/1,000", found.client_seconds_per_thousand);
            say(round, &targets[which], Row::FanOut, &format!("{:.0} deliveries/s", found.deliveries_per_second));
        }
        let rate = (slowest * SHARE_HELD).max(1.0);
        for which in turns(round, targets) {
            let found = measure(options, &targets[which], Some(rate));
            for (name, share) in [(P50_MILLIS, 0.5), (P99_MILLIS, 0.99), ("p99.9 ms", 0.999)] {
                let millis = quantile(&found.latencies, share);
                figures.add(Row::FanOut, &format!("same rate: {name}"), targets[which].side, millis);
            }
        }
    }
}

fn watchers(options: &Options) -> usize {
    options.watchers.unwrap_or(WATCHERS)
}

fn measure(options: &Options, target: &Target, rate: Option<f64>) -> Found {
    let (mut server, data_dir) = target.start_fresh(options, "fan-out");
    let (watchers, duration) = (watchers(options), options.duration());
    let puts = Puts::new(PREFIX, PUTS_MAX, options.value_bytes.unwrap_or(VALUE_BYTES));
    let permits = Arc::new(Semaphore::new(options.window));
    let first_measured = Arc::new(AtomicUsize::new(usize::MAX));
    let reading = CancellationToken::new();
    reading.cancel();
    let fleet = Fleet::launch(
        server.address,
        &Plan {
            watchers,
            prefixes: vec![PREFIX.to_owned()],
            start_revision: 0,
            measured: Some((Arc::clone(&puts), Arc::clone(&first_measured))),
            permits: rate.is_none().then(|| Arc::clone(&permits)),
            reading,
            in_background: false,
        },
    );
    let pace = rate.map_or(Pace::Permits(permits), Pace::Rate);
    let connections = if rate.is_some() { CONNECTIONS } else { options.window };
    let putting = puts::start(server.address, &puts, pace, connections, WARM_UP + duration);
    thread::sleep(WARM_UP);
    first_measured.store(puts.count(), Ordering::SeqCst);
    let before = Moment::now(&server, &fleet, &puts);
    thread::sleep(duration);
    let after = Moment::now(&server, &fleet, &puts);
    putting.join().unwrap();
    let all = (puts.count() * watchers) as u64;
    assert!(fleet.wait_events(all, ARRIVAL_MAX), "{} of {all} events arrived", fleet.events());
    let (latencies, disorder) = fleet.stop();
    assert_eq!(disorder, 0, "events out of order, missing or repeated");
    server.stop();
    remove(&data_dir);
    let seconds = (after.at - before.at).as_secs_f64();
    let events = (after.events - before.events) as f64;
    Found {
        puts_per_second: (after.puts - before.puts) as f64 / seconds,
        deliveries_per_second: events / seconds,
        latencies,
        server_seconds_per_thousand: (after.server_seconds - before.server_seconds) * 1000.0 / events,
        client_seconds_per_thousand: (after.client_seconds - before.client_seconds) * 1000.0 / events,
    }
}

struct Moment {
    at: Instant,
    events: u64,
    puts: usize,
    server_seconds: f64,
    client_seconds: f64,
}

impl Moment {
    fn now(server: &Running, fleet: &Fleet, puts: &Puts) -> Moment {
        Moment {
            at: Instant::now(),
            events: fleet.events(),
            puts: puts.count(),
            server_seconds: server.processor_seconds(),
            client_seconds: processor_seconds("self"),
        }
    }
}
