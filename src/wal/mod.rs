//! The write-ahead log: framed, checksummed records in preallocated segments, made durable in batches.
//!
//! SKELETON: the signatures below are the contract other rooms build against.

use std::{path::{Path, PathBuf}, sync::Arc};

use bytes::Bytes;
use prometheus::Histogram;
use thiserror::Error;

use crate::disk::Disk;

/// What can go wrong with the log.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WalError {
    /// The operating system refused a call.
    #[error("{path}: {action} failed: {source}")]
    Io { path: PathBuf, action: &'static str, #[source] source: Arc<std::io::Error> },
    /// Another process has the log open.
    #[error("{path} is in use by another process")]
    Locked { path: PathBuf },
    /// A record that is not at the torn tail does not check.
    #[error("{path}: damaged at offset {offset}: {what}")]
    Damaged { path: PathBuf, offset: u64, what: String },
    /// An earlier write or sync failed: nothing more is taken.
    #[error("the log stopped after an earlier failure: {0}")]
    Stopped(String),
}

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size at which a segment is cut, and to which it is preallocated, in bytes (64,000,000).
    pub segment_bytes: u64,
    /// Bytes a queue of unwritten batches may hold before `append` blocks the caller.
    pub queue_bytes_max: usize,
    /// How many segments to keep that hold only released entries (etcd's `--max-wals`).
    pub released_segments_kept: usize,
}

/// Where the log reports its timing (seconds).
#[derive(Clone, Debug)]
pub struct WalMetrics {
    /// `etcd_disk_wal_fsync_duration_seconds`
    pub fsync: Histogram,
    /// `etcd_disk_wal_write_duration_seconds`
    pub write: Histogram,
    /// `etcd_disk_wal_write_bytes_total`
    pub write_bytes: prometheus::IntGauge,
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
    /// An entry; one with the index of an earlier one replaces it and all after it.
    Entry(Entry),
    /// The vote and what else must survive a restart; the newest counts. Opaque.
    State(Bytes),
    /// All entries above this index are void.
    Truncate { last_index: u64 },
    /// Entries up to this position are safe elsewhere and are not needed again.
    Released { index: u64, term: u64 },
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
    /// The entries from `from_index` on, in order, without holes.
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

/// Called once, from the log's thread, when the batch is durable or never will be.
pub type Done = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// The open log. Owns a thread that writes and syncs; dropping it (or `close`) ends the thread after the queue is drained.
#[derive(Debug)]
pub struct Wal { _private: () }

impl Wal {
    /// Whether there is a log in this directory.
    pub fn exists(_disk: &dyn Disk, _dir: &Path) -> Result<bool, WalError> { todo!() }
    /// Opens the log, or creates it with `metadata` if there is none. Reads only the segments that hold entries from
    /// `from_index` on.
    pub fn open(_disk: Arc<dyn Disk>, _dir: &Path, _metadata: &[u8], _from_index: u64, _options: Options, _metrics: WalMetrics) -> Result<(Wal, Recovered), WalError> { todo!() }
    /// Queues records. Returns at once (unless the queue is full); `done` is called when they, and all before them, are durable.
    /// Everything queued while a sync runs goes out with one write and one sync. Callbacks are called in order.
    pub fn append(&self, _records: Vec<Record>, _done: Done) { todo!() }
    /// Drains the queue and stops the thread.
    pub fn close(self) -> Result<(), WalError> { todo!() }
}
