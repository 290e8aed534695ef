//! Compaction: forgetting history below a revision, in steps that are bounded in time.
//!
//! New readers below the revision are refused the moment it is asked for. The deletions follow once everything up to the
//! revision is in the file and the reads in progress below it have ended or had their time: first the index forgets, then
//! bucket `key` is walked and loses what the index no longer holds. The index is asked revision by revision, so that
//! nothing needs to remember them all. Marks in bucket `meta` (etcd's) say which compaction was begun and which was
//! finished, so that a restart takes an unfinished one up again.
//!
//! A thread that is woken may have to wait until the one that runs has used its time slice up, whatever their priorities:
//! milliseconds, and every write wakes several. So a compaction never works for long at a time: a moment, then a pause.
//! What asks the index is done on the backend thread, since nobody who waits for a lock may have to wait for a thread of
//! lower priority. What needs no lock but the file's, the deletions and their commit, is most of the work, and is done by
//! one. Pauses are as long as the work before them took, a tenth of a second at most, and what pauses are asked for: it takes
//! about four times as long as its work on a machine that has processors to spare, and longer on one that has none, since
//! the thread of lower priority has to wait for one.

use std::{
    sync::Arc,
    thread,
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
use crate::{background::Helper, bolt};

/// Longest time a compaction works before it pauses, but for a commit: what a thread that is woken may have to wait for
/// it. While the index forgets, its lock is held so long: what a read or a write may have to wait for.
const WORK_MAX: Duration = Duration::from_micros(100);
/// Pause between two such pieces of work within one transaction of the file.
const WORK_PAUSE: Duration = Duration::from_micros(100);
/// Keys of the index that are compacted between two looks at the clock.
const KEYS_PER_LOOK: usize = 32;
/// Most revisions the index is asked for while its lock is held, for reading, and between two looks at the clock.
const LOCKED_LOOKUPS_MAX: usize = 128;
/// Deletions between two looks at the clock.
const DELETIONS_PER_LOOK: usize = 32;
/// Revisions that were found to be gone at which the walk through the file stops to have them deleted, in one commit: what
/// other commits, and those who wait for them, may have to wait for.
const DELETED_TOGETHER: usize = 1_500;
/// Most batches of revisions that are looked at for one such commit.
const STEP_BATCHES_MAX: usize = 10;

/// One compaction, for all who asked for it or for one below it.
pub(super) struct Job {
    revision: i64,
    /// How many requests it is for, whether or not they wait.
    requests: usize,
    done: Vec<Callback>,
    started: Option<Instant>,
    phase: Phase,
}

enum Phase {
    /// Reads in progress below are waited for.
    Reads,
    /// The index forgets, key by key behind this one.
    Index(Resume),
    /// The file is walked, and loses what the walk finds.
    File(Walk),
    /// All is deleted; the mark is missing.
    Mark,
}

/// How far the walk through the file is.
struct Walk {
    /// Where it goes on, if it does.
    next: Option<Revision>,
    /// Found, and not deleted yet.
    gone: Gone,
    /// Revisions looked at since something was deleted last, and how many at most.
    looked_at: usize,
    looked_at_max: usize,
}

/// What a step left to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// The next step should leave the processor, and locks, to others first.
    Again,
    /// The next step should leave the disk to others, too, and may follow after that share of the pause that is asked for.
    Pause(f64),
    /// A read in progress is waited for.
    Wait,
    /// Nothing, and that is durable.
    Finished,
}

/// What the index no longer holds: (revision, whether it is a tombstone).
type Gone = Vec<(Revision, bool)>;

impl Job {
    pub(super) fn new(revision: i64, done: Option<Callback>) -> Job {
        Job { revision, requests: 1, done: done.into_iter().collect(), started: None, phase: Phase::Reads }
    }

    /// Those who wait for it.
    pub(super) fn take_callbacks(&mut self) -> Vec<Callback> {
        std::mem::take(&mut self.done)
    }

    /// How many requests it is for.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    pub(super) fn has_begun(&self) -> bool {
        self.started.is_some()
    }

    /// Does what another one is to do as well. Neither has begun.
    pub(super) fn absorb(&mut self, mut other: Job) {
        self.revision = self.revision.max(other.revision);
        self.requests += other.requests;
        self.done.append(&mut other.done);
    }

    /// How far it is, `waiting` others coming after it. Its age is not known here.
    pub(super) fn progress(&self, waiting: usize) -> CompactionProgress {
        let (phase, done_revision) = match &self.phase {
            Phase::Reads => (CompactionPhase::Reads, 0),
            Phase::Index(_) => (CompactionPhase::Index, 0),
            Phase::File(walk) => (CompactionPhase::File, walk.done_revision().unwrap_or(self.revision)),
            Phase::Mark => (CompactionPhase::File, self.revision),
        };
        CompactionProgress { phase, done_revision, target_revision: self.revision, waiting, age: Duration::ZERO }
    }

    /// Does a bounded part of the work, with a helper for what can wait. After an error that can be overcome the same step
    /// may be tried again.
    pub(super) fn step(&mut self, shared: &Arc<Shared>, db: &bolt::Db, helper: &Helper) -> Result<Step, MvccError> {
        let started = *self.started.get_or_insert_with(Instant::now);
        match &mut self.phase {
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
                self.phase = if next.is_some() { Phase::Index(next) } else { Phase::File(Walk::begin(shared)) };
                Ok(Step::Again)
            }
            Phase::File(walk) => {
                if walk.goes_on() {
                    walk.look(shared, db, self.revision)?;
                    return Ok(Step::Again);
                }
                walk.delete(shared, db, helper)?;
                let share = walk.share_looked_at();
                walk.looked_at = 0;
                if walk.next.is_none() {
                    self.phase = Phase::Mark;
                }
                Ok(Step::Pause(share))
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
}

impl Walk {
    fn begin(shared: &Shared) -> Walk {
        let looked_at_max = shared.options.compaction_batch_revisions.max(1).saturating_mul(STEP_BATCHES_MAX);
        Walk { next: Some(Revision::default()), gone: Gone::new(), looked_at: 0, looked_at_max }
    }

    /// Up to where nothing is left to be deleted; `None`: everywhere.
    fn done_revision(&self) -> Option<i64> {
        self.gone.first().map(|(first, _)| first.main).or(self.next.map(|from| from.main))
    }

    /// Whether to look further before what was found is deleted.
    fn goes_on(&self) -> bool {
        self.next.is_some() && self.gone.len() < DELETED_TOGETHER && self.looked_at < self.looked_at_max
    }

    /// How much of what may be looked at for one commit was.
    fn share_looked_at(&self) -> f64 {
        self.looked_at as f64 / self.looked_at_max as f64
    }

    /// Looks at some of the file's revisions, up to the one that is compacted. What is gone by now stays so.
    fn look(&mut self, shared: &Shared, db: &bolt::Db, compacted: i64) -> Result<(), MvccError> {
        let started = Instant::now();
        // It ends before the deletion, so that the pages are free with the commit after that.
        let read = db.read()?;
        let values = Values::of(&read)?;
        while let Some(from) = self.next.filter(|_| self.goes_on()) {
            self.look_at_few(shared, &values, from, compacted)?;
            if started.elapsed() >= WORK_MAX {
                break;
            }
        }
        Ok(())
    }

    fn look_at_few(
        &mut self,
        shared: &Shared,
        values: &Values<'_>,
        from: Revision,
        compacted: i64,
    ) -> Result<(), MvccError> {
        let stored_max = LOCKED_LOOKUPS_MAX.min(self.looked_at_max - self.looked_at);
        let mut stored: Vec<(Revision, bool, &[u8])> = Vec::with_capacity(stored_max);
        let mut cursor = values.cursor();
        let mut pair = cursor.seek(&from.encode())?;
        while let Some((name, encoded)) = pair {
            let (revision, tombstone) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?;
            if revision.main > compacted || stored.len() == stored_max {
                break;
            }
            stored.push((revision, tombstone, stored_key(revision, encoded)?));
            pair = cursor.next()?;
        }
        self.looked_at += stored.len();
        let state = shared.state.read();
        let forgotten = stored.iter().filter(|(revision, _, key)| !state.index.contains(key, *revision));
        self.gone.extend(forgotten.map(|(revision, tombstone, _)| (*revision, *tombstone)));
        drop(state);
        let last = stored.last().filter(|_| stored.len() == stored_max);
        self.next = last.map(|(last, ..)| Revision { main: last.main, sub: last.sub.saturating_add(1) });
        Ok(())
    }

    /// Has the helper delete what was found. It holds nothing for more than a moment that anybody waits for but the file's
    /// write transaction, and so the backend thread, which waits here.
    fn delete(&mut self, shared: &Arc<Shared>, db: &bolt::Db, helper: &Helper) -> Result<(), MvccError> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let (of_helper, its_db, gone) = (Arc::clone(shared), db.clone(), std::mem::take(&mut self.gone));
        let (gone, outcome) = helper.run(move || {
            let outcome = delete(&of_helper, &its_db, &gone);
            (gone, outcome)
        });
        // Without room it is tried again.
        self.gone = gone;
        outcome?;
        shared.publish_file_metrics(db);
        self.gone.clear();
        Ok(())
    }
}

/// Deletes revisions from the file, in one commit.
fn delete(shared: &Shared, db: &bolt::Db, gone: &Gone) -> Result<(), MvccError> {
    let mut tx = db.write()?;
    let mut started = Instant::now();
    for part in gone.chunks(DELETIONS_PER_LOOK) {
        for (revision, tombstone) in part {
            if *tombstone {
                tx.delete(buckets::KEY, &revision.encode_tombstone())?;
            } else {
                tx.delete(buckets::KEY, &revision.encode())?;
            }
        }
        if started.elapsed() >= WORK_MAX {
            thread::sleep(WORK_PAUSE);
            started = Instant::now();
        }
    }
    tx.commit()?;
    shared.metrics.compaction_keys.inc_by(gone.len() as u64);
    Ok(())
}

/// Has the index forget some keys' histories, behind a key; where to go on, if anywhere.
fn forget(shared: &Shared, after: Option<&[u8]>, revision: i64) -> Resume {
    let mut garbage = Garbage::default();
    let mut state = shared.state.write();
    let locked = Instant::now();
    let mut next = state.index.compact_step(after, revision, KEYS_PER_LOOK, &mut garbage);
    while next.is_some() && locked.elapsed() < WORK_MAX {
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
