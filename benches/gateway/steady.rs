//! Put and get of one key, over and over.

use std::{fs, time::Duration};

use crate::{
    load::{self, Load},
    median,
    options::Options,
    server::{Running, Target, processor_seconds},
};

const WARM_UP: Duration = Duration::from_millis(500);

/// What one phase of one round came to.
struct Figures {
    per_second: f64,
    p50_millis: f64,
    p99_millis: f64,
    p999_millis: f64,
    /// The server's processor time per thousand requests, in milliseconds.
    server_millis_per_thousand: f64,
    client_millis_per_thousand: f64,
    rss_mib: f64,
    anonymous_mib: f64,
}

/// Runs all rounds and prints the table.
pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!(
        "put and get of one key ({} bytes of value), {} connections, {} rounds of {} s each, round by round in turn",
        options.value_bytes,
        options.connections,
        options.rounds,
        options.duration.as_secs()
    );
    // By phase (put, get), by target, by round.
    let mut figures: [Vec<Vec<Figures>>; 2] = [(); 2].map(|()| targets.iter().map(|_| Vec::new()).collect());
    for round in 0..options.rounds {
        // Who begins changes from round to round.
        for turn in 0..targets.len() {
            let which = (turn + round) % targets.len();
            let [put, get] = one_round(options, &targets[which]);
            for (phase, name, found) in [(0, "put", put), (1, "get", get)] {
                println!("  round {round} {:<8} {name} {:>9.0}/s", targets[which].name, found.per_second);
                figures[phase][which].push(found);
            }
        }
    }
    println!();
    print_table(targets, &figures);
}

fn one_round(options: &Options, target: &Target) -> [Figures; 2] {
    let data_dir = options.dir.join(format!("steady-{}", target.name));
    let _ = fs::remove_dir_all(&data_dir);
    let (server, _) = target.start(&data_dir);
    let value = base64_simd::STANDARD.encode_to_string(vec![b'v'; options.value_bytes]);
    let put = format!(r#"{{"key":"Zm9v","value":"{value}"}}"#);
    let figures = [("/v3/kv/put", put.as_str()), ("/v3/kv/range", r#"{"key":"Zm9v"}"#)].map(|(path, body)| {
        let request = load::post(server.address, path, body);
        load::run_for(server.address, options.connections, WARM_UP, &request);
        let before = (server.processor_seconds(), processor_seconds("self"));
        let load = load::run_for(server.address, options.connections, options.duration, &request);
        figures_of(&load, before, &server)
    });
    server.stop();
    fs::remove_dir_all(&data_dir).unwrap();
    figures
}

fn figures_of(load: &Load, before: (f64, f64), server: &Running) -> Figures {
    let thousands = load.latencies_nanos.len() as f64 / 1000.0;
    let (rss, anonymous) = server.memory_bytes();
    Figures {
        per_second: load.per_second(),
        p50_millis: load.quantile_millis(0.5),
        p99_millis: load.quantile_millis(0.99),
        p999_millis: load.quantile_millis(0.999),
        server_millis_per_thousand: (server.processor_seconds() - before.0) * 1000.0 / thousands,
        client_millis_per_thousand: (processor_seconds("self") - before.1) * 1000.0 / thousands,
        rss_mib: rss as f64 / 1048576.0,
        anonymous_mib: anonymous as f64 / 1048576.0,
    }
}

/// A column: its title, and its figure.
type Column = (&'static str, fn(&Figures) -> f64);

const COLUMNS: [Column; 8] = [
    ("ops/s", |f| f.per_second),
    ("p50 ms", |f| f.p50_millis),
    ("p99 ms", |f| f.p99_millis),
    ("p99.9 ms", |f| f.p999_millis),
    ("cpu ms/1k", |f| f.server_millis_per_thousand),
    ("client ms/1k", |f| f.client_millis_per_thousand),
    ("RSS MiB", |f| f.rss_mib),
    ("anon MiB", |f| f.anonymous_mib),
];

fn print_table(targets: &[Target], figures: &[Vec<Vec<Figures>>; 2]) {
    print!("{:<13}", "median");
    COLUMNS.iter().for_each(|(title, _)| print!("{title:>14}"));
    println!();
    for (phase, by_target) in ["put", "get"].iter().zip(figures) {
        for (target, rounds) in targets.iter().zip(by_target) {
            print_row(&format!("{phase} {}", target.name), |figure| median(rounds.iter().map(figure).collect()));
        }
        if let [ours, theirs] = by_target.as_slice() {
            let ratio = |figure: fn(&Figures) -> f64| {
                median(ours.iter().zip(theirs).map(|(ours, theirs)| figure(ours) / figure(theirs)).collect())
            };
            print_row(&format!("{phase} ratio"), ratio);
        }
    }
    println!();
}

fn print_row(title: &str, value: impl Fn(fn(&Figures) -> f64) -> f64) {
    print!("{title:<13}");
    for (_, figure) in COLUMNS {
        let value = value(figure);
        let decimals = if value < 1000.0 { 2 } else { 0 };
        print!("{value:>14.decimals$}");
    }
    println!();
}
