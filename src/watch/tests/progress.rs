//! Progress: on request and by the clock.

use std::time::Duration;

use super::rig::*;
use crate::watch::{HubOptions, WatchSpec};

const INTERVAL: Duration = Duration::from_secs(600);

fn notified(key: &'static str, start_revision: i64) -> WatchSpec {
    WatchSpec { progress_notify: true, ..spec(single(key), start_revision) }
}

#[test]
fn a_stream_without_watches_is_answered_at_once() {
    let mut rig = Rig::new();
    let stream = rig.open();
    rig.put("a", "1");
    stream.request_progress();
    stream.request_progress();
    rig.settle();
    assert_eq!(drain(&stream), ["-1@2 progress", "-1@2 progress"]);
}

#[test]
fn a_request_is_answered_behind_all_events_up_to_the_revision_it_asked_at() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(spec(single("a"), 0)).unwrap();
    rig.settle();
    let late = rig.world.commit(&[("a", Some("1"))]).unwrap();
    stream.request_progress();
    rig.settle();
    assert_eq!(drain(&stream), ["0@1 created"], "revision 2 is visible and not delivered");
    rig.shared.inbox.push_changes(late);
    rig.settle();
    assert_eq!(drain(&stream), ["0@2: 2+a=1", "-1@2 progress"]);
}

#[test]
fn a_request_waits_for_those_that_are_behind() {
    let options = HubOptions { stream_bytes_max: 200, catch_up_revisions_max: 1, ..options() };
    let mut rig = Rig::with(options, 1 << 20);
    for value in ["1", "2"] {
        rig.put("a", value);
    }
    let stream = rig.open();
    stream.create(spec(single("a"), 2)).unwrap();
    stream.request_progress();
    rig.settle();
    assert_eq!(drain(&stream), ["0@3 created"]);
    rig.settle();
    assert_eq!(drain(&stream), ["0@3: 2+a=1"]);
    rig.settle();
    assert_eq!(drain(&stream), ["0@3: 3+a=2"]);
    rig.settle();
    assert_eq!(drain(&stream), ["-1@3 progress"]);
}

#[test]
fn requests_of_a_client_that_does_not_read_cost_no_memory() {
    let mut rig = Rig::with(HubOptions { stream_bytes_max: 1000, ..options() }, 1 << 20);
    let stream = rig.open();
    for _ in 0..100 {
        stream.request_progress();
    }
    rig.settle();
    assert!(stream.pending_deliveries() < 10);
    let mut answers = 0;
    loop {
        let got = drain(&stream).len();
        if got == 0 {
            break;
        }
        answers += got;
        rig.settle();
    }
    assert_eq!(answers, 100);
}

#[test]
fn the_clock_tells_quiet_synced_watches_where_they_stand() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(notified("a", 0)).unwrap();
    stream.create(notified("b", 0)).unwrap();
    stream.create(spec(single("b"), 0)).unwrap();
    rig.settle();
    drain(&stream);
    rig.clock.advance(INTERVAL - Duration::from_millis(1));
    rig.put("a", "1");
    rig.settle();
    assert_eq!(drain(&stream), ["0@2: 2+a=1"]);
    rig.clock.advance(Duration::from_millis(1));
    rig.settle();
    assert_eq!(drain(&stream), ["1@2 progress"], "the other had an event in this interval");
    rig.clock.advance(INTERVAL);
    rig.settle();
    let mut got = drain(&stream);
    got.sort();
    assert_eq!(got, ["0@2 progress", "1@2 progress"]);
}

#[test]
fn a_tick_waits_until_the_hub_has_reached_what_the_stream_was_told() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(notified("b", 0)).unwrap();
    rig.settle();
    let late = rig.world.commit(&[("a", Some("1"))]).unwrap();
    stream.create(notified("c", 0)).unwrap();
    rig.clock.advance(INTERVAL);
    rig.settle();
    assert_eq!(drain(&stream), ["0@1 created", "1@2 created"]);
    rig.shared.inbox.push_changes(late);
    rig.settle();
    let mut got = drain(&stream);
    got.sort();
    assert_eq!(got, ["0@2 progress", "1@2 progress"]);
}

#[test]
fn ticking_stops_with_the_last_watch_that_wants_it() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(notified("a", 0)).unwrap();
    stream.create(spec(single("a"), 0)).unwrap();
    stream.cancel(0);
    rig.settle();
    drain(&stream);
    rig.clock.advance(INTERVAL);
    rig.settle();
    assert!(drain(&stream).is_empty());
    assert_eq!(rig.engine.time_to_tick(), None);
    stream.create(notified("a", 0)).unwrap();
    rig.settle();
    assert_eq!(rig.engine.time_to_tick(), Some(INTERVAL));
}
