//! Puts beside watchers that do not read, and whether those get everything once they do.
//!
//! A disk is not the same from minute to minute: rounds without and with watchers, and of the servers, take turns, and what
//! is told is the median of the rounds.

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
    let mut rounds: Vec<Vec<[Figures; 2]>> = targets.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            let round = [0, watchers].map(|watchers| {
                let figures = measure(options, target, watchers);
                print_line(target, watchers, &figures);
                figures
            });
            rounds.push(round);
        }
    }
    for (target, rounds) in targets.iter().zip(&rounds) {
        let median = |figure: fn(&[Figures; 2]) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        println!(
            "  {:<8} p99: {:.2} ms without, {:.2} ms with; with them {:.3} times as long, and memory grows by {:.1} MiB more",
            target.name,
            median(|[without, _]| without.p99_millis),
            median(|[_, with]| with.p99_millis),
            median(|[without, with]| with.p99_millis / without.p99_millis),
            median(|[without, with]| with.growth_mib - without.growth_mib)
        );
    }
}

fn print_line(target: &Target, watchers: usize, figures: &Figures) {
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
        in_background: false,
    };
    let fleet = Fleet::launch(server.address, &plan);
    let before = server.memory_bytes().1;
    let putting = puts::start(server.address, &puts, Pace::Rate(options.rate), CONNECTIONS, options.duration());
    let latencies = putting.join().unwrap();
    let growth = server.memory_bytes().1.saturating_sub(before);
    let read_from = Instant::now();
    reading.cancel();
    let all = (latencies.len() * watchers) as u64;
    fleet.wait_events(all, options.replay_limit());
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
