//! The log on a disk that is full: it waits where it must, says so, and goes on when there is room.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use super::*;

const OUTCOME_WAIT_MAX: Duration = Duration::from_secs(60);
/// The entry that has to wait: those before it fit in the first segment.
const LARGE: u64 = 4;

/// The real disk, but for a switch.
#[derive(Clone, Debug, Default)]
struct FullDisk(Arc<AtomicBool>);

impl FullDisk {
    fn set_full(&self, is_full: bool) {
        self.0.store(is_full, Ordering::SeqCst);
    }
}

impl Disk for FullDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(FullFile(RealDisk.open(path, mode)?, self.clone())))
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
struct FullFile(Box<dyn File>, FullDisk);

impl File for FullFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        // A write beyond what is reserved fails on a full disk; the log must not make one.
        if self.1.0.load(Ordering::SeqCst) && offset + buf.len() as u64 > self.0.len()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.1.0.load(Ordering::SeqCst) {
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

fn wait_short(room: &Room, is_short: bool) {
    let deadline = std::time::Instant::now() + OUTCOME_WAIT_MAX;
    while room.shortage().is_some() != is_short {
        assert!(std::time::Instant::now() < deadline, "the log never noticed");
        std::thread::yield_now();
    }
}

/// Appends entries on a disk that is full from the second on, the last of which is larger than all that is reserved; its
/// outcome.
fn append_until_it_waits(wal: &Wal, disk: &FullDisk) -> mpsc::Receiver<Result<(), WalError>> {
    append(wal, vec![entry(1, "a")]).unwrap();
    disk.set_full(true);
    fill(wal, 2..=LARGE - 1);
    let (sender, outcome) = mpsc::channel();
    let large = entry(LARGE, vec![1; 3 * SMALL.segment_bytes as usize]);
    wal.append(vec![large], Box::new(move |result| sender.send(result.map(drop)).unwrap()));
    wait_short(&wal.room(), true);
    assert_eq!(outcome.try_recv().unwrap_err(), mpsc::TryRecvError::Empty);
    outcome
}

#[test]
fn what_is_reserved_is_used_up_then_the_log_waits_and_goes_on_when_there_is_room() {
    let temp = TempDir::new().unwrap();
    let disk = FullDisk::default();
    let (wal, _) = open_on(Arc::new(disk.clone()), temp.path(), 1, SMALL).unwrap();
    let room = wal.room();
    let outcome = append_until_it_waits(&wal, &disk);
    let shortage = room.shortage().unwrap();
    assert!(shortage.contains("reserving space for a segment failed"), "{shortage}");

    disk.set_full(false);
    outcome.recv_timeout(OUTCOME_WAIT_MAX).unwrap().unwrap();
    wait_short(&room, false);
    fill(&wal, LARGE + 1..=LARGE + 20);
    wal.close().unwrap();
    assert_eq!(indexes(&open(temp.path(), 1).1), (1..=LARGE + 20).collect::<Vec<_>>());
}

#[test]
fn a_log_that_waits_can_be_closed_and_keeps_what_it_has_acknowledged() {
    let temp = TempDir::new().unwrap();
    let disk = FullDisk::default();
    let (wal, _) = open_on(Arc::new(disk.clone()), temp.path(), 1, SMALL).unwrap();
    let outcome = append_until_it_waits(&wal, &disk);
    assert!(wal.close().is_err());
    assert!(outcome.recv_timeout(OUTCOME_WAIT_MAX).unwrap().is_err());

    // It can be opened on the full disk, and goes on when there is room.
    let (wal, recovered) = open_on(Arc::new(disk.clone()), temp.path(), 1, SMALL).unwrap();
    assert_eq!(indexes(&recovered), (1..LARGE).collect::<Vec<_>>());
    wait_short(&wal.room(), true);
    disk.set_full(false);
    wait_short(&wal.room(), false);
    fill(&wal, LARGE..=LARGE + 5);
    wal.close().unwrap();
    assert_eq!(indexes(&open(temp.path(), 1).1), (1..=LARGE + 5).collect::<Vec<_>>());
}
