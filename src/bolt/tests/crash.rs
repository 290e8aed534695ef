//! Power cuts and faults at every call of a workload: what was committed is there, nothing else is, and the file is
//! sound.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::*;
use crate::disk::sim::{
    Call, CrashState, EIO, Failure, Fault, Op, Promise, Recording, SimDisk, crash_states, explore, inject_everywhere,
    scratch,
};

/// Where the number of the last commit is kept.
const COUNT_BUCKET: &[u8] = b"count";
const COUNT_KEY: &[u8] = b"last";
/// Commits of one run of the workload.
const STEPS: usize = 12;

type Content = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

/// Bucket, key, and the new value, if any.
type Edit = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// What a commit changes.
fn edits(step: u64) -> Vec<Edit> {
    let bucket = |number: u64| vec![b'b', b'0' + (number % 3) as u8];
    let key = |number: u64| (number % 97).to_be_bytes().to_vec();
    let mut edits = vec![(COUNT_BUCKET.to_vec(), COUNT_KEY.to_vec(), Some(step.to_be_bytes().to_vec()))];
    for number in 0..step % 5 * 8 {
        let value = vec![(step + number) as u8; (step * 37 % 300) as usize];
        edits.push((bucket(step + number), key(step * 7 + number * 5), Some(value)));
    }
    if step % 4 == 1 {
        // Pages that overflow, and a file that grows.
        edits.push((bucket(step), key(1000 + step), Some(vec![step as u8; 20_000])));
    }
    if step % 3 == 2 {
        edits.extend((0..40).map(|number| (bucket(number), key(number * 3 + step), None)));
    }
    edits
}

/// What is done between commits. What a commit must survive is one line here.
fn upkeep(db: Db, disk: &SimDisk, path: &Path, step: u64) -> Result<Db, BoltError> {
    match step % 6 {
        2 => {
            db.close()?;
            Db::open(Arc::new(disk.clone()), path, &OPTIONS)
        }
        4 => {
            let limits = ReclaimLimits { kept_free_percent: 0, step_pages_max: 3, ..ReclaimLimits::default() };
            let mut reclaim = Reclaim::new(limits);
            while db.reclaim_step(&mut reclaim)?.progress == ReclaimProgress::More {}
            Ok(db)
        }
        _ => Ok(db),
    }
}

fn commit(db: &Db, step: u64) -> Result<(), BoltError> {
    let mut tx = db.write()?;
    for (bucket, key, value) in edits(step) {
        tx.create_bucket_if_missing(&bucket)?;
        match value {
            Some(value) => tx.put(&bucket, &key, &value)?,
            None => tx.delete(&bucket, &key)?,
        }
    }
    tx.commit().map(drop)
}

fn content(read: &ReadTx) -> Content {
    let buckets: [&[u8]; 4] = [COUNT_BUCKET, b"b0", b"b1", b"b2"];
    let there = buckets.into_iter().filter(|bucket| read.bucket(bucket).unwrap().is_some());
    there
        .flat_map(|bucket| pairs(read, bucket).into_iter().map(|(key, value)| ((bucket.to_vec(), key), value)))
        .collect()
}

/// How many steps the file holds, if it holds what it may and is sound.
fn judge(db: &Db, promise: &Promise) -> Result<usize, String> {
    let problems = db.check().map_err(|error| error.to_string())?;
    if !problems.is_empty() {
        return Err(format!("check: {problems:?}"));
    }
    let found = content(&db.read().unwrap());
    let last = found.get(&(COUNT_BUCKET.to_vec(), COUNT_KEY.to_vec()));
    let last = last.map(|bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
    let held = match last {
        None => 0,
        Some(step) => promise.count_through(step).ok_or(format!("holds step {step}, which never was"))?,
    };
    promise.check(held)?;
    let mut expected = Content::new();
    for (bucket, key, value) in promise.steps[..held].iter().flat_map(|step| edits(*step)) {
        match value {
            Some(value) => drop(expected.insert((bucket, key), value)),
            None => drop(expected.remove(&(bucket, key))),
        }
    }
    let differ: BTreeSet<_> =
        found.iter().chain(&expected).filter(|(at, _)| found.get(*at) != expected.get(*at)).collect();
    if differ.is_empty() { Ok(held) } else { Err(format!("{} pairs are wrong at step {held}", differ.len())) }
}

fn work(disk: &SimDisk, dir: &Path, may_refuse: bool) {
    if let Err(error) = try_work(disk, dir) {
        assert!(may_refuse, "{error}");
    }
}

fn try_work(disk: &SimDisk, dir: &Path) -> Result<(), BoltError> {
    let path = dir.join("db");
    let mut db = Db::open(Arc::new(disk.clone()), &path, &OPTIONS)?;
    disk.restarted(judge(&db, &disk.promise()).unwrap());
    for _ in 0..STEPS {
        let step = disk.promise().next_step();
        disk.begin(step);
        match commit(&db, step) {
            Ok(()) => disk.done(step),
            // Nothing was written: the commit can be made again.
            Err(BoltError::NoRoom { .. }) => {
                commit(&db, step)?;
                disk.done(step);
            }
            Err(error) => {
                let again = db.write().err();
                assert!(again.is_none() || matches!(again, Some(BoltError::Poisoned { .. })));
                return Err(error);
            }
        }
        db = upkeep(db, disk, &path, step)?;
    }
    Ok(())
}

/// Opens a state; every so often with another power cut while it is being opened.
fn check(state: &CrashState<'_>) -> Result<(), String> {
    let promise = state.promise();
    let disk = SimDisk::recording(&state.dir);
    let path = state.dir.join("db");
    let db = Db::open(Arc::new(disk.clone()), &path, &OPTIONS).map_err(|error| error.to_string())?;
    let held = judge(&db, &promise)?;
    commit(&db, 1_000_000).map_err(|error| error.to_string())?;
    assert_sound(&db);
    drop(db);
    disk.restarted(0);
    let again = explore(&disk.recorded(), 0, 2, &mut |again| {
        let db = Db::open(Arc::new(RealDisk), &again.dir.join("db"), &OPTIONS).map_err(|error| error.to_string())?;
        let mut promise = Promise { done: held, ..promise.clone() };
        promise.steps.truncate(held);
        promise.steps.push(1_000_000);
        judge(&db, &promise).map(drop)
    });
    again.losses.into_iter().next().map_or(Ok(()), |loss| Err(format!("after another power cut: {loss}")))
}

fn recorded() -> Recording {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    work(&disk, dir.path(), false);
    work(&disk, dir.path(), false);
    disk.recorded()
}

#[test]
fn a_power_cut_loses_nothing_that_was_committed() {
    let explored = explore(&recorded(), 0, crash_states(600, 1), &mut check);
    explored.assert_sound("bolt");
    println!("bolt: {} states", explored.states);
}

#[test]
fn a_fault_at_any_call_loses_nothing_that_was_committed() {
    let injected = inject_everywhere("bolt", 12, &mut work, &mut check);
    println!("bolt: {} faults, {} states after them", injected.faults, injected.states);
    assert!(injected.faults > 20);
}

/// The meta page is seen when the file is opened again, but the disk may not have it: what it made free must not be
/// written over before it is there.
#[test]
fn a_commit_whose_last_sync_failed_is_made_durable_by_opening() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let path = dir.path().join("db");
    let commit_next = |db: &Db| {
        let step = disk.promise().next_step();
        disk.begin(step);
        commit(db, step).map(|()| disk.done(step))
    };
    let db = Db::open(Arc::new(disk.clone()), &path, &OPTIONS).unwrap();
    (0..6).for_each(|_| commit_next(&db).unwrap());
    let failed_at = disk.recorded().ops().len();
    disk.fail(Fault::after(1, &[Call::SyncData], Failure::Errno(EIO)));
    assert!(matches!(commit_next(&db), Err(BoltError::Io { action: "syncing the meta page", .. })));
    drop(db);
    disk.heal();
    let db = Db::open(Arc::new(disk.clone()), &path, &OPTIONS).unwrap();
    disk.restarted(judge(&db, &disk.promise()).unwrap());
    (0..4).for_each(|_| commit_next(&db).unwrap());
    drop(db);
    explore(&disk.recorded(), failed_at, 200, &mut check).assert_sound("a meta page in doubt");
}

/// The same search finds what an engine loses that leaves something out.
#[test]
fn an_engine_that_leaves_out_a_sync_is_caught() {
    let recording = recorded();
    let no_data = recording.without(|op| matches!(op, Op::Sync { .. }));
    let no_names = recording.without(|op| matches!(op, Op::SyncDir { .. }));
    let mut syncs = 0;
    let every_other = recording.without(|op| {
        syncs += usize::from(matches!(op, Op::Sync { .. }));
        matches!(op, Op::Sync { .. }) && syncs % 2 == 1
    });
    for (name, wrong) in [("data", no_data), ("names", no_names), ("order", every_other)] {
        let explored = explore(&wrong, 0, 200, &mut check);
        assert!(!explored.losses.is_empty(), "{name}: {} states and no loss", explored.states);
    }
}
