//! A disk that fails: what is rolled back, what poisons, and that the last commit stays readable.

use super::*;
use crate::disk::sim::{Call, ENOSPC, Failure, Fault, SimDisk};

/// The call of this kind after so many fails; a write does half of its work first.
fn fail_after(disk: &SimDisk, what: Call, calls: usize) {
    disk.fail(Fault::after(calls, &[what], Failure::Short(ENOSPC)));
}

fn try_put(db: &Db, fill: u8, bytes: usize) -> Result<CommitStats, BoltError> {
    let mut tx = db.write()?;
    tx.create_bucket_if_missing(b"b")?;
    for key in 0..50 {
        tx.put(b"b", &number_key(key), &vec![fill; bytes])?;
    }
    tx.commit()
}

fn assert_filled(db: &Db, fill: u8) {
    let found = pairs(&db.read().unwrap(), b"b");
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|(_, value)| value.iter().all(|&byte| byte == fill)));
}

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_written() {
    for (what, grows) in [(Call::Write, false), (Call::SyncData, false), (Call::SyncAll, true)] {
        for calls in 0.. {
            let place = Place::new();
            let disk = SimDisk::default();
            let db = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS).unwrap();
            try_put(&db, 1, 100).unwrap();
            try_put(&db, 2, 100).unwrap();
            fail_after(&disk, what, calls);
            let outcome = try_put(&db, 3, if grows { 3000 } else { 100 });
            if disk.faults_struck() == 0 {
                outcome.unwrap();
                assert!(calls > 0, "{what:?} is called at all");
                break;
            }
            assert!(matches!(outcome, Err(BoltError::Io { .. })), "{what:?} {calls}: {outcome:?}");
            let file = place.bytes();
            assert!(matches!(db.write(), Err(BoltError::Poisoned { .. })));
            assert!(matches!(db.clone().close(), Err(BoltError::Poisoned { .. })));
            assert_eq!(place.bytes(), file);
            assert_filled(&db, 2);
            drop(db);
            let db = place.open();
            assert_sound(&db);
            let fill = pairs(&db.read().unwrap(), b"b")[0].1[0];
            assert!(fill == 2 || fill == 3, "the commit before, or the last one whole");
            assert_filled(&db, fill);
        }
    }
}

#[test]
fn a_full_disk_rolls_back_and_harms_nothing() {
    let place = Place::new();
    let disk = SimDisk::default();
    let db = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS).unwrap();
    try_put(&db, 1, 100).unwrap();
    try_put(&db, 2, 100).unwrap();
    let before = (place.bytes(), db.size_bytes(), db.size_in_use_bytes());
    // Less than is asked for would be enough, but there is not even that.
    disk.fail(Fault::every(&[Call::Allocate], Failure::Errno(ENOSPC)));
    for _ in 0..3 {
        let outcome = try_put(&db, 3, 3000);
        assert!(matches!(outcome, Err(BoltError::NoRoom { .. })), "{outcome:?}");
        assert_eq!((place.bytes(), db.size_bytes(), db.size_in_use_bytes()), before);
        assert_sound(&db);
    }
    assert_filled(&db, 2);
    disk.heal();
    try_put(&db, 4, 100).unwrap();
    try_put(&db, 5, 3000).unwrap();
    assert_sound(&db);
    assert_filled(&db, 5);
}

#[test]
fn the_limit_of_the_map_is_the_limit_of_the_file() {
    let place = Place::new();
    let limit = 1 << 20;
    let db = Db::open(Arc::new(RealDisk), &place.path, &Options { map_bytes_max: limit }).unwrap();
    try_put(&db, 1, 100).unwrap();
    let outcome = try_put(&db, 2, 30_000);
    assert!(matches!(outcome, Err(BoltError::Full { map_bytes_max, .. }) if map_bytes_max == limit), "{outcome:?}");
    assert_filled(&db, 1);
    try_put(&db, 3, 9000).unwrap();
    assert!(db.size_bytes() <= limit);
    assert_filled(&db, 3);
    assert_sound(&db);
}

#[test]
fn a_file_that_could_not_be_made_is_made_the_next_time() {
    for what in [Call::Allocate, Call::Write, Call::SyncAll] {
        for calls in 0..2 {
            let place = Place::new();
            let disk = SimDisk::default();
            fail_after(&disk, what, calls);
            let outcome = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS);
            assert_eq!(outcome.is_err(), disk.faults_struck() > 0);
            if outcome.is_err() {
                assert!(!place.path.exists());
            }
            drop(outcome);
            assert_sound(&place.open());
            assert_eq!(RealDisk.list(place.path.parent().unwrap()).unwrap(), std::slice::from_ref(&place.path));
        }
    }
}

#[test]
fn whatever_fails_while_room_is_given_back_nothing_is_lost() {
    for what in [Call::Write, Call::SyncData, Call::SyncAll, Call::SetLen] {
        for calls in 0.. {
            let place = Place::new();
            let disk = SimDisk::default();
            let db = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS).unwrap();
            try_put(&db, 1, 9_000).unwrap();
            try_put(&db, 2, 3_000).unwrap();
            let mut reclaim = Reclaim::new(ReclaimLimits { step_pages_max: 30, ..ReclaimLimits::default() });
            fail_after(&disk, what, calls);
            let outcome = loop {
                match db.reclaim_step(&mut reclaim) {
                    Ok(step) if step.progress == ReclaimProgress::More => {}
                    ended => break ended,
                }
            };
            assert_filled(&db, 2);
            if disk.faults_struck() == 0 {
                assert_eq!(outcome.unwrap().progress, ReclaimProgress::Done);
                assert!(calls > 0, "{what:?} is called at all");
                break;
            }
            assert!(matches!(outcome, Err(BoltError::Io { .. })), "{what:?} {calls}: {outcome:?}");
            assert!(matches!(db.write(), Err(BoltError::Poisoned { .. })));
            assert!(matches!(db.reclaim_step(&mut reclaim), Err(BoltError::Poisoned { .. })));
            drop(db);
            let db = place.open();
            assert_sound(&db);
            assert_filled(&db, 2);
        }
    }
}
