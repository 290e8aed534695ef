//! One kind of request over and over, on few and many connections.

use std::{rc::Rc, time::Duration};

use super::{
    Processors, add_load, mixed,
    requests::{KEYS, PUT, RANGE, get, key, put, value},
    say, turns,
};
use crate::{
    ceilings,
    figures::{Figures, Side},
    fill, load,
    options::{Options, Row},
    profile::Profile,
    server::{Running, Target, remove},
};

const WARM_UP: Duration = Duration::from_millis(300);
/// Syncs where the file grows, and where zeros were written before.
pub(crate) const SYNCS: &str = "fdatasyncs of 2 KiB appends a second";
const SYNCS_PREPARED: &str = "the same over written zeros";

/// A kind of request: what it goes to, and its body for a key.
struct Phase {
    row: Row,
    connections: usize,
    path: &'static str,
    body: fn(key: &str, value: &str) -> String,
    /// The route that does nothing can answer it, too.
    has_ceiling: bool,
}

const PHASES: [Phase; 6] = [
    Phase { row: Row::Put1, connections: 1, path: PUT, body: put, has_ceiling: true },
    Phase { row: Row::Put64, connections: 64, path: PUT, body: put, has_ceiling: true },
    Phase { row: Row::Put512, connections: 512, path: PUT, body: put, has_ceiling: true },
    Phase { row: Row::ComparePut, connections: 64, path: "/v3/kv/txn", body: compare_and_put, has_ceiling: false },
    Phase { row: Row::Get, connections: 64, path: RANGE, body: get, has_ceiling: true },
    Phase { row: Row::GetSerializable, connections: 64, path: RANGE, body: get_serializable, has_ceiling: true },
];

pub(super) const ROWS: [Row; PHASES.len()] = {
    let mut rows = [Row::Put1; PHASES.len()];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = PHASES[at].row;
        at += 1;
    }
    rows
};

fn get_serializable(key: &str, _: &str) -> String {
    format!(r#"{{"key":"{key}","serializable":true}}"#)
}

/// The value is what it was before, so that the comparison holds each time.
fn compare_and_put(key: &str, value: &str) -> String {
    format!(
        r#"{{"compare":[{{"key":"{key}","target":"VALUE","value":"{value}"}}],"success":[{put}],"failure":[{get}]}}"#,
        put = fill::put_op(key, value),
        get = format_args!(r#"{{"request_range":{{"key":"{key}"}}}}"#),
    )
}

/// Runs all rounds.
pub(super) fn run(options: &Options, targets: &[Target], figures: &mut Figures) {
    println!("requests over and over, values of {} bytes, {} s each", options.value_bytes(), options.seconds);
    let ceiling = Target::ceiling();
    let mut all: Vec<&Target> = targets.iter().collect();
    if PHASES.iter().any(|phase| phase.has_ceiling && options.measures(phase.row)) {
        all.push(&ceiling);
    }
    for round in 0..options.rounds {
        if options.measures(Row::Put1) {
            for (name, prepared) in [(SYNCS, false), (SYNCS_PREPARED, true)] {
                let syncs = ceilings::syncs_per_second(&options.dir, options.duration() / 2, prepared);
                figures.add(Row::Put1, name, Side::Ceiling, syncs);
            }
        }
        for which in turns(round, &all) {
            one_round(options, round, all[which], figures);
        }
    }
}

fn one_round(options: &Options, round: usize, target: &Target, figures: &mut Figures) {
    let (mut server, data_dir) = target.start_fresh(options, "steady");
    let value = value(options);
    if target.side != Side::Ceiling {
        let filler = value.clone();
        fill::txns(server.address, KEYS, move |number| fill::put_op(&key(number), &filler));
        let first = load::ask(server.address, "/v3/kv/txn", &compare_and_put(&key(0), &value));
        assert!(first.contains(r#""succeeded":true"#), "the comparison holds: {first}");
    }
    for phase in PHASES.iter().filter(|phase| options.measures(phase.row)) {
        if target.side != Side::Ceiling || phase.has_ceiling {
            one_phase(options, round, target, &server, phase, &value, figures);
        }
    }
    if target.side != Side::Ceiling && options.measures(Row::Mixed) {
        mixed::one_round(options, round, target, &server, figures);
    }
    server.stop();
    remove(&data_dir);
}

fn one_phase(
    options: &Options,
    round: usize,
    target: &Target,
    server: &Running,
    phase: &Phase,
    value: &str,
    figures: &mut Figures,
) {
    let request = |number| load::post(server.address, phase.path, &(phase.body)(&key(number), value));
    let requests: Vec<Rc<[u8]>> = (0..KEYS).map(request).collect();
    load::run_for(server.address, phase.connections, WARM_UP.min(options.duration()), &requests);
    let profile = Profile::start(options, phase.row, target, server);
    let before = Processors::now(server);
    let load = load::run_for(server.address, phase.connections, options.duration(), &requests);
    drop(profile);
    before.add_to(figures, phase.row, target.side, server, load.count() as f64);
    add_load(figures, phase.row, target.side, &load);
    say(round, target, phase.row, &format!("{:.0}/s", load.per_second()));
}
