//! The rows of the report, and what they share: a phase of load with the processor time it took.

pub(crate) mod compaction;
pub(crate) mod defragment;
mod fan_out;
pub(crate) mod filled;
mod mixed;
mod requests;
pub(crate) mod steady;

use crate::{
    figures::{Figures, Side},
    list,
    load::Load,
    options::{Options, Row},
    server::{Running, Target, processor_seconds},
    watch,
};

/// The server's processor time, by what was done.
pub(crate) const CPU_PER_THOUSAND: &str = "CPU s/1,000";
pub(crate) const PER_SECOND: &str = "a second";
pub(crate) const P50_MILLIS: &str = "p50 ms";
pub(crate) const P99_MILLIS: &str = "p99 ms";

/// A measurement that prints a table of its own.
type Detail = fn(&Options, &[Target]);

/// Measures what was asked for.
pub(crate) fn run(options: &Options, targets: &[Target], figures: &mut Figures) {
    if options.measures_any(&steady::ROWS) || options.measures(Row::Mixed) {
        steady::run(options, targets, figures);
    }
    if options.measures(Row::FanOut) {
        fan_out::run(options, targets, figures);
    }
    if options.measures_any(&filled::ROWS) {
        filled::run(options, targets, figures);
    }
    if options.measures(Row::Compaction) {
        compaction::run(options, targets, figures);
    }
    if options.measures(Row::Defragment) {
        defragment::run(options, targets, figures);
    }
    let details: [(Row, Detail); 4] = [
        (Row::Lists, list::run),
        (Row::Idle, watch::idle::run),
        (Row::Stalled, watch::stalled::run),
        (Row::Replays, watch::replays::run),
    ];
    for (_, run) in details.iter().filter(|(row, _)| options.measures(*row)) {
        run(options, targets);
        println!();
    }
}

/// Servers in the order of a round: who begins changes from round to round.
pub(crate) fn turns<T>(round: usize, targets: &[T]) -> impl Iterator<Item = usize> + use<T> {
    let count = targets.len();
    (0..count).map(move |turn| (turn + round) % count)
}

/// Processor time before some work: the server's, and the client's.
pub(crate) struct Processors {
    server_seconds: f64,
    client_seconds: f64,
    /// Of the one thread through which all writes go.
    raft_seconds: f64,
}

impl Processors {
    pub(crate) fn now(server: &Running) -> Processors {
        Processors {
            server_seconds: server.processor_seconds(),
            client_seconds: processor_seconds("self"),
            raft_seconds: server.thread_seconds("revgate-raft"),
        }
    }

    /// Adds what was used since, by a thousand of what was done.
    pub(crate) fn add_to(&self, figures: &mut Figures, row: Row, side: Side, server: &Running, done: f64) {
        let now = Processors::now(server);
        figures.add(row, CPU_PER_THOUSAND, side, (now.server_seconds - self.server_seconds) * 1000.0 / done);
        figures.add(row, "client CPU s/1,000", side, (now.client_seconds - self.client_seconds) * 1000.0 / done);
        if side == Side::Revgate {
            let raft_seconds = now.raft_seconds - self.raft_seconds;
            figures.add(row, "CPU s/1,000 of the raft thread", side, raft_seconds * 1000.0 / done);
        }
    }
}

/// Adds how many a second, and their latencies.
pub(crate) fn add_load(figures: &mut Figures, row: Row, side: Side, load: &Load) {
    figures.add(row, PER_SECOND, side, load.per_second());
    for (name, share) in [(P50_MILLIS, 0.5), (P99_MILLIS, 0.99), ("p99.9 ms", 0.999)] {
        figures.add(row, name, side, load.quantile_millis(share));
    }
}

/// Says what one round came to while it goes on.
pub(crate) fn say(round: usize, target: &Target, row: Row, what: &str) {
    println!("  round {round} {:<8} {:<16} {what}", target.name, row.name());
}
