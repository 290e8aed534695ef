//! Look-ups by the list of leaves find what single ones find, in trees of any history, at any commit still seen.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::bolt::directory::Key;

const BUCKET: &[u8] = b"key";

/// Keys that count up in two numbers, some with a byte more: as the longest of all buckets has them.
fn counted_key(number: u16) -> Vec<u8> {
    let (first, second) = (u64::from(number / 37), u64::from(number % 37));
    let mut key = [&first.to_be_bytes()[..], b"_", &second.to_be_bytes()].concat();
    match number % 11 {
        3 => key.push(b't'),
        // Nothing but its length tells it from the one without.
        4 => key.push(0),
        _ => {}
    }
    key
}

#[derive(Clone, Debug)]
struct Change {
    from: u16,
    count: u16,
    /// `None` removes.
    value_bytes: Option<usize>,
}

fn change() -> impl Strategy<Value = Change> {
    let value_bytes =
        prop_oneof![4 => (0..400usize).prop_map(Some), 1 => (3000..9000usize).prop_map(Some), 2 => Just(None)];
    (0..3000u16, 1..600u16, value_bytes).prop_map(|(from, count, value_bytes)| Change { from, count, value_bytes })
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(db: &Db, pairs: &mut Pairs, change: &Change) {
    let mut tx = db.write().unwrap();
    tx.create_bucket_if_missing(BUCKET).unwrap();
    for number in change.from..change.from + change.count {
        let key = counted_key(number);
        match change.value_bytes {
            Some(bytes) => {
                let value = vec![number as u8; bytes];
                tx.put(BUCKET, &key, &value).unwrap();
                pairs.insert(key, value);
            }
            None => {
                tx.delete(BUCKET, &key).unwrap();
                pairs.remove(&key);
            }
        }
    }
    tx.commit().unwrap();
}

fn assert_found(read: &ReadTx, pairs: &Pairs, step: usize) {
    let bucket = read.bucket(BUCKET).unwrap().unwrap();
    let keys: Vec<Vec<u8>> = (0..3700).step_by(step).rev().map(counted_key).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let expected: Vec<Option<&[u8]>> = asked.iter().map(|key| pairs.get(*key).map(Vec::as_slice)).collect();
    assert_eq!(bucket.get_each(&asked).unwrap(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn look_ups_together_find_what_each_commit_holds(changes in prop::collection::vec(change(), 1..12), step in 1..7usize) {
        let place = Place::new();
        let db = place.open();
        let mut pairs = Pairs::new();
        let mut seen = Vec::new();
        for change in &changes {
            apply(&db, &mut pairs, change);
            seen.push((db.read().unwrap(), pairs.clone()));
            // The one before is looked at again: the list that was made last is another's.
            for (read, pairs) in seen.iter().rev().take(2) {
                assert_found(read, pairs, step);
            }
        }
        for (read, pairs) in &seen {
            assert_found(read, pairs, step);
        }
    }
}

#[test]
fn a_tree_with_branches_has_a_list_and_each_commit_its_own() {
    let place = Place::new();
    let db = place.open();
    let mut pairs = Pairs::new();
    let mut lists = Vec::new();
    for from in [0, 1500] {
        apply(&db, &mut pairs, &Change { from, count: 1500, value_bytes: Some(100) });
        let read = db.read().unwrap();
        let key = Key { txid: read.txid(), root: root_page(&read, BUCKET) };
        let list = |key| read.inner_directories().of(&read.pages(), key).unwrap();
        assert!(Arc::ptr_eq(&list(key), &list(key)));
        lists.push(list(key).len());
    }
    assert!(lists[0] > 30 && lists[1] > lists[0] + 30, "{lists:?}");

    // Too many leaves: the branches above them are listed.
    apply(&db, &mut pairs, &Change { from: 3000, count: 12_000, value_bytes: Some(100) });
    let read = db.read().unwrap();
    let key = Key { txid: read.txid(), root: root_page(&read, BUCKET) };
    let branches = read.inner_directories().of(&read.pages(), key).unwrap().len();
    assert!((2..lists[0]).contains(&branches), "{branches}");
    assert_found(&read, &pairs, 1);
}

#[test]
fn there_is_no_list_of_a_damaged_tree_and_the_descent_tells() {
    let place = Place::new();
    let db = place.open();
    let mut pairs = Pairs::new();
    apply(&db, &mut pairs, &Change { from: 0, count: 3000, value_bytes: Some(100) });
    let root = root_page(&db.read().unwrap(), BUCKET) as usize;
    db.close().unwrap();
    let good = place.bytes();
    // The second child's page: two elements name the first.
    let child = |index: usize| root * 4096 + 16 + 16 * index + 8;
    let mut bad = good.clone();
    bad.copy_within(child(0)..child(0) + 8, child(1));
    std::fs::write(&place.path, &bad).unwrap();
    let db = Db::open_read_only(&(Arc::new(RealDisk) as Arc<dyn Disk>), &place.path).unwrap();
    let keys: Vec<Vec<u8>> = pairs.into_keys().collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let error = db.bucket(BUCKET).unwrap().unwrap().get_each(&asked).unwrap_err().to_string();
    assert!(error.contains("the branch above says"), "{error}");
}
