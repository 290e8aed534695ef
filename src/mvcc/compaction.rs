//! Compaction: forgetting history below a revision, on the backend thread, in steps that are bounded in time.
//!
//! New readers below the revision are refused the moment it is asked for. The deletions follow once everything up to the
//! revision is in the file and the reads in progress below it have ended or had their time: first the index forgets, then
//! bucket `key` is walked and loses what the index no longer holds. The index is asked revision by revision, so that
//! nothing needs to remember them all. Marks in bucket `meta` (etcd's) say which compaction was begun and which was
//! finished, so that a restart takes an unfinished one up again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::RwLockWriteGuard;

use super::{
    BucketWrite, Callback, MvccError, Revision, buckets,
    index::{Garbage, Resume},
    key_value::stored_key,
    state::{Shared, Values},
    upkeep::{CompactionPhase, CompactionProgress},
};
use crate::bolt;

/// Longest time the index's lock is held: what a read or a write may have to wait for this.
const LOCKED_MAX: Duration = Duration::from_micros(200);
/// Keys of the index that are compacted between two looks at the clock.
const KEYS_PER_LOOK: usize = 32;
/// Most revisions the index is asked for while its lock is held, for reading.
const LOCKED_LOOKUPS_MAX: usize = 256;
/// Longest time a step walks through the file and deletes, before it commits: what a flush may have to wait for, beside
/// the commit.
const STEP_MAX: Duration = Duration::from_millis(5);
/// Most batches of revisions one step looks at.
const STEP_BATCHES_MAX: usize = 10;

/// One compaction.
pub(super) struct Job {
    revision: i64,
    done: Option<Callback>,
    started: Option<Instant>,
    phase: Phase,
}

enum Phase {
    /// Reads in progress below are waited for.
    Reads,
    /// The index forgets, key by key behind this one.
    Index(Resume),
    /// The file is walked, from this revision on.
    File(Revision),
    /// All is deleted; the mark is missing.
    Mark,
}

/// What a step left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next step may follow at once.
    Again,
    /// The next step should leave the file to others for a while.
    Pause,
    /// A read in progress is waited for.
    Wait,
    /// Nothing, and that is durable.
    Finished,
}

/// What the index no longer holds: (revision, whether it is a tombstone).
type Gone = Vec<(Revision, bool)>;

impl Job {
    pub(super) fn new(revision: i64, done: Option<Callback>) -> Job {
        Job { revision, done, started: None, phase: Phase::Reads }
    }

    pub(super) fn take_callback(&mut self) -> Option<Callback> {
        self.done.take()
    }

    /// How far it is, `waiting` others coming after it. Its age is not known here.
    pub(super) fn progress(&self, waiting: usize) -> CompactionProgress {
        let (phase, done_revision) = match &self.phase {
            Phase::Reads => (CompactionPhase::Reads, 0),
            Phase::Index(_) => (CompactionPhase::Index, 0),
            Phase::File(from) => (CompactionPhase::File, from.main),
            Phase::Mark => (CompactionPhase::File, self.revision),
        };
        CompactionProgress { phase, done_revision, target_revision: self.revision, waiting, age: Duration::ZERO }
    }

    /// Does a bounded part of the work. After an error that can be overcome the same step may be tried again.
    pub(super) fn step(&mut self, shared: &Shared, db: &bolt::Db) -> Result<Step, MvccError> {
        let started = *self.started.get_or_insert_with(Instant::now);
        match &self.phase {
            Phase::Reads => {
                let has_time = started.elapsed() < shared.options.compaction_reads_wait;
                if has_time && shared.pins.are_below(self.revision) {
                    return Ok(Step::Wait);
                }
                shared.state.write().forgotten_revision = self.revision;
                self.phase = Phase::Index(None);
                Ok(Step::Again)
            }
            Phase::Index(after) => {
                let next = forget(shared, after.as_deref(), self.revision);
                self.phase = if next.is_some() { Phase::Index(next) } else { Phase::File(Revision::default()) };
                Ok(Step::Again)
            }
            Phase::File(from) => {
                let next = self.delete_some(shared, db, *from)?;
                self.phase = next.map_or(Phase::Mark, Phase::File);
                Ok(Step::Pause)
            }
            Phase::Mark => {
                let mut tx = db.write()?;
                let mark = Revision { main: self.revision, sub: 0 }.encode();
                tx.put(buckets::META, buckets::FINISHED_COMPACTION, &mark)?;
                tx.commit()?;
                shared.publish_file_metrics(db);
                let milliseconds = started.elapsed().as_secs_f64() * 1_000.0;
                shared.metrics.compaction_total_duration.observe(milliseconds);
                Ok(Step::Finished)
            }
        }
    }

    /// Walks through the file from a revision on and deletes what is gone, in one commit; where to go on, if anywhere.
    fn delete_some(&self, shared: &Shared, db: &bolt::Db, from: Revision) -> Result<Option<Revision>, MvccError> {
        let started = Instant::now();
        let mut next = Some(from);
        let mut deleted = 0;
        let mut tx = db.write()?;
        {
            // The view is of the commit before: what is deleted meanwhile lies behind the walk. It ends before the
            // commit, so that the pages are free with the next one.
            let read = db.read()?;
            let values = Values::of(&read)?;
            for _ in 0..STEP_BATCHES_MAX {
                let Some(from) = next else { break };
                let (gone, behind) = self.find_gone(shared, &values, from)?;
                for (revision, tombstone) in &gone {
                    if *tombstone {
                        tx.delete(buckets::KEY, &revision.encode_tombstone())?;
                    } else {
                        tx.delete(buckets::KEY, &revision.encode())?;
                    }
                }
                deleted += gone.len() as u64;
                next = behind;
                if started.elapsed() >= STEP_MAX {
                    break;
                }
            }
        }
        if deleted > 0 {
            tx.commit()?;
            shared.metrics.compaction_keys.inc_by(deleted);
            shared.publish_file_metrics(db);
        }
        Ok(next)
    }

    /// Looks at one batch of the file's revisions; also returns where the next batch starts, if there is one.
    fn find_gone(
        &self,
        shared: &Shared,
        values: &Values<'_>,
        from: Revision,
    ) -> Result<(Gone, Option<Revision>), MvccError> {
        let batch_max = shared.options.compaction_batch_revisions.max(1);
        let mut cursor = values.cursor();
        let mut stored: Vec<(Revision, bool, &[u8])> = Vec::with_capacity(batch_max.min(LOCKED_LOOKUPS_MAX));
        let mut pair = cursor.seek(&from.encode())?;
        while let Some((name, encoded)) = pair {
            let (revision, tombstone) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?;
            if revision.main > self.revision || stored.len() == batch_max {
                break;
            }
            stored.push((revision, tombstone, stored_key(revision, encoded)?));
            pair = cursor.next()?;
        }
        let mut gone = Gone::new();
        for part in stored.chunks(LOCKED_LOOKUPS_MAX) {
            let state = shared.state.read();
            let forgotten = part.iter().filter(|(revision, _, key)| !state.index.contains(key, *revision));
            gone.extend(forgotten.map(|(revision, tombstone, _)| (*revision, *tombstone)));
        }
        let next = stored.last().filter(|_| stored.len() == batch_max);
        Ok((gone, next.map(|(last, ..)| Revision { main: last.main, sub: last.sub.saturating_add(1) })))
    }
}

/// Has the index forget some keys' histories, behind a key; where to go on, if anywhere.
fn forget(shared: &Shared, after: Option<&[u8]>, revision: i64) -> Resume {
    let mut garbage = Garbage::default();
    let mut state = shared.state.write();
    let locked = Instant::now();
    let mut next = state.index.compact_step(after, revision, KEYS_PER_LOOK, &mut garbage);
    while next.is_some() && locked.elapsed() < LOCKED_MAX {
        next = state.index.compact_step(next.as_deref(), revision, KEYS_PER_LOOK, &mut garbage);
    }
    shared.metrics.keys_total.set(state.index.len() as i64);
    // Whoever waits is next: this thread would otherwise have the lock again before they wake.
    RwLockWriteGuard::unlock_fair(state);
    next
}

/// Marks history below `revision` as gone and hands the deletions to the backend thread, behind the entry in progress.
pub(super) fn request(shared: &Arc<Shared>, revision: i64, done: Option<Callback>) -> Result<(), MvccError> {
    shared.backend.check_usable()?;
    {
        let mut state = shared.state.write();
        if revision <= state.compact_revision {
            return Err(MvccError::Compacted { requested: revision, compacted: state.compact_revision });
        }
        if revision > state.current_revision {
            return Err(MvccError::Future { requested: revision, current: state.current_revision });
        }
        state.compact_revision = revision;
    }
    shared.metrics.compact_revision.set(revision);
    let scheduled = BucketWrite {
        bucket: buckets::META,
        key: Bytes::from_static(buckets::SCHEDULED_COMPACTION),
        value: Some(Bytes::copy_from_slice(&Revision { main: revision, sub: 0 }.encode())),
    };
    shared.backend.stage(shared, vec![scheduled], Some(Job::new(revision, done)));
    Ok(())
}
