//! Single facts about transactions, reads and compaction.

use super::*;

#[test]
fn a_fresh_store_is_at_revision_one_and_never_compacted() {
    let (_dir, _path, store) = fresh();
    assert_eq!((store.revision(), store.compact_revision()), (1, -1));
    assert_eq!(text(&store, 0).unwrap(), "");
    assert_eq!(store.write().end().map(|changes| changes.revision), None);
    assert_eq!(delete(&store, "nothing"), 0);
    assert_eq!(store.revision(), 1);
}

#[test]
fn puts_count_versions_and_deletes_start_them_anew() {
    let (_dir, _path, store) = fresh();
    put(&store, "k", "1");
    put_leased(&store, "k", "2", 7);
    delete(&store, "k");
    put(&store, "k", "3");
    let history = |store: &Store| {
        let at = |revision| store.get(b"k", revision).unwrap();
        let states =
            (1..=5).map(|revision| at(revision).map(|kv| (kv.create_revision, kv.mod_revision, kv.version, kv.lease)));
        states.collect::<Vec<_>>()
    };
    let expected = [None, Some((2, 2, 1, 0)), Some((2, 3, 2, 7)), None, Some((5, 5, 1, 0))];
    assert_eq!(history(&store), expected);
    store.end_entry(at(1));
    flush(&store).unwrap();
    assert_eq!(history(&store), expected);
    // A second commit lets the ring go: now it is the file that answers.
    store.end_entry(at(2));
    flush(&store).unwrap();
    assert_eq!(history(&store), expected);
}

#[test]
fn the_future_and_the_compacted_are_refused() {
    let (_dir, _path, store) = fresh();
    for value in ["1", "2", "3"] {
        put(&store, "k", value);
    }
    store.compact(3, None).unwrap();
    assert!(matches!(store.get(b"k", 5), Err(MvccError::Future { requested: 5, current: 4 })));
    assert!(matches!(store.get(b"k", 2), Err(MvccError::Compacted { requested: 2, compacted: 3 })));
    assert_eq!(store.get(b"k", 3).unwrap().unwrap().value, "2");
    assert!(matches!(store.compact(3, None), Err(MvccError::Compacted { .. })));
    assert!(matches!(store.compact(5, None), Err(MvccError::Future { .. })));
    assert_eq!(store.compact_revision(), 3);
}

#[test]
fn a_transaction_is_seen_whole_and_only_once_it_ended() {
    let (_dir, _path, store) = fresh();
    put(&store, "a", "0");
    let mut txn = store.write();
    let key = |key: &'static str| Bytes::from_static(key.as_bytes());
    let previous = txn.put(key("a"), key("1"), 0, true).unwrap().previous.unwrap();
    assert_eq!((previous.value, previous.mod_revision), (key("0"), 2));
    txn.put(key("b"), key("2"), 0, false).unwrap();
    let gone = txn.delete_range(&range("b", "\0"), true).unwrap();
    assert_eq!((gone.deleted, gone.previous[0].value.clone()), (1, key("2")));
    assert_eq!((txn.base_revision(), txn.revision()), (2, 3));
    assert_eq!(txn.key_meta(b"a"), Some(KeyMeta { create_revision: 2, mod_revision: 3, version: 2 }));
    assert_eq!((txn.key_meta(b"b"), txn.get(b"b").unwrap()), (None, None));
    assert_eq!(text(&store, 0).unwrap(), "a=0");
    assert_eq!(change_text(&txn.end().unwrap()), "3 a=1 b=2 -b");
    assert_eq!(text(&store, 0).unwrap(), "a=1");
    drop(put_without_end(&store));
    assert_eq!((text(&store, 0).unwrap(), store.revision()), ("a=1".to_owned(), 3));
    assert_eq!(changes(&store, 0).unwrap(), ["2 a=0", "3 a=1 b=2 -b"]);
}

fn put_without_end(store: &Store) -> WriteTxn<'_> {
    let mut txn = store.write();
    txn.put(Bytes::from_static(b"z"), Bytes::new(), 0, false).unwrap();
    txn
}

#[test]
fn a_limit_cuts_and_the_count_goes_on() {
    let (_dir, _path, store) = fresh();
    for key in ["a", "b", "c", "d"] {
        put(&store, key, key);
    }
    let query = |limit| RangeQuery { limit, ..RangeQuery::all(range("a", "d")) };
    let answer = |query| {
        let (pairs, more, count) = read(&store, &query, 1).unwrap();
        (pairs.len(), more, count)
    };
    assert_eq!(answer(query(2)), (2, true, 3));
    assert_eq!(answer(query(3)), (3, false, 3));
    assert_eq!(answer(query(0)), (3, false, 3));
    // Filters come before the limit, and the count knows nothing of them.
    assert_eq!(answer(RangeQuery { min_mod_revision: 3, ..query(1) }), (1, true, 3));
    assert_eq!(answer(RangeQuery { min_mod_revision: 4, ..query(1) }), (1, false, 3));
    assert_eq!(answer(RangeQuery { count_only: true, ..query(1) }), (0, false, 3));
    // A lower bound below 0 is none, an upper one below 0 lets nothing pass.
    assert_eq!(answer(RangeQuery { min_mod_revision: -1, ..query(0) }), (3, false, 3));
    assert_eq!(answer(RangeQuery { max_create_revision: -1, ..query(0) }), (0, false, 3));
}

#[test]
fn a_limit_without_an_order_cuts_first_and_sorts_what_is_left() {
    let (_dir, _path, store) = fresh();
    for key in ["d", "c", "b", "a"] {
        put(&store, key, key);
    }
    let keys = |order, min_mod_revision| {
        let target = SortTarget::ModRevision;
        let query = RangeQuery { limit: 2, order, target, min_mod_revision, ..RangeQuery::all(range("a", "e")) };
        let (pairs, more, count) = read(&store, &query, 1).unwrap();
        (pairs.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), more, count)
    };
    // Of a, b and c, changed at 5, 4 and 3.
    assert_eq!(keys(SortOrder::None, 0), (vec!["c".into(), "b".into()], true, 4));
    assert_eq!(keys(SortOrder::Ascend, 0), (vec!["d".into(), "c".into()], true, 4));
    // A filter makes the whole range be looked at.
    assert_eq!(keys(SortOrder::None, 1), (vec!["d".into(), "c".into()], true, 4));
}

#[test]
fn keys_only_keeps_the_lease_and_drops_the_value() {
    let (_dir, _path, store) = fresh();
    put_leased(&store, "a", "value", 9);
    let query = RangeQuery { keys_only: true, ..RangeQuery::all(single("a")) };
    let (pairs, ..) = read(&store, &query, 1).unwrap();
    assert_eq!((pairs[0].lease, pairs[0].value.len()), (9, 0));
}

#[test]
fn a_cursor_stays_at_its_revision_and_a_compaction_waits_for_it() {
    let (_dir, _path, store) = fresh();
    for key in ["a", "b", "c"] {
        put(&store, key, "old");
    }
    let mut cursor = store.range(&RangeQuery::all(everything())).unwrap();
    let mut seen = Vec::new();
    assert!(cursor.next_chunk(1, &mut |kv| seen.push(kv.to_owned())).unwrap());
    put(&store, "b", "new");
    delete(&store, "c");
    let (done, finished) = callback();
    store.compact(6, Some(done)).unwrap();
    store.end_entry(at(1));
    flush(&store).unwrap();
    // Who comes now is refused, who was there is not.
    let late = RangeQuery { revision: 4, ..RangeQuery::all(everything()) };
    assert!(matches!(store.range(&late), Err(MvccError::Compacted { requested: 4, compacted: 6 })));
    while cursor.next_chunk(1, &mut |kv| seen.push(kv.to_owned())).unwrap() {}
    let values: Vec<_> = seen.iter().map(|kv| kv.value.as_ref()).collect();
    assert_eq!((cursor.store_revision(), values), (4, vec![b"old".as_slice(); 3]));
    assert_eq!(cursor.more_and_count(), (false, 3));
    assert!(finished.try_recv().is_err());
    drop(cursor);
    finished.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
}

#[test]
fn a_cursor_that_takes_too_long_is_broken_off() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { compaction_reads_wait: Duration::ZERO, ..options() };
    let (store, _) = open_with(&dir.path().join("db"), options);
    for key in ["a", "b", "c"] {
        put(&store, key, "old");
    }
    let mut cursor = store.range(&RangeQuery::all(everything())).unwrap();
    assert!(cursor.next_chunk(1, &mut |_| {}).unwrap());
    put(&store, "b", "new");
    let (done, finished) = callback();
    store.compact(5, Some(done)).unwrap();
    store.end_entry(at(1));
    flush(&store).unwrap();
    finished.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap();
    assert!(matches!(cursor.next_chunk(1, &mut |_| {}), Err(MvccError::Compacted { requested: 4, compacted: 5 })));
}

#[test]
fn changes_come_whole_and_within_bounds() {
    let (_dir, _path, store) = fresh();
    let mut txn = store.write();
    for key in ["a", "b", "c"] {
        txn.put(Bytes::from_static(key.as_bytes()), Bytes::new(), 0, false).unwrap();
    }
    txn.end().unwrap();
    put(&store, "d", "4");
    put(&store, "e", "5");
    for round in 0..3 {
        let sizes = |from, revisions_max, bytes_max| {
            let sets = store.changes_since(from, revisions_max, bytes_max).unwrap();
            sets.iter().map(|set| (set.revision, set.changes.len())).collect::<Vec<_>>()
        };
        assert_eq!(sizes(0, 1, usize::MAX), [(2, 3)]);
        assert_eq!(sizes(2, 0, 0), [(2, 3)]);
        assert_eq!(sizes(2, 2, usize::MAX), [(2, 3), (3, 1)]);
        assert_eq!(sizes(3, 9, 1), [(3, 1)]);
        assert_eq!(sizes(4, 9, usize::MAX), [(4, 1)]);
        assert_eq!(sizes(5, 9, usize::MAX), []);
        // From the ring, then from the ring although it is in the file, then from the file.
        store.end_entry(at(round));
        flush(&store).unwrap();
    }
}

#[test]
fn changes_below_the_compact_revision_are_refused_and_at_it_are_whole() {
    let (_dir, _path, store) = fresh();
    put(&store, "a", "1");
    put(&store, "b", "1");
    let mut txn = store.write();
    txn.put(Bytes::from_static(b"a"), Bytes::from_static(b"2"), 0, false).unwrap();
    txn.delete_range(&single("b"), false).unwrap();
    txn.end().unwrap();
    put(&store, "a", "3");
    let (done, result) = callback();
    store.compact(4, Some(done)).unwrap();
    store.end_entry(at(1));
    assert_eq!(result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap(), at(1));
    for index in 2..4 {
        assert!(matches!(changes(&store, 3), Err(MvccError::Compacted { requested: 3, compacted: 4 })));
        assert_eq!(changes(&store, 4).unwrap(), ["4 a=2 -b", "5 a=3"]);
        store.end_entry(at(index));
        flush(&store).unwrap();
    }
}
