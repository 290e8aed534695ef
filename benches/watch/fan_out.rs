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

use super::{
    Options, Target,
    fleet::{Fleet, Plan},
    puts::{self, Pace, Puts},
    quantile,
    server::{Running, processor_seconds},
    start_fresh,
};

const PREFIX: &str = "bench/";
const PUTS_MAX: usize = 1 << 20;
const VALUE_BYTES: usize = 192;
const WARM_UP: Duration = Duration::from_secs(1);
/// Time for the last events to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);
/// Share of what the slowest server held that all get in the second half.
const SHARE_HELD: f64 = 0.9;

struct Figures {
    puts_per_second: f64,
    deliveries_per_second: f64,
    p50_millis: f64,
    p99_millis: f64,
    p999_millis: f64,
    server_processors: f64,
    client_processors: f64,
}

pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!("fan-out to {} watchers of one prefix, {} s each", options.fan_out, options.duration.as_secs());
    let closed: Vec<Figures> = targets.iter().map(|target| measure(options, target, None)).collect();
    print_table(&format!("closed loop, window {}", options.window), targets, &closed);
    let slowest = closed.iter().map(|figures| figures.puts_per_second).fold(f64::INFINITY, f64::min);
    let rate = if options.fan_out_rate > 0.0 { options.fan_out_rate } else { (slowest * SHARE_HELD).max(1.0) };
    let paced: Vec<Figures> = targets.iter().map(|target| measure(options, target, Some(rate))).collect();
    print_table(&format!("{rate:.0} puts a second"), targets, &paced);
}

fn measure(options: &Options, target: &Target, rate: Option<f64>) -> Figures {
    let server = start_fresh(options, target, "fan-out");
    let puts = Puts::new(PREFIX, PUTS_MAX, options.value_bytes.unwrap_or(VALUE_BYTES));
    let permits = Arc::new(Semaphore::new(options.window));
    let first_measured = Arc::new(AtomicUsize::new(usize::MAX));
    let reading = CancellationToken::new();
    reading.cancel();
    let fleet = Fleet::launch(
        server.address,
        &Plan {
            watchers: options.fan_out,
            prefix: PREFIX,
            start_revision: 0,
            measured: Some((Arc::clone(&puts), Arc::clone(&first_measured))),
            permits: rate.is_none().then(|| Arc::clone(&permits)),
            reading,
            in_background: false,
        },
    );
    let pace = rate.map_or(Pace::Permits(permits), Pace::Rate);
    let connections = if rate.is_some() { options.connections } else { options.window };
    let putting = puts::start(server.address, &puts, pace, connections, WARM_UP + options.duration);
    thread::sleep(WARM_UP);
    first_measured.store(puts.count(), Ordering::SeqCst);
    let before = Moment::now(&server, &fleet, &puts);
    thread::sleep(options.duration);
    let after = Moment::now(&server, &fleet, &puts);
    putting.join().unwrap();
    let all = (puts.count() * options.fan_out) as u64;
    assert!(fleet.wait_events(all, ARRIVAL_MAX), "{} of {all} events arrived", fleet.events());
    let (latencies, disorder) = fleet.stop();
    assert_eq!(disorder, 0, "events out of order, missing or repeated");
    server.stop();
    let seconds = (after.at - before.at).as_secs_f64();
    Figures {
        puts_per_second: (after.puts - before.puts) as f64 / seconds,
        deliveries_per_second: (after.events - before.events) as f64 / seconds,
        p50_millis: quantile(&latencies, 0.5),
        p99_millis: quantile(&latencies, 0.99),
        p999_millis: quantile(&latencies, 0.999),
        server_processors: (after.server_seconds - before.server_seconds) / seconds,
        client_processors: (after.client_seconds - before.client_seconds) / seconds,
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

fn print_table(title: &str, targets: &[Target], figures: &[Figures]) {
    println!("{title}");
    println!("           puts/s  deliveries/s   p50 ms   p99 ms p99.9 ms  processors: server  client  us a delivery");
    for (target, figures) in targets.iter().zip(figures) {
        println!(
            "  {:<8} {:>6.0} {:>13.0} {:>8.2} {:>8.2} {:>8.2} {:>19.2} {:>7.2} {:>14.2}",
            target.name,
            figures.puts_per_second,
            figures.deliveries_per_second,
            figures.p50_millis,
            figures.p99_millis,
            figures.p999_millis,
            figures.server_processors,
            figures.client_processors,
            figures.server_processors * 1e6 / figures.deliveries_per_second
        );
    }
    if let [ours, theirs] = figures {
        println!(
            "  revgate delivers {:.2} times as much, its p99 is {:.3} times as long",
            ours.deliveries_per_second / theirs.deliveries_per_second,
            ours.p99_millis / theirs.p99_millis
        );
    }
}
