//! The store's handle: opening, the calls of the apply loop, the calls of readers, closing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::{
    BucketWrite, ChangeSet, KeysHash, LogPosition, MvccError, RangeCursor, RangeQuery, ReclaimOptions, Restored,
    Revision, WriteTxn,
    backend::{Backend, Stop, Worker},
    compaction::{self, Job},
    hash, history,
    pins::{OpenReads, Pin, PinnedFile, Pins, ReadKind},
    restore,
    ring::Ring,
    shortage::Shortage,
    state::{FatalCallback, Shared, State},
    upkeep::{CompactionProgress, ReclaimProgress, Upkeep},
};
use crate::{background::Helper, bolt, metrics::Metrics, proto::mvccpb};

/// How a store works.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Longest time an applied change waits before it is written to the file (100 ms).
    pub commit_interval: Duration,
    /// Applied operations after which the file is written at once (10,000).
    pub commit_ops_max: usize,
    /// A tenth of the revisions that a compaction looks at for one commit, at most (1,000). It is one that deletes 1,500
    /// revisions or few more, too.
    pub compaction_batch_revisions: usize,
    /// Pause for ten such batches, and for fewer in proportion, if it is longer than what the step took (10 ms).
    pub compaction_sleep: Duration,
    /// Longest time a compaction waits for reads in progress below it, before it breaks them off (30 s).
    pub compaction_reads_wait: Duration,
    /// When the file's unused room is given back without being asked for.
    pub reclaim: ReclaimOptions,
}

impl Default for StoreOptions {
    /// etcd's figures.
    fn default() -> Self {
        StoreOptions {
            commit_interval: Duration::from_millis(100),
            commit_ops_max: 10_000,
            compaction_batch_revisions: 1_000,
            compaction_sleep: Duration::from_millis(10),
            compaction_reads_wait: Duration::from_secs(30),
            reclaim: ReclaimOptions::default(),
        }
    }
}

/// Called once, from a thread of the store's.
pub type Callback = Box<dyn FnOnce(Result<LogPosition, MvccError>) + Send>;

/// The store. Cheap to clone; all clones are the same store.
///
/// Any thread may read. Writing (`write`, `stage`, `end_entry`, `compact`) is the apply loop's alone. When the last
/// clone is dropped without [`close`](Store::close), what is not in the file yet is left to the log.
#[derive(Clone, Debug)]
pub struct Store {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<(), MvccError>>>>,
}

impl Store {
    /// Reads the file, rebuilds the key index (in parallel where it pays), resumes an unfinished compaction, starts the backend thread.
    pub fn open(db: bolt::Db, options: StoreOptions, metrics: &Metrics) -> Result<(Store, Restored), MvccError> {
        restore::prepare(&db)?;
        let contents = restore::read(&db)?;
        metrics.current_revision.set(contents.current_revision);
        metrics.compact_revision.set(contents.compact_revision);
        metrics.keys_total.set(contents.index.len() as i64);
        let shared = Arc::new(Shared {
            state: RwLock::new(State {
                index: contents.index,
                ring: Ring::new(contents.current_revision),
                current_revision: contents.current_revision,
                compact_revision: contents.compact_revision,
                forgotten_revision: contents.compact_revision,
            }),
            flushed_revision: AtomicI64::new(contents.current_revision),
            db: RwLock::new(Some(db.clone())),
            backend: Backend::new(contents.restored.position),
            writer: Mutex::new(()),
            unwritten_bytes: AtomicU64::new(0),
            pins: Arc::new(Pins::new(metrics.time.clone())),
            upkeep: Upkeep::new(metrics.time.clone()),
            shortage: Shortage::new(metrics),
            on_fatal: Mutex::new(None),
            options,
            metrics: metrics.clone(),
        });
        shared.publish_file_metrics(&db);
        let unfinished = contents.unfinished_compaction.map(|revision| Job::new(revision, None));
        let no_thread = |error| MvccError::Thread(Arc::new(error));
        let helper = Helper::start("compaction").map_err(no_thread)?;
        let worker = Worker::new(Arc::clone(&shared), db, helper, unfinished);
        let thread = thread::Builder::new().name("backend".to_owned()).spawn(|| worker.run());
        let thread = Mutex::new(Some(thread.map_err(no_thread)?));
        Ok((Store { handle: Arc::new(Handle { shared, thread }) }, contents.restored))
    }

    /// Revision of the newest visible change (1 in a fresh store).
    pub fn revision(&self) -> i64 {
        self.shared().state.read().current_revision
    }

    /// Revision of the last compaction; -1 if there was none. Reads below it fail.
    pub fn compact_revision(&self) -> i64 {
        self.shared().state.read().compact_revision
    }

    /// How many keys a read has to look at, at most: tells long reads from short ones.
    pub fn keys_to_look_at(&self, query: &RangeQuery) -> u64 {
        let state = self.shared().state.read();
        let (known, live) = state.index.known_and_live(&query.range);
        match query.keys_to_give() {
            // Deleted keys whose history is kept are looked at and not given.
            Some(given) => known.min(given.saturating_add(known - live)),
            None => known,
        }
    }

    /// Opens a range read. Checks compacted and future revisions.
    pub fn range(&self, query: &RangeQuery) -> Result<RangeCursor, MvccError> {
        RangeCursor::open(Arc::clone(self.shared()), query)
    }

    /// The key's state at a revision (0 = current).
    pub fn get(&self, key: &[u8], revision: i64) -> Result<Option<mvccpb::KeyValue>, MvccError> {
        self.shared().get(key, revision)
    }

    /// Change sets from main revision `from` on, in order, until `bytes_max` or `revisions_max` is reached (at least one if there is any).
    /// From the ring while it reaches back far enough, else from the file. `Compacted` if `from` is below the compact
    /// revision; at it, the changes are still whole.
    pub fn changes_since(
        &self,
        from: i64,
        revisions_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<ChangeSet>, MvccError> {
        history::changes_since(self.shared(), from, revisions_max, bytes_max)
    }

    /// The write transaction. Only the apply loop calls it.
    pub fn write(&self) -> WriteTxn<'_> {
        WriteTxn::begin(self.shared())
    }

    /// Stages writes to other buckets for the entry in progress. Only the apply loop calls it.
    pub fn stage(&self, writes: Vec<BucketWrite>) {
        self.shared().backend.stage(self.shared(), writes, None);
    }

    /// Ends a log entry: everything written since the last call, and the consistent index, go into the file in one commit (later, by the
    /// backend thread). Only the apply loop calls it. Waits for no disk.
    pub fn end_entry(&self, position: LogPosition) {
        let through_revision = self.revision();
        self.shared().backend.seal(position, through_revision, self.shared().options.commit_ops_max);
    }

    /// Marks revisions up to `revision` as compacted (at once, for readers) and schedules their physical deletion.
    /// `done` is called when that is finished and durable. Only the apply loop calls it, before the entry's `end_entry`.
    pub fn compact(&self, revision: i64, done: Option<Callback>) -> Result<(), MvccError> {
        compaction::request(self.shared(), revision, done)
    }

    /// Asks the backend thread to commit what is pending now; `done` gets the position that is then durable.
    /// After `close` or a failure it is refused on the caller's thread.
    pub fn flush(&self, done: Callback) {
        self.shared().backend.flush(done);
    }

    /// Asks the backend thread to give the file's unused room back; `done` is called when that is durable, or with why
    /// it could not be done, after which nothing is lost. Who asks while others wait for the same shares what they get.
    /// Reads and writes go on meanwhile: the thread takes small steps, and looks after both in between.
    pub fn defragment(&self, done: Callback) {
        self.shared().backend.defragment(done);
    }

    /// Hashes the keys' history up to a revision (0: the current one). Takes time in proportion to it, and no lock for
    /// long. [`MvccError::Busy`] if compactions kept coming in between.
    pub fn hash_keys(&self, revision: i64) -> Result<KeysHash, MvccError> {
        let started = Instant::now();
        let _open = Pin::new(&self.shared().pins, ReadKind::File, self.revision());
        let hash = hash::keys(self.shared(), revision)?;
        self.shared().metrics.hash_rev_duration.observe(started.elapsed().as_secs_f64());
        Ok(hash)
    }

    /// Hashes the whole file as of the last commit; call it after a [`flush`](Store::flush). Takes time in proportion to it.
    pub fn hash_file(&self) -> Result<u32, MvccError> {
        let started = Instant::now();
        let hash = hash::file(&*self.shared().pin_long()?)?;
        self.shared().metrics.hash_duration.observe(started.elapsed().as_secs_f64());
        Ok(hash)
    }

    /// The file as of the last commit, to be copied; call it after a [`flush`](Store::flush). While it is open the file grows.
    pub fn pin_file(&self) -> Result<PinnedFile, MvccError> {
        self.shared().pin_long()
    }

    /// The reads in progress: how many, and the oldest of them, at most so many.
    pub fn open_reads(&self, reads_max: usize) -> OpenReads {
        self.shared().pins.oldest(reads_max)
    }

    /// How far the compaction is that is under way, if one is.
    pub fn compaction(&self) -> Option<CompactionProgress> {
        self.shared().upkeep.compaction()
    }

    /// How far it is that room is given back, if it is.
    pub fn reclaim(&self) -> Option<ReclaimProgress> {
        self.shared().upkeep.reclaim()
    }

    /// The last log entry whose effects are durable in the file.
    pub fn durable_position(&self) -> LogPosition {
        self.shared().backend.durable()
    }

    /// All pairs of a bucket as of the last commit to the file (small buckets: lease, alarm, members).
    pub fn bucket_pairs(&self, bucket: &[u8]) -> Result<Vec<(Bytes, Bytes)>, MvccError> {
        let tx = self.shared().pin()?;
        let mut pairs = Vec::new();
        let Some(bucket) = tx.bucket(bucket)? else { return Ok(pairs) };
        let mut cursor = bucket.cursor();
        let mut pair = cursor.first()?;
        while let Some((key, value)) = pair {
            if cursor.is_bucket() {
                let what = format!("{} is a bucket inside a bucket", key.escape_ascii());
                return Err(MvccError::damaged(Revision::default(), what).in_page(cursor.page()));
            }
            pairs.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            pair = cursor.next()?;
        }
        Ok(pairs)
    }

    /// What the store takes: bytes of the file in use as of the last step of the backend thread, and applied ones that are
    /// not in it yet. Two loads: cheap enough for every request.
    pub fn used_bytes(&self) -> u64 {
        let in_use = self.shared().metrics.db_total_size_in_use.get();
        u64::try_from(in_use).unwrap_or(0).saturating_add(self.unwritten_bytes())
    }

    /// Applied bytes that are not in the file yet. The store takes whatever is applied: it is the apply loop's part to
    /// slow down when this grows.
    pub fn unwritten_bytes(&self) -> u64 {
        self.shared().unwritten_bytes.load(Ordering::Relaxed)
    }

    /// Why the file cannot grow, if it cannot. What is applied meanwhile stays in memory and in the log; what makes room
    /// gets through as long as the room lasts that is kept for it.
    pub fn shortage(&self) -> Option<String> {
        self.shared().shortage.reason()
    }

    /// Size of the file as of the last commit; 0 once closed.
    pub fn db_size_bytes(&self) -> u64 {
        self.shared().db().map_or(0, |db| db.size_bytes())
    }

    /// Size of the file less its free pages as of the last commit; 0 once closed.
    pub fn db_size_in_use_bytes(&self) -> u64 {
        self.shared().db().map_or(0, |db| db.size_in_use_bytes())
    }

    /// Set once, before use: called if the backend thread cannot go on (failed fsync, broken page). The member must stop.
    pub fn on_fatal(&self, callback: FatalCallback) {
        let mut slot = self.shared().on_fatal.lock();
        match self.shared().backend.check_usable() {
            Ok(()) => *slot = Some(callback),
            // It failed already, with nobody to tell.
            Err(error) => callback(error),
        }
    }

    /// Commits what is pending, stops the thread, closes the file.
    pub fn close(&self) -> Result<(), MvccError> {
        self.handle.shut(Stop::Written)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

impl Handle {
    fn shut(&self, how: Stop) -> Result<(), MvccError> {
        self.shared.backend.stop(how);
        let thread = self.thread.lock().take();
        // A callback may hold the last handle: the thread cannot wait for itself.
        let outcome = match thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            Some(thread) => match thread.join() {
                Ok(outcome) => outcome,
                Err(_) if thread::panicking() => Err(MvccError::Closed),
                Err(panic) => std::panic::resume_unwind(panic),
            },
            None => Ok(()),
        };
        self.shared.db.write().take();
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nothing is lost that the log does not have; a failure was reported by the thread.
        let _ = self.shut(Stop::Abandoned);
    }
}
