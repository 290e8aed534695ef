//! Compaction of the history without being asked.
//!
//! Periodic: revisions younger than the retention are kept. Revision: the newest so many are kept. Only the leader
//! compacts, but every member takes the samples, so that a new leader knows where to begin.

use std::{collections::VecDeque, time::Duration};

use tokio::{
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    config::AutoCompaction,
    error::ApiError,
    proto::{etcdserverpb::CompactionRequest, revgatepb::internal_raft_request::Request},
};

use super::Core;

/// Longest time between two periodic compactions.
const PERIOD_MAX_SECS: u64 = 3600;
/// Samples of the revision taken in one period.
const SAMPLES_PER_PERIOD: u32 = 10;
/// Most samples kept: a retention of about eleven years at one sample in six minutes.
const SAMPLES_MAX: usize = 1_000_000;
/// How often the revision mode looks.
const REVISION_MODE_INTERVAL_SECS: u64 = 300;

/// Compacts as configured, for ever; returns at once if it is off.
pub(super) async fn run(core: Core, mode: AutoCompaction) {
    let mut schedule = match mode {
        AutoCompaction::Off => return,
        AutoCompaction::Periodic(retention) => Schedule::Periodic(Periodic::new(retention)),
        AutoCompaction::Revision(kept) => Schedule::Revision { kept, compacted: 0 },
    };
    let start = Instant::now();
    let mut ticks = interval(schedule.tick());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = start.elapsed();
        // Not on this thread: an apply may hold the lock, and other tasks wait for this thread.
        let store = core.state.store.clone();
        let Ok(current) = spawn_blocking(move || store.revision()).await else { return };
        let due = schedule.sample(now, current);
        let Some(revision) = due.filter(|_| core.consensus.status().is_leader) else { continue };
        match core.propose_own(Request::Compaction(CompactionRequest { revision, physical: false })).await {
            // Compacted further by somebody else: as good.
            Ok(_) | Err(ApiError::Compacted) => {
                tracing::info!(revision, "compacted the history");
                schedule.done(now, revision);
            }
            Err(error) => tracing::warn!(revision, %error, "auto-compaction failed; it is tried again"),
        }
    }
}

/// When to compact, and up to where.
#[derive(Debug)]
enum Schedule {
    Periodic(Periodic),
    Revision { kept: i64, compacted: i64 },
}

impl Schedule {
    fn tick(&self) -> Duration {
        match self {
            Schedule::Periodic(periodic) => periodic.period / SAMPLES_PER_PERIOD,
            Schedule::Revision { .. } => Duration::from_secs(REVISION_MODE_INTERVAL_SECS),
        }
    }

    /// Takes note of the revision; what to compact now, if anything.
    fn sample(&mut self, now: Duration, revision: i64) -> Option<i64> {
        match self {
            Schedule::Periodic(periodic) => periodic.sample(now, revision),
            Schedule::Revision { kept, compacted } => {
                let due = revision.saturating_sub(*kept);
                (due > *compacted && due > 0).then_some(due)
            }
        }
    }

    fn done(&mut self, now: Duration, revision: i64) {
        match self {
            Schedule::Periodic(periodic) => periodic.done(now, revision),
            Schedule::Revision { compacted, .. } => *compacted = revision,
        }
    }
}

#[derive(Debug)]
struct Periodic {
    retention: Duration,
    period: Duration,
    /// When which revision was the newest, oldest first.
    samples: VecDeque<(Duration, i64)>,
    last_done: Option<Duration>,
    compacted: i64,
}

impl Periodic {
    fn new(retention: Duration) -> Periodic {
        let period = retention.clamp(Duration::from_millis(1), Duration::from_secs(PERIOD_MAX_SECS));
        Periodic { retention, period, samples: VecDeque::new(), last_done: None, compacted: 0 }
    }

    fn sample(&mut self, now: Duration, revision: i64) -> Option<i64> {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, revision));
        let kept_from = now.checked_sub(self.retention)?;
        // Of the samples that are old enough only the newest is still of use.
        let old = self.samples.partition_point(|(taken, _)| *taken <= kept_from);
        self.samples.drain(..old.saturating_sub(1));
        let (taken, due) = *self.samples.front()?;
        let rested = self.last_done.is_none_or(|done| now.saturating_sub(done) >= self.period);
        (taken <= kept_from && rested && due > self.compacted).then_some(due)
    }

    fn done(&mut self, now: Duration, revision: i64) {
        self.last_done = Some(now);
        self.compacted = revision;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Runs a schedule for so many ticks, with the tick's number as the revision; when (tick) which revision was compacted.
    fn run_ticks(mut schedule: Schedule, ticks: u32) -> Vec<(u32, i64)> {
        let mut compactions = Vec::new();
        for tick in 0..ticks {
            let now = schedule.tick() * tick;
            if let Some(revision) = schedule.sample(now, i64::from(tick)) {
                schedule.done(now, revision);
                compactions.push((tick, revision));
            }
        }
        compactions
    }

    #[test]
    fn periodic_within_the_hour_compacts_once_a_retention() {
        let schedule = Schedule::Periodic(Periodic::new(HOUR / 2));
        assert_eq!(schedule.tick(), HOUR / 20);
        assert_eq!(run_ticks(schedule, 32), [(11, 1), (21, 11), (31, 21)]);
    }

    #[test]
    fn periodic_beyond_the_hour_compacts_hourly_after_the_first_retention() {
        let schedule = Schedule::Periodic(Periodic::new(3 * HOUR));
        assert_eq!(schedule.tick(), HOUR / 10);
        assert_eq!(run_ticks(schedule, 52), [(31, 1), (41, 11), (51, 21)]);
    }

    #[test]
    fn a_failed_compaction_is_due_again_at_the_next_tick() {
        let mut schedule = Schedule::Periodic(Periodic::new(HOUR));
        let tick = schedule.tick();
        assert_eq!(schedule.sample(Duration::ZERO, 5), None);
        assert_eq!(schedule.sample(HOUR, 9), Some(5));
        assert_eq!(schedule.sample(HOUR + tick, 9), Some(5));
        schedule.done(HOUR + tick, 5);
        assert_eq!(schedule.sample(HOUR + 2 * tick, 9), None);
    }

    #[test]
    fn an_idle_store_is_not_compacted_again() {
        let mut schedule = Schedule::Periodic(Periodic::new(HOUR));
        assert_eq!(schedule.sample(Duration::ZERO, 5), None);
        assert_eq!(schedule.sample(HOUR, 5), Some(5));
        schedule.done(HOUR, 5);
        assert_eq!(schedule.sample(3 * HOUR, 5), None);
    }

    #[test]
    fn revision_mode_keeps_the_newest_revisions() {
        let mut schedule = Schedule::Revision { kept: 1000, compacted: 0 };
        assert_eq!(schedule.tick(), Duration::from_secs(300));
        assert_eq!(schedule.sample(Duration::ZERO, 1000), None);
        assert_eq!(schedule.sample(Duration::ZERO, 1700), Some(700));
        schedule.done(Duration::ZERO, 700);
        assert_eq!(schedule.sample(Duration::ZERO, 1700), None);
        assert_eq!(schedule.sample(Duration::ZERO, 1701), Some(701));
    }
}
