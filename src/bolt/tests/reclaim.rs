//! Giving room back: what it gives, what it keeps, and what it waits for.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use proptest::prelude::*;

use super::{
    model::{Model, assert_same, key_of},
    *,
};

/// Steps that a run of reclaiming in these tests never comes near.
const STEPS_MAX: usize = 10_000;

fn small_steps() -> ReclaimLimits {
    ReclaimLimits { step_pages_max: 8, step_cut_bytes_max: 64 << 10, ..ReclaimLimits::default() }
}

/// Runs until there is nothing more to be done, or until open views hold it up; what all steps did, and the end.
fn run(db: &Db, limits: ReclaimLimits) -> ReclaimStep {
    let mut reclaim = Reclaim::new(limits);
    let mut all = ReclaimStep { progress: ReclaimProgress::More, pages_moved: 0, bytes_given_back: 0 };
    for _ in 0..STEPS_MAX {
        let step = db.reclaim_step(&mut reclaim).unwrap();
        all.progress = step.progress;
        all.pages_moved += step.pages_moved;
        all.bytes_given_back += step.bytes_given_back;
        if step.progress != ReclaimProgress::More {
            return all;
        }
    }
    panic!("no end after {STEPS_MAX} steps: {all:?}");
}

fn keys(range: std::ops::Range<u64>) -> Vec<[u8; 8]> {
    range.map(number_key).collect()
}

fn delete_all(db: &Db, bucket: &[u8], keys: impl IntoIterator<Item = u64>) {
    let mut tx = db.write().unwrap();
    for key in keys {
        tx.delete(bucket, &number_key(key)).unwrap();
    }
    tx.commit().unwrap();
}

fn length(place: &Place) -> u64 {
    std::fs::metadata(&place.path).unwrap().len()
}

/// Written in one go, then in pieces deleted so that every second stretch of pages is free.
fn holes(db: &Db, value_bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let value = vec![7; value_bytes];
    for start in (0..6_000).step_by(500) {
        put_same(db, b"many", &keys(start..start + 500), &value);
    }
    put_all(db, b"small", [(&b"a"[..], &b"1"[..])]);
    for start in (0..6_000).step_by(500) {
        delete_all(db, b"many", (start..start + 500).filter(|key| key / 100 % 2 == 0));
    }
    pairs(&db.read().unwrap(), b"many")
}

/// Bytes in use of a file with these pairs in one bucket, put in order.
fn packed_bytes(pairs: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    let place = Place::new();
    let db = place.open();
    let mut tx = db.write().unwrap();
    tx.create_bucket_if_missing(b"many").unwrap();
    tx.set_fill_percent(b"many", 0.9).unwrap();
    for (key, value) in pairs {
        tx.put(b"many", key, value).unwrap();
    }
    tx.commit().unwrap();
    db.size_in_use_bytes()
}

#[test]
fn pages_move_down_and_the_end_is_cut_off() {
    for value_bytes in [100, 900, 5_000] {
        let place = Place::new();
        let db = place.open();
        let before = holes(&db, value_bytes);
        let (size, in_use) = (db.size_bytes(), db.size_in_use_bytes());
        assert!(in_use < size * 2 / 3, "{in_use} of {size}");
        let done = run(&db, small_steps());
        assert_eq!(done.progress, ReclaimProgress::Done);
        assert_eq!(done.bytes_given_back, size - db.size_bytes());
        assert_eq!(db.size_bytes(), length(&place));
        assert!(db.size_bytes() <= in_use * 102 / 100 + (16 << 12), "{value_bytes}: {} of {in_use}", db.size_bytes());
        assert_sound(&db);
        assert!(pairs(&db.read().unwrap(), b"many") == before);
        // Again there is nothing to be done, and that is seen at once.
        let again = run(&db, small_steps());
        assert_eq!((again.pages_moved, again.bytes_given_back), (0, 0), "{value_bytes}");
        drop(db);
        let db = place.open();
        assert_sound(&db);
        assert!(pairs(&db.read().unwrap(), b"many") == before);
        put_same(&db, b"many", &keys(0..6_000), &[1; 50]);
        assert_sound(&db);
    }
}

#[test]
fn sparse_leaves_are_joined_so_that_a_copy_would_not_be_smaller() {
    for (value_bytes, keep) in [(100, 3), (300, 2), (20, 10), (1_300, 3)] {
        let place = Place::new();
        let db = place.open();
        put_same(&db, b"many", &keys(0..20_000), &vec![7; value_bytes]);
        delete_all(&db, b"many", (0..20_000).filter(|key| key % keep != 0));
        let before = pairs(&db.read().unwrap(), b"many");
        run(&db, small_steps());
        assert_sound(&db);
        assert!(pairs(&db.read().unwrap(), b"many") == before);
        let (ours, copied) = (db.size_bytes(), packed_bytes(&before));
        assert!(ours <= copied * 106 / 100 + (20 << 12), "{value_bytes} {keep}: {ours}, a copy {copied}");
    }
}

#[test]
fn nothing_is_cut_that_a_view_may_look_at() {
    let place = Place::new();
    let db = place.open();
    let before = holes(&db, 900);
    let view = db.read().unwrap();
    let size = length(&place);
    let held = run(&db, small_steps());
    assert_eq!((held.progress, held.bytes_given_back), (ReclaimProgress::Held, 0));
    assert_eq!(length(&place), size);
    assert!(view.meta().used_bytes() <= size);
    assert!(pairs(&view, b"many") == before);
    drop(view);
    let done = run(&db, small_steps());
    assert_eq!(done.progress, ReclaimProgress::Done);
    assert!(length(&place) < size * 2 / 3);
    assert!(pairs(&db.read().unwrap(), b"many") == before);
    assert_sound(&db);
}

#[test]
fn both_meta_pages_lead_to_a_whole_tree_after_a_cut() {
    let place = Place::new();
    let db = place.open();
    holes(&db, 900);
    run(&db, small_steps());
    drop(db);
    let bytes = place.bytes();
    for damaged in 0..2 {
        let mut bytes = bytes.clone();
        bytes[damaged * 4096 + 40] ^= 1;
        std::fs::write(&place.path, &bytes).unwrap();
        let db = place.open();
        assert_sound(&db);
        assert_eq!(pairs(&db.read().unwrap(), b"many").len(), 3_000);
    }
}

#[test]
fn what_is_allocated_beyond_the_last_page_is_cut_off_without_moving_anything() {
    let place = Place::new();
    let db = place.open();
    put_same(&db, b"many", &keys(0..4_000), &[7; 300]);
    put_same(&db, b"many", &keys(4_000..5_000), &[7; 300]);
    assert!(db.unused_end_bytes() > 0);
    let mut cut = Reclaim::only_cut(ReclaimLimits::default());
    while db.reclaim_step(&mut cut).unwrap().progress == ReclaimProgress::More {}
    assert_eq!(db.unused_end_bytes(), 0);
    assert_eq!(length(&place), db.read().unwrap().meta().used_bytes());
    assert_sound(&db);
    // It grows again.
    put_same(&db, b"many", &keys(5_000..9_000), &[7; 300]);
    assert_sound(&db);
    assert_eq!(pairs(&db.read().unwrap(), b"many").len(), 9_000);
}

#[test]
fn values_of_all_lengths_move() {
    let place = Place::new();
    let db = place.open();
    let value = |key: u64| vec![key as u8; [50, 700, 6_000, 30_000, 200_000][(key * 7 % 5) as usize]];
    let mut expected = BTreeMap::new();
    for start in (0..600).step_by(20) {
        let mut tx = db.write().unwrap();
        tx.create_bucket_if_missing(b"many").unwrap();
        for key in start..start + 20 {
            tx.put(b"many", &number_key(key), &value(key)).unwrap();
            expected.insert(number_key(key).to_vec(), value(key));
        }
        tx.commit().unwrap();
    }
    delete_all(&db, b"many", (0..600).filter(|key| key * 31 % 7 < 4));
    expected.retain(|key, _| page::u64_at(&key.iter().rev().copied().collect::<Vec<_>>(), 0) * 31 % 7 >= 4);
    let in_use = db.size_in_use_bytes();
    run(&db, small_steps());
    assert_sound(&db);
    assert!(pairs(&db.read().unwrap(), b"many") == expected.into_iter().collect::<Vec<_>>());
    assert!(db.size_bytes() < in_use * 110 / 100, "{} of {in_use}", db.size_bytes());
}

#[test]
fn long_values_find_room_where_only_single_pages_are_free() {
    let place = Place::new();
    let db = place.open();
    // Two to a page; then every second page comes free.
    put_same(&db, b"single", &keys(0..4_000), &[7; 1_700]);
    delete_all(&db, b"single", (0..4_000).filter(|key| key % 4 < 2));
    for number in 0..8_u8 {
        put_all(&db, b"long", [(&[number][..], &vec![number; 300_000][..])]);
    }
    let in_use = db.size_in_use_bytes();
    let done = run(&db, small_steps());
    assert_eq!(done.progress, ReclaimProgress::Done);
    assert_sound(&db);
    assert!(db.size_bytes() <= in_use * 102 / 100 + (16 << 12), "{} of {in_use}", db.size_bytes());
    let long = pairs(&db.read().unwrap(), b"long");
    assert!(long.iter().all(|(key, value)| value == &vec![key[0]; 300_000]) && long.len() == 8);
}

#[test]
fn readers_come_and_go_while_pages_move_and_the_file_is_cut() {
    let place = Place::new();
    let db = place.open();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let view = db.read().unwrap();
                    if view.bucket(b"many").unwrap().is_none() {
                        continue;
                    }
                    // All values of a view are of one round.
                    let found = pairs(&view, b"many");
                    assert!(found.iter().all(|(_, value)| value == &found[0].1));
                }
            });
        }
        for round in 1..6 {
            put_same(&db, b"many", &keys(0..2_000), &[round; 2_000]);
            put_same(&db, b"many", &keys(0..2_000), &[round + 100; 300]);
            let mut reclaim = Reclaim::new(small_steps());
            while db.reclaim_step(&mut reclaim).unwrap().progress != ReclaimProgress::Done {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_sound(&db);
    assert!(length(&place) <= db.size_in_use_bytes() * 102 / 100 + (20 << 12), "{}", length(&place));
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u16, count: u16, bytes: usize },
    Delete { key: u16, count: u16 },
    Reclaim { steps: usize },
    Restart,
    Pin,
    Unpin { which: usize },
    Reopen { cleanly: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0..300usize, 3 => 300..3000usize, 1 => 3000..20_000usize];
    prop_oneof![
        30 => (0..400u16, 1..60u16, bytes).prop_map(|(key, count, bytes)| Step::Put { key, count, bytes }),
        15 => (0..400u16, 1..120u16).prop_map(|(key, count)| Step::Delete { key, count }),
        25 => (1..40usize).prop_map(|steps| Step::Reclaim { steps }),
        3 => Just(Step::Restart),
        5 => Just(Step::Pin),
        5 => (0..4usize).prop_map(|which| Step::Unpin { which }),
        2 => any::<bool>().prop_map(|cleanly| Step::Reopen { cleanly }),
    ]
}

/// The views that are open, each with what it must show.
type Pinned = Vec<(ReadTx, Model)>;

fn take(db: &Db, model: &mut Model, step: &Step) {
    let mut tx = db.write().unwrap();
    match *step {
        Step::Put { key, count, bytes } => {
            for key in key..key + count {
                let (bucket, key, value) = ((key % 2) as u8, key_of(key % 400), vec![key as u8; bytes]);
                tx.create_bucket_if_missing(&[bucket]).unwrap();
                tx.put(&[bucket], &key, &value).unwrap();
                model.entry(bucket).or_default().insert(key, value);
            }
        }
        Step::Delete { key, count } => {
            for key in key..key + count {
                let (bucket, key) = ((key % 2) as u8, key_of(key % 400));
                if let Some(keys) = model.get_mut(&bucket) {
                    tx.delete(&[bucket], &key).unwrap();
                    keys.remove(&key);
                }
            }
        }
        _ => {}
    }
    tx.commit().unwrap();
}

fn assert_pinned(place: &Place, pinned: &Pinned) {
    for (view, model) in pinned {
        assert!(view.meta().used_bytes() <= length(place));
        for (bucket, expected) in model {
            let expected: Vec<_> = expected.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            assert!(pairs(view, &[*bucket]) == expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn reclaiming_changes_nothing_that_is_seen(steps in prop::collection::vec(step(), 1..40)) {
        let place = Place::new();
        let (mut model, mut pinned) = (Model::new(), Pinned::new());
        let mut db = place.open();
        let mut reclaim = Reclaim::new(small_steps());
        for step in &steps {
            match *step {
                Step::Put { .. } | Step::Delete { .. } => take(&db, &mut model, step),
                Step::Reclaim { steps } => {
                    for _ in 0..steps {
                        if db.reclaim_step(&mut reclaim).unwrap().progress != ReclaimProgress::More {
                            break;
                        }
                    }
                }
                Step::Restart => reclaim = Reclaim::new(small_steps()),
                Step::Pin => pinned.push((db.read().unwrap(), model.clone())),
                Step::Unpin { which } if which < pinned.len() => _ = pinned.remove(which),
                Step::Unpin { .. } => {}
                Step::Reopen { cleanly } => {
                    pinned.clear();
                    if cleanly { db.close().unwrap() } else { drop(db) }
                    db = place.open();
                }
            }
            assert_same(&db, &model);
            assert_pinned(&place, &pinned);
        }
        pinned.clear();
        let in_use = db.size_in_use_bytes();
        prop_assert_eq!(run(&db, small_steps()).progress, ReclaimProgress::Done);
        assert_same(&db, &model);
        prop_assert!(db.size_in_use_bytes() <= in_use + (8 << 12));
        drop(db);
        assert_same(&place.open(), &model);
    }
}
