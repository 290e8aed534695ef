//! When room is given back, and what becomes of those who ask for it.

use super::*;

/// A store with many revisions of few keys, of which the compaction left one each; most of the file is free.
fn hollow(options: StoreOptions) -> (tempfile::TempDir, PathBuf, Store) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (store, _) = open_with(&path, options);
    let value = "v".repeat(2_000);
    for n in 0..2_000 {
        put(&store, &format!("k{}", n % 50), &value);
    }
    store.end_entry(at(1));
    flush(&store).unwrap();
    let (done, result) = callback();
    store.compact(store.revision(), Some(done)).unwrap();
    store.end_entry(at(2));
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    (dir, path, store)
}

fn large_steps() -> StoreOptions {
    StoreOptions { compaction_batch_revisions: 1_000, ..options() }
}

fn metric(store_metrics: &Metrics, name: &str) -> f64 {
    let text = String::from_utf8(store_metrics.render().unwrap()).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn who_asks_shares_one_run_with_others_who_do() {
    let (_dir, _path, store) = hollow(large_steps());
    let before = store.db_size_bytes();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..40 {
        let sender = sender.clone();
        store.defragment(Box::new(move |result| sender.send(result).unwrap()));
    }
    for _ in 0..40 {
        receiver.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    }
    let after = store.db_size_bytes();
    assert!(after < before / 5, "{before} before, {after} after");
    assert!(after <= store.db_size_in_use_bytes() * 102 / 100 + (16 << 12));
    let metrics = &store.shared().metrics;
    assert!(metric(metrics, "etcd_disk_backend_defrag_duration_seconds_count") <= 2.0);
    assert_eq!(metric(metrics, "etcd_disk_defrag_inflight"), 0.0);
    assert_eq!(metric(metrics, "revgate_reclaim_given_back_bytes_total"), (before - after) as f64);
    assert!(metric(metrics, "revgate_reclaim_pages_moved_total") > 0.0);
}

#[test]
fn too_large_a_free_share_is_given_back_unasked() {
    let reclaim = ReclaimOptions { free_percent: 20, free_bytes: 1 << 20 };
    let (_dir, path, store) = hollow(StoreOptions { reclaim, ..large_steps() });
    let hash = store.hash_keys(0).unwrap();
    let is_too_large = |store: &Store| {
        let free = store.db_size_bytes() - store.db_size_in_use_bytes();
        free > reclaim.free_bytes && free * 100 > store.db_size_bytes() * reclaim.free_percent
    };
    // Nobody asks; a commit now and then is all that the store is told.
    let given_up_at = std::time::Instant::now() + RESULT_WAIT_MAX;
    while is_too_large(&store) {
        assert!(std::time::Instant::now() < given_up_at, "{} bytes", store.db_size_bytes());
        flush(&store).unwrap();
        std::thread::yield_now();
    }
    assert_eq!(store.hash_keys(0).unwrap(), hash);
    store.close().unwrap();
    drop(store);
    assert_eq!(open(&path).0.hash_keys(0).unwrap(), hash);
}

/// The compaction rests behind its first step, in which most of the file became free.
#[test]
fn room_is_not_given_back_unasked_in_the_middle_of_a_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let reclaim = ReclaimOptions { free_percent: 20, free_bytes: 1 << 20 };
    let resting = StoreOptions { reclaim, compaction_sleep: Duration::from_secs(3_600), ..large_steps() };
    let (store, _) = open_with(&path, resting.clone());
    let value = "v".repeat(2_000);
    for n in 0..3_000 {
        put(&store, &format!("k{}", n % 50), &value);
    }
    store.compact(store.revision(), None).unwrap();
    store.end_entry(at(1));
    flush(&store).unwrap();
    let is_hollow = |store: &Store| {
        let free = store.db_size_bytes() - store.db_size_in_use_bytes();
        free * 100 > store.db_size_bytes() * reclaim.free_percent
    };
    let given_up_at = std::time::Instant::now() + RESULT_WAIT_MAX;
    while !is_hollow(&store) {
        assert!(std::time::Instant::now() < given_up_at, "{} bytes", store.db_size_bytes());
        std::thread::yield_now();
    }
    // Each is a look at the free share, and then a turn of whatever else is due.
    (0..100).for_each(|_| flush(&store).map(drop).unwrap());
    assert_eq!(store.compaction().unwrap().phase, CompactionPhase::File);
    assert_eq!(metric(&store.shared().metrics, "revgate_reclaim_pages_moved_total"), 0.0);
    store.close().unwrap();
    drop(store);

    let (store, _) = open_with(&path, StoreOptions { compaction_sleep: Duration::ZERO, ..resting });
    while is_hollow(&store) || store.compaction().is_some() {
        assert!(std::time::Instant::now() < given_up_at, "{} bytes", store.db_size_bytes());
        flush(&store).unwrap();
        std::thread::yield_now();
    }
    assert!(metric(&store.shared().metrics, "revgate_reclaim_pages_moved_total") > 0.0);
}

#[test]
fn a_view_that_stays_open_does_not_keep_who_asked_waiting() {
    let (_dir, _path, store) = hollow(large_steps());
    let before = store.db_size_bytes();
    let view = store.pin_file().unwrap();
    let (done, result) = callback();
    store.defragment(done);
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    assert!(store.db_size_bytes() >= view.snapshot_bytes(), "the view's pages are still there");
    drop(view);
    let (done, result) = callback();
    store.defragment(done);
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    assert!(store.db_size_bytes() < before / 5);
}

#[test]
fn a_closing_store_refuses_those_who_wait_and_loses_nothing() {
    let (_dir, path, store) = hollow(large_steps());
    let hash = store.hash_keys(0).unwrap();
    // It holds the run up, so that it is there when the store is closed.
    let view = store.pin_file().unwrap();
    let (done, result) = callback();
    store.defragment(done);
    store.close().unwrap();
    assert!(matches!(result.recv_timeout(RESULT_WAIT_MAX).unwrap(), Err(MvccError::Closed)));
    drop((view, store));
    assert_eq!(open(&path).0.hash_keys(0).unwrap(), hash);
}

#[test]
fn a_store_that_was_closed_need_not_search_for_free_pages() {
    let (_dir, path, store) = hollow(large_steps());
    store.close().unwrap();
    drop(store);
    let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    assert!(db.has_free_list());
    assert_eq!(db.check().unwrap().len(), 0);
    drop(db);
    // One that was not has to.
    let (store, _) = open(&path);
    put(&store, "k", "v");
    store.end_entry(at(3));
    flush(&store).unwrap();
    drop(store);
    let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    assert!(!db.has_free_list());
    assert_eq!(db.check().unwrap().len(), 0);
}
