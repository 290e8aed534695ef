//! The hub with its thread, polled by tasks that park.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use super::rig::*;
use crate::watch::{Delivery, Hub, HubOptions, Shared, StreamClient, WatchSpec, WatchStream, inbox::INBOX_BYTES_MAX};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for the next delivery.
pub(super) fn wait_next(stream: &WatchStream) -> Option<Delivery> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match stream.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(delivery) => return delivery,
            Poll::Pending => thread::park(),
        }
    }
}

fn start(rig: &Rig, options: HubOptions) -> Hub {
    Hub::spawn(Shared::new(rig.world.history(), options, &rig.metrics, INBOX_BYTES_MAX), rig.clock.clone())
}

#[test]
fn watchers_on_threads_get_every_revision_once_and_in_order() {
    const REVISIONS: i64 = 500;
    let rig = Rig::new();
    let limits = HubOptions { stream_bytes_max: 2_000, catch_up_revisions_max: 7, ..options() };
    let hub = start(&rig, limits);
    let readers: Vec<_> = [0, 1, 100, 0, 1]
        .into_iter()
        .map(|start_revision| {
            let stream = hub.open_stream(StreamClient::default());
            stream.create(spec(everything(), start_revision)).unwrap();
            thread::spawn(move || {
                let mut expected = start_revision.max(2);
                while expected <= REVISIONS {
                    let Some(Delivery::Events { events, .. }) = wait_next(&stream) else { continue };
                    for event in events.iter() {
                        assert_eq!(event.record.revision.main, expected);
                        expected += 1;
                    }
                }
            })
        })
        .collect();
    while rig.world.revision() < REVISIONS {
        hub.notify(rig.world.commit(&[("k", Some("v"))]).unwrap());
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(rig.metrics.watch_stream_total.get(), 0);
}

#[test]
fn a_poke_makes_the_thread_look_at_the_clock() {
    let rig = Rig::new();
    let hub = start(&rig, options());
    let stream = hub.open_stream(StreamClient::default());
    stream.create(WatchSpec { progress_notify: true, ..spec(everything(), 0) }).unwrap();
    // The answer says that the watch is registered and its tick set.
    stream.request_progress();
    assert_eq!(show(&wait_next(&stream).unwrap()), "0@1 created");
    assert_eq!(show(&wait_next(&stream).unwrap()), "-1@1 progress");
    rig.clock.advance(options().progress_interval * 2);
    hub.poke();
    assert_eq!(show(&wait_next(&stream).unwrap()), "0@1 progress");
}

#[test]
fn close_wakes_those_who_wait() {
    let rig = Rig::new();
    let hub = start(&rig, options());
    let stream = hub.open_stream(StreamClient::default());
    let reader = thread::spawn(move || wait_next(&stream).is_none());
    hub.close();
    hub.close();
    assert!(reader.join().unwrap());
}

#[test]
fn the_last_handle_takes_the_thread_with_it() {
    let rig = Rig::new();
    let hub = start(&rig, options());
    let stream = hub.clone().open_stream(StreamClient::default());
    drop(hub);
    assert!(wait_next(&stream).is_none());
}
