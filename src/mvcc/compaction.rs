//! Compaction: forgetting history below a revision, in bounded steps on the backend thread.
//!
//! New readers below the revision are refused the moment it is asked for. The deletions follow once everything up to the
//! revision is in the file and the reads in progress below it have ended or had their time: first the index forgets, then bucket `key` is walked and loses what the index no longer
//! holds. The index is asked revision by revision, so that nothing needs to remember them all. Marks in bucket `meta`
//! (etcd's) say which compaction was begun and which was finished, so that a restart takes an unfinished one up again.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    BucketWrite, Callback, KeyValueRef, MvccError, Revision, buckets,
    index::Resume,
    state::{Shared, Values},
};
use crate::bolt;

/// Most keys of the index that are compacted while its lock is held.
const LOCKED_KEYS_MAX: usize = 1_024;
/// Most revisions the index is asked for while its lock is held.
const LOCKED_LOOKUPS_MAX: usize = 256;

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
                let mut state = shared.state.write();
                let next = state.index.compact_step(after.as_deref(), self.revision, LOCKED_KEYS_MAX);
                shared.metrics.keys_total.set(state.index.len() as i64);
                drop(state);
                self.phase = if next.is_some() { Phase::Index(next) } else { Phase::File(Revision::default()) };
                Ok(Step::Again)
            }
            Phase::File(from) => {
                let (gone, next) = self.find_gone(shared, db, *from)?;
                delete(shared, db, &gone)?;
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

    /// Looks at one batch of the file's revisions; also returns where the next batch starts, if there is one.
    fn find_gone(&self, shared: &Shared, db: &bolt::Db, from: Revision) -> Result<(Gone, Option<Revision>), MvccError> {
        let batch_max = shared.options.compaction_batch_revisions.max(1);
        let tx = db.read()?;
        let mut cursor = Values::of(&tx)?.cursor();
        let mut stored: Vec<(Revision, bool, &[u8])> = Vec::with_capacity(batch_max);
        let mut pair = cursor.seek(&from.encode())?;
        while let Some((name, encoded)) = pair {
            let (revision, tombstone) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?;
            if revision.main > self.revision || stored.len() == batch_max {
                break;
            }
            stored.push((revision, tombstone, KeyValueRef::decode_at(revision, encoded)?.key));
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

fn delete(shared: &Shared, db: &bolt::Db, gone: &Gone) -> Result<(), MvccError> {
    if gone.is_empty() {
        return Ok(());
    }
    let mut tx = db.write()?;
    for (revision, tombstone) in gone {
        if *tombstone {
            tx.delete(buckets::KEY, &revision.encode_tombstone())?;
        } else {
            tx.delete(buckets::KEY, &revision.encode())?;
        }
    }
    tx.commit()?;
    shared.metrics.compaction_keys.inc_by(gone.len() as u64);
    shared.publish_file_metrics(db);
    Ok(())
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
