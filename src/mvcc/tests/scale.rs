//! More keys than one step, one look or one thread takes.

use std::collections::BTreeMap;

use super::*;

const KEYS: i64 = 10_000;

fn key(number: i64) -> Bytes {
    Bytes::from(format!("key{number:06}"))
}

fn count(store: &Store, query: &RangeQuery) -> (usize, bool, i64) {
    let (pairs, more, count) = read(store, query, 3_000).unwrap();
    (pairs.len(), more, count)
}

#[test]
fn ranges_and_compactions_of_many_steps() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open_with(&dir.path().join("db"), StoreOptions { compaction_batch_revisions: 1_000, ..options() });
    let mut txn = store.write();
    for number in 0..KEYS {
        txn.put(key(number), Bytes::from_static(b"1"), 0, false).unwrap();
    }
    txn.end().unwrap();
    let mut txn = store.write();
    for number in (0..KEYS).step_by(2) {
        txn.put(key(number), Bytes::from_static(b"2"), 0, false).unwrap();
    }
    assert_eq!(txn.delete_range(&KeyRange::new(key(9_000), Bytes::from_static(b"\0")), false).unwrap().deleted, 1_000);
    txn.end().unwrap();
    for index in 1..=3 {
        let all = RangeQuery::all(everything());
        assert_eq!(count(&store, &all), (9_000, false, 9_000));
        assert_eq!(count(&store, &RangeQuery { revision: 2, ..all.clone() }), (10_000, false, 10_000));
        assert_eq!(count(&store, &RangeQuery { limit: 4_500, ..all.clone() }), (4_500, true, 9_000));
        assert_eq!(count(&store, &RangeQuery { limit: 9_000, ..all.clone() }), (9_000, false, 9_000));
        assert_eq!(count(&store, &RangeQuery { count_only: true, ..all.clone() }), (0, false, 9_000));
        // Half of the keys pass the filter: the walk looks at many more than it gives.
        let old = RangeQuery { max_mod_revision: 2, ..all.clone() };
        assert_eq!(count(&store, &old), (4_500, false, 9_000));
        assert_eq!(count(&store, &RangeQuery { limit: 4_499, ..old.clone() }), (4_499, true, 9_000));
        let nothing = RangeQuery { min_mod_revision: 9, limit: 1, ..all.clone() };
        assert_eq!(count(&store, &nothing), (0, false, 9_000));
        let (pairs, ..) = read(&store, &RangeQuery { order: SortOrder::Descend, ..all }, 1_500).unwrap();
        assert!(pairs.is_sorted_by(|a, b| a.key > b.key));
        store.end_entry(at(index));
        flush(&store).unwrap();
    }
    let (done, result) = callback();
    store.compact(3, Some(done)).unwrap();
    store.end_entry(at(4));
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    // What is left: the 9,000 live ones, and of the others the changes at 3: 500 puts and 1,000 tombstones.
    assert_eq!(store.bucket_pairs(buckets::KEY).unwrap().len(), 10_500);
    assert_eq!(count(&store, &RangeQuery::all(everything())), (9_000, false, 9_000));
}

#[test]
fn a_scan_split_over_threads_restores_the_same_index() {
    let (_dir, path, store) = fresh();
    let mut expected = BTreeMap::new();
    for round in 0..60_000i64 {
        // Keys meet again in other threads' parts.
        let key = key(round * 7_919 % 5_003);
        let mut txn = store.write();
        if round % 11 == 0 {
            expected.remove(&key);
            txn.delete_range(&KeyRange::Single(key), false).unwrap();
        } else {
            txn.put(key.clone(), Bytes::new(), round % 3, false).unwrap();
            expected.insert(key.clone(), (txn.key_meta(&key).unwrap(), round % 3));
        }
        txn.end();
    }
    let (revision, middle) = (store.revision(), text(&store, 30_000).unwrap());
    store.end_entry(at(1));
    store.close().unwrap();
    drop(store);
    let (store, restored) = open(&path);
    assert_eq!(store.revision(), revision);
    assert!(text(&store, 30_000).unwrap() == middle);
    let (pairs, ..) = read(&store, &RangeQuery::all(everything()), 1_000).unwrap();
    let meta = |kv: &mvccpb::KeyValue| KeyMeta {
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
    };
    let found = pairs.iter().map(|kv| (kv.key.clone(), (meta(kv), kv.lease)));
    assert!(found.eq(expected.clone()));
    let leased = expected.iter().filter(|(_, (_, lease))| *lease != 0).map(|(key, (_, lease))| (*lease, key.clone()));
    assert!(restored.lease_attachments.into_iter().eq(leased));
}

#[test]
fn a_scan_is_split_inside_of_large_transactions_too() {
    let (_dir, path, store) = fresh();
    for round in 0..3 {
        let mut txn = store.write();
        for number in 0..KEYS {
            // In no order; values as long as to make many pages.
            txn.put(key(number * 7_919 % KEYS), Bytes::from(vec![b'v'; 60]), round, false).unwrap();
        }
        txn.end();
    }
    let whole = text(&store, 4).unwrap();
    store.end_entry(at(1));
    store.close().unwrap();
    drop(store);
    let (store, restored) = open(&path);
    assert_eq!(store.revision(), 4);
    assert!(text(&store, 4).unwrap() == whole);
    for (revision, version) in [(2, 1), (3, 2), (4, 3)] {
        let (pairs, ..) = read(&store, &RangeQuery { revision, ..RangeQuery::all(everything()) }, 1_000).unwrap();
        assert_eq!(pairs.len() as i64, KEYS);
        assert!(pairs.iter().all(|kv| (kv.version, kv.create_revision, kv.mod_revision) == (version, 2, revision)));
    }
    // Each key once, with the lease it had last.
    assert!(restored.lease_attachments.into_iter().eq((0..KEYS).map(|number| (2, key(number)))));
}
