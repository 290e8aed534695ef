//! Responses of watch streams: refusals, headers, splitting.

use std::sync::OnceLock;

use prost::Message;

use super::*;
use crate::{
    mvcc::{Record, Revision},
    proto::mvccpb,
    watch::Event,
};

fn key_value(key: &str, value_bytes: usize, revision: i64) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: key.to_owned().into(),
        value: vec![b'v'; value_bytes].into(),
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        lease: 0,
    }
}

fn event(key: &str, value_bytes: usize, revision: i64, tombstone: bool, with_previous: bool) -> Arc<Event> {
    Arc::new(Event {
        record: Arc::new(Record {
            revision: Revision { main: revision, sub: 0 },
            tombstone,
            kv: key_value(key, value_bytes, revision),
        }),
        previous: with_previous.then(|| key_value(key, value_bytes, revision - 1)),
        encoded: OnceLock::new(),
    })
}

/// The events as a protobuf response carries them.
fn wire(events: &[Arc<Event>]) -> WatchResponse {
    let events = events.iter().map(|event| mvccpb::Event {
        r#type: i32::from(event.record.tombstone),
        kv: Some(event.record.kv.clone()),
        prev_kv: event.previous.clone(),
    });
    WatchResponse { events: events.collect(), ..Default::default() }
}

#[test]
fn event_sizes_are_those_of_the_encoding() {
    let events = [
        event("k", 0, 1, false, false),
        event("key", 130, 70_000, false, true),
        event("gone", 0, 300, true, true),
        event("big", 20_000, 5, false, false),
    ];
    for event in events {
        assert_eq!(fragment::encoded_bytes(&event), wire(std::slice::from_ref(&event)).encoded_len());
    }
}

#[test]
fn pieces_keep_order_and_limit() {
    let events: Vec<_> = (0..10).map(|n| event("key", 100, n, false, false)).collect();
    let one = fragment::encoded_bytes(&events[1]);
    let pieces = fragment::split(&events, 3 * one);
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
    assert!(pieces.iter().all(|piece| wire(piece).encoded_len() <= 3 * one));
    let revisions: Vec<_> = pieces.concat().iter().map(|event| event.record.revision.main).collect();
    assert_eq!(revisions, (0..10).collect::<Vec<_>>());
}

#[test]
fn an_event_above_the_limit_goes_alone() {
    let events = [event("a", 1, 1, false, false), event("b", 1000, 1, false, false), event("c", 1, 1, false, false)];
    assert_eq!(fragment::split(&events, 100).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(fragment::split(&events, 5000).len(), 1);
    assert!(fragment::split(&[], 5000).is_empty());
}

#[test]
fn refusals_are_created_and_canceled_at_once() {
    let header = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 };
    let table = [
        (CreateError::EmptyRange, "mvcc: watcher range is empty"),
        (CreateError::DuplicateId, "mvcc: duplicate watch ID provided on the WatchStream"),
        (CreateError::NegativeRevision, "etcdserver: mvcc: required revision has been compacted"),
    ];
    for (refusal, text) in table {
        let response = refused(header, refusal.to_string());
        assert_eq!((response.watch_id, response.created, response.canceled), (-1, true, true));
        assert_eq!(response.cancel_reason, text);
        assert_eq!(response.header, Some(header));
    }
}

#[test]
fn control_responses() {
    let (revision, created) = control_parts(Delivery::Created { watch_id: 3, revision: 9 });
    assert_eq!((revision, created.watch_id, created.created), (9, 3, true));

    let (revision, progress) = control_parts(Delivery::Progress { watch_id: -1, revision: 9 });
    assert_eq!((revision, progress), (9, WatchResponse { watch_id: -1, ..Default::default() }));

    let canceled = |compact_revision, reason: &str| Delivery::Canceled {
        watch_id: 3,
        revision: 9,
        compact_revision,
        reason: reason.into(),
    };
    let (revision, asked) = control_parts(canceled(0, ""));
    assert_eq!((revision, asked), (9, WatchResponse { watch_id: 3, canceled: true, ..Default::default() }));
    let (revision, compacted) = control_parts(canceled(5, ""));
    let expected = WatchResponse { watch_id: 3, canceled: true, compact_revision: 5, ..Default::default() };
    assert_eq!((revision, compacted), (0, expected));
}
