//! What a store does on a usual day, all at once: mostly gets, some puts, a few pages, and watchers of parts of the keys.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    P50_MILLIS, P99_MILLIS, PER_SECOND, Processors,
    requests::{self, KEYS, PUT, RANGE, key, value},
    say,
};
use crate::{
    figures::Figures,
    load::{self, Due, Load},
    options::{Options, Row},
    server::{Running, Target},
    watch::fleet::{Fleet, Plan},
};

const CONNECTIONS: usize = 64;
const WATCHERS: usize = 100;
const PAGE_KEYS: usize = 100;
/// The same requests in the same order for every server and every round.
const SEED: u64 = 8;
/// Time for the last events to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);

/// Kinds of requests, and how many in a hundred of each.
const KINDS: [(&str, usize); 3] = [("get", 90), ("put", 8), ("page", 2)];

/// One round on a server that has the keys.
pub(super) fn one_round(options: &Options, round: usize, target: &Target, server: &Running, figures: &mut Figures) {
    let reading = CancellationToken::new();
    reading.cancel();
    let plan = Plan {
        watchers: WATCHERS,
        // Keys end in four digits: a watcher has those with the same two in front.
        prefixes: (0..WATCHERS).map(|part| format!("bench/{part:02}")).collect(),
        start_revision: 0,
        measured: None,
        permits: None,
        reading,
        in_background: false,
    };
    let fleet = Fleet::launch(server.address, &plan);
    let before = Processors::now(server);
    let loads = put_get_and_page(options, server);
    let all: usize = loads.iter().map(Load::count).sum();
    before.add_to(figures, Row::Mixed, target.side, server, all as f64);
    let events = loads[1].count() as u64;
    assert!(fleet.wait_events(events, ARRIVAL_MAX), "{} of {events} events arrived", fleet.events());
    fleet.stop();
    let per_second: f64 = loads.iter().map(Load::per_second).sum();
    figures.add(Row::Mixed, PER_SECOND, target.side, per_second);
    for ((kind, _), load) in KINDS.iter().zip(&loads) {
        figures.add(Row::Mixed, &format!("{kind} {P50_MILLIS}"), target.side, load.quantile_millis(0.5));
        figures.add(Row::Mixed, &format!("{kind} {P99_MILLIS}"), target.side, load.quantile_millis(0.99));
    }
    say(round, target, Row::Mixed, &format!("{per_second:.0}/s"));
}

fn put_get_and_page(options: &Options, server: &Running) -> Vec<Load> {
    let value = value(options);
    let body = |kind: usize, number: usize| match kind {
        0 => (RANGE, requests::get(&key(number), &value)),
        1 => (PUT, requests::put(&key(number), &value)),
        _ => (RANGE, format!(r#"{{"key":"{}","range_end":"AA==","limit":{PAGE_KEYS}}}"#, key(number))),
    };
    let requests: Vec<Vec<Rc<[u8]>>> = (0..KINDS.len())
        .map(|kind| (0..KEYS).map(move |number| (kind, number)))
        .map(|each| each.map(|(kind, number)| body(kind, number)))
        .map(|bodies| bodies.map(|(path, body)| load::post(server.address, path, &body)).collect())
        .collect();
    let (ends_at, random) = (Instant::now() + options.duration(), RefCell::new(fastrand::Rng::with_seed(SEED)));
    load::run_kinds(server.address, CONNECTIONS, KINDS.len(), move |_| {
        let (mut lot, mut kind) = (random.borrow_mut().usize(..100), 0);
        while lot >= KINDS[kind].1 {
            lot -= KINDS[kind].1;
            kind += 1;
        }
        let now = Instant::now();
        let request = Rc::clone(&requests[kind][random.borrow_mut().usize(..KEYS)]);
        (now < ends_at).then_some(Due { at: now, kind, request })
    })
}
