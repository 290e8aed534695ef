//! The hub over the real store: history from ring and file, across restarts and compactions, beside a writer.

use std::{path::Path, sync::Arc, thread};

use bytes::Bytes;

use super::{rig, rig::show, threads::wait_next};
use crate::{
    bolt,
    clock::ManualClock,
    disk::RealDisk,
    metrics::Metrics,
    mvcc::{ChangeSet, KeyRange, LogPosition, Store, StoreOptions},
    watch::{Delivery, Hub, HubOptions, StreamClient, WatchSpec, WatchStream},
};

fn open(path: &Path) -> (Store, Hub) {
    let db = bolt::Db::open(Arc::new(RealDisk), path, &bolt::Options { map_bytes_max: 1 << 30 }).unwrap();
    let store_options = StoreOptions { commit_ops_max: 40, ..StoreOptions::default() };
    let store = Store::open(db, store_options, &Metrics::new()).unwrap().0;
    let limits = HubOptions { stream_bytes_max: 2_000, catch_up_revisions_max: 7, ..rig::options() };
    let hub = Hub::start(store.clone(), limits, Arc::new(ManualClock::default()), &Metrics::new());
    (store, hub)
}

/// One log entry: deletes `key` if it exists, and puts it where `value` is given.
fn write(store: &Store, key: &str, value: Option<&str>) -> ChangeSet {
    let mut txn = store.write();
    let key = Bytes::copy_from_slice(key.as_bytes());
    match value {
        Some(value) => drop(txn.put(key, Bytes::copy_from_slice(value.as_bytes()), 0, false).unwrap()),
        None => drop(txn.delete_range(&KeyRange::new(key, Bytes::new()), false).unwrap()),
    }
    let changes = txn.end().unwrap();
    store.end_entry(LogPosition { term: 1, index: changes.revision as u64 });
    changes
}

fn everything() -> KeyRange {
    KeyRange::new(Bytes::from_static(b"\0"), Bytes::from_static(b"\0"))
}

/// Reads until the revision is there; all events as text, "revision+key=value(previous)".
fn read_through(stream: &WatchStream, revision: i64) -> Vec<String> {
    let mut shown = Vec::new();
    loop {
        let delivery = wait_next(stream).unwrap();
        let Delivery::Events { events, .. } = &delivery else { continue };
        let text = show(&delivery);
        shown.extend(text.split_once(": ").unwrap().1.split(' ').map(str::to_string));
        if events.last().unwrap().record.revision.main >= revision {
            return shown;
        }
    }
}

#[test]
fn history_comes_from_the_file_after_a_restart_and_goes_on_live() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (store, hub) = open(&path);
    for n in 0..30 {
        hub.notify(write(&store, ["a", "b"][n % 2], Some(&n.to_string())));
    }
    hub.notify(write(&store, "a", None));
    hub.close();
    store.close().unwrap();

    let (store, hub) = open(&path);
    let stream = hub.open_stream(StreamClient::default());
    stream.create(WatchSpec { prev_kv: true, ..rig::spec(rig::single("a"), 1) }).unwrap();
    hub.notify(write(&store, "a", Some("new")));
    let mut expected = vec!["2+a=0".to_string()];
    expected.extend((1..15).map(|n| format!("{}+a={}({})", 2 * n + 2, 2 * n, 2 * n - 2)));
    expected.extend(["32-a(28)".to_string(), "33+a=new".to_string()]);
    assert_eq!(read_through(&stream, 33), expected);
    hub.close();
    store.close().unwrap();
}

#[test]
fn a_watch_below_the_compaction_is_canceled_and_one_at_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (store, hub) = open(&dir.path().join("db"));
    for n in 0..20 {
        hub.notify(write(&store, "a", Some(&n.to_string())));
    }
    store.compact(15, None).unwrap();
    let stream = hub.open_stream(StreamClient::default());
    stream.create(WatchSpec { prev_kv: true, ..rig::spec(everything(), 14) }).unwrap();
    assert_eq!(show(&wait_next(&stream).unwrap()), "0@21 created");
    assert_eq!(show(&wait_next(&stream).unwrap()), "0@21 canceled compact=15");
    stream.create(WatchSpec { prev_kv: true, ..rig::spec(everything(), 15) }).unwrap();
    let got = read_through(&stream, 21);
    assert_eq!(got[..2], ["15+a=13", "16+a=14(13)"], "what 15 replaced is compacted away");
    assert_eq!(got.len(), 7);
}

#[test]
fn watchers_beside_a_writer_get_every_revision_once_and_in_order() {
    const REVISIONS: i64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let (store, hub) = open(&dir.path().join("db"));
    let readers: Vec<_> = [0, 1, 200, 0]
        .into_iter()
        .map(|start_revision| {
            let stream = hub.open_stream(StreamClient::default());
            stream.create(rig::spec(everything(), start_revision)).unwrap();
            thread::spawn(move || (start_revision.max(2), read_through(&stream, REVISIONS)))
        })
        .collect();
    while store.revision() < REVISIONS {
        hub.notify(write(&store, "k", Some("v")));
    }
    for reader in readers {
        let (first, got) = reader.join().unwrap();
        assert_eq!(got, (first..=REVISIONS).map(|revision| format!("{revision}+k=v")).collect::<Vec<_>>());
    }
    // One that comes when all is over replays it from the file.
    let stream = hub.open_stream(StreamClient::default());
    stream.create(rig::spec(everything(), 2)).unwrap();
    assert_eq!(read_through(&stream, REVISIONS).len(), 399);
}
