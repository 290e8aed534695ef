//! The write-ahead log: framed, checksummed records in segments prepared with zeros, made durable in batches.
//!
//! Promises: a batch whose callback got `Ok` is on disk, with all batches before it; callbacks come in order; what is
//! queued while a sync runs shares the next one; a failed write or sync is never repeated and ends the log. Opening
//! finds every acknowledged record or says where the log is damaged; it cuts off only what a crash left half written.
//! It must never know what entries mean, who proposed them, or which were committed.
//!
//! Zeros are written where records will go, before a segment is used, so that a sync writes records and nothing of what
//! the file system keeps about them. So the disk is given each byte of the log twice. A new log begins with a small
//! segment, and each next one is larger, up to the size asked for. What is handed over before its zeros are written, what
//! grows beyond a segment's size and what a torn tail is cut off from is only reserved: as safe, and slower.
//!
//! `record`: bytes of a record. `segment`: files. `reader` and `tail`: reading back. `queue`, `writer` and
//! `keeper`: the thread that writes what is queued (an idle log is also written by who appends), and the one that
//! prepares and removes files. `room`: what the disk has left. `position`: where the log stands.

mod keeper;
mod position;
mod queue;
mod reader;
mod record;
mod room;
mod segment;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::{Histogram, IntGauge};
use thiserror::Error;

pub use self::room::Room;
use self::{
    keeper::Keeper,
    position::Position,
    queue::{Batch, Queue},
    reader::{LastSegment, Replay, replay},
    record::Encoder,
    segment::{Head, io_error},
    tail::used_bytes,
    writer::{Segment, Writer},
};
use crate::{
    disk::{Disk, File, OpenMode, create_dir_durably},
    metrics::{Metrics, Stage, Time, Timed},
};

/// What can go wrong with the log.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WalError {
    /// The operating system refused a call.
    #[error("{path}: {action} failed: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was to be done.
        action: &'static str,
        /// Why it was not.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// Another process has the log open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A record that is not at the torn tail does not check, or segments are missing.
    #[error(
        "{path}: damaged at offset {offset}: {what}; nothing was changed; restore this member from a snapshot, or \
         remove it from the cluster and add it again so that its peers send it their state"
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the record begins, in bytes.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// An earlier write or sync failed: nothing more is taken.
    #[error("the log stopped after an earlier failure: {0}")]
    Stopped(String),
}

impl WalError {
    /// Whether there is no room; nothing was written then.
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(self, WalError::Io { source, .. } if room::is_no_room(source))
    }
}

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size at which a segment is cut, and to which it is prepared before, in bytes (64,000,000).
    pub segment_bytes: u64,
    /// Bytes a queue of unwritten batches may hold before `append` blocks the caller.
    pub queue_bytes_max: usize,
    /// How many segments to keep that hold only released entries (etcd's `--max-wals`).
    pub released_segments_kept: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { segment_bytes: 64_000_000, queue_bytes_max: 64 << 20, released_segments_kept: 5 }
    }
}

/// Where the log reports its timing.
#[derive(Clone, Debug)]
pub struct WalMetrics {
    /// What it is measured with.
    pub time: Time,
    /// Syncs: `etcd_disk_wal_fsync_duration_seconds` among others.
    pub fsync: Timed,
    /// Writes: `etcd_disk_wal_write_duration_seconds` among others.
    pub write: Timed,
    /// Records made durable by one sync (`revgate_wal_batch_records`).
    pub batch_records: Histogram,
    /// `etcd_disk_wal_write_bytes_total`: of records; zeros are not counted.
    pub write_bytes: IntGauge,
    /// `revgate_disk_full{file="wal"}`
    pub full: IntGauge,
}

impl From<&Metrics> for WalMetrics {
    fn from(metrics: &Metrics) -> Self {
        WalMetrics {
            time: metrics.time.clone(),
            fsync: metrics.stages.of(Stage::Fsync).clone(),
            write: metrics.stages.of(Stage::WalWrite).clone(),
            batch_records: metrics.wal_batch_records.clone(),
            write_bytes: metrics.wal_write_bytes.clone(),
            full: metrics.disk_full.with_label_values(&["wal"]),
        }
    }
}

/// A door for the program that counts instructions, and only for it: the bytes of some records, as the writer makes them.
#[cfg(feature = "instructions")]
#[doc(hidden)]
pub fn encode(records: &[Record]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(0), Vec::new());
    records.iter().for_each(|record| encoder.record(&mut out, record));
    out
}

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the log, from 1.
    pub index: u64,
    /// The leader's term it was proposed in.
    pub term: u64,
    /// What kind of payload it is; the log does not look.
    pub kind: u32,
    /// The payload; the log does not look inside.
    pub data: Bytes,
}

/// Something to write, in order.
#[derive(Clone, Debug)]
pub enum Record {
    /// An entry; one with the index of an earlier one replaces it and all after it. One that would leave a hole stops
    /// the log.
    Entry(Entry),
    /// The vote and what else must survive a restart; the newest counts. Opaque.
    State(Bytes),
    /// All entries above this index are void.
    Truncate {
        /// The last one that is not.
        last_index: u64,
    },
    /// Entries up to this position are safe elsewhere and are not needed again. It only moves forward, an earlier one
    /// has no effect; if it is beyond the last entry (a snapshot was installed), the log goes on after it.
    Released {
        /// Index of the last entry that is not needed.
        index: u64,
        /// Its term.
        term: u64,
    },
}

impl Record {
    /// Bytes of it that are not its frame.
    pub fn data_bytes(&self) -> usize {
        match self {
            Record::Entry(entry) => entry.data.len(),
            Record::State(state) => state.len(),
            Record::Truncate { .. } | Record::Released { .. } => 0,
        }
    }
}

/// What was found in the log when it was opened.
#[derive(Debug)]
pub struct Recovered {
    /// What `Wal::open` was first given for this log.
    pub metadata: Bytes,
    /// The newest state record.
    pub state: Option<Bytes>,
    /// The newest released position.
    pub released: Option<(u64, u64)>,
    /// The entries from `from_index` on, in order, without holes. Released ones are not among them.
    pub entries: Vec<Entry>,
    /// Set if the tail was torn: what was cut off, for the member's log.
    pub repaired: Option<TornTail>,
}

/// A tail that a crash left half written, and that opening cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub path: PathBuf,
    /// Where the valid records end, in bytes.
    pub offset: u64,
    /// The copy of the segment as it was found.
    pub backup: PathBuf,
}

/// When a batch was written, by the clock of [`WalMetrics::time`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its write began.
    pub began: Duration,
    /// Its write was done, and its sync began.
    pub written: Duration,
    /// It was durable.
    pub durable: Duration,
}

/// Called once, from the thread that wrote, when the batch is durable or never will be. It must be quick, must not wait for
/// the log, and must not panic.
pub type Done = Box<dyn FnOnce(Result<Written, WalError>) + Send>;

/// The open log. Owns a thread that writes and syncs; dropping it (or `close`) ends the thread after the queue is drained.
pub struct Wal {
    queue: Arc<Queue>,
    writer: Arc<Mutex<Writer>>,
    room: Arc<Room>,
    thread: Option<JoinHandle<Result<(), WalError>>>,
    /// Held until the thread has ended: fields are dropped after `Drop::drop`.
    _lock: Box<dyn File>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal").finish_non_exhaustive()
    }
}

impl Wal {
    /// Whether there is a log in this directory.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool, WalError> {
        if !disk.exists(dir).map_err(io_error(dir, "looking for the directory"))? {
            return Ok(false);
        }
        Ok(!segment::list(disk, dir)?.is_empty())
    }

    /// Opens the log, or creates it with `metadata` if there is none. Reads only the segments that hold entries from
    /// `from_index` on which were not released long ago.
    ///
    /// On return all that was recovered is durable, even what an earlier run wrote but did not live to sync.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        metadata: &[u8],
        from_index: u64,
        options: Options,
        metrics: WalMetrics,
    ) -> Result<(Wal, Recovered), WalError> {
        create_dir_durably(disk.as_ref(), dir).map_err(io_error(dir, "creating the directory"))?;
        let lock = lock(disk.as_ref(), dir)?;
        let mut segments = segment::list(disk.as_ref(), dir)?;
        if segments.is_empty() {
            let metadata = Bytes::copy_from_slice(metadata);
            let head = Head { metadata, state: None, position: Position::default() };
            segment::create_log(disk.as_ref(), dir, &head, segment::first_bytes(options.segment_bytes))?;
            segments = segment::list(disk.as_ref(), dir)?;
        }
        let Replay { head, entries, crc, last } = replay(disk.as_ref(), dir, &segments, from_index)?;
        segment::remove_temporary(disk.as_ref(), dir)?;
        let (segment, repaired) = resume(disk.as_ref(), dir, &last, options.segment_bytes)?;

        let recovered = Recovered {
            metadata: head.metadata.clone(),
            state: head.state.clone(),
            released: head.position.released,
            entries: entries.into(),
            repaired,
        };
        let queue = Arc::new(Queue::new(options.queue_bytes_max));
        let room = Arc::new(Room::new(metrics.full.clone()));
        room.set_left(segment.reserved.saturating_sub(segment.offset));
        let keeper =
            Keeper::start(disk.clone(), dir, (segment.bytes, options.segment_bytes), queue.clone(), room.clone())?;
        let encoder = Encoder::new(crc);
        let mut writer = Writer {
            disk,
            dir: dir.to_owned(),
            options,
            metrics,
            queue: queue.clone(),
            keeper,
            room: room.clone(),
            segments: segments.into(),
            segment,
            encoder,
            head,
            buffer: Vec::new(),
        };
        writer.note(Writer::remove_released);
        let writer = Arc::new(Mutex::new(writer));
        let work = {
            let (writer, queue) = (Arc::clone(&writer), Arc::clone(&queue));
            move || writer::run(&writer, &queue)
        };
        let thread = std::thread::Builder::new()
            .name("wal".into())
            .spawn(work)
            .map_err(io_error(dir, "starting a thread of the log"))?;
        Ok((Wal { queue, writer, room, thread: Some(thread), _lock: lock }, recovered))
    }

    /// What room the log has.
    pub fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Queues records. Returns at once (unless the queue is full); `done` is called when they, and all before them, are durable.
    /// Everything queued while a sync runs goes out with one write and one sync. Callbacks are called in order.
    pub fn append(&self, records: Vec<Record>, done: Done) {
        self.queue.push(Batch { records, done });
    }

    /// The same, written and synced on the caller's thread if the log is idle and has room for it: two threads need not
    /// wake each other then. Has been called back when it returns, or is queued.
    pub fn append_here(&self, records: Vec<Record>, done: Done) {
        let batch = Batch { records, done };
        let written = match self.writer.try_lock() {
            Some(mut writer) => writer.write_here(batch),
            None => Err(batch),
        };
        // Not under the lock: the queue may be full, and the thread needs the lock to empty it.
        match written {
            Ok(false) => {}
            // The thread tidies up behind whatever it is given.
            Ok(true) => self.queue.push(Batch { records: Vec::new(), done: Box::new(drop) }),
            Err(batch) => self.queue.push(batch),
        }
    }

    /// Drains the queue and stops the thread. The error is what stopped the log, if anything did.
    pub fn close(mut self) -> Result<(), WalError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), WalError> {
        self.queue.close();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(WalError::Stopped("the log's thread panicked".into())),
            None => Ok(()),
        }
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `close`; each batch has had its answer.
        let _ = self.finish();
    }
}

fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn File>, WalError> {
    let path = dir.join("lock");
    let file = disk.open(&path, OpenMode::CreateOrTruncate).map_err(io_error(&path, "opening the lock file"))?;
    match file.try_lock_exclusive().map_err(io_error(&path, "locking"))? {
        true => Ok(file),
        false => Err(WalError::Locked { path }),
    }
}

/// Makes the last segment ready to be written on: valid records, then zeros up to its full size, all of it durable.
fn resume(
    disk: &dyn Disk,
    dir: &Path,
    last: &LastSegment,
    segment_bytes: u64,
) -> Result<(Segment, Option<TornTail>), WalError> {
    let path = last.name.path(dir);
    let offset = last.valid_bytes as u64;
    let file = disk.open(&path, OpenMode::ReadWrite).map_err(io_error(&path, "opening a segment"))?;
    let mut length = last.bytes.len() as u64;
    let mut repaired = None;
    if last.torn {
        let backup = last.name.backup_path(dir);
        keep_copy(disk, dir, &backup, &last.bytes[..used_bytes(&last.bytes)])?;
        // Cutting and reserving anew, not overwriting: nothing of the torn record can be read back later.
        file.set_len(offset).map_err(io_error(&path, "cutting off a torn record"))?;
        length = offset;
        repaired = Some(TornTail { path: path.clone(), offset, backup });
    }
    // The earlier run may have ended because a sync failed; then the kernel shows these bytes but does not owe them to
    // the disk any more. Written again, they are part of the sync below.
    file.write_all_at(&last.bytes[..last.valid_bytes], 0).map_err(io_error(&path, "writing"))?;
    // It keeps the size it was given.
    let bytes = (last.bytes.len() as u64).max(segment::first_bytes(segment_bytes));
    let reserved = match segment::reserve(file.as_ref(), &path, length, bytes) {
        // Enough to start with, and to be told: the first record that does not fit waits for room.
        Err(error) if error.is_no_room() => length,
        outcome => outcome.map(|()| length.max(bytes))?,
    };
    file.sync_all().map_err(io_error(&path, "syncing"))?;
    disk.sync_dir(dir).map_err(io_error(dir, "syncing the directory"))?;
    Ok((Segment { name: last.name, path, file, bytes, begun: 0, offset, reserved }, repaired))
}

fn keep_copy(disk: &dyn Disk, dir: &Path, path: &Path, bytes: &[u8]) -> Result<(), WalError> {
    let file = disk.open(path, OpenMode::CreateOrTruncate).map_err(io_error(path, "copying a torn segment"))?;
    file.write_all_at(bytes, 0).map_err(io_error(path, "copying a torn segment"))?;
    file.sync_all().map_err(io_error(path, "syncing the copy of a torn segment"))?;
    disk.sync_dir(dir).map_err(io_error(dir, "syncing the directory"))
}
