//! Giving the file's unused room back: when it is done, and how fast. How it is done is the tree's business.
//!
//! The backend thread takes one small step at a time and looks after everything else in between, so that nobody waits
//! for more than one. A run begins when somebody asks for a defragmentation, when the free share of the file is above
//! its limit and no compaction is under way, or when room at the end of the file is of no use because nothing is written. Runs that nobody waits for go
//! slowly. A run that is held up for long by open views of the file ends without them; what they held goes the next time.

use std::time::{Duration, Instant};

use super::{
    Callback, LogPosition, MvccError, backend::KEY_BUCKET_FILL, state::Shared, upkeep::ReclaimProgress as Progress,
};
use crate::bolt::{BoltError, Db, Reclaim, ReclaimLimits, ReclaimProgress};

/// How much is left free, in percent of what is in use, when somebody asked.
const ASKED_KEPT_PERCENT: u64 = 1;
/// Leaves written for one that is saved, when nobody asked.
const BACKGROUND_JOINED_PER_SAVED_MAX: usize = 8;
/// Pause after a step, in times of what the step took: when somebody waits, and when nobody does.
const ASKED_PAUSE_FACTOR: u32 = 1;
const BACKGROUND_PAUSE_FACTOR: u32 = 9;
const ASKED_PAUSE_MIN: Duration = Duration::from_millis(1);
const BACKGROUND_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Pause while open views hold it up, and how long it waits for them in all.
const HELD_PAUSE: Duration = Duration::from_millis(10);
const HELD_MAX: Duration = Duration::from_secs(2);
/// Rest between two runs of the background.
const REST: Duration = Duration::from_secs(30);
/// What comes to it if the last one failed.
const REST_AFTER_ERROR: Duration = Duration::from_secs(600);
/// Time without a commit after which the unused end of the file is cut off, and its least size.
const IDLE_MIN: Duration = Duration::from_secs(10);
const IDLE_END_BYTES_MIN: u64 = 1 << 20;
/// Between two lines in the log.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// When room is given back without being asked for. Both limits must be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimOptions {
    /// Free pages, in percent of the file; 0: never.
    pub free_percent: u64,
    /// Free pages, in bytes.
    pub free_bytes: u64,
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        ReclaimOptions { free_percent: 25, free_bytes: 64 << 20 }
    }
}

/// Why a run was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Asked,
    FreeShare,
    Idle,
}

#[derive(Debug)]
pub(super) struct Reclaimer {
    run: Option<Run>,
    /// No run of the background begins before.
    rested_at: Instant,
    /// When nothing was written for long enough.
    idle_at: Option<Instant>,
}

struct Run {
    why: Why,
    reclaim: Reclaim,
    waiting: Vec<Callback>,
    started: Instant,
    step_at: Instant,
    held_since: Option<Instant>,
    report_at: Instant,
    before_bytes: u64,
    pages_moved: u64,
    bytes_given_back: u64,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("why", &self.why).finish_non_exhaustive()
    }
}

impl Reclaimer {
    pub(super) fn new(db: &Db) -> Reclaimer {
        let mut reclaimer = Reclaimer { run: None, rested_at: Instant::now(), idle_at: None };
        reclaimer.note_commit(db);
        reclaimer
    }

    /// When the next step, or the beginning of a run, is due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.run.as_ref().map_or(self.idle_at, |run| Some(run.step_at))
    }

    /// When the next step of a run that somebody asked for is due.
    pub(super) fn asked_due_at(&self) -> Option<Instant> {
        self.run.as_ref().filter(|run| run.why == Why::Asked).map(|run| run.step_at)
    }

    /// Begins a run for those who asked, or lets them share the one that others asked for.
    pub(super) fn ask(&mut self, shared: &Shared, db: &Db, mut waiting: Vec<Callback>) {
        if let Some(run) = self.run.as_mut().filter(|run| run.why == Why::Asked) {
            return run.waiting.append(&mut waiting);
        }
        shared.metrics.defrag_inflight.set(1);
        self.begin(Why::Asked, Reclaim::new(limits(ASKED_KEPT_PERCENT)), db);
        if let Some(run) = &mut self.run {
            run.waiting = waiting;
            shared.upkeep.note_reclaim(Some(run.progress()));
        }
    }

    /// After every commit of others: whether the free share has become too large. While history is compacted that has to
    /// wait: pages would be moved that are free a moment later.
    pub(super) fn look(&mut self, shared: &Shared, db: &Db, is_compacting: bool) {
        self.note_commit(db);
        let ReclaimOptions { free_percent, free_bytes } = shared.options.reclaim;
        if self.run.is_some() || is_compacting || free_percent == 0 || Instant::now() < self.rested_at {
            return;
        }
        let size = db.size_bytes();
        let free = size.saturating_sub(db.size_in_use_bytes());
        if free > free_bytes && u128::from(free) * 100 > u128::from(size) * u128::from(free_percent) {
            let joined_per_saved_max = BACKGROUND_JOINED_PER_SAVED_MAX;
            let limits = ReclaimLimits { joined_per_saved_max, ..limits(free_percent / 2) };
            self.begin(Why::FreeShare, Reclaim::new(limits), db);
        }
    }

    /// What is due: a step of the run, or the beginning of one. An error is final.
    pub(super) fn work(&mut self, shared: &Shared, db: &Db) -> Result<(), MvccError> {
        let Some(run) = &mut self.run else {
            self.idle_at = None;
            if db.unused_end_bytes() >= IDLE_END_BYTES_MIN {
                self.begin(Why::Idle, Reclaim::only_cut(limits(0)), db);
            }
            return Ok(());
        };
        let outcome = run.step(shared, db);
        shared.upkeep.note_reclaim(Some(run.progress()));
        shared.publish_file_metrics(db);
        let told = match outcome {
            Ok(ReclaimProgress::More) => return Ok(()),
            Ok(ReclaimProgress::Held) if run.may_wait() => return Ok(()),
            Ok(_) => Ok(shared.backend.durable()),
            Err(error @ (BoltError::Io { .. } | BoltError::Poisoned { .. })) => return Err(error.into()),
            // No room, or a page that makes no sense: the step was undone.
            Err(error) => Err(MvccError::from(error)),
        };
        self.end(shared, db, &told);
        Ok(())
    }

    /// Those who wait for a run that will not go on.
    pub(super) fn take_waiting(&mut self) -> Vec<Callback> {
        self.run.take().map(|run| run.waiting).unwrap_or_default()
    }

    fn note_commit(&mut self, db: &Db) {
        self.idle_at = (db.unused_end_bytes() >= IDLE_END_BYTES_MIN).then(|| Instant::now() + IDLE_MIN);
    }

    fn begin(&mut self, why: Why, reclaim: Reclaim, db: &Db) {
        let now = Instant::now();
        let before_bytes = db.size_bytes();
        tracing::info!(?why, before_bytes, in_use_bytes = db.size_in_use_bytes(), "giving unused room back");
        self.run = Some(Run {
            why,
            reclaim,
            waiting: Vec::new(),
            started: now,
            step_at: now,
            held_since: None,
            report_at: now + REPORT_INTERVAL,
            before_bytes,
            pages_moved: 0,
            bytes_given_back: 0,
        });
    }

    fn end(&mut self, shared: &Shared, db: &Db, told: &Result<LogPosition, MvccError>) {
        let Some(run) = self.run.take() else { return };
        shared.upkeep.note_reclaim(None);
        self.rested_at = Instant::now() + REST;
        self.idle_at = (db.unused_end_bytes() >= IDLE_END_BYTES_MIN).then_some(self.rested_at);
        let Run { why, before_bytes, pages_moved, .. } = run;
        let (after_bytes, took) = (db.size_bytes(), run.started.elapsed());
        match told {
            Ok(_) if run.held_since.is_some() => {
                tracing::warn!(?why, before_bytes, after_bytes, pages_moved, ?took, "open reads keep unused room");
            }
            Ok(_) => tracing::info!(?why, before_bytes, after_bytes, pages_moved, ?took, "unused room was given back"),
            Err(error) => {
                self.rested_at += REST_AFTER_ERROR;
                tracing::warn!(?why, %error, "unused room could not be given back");
            }
        }
        if why == Why::Asked {
            shared.metrics.defrag_inflight.set(0);
            shared.metrics.backend_defrag_duration.observe(took.as_secs_f64());
        }
        shared.backend.note_answered(run.waiting.len());
        for done in run.waiting {
            done(told.clone());
        }
    }
}

impl Run {
    fn step(&mut self, shared: &Shared, db: &Db) -> Result<ReclaimProgress, BoltError> {
        let began = Instant::now();
        let step = db.reclaim_step(&mut self.reclaim)?;
        let now = Instant::now();
        self.pages_moved += step.pages_moved;
        self.bytes_given_back += step.bytes_given_back;
        shared.metrics.reclaim_pages_moved.inc_by(step.pages_moved);
        shared.metrics.reclaim_bytes_given_back.inc_by(step.bytes_given_back);
        let took = now - began;
        self.step_at = now
            + match (step.progress, self.why) {
                (ReclaimProgress::Held, _) => HELD_PAUSE,
                (_, Why::Asked) => (took * ASKED_PAUSE_FACTOR).max(ASKED_PAUSE_MIN),
                _ => (took * BACKGROUND_PAUSE_FACTOR).max(BACKGROUND_PAUSE_MIN),
            };
        self.held_since = (step.progress == ReclaimProgress::Held).then(|| self.held_since.unwrap_or(now));
        if now >= self.report_at {
            self.report_at = now + REPORT_INTERVAL;
            let (why, pages_moved, bytes_given_back) = (self.why, self.pages_moved, self.bytes_given_back);
            tracing::info!(
                ?why,
                pages_moved,
                bytes_given_back,
                size_bytes = db.size_bytes(),
                "giving unused room back"
            );
        }
        Ok(step.progress)
    }

    /// How far it is. Its age is not known here.
    fn progress(&self) -> Progress {
        Progress {
            is_asked: self.why == Why::Asked,
            is_held: self.held_since.is_some(),
            pages_moved: self.pages_moved,
            bytes_given_back: self.bytes_given_back,
            age: Duration::ZERO,
        }
    }

    /// Whether to go on waiting for views that are open.
    fn may_wait(&self) -> bool {
        self.held_since.is_some_and(|since| since.elapsed() < HELD_MAX)
    }
}

fn limits(kept_free_percent: u64) -> ReclaimLimits {
    ReclaimLimits { kept_free_percent, fill: KEY_BUCKET_FILL, ..ReclaimLimits::default() }
}
