//! A disk that fails: out of room is waited out, anything else stops the store for good.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
};

use super::*;
use crate::disk::{File, OpenMode};

/// Error numbers.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The real disk, with switches.
#[derive(Clone, Debug, Default)]
struct FaultyDisk {
    is_full: Arc<AtomicBool>,
    /// The system's error number of every sync of data; 0: it succeeds.
    sync_error: Arc<AtomicI32>,
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(FaultyFile(RealDisk.open(path, mode)?, self.clone())))
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
struct FaultyFile(Box<dyn File>, FaultyDisk);

impl File for FaultyFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        match self.1.sync_error.load(Ordering::SeqCst) {
            0 => self.0.sync_data(),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.1.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
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

#[test]
fn a_full_disk_is_waited_out_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let disk = FaultyDisk::default();
    let options = StoreOptions { commit_interval: Duration::from_millis(1), ..options() };
    let (store, _) = open_on(Arc::new(disk.clone()), &path, options).unwrap();
    disk.is_full.store(true, Ordering::SeqCst);
    let value = "v".repeat(1 << 20);
    put(&store, "a", &value);
    store.end_entry(at(1));
    let (done, result) = callback();
    store.flush(done);
    put(&store, "b", "2");
    store.end_entry(at(2));
    assert_eq!(store.get(b"a", 0).unwrap().unwrap().value, value);
    assert!(result.recv_timeout(Duration::from_millis(20)).is_err(), "there is no room, so nothing can be durable");
    assert_eq!(store.durable_position(), LogPosition::default());
    disk.is_full.store(false, Ordering::SeqCst);
    assert!(result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap() >= at(1));
    store.close().unwrap();
    drop(store);
    let (store, restored) = open(&path);
    assert_eq!(restored.position, at(2));
    assert_eq!(store.get(b"a", 0).unwrap().unwrap().value, value);
}

#[test]
fn a_failed_sync_stops_the_store_and_tells_the_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let disk = FaultyDisk::default();
    let (store, _) = open_on(Arc::new(disk.clone()), &path, options()).unwrap();
    let (sender, fatal) = mpsc::channel();
    store.on_fatal(Box::new(move |error| sender.send(error).unwrap()));
    put(&store, "a", "1");
    store.end_entry(at(1));
    disk.sync_error.store(EIO, Ordering::SeqCst);
    assert!(matches!(flush(&store), Err(MvccError::Bolt(_))));
    assert!(matches!(fatal.recv_timeout(RESULT_WAIT_MAX).unwrap(), MvccError::Bolt(_)));
    disk.sync_error.store(0, Ordering::SeqCst);
    assert!(matches!(store.get(b"a", 0), Err(MvccError::Bolt(_))));
    assert!(matches!(text(&store, 0), Err(MvccError::Bolt(_))));
    assert!(matches!(changes(&store, 0), Err(MvccError::Bolt(_))));
    assert!(matches!(store.write().put(Bytes::from_static(b"b"), Bytes::new(), 0, false), Err(MvccError::Bolt(_))));
    assert!(matches!(flush(&store), Err(MvccError::Bolt(_))));
    assert!(matches!(store.close(), Err(MvccError::Bolt(_))));
}

/// A sync that fails for want of room is as final as any other: it is not waited out.
#[test]
fn a_sync_without_room_stops_the_store_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let (store, _) = open_on(Arc::new(disk.clone()), &dir.path().join("db"), options()).unwrap();
    put(&store, "a", "1");
    store.end_entry(at(1));
    disk.sync_error.store(ENOSPC, Ordering::SeqCst);
    let error = flush(&store).unwrap_err().to_string();
    assert!(error.contains("syncing"), "the first failure is the reason, not what came of it: {error}");
    assert!(store.close().is_err());
}

#[test]
fn a_damaged_record_is_named_on_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = bolt::Db::open(Arc::new(RealDisk), &path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    let mut tx = db.write().unwrap();
    tx.create_bucket_if_missing(buckets::KEY).unwrap();
    tx.put(buckets::KEY, &Revision { main: 7, sub: 1 }.encode(), b"\x0a\x05k").unwrap();
    tx.commit().unwrap();
    let error = Store::open(db, options(), &Metrics::new()).unwrap_err();
    assert_eq!(error.to_string(), "damaged record at revision 7.1: a field is cut short (page 2)");
}
