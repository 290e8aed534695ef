//! Readers beside a writer, commits and compactions.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::*;

const KEYS: i64 = 20;
const ROUNDS: i64 = 300;

/// Each transaction sets every key to the transaction's own revision: whoever sees two values has seen a torn state.
fn write_round(store: &Store) -> i64 {
    let mut txn = store.write();
    let value = Bytes::from((txn.base_revision() + 1).to_string());
    for key in 0..KEYS {
        txn.put(Bytes::from(format!("key{key:02}")), value.clone(), 0, false).unwrap();
    }
    txn.end().unwrap().revision
}

fn check_consistent(store: &Store, revision: i64, keys_max: usize) -> Result<(), MvccError> {
    let mut cursor = store.range(&RangeQuery { revision, ..RangeQuery::all(everything()) })?;
    let expected = if revision > 0 { revision } else { cursor.store_revision() };
    let mut seen = 0;
    while cursor.next_chunk(keys_max, &mut |kv| {
        seen += 1;
        assert_eq!(kv.value, expected.to_string().as_bytes());
        assert_eq!(kv.mod_revision, expected);
    })? {}
    assert_eq!((seen, cursor.more_and_count()), (KEYS, (false, KEYS)));
    Ok(())
}

#[test]
fn readers_see_one_revision_whatever_else_goes_on() {
    let (_dir, _path, store) = fresh();
    write_round(&store);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..2usize {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let mut back = 0;
                let mut reads = 0;
                while !is_over.load(Ordering::Acquire) || reads < 10 {
                    reads += 1;
                    back = (back + 1) % 6;
                    let current = store.revision();
                    let revision = if back == 0 { 0 } else { (current - back).max(2) };
                    let outcome = check_consistent(store, revision, 1 + reader * 6);
                    // The writer compacts ten revisions behind and may overtake a slow reader.
                    assert!(matches!(outcome, Ok(()) | Err(MvccError::Compacted { .. })), "{outcome:?}");
                    check_one_key(store, revision);
                    check_changes(store, current);
                }
            });
        }
        for index in 1..=ROUNDS {
            let revision = write_round(&store);
            if index % 7 == 0 && revision > 12 {
                store.compact(revision - 10, None).unwrap();
            }
            store.end_entry(at(index as u64));
            if index % 3 == 0 {
                flush(&store).unwrap();
            }
        }
        is_over.store(true, Ordering::Release);
    });
    check_consistent(&store, 0, 7).unwrap();
}

fn check_one_key(store: &Store, revision: i64) {
    match store.get(b"key07", revision) {
        Ok(kv) => assert!(kv.is_some_and(|kv| revision == 0 || kv.mod_revision == revision)),
        Err(error) => assert!(matches!(error, MvccError::Compacted { .. }), "{error}"),
    }
}

fn check_changes(store: &Store, current: i64) {
    let from = (current - 8).max(2);
    match store.changes_since(from, 100, usize::MAX) {
        Ok(sets) => {
            for (expected, set) in (from..).zip(&sets) {
                assert_eq!((set.revision, set.changes.len() as i64), (expected, KEYS));
            }
            assert!(!sets.is_empty());
        }
        Err(error) => assert!(matches!(error, MvccError::Compacted { .. }), "{error}"),
    }
}
