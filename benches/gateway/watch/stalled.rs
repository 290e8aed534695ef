//! Puts beside watchers that do not read, and whether those get everything once they do.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{
    fleet::{Fleet, Plan},
    puts::{self, CONNECTIONS, Pace, Puts},
    quantile,
};
use crate::{
    mib,
    options::Options,
    server::{Target, remove},
};

const WATCHERS: usize = 100;

const PREFIX: &str = "bench/";
const VALUE_BYTES: usize = 1023;
/// Longest time for the watchers to read everything.
const CATCH_UP_MAX: Duration = Duration::from_secs(600);

struct Figures {
    p50_millis: f64,
    p99_millis: f64,
    puts: usize,
    growth_mib: f64,
    caught_up: Duration,
    missing: u64,
    disorder: u64,
}

pub(crate) fn run(options: &Options, targets: &[Target]) {
    let (watchers, seconds) = (options.watchers.unwrap_or(WATCHERS), options.seconds);
    println!(
        "{:.0} puts a second for {seconds} s, without and with {watchers} watchers that do not read",
        options.rate
    );
    println!("                      puts   p50 ms   p99 ms  anonymous MiB more  caught up in s   missing  disorder");
    for target in targets {
        let rounds = [0, watchers].map(|watchers| measure(options, target, watchers));
        for (watchers, figures) in [0, watchers].iter().zip(&rounds) {
            println!(
                "  {:<8} {watchers:>5} {:>8} {:>8.2} {:>8.2} {:>19.1} {:>15.1} {:>9} {:>9}",
                target.name,
                figures.puts,
                figures.p50_millis,
                figures.p99_millis,
                figures.growth_mib,
                figures.caught_up.as_secs_f64(),
                figures.missing,
                figures.disorder
            );
        }
        println!(
            "  {:<8} with them p99 is {:.3} times as long, and memory grows by {:.1} MiB more",
            target.name,
            rounds[1].p99_millis / rounds[0].p99_millis,
            rounds[1].growth_mib - rounds[0].growth_mib
        );
    }
}

fn measure(options: &Options, target: &Target, watchers: usize) -> Figures {
    let (mut server, data_dir) = target.start_fresh(options, "stalled");
    let puts_max = (options.rate * options.duration().as_secs_f64()) as usize + CONNECTIONS;
    let puts = Puts::new(PREFIX, puts_max, options.value_bytes.unwrap_or(VALUE_BYTES));
    let reading = CancellationToken::new();
    let plan = Plan {
        watchers,
        prefixes: vec![PREFIX.to_owned()],
        start_revision: 0,
        measured: None,
        permits: None,
        reading: reading.clone(),
    };
    let fleet = Fleet::launch(server.address, &plan);
    let before = server.memory_bytes().1;
    let putting = puts::start(server.address, &puts, Pace::Rate(options.rate), CONNECTIONS, options.duration());
    let latencies = putting.join().unwrap();
    let growth = server.memory_bytes().1.saturating_sub(before);
    let read_from = Instant::now();
    reading.cancel();
    let all = (latencies.len() * watchers) as u64;
    fleet.wait_events(all, CATCH_UP_MAX);
    let caught_up = read_from.elapsed();
    let missing = all.saturating_sub(fleet.events());
    let (_, disorder) = fleet.stop();
    server.stop();
    remove(&data_dir);
    Figures {
        p50_millis: quantile(&latencies, 0.5),
        p99_millis: quantile(&latencies, 0.99),
        puts: latencies.len(),
        growth_mib: mib(growth),
        caught_up,
        missing,
        disorder,
    }
}
