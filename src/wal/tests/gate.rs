//! The log's thread on a disk whose syncs wait at a gate, or fail.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
};

use parking_lot::{Condvar, Mutex};

use super::*;

/// Passes on to the real disk; counts, holds or fails the `sync_data` and `write_all_at` of its files.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    writes: AtomicUsize,
    fail_writes: AtomicBool,
    fail_removals: AtomicBool,
}

#[derive(Debug, Default)]
struct GateState {
    shut: bool,
    fail_syncs: bool,
    /// Syncs that came to the gate.
    arrived: usize,
}

impl Gate {
    fn set(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn wait_for_arrivals(&self, count: usize) {
        let mut state = self.state.lock();
        while state.arrived < count {
            self.changed.wait(&mut state);
        }
    }

    fn pass(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.arrived += 1;
        self.changed.notify_all();
        while state.shut {
            self.changed.wait(&mut state);
        }
        if state.fail_syncs { Err(io::Error::other("the disk is gone")) } else { Ok(()) }
    }

    fn arrived(&self) -> usize {
        self.state.lock().arrived
    }
}

#[derive(Debug)]
struct GateDisk(Arc<Gate>);

#[derive(Debug)]
struct GateFile(Box<dyn File>, Arc<Gate>);

impl Disk for GateDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(GateFile(RealDisk.open(path, mode)?, self.0.clone())))
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
        if self.0.fail_removals.load(Ordering::SeqCst) {
            return Err(io::Error::other("read-only"));
        }
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
}

impl File for GateFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.1.writes.fetch_add(1, Ordering::SeqCst);
        if self.1.fail_writes.load(Ordering::SeqCst) {
            // A write cut short at any byte.
            self.0.write_all_at(&buf[..buf.len() / 2], offset)?;
            return Err(io::Error::other("half written"));
        }
        self.0.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.pass()?;
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
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

const LARGE: Options = Options { segment_bytes: 1 << 20, ..SMALL };

fn open_gated(dir: &Path, options: Options) -> (Arc<Gate>, Wal) {
    let gate = Arc::new(Gate::default());
    let (wal, _) = open_on(Arc::new(GateDisk(gate.clone())), dir, 1, options).unwrap();
    (gate, wal)
}

type Outcomes = mpsc::Receiver<(u64, Result<(), WalError>)>;

/// Appends one entry a batch; their outcomes in the order of the callbacks.
fn append_each(wal: &Wal, range: std::ops::RangeInclusive<u64>) -> Outcomes {
    let (sender, outcomes) = mpsc::channel();
    for index in range {
        let sender = sender.clone();
        wal.append(vec![entry(index, "x")], Box::new(move |outcome| sender.send((index, outcome)).unwrap()));
    }
    outcomes
}

#[test]
fn what_is_queued_during_a_sync_shares_the_next_one() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    let writes_before = gate.writes.load(Ordering::SeqCst);
    gate.set(|state| state.shut = true);
    let first = append_each(&wal, 1..=1);
    gate.wait_for_arrivals(1);
    let rest = append_each(&wal, 2..=101);
    assert!(first.try_recv().is_err() && rest.try_recv().is_err(), "answered before the sync");
    gate.set(|state| state.shut = false);
    assert!(first.recv().unwrap().1.is_ok());
    let order: Vec<u64> = rest.iter().map(|(index, outcome)| outcome.map(|()| index).unwrap()).collect();
    assert_eq!(order, (2..=101).collect::<Vec<_>>());
    assert_eq!(gate.arrived(), 2);
    assert_eq!(gate.writes.load(Ordering::SeqCst) - writes_before, 2);
    wal.close().unwrap();
    assert_eq!(indexes(&open_on(Arc::new(RealDisk), temp.path(), 1, LARGE).unwrap().1).len(), 101);
}

#[test]
fn a_failed_sync_is_final_and_never_repeated() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    append_each(&wal, 1..=1).recv().unwrap().1.unwrap();
    gate.set(|state| state.fail_syncs = true);
    let failed = append_each(&wal, 2..=2).recv().unwrap().1;
    assert!(matches!(failed, Err(WalError::Io { action: "syncing", .. })), "{failed:?}");
    gate.set(|state| state.fail_syncs = false);
    let (writes, syncs) = (gate.writes.load(Ordering::SeqCst), gate.arrived());
    for (_, outcome) in append_each(&wal, 3..=5) {
        let Err(WalError::Stopped(why)) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("the disk is gone"), "{why}");
    }
    assert!(matches!(wal.close(), Err(WalError::Stopped(_))));
    assert_eq!((gate.writes.load(Ordering::SeqCst), gate.arrived()), (writes, syncs));
}

#[test]
fn a_write_cut_short_is_final_and_is_cut_off_at_the_next_opening() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    append_each(&wal, 1..=1).recv().unwrap().1.unwrap();
    gate.fail_writes.store(true, Ordering::SeqCst);
    assert!(matches!(append(&wal, vec![entry(2, vec![3; 99])]), Err(WalError::Io { action: "writing", .. })));
    gate.fail_writes.store(false, Ordering::SeqCst);
    assert!(append(&wal, vec![entry(2, "x")]).is_err());
    drop(wal);
    let (_wal, recovered) = open_on(Arc::new(RealDisk), temp.path(), 1, LARGE).unwrap();
    assert_eq!(indexes(&recovered), [1]);
    assert!(recovered.repaired.is_some());
}

#[test]
fn a_failure_after_the_answer_meets_the_next_batch() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), SMALL);
    gate.fail_removals.store(true, Ordering::SeqCst);
    fill(&wal, 1..=5);
    append(&wal, vec![Record::Released { index: 4, term: 1 }]).unwrap();
    // The removal fails on another thread; closing waits for it.
    let closed = wal.close();
    assert!(matches!(&closed, Err(WalError::Stopped(why)) if why.contains("read-only")), "{closed:?}");
}

#[test]
fn a_full_queue_blocks_until_the_disk_goes_on() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), Options { queue_bytes_max: 1000, ..LARGE });
    gate.set(|state| state.shut = true);
    let first = append_each(&wal, 1..=1);
    gate.wait_for_arrivals(1);
    // Each of these costs more than half the queue, so each waits for the one before it to be taken.
    let wal = Arc::new(wal);
    let appender = std::thread::spawn({
        let wal = wal.clone();
        move || (2..=6).for_each(|index| wal.append(vec![entry(index, vec![1; 600])], Box::new(|_| {})))
    });
    assert!(!appender.is_finished());
    gate.set(|state| state.shut = false);
    appender.join().unwrap();
    first.recv().unwrap().1.unwrap();
    append(&wal, vec![]).unwrap();
    assert!(gate.arrived() >= 4, "five batches, no two of which fit into the queue together, but for the first");
    Arc::into_inner(wal).unwrap().close().unwrap();
}

#[test]
fn dropping_the_log_drains_it() {
    let temp = TempDir::new().unwrap();
    let (_, wal) = open_gated(temp.path(), LARGE);
    let outcomes = append_each(&wal, 1..=50);
    drop(wal);
    assert_eq!(outcomes.try_iter().filter(|(_, outcome)| outcome.is_ok()).count(), 50);
}
