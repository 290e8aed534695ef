//! A steady load of puts while history is compacted: their latency before and meanwhile, and how long it takes.

use std::{
    cell::Cell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{P50_MILLIS, P99_MILLIS, Processors, say, turns};
use crate::{
    figures::Figures,
    fill::{self, Template, field},
    load::{self, Due, Load},
    options::{Options, Row},
    server::{Running, Target, remove},
};

const REVISIONS: usize = 600_000;
/// Puts a second, offered whatever the answers take.
const PUTS_PER_SECOND: u64 = 1_000;
/// Connections the puts are spread over.
const CONNECTIONS: usize = 16;
/// Keys whose history is compacted: each has been put many times.
const KEYS: usize = 10_000;
/// Least length of the measurement during the compaction, so that a short one has a p99 too.
const MEANWHILE_MIN: Duration = Duration::from_secs(2);
/// Puts before the first ones that count.
const WARM_UP: Duration = Duration::from_millis(500);

pub(crate) const COMPACTION_SECONDS: &str = "duration s";
/// p99 while history is compacted, and before.
pub(crate) const P99_MEANWHILE: &str = "p99 ms while compacting";
pub(crate) const P99_BY_QUIET: &str = "p99 compacting / quiet";

/// Fills each server once, and compacts a copy in each round.
pub(super) fn run(options: &Options, targets: &[Target], figures: &mut Figures) {
    let revisions = options.revisions.unwrap_or(REVISIONS);
    println!("{PUTS_PER_SECOND} puts a second while {revisions} revisions of {KEYS} keys are compacted");
    let value_bytes = options.value_bytes();
    let templates: Vec<Template> = targets
        .iter()
        .map(|target| {
            Template::fill(options, target, "compaction", |server| {
                fill::txns(server.address, revisions, move |number| {
                    let key = base64_simd::STANDARD.encode_to_string(format!("k{:08}", number % KEYS));
                    fill::put_op(&key, &base64_simd::STANDARD.encode_to_string(format!("{number:0value_bytes$}")))
                });
            })
        })
        .collect();
    for round in 0..options.rounds {
        for which in turns(round, targets) {
            let (mut server, data_dir) = templates[which].start(options, &targets[which], "compaction");
            one_round(options, round, &targets[which], &server, figures);
            server.stop();
            remove(&data_dir);
        }
    }
    templates.into_iter().for_each(Template::remove);
}

fn one_round(options: &Options, round: usize, target: &Target, server: &Running, figures: &mut Figures) {
    let value = base64_simd::STANDARD.encode_to_string(vec![b'v'; options.value_bytes()]);
    let put = load::post(server.address, "/v3/kv/put", &format!(r#"{{"key":"Zm9v","value":"{value}"}}"#));
    steady(server.address, &put, Until::Passed(WARM_UP));
    let quiet = steady(server.address, &put, Until::Passed(options.duration()));

    let answer = load::ask(server.address, "/v3/kv/range", r#"{"key":"Zm9v"}"#);
    let body = format!(r#"{{"revision":"{}","physical":true}}"#, field(&answer, "revision"));
    let before = Processors::now(server);
    let is_over = Arc::new(AtomicBool::new(false));
    let compacting = thread::spawn({
        let (address, is_over) = (server.address, Arc::clone(&is_over));
        move || {
            let started = Instant::now();
            load::ask(address, "/v3/kv/compaction", &body);
            let took = started.elapsed();
            is_over.store(true, Ordering::SeqCst);
            took
        }
    });
    let meanwhile = steady(server.address, &put, Until::Over(is_over));
    let took = compacting.join().unwrap();
    before.add_to(figures, Row::Compaction, target.side, server, meanwhile.count() as f64);
    let mut add = |name: &str, value| figures.add(Row::Compaction, name, target.side, value);
    add(COMPACTION_SECONDS, took.as_secs_f64());
    for (name, load) in [("quiet", &quiet), ("while compacting", &meanwhile)] {
        for (quantile, share) in [(P50_MILLIS, 0.5), (P99_MILLIS, 0.99), ("largest ms", 1.0)] {
            add(&format!("{quantile} {name}"), load.quantile_millis(share));
        }
    }
    add(P99_BY_QUIET, meanwhile.quantile_millis(0.99) / quiet.quantile_millis(0.99));
    add("puts a second meanwhile", meanwhile.per_second());
    say(round, target, Row::Compaction, &format!("{:.2} s", took.as_secs_f64()));
}

/// When a steady load ends.
enum Until {
    Passed(Duration),
    /// The flag is set, and [`MEANWHILE_MIN`] has passed.
    Over(Arc<AtomicBool>),
}

/// Puts at a fixed rate: each is due at its own time, and one that comes late counts from when it was due.
fn steady(address: SocketAddr, put: &Rc<[u8]>, until: Until) -> Load {
    let started = Instant::now();
    let ends = move || match &until {
        Until::Passed(limit) => started.elapsed() >= *limit,
        Until::Over(is_over) => started.elapsed() >= MEANWHILE_MIN && is_over.load(Ordering::SeqCst),
    };
    let (put, sent) = (Rc::clone(put), Cell::new(0_u64));
    let next = move |_| {
        let at = started + Duration::from_nanos(sent.get() * 1_000_000_000 / PUTS_PER_SECOND);
        sent.set(sent.get() + 1);
        (!ends()).then(|| Due { at, kind: 0, request: Rc::clone(&put) })
    };
    load::run_kinds(address, CONNECTIONS, 1, next).remove(0)
}
