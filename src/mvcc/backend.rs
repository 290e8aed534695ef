//! The backend thread: takes what was applied into the file, whole log entries at a time, and has deleted what was
//! compacted. It is the only writer of the file, but for a helper of lower priority that deletes for it while it waits.
//!
//! A failed write or sync is final: nobody knows what the file holds, so nothing is retried, every later call fails
//! and the member is told to stop. The one exception is a full disk or file, which the tree reports before it changes
//! anything: what was applied stays in memory (and in the log), and is tried again at the next interval.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{
    BucketWrite, Callback, LogPosition, MvccError, Record, buckets,
    compaction::{Job, Step},
    key_value::{encode_key_value, encode_tombstone},
    reclaim::Reclaimer,
    shortage::is_disk_full,
    state::Shared,
};
use crate::{background::Helper, bolt};

/// Fill of the pages of bucket `key`, which only grows at its end; etcd's figure.
pub(super) const KEY_BUCKET_FILL: f64 = 0.9;
/// What a write to another bucket is counted as beside its strings, in bytes.
const BUCKET_WRITE_OVERHEAD_BYTES: u64 = 64;

/// Most that the length of a step adds to the pause after it.
const STEP_PAUSE_MAX: Duration = Duration::from_millis(100);
/// How often a compaction looks whether the reads it waits for have ended.
const READS_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Requests to defragment that may wait at once.
const DEFRAGMENTS_WAITING_MAX: usize = 64;

/// What the apply loop and the backend thread share.
#[derive(Default)]
pub(super) struct Backend {
    pending: Mutex<Pending>,
    wake: Condvar,
    failed: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Pending {
    /// The entry in progress.
    open: Batch,
    /// Whole entries that are to be written.
    sealed: Batch,
    flushes: Vec<Callback>,
    defragments: Vec<Callback>,
    /// Requests to defragment that were not answered yet.
    defragments_waiting: usize,
    durable: LogPosition,
    stop: Option<Stop>,
    failure: Option<MvccError>,
}

impl Pending {
    /// Why nothing more is taken, if so.
    fn refusal(&self) -> Option<MvccError> {
        self.failure.clone().or(self.stop.map(|_| MvccError::Closed))
    }
}

/// How the thread is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// After what is pending has been written.
    Written,
    /// At once.
    Abandoned,
}

/// Changes that are to be written together. Those of keys are in the ring.
#[derive(Default)]
struct Batch {
    writes: Vec<BucketWrite>,
    compaction: Option<Job>,
    ops: usize,
    bytes: u64,
    /// The last entry in the batch; set once it is sealed.
    position: Option<LogPosition>,
    through_revision: i64,
    /// When its first entry was sealed.
    since: Option<Instant>,
}

impl Batch {
    /// Adds a later batch.
    fn append(&mut self, later: Batch) {
        self.writes.extend(later.writes);
        if let Some(job) = later.compaction {
            self.compact(job);
        }
        self.ops += later.ops;
        self.bytes += later.bytes;
        if later.position.is_some() {
            self.position = later.position;
            self.through_revision = later.through_revision;
        }
        self.since = self.since.or(later.since);
    }

    /// Adds a compaction: one is enough.
    fn compact(&mut self, job: Job) {
        match &mut self.compaction {
            Some(known) => known.absorb(job),
            None => self.compaction = Some(job),
        }
    }

    /// Whether it should be written without waiting for the interval.
    fn is_urgent(&self, ops_max: usize) -> bool {
        self.position.is_some() && (self.ops >= ops_max || self.compaction.is_some())
    }
}

impl Backend {
    pub(super) fn new(durable: LogPosition) -> Backend {
        let pending = Pending { durable, ..Pending::default() };
        Backend { pending: Mutex::new(pending), ..Backend::default() }
    }

    /// An error once the thread has given up.
    pub(super) fn check_usable(&self) -> Result<(), MvccError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.pending.lock().failure.clone().unwrap_or(MvccError::Closed))
    }

    pub(super) fn note_changes(&self, shared: &Shared, count: usize, bytes: u64) {
        shared.add_unwritten(bytes);
        let mut pending = self.pending.lock();
        pending.open.ops += count;
        pending.open.bytes += bytes;
    }

    pub(super) fn stage(&self, shared: &Shared, writes: Vec<BucketWrite>, job: Option<Job>) {
        let cost = |write: &BucketWrite| {
            let value = write.value.as_ref().map_or(0, |value| value.len());
            (write.key.len() + value) as u64 + BUCKET_WRITE_OVERHEAD_BYTES
        };
        let bytes = writes.iter().map(cost).sum();
        shared.add_unwritten(bytes);
        let mut pending = self.pending.lock();
        pending.open.ops += writes.len();
        pending.open.bytes += bytes;
        pending.open.writes.extend(writes);
        let Some(mut job) = job else { return };
        if let Some(error) = pending.refusal() {
            drop(pending);
            return job.take_callbacks().into_iter().for_each(|done| done(Err(error.clone())));
        }
        pending.open.compact(job);
    }

    /// Ends the entry in progress.
    pub(super) fn seal(&self, position: LogPosition, through_revision: i64, ops_max: usize) {
        let mut pending = self.pending.lock();
        let was_waiting = pending.sealed.position.is_some();
        let was_urgent = pending.sealed.is_urgent(ops_max);
        let mut entry = std::mem::take(&mut pending.open);
        entry.position = Some(position);
        entry.through_revision = through_revision;
        entry.since = (!was_waiting).then(Instant::now);
        pending.sealed.append(entry);
        // The thread sleeps until the interval is over; it need only be told that there is one, or that it is cut short.
        if !was_waiting || pending.sealed.is_urgent(ops_max) != was_urgent {
            drop(pending);
            self.wake.notify_all();
        }
    }

    pub(super) fn flush(&self, done: Callback) {
        let mut pending = self.pending.lock();
        if let Some(error) = pending.refusal() {
            drop(pending);
            return done(Err(error));
        }
        pending.flushes.push(done);
        drop(pending);
        self.wake.notify_all();
    }

    pub(super) fn defragment(&self, done: Callback) {
        let mut pending = self.pending.lock();
        let busy = (pending.defragments_waiting >= DEFRAGMENTS_WAITING_MAX).then_some(MvccError::Busy);
        if let Some(error) = pending.refusal().or(busy) {
            drop(pending);
            return done(Err(error));
        }
        pending.defragments.push(done);
        pending.defragments_waiting += 1;
        drop(pending);
        self.wake.notify_all();
    }

    /// So many requests to defragment are about to be answered.
    pub(super) fn note_answered(&self, defragments: usize) {
        self.pending.lock().defragments_waiting -= defragments;
    }

    pub(super) fn durable(&self) -> LogPosition {
        self.pending.lock().durable
    }

    pub(super) fn stop(&self, stop: Stop) {
        self.pending.lock().stop.get_or_insert(stop);
        self.wake.notify_all();
    }
}

impl Shared {
    fn add_unwritten(&self, bytes: u64) {
        let total = self.unwritten_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.metrics.unwritten_bytes.set(total as i64);
    }

    fn remove_unwritten(&self, bytes: u64) {
        let total = self.unwritten_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        self.metrics.unwritten_bytes.set(total as i64);
    }

    /// Puts the file's figures into the metrics.
    pub(super) fn publish_file_metrics(&self, db: &bolt::Db) {
        self.metrics.db_total_size.set(db.size_bytes() as i64);
        self.metrics.db_total_size_in_use.set(db.size_in_use_bytes() as i64);
        self.metrics.db_open_read_transactions.set(db.open_reads() as i64);
    }
}

/// The thread's own state.
pub(super) struct Worker {
    shared: Arc<Shared>,
    db: bolt::Db,
    /// Taken from the sealed entries and not written yet.
    batch: Batch,
    flushes: Vec<Callback>,
    /// Set while the disk is full: why, and when to try again.
    postponed: Option<(MvccError, Instant)>,
    /// One that has begun, and one that has not, at most.
    compactions: VecDeque<Job>,
    step_at: Instant,
    /// For the part of compactions that can wait.
    helper: Helper,
    /// Set while there is less room than is to be kept: when to look again.
    room_at: Option<Instant>,
    reclaimer: Reclaimer,
    /// The last turn was a commit's.
    has_committed: bool,
    encoded: Vec<u8>,
}

enum Work {
    Commit,
    Compact,
    KeepRoom,
    /// Begin to give room back, for who asked.
    Defragment,
    /// Go on with it.
    Reclaim,
    Stop(Stop),
}

impl Worker {
    /// `unfinished` is the compaction the file says was begun and not finished.
    pub(super) fn new(shared: Arc<Shared>, db: bolt::Db, helper: Helper, unfinished: Option<Job>) -> Worker {
        Worker {
            reclaimer: Reclaimer::new(&db),
            shared,
            db,
            batch: Batch::default(),
            flushes: Vec::new(),
            postponed: None,
            compactions: unfinished.into_iter().collect(),
            step_at: Instant::now(),
            helper,
            room_at: Some(Instant::now()),
            has_committed: false,
            encoded: Vec::new(),
        }
    }

    /// Runs until it is stopped or something fails.
    pub(super) fn run(mut self) -> Result<(), MvccError> {
        let outcome = self.work_until_stopped();
        match &outcome {
            Ok(()) => self.refuse_callbacks(&MvccError::Closed),
            Err(error) => self.fail(error.clone()),
        }
        outcome
    }

    fn work_until_stopped(&mut self) -> Result<(), MvccError> {
        loop {
            let work = self.wait_for_work();
            self.has_committed = matches!(work, Work::Commit);
            match work {
                Work::Commit => self.commit()?,
                Work::Compact => self.compact()?,
                Work::KeepRoom => self.keep_room()?,
                Work::Defragment => self.defragment(),
                Work::Reclaim => self.reclaimer.work(&self.shared, &self.db)?,
                Work::Stop(Stop::Abandoned) => return Ok(()),
                Work::Stop(Stop::Written) => {
                    self.commit()?;
                    return match self.postponed.take() {
                        Some((error, _)) => Err(error),
                        None => self.close_file(),
                    };
                }
            }
        }
    }

    fn wait_for_work(&self) -> Work {
        let options = &self.shared.options;
        let backend = &self.shared.backend;
        let mut pending = backend.pending.lock();
        loop {
            if let Some(stop) = pending.stop {
                return Work::Stop(stop);
            }
            let now = Instant::now();
            let commit_at = if let Some((_, retry_at)) = self.postponed {
                Some(retry_at)
            } else if !pending.flushes.is_empty() || pending.sealed.is_urgent(options.commit_ops_max) {
                Some(now)
            } else {
                pending.sealed.since.map(|since| since + options.commit_interval)
            };
            let step_at = (!self.compactions.is_empty()).then_some(self.step_at);
            if commit_at.is_some_and(|at| at <= now) {
                // One that took long is due again when it ends: then the others have a turn, unless somebody waits.
                let may_wait = self.has_committed && pending.flushes.is_empty();
                return may_wait.then(|| self.longest_due(&pending, now)).flatten().unwrap_or(Work::Commit);
            }
            if !pending.defragments.is_empty() {
                return Work::Defragment;
            }
            if step_at.is_some_and(|at| at <= now) {
                return Work::Compact;
            }
            if self.room_at.is_some_and(|at| at <= now) {
                return Work::KeepRoom;
            }
            let reclaim_at = self.reclaimer.due_at();
            if reclaim_at.is_some_and(|at| at <= now) {
                return Work::Reclaim;
            }
            match commit_at.into_iter().chain(step_at).chain(self.room_at).chain(reclaim_at).min() {
                Some(at) => _ = backend.wake.wait_until(&mut pending, at),
                None => backend.wake.wait(&mut pending),
            }
        }
    }

    /// What has waited longest for its turn, of what somebody asked for.
    fn longest_due(&self, pending: &Pending, now: Instant) -> Option<Work> {
        if !pending.defragments.is_empty() {
            return Some(Work::Defragment);
        }
        let step_at = (!self.compactions.is_empty()).then_some((self.step_at, Work::Compact));
        let reclaim_at = self.reclaimer.asked_due_at().map(|at| (at, Work::Reclaim));
        let first = step_at.into_iter().chain(reclaim_at).min_by_key(|(at, _)| *at)?;
        (first.0 <= now).then_some(first.1)
    }

    /// Writes all sealed entries in one transaction of the file.
    fn commit(&mut self) -> Result<(), MvccError> {
        {
            let mut pending = self.shared.backend.pending.lock();
            self.batch.append(std::mem::take(&mut pending.sealed));
            self.flushes.append(&mut pending.flushes);
        }
        let Some(position) = self.batch.position else {
            self.answer_flushes();
            return Ok(());
        };
        let commits = self.shared.metrics.backend_commit.clone();
        let running = commits.begin();
        let through = self.batch.through_revision;
        let flushed = self.shared.flushed_revision.load(Ordering::Acquire);
        match self.write_batch(position, flushed, through) {
            Ok(stats) => {
                // First: what counts twice for a moment could raise an alarm.
                self.shared.remove_unwritten(std::mem::take(&mut self.batch.bytes));
                running.end();
                self.observe_commit(stats);
            }
            Err(error) if is_disk_full(&error) => {
                self.postpone(error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.postponed = None;
        self.shared.flushed_revision.store(through, Ordering::Release);
        // One commit late: see the ring.
        let dropped = self.shared.state.write().ring.drop_through(flushed);
        drop(dropped);
        let batch = std::mem::take(&mut self.batch);
        self.shared.backend.pending.lock().durable = position;
        if self.compactions.is_empty() {
            self.step_at = Instant::now();
        }
        if let Some(job) = batch.compaction {
            self.enqueue(job);
        }
        self.note_compaction();
        self.reclaimer.look(&self.shared, &self.db, !self.compactions.is_empty());
        self.answer_flushes();
        self.keep_room()
    }

    fn write_batch(
        &mut self,
        position: LogPosition,
        flushed: i64,
        through: i64,
    ) -> Result<bolt::CommitStats, bolt::BoltError> {
        let records: Vec<Arc<Record>> = {
            let state = self.shared.state.read();
            let newer = state.ring.starting_at(flushed + 1);
            newer.take_while(|record| record.revision.main <= through).map(Arc::clone).collect()
        };
        let mut tx = self.db.write()?;
        tx.set_fill_percent(buckets::KEY, KEY_BUCKET_FILL)?;
        for record in &records {
            self.encoded.clear();
            if record.tombstone {
                encode_tombstone(&record.kv.key, &mut self.encoded);
                tx.put(buckets::KEY, &record.revision.encode_tombstone(), &self.encoded)?;
            } else {
                encode_key_value(&record.kv, &mut self.encoded);
                tx.put(buckets::KEY, &record.revision.encode(), &self.encoded)?;
            }
        }
        for write in &self.batch.writes {
            match &write.value {
                Some(value) => tx.put(write.bucket, &write.key, value)?,
                None => tx.delete(write.bucket, &write.key)?,
            }
        }
        tx.put(buckets::META, buckets::CONSISTENT_INDEX, &position.index.to_be_bytes())?;
        tx.put(buckets::META, buckets::TERM, &position.term.to_be_bytes())?;
        tx.commit()
    }

    fn observe_commit(&self, stats: bolt::CommitStats) {
        let metrics = &self.shared.metrics;
        metrics.backend_written_bytes.inc_by(stats.bytes_written);
        metrics.backend_commit_spill_duration.observe(stats.spill.as_secs_f64());
        metrics.backend_commit_write_duration.observe(stats.write.as_secs_f64());
        self.shared.publish_file_metrics(&self.db);
    }

    /// Puts a compaction behind those there are, or into the last one: each walks through the whole file.
    fn enqueue(&mut self, job: Job) {
        match self.compactions.back_mut().filter(|last| !last.has_begun()) {
            Some(last) => last.absorb(job),
            None => self.compactions.push_back(job),
        }
    }

    /// One bounded step of the compaction that is first in line.
    fn compact(&mut self) -> Result<(), MvccError> {
        let Some(job) = self.compactions.front_mut() else { return Ok(()) };
        let started = Instant::now();
        let outcome = job.step(&self.shared, &self.db, &self.helper);
        let took = started.elapsed();
        // As long as it took at least: never more than half of a processor, or of the disk's syncs. Time in which a thread
        // of lower priority waited for a processor counts too, within reason.
        let took = took.min(STEP_PAUSE_MAX);
        let pause = match outcome {
            Ok(Step::Again) => took,
            Ok(Step::Pause(share)) => self.shared.options.compaction_sleep.mul_f64(share).max(took),
            Ok(Step::Wait) => READS_LOOK_INTERVAL,
            Ok(Step::Finished) => {
                let position = self.shared.backend.durable();
                let waiting = self.compactions.pop_front().map(|mut job| job.take_callbacks());
                waiting.into_iter().flatten().for_each(|done| done(Ok(position)));
                Duration::ZERO
            }
            Err(MvccError::Bolt(error)) if is_disk_full(&error) => {
                tracing::warn!(%error, "the disk is full: compaction goes on when there is room");
                self.shared.options.commit_interval
            }
            Err(error) => return Err(error),
        };
        self.note_compaction();
        self.step_at = Instant::now() + pause;
        self.reclaimer.look(&self.shared, &self.db, !self.compactions.is_empty());
        Ok(())
    }

    fn note_compaction(&self) {
        let waiting = self.compactions.iter().skip(1).map(Job::requests).sum();
        let progress = self.compactions.front().map(|job| job.progress(waiting));
        self.shared.upkeep.note_compaction(progress, &self.shared.metrics);
    }

    /// Begins to give room back for all who asked so far.
    fn defragment(&mut self) {
        let waiting = std::mem::take(&mut self.shared.backend.pending.lock().defragments);
        self.reclaimer.ask(&self.shared, &self.db, waiting);
    }

    /// Puts the list of free pages into the file, so that the next start need not look for them.
    fn close_file(&self) -> Result<(), MvccError> {
        match self.db.clone().close() {
            Err(error) if is_disk_full(&error) => {
                tracing::warn!(%error, "no room for the list of free pages: the next start looks for them");
                Ok(())
            }
            closed => Ok(closed?),
        }
    }

    /// Keeps room for what is to come, so that want of it is known before anything has to wait for it.
    fn keep_room(&mut self) -> Result<(), MvccError> {
        // With a commit that waits for room, what room there is is its own.
        let is_kept = self.postponed.is_none() && self.shared.shortage.keep_room(&self.db)?;
        self.room_at = (!is_kept).then(|| Instant::now() + self.shared.options.commit_interval);
        if is_kept {
            self.shared.metrics.db_total_size.set(self.db.size_bytes() as i64);
        }
        Ok(())
    }

    fn postpone(&mut self, error: bolt::BoltError) {
        self.shared.shortage.found_short(&error);
        self.room_at = Some(Instant::now() + self.shared.options.commit_interval);
        self.postponed = Some((error.into(), Instant::now() + self.shared.options.commit_interval));
    }

    fn answer_flushes(&mut self) {
        let position = self.shared.backend.durable();
        for done in self.flushes.drain(..) {
            done(Ok(position));
        }
    }

    /// Nothing works from here on.
    fn fail(&mut self, error: MvccError) {
        tracing::error!(%error, "the backend file cannot be written any more");
        self.shared.backend.pending.lock().failure = Some(error.clone());
        self.shared.backend.failed.store(true, Ordering::Release);
        self.refuse_callbacks(&error);
        if let Some(callback) = &*self.shared.on_fatal.lock() {
            callback(error);
        }
    }

    fn refuse_callbacks(&mut self, error: &MvccError) {
        let mut pending = self.shared.backend.pending.lock();
        // From here on flushes are refused at once.
        pending.stop.get_or_insert(Stop::Abandoned);
        self.flushes.append(&mut pending.flushes);
        self.flushes.append(&mut pending.defragments);
        self.flushes.append(&mut self.reclaimer.take_waiting());
        let Pending { sealed, open, .. } = &mut *pending;
        let batches = [&mut self.batch.compaction, &mut sealed.compaction, &mut open.compaction];
        self.compactions.extend(batches.into_iter().filter_map(Option::take));
        drop(pending);
        let waiting = self.compactions.drain(..).flat_map(|mut job| job.take_callbacks());
        for done in self.flushes.drain(..).chain(waiting) {
            done(Err(error.clone()));
        }
    }
}
