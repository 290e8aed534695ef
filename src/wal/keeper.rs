//! The slow work on files, away from the log's thread: preparing the next segment, removing released ones.

use std::{
    io,
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
    segment::{SegmentName, create_temporary, io_error, temporary_path},
};
use crate::disk::{Disk, File};

/// How many removals may wait before the log's thread does.
const REMOVALS_WAITING_MAX: usize = 16;
/// After which preparing a segment is tried again where there was no room. Each try takes all there is for a moment.
const NO_ROOM_RETRY: Duration = Duration::from_millis(500);

/// A file of zeros for the next segment.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn File>,
}

/// A thread that keeps one segment prepared. A failure to remove goes to the queue, as the log's failure. Where there is
/// no room it waits for some, and removes meanwhile what may be.
#[derive(Debug)]
pub(super) struct Keeper {
    /// `None` once it was stopped.
    jobs: Option<SyncSender<Job>>,
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Job {
    Prepare,
    Remove(Vec<SegmentName>),
}

/// Where the prepared segment lies.
#[derive(Debug)]
struct Slot {
    next: Mutex<Next>,
    changed: Condvar,
}

#[derive(Debug)]
enum Next {
    /// It is being made.
    Wanted,
    Ready(Prepared),
    /// It is tried again and again.
    NoRoom,
    Failed(WalError),
    Gone,
}

impl Slot {
    fn put(&self, next: Next) {
        *self.next.lock() = next;
        self.changed.notify_all();
    }

    /// Takes the segment if it is there.
    fn take(&self, wait: bool) -> Result<Option<Prepared>, WalError> {
        let mut next = self.next.lock();
        while wait && matches!(*next, Next::Wanted) {
            self.changed.wait(&mut next);
        }
        match std::mem::replace(&mut *next, Next::Wanted) {
            Next::Ready(prepared) => Ok(Some(prepared)),
            other => {
                let outcome = match &other {
                    Next::Failed(error) => Err(error.clone()),
                    Next::Gone => Err(gone()),
                    _ => Ok(None),
                };
                *next = other;
                outcome
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
    /// Starts the thread, which prepares the first segment at once.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        queue: Arc<Queue>,
        room: Arc<Room>,
    ) -> Result<Self, WalError> {
        let (jobs, waiting_jobs) = sync_channel(REMOVALS_WAITING_MAX);
        let slot = Arc::new(Slot { next: Mutex::new(Next::Wanted), changed: Condvar::new() });
        let work = Work { disk, dir: dir.to_owned(), segment_bytes, slot: Arc::clone(&slot), room, number: 0 };
        let thread = std::thread::Builder::new()
            .name("wal-keeper".into())
            .spawn(move || work.run(&waiting_jobs, &queue))
            .map_err(io_error(dir, "starting a thread of the log"))?;
        let keeper = Keeper { jobs: Some(jobs), slot, thread: Some(thread) };
        keeper.order(Job::Prepare)?;
        Ok(keeper)
    }

    /// Takes the prepared segment, waiting if it is being made, and orders the next. `None`: there is no room for one.
    pub(super) fn take(&self) -> Result<Option<Prepared>, WalError> {
        self.take_or_wait(true)
    }

    /// The same without waiting.
    pub(super) fn take_ready(&self) -> Result<Option<Prepared>, WalError> {
        self.take_or_wait(false)
    }

    fn take_or_wait(&self, wait: bool) -> Result<Option<Prepared>, WalError> {
        let prepared = self.slot.take(wait)?;
        if prepared.is_some() {
            self.order(Job::Prepare)?;
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

    /// Ends the thread after its last job. What was prepared is removed at the next opening.
    pub(super) fn stop(&mut self) -> Result<(), WalError> {
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
    segment_bytes: u64,
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
            let is_wanted = is_short || matches!(job, Some(Job::Prepare));
            if let Some(Job::Remove(names)) = job
                && let Err(error) = remove(&*self.disk, &self.dir, &names)
            {
                queue.fail(error);
                return;
            }
            if is_wanted {
                is_short = !self.prepare();
            }
        }
    }

    /// `false` if there is no room for it.
    fn prepare(&mut self) -> bool {
        let path = temporary_path(&self.dir, self.number);
        match create_temporary(&*self.disk, &path, self.segment_bytes) {
            Ok(file) => {
                self.number = 1 - self.number;
                self.slot.put(Next::Ready(Prepared { path, file }));
                self.room.found_enough();
            }
            Err(error) if error.is_no_room() => {
                // The part of it that was reserved is others' to use. What cannot be removed is cut at the next try.
                if let Err(error) = self.disk.remove(&path)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(path = %path.display(), %error, "a segment for which there is no room stays");
                }
                self.room.found_short(&error);
                self.slot.put(Next::NoRoom);
                return false;
            }
            Err(error) => self.slot.put(Next::Failed(error)),
        }
        true
    }
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
