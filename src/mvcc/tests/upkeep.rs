//! Defragmentation, and the hashes by which histories are compared.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    thread,
};

use super::*;

fn seal(store: &Store, index: u64) {
    store.end_entry(LogPosition { term: 1, index });
}

fn wait(ask: impl FnOnce(Callback)) -> Result<LogPosition, MvccError> {
    let (sender, receiver) = mpsc::channel();
    ask(Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv_timeout(RESULT_WAIT_MAX).unwrap()
}

fn compact(store: &Store, revision: i64, index: u64) {
    wait(|done| {
        store.compact(revision, Some(done)).unwrap();
        seal(store, index);
    })
    .unwrap();
}

#[test]
fn defragmenting_gives_room_back_and_keeps_everything() {
    let (_dir, path, store) = fresh();
    let value = "v".repeat(500);
    for n in 0..4_000 {
        put(&store, &format!("k{:04}", n % 400), &value);
    }
    seal(&store, 1);
    wait(|done| store.flush(done)).unwrap();
    compact(&store, store.revision(), 2);
    let (before, hash) = (store.db_size_bytes(), store.hash_keys(0).unwrap());

    wait(|done| store.defragment(done)).unwrap();
    assert!(store.db_size_bytes() < before / 3, "{} of {before}", store.db_size_bytes());
    assert_eq!(store.hash_keys(0).unwrap(), hash);
    put(&store, "after", "1");
    seal(&store, 3);
    wait(|done| store.flush(done)).unwrap();
    let hash = store.hash_keys(0).unwrap();
    store.close().unwrap();
    drop(store);

    let (store, restored) = open(&path);
    assert_eq!(restored.position, LogPosition { term: 1, index: 3 });
    assert_eq!(store.hash_keys(0).unwrap(), hash);
    assert_eq!(store.get(b"after", 0).unwrap().unwrap().value, "1");
}

/// Every second of many neighbours goes: what is left moves together, and the room counts as free at once.
#[test]
fn room_made_by_a_compaction_counts_without_a_defragmentation() {
    let (_dir, _path, store) = fresh();
    for n in 0..4_000 {
        put(&store, &format!("k{n:04}"), &"v".repeat(300));
    }
    seal(&store, 1);
    wait(|done| store.flush(done)).unwrap();
    let before = store.used_bytes();
    for n in (0..4_000).step_by(2) {
        delete(&store, &format!("k{n:04}"));
    }
    put(&store, "last", "");
    compact(&store, store.revision(), 2);
    let after = store.used_bytes();
    assert!(after < before * 7 / 10, "{after} of {before} bytes are in use with half the keys");
    assert_eq!(after, store.db_size_in_use_bytes(), "all is written");
}

#[test]
fn reads_and_writes_go_on_while_the_file_is_defragmented() {
    let (_dir, path, store) = fresh();
    for n in 0..3_000 {
        put(&store, &format!("fill{n}"), &"x".repeat(300));
    }
    seal(&store, 1);
    wait(|done| store.flush(done)).unwrap();
    let (over, written) = (AtomicBool::new(false), AtomicI64::new(-1));
    let mut rounds = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The apply loop: one number after another under one key.
            for n in 0_i64.. {
                put(&store, "number", &n.to_string());
                seal(&store, 2 + n as u64);
                written.store(n, Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let at_least = written.load(Ordering::SeqCst);
                if at_least >= 0 {
                    let found = store.get(b"number", 0).unwrap().unwrap();
                    let found: i64 = std::str::from_utf8(&found.value).unwrap().parse().unwrap();
                    assert!(found >= at_least, "read {found} after {at_least} was written");
                }
                assert_eq!(store.get(b"fill17", 0).unwrap().unwrap().value.len(), 300);
            }
        });
        while rounds < 5 {
            // Two at once: both are answered.
            let (sender, receiver) = mpsc::channel();
            for _ in 0..2 {
                let sender = sender.clone();
                store.defragment(Box::new(move |result| sender.send(result).unwrap()));
            }
            wait(|done| store.flush(done)).unwrap();
            for _ in 0..2 {
                receiver.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
            }
            rounds += 1;
        }
        over.store(true, Ordering::SeqCst);
    });
    let last = written.load(Ordering::SeqCst);
    wait(|done| store.flush(done)).unwrap();
    let hash = store.hash_keys(0).unwrap();
    store.close().unwrap();
    drop(store);
    let (store, restored) = open(&path);
    assert_eq!(restored.position.index, 2 + last as u64);
    assert_eq!(store.get(b"number", 0).unwrap().unwrap().value, last.to_string());
    assert_eq!(store.hash_keys(0).unwrap(), hash);
}

#[test]
fn the_hash_of_nothing_and_of_one_put_are_etcds() {
    let (_dir, _path, store) = fresh();
    let nothing = store.hash_keys(0).unwrap();
    // What etcd 3.7.3 answers for an empty history, and for one put of foo=bar.
    assert_eq!(nothing, KeysHash { hash: 1_084_519_789, compact_revision: -1, revision: 1, store_revision: 1 });
    put(&store, "foo", "bar");
    let one = KeysHash { hash: 3_305_255_506, compact_revision: -1, revision: 2, store_revision: 2 };
    assert_eq!(store.hash_keys(0).unwrap(), one, "from the ring");
    seal(&store, 1);
    wait(|done| store.flush(done)).unwrap();
    assert_eq!(store.hash_keys(2).unwrap(), one, "from the file");
    assert_eq!(store.hash_keys(-9).unwrap(), KeysHash { hash: 1_084_519_789, revision: -9, ..one });
    assert!(matches!(store.hash_keys(3), Err(MvccError::Future { .. })));
}

/// Some history; the hash after each revision from the compact revision on, before and after what is compacted is gone.
#[test]
fn a_hash_does_not_tell_where_changes_lie_or_how_far_a_compaction_is() {
    let (_dir, path, store) = fresh();
    for n in 0..40 {
        put(&store, &format!("k{}", n % 7), &n.to_string());
        if n % 5 == 0 {
            delete(&store, &format!("k{}", (n + 3) % 7));
        }
    }
    let last = store.revision();
    let compacted = last - 20;
    // Refused to readers, and the index knows; the file has nothing yet.
    store.compact(compacted, None).unwrap();
    let in_memory: Vec<_> = (compacted..=last).map(|at| store.hash_keys(at).unwrap()).collect();
    assert!(matches!(store.hash_keys(compacted - 1), Err(MvccError::Compacted { .. })));
    seal(&store, 1);
    wait(|done| store.flush(done)).unwrap();
    let during: Vec<_> = (compacted..=last).map(|at| store.hash_keys(at).unwrap()).collect();
    store.close().unwrap();
    drop(store);
    let (store, _) = open(&path);
    compact(&store, compacted + 1, 2);
    compact(&store, compacted + 2, 3);
    assert_eq!(in_memory, during);
    let hashes = |store: &Store| (compacted + 2..=last).map(|at| store.hash_keys(at).unwrap()).collect::<Vec<_>>();
    let after = hashes(&store);
    store.close().unwrap();
    drop(store);
    assert_eq!(hashes(&open(&path).0), after);
}

#[test]
fn a_file_of_a_newer_program_is_refused() {
    let (_dir, path, store) = fresh();
    store.close().unwrap();
    drop(store);
    let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    for (version, taken) in [("3.8.0", false), ("4.0.0", false), ("3.5.0", true), ("3.6.0", true)] {
        let mut tx = db.write().unwrap();
        tx.put(buckets::META, b"storageVersion", version.as_bytes()).unwrap();
        tx.commit().unwrap();
        assert_eq!(super::super::restore::prepare(&db).is_ok(), taken, "{version}");
        if taken {
            let tx = db.read().unwrap();
            let stored = tx.bucket(buckets::META).unwrap().unwrap().get(b"storageVersion").unwrap();
            assert_eq!(stored, Some(STORAGE_VERSION.as_bytes()));
        }
    }
}

/// A compaction waits for the list below it, and says so; when the list ends, it goes on to its end.
#[test]
fn how_far_a_compaction_is_can_be_asked() {
    let dir = tempfile::tempdir().unwrap();
    let db =
        bolt::Db::open(Arc::new(RealDisk), &dir.path().join("db"), &bolt::Options { map_bytes_max: MAP_BYTES_MAX });
    let metrics = Metrics::new();
    let (store, _) = Store::open(db.unwrap(), options(), &metrics).unwrap();
    for n in 0..10 {
        put(&store, "a", &n.to_string());
    }
    let list = store.range(&RangeQuery::all(KeyRange::Single(Bytes::from_static(b"a")))).unwrap();
    put(&store, "a", "last");
    assert_eq!((store.compaction(), metrics.compaction_running.get()), (None, 0));
    let (done, finished) = callback();
    let target = store.revision();
    store.compact(target, Some(done)).unwrap();
    seal(&store, 1);
    flush(&store).unwrap();
    let progress = store.compaction().unwrap();
    assert_eq!((progress.phase, progress.done_revision), (CompactionPhase::Reads, 0));
    assert_eq!((progress.target_revision, progress.waiting), (target, 0));
    assert_eq!((metrics.compaction_running.get(), metrics.compaction_target_revision.get()), (1, target));
    let open = store.open_reads(1);
    assert_eq!((open.total, open.oldest[0].kind, open.oldest[0].revision), (1, ReadKind::Range, target - 1));

    drop(list);
    finished.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    // Told right after the answer, and before anything else is done.
    flush(&store).unwrap();
    assert_eq!((store.compaction(), metrics.compaction_running.get()), (None, 0));
    assert_eq!(metrics.compaction_done_revision.get(), target);
    assert_eq!(store.open_reads(1), OpenReads::default());
}

#[test]
fn open_views_of_the_file_are_told_of() {
    let (_dir, _path, store) = fresh();
    let view = store.pin_file().unwrap();
    let open = store.open_reads(9);
    assert_eq!((open.total, open.oldest[0].kind), (1, ReadKind::File));
    drop(view);
    assert_eq!(store.open_reads(9).total, 0);
    assert_eq!(store.reclaim(), None);
}
