//! The slow work on files, away from the log's thread: preparing the next segment, removing released ones.
//!
//! The next segment is reserved at once, and taken as it is at any time. Its zeros are written as the log goes on in the
//! segment before it, twice as fast, piece by piece, each synced before the next: the log's own syncs never wait behind
//! much, a log at rest writes none, and half a segment is left for a disk that is slow. If the log comes for it all the
//! same before the last piece, it gets it after the one being written; the rest stays reserved. The thread has the
//! priority of the log's: it needs little of a processor, and the log may wait for it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use super::{
    WalError,
    queue::Queue,
    room::Room,
    segment::{SegmentName, create_temporary, give_up, io_error, next_bytes, temporary_path, write_zeros},
};
use crate::disk::{Disk, File};

/// How many removals may wait before the log's thread does.
const REMOVALS_WAITING_MAX: usize = 16;
/// After which preparing a segment is tried again where there was no room. Each try takes all there is for a moment.
const NO_ROOM_RETRY: Duration = Duration::from_millis(500);

/// How many zeros are due in the next segment for each byte of the log in this one, if both are of one size.
const ZEROS_PER_LOG_BYTE: u64 = 2;
/// In what steps they are ordered.
const ZEROS_STEP_BYTES: u64 = 1 << 20;

/// A file that reads as zeros, for the next segment.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn File>,
    pub(super) bytes: u64,
    /// Up to where zeros were written, durably. What is behind is reserved.
    pub(super) zeros_end: u64,
}

/// A thread that keeps one segment prepared. A failure to remove goes to the queue, as the log's failure. Where there is
/// no room it waits for some, and removes meanwhile what may be.
#[derive(Debug)]
pub(super) struct Keeper {
    /// `None` once it was stopped.
    jobs: Option<SyncSender<Job>>,
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
    /// Size of all segments, but for the first ones of a log.
    full_bytes: u64,
    /// Size of the one being written, and of the one prepared for later.
    current_bytes: u64,
    next_bytes: u64,
    /// Up to where the next segment's zeros were ordered.
    zeros_ordered: u64,
}

#[derive(Debug)]
enum Job {
    /// A segment of so many bytes.
    Prepare(u64),
    /// To look at how many zeros are due.
    Zeros,
    Remove(Vec<SegmentName>),
}

/// Where the prepared segment lies.
#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    next: Next,
    /// Up to where its zeros are due.
    zeros_due: u64,
    /// A job tells the thread so already.
    is_told: bool,
    /// Somebody waits for the segment, or for the thread's end: no more zeros.
    is_awaited: bool,
}

#[derive(Debug)]
enum Next {
    /// It is being made.
    Wanted,
    Ready(Prepared),
    /// The thread has it, for one piece of zeros.
    Zeroing,
    /// It is tried again and again.
    NoRoom,
    Failed(WalError),
    Gone,
}

impl Slot {
    fn new() -> Slot {
        let state = State { next: Next::Wanted, zeros_due: 0, is_told: false, is_awaited: false };
        Slot { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn put(&self, next: Next) {
        self.state.lock().next = next;
        self.changed.notify_all();
    }

    /// Takes the segment if it is there. Waits for a piece of zeros, and, if told to, while it is being made.
    fn take(&self, wait: bool) -> Result<Option<Prepared>, WalError> {
        let mut state = self.state.lock();
        while matches!(state.next, Next::Zeroing) || wait && matches!(state.next, Next::Wanted) {
            state.is_awaited = true;
            self.changed.wait(&mut state);
        }
        state.is_awaited = false;
        match std::mem::replace(&mut state.next, Next::Wanted) {
            Next::Ready(prepared) => {
                state.zeros_due = 0;
                Ok(Some(prepared))
            }
            other => {
                let outcome = match &other {
                    Next::Failed(error) => Err(error.clone()),
                    Next::Gone => Err(gone()),
                    _ => Ok(None),
                };
                state.next = other;
                outcome
            }
        }
    }

    /// Takes the segment for a piece of zeros, if one is due and nobody waits; with it, up to where they are due.
    fn take_for_zeros(&self) -> Option<(Prepared, u64)> {
        let mut state = self.state.lock();
        if state.is_awaited {
            return None;
        }
        match std::mem::replace(&mut state.next, Next::Zeroing) {
            Next::Ready(prepared) if prepared.zeros_end < state.zeros_due => Some((prepared, state.zeros_due)),
            other => {
                state.next = other;
                None
            }
        }
    }
}

/// Tells who waits for a segment when the thread ends, however it ends.
struct GoneAtEnd(Arc<Slot>);

impl Drop for GoneAtEnd {
    fn drop(&mut self) {
        self.0.put(Next::Gone);
    }
}

impl Keeper {
    /// Starts the thread, which prepares a segment at once, to be the next after one of `current_bytes`.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        (current_bytes, full_bytes): (u64, u64),
        queue: Arc<Queue>,
        room: Arc<Room>,
    ) -> Result<Self, WalError> {
        let (jobs, waiting_jobs) = sync_channel(REMOVALS_WAITING_MAX);
        let slot = Arc::new(Slot::new());
        let next_bytes = next_bytes(current_bytes, full_bytes);
        let work = Work { disk, dir: dir.to_owned(), next_bytes, slot: Arc::clone(&slot), room, number: 0 };
        let thread = std::thread::Builder::new()
            .name("wal-keeper".into())
            .spawn(move || work.run(&waiting_jobs, &queue))
            .map_err(io_error(dir, "starting a thread of the log"))?;
        let (jobs, thread) = (Some(jobs), Some(thread));
        let keeper = Keeper { jobs, slot, thread, full_bytes, current_bytes, next_bytes, zeros_ordered: 0 };
        keeper.order(Job::Prepare(next_bytes))?;
        Ok(keeper)
    }

    /// Tells how far the log is in the segment being written: the next one's zeros keep ahead of it.
    pub(super) fn reached(&mut self, offset: u64) -> Result<(), WalError> {
        if !self.is_behind(offset) {
            return Ok(());
        }
        let due = self.due_at(offset);
        self.zeros_ordered = due;
        let was_told = {
            let mut state = self.slot.state.lock();
            state.zeros_due = due;
            std::mem::replace(&mut state.is_told, true)
        };
        if was_told { Ok(()) } else { self.order(Job::Zeros) }
    }

    /// Whether more zeros are to be ordered.
    pub(super) fn is_behind(&self, offset: u64) -> bool {
        self.due_at(offset) > self.zeros_ordered
    }

    /// Up to where zeros are due.
    fn due_at(&self, offset: u64) -> u64 {
        let (next, current) = (u128::from(self.next_bytes), u128::from(self.current_bytes.max(1)));
        let due = u128::from(offset) * u128::from(ZEROS_PER_LOG_BYTE) * next / current;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        if due < self.next_bytes { due - due % ZEROS_STEP_BYTES } else { self.next_bytes }
    }

    /// Takes the prepared segment, waiting if it is being made, and orders the next. `None`: there is no room for one.
    pub(super) fn take(&mut self) -> Result<Option<Prepared>, WalError> {
        self.take_or_wait(true)
    }

    /// The same without waiting for it to be made.
    pub(super) fn take_ready(&mut self) -> Result<Option<Prepared>, WalError> {
        self.take_or_wait(false)
    }

    fn take_or_wait(&mut self, wait: bool) -> Result<Option<Prepared>, WalError> {
        let prepared = self.slot.take(wait)?;
        if let Some(prepared) = &prepared {
            self.zeros_ordered = 0;
            self.current_bytes = prepared.bytes;
            self.next_bytes = next_bytes(prepared.bytes, self.full_bytes);
            self.order(Job::Prepare(self.next_bytes))?;
        }
        Ok(prepared)
    }

    /// Has segments removed, the oldest first.
    pub(super) fn remove(&self, names: Vec<SegmentName>) -> Result<(), WalError> {
        self.order(Job::Remove(names))
    }

    fn order(&self, job: Job) -> Result<(), WalError> {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok()).then_some(()).ok_or_else(gone)
    }

    /// Ends the thread after its last job, without further zeros. What was prepared is removed at the next opening.
    pub(super) fn stop(&mut self) -> Result<(), WalError> {
        self.slot.state.lock().is_awaited = true;
        self.jobs = None;
        self.thread.take().map_or(Ok(()), JoinHandle::join).map_err(|_| gone())
    }
}

fn gone() -> WalError {
    WalError::Stopped("the thread that prepares segments has ended".into())
}

/// What the thread works with.
struct Work {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Size of the segment that is wanted, or ready.
    next_bytes: u64,
    slot: Arc<Slot>,
    room: Arc<Room>,
    /// Two names in turn: the one taken last may not be renamed yet.
    number: u64,
}

impl Work {
    fn run(mut self, jobs: &Receiver<Job>, queue: &Queue) {
        let _gone = GoneAtEnd(Arc::clone(&self.slot));
        let mut is_short = false;
        loop {
            let limit = if is_short { NO_ROOM_RETRY } else { Duration::MAX };
            let job = match jobs.recv_timeout(limit) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let is_wanted = is_short || matches!(job, Some(Job::Prepare(_)));
            match job {
                Some(Job::Remove(names)) => {
                    if let Err(error) = remove(&*self.disk, &self.dir, &names) {
                        queue.fail(error);
                        return;
                    }
                }
                Some(Job::Zeros) => self.slot.state.lock().is_told = false,
                Some(Job::Prepare(bytes)) => self.next_bytes = bytes,
                None => {}
            }
            let has_room = (!is_wanted || self.prepare()) && self.write_zeros();
            // Not before its zeros are there: what can be reserved may be worth nothing.
            if has_room && is_wanted {
                self.room.found_enough();
            }
            is_short = !has_room;
        }
    }

    /// `false` if there is no room for it.
    fn prepare(&mut self) -> bool {
        let path = temporary_path(&self.dir, self.number);
        match create_temporary(&*self.disk, &path, self.next_bytes) {
            Ok(file) => {
                self.number = 1 - self.number;
                self.slot.put(Next::Ready(Prepared { path, file, bytes: self.next_bytes, zeros_end: 0 }));
            }
            Err(error) if error.is_no_room() => {
                self.find_short(&path, &error);
                return false;
            }
            Err(error) => self.slot.put(Next::Failed(error)),
        }
        true
    }

    /// Writes the zeros that are due, as long as nobody waits. `false` if there is no room for them: it could not be
    /// reserved on this file system, or the reservation is worth nothing.
    fn write_zeros(&mut self) -> bool {
        while let Some((mut prepared, due)) = self.slot.take_for_zeros() {
            match write_piece(&mut prepared, due) {
                Ok(()) => self.slot.put(Next::Ready(prepared)),
                Err(error) if error.is_no_room() => {
                    // Its name is free again; under the other one the segment taken last may still lie.
                    self.number = 1 - self.number;
                    self.find_short(&prepared.path, &error);
                    return false;
                }
                Err(error) => self.slot.put(Next::Failed(error)),
            }
        }
        true
    }

    fn find_short(&self, path: &Path, error: &WalError) {
        give_up(&*self.disk, path);
        self.room.found_short(error);
        self.slot.put(Next::NoRoom);
    }
}

fn write_piece(prepared: &mut Prepared, due: u64) -> Result<(), WalError> {
    let Prepared { path, file, zeros_end, .. } = prepared;
    let end = write_zeros(file.as_ref(), path, *zeros_end, due)?;
    file.sync_data().map_err(io_error(path, "syncing the zeros of a segment"))?;
    *zeros_end = end;
    Ok(())
}

fn remove(disk: &dyn Disk, dir: &Path, names: &[SegmentName]) -> Result<(), WalError> {
    for name in names {
        let (path, backup) = (name.path(dir), name.backup_path(dir));
        disk.remove(&path).map_err(io_error(&path, "removing a released segment"))?;
        if disk.exists(&backup).map_err(io_error(&backup, "looking for the copy of a torn segment"))? {
            disk.remove(&backup).map_err(io_error(&backup, "removing the copy of a torn segment"))?;
        }
    }
    disk.sync_dir(dir).map_err(io_error(dir, "syncing the directory"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use prometheus::IntGauge;
    use tempfile::TempDir;

    use super::*;
    use crate::disk::sim::{Call, ENOSPC, Failure, Fault, Op, SimDisk, scratch};

    /// Four pieces of zeros.
    const SEGMENT_BYTES: u64 = 1 << 20;

    fn keeper(disk: &SimDisk, dir: &TempDir) -> (Keeper, Arc<Room>) {
        let room = Arc::new(Room::new(IntGauge::new("full", "full").unwrap()));
        let queue = Arc::new(Queue::new(1 << 20));
        let disk = Arc::new(disk.clone());
        (Keeper::start(disk, dir.path(), (SEGMENT_BYTES, SEGMENT_BYTES), queue, Arc::clone(&room)).unwrap(), room)
    }

    /// Orders all zeros, and holds the first piece at its sync.
    fn hold_first_piece(disk: &SimDisk, keeper: &mut Keeper) {
        disk.hold(Call::SyncData);
        keeper.reached(SEGMENT_BYTES / ZEROS_PER_LOG_BYTE).unwrap();
        disk.wait_for_calls(Call::SyncData, 1);
    }

    /// Waits until somebody waits for the keeper.
    fn wait_awaited(slot: &Slot) {
        while !slot.state.lock().is_awaited {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_waits_gets_the_segment_after_the_piece_being_written_and_has_it_alone() {
        let dir = scratch();
        let disk = SimDisk::recording(dir.path());
        let (mut keeper, _) = keeper(&disk, &dir);
        hold_first_piece(&disk, &mut keeper);
        let slot = Arc::clone(&keeper.slot);
        let taker = std::thread::spawn(move || (keeper.take().unwrap().unwrap(), keeper));
        wait_awaited(&slot);
        disk.release();
        let (prepared, mut keeper) = taker.join().unwrap();
        assert_eq!(prepared.zeros_end, SEGMENT_BYTES / 4);
        prepared.file.write_all_at(&[1; 1000], 500_000).unwrap();
        keeper.stop().unwrap();
        let found = std::fs::read(&prepared.path).unwrap();
        assert_eq!(found.len() as u64, SEGMENT_BYTES);
        assert!(found[500_000..501_000].iter().all(|byte| *byte == 1));
        assert_eq!(found.iter().filter(|byte| **byte != 0).count(), 1000);
        assert_eq!(disk.calls(Call::Write), 2, "a piece of zeros and what was written here");
        assert!(
            disk.recorded().ops().iter().any(|op| matches!(op, Op::Create { path, .. } if path.ends_with("1.tmp")))
        );
    }

    #[test]
    fn the_end_waits_for_one_piece_of_zeros_at_most() {
        let dir = scratch();
        let disk = SimDisk::default();
        let (mut keeper, _) = keeper(&disk, &dir);
        hold_first_piece(&disk, &mut keeper);
        let slot = Arc::clone(&keeper.slot);
        let stopper = std::thread::spawn(move || keeper.stop());
        wait_awaited(&slot);
        disk.release();
        stopper.join().unwrap().unwrap();
        assert_eq!(disk.calls(Call::Write), 1);
    }

    #[test]
    fn zeros_come_as_the_log_goes_on_and_not_before() {
        let dir = scratch();
        let disk = SimDisk::default();
        let (mut keeper, _) = keeper(&disk, &dir);
        keeper.reached(SEGMENT_BYTES / ZEROS_PER_LOG_BYTE - 1).unwrap();
        keeper.remove(Vec::new()).unwrap();
        // The removal's: by then an order before it was looked at.
        disk.wait_for_calls(Call::SyncDir, 1);
        assert_eq!(disk.calls(Call::Write), 0);
        keeper.reached(SEGMENT_BYTES / ZEROS_PER_LOG_BYTE).unwrap();
        disk.wait_for_calls(Call::SyncData, 4);
        assert_eq!(keeper.take().unwrap().unwrap().zeros_end, SEGMENT_BYTES);
        keeper.stop().unwrap();
        assert_eq!(disk.calls(Call::Write), 4);
    }

    #[test]
    fn a_segment_whose_zeros_find_no_room_is_given_up_and_made_again() {
        let dir = scratch();
        let disk = SimDisk::recording(dir.path());
        let (mut keeper, room) = keeper(&disk, &dir);
        disk.fail(Fault::after(2, &[Call::Write], Failure::Short(ENOSPC)));
        hold_first_piece(&disk, &mut keeper);
        assert_eq!(room.shortage(), None);
        // Opened once; the next try waits.
        disk.hold(Call::Open);
        disk.wait_for_calls(Call::Open, 2);
        assert!(room.shortage().unwrap().contains("writing zeros to a segment failed"));
        assert!(keeper.take().unwrap().is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "what was reserved is others' to use");
        disk.release();
        disk.wait_for_calls(Call::SyncData, 2 + 4);
        let prepared = keeper.take().unwrap().unwrap();
        while room.shortage().is_some() {
            std::thread::yield_now();
        }
        assert_eq!((prepared.zeros_end, prepared.path.file_name().unwrap()), (SEGMENT_BYTES, "0.tmp".as_ref()));
        keeper.stop().unwrap();
    }
}
