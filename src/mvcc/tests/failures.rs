//! A disk that fails: out of room is waited out, anything else stops the store for good.

use super::*;
use crate::disk::sim::{Call, EIO, ENOSPC, Failure, Fault, SimDisk};

#[test]
fn a_full_disk_is_waited_out_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let disk = SimDisk::default();
    let options = StoreOptions { commit_interval: Duration::from_millis(1), ..options() };
    let (store, _) = open_on(Arc::new(disk.clone()), &path, options).unwrap();
    disk.set_full(true);
    let value = "v".repeat(1 << 20);
    put(&store, "a", &value);
    store.end_entry(at(1));
    let (done, result) = callback();
    store.flush(done);
    put(&store, "b", "2");
    store.end_entry(at(2));
    assert_eq!(store.get(b"a", 0).unwrap().unwrap().value, value);
    assert!(result.recv_timeout(Duration::from_millis(20)).is_err(), "there is no room, so nothing can be durable");
    assert_eq!(store.durable_position(), LogPosition::default());
    disk.set_full(false);
    assert!(result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap() >= at(1));
    store.close().unwrap();
    drop(store);
    let (store, restored) = open(&path);
    assert_eq!(restored.position, at(2));
    assert_eq!(store.get(b"a", 0).unwrap().unwrap().value, value);
}

#[test]
fn a_failed_sync_stops_the_store_and_tells_the_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let disk = SimDisk::default();
    let (store, _) = open_on(Arc::new(disk.clone()), &path, options()).unwrap();
    let (sender, fatal) = mpsc::channel();
    store.on_fatal(Box::new(move |error| sender.send(error).unwrap()));
    put(&store, "a", "1");
    store.end_entry(at(1));
    disk.fail(Fault::every(&[Call::SyncData], Failure::Errno(EIO)));
    assert!(matches!(flush(&store), Err(MvccError::Bolt(_))));
    assert!(matches!(fatal.recv_timeout(RESULT_WAIT_MAX).unwrap(), MvccError::Bolt(_)));
    disk.heal();
    assert!(matches!(store.get(b"a", 0), Err(MvccError::Bolt(_))));
    assert!(matches!(text(&store, 0), Err(MvccError::Bolt(_))));
    assert!(matches!(changes(&store, 0), Err(MvccError::Bolt(_))));
    assert!(matches!(store.write().put(Bytes::from_static(b"b"), Bytes::new(), 0, false), Err(MvccError::Bolt(_))));
    assert!(matches!(flush(&store), Err(MvccError::Bolt(_))));
    assert!(matches!(store.close(), Err(MvccError::Bolt(_))));
}

/// A sync that fails for want of room is as final as any other: it is not waited out.
#[test]
fn a_sync_without_room_stops_the_store_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SimDisk::default();
    let (store, _) = open_on(Arc::new(disk.clone()), &dir.path().join("db"), options()).unwrap();
    put(&store, "a", "1");
    store.end_entry(at(1));
    disk.fail(Fault::every(&[Call::SyncData], Failure::Errno(ENOSPC)));
    let error = flush(&store).unwrap_err().to_string();
    assert!(error.contains("syncing"), "the first failure is the reason, not what came of it: {error}");
    assert!(store.close().is_err());
}

#[test]
fn of_several_damaged_records_the_first_is_named_whichever_thread_finds_it() {
    const RECORDS: i64 = 4_000;
    for damaged in [[100, 3_900], [3_000, 3_001], [2_000, 2_100]] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
        let mut tx = db.write().unwrap();
        tx.create_bucket_if_missing(buckets::KEY).unwrap();
        for main in 2..RECORDS {
            let kv = mvccpb::KeyValue {
                key: Bytes::from(format!("key{main}")),
                create_revision: main,
                mod_revision: main,
                version: 1,
                value: Bytes::from(vec![b'v'; 200]),
                lease: 0,
            };
            let mut encoded = prost::Message::encode_to_vec(&kv);
            if damaged.contains(&main) {
                encoded.pop();
            }
            tx.put(buckets::KEY, &Revision { main, sub: 0 }.encode(), &encoded).unwrap();
        }
        tx.commit().unwrap();
        let error = Store::open(db, options(), &Metrics::new()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("damaged record at revision {}.0: ", damaged[0])), "{error}");
    }
}

#[test]
fn a_damaged_record_is_named_on_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    let mut tx = db.write().unwrap();
    tx.create_bucket_if_missing(buckets::KEY).unwrap();
    tx.put(buckets::KEY, &Revision { main: 7, sub: 1 }.encode(), b"\x0a\x05k").unwrap();
    tx.commit().unwrap();
    let error = Store::open(db, options(), &Metrics::new()).unwrap_err();
    assert_eq!(error.to_string(), "damaged record at revision 7.1: a field is cut short (page 2)");
}
