//! Revisions of keys: the key index, history, reads at a revision, write transactions, compaction.
//!
//! SKELETON: the signatures below are the contract other rooms build against. The mvcc room replaces this file.
#![allow(missing_docs, unused, clippy::all)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use thiserror::Error;

use crate::{bolt, metrics::Metrics, proto::mvccpb};

/// A point in the store's history: `main` counts transactions, `sub` the changes inside one. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision {
    pub main: i64,
    pub sub: i64,
}

/// A position in the replicated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    pub term: u64,
    pub index: u64,
}

/// The keys a request speaks of, by etcd's rules for (key, range_end): empty end = one key, "\0" = from key on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    Single(Bytes),
    Bounded { start: Bytes, end: Bytes },
    From(Bytes),
}

impl KeyRange {
    /// (key "\0", end "\0") is everything; end <= key is an empty range.
    pub fn new(key: Bytes, range_end: Bytes) -> KeyRange {
        todo!()
    }
    pub fn contains(&self, key: &[u8]) -> bool {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}

/// A key's state, borrowed from memory or from a mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyValueRef<'a> {
    pub key: &'a [u8],
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub value: &'a [u8],
    pub lease: i64,
}

impl<'a> KeyValueRef<'a> {
    /// Decodes a stored KeyValue (protobuf), bounds-checked, without copying.
    pub fn decode(encoded: &'a [u8]) -> Result<KeyValueRef<'a>, MvccError> {
        todo!()
    }
    pub fn to_owned(&self) -> mvccpb::KeyValue {
        todo!()
    }
}

/// One change: what revision `revision` did to `kv.key`. Of a tombstone only key and mod_revision are set.
#[derive(Debug, PartialEq)]
pub struct Record {
    pub revision: Revision,
    pub tombstone: bool,
    pub kv: mvccpb::KeyValue,
}

/// All changes of one main revision, in order of `sub`.
#[derive(Clone, Debug)]
pub struct ChangeSet {
    pub revision: i64,
    pub changes: Arc<[Arc<Record>]>,
}

#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum MvccError {
    #[error("revision {requested} has been compacted (compact revision {compacted})")]
    Compacted { requested: i64, compacted: i64 },
    #[error("revision {requested} is in the future (current revision {current})")]
    Future { requested: i64, current: i64 },
    #[error(transparent)]
    Bolt(Arc<bolt::BoltError>),
    #[error("damaged record at revision {}.{}: {what}", revision.main, revision.sub)]
    DamagedRecord { revision: Revision, what: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortOrder {
    #[default]
    None,
    Ascend,
    Descend,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortTarget {
    #[default]
    Key,
    Version,
    CreateRevision,
    ModRevision,
    Value,
}

/// A range read. Revisions 0 and below mean "none given"; limit 0 and below means no limit.
#[derive(Clone, Debug)]
pub struct RangeQuery {
    pub range: KeyRange,
    pub revision: i64,
    pub limit: i64,
    pub order: SortOrder,
    pub target: SortTarget,
    pub keys_only: bool,
    pub count_only: bool,
    pub min_mod_revision: i64,
    pub max_mod_revision: i64,
    pub min_create_revision: i64,
    pub max_create_revision: i64,
}

/// A range read in progress: keys come by the chunk, at one revision, without a lock held between chunks.
#[derive(Debug)]
pub struct RangeCursor {
    _p: (),
}

impl RangeCursor {
    /// The store's revision when the cursor was opened (the response header's).
    pub fn store_revision(&self) -> i64 {
        todo!()
    }
    /// Visits up to `keys_max` further pairs in the answer's order; `false` once nothing is left.
    pub fn next_chunk(&mut self, keys_max: usize, visit: &mut dyn FnMut(KeyValueRef<'_>)) -> Result<bool, MvccError> {
        todo!()
    }
    /// Whether the limit cut the answer, and how many keys the range holds at the revision. Known once the chunks are through.
    pub fn more_and_count(&self) -> (bool, i64) {
        todo!()
    }
}

/// What a put did.
#[derive(Debug)]
pub struct PutOutcome {
    pub previous: Option<mvccpb::KeyValue>,
}

/// What a delete did: the keys that are gone, with their last state when it was asked for.
#[derive(Debug)]
pub struct DeleteOutcome {
    pub deleted: i64,
    pub previous: Vec<mvccpb::KeyValue>,
}

/// One write transaction on the keys: all its changes get one main revision and become visible together on `end`.
/// Reads through it see its own changes. There is one at a time. Dropped without `end` it leaves no trace.
pub struct WriteTxn<'a> {
    _s: &'a Store,
}

impl WriteTxn<'_> {
    /// The revision before this transaction's changes.
    pub fn base_revision(&self) -> i64 {
        todo!()
    }
    /// base_revision, plus one if anything changed.
    pub fn revision(&self) -> i64 {
        todo!()
    }
    /// The key's state now, including this transaction's changes.
    pub fn get(&self, key: &[u8]) -> Result<Option<mvccpb::KeyValue>, MvccError> {
        todo!()
    }
    /// The key's (create_revision, mod_revision, version) now; touches no value and no file.
    pub fn key_meta(&self, key: &[u8]) -> Option<KeyMeta> {
        todo!()
    }
    pub fn put(&mut self, key: Bytes, value: Bytes, lease: i64, want_previous: bool) -> Result<PutOutcome, MvccError> {
        todo!()
    }
    pub fn delete_range(&mut self, range: &KeyRange, want_previous: bool) -> Result<DeleteOutcome, MvccError> {
        todo!()
    }
    /// Reads with this transaction's own changes. `revision` in the query is honoured for older revisions.
    pub fn range(&self, query: &RangeQuery, visit: &mut dyn FnMut(KeyValueRef<'_>)) -> Result<(bool, i64), MvccError> {
        todo!()
    }
    /// Publishes the changes to readers; `None` if there were none.
    pub fn end(self) -> Option<ChangeSet> {
        todo!()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMeta {
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
}

/// A write to a bucket other than `key`, to be committed with the log entry it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketWrite {
    pub bucket: &'static [u8],
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// Names of the file's buckets.
pub mod buckets {
    pub const KEY: &[u8] = b"key";
    pub const META: &[u8] = b"meta";
    pub const LEASE: &[u8] = b"lease";
    pub const ALARM: &[u8] = b"alarm";
    pub const CLUSTER: &[u8] = b"cluster";
    pub const MEMBERS: &[u8] = b"members";
    pub const MEMBERS_REMOVED: &[u8] = b"members_removed";
    pub const AUTH: &[u8] = b"auth";
    pub const AUTH_USERS: &[u8] = b"authUsers";
    pub const AUTH_ROLES: &[u8] = b"authRoles";
}

#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Longest time an applied change waits before it is written to the file (100 ms).
    pub commit_interval: Duration,
    /// Applied operations after which the file is written at once (10,000).
    pub commit_ops_max: usize,
    /// Revisions one step of a physical compaction looks at (1,000).
    pub compaction_batch_revisions: usize,
    /// Pause between two such steps (10 ms).
    pub compaction_sleep: Duration,
}

/// What was found in the file.
#[derive(Debug)]
pub struct Restored {
    /// The last log entry the file contains.
    pub position: LogPosition,
    /// Live keys that hang on a lease: (lease id, key).
    pub lease_attachments: Vec<(i64, Bytes)>,
}

/// The store. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct Store {
    _p: Arc<()>,
}

/// Called once, from a thread of the store's.
pub type Callback = Box<dyn FnOnce(Result<LogPosition, MvccError>) + Send>;

impl Store {
    /// Reads the file, rebuilds the key index (in parallel where it pays), resumes an unfinished compaction, starts the backend thread.
    pub fn open(db: bolt::Db, options: StoreOptions, metrics: &Metrics) -> Result<(Store, Restored), MvccError> {
        todo!()
    }
    /// Revision of the newest visible change (1 in a fresh store).
    pub fn revision(&self) -> i64 {
        todo!()
    }
    /// Revision of the last compaction (0 or -1 as etcd: nothing compacted yet is -1 in memory, reads below it fail).
    pub fn compact_revision(&self) -> i64 {
        todo!()
    }
    /// Opens a range read. Checks compacted and future revisions.
    pub fn range(&self, query: &RangeQuery) -> Result<RangeCursor, MvccError> {
        todo!()
    }
    /// The key's state at a revision (0 = current).
    pub fn get(&self, key: &[u8], revision: i64) -> Result<Option<mvccpb::KeyValue>, MvccError> {
        todo!()
    }
    /// Change sets from main revision `from` on, in order, until `bytes_max` or `revisions_max` is reached (at least one if there is any).
    /// From the ring while it reaches back far enough, else from the file. `Compacted` if `from` <= compact revision... (from == compact revision is fine).
    pub fn changes_since(
        &self,
        from: i64,
        revisions_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<ChangeSet>, MvccError> {
        todo!()
    }
    /// The write transaction. Only the apply loop calls it.
    pub fn write(&self) -> WriteTxn<'_> {
        todo!()
    }
    /// Stages writes to other buckets for the entry in progress. Only the apply loop calls it.
    pub fn stage(&self, writes: Vec<BucketWrite>) {
        todo!()
    }
    /// Ends a log entry: everything written since the last call, and the consistent index, go into the file in one commit (later, by the
    /// backend thread). Only the apply loop calls it. Waits for no disk.
    pub fn end_entry(&self, position: LogPosition) {
        todo!()
    }
    /// Marks revisions up to `revision` as compacted (at once, for readers) and schedules their physical deletion.
    /// `done` is called when that is finished and durable. Only the apply loop calls it.
    pub fn compact(&self, revision: i64, done: Option<Callback>) -> Result<(), MvccError> {
        todo!()
    }
    /// Asks the backend thread to commit what is pending now; `done` gets the position that is then durable.
    pub fn flush(&self, done: Callback) {
        todo!()
    }
    /// The last log entry whose effects are durable in the file.
    pub fn durable_position(&self) -> LogPosition {
        todo!()
    }
    /// All pairs of a bucket as of the last commit to the file (small buckets: lease, alarm, members).
    pub fn bucket_pairs(&self, bucket: &[u8]) -> Result<Vec<(Bytes, Bytes)>, MvccError> {
        todo!()
    }
    /// Applied bytes that are not in the file yet.
    pub fn unwritten_bytes(&self) -> u64 {
        todo!()
    }
    pub fn db_size_bytes(&self) -> u64 {
        todo!()
    }
    pub fn db_size_in_use_bytes(&self) -> u64 {
        todo!()
    }
    /// Set once, before use: called if the backend thread cannot go on (failed fsync, broken page). The member must stop.
    pub fn on_fatal(&self, callback: Box<dyn Fn(MvccError) + Send + Sync>) {
        todo!()
    }
    /// Commits what is pending, stops the thread, closes the file.
    pub fn close(&self) -> Result<(), MvccError> {
        todo!()
    }
}
