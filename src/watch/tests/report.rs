//! Streams that are to end, and how streams stand.

use std::{sync::mpsc, time::Duration};

use super::rig::*;
use crate::watch::{HubOptions, HubReport, StreamClient};

fn report(rig: &mut Rig, streams_max: usize) -> HubReport {
    let (sender, report) = mpsc::channel();
    let request = crate::watch::ReportRequest::new(streams_max, move |report| sender.send(report).unwrap());
    rig.shared.inbox.push_command(crate::watch::Command::Report(request));
    rig.settle();
    report.recv().unwrap()
}

#[test]
fn a_finished_stream_ends_with_what_is_in_the_store() {
    let mut rig = Rig::new();
    rig.put("a", "1");
    let stream = rig.open();
    stream.create(spec(everything(), 2)).unwrap();
    // Visible, but not handed over yet.
    let late = rig.world.commit(&[("a", Some("2"))]).unwrap();
    stream.request_progress();
    stream.finish();
    rig.settle();
    rig.shared.inbox.push_changes(late);
    rig.settle();
    let told = drain(&stream);
    assert!(told[1..told.len() - 1].concat().ends_with("3+a=2"), "{told:?}");
    assert_eq!(told.last().unwrap(), "-1@3 progress");
    assert!(is_ended(&stream));
}

#[test]
fn a_finished_stream_waits_for_what_is_not_handed_over_yet() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.create(spec(everything(), 0)).unwrap();
    let late = rig.world.commit(&[("a", Some("1"))]).unwrap();
    stream.finish();
    rig.settle();
    assert_eq!(drain(&stream), ["0@1 created"]);
    assert!(!is_ended(&stream));
    rig.shared.inbox.push_changes(late);
    rig.settle();
    assert_eq!(drain(&stream), ["0@2: 2+a=1"]);
    assert!(is_ended(&stream));
}

#[test]
fn a_finished_stream_without_watches_ends_at_once() {
    let mut rig = Rig::new();
    let stream = rig.open();
    stream.finish();
    rig.settle();
    assert!(is_ended(&stream));
}

#[test]
fn reports_name_the_worst_first_and_no_more_than_asked_for() {
    let limits = HubOptions { stream_bytes_max: 10_000, catch_up_bytes_max: 3_000, ..options() };
    let mut rig = Rig::with(limits, 1 << 20);
    let client = StreamClient { peer: Some("192.0.2.7:99".parse().unwrap()), user: "ann".into() };
    let (idle, slow) = (rig.open(), rig.shared.open_stream(client.clone()));
    idle.create(spec(single("other"), 0)).unwrap();
    slow.create(spec(everything(), 0)).unwrap();
    slow.create(spec(single("none"), 0)).unwrap();
    let value = "v".repeat(1000);
    for _ in 0..20 {
        rig.put("a", &value);
        rig.settle();
    }
    let all = report(&mut rig, 10);
    assert_eq!((all.revision, all.streams_total, all.streams.len()), (21, 2, 2));
    let worst = &all.streams[0];
    assert_eq!((&worst.client, worst.watches, worst.lagging, worst.lag_revisions), (&client, 2, 1, 20));
    assert!(worst.queued_deliveries > 2 && worst.queued_bytes > 5_000 && worst.queued_bytes <= 10_000 + 256);
    assert_eq!((all.streams[1].lag_revisions, all.streams[1].lagging), (0, 0));
    let one = report(&mut rig, 1);
    assert_eq!((one.streams_total, one.streams.len(), one.streams[0].number), (2, 1, worst.number));
    assert!(rig.metrics.watch_buffered_bytes.get() > 5_000);
}

#[test]
fn lag_is_measured_while_there_is_any() {
    let limits = HubOptions { stream_bytes_max: 10_000, catch_up_bytes_max: 3_000, ..options() };
    let mut rig = Rig::with(limits, 1 << 20);
    let slow = rig.open();
    slow.create(spec(everything(), 0)).unwrap();
    let value = "v".repeat(1000);
    for _ in 0..20 {
        rig.put("a", &value);
        rig.settle();
    }
    rig.clock.advance(Duration::from_secs(1));
    rig.settle();
    // Eight fit into the queue.
    assert_eq!(rig.metrics.watch_lag_revisions_max.get(), 12);
    assert!(rig.metrics.watch_lag_revisions.get_sample_count() >= 1);
    while next(&slow).is_some() {
        rig.settle();
    }
    rig.settle();
    assert_eq!(rig.metrics.watch_lag_revisions_max.get(), 0);
    assert_eq!(rig.metrics.watch_buffered_bytes.get(), 0);
    assert_eq!(rig.metrics.watch_events_delivered.get(), 20);
}
