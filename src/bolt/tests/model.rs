//! Against a map in memory: any sequence of changes, commits, rollbacks and reopenings.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put {
        bucket: u8,
        key: u16,
        bytes: usize,
    },
    /// Removes a stretch of keys, so that pages become empty and merge.
    Delete {
        bucket: u8,
        from: u16,
        count: u16,
    },
    Commit,
    RollBack,
    Reopen {
        cleanly: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0..300usize, 2 => 300..3000usize, 1 => 3000..20_000usize];
    prop_oneof![
        60 => (0..2u8, 0..400u16, bytes).prop_map(|(bucket, key, bytes)| Step::Put { bucket, key, bytes }),
        12 => (0..2u8, 0..400u16, 1..120u16).prop_map(|(bucket, from, count)| Step::Delete { bucket, from, count }),
        6 => Just(Step::Commit),
        1 => Just(Step::RollBack),
        2 => any::<bool>().prop_map(|cleanly| Step::Reopen { cleanly }),
    ]
}

pub(super) type Model = BTreeMap<u8, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Keys of different lengths, in no order of theirs.
pub(super) fn key_of(number: u16) -> Vec<u8> {
    let mut key = number.wrapping_mul(40_503).to_be_bytes().to_vec();
    key.resize(2 + usize::from(number % 37), b'.');
    key
}

fn apply(tx: &mut WriteTx<'_>, model: &mut Model, step: &Step) {
    match *step {
        Step::Put { bucket, key, bytes } => {
            let (key, value) = (key_of(key), vec![key as u8; bytes]);
            tx.create_bucket_if_missing(&[bucket]).unwrap();
            tx.put(&[bucket], &key, &value).unwrap();
            assert_eq!(tx.get(&[bucket], &key).unwrap().as_ref(), Some(&value));
            model.entry(bucket).or_default().insert(key, value);
        }
        Step::Delete { bucket, from, count } => {
            let Some(keys) = model.get_mut(&bucket) else { return };
            for key in (from..from + count).map(|number| number.wrapping_mul(40_503).to_be_bytes()) {
                let range: Vec<Vec<u8>> = keys.range(key.to_vec()..).take(1).map(|(key, _)| key.clone()).collect();
                for key in range {
                    tx.delete(&[bucket], &key).unwrap();
                    tx.delete(&[bucket], &key).unwrap();
                    assert_eq!(tx.get(&[bucket], &key).unwrap(), None);
                    keys.remove(&key);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn assert_same(db: &Db, model: &Model) {
    assert_sound(db);
    let read = db.read().unwrap();
    for (bucket, keys) in model {
        let expected: Vec<_> = keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(pairs(&read, &[*bucket]), expected);
        let tree = read.bucket(&[*bucket]).unwrap().unwrap();
        for number in 0..400 {
            let key = key_of(number);
            assert_eq!(tree.get(&key).unwrap(), keys.get(&key).map(Vec::as_slice));
            let found = tree.cursor().seek(&key).unwrap().map(|(key, _)| key.to_vec());
            assert_eq!(found.as_ref(), keys.range(key..).next().map(|(key, _)| key));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn behaves_like_a_map(steps in prop::collection::vec(step(), 1..250)) {
        let place = Place::new();
        let (mut committed, mut rest) = (Model::new(), steps.as_slice());
        let mut db = place.open();
        while !rest.is_empty() {
            let end = rest.iter().position(|step| !matches!(step, Step::Put { .. } | Step::Delete { .. }));
            let (changes, after) = rest.split_at(end.unwrap_or(rest.len()));
            let mut model = committed.clone();
            let mut tx = db.write().unwrap();
            changes.iter().for_each(|step| apply(&mut tx, &mut model, step));
            match after.first() {
                Some(Step::RollBack) => drop(tx),
                last => {
                    tx.commit().unwrap();
                    committed = model;
                    if let Some(Step::Reopen { cleanly }) = last {
                        if *cleanly { db.close().unwrap() } else { drop(db) }
                        db = place.open();
                    }
                }
            }
            assert_same(&db, &committed);
            rest = after.get(1..).unwrap_or_default();
        }
    }
}
