//! How far the backend thread is with what takes long: told by the thread after every step, read by who asks.

use std::time::Duration;

use parking_lot::Mutex;

use crate::metrics::{Metrics, Time};

/// What a compaction does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionPhase {
    /// It waits for reads in progress below it.
    Reads,
    /// The index forgets.
    Index,
    /// The file is walked, and loses what the index has forgotten.
    File,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionProgress {
    /// What it does.
    pub phase: CompactionPhase,
    /// The file has been walked up to this revision.
    pub done_revision: i64,
    /// It ends at this one.
    pub target_revision: i64,
    /// Requests to compact that wait for this one.
    pub waiting: usize,
    /// Since it was begun.
    pub age: Duration,
}

/// How far it is that room is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimProgress {
    /// Somebody asked for a defragmentation, and waits.
    pub is_asked: bool,
    /// Open views of the file hold it up.
    pub is_held: bool,
    /// Pages moved so far.
    pub pages_moved: u64,
    /// Bytes by which the file was made shorter so far.
    pub bytes_given_back: u64,
    /// Since it was begun.
    pub age: Duration,
}

/// What the thread told last.
#[derive(Debug)]
pub(super) struct Upkeep {
    time: Time,
    /// `age` is when it began.
    compaction: Mutex<Option<CompactionProgress>>,
    /// `age` is when it began.
    reclaim: Mutex<Option<ReclaimProgress>>,
}

impl Upkeep {
    pub(super) fn new(time: Time) -> Upkeep {
        Upkeep { time, compaction: Mutex::new(None), reclaim: Mutex::new(None) }
    }

    pub(super) fn compaction(&self) -> Option<CompactionProgress> {
        let told = *self.compaction.lock();
        told.map(|told| CompactionProgress { age: self.time.now().saturating_sub(told.age), ..told })
    }

    pub(super) fn reclaim(&self) -> Option<ReclaimProgress> {
        let told = *self.reclaim.lock();
        told.map(|told| ReclaimProgress { age: self.time.now().saturating_sub(told.age), ..told })
    }

    /// Notes how far the compaction is that is under way, if one is. Its age is looked after here.
    pub(super) fn note_compaction(&self, progress: Option<CompactionProgress>, metrics: &Metrics) {
        metrics.compaction_running.set(i64::from(progress.is_some()));
        let mut told = self.compaction.lock();
        if let Some(progress) = progress {
            metrics.compaction_target_revision.set(progress.target_revision);
            metrics.compaction_done_revision.set(progress.done_revision);
        } else if let Some(ended) = *told {
            metrics.compaction_done_revision.set(ended.target_revision);
        }
        let began = told.filter(|told| progress.is_some_and(|now| now.target_revision == told.target_revision));
        let began = began.map_or_else(|| self.time.now(), |told| told.age);
        *told = progress.map(|progress| CompactionProgress { age: began, ..progress });
    }

    /// Notes how far it is that room is given back. Its age is looked after here.
    pub(super) fn note_reclaim(&self, progress: Option<ReclaimProgress>) {
        let mut told = self.reclaim.lock();
        let began = told.map_or_else(|| self.time.now(), |told| told.age);
        *told = progress.map(|progress| ReclaimProgress { age: began, ..progress });
    }
}
