//! A disk that fails: what is rolled back, what poisons, and that the last commit stays readable.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use super::*;
use crate::disk::OpenMode;

/// The real disk, but the n-th call of one kind fails.
#[derive(Clone, Debug)]
struct FailingDisk {
    what: Call,
    /// Calls of that kind still to succeed; negative: all.
    left: Arc<AtomicI64>,
    failed: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Allocate,
    Write,
    SyncData,
    SyncAll,
    SetLen,
}

impl FailingDisk {
    fn new(what: Call) -> FailingDisk {
        FailingDisk { what, left: Arc::new(AtomicI64::new(-1)), failed: Arc::default() }
    }

    fn fail_after(&self, calls: i64) {
        self.failed.store(false, Ordering::SeqCst);
        self.left.store(calls, Ordering::SeqCst);
    }

    fn call(&self, what: Call) -> io::Result<()> {
        if what == self.what && self.left.load(Ordering::SeqCst) >= 0 && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.failed.store(true, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(FailingFile(RealDisk.open(path, mode)?, self.clone())))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
}

#[derive(Debug)]
struct FailingFile(Box<dyn File>, FailingDisk);

impl File for FailingFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        // Half of what was to be written gets there.
        self.1.call(Call::Write).inspect_err(|_| self.0.write_all_at(&buf[..buf.len() / 2], offset).unwrap())?;
        self.0.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.call(Call::SyncData)?;
        self.0.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.1.call(Call::SyncAll)?;
        self.0.sync_all()
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.1.call(Call::Allocate)?;
        self.0.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.call(Call::SetLen)?;
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.0.try_lock_exclusive()
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
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
            let disk = FailingDisk::new(what);
            let db = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS).unwrap();
            try_put(&db, 1, 100).unwrap();
            try_put(&db, 2, 100).unwrap();
            disk.fail_after(calls);
            let outcome = try_put(&db, 3, if grows { 3000 } else { 100 });
            if !disk.failed.load(Ordering::SeqCst) {
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
    let disk = FailingDisk::new(Call::Allocate);
    let db = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS).unwrap();
    try_put(&db, 1, 100).unwrap();
    try_put(&db, 2, 100).unwrap();
    let before = (place.bytes(), db.size_bytes(), db.size_in_use_bytes());
    for _ in 0..3 {
        disk.fail_after(0);
        let outcome = try_put(&db, 3, 3000);
        assert!(matches!(outcome, Err(BoltError::NoRoom { .. })), "{outcome:?}");
        assert_eq!((place.bytes(), db.size_bytes(), db.size_in_use_bytes()), before);
        assert_sound(&db);
    }
    assert_filled(&db, 2);
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
            let disk = FailingDisk::new(what);
            disk.fail_after(calls);
            let outcome = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS);
            assert_eq!(outcome.is_err(), disk.failed.load(Ordering::SeqCst));
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
            let disk = FailingDisk::new(what);
            let db = Db::open(Arc::new(disk.clone()), &place.path, &OPTIONS).unwrap();
            try_put(&db, 1, 9_000).unwrap();
            try_put(&db, 2, 3_000).unwrap();
            let mut reclaim = Reclaim::new(ReclaimLimits { step_pages_max: 30, ..ReclaimLimits::default() });
            disk.fail_after(calls);
            let outcome = loop {
                match db.reclaim_step(&mut reclaim) {
                    Ok(step) if step.progress == ReclaimProgress::More => {}
                    ended => break ended,
                }
            };
            assert_filled(&db, 2);
            if !disk.failed.load(Ordering::SeqCst) {
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
