//! The slow work on files, away from the log's thread: preparing the next segment, removing released ones.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use super::{
    WalError,
    queue::Queue,
    segment::{SegmentName, create_temporary, io_error, temporary_path},
};
use crate::disk::{Disk, File};

/// How many removals may wait before the log's thread does.
const REMOVALS_WAITING_MAX: usize = 16;

/// A file of zeros for the next segment.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn File>,
}

/// A thread that keeps one segment prepared. A failure to remove goes to the queue, as the log's failure.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: SyncSender<Job>,
    prepared: Receiver<Result<Prepared, WalError>>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Job {
    Prepare,
    Remove(Vec<SegmentName>),
}

impl Keeper {
    /// Starts the thread, which prepares the first segment at once.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        queue: Arc<Queue>,
    ) -> Result<Self, WalError> {
        let (jobs, waiting_jobs) = sync_channel(REMOVALS_WAITING_MAX);
        // At most one prepared segment and one on order.
        let (sender, prepared) = sync_channel(1);
        let thread_dir = dir.to_owned();
        let thread = std::thread::Builder::new()
            .name("wal-keeper".into())
            .spawn(move || work(disk.as_ref(), &thread_dir, segment_bytes, &waiting_jobs, &sender, &queue))
            .map_err(io_error(dir, "starting a thread of the log"))?;
        let keeper = Keeper { jobs, prepared, thread };
        keeper.order(Job::Prepare)?;
        Ok(keeper)
    }

    /// Takes the prepared segment, waiting if it is not ready, and orders the next.
    pub(super) fn take(&self) -> Result<Prepared, WalError> {
        let prepared = self.prepared.recv().map_err(|_| gone())??;
        self.order(Job::Prepare)?;
        Ok(prepared)
    }

    /// Has segments removed, the oldest first.
    pub(super) fn remove(&self, names: Vec<SegmentName>) -> Result<(), WalError> {
        self.order(Job::Remove(names))
    }

    fn order(&self, job: Job) -> Result<(), WalError> {
        self.jobs.send(job).map_err(|_| gone())
    }

    /// Ends the thread after its last job. What was prepared is removed at the next opening.
    pub(super) fn stop(self) -> Result<(), WalError> {
        drop((self.jobs, self.prepared));
        self.thread.join().map_err(|_| gone())
    }
}

fn gone() -> WalError {
    WalError::Stopped("the thread that prepares segments has ended".into())
}

fn work(
    disk: &dyn Disk,
    dir: &Path,
    segment_bytes: u64,
    jobs: &Receiver<Job>,
    prepared: &SyncSender<Result<Prepared, WalError>>,
    queue: &Queue,
) {
    let mut number = 0;
    for job in jobs {
        match job {
            Job::Prepare => {
                // Two names in turn: the one taken last may not be renamed yet.
                let path = temporary_path(dir, number);
                number = 1 - number;
                let outcome = create_temporary(disk, &path, segment_bytes).map(|file| Prepared { path, file });
                // Nobody waits for it any more when the log is closing; removals may still be waiting.
                let _ = prepared.send(outcome);
            }
            Job::Remove(names) => {
                if let Err(error) = remove(disk, dir, &names) {
                    queue.fail(error);
                    return;
                }
            }
        }
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
