//! Ids, cancels, drops, the end.

use super::rig::*;
use crate::watch::{CreateError, WatchSpec, engine::Next};

#[test]
fn ids_count_from_zero_and_skip_those_taken() {
    let mut rig = Rig::new();
    let stream = rig.open();
    let with_id = |watch_id| WatchSpec { watch_id, ..spec(single("a"), 0) };
    assert_eq!(stream.create(with_id(1)), Ok(1));
    assert_eq!(stream.create(with_id(0)), Ok(0));
    assert_eq!(stream.create(with_id(0)), Ok(2));
    assert_eq!(stream.create(with_id(2)), Err(CreateError::DuplicateId));
    assert!(stream.cancel(0));
    assert!(!stream.cancel(0));
    assert_eq!(stream.create(with_id(0)), Ok(3), "an id the hub chose is not chosen again");
    assert_eq!(rig.open().create(with_id(2)), Ok(2), "each stream has its own ids");
    rig.settle();
    assert_eq!(stream.pending_deliveries(), 5);
}

#[test]
fn bad_requests_are_refused_with_etcds_words() {
    let rig = Rig::new();
    let stream = rig.open();
    let refused = |spec| stream.create(spec).unwrap_err().to_string();
    assert_eq!(refused(spec(bounded("b", "b"), 0)), "mvcc: watcher range is empty");
    assert_eq!(refused(spec(single("a"), -1)), "etcdserver: mvcc: required revision has been compacted");
    stream.create(WatchSpec { watch_id: 7, ..spec(single("a"), 0) }).unwrap();
    let again = WatchSpec { watch_id: 7, ..spec(single("a"), 0) };
    assert_eq!(refused(again), "mvcc: duplicate watch ID provided on the WatchStream");
    assert_eq!(rig.metrics.watcher_total.get(), 1);
}

#[test]
fn after_a_cancel_nothing_comes_for_the_watch() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(spec(single("a"), 0)).unwrap();
    stream.create(spec(single("a"), 0)).unwrap();
    rig.put("a", "1");
    rig.settle();
    assert!(stream.cancel(0));
    assert!(!stream.cancel(9));
    rig.put("a", "2");
    rig.settle();
    let got = drain(&stream);
    let of_watch_0: Vec<&String> = got.iter().filter(|shown| shown.starts_with("0@")).collect();
    assert_eq!(of_watch_0, ["0@1 created", "0@2: 2+a=1", "0@2 canceled"]);
    assert!(got.contains(&"1@3: 3+a=2".to_string()));
}

#[test]
fn a_canceled_id_can_be_used_again_at_once() {
    let mut rig = Rig::new();
    let stream = rig.open();
    let seven = || WatchSpec { watch_id: 7, ..spec(single("a"), 2) };
    stream.create(seven()).unwrap();
    stream.cancel(7);
    stream.create(seven()).unwrap();
    rig.put("a", "1");
    rig.settle();
    assert_eq!(drain(&stream), ["7@1 created", "7@1 created", "7@1 canceled", "7@2: 2+a=1"]);
}

#[test]
fn a_dropped_stream_leaves_nothing_behind() {
    let mut rig = Rig::new();
    let stream = rig.open();
    rig.put("a", "0");
    for start_revision in [0, 1, 9] {
        stream.create(WatchSpec { progress_notify: true, ..spec(everything(), start_revision) }).unwrap();
        stream.create(WatchSpec { progress_notify: true, ..spec(single("a"), start_revision) }).unwrap();
    }
    stream.request_progress();
    rig.put("a", "1");
    rig.settle();
    let metrics = rig.metrics.clone();
    let gauges =
        || [&metrics.watch_stream_total, &metrics.watcher_total, &metrics.pending_events_total].map(|g| g.get());
    assert_eq!(gauges(), [1, 6, 6]);
    drop(stream);
    assert_eq!(gauges(), [0, 0, 0]);
    rig.settle();
    assert!(rig.engine.streams.is_empty() && rig.engine.cursors.is_empty());
    assert!(rig.engine.ticks.is_empty() && rig.engine.waiting.is_empty());
    assert!(rig.engine.watchers.iter().all(Option::is_none));
    assert!((0..6).all(|group| rig.engine.matcher.group(group).is_none()));
    assert_eq!(rig.metrics.slow_watcher_total.get(), 0);
}

#[test]
fn a_blocked_stream_that_is_dropped_leaves_nothing_behind() {
    let mut rig = Rig::with(crate::watch::HubOptions { stream_bytes_max: 10, ..options() }, 1 << 20);
    let stream = rig.open();
    stream.create(spec(everything(), 0)).unwrap();
    stream.create(spec(single("a"), 0)).unwrap();
    rig.put("a", "1");
    rig.settle();
    assert_eq!(rig.metrics.slow_watcher_total.get(), 2);
    drop(stream);
    rig.put("a", "2");
    rig.settle();
    assert_eq!(rig.metrics.slow_watcher_total.get(), 0);
    assert!(rig.engine.watchers.iter().all(Option::is_none));
}

#[test]
fn close_ends_streams_after_what_is_queued() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(spec(single("a"), 0)).unwrap();
    rig.put("a", "1");
    rig.settle();
    rig.shared.inbox.close();
    assert_eq!(rig.engine.round(), Next::Stop);
    assert_eq!(drain(&stream), ["0@1 created", "0@2: 2+a=1"]);
    assert!(is_ended(&stream));
    let late = rig.open();
    assert!(is_ended(&late));
    late.create(spec(single("a"), 0)).unwrap();
    assert!(is_ended(&late));
    drop((stream, late));
    assert_eq!((rig.metrics.watcher_total.get(), rig.metrics.watch_stream_total.get()), (0, 0));
}
