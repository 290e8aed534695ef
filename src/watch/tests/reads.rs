//! What happens while history is being read: the read is on its way as long as the test says.

use std::{
    sync::{Mutex, atomic::Ordering, mpsc},
    thread,
};

use super::{rig::*, threads::wait_next};
use crate::watch::{Hub, HubOptions, Shared, StreamClient, WatchSpec, inbox::INBOX_BYTES_MAX};

/// A rig with revisions 2 to 4 in its history, all of key `a`.
fn rig_with_history(options: HubOptions) -> Rig {
    let mut rig = Rig::with(options, 1 << 20);
    for value in ["1", "2", "3"] {
        rig.put("a", value);
    }
    rig.settle();
    rig
}

#[test]
fn live_events_are_distributed_while_history_is_read() {
    let mut rig = rig_with_history(options());
    let (behind, live) = (rig.open(), rig.open());
    behind.create(spec(single("a"), 2)).unwrap();
    live.create(spec(single("a"), 0)).unwrap();
    rig.settle_without_reads();
    rig.put("a", "4");
    rig.settle_without_reads();
    assert_eq!(drain(&live), ["0@4 created", "0@5: 5+a=4"]);
    assert_eq!(drain(&behind), ["0@4 created"]);
    rig.settle();
    assert_eq!(drain(&behind), ["0@5: 2+a=1 3+a=2 4+a=3 5+a=4"]);
}

/// The read is complete up to revision 4; 5 and 6 come while its answer is on the way.
#[test]
fn a_cursor_goes_on_with_what_came_while_its_read_was_on_its_way() {
    let mut rig = rig_with_history(options());
    let stream = rig.open();
    stream.create(WatchSpec { prev_kv: true, ..spec(single("a"), 3) }).unwrap();
    rig.settle_without_reads();
    assert!(rig.reader.step());
    rig.put("a", "4");
    rig.put("b", "5");
    rig.settle_without_reads();
    assert_eq!(drain(&stream), ["0@4 created", "0@6: 3+a=2(1) 4+a=3(2)", "0@6: 5+a=4(3)"]);
    assert_eq!(rig.metrics.slow_watcher_total.get(), 0, "it follows live");
    assert!(!rig.reader.step(), "and needs no other read");
    rig.put("a", "6");
    rig.settle_without_reads();
    assert_eq!(drain(&stream), ["0@7: 7+a=6(4)"]);
}

#[test]
fn more_than_is_kept_meanwhile_is_read_again() {
    let mut rig = rig_with_history(HubOptions { stream_bytes_max: 16 << 20, ..options() });
    let stream = rig.open();
    stream.create(spec(single("a"), 4)).unwrap();
    rig.settle_without_reads();
    assert!(rig.reader.step());
    let value = "v".repeat(600 * 1024);
    rig.put("b", &value);
    rig.put("b", &value);
    rig.put("a", "5");
    rig.settle_without_reads();
    assert_eq!(drain(&stream), ["0@4 created", "0@7: 4+a=3"]);
    assert_eq!(rig.metrics.slow_watcher_total.get(), 1);
    rig.settle();
    assert_eq!(drain(&stream), ["0@7: 7+a=5"]);
    assert_eq!(rig.metrics.slow_watcher_total.get(), 0);
}

#[test]
fn what_the_inbox_drops_meanwhile_is_read_again() {
    let mut rig = Rig::with(options(), 2_000);
    rig.put("a", "1");
    rig.settle();
    let stream = rig.open();
    stream.create(spec(single("a"), 2)).unwrap();
    rig.settle_without_reads();
    assert!(rig.reader.step());
    let value = "v".repeat(1000);
    for _ in 0..3 {
        rig.put("b", &value);
    }
    rig.put("a", "2");
    rig.settle();
    assert_eq!(drain(&stream), ["0@2 created", "0@6: 2+a=1", "0@6: 6+a=2"]);
    assert_eq!(rig.metrics.slow_watcher_total.get(), 0);
}

/// What was read is as good as it was: the watch ends where the next read would begin.
#[test]
fn a_compaction_after_the_read_does_not_take_back_what_was_read() {
    let mut rig = rig_with_history(HubOptions { catch_up_revisions_max: 1, ..options() });
    let stream = rig.open();
    stream.create(spec(single("a"), 2)).unwrap();
    rig.settle_without_reads();
    assert!(rig.reader.step());
    rig.world.compacted.store(4, Ordering::SeqCst);
    rig.settle();
    assert_eq!(drain(&stream), ["0@4 created", "0@4: 2+a=1", "0@4 canceled compact=4"]);
}

#[test]
fn a_compaction_before_the_read_ends_all_that_are_behind_it() {
    let mut rig = rig_with_history(options());
    let stream = rig.open();
    stream.create(spec(single("a"), 2)).unwrap();
    rig.settle_without_reads();
    // One that came after the read was asked for, and one that needs nothing of what is gone.
    stream.create(spec(single("a"), 3)).unwrap();
    stream.create(spec(single("a"), 4)).unwrap();
    rig.world.compacted.store(4, Ordering::SeqCst);
    rig.settle();
    let ends = ["0@4 canceled compact=4", "1@4 canceled compact=4", "2@4: 4+a=3"];
    assert_eq!(drain(&stream)[3..], ends.map(str::to_string));
}

#[test]
fn what_was_read_for_a_canceled_watch_is_not_given_to_its_successor() {
    let mut rig = rig_with_history(options());
    let (first, second) = (rig.open(), rig.open());
    let id = first.create(spec(single("a"), 2)).unwrap();
    rig.settle_without_reads();
    assert!(rig.reader.step());
    assert!(first.cancel(id));
    rig.settle_without_reads();
    // Takes the place that was left, and wants to read as well.
    second.create(spec(single("a"), 2)).unwrap();
    rig.settle();
    assert_eq!(drain(&first), ["0@4 created", "0@4 canceled"]);
    assert_eq!(drain(&second), ["0@4 created", "0@4: 2+a=1 3+a=2 4+a=3"]);
}

#[test]
fn a_history_that_cannot_be_read_ends_the_watch_that_asked_and_the_next_one_has_its_turn() {
    let mut rig = rig_with_history(options());
    let stream = rig.open();
    let id = stream.create(spec(single("a"), 2)).unwrap();
    stream.create(spec(single("a"), 3)).unwrap();
    rig.world.broken.store(true, Ordering::SeqCst);
    rig.settle_without_reads();
    assert!(rig.reader.step());
    assert!(stream.cancel(id));
    rig.world.broken.store(false, Ordering::SeqCst);
    rig.settle();
    assert_eq!(drain(&stream)[2..], ["0@4 canceled", "1@4: 3+a=2 4+a=3"].map(str::to_string));
}

/// A hub on threads whose reads wait: what is sent is that one has begun, and dropping the other end lets them go.
fn held_hub(rig: &Rig) -> (Hub, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut history = rig.world.history();
    let (read, gate) = (history.changes_since, Mutex::new((begun, released)));
    history.changes_since = Box::new(move |from, revisions_max, bytes_max| {
        let gate = gate.lock().unwrap();
        // Nobody may be interested any more, and nobody may hold it any more.
        let _ = gate.0.send(());
        let _ = gate.1.recv();
        read(from, revisions_max, bytes_max)
    });
    let shared = Shared::new(history, options(), &rig.metrics, INBOX_BYTES_MAX);
    (Hub::spawn(shared, rig.clock.clone()), has_begun, release)
}

#[test]
fn the_hub_goes_on_on_its_thread_while_a_read_takes_its_time() {
    let rig = rig_with_history(options());
    let (hub, has_begun, release) = held_hub(&rig);
    let (behind, live) = (hub.open_stream(StreamClient::default()), hub.open_stream(StreamClient::default()));
    behind.create(spec(single("a"), 2)).unwrap();
    has_begun.recv().unwrap();
    live.create(spec(single("a"), 0)).unwrap();
    assert_eq!(show(&wait_next(&live).unwrap()), "0@4 created");
    hub.notify(rig.world.commit(&[("a", Some("4"))]).unwrap());
    assert_eq!(show(&wait_next(&live).unwrap()), "0@5: 5+a=4");
    drop(release);
    assert_eq!(show(&wait_next(&behind).unwrap()), "0@4 created");
    assert_eq!(show(&wait_next(&behind).unwrap()), "0@5: 2+a=1 3+a=2 4+a=3 5+a=4");
}

#[test]
fn close_ends_streams_at_once_and_waits_for_the_read() {
    let rig = rig_with_history(options());
    let (hub, has_begun, release) = held_hub(&rig);
    let stream = hub.open_stream(StreamClient::default());
    stream.create(spec(single("a"), 2)).unwrap();
    assert_eq!(show(&wait_next(&stream).unwrap()), "0@4 created");
    has_begun.recv().unwrap();
    let closing = thread::spawn(move || hub.close());
    assert!(wait_next(&stream).is_none());
    assert!(!closing.is_finished(), "the store must not be closed under a read");
    drop(release);
    closing.join().unwrap();
}
