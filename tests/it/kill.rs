//! SIGKILL at random moments under eight writers: nothing acknowledged is lost, no revision goes back, and a watch from
//! the first revision tells the whole story once and in order.
//!
//! The moments are random (`REVGATE_TEST_SEED` repeats a run's choices); what is asserted never depends on time.

mod history;
mod samples;
mod writer;

use std::{
    env,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use self::{
    history::History,
    writer::{Outcome, Report, Writer},
};
use crate::support::{ANSWER_MAX, Client, Server};

const ROUNDS: usize = 20;
const WRITERS: usize = 8;
/// Acknowledged writes after which a round's server is killed: a random number below this.
const WRITES_PER_ROUND_MAX: usize = 300;
/// Further random delay before the kill, so that it also falls between two acknowledgements.
const KILL_DELAY_MAX_MICROS: u64 = 3_000;
/// Random delay before a kill in the middle of recovery.
const RECOVERY_KILL_DELAY_MAX_MICROS: u64 = 60_000;
/// The log is released often, so that restarts also begin in the middle of it.
const FLAGS: [&str; 4] = ["--snapshot-count", "500", "--snapshot-catchup-entries", "100"];

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let seed = match env::var("REVGATE_TEST_SEED") {
        Ok(seed) => seed.parse().expect("REVGATE_TEST_SEED is a whole number"),
        Err(_) => fastrand::u64(..),
    };
    println!("REVGATE_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().unwrap();
    let mut history = History::default();
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, random.fork())).collect();
    for round in 0..ROUNDS {
        if round % 4 == 3 {
            let delay = Duration::from_micros(random.u64(..RECOVERY_KILL_DELAY_MAX_MICROS));
            Server::start_and_kill_after(data.path(), &FLAGS, delay);
        }
        writers = run_round(data.path(), &mut history, writers, &mut random);
        println!("round {round}: revision {} acknowledged, {} in doubt", history.highest_seen(), history.in_doubt());
    }
    let server = Server::start_with(data.path(), &FLAGS);
    let mut client = server.client();
    assert_acknowledged_is_there(&mut client, &mut history);
    assert_watch_tells_everything(&server, &history);
}

/// One life of the server: what earlier lives acknowledged is there; then eight writers, and a kill.
fn run_round(data_dir: &Path, history: &mut History, writers: Vec<Writer>, random: &mut fastrand::Rng) -> Vec<Writer> {
    let server = Server::start_with(data_dir, &FLAGS);
    assert_acknowledged_is_there(&mut server.client(), history);
    let (reports, received) = mpsc::channel::<Report>();
    let stop = Arc::new(AtomicBool::new(false));
    let lowest_revision = history.highest_seen();
    let running: Vec<_> = writers
        .into_iter()
        .map(|mut writer| {
            let (client, reports, stop) = (server.client(), reports.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                writer.run(client, lowest_revision, &stop, &reports);
                writer
            })
        })
        .collect();
    drop(reports);
    let mut acknowledged = 0;
    let kill_after = random.usize(1..WRITES_PER_ROUND_MAX);
    while acknowledged < kill_after {
        let report = received.recv_timeout(ANSWER_MAX).expect("the writers go on");
        assert!(!matches!(report.outcome, Outcome::Unknown), "an answer was lost before the kill: {report:?}");
        acknowledged += 1;
        history.add(report);
    }
    spin(Duration::from_micros(random.u64(..KILL_DELAY_MAX_MICROS)));
    server.kill();
    // A writer may still have been between two requests: it must not knock at a door that is closed.
    stop.store(true, Ordering::Relaxed);
    let writers = running.into_iter().map(|writer| writer.join().expect("no writer found anything wrong")).collect();
    received.iter().for_each(|report| history.add(report));
    writers
}

/// Waits without giving the processor away, which would be much coarser.
fn spin(delay: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// Every write acknowledged since the last look reads back at its revision, and the store has gone no step back.
fn assert_acknowledged_is_there(client: &mut Client, history: &mut History) {
    let now = revision_of(&client.call("/v3/kv/range", &json!({"key": "AA=="}))["header"]["revision"]);
    assert!(now >= history.highest_seen(), "the store is at {now}, but {} was seen", history.highest_seen());
    for (revision, change) in history.take_unchecked() {
        let read = client.call("/v3/kv/range", &json!({"key": change.key, "revision": revision.to_string()}));
        match change.value {
            Some(value) => {
                assert_eq!(read["kvs"][0]["value"], Value::from(value), "{} at {revision}: {read}", change.key);
                assert_eq!(revision_of(&read["kvs"][0]["mod_revision"]), revision, "{read}");
            }
            None => assert_eq!(read.get("kvs"), None, "{} was deleted at {revision}: {read}", change.key),
        }
    }
}

/// A watch from the first revision replays each revision once and in order, tells what was acknowledged, and adds up to
/// what is stored.
fn assert_watch_tells_everything(server: &Server, history: &History) {
    let stored = server.client().call("/v3/kv/range", &json!({"key": "AA==", "range_end": "AA=="}));
    let last_revision = revision_of(&stored["header"]["revision"]);
    let create = json!({"create_request": {"key": "AA==", "range_end": "AA==", "start_revision": "1"}});
    let mut watch = server.client().open_lines("/v3/watch", &create.to_string());
    assert_eq!(watch.next_json()["result"]["created"], Value::from(true));
    let mut replay = history.replay();
    while replay.revision() < last_revision {
        let line = watch.next_json();
        let events = line["result"]["events"].as_array().unwrap_or_else(|| panic!("a line without events: {line}"));
        replay.take(events);
    }
    replay.finish(stored["kvs"].as_array().map_or(&[], Vec::as_slice));
}

/// A revision as JSON carries it.
fn revision_of(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("not a revision: {value}"))
}
