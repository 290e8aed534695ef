//! Streams that do not read, and a hub that falls behind.

use std::sync::atomic::Ordering;

use super::rig::*;
use crate::watch::{Delivery, HubOptions, WatchStream};

/// Reads all there is and will be. The revisions of the events.
fn read_on(rig: &mut Rig, stream: &WatchStream) -> Vec<i64> {
    let mut revisions = Vec::new();
    loop {
        rig.settle();
        let Some(delivery) = next(stream) else { return revisions };
        if let Delivery::Events { events, .. } = delivery {
            revisions.extend(events.iter().map(|event| event.record.revision.main));
        }
    }
}

#[test]
fn a_stream_that_does_not_read_costs_its_budget_and_then_gets_everything() {
    let limits = HubOptions { stream_bytes_max: 10_000, catch_up_bytes_max: 3_000, ..options() };
    let mut rig = Rig::with(limits, 1 << 20);
    let (slow, fast) = (rig.open(), rig.open());
    slow.create(spec(everything(), 0)).unwrap();
    fast.create(spec(everything(), 0)).unwrap();
    let value = "v".repeat(1000);
    let mut live = Vec::new();
    for _ in 0..100 {
        rig.put("a", &value);
        live.extend(read_on(&mut rig, &fast));
    }
    let all: Vec<i64> = (2..102).collect();
    assert_eq!(live, all, "the other does not notice");
    assert!(rig.metrics.pending_events_total.get() <= 9);
    assert_eq!(rig.metrics.slow_watcher_total.get(), 1);
    assert_eq!(read_on(&mut rig, &slow), all);
    assert_eq!((rig.metrics.pending_events_total.get(), rig.metrics.slow_watcher_total.get()), (0, 0));
}

#[test]
fn a_revision_larger_than_the_budget_still_comes_through() {
    let mut rig = Rig::with(HubOptions { stream_bytes_max: 100, ..options() }, 1 << 20);
    let stream = rig.open();
    stream.create(spec(everything(), 0)).unwrap();
    let value = "v".repeat(1000);
    rig.put("a", &value);
    rig.put("a", &value);
    assert_eq!(read_on(&mut rig, &stream), [2, 3]);
}

#[test]
fn a_blocked_watch_that_falls_behind_a_compaction_is_told() {
    let mut rig = Rig::with(HubOptions { stream_bytes_max: 10, catch_up_revisions_max: 1, ..options() }, 1 << 20);
    let stream = rig.open();
    stream.create(spec(single("a"), 0)).unwrap();
    for value in ["1", "2", "3", "4"] {
        rig.put("a", value);
    }
    rig.settle();
    rig.world.compacted.store(4, Ordering::SeqCst);
    assert_eq!(drain(&stream), ["0@1 created"]);
    rig.settle();
    assert_eq!(drain(&stream), ["0@5 canceled compact=4"]);
}

#[test]
fn watches_of_one_stream_take_turns() {
    let limits = HubOptions { stream_bytes_max: 1_000, catch_up_revisions_max: 1, ..options() };
    let mut rig = Rig::with(limits, 1 << 20);
    let value = "v".repeat(700);
    for _ in 0..5 {
        rig.put("a", &value);
    }
    let stream = rig.open();
    for _ in 0..3 {
        stream.create(spec(single("a"), 2)).unwrap();
    }
    let mut order = Vec::new();
    loop {
        rig.settle();
        match next(&stream) {
            Some(Delivery::Events { watch_id, .. }) => order.push(watch_id),
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!(order.len(), 15);
    for (at, turn) in order.chunks(3).enumerate() {
        let mut ids = turn.to_vec();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2], "turn {at} of {order:?}");
    }
}

#[test]
fn a_hub_that_falls_far_behind_reads_history_instead_and_loses_nothing() {
    let mut rig = Rig::with(HubOptions { catch_up_revisions_max: 3, ..options() }, 1_000);
    let stream = rig.open();
    stream.create(spec(everything(), 0)).unwrap();
    stream.create(spec(single("a"), 15)).unwrap();
    rig.settle();
    rig.put("a", "x");
    rig.settle();
    for _ in 0..20 {
        rig.put("a", "x");
    }
    assert_eq!(rig.engine.distributed, 2);
    let mut of_watch = [Vec::new(), Vec::new()];
    rig.settle();
    while let Some(delivery) = next(&stream) {
        if let Delivery::Events { watch_id, events, .. } = delivery {
            of_watch[watch_id as usize].extend(events.iter().map(|event| event.record.revision.main));
        }
    }
    assert_eq!(of_watch[0], (2..=22).collect::<Vec<i64>>());
    assert_eq!(of_watch[1], (15..=22).collect::<Vec<i64>>());
}

#[test]
fn live_changes_are_given_between_two_steps_of_a_replay() {
    let mut rig = Rig::with(HubOptions { catch_up_revisions_max: 2, ..options() }, 1 << 20);
    for _ in 0..100 {
        rig.put("old", "x");
    }
    rig.settle();
    let (replay, live) = (rig.open(), rig.open());
    live.create(spec(single("new"), 0)).unwrap();
    replay.create(spec(single("old"), 1)).unwrap();
    rig.round();
    rig.put("new", "1");
    rig.round();
    assert_eq!(drain(&live), ["0@101 created", "0@102: 102+new=1"]);
    assert_eq!(rig.metrics.slow_watcher_total.get(), 1, "the replay is still on its way");
    assert_eq!(read_on(&mut rig, &replay).len(), 100);
}

#[test]
fn replays_of_the_same_part_share_their_reads_and_their_events() {
    let mut rig = Rig::new();
    for _ in 0..10 {
        rig.put("a", "x");
    }
    rig.settle();
    let streams = [rig.open(), rig.open()];
    for stream in &streams {
        stream.create(spec(everything(), 2)).unwrap();
    }
    rig.settle();
    let lists: Vec<_> = streams
        .iter()
        .flat_map(|stream| std::iter::from_fn(|| next(stream)))
        .filter_map(|delivery| if let Delivery::Events { events, .. } = delivery { Some(events) } else { None })
        .collect();
    assert_eq!(lists.len(), 2);
    assert!(std::sync::Arc::ptr_eq(&lists[0], &lists[1]));
}

/// Live events wait for one bounded step at most, whatever is being replayed.
#[test]
fn a_thousand_replays_do_not_hold_live_events_up() {
    let limits = HubOptions { catch_up_revisions_max: 10, ..options() };
    let mut rig = Rig::with(limits, 1 << 20);
    for _ in 0..200 {
        rig.put("old", "v");
    }
    rig.settle();
    let (busy, live) = (rig.open(), rig.open());
    for _ in 0..1000 {
        busy.create(spec(single("old"), 2)).unwrap();
    }
    live.create(spec(single("new"), 0)).unwrap();
    rig.round();
    assert_eq!(drain(&live), ["0@201 created"]);
    for revision in 202..212 {
        rig.put("new", "v");
        rig.round();
        assert_eq!(drain(&live), [format!("0@{revision}: {revision}+new=v")]);
        assert!(rig.metrics.slow_watcher_total.get() > 0, "replays still go on");
    }
    let mut told = 0;
    while told < 200 * 1000 {
        told += read_on(&mut rig, &busy).len();
    }
    assert_eq!((told, rig.metrics.slow_watcher_total.get()), (200_000, 0));
}
