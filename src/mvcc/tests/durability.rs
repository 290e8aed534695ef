//! What survives: closing, crashing, and a compaction that was interrupted.

use super::*;

#[test]
fn closing_writes_everything_and_dropping_only_what_was_flushed() {
    let (_dir, path, store) = fresh();
    put(&store, "a", "1");
    store.end_entry(at(1));
    store.close().unwrap();
    assert!(matches!(flush(&store), Err(MvccError::Closed)));
    drop(store);

    let (store, restored) = open(&path);
    assert_eq!((restored.position, store.revision()), (at(1), 2));
    put(&store, "b", "2");
    store.end_entry(at(2));
    assert_eq!(flush(&store).unwrap(), at(2));
    put(&store, "c", "3");
    store.end_entry(at(3));
    drop(store);

    let (store, restored) = open(&path);
    assert_eq!((restored.position, store.revision()), (at(2), 3));
    assert_eq!(text(&store, 0).unwrap(), "a=1 b=2");
    assert_eq!(text(&store, 2).unwrap(), "a=1");
}

#[test]
fn an_entry_in_progress_is_not_written() {
    let (_dir, path, store) = fresh();
    put(&store, "a", "1");
    store.end_entry(at(1));
    put(&store, "b", "2");
    store.stage(vec![BucketWrite { bucket: buckets::ALARM, key: Bytes::from_static(b"x"), value: Some(Bytes::new()) }]);
    assert_eq!(flush(&store).unwrap(), at(1));
    assert_eq!(store.bucket_pairs(buckets::ALARM).unwrap(), []);
    assert_eq!(text(&store, 0).unwrap(), "a=1 b=2");
    drop(store);
    let (store, restored) = open(&path);
    assert_eq!((restored.position, text(&store, 0).unwrap()), (at(1), "a=1".to_owned()));
}

#[test]
fn the_file_has_etcds_buckets_and_marks() {
    let (_dir, path, store) = fresh();
    put(&store, "k", "v");
    delete(&store, "k");
    let lease =
        BucketWrite { bucket: buckets::LEASE, key: Bytes::from_static(b"l"), value: Some(Bytes::from_static(b"x")) };
    store.stage(vec![lease.clone()]);
    store.end_entry(LogPosition { term: 3, index: 259 });
    flush(&store).unwrap();
    assert_eq!(store.bucket_pairs(buckets::LEASE).unwrap(), [(lease.key.clone(), lease.value.clone().unwrap())]);
    store.stage(vec![BucketWrite { value: None, ..lease }]);
    store.end_entry(LogPosition { term: 3, index: 260 });
    store.close().unwrap();
    drop(store);

    let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    let tx = db.read().unwrap();
    for name in buckets::ALL {
        assert!(tx.bucket(name).unwrap().is_some(), "{}", name.escape_ascii());
    }
    assert_eq!(tx.bucket(buckets::LEASE).unwrap().unwrap().get(b"l").unwrap(), None);
    let meta = tx.bucket(buckets::META).unwrap().unwrap();
    assert_eq!(meta.get(b"consistent_index").unwrap(), Some(b"\0\0\0\0\0\0\x01\x04".as_slice()));
    assert_eq!(meta.get(b"term").unwrap(), Some(b"\0\0\0\0\0\0\0\x03".as_slice()));
    assert_eq!(meta.get(b"storageVersion").unwrap(), Some(STORAGE_VERSION.as_bytes()));
    let mut cursor = tx.bucket(buckets::KEY).unwrap().unwrap().cursor();
    let put =
        (b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0".as_slice(), b"\x0a\x01k\x10\x02\x18\x02\x20\x01\x2a\x01v".as_slice());
    let tombstone = (b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\0t".as_slice(), b"\x0a\x01k".as_slice());
    assert_eq!(cursor.first().unwrap(), Some(put));
    assert_eq!(cursor.next().unwrap(), Some(tombstone));
    assert_eq!(cursor.next().unwrap(), None);
}

#[test]
fn the_ops_limit_and_the_interval_write_without_being_asked() {
    for options in [
        StoreOptions { commit_ops_max: 2, ..options() },
        StoreOptions { commit_interval: Duration::from_millis(1), ..options() },
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open_with(&dir.path().join("db"), options);
        put(&store, "a", "1");
        put(&store, "b", "2");
        assert!(store.unwritten_bytes() > 0);
        store.end_entry(at(1));
        let deadline = std::time::Instant::now() + RESULT_WAIT_MAX;
        while store.durable_position() != at(1) {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert_eq!(store.unwritten_bytes(), 0);
    }
}

#[test]
fn flush_positions_never_go_back() {
    let (_dir, _path, store) = fresh();
    let (sender, positions) = mpsc::channel();
    for index in 1..=50 {
        put(&store, "k", "v");
        store.end_entry(at(index));
        let sender = sender.clone();
        store.flush(Box::new(move |result| sender.send((index, result.unwrap())).unwrap()));
    }
    drop(sender);
    let mut last = LogPosition::default();
    for (asked_at, durable) in positions {
        assert!(durable >= last && durable >= at(asked_at), "{durable:?} after {last:?}, asked at {asked_at}");
        last = durable;
    }
    assert_eq!(last, at(50));
}

#[test]
fn leases_of_live_keys_are_found_again() {
    let (_dir, path, store) = fresh();
    put_leased(&store, "a", "", 1);
    put_leased(&store, "b", "", 2);
    put_leased(&store, "b", "", 0);
    put_leased(&store, "c", "", 3);
    delete(&store, "c");
    put_leased(&store, "d", "", 0);
    put_leased(&store, "d", "", 1);
    store.end_entry(at(1));
    store.close().unwrap();
    drop(store);
    let (_store, restored) = open(&path);
    assert_eq!(restored.lease_attachments, [(1, Bytes::from_static(b"a")), (1, Bytes::from_static(b"d"))]);
}

#[test]
fn compaction_deletes_from_the_file_and_survives_a_restart() {
    let (_dir, path, store) = fresh();
    for round in 0..20 {
        put(&store, "a", &round.to_string());
        put(&store, "b", "x");
        delete(&store, "b");
    }
    let (done, result) = callback();
    store.compact(61, Some(done)).unwrap();
    store.end_entry(at(9));
    assert_eq!(result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap(), at(9));
    // The last put of a, and b's tombstone, which is at the very revision.
    assert_eq!(stored_revisions(&store), [59, 61]);
    drop(store);
    let (store, _) = open(&path);
    assert_eq!((store.revision(), store.compact_revision()), (61, 61));
    assert!(matches!(text(&store, 60), Err(MvccError::Compacted { .. })));
    assert_eq!(text(&store, 61).unwrap(), "a=19");
}

#[test]
fn an_unfinished_compaction_is_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    // It pauses for an hour behind the first step, ten batches of three at most: a crash there leaves it half done.
    let (store, _) = open_with(&path, StoreOptions { compaction_sleep: Duration::from_secs(3_600), ..options() });
    for value in 0..60 {
        put(&store, "a", &value.to_string());
    }
    let (done, result) = callback();
    store.compact(55, Some(done)).unwrap();
    store.end_entry(at(1));
    let deadline = std::time::Instant::now() + RESULT_WAIT_MAX;
    while !matches!(stored_revisions(&store).first(), Some(5..=32)) {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    drop(store);
    assert!(matches!(result.recv_timeout(RESULT_WAIT_MAX).unwrap(), Err(MvccError::Closed)));

    let (store, _) = open(&path);
    assert_eq!(store.compact_revision(), 55);
    while stored_revisions(&store) != (55..=61).collect::<Vec<_>>() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    let finished = Bytes::copy_from_slice(&Revision { main: 55, sub: 0 }.encode());
    while !store
        .bucket_pairs(buckets::META)
        .unwrap()
        .contains(&(Bytes::from_static(b"finishedCompactRev"), finished.clone()))
    {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn a_compaction_counts_for_the_revision_when_nothing_newer_is_left() {
    let (_dir, path, store) = fresh();
    put(&store, "a", "1");
    delete(&store, "a");
    put(&store, "b", "1");
    delete(&store, "b");
    // Compacted above the last tombstone only once something newer exists; here the tombstone at 5 is what is left.
    let (done, result) = callback();
    store.compact(5, Some(done)).unwrap();
    store.end_entry(at(1));
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    drop(store);
    let (store, _) = open(&path);
    assert_eq!(store.revision(), 5);
    assert_eq!(put(&store, "c", "1"), 6);
}

fn stored_revisions(store: &Store) -> Vec<i64> {
    let pairs = store.bucket_pairs(buckets::KEY).unwrap();
    pairs.iter().map(|(name, _)| Revision::decode(name).unwrap().0.main).collect()
}
