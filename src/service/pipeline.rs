//! Where writes are on their way through this member, and what holds them up: the evidence, gathered at one moment.
//!
//! A write that is not agreed on and a write that is not applied look alike from outside, and need different help. Here
//! are the indexes, the stages, the disk's times and what keeps room, side by side; `diagnosis` says what they mean.
//! Nothing here waits for the disk or for the cluster: it is asked for when those do not answer.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use prometheus::Gauge;
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    error::ApiError,
    metrics::{Metrics, Recent, Stage},
    mvcc::{CompactionProgress, OpenReads, ReclaimProgress},
    proto::etcdserverpb::AlarmType,
    watch::HubReport,
};

use super::{
    Caller, Core,
    diagnosis::{Finding, diagnose},
};

/// Watch streams, and open reads, that are told of one by one.
const TOLD_MAX: usize = 5;
/// Longest time the watches' thread is waited for. It answers in well under a millisecond.
const WATCHES_WAIT_MAX_MILLIS: u64 = 2_000;
/// How often the ages of what goes on are put into the metrics.
const LOOK_INTERVAL_MILLIS: u64 = 1_000;

/// How far this member is with the log, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    /// The last entry in the log.
    pub proposed: u64,
    /// The last entry a quorum has.
    pub committed: u64,
    /// The last entry that is applied here.
    pub applied: u64,
    /// The last entry whose effects are in the backend file.
    pub written: u64,
}

/// The last minute of each step that a write, or the file, goes through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// In the order of the stages.
    pub stages: Vec<(Stage, Recent)>,
    /// Commits of the backend file.
    pub backend_commit: Recent,
}

impl Durations {
    /// One stage.
    pub fn of(&self, stage: Stage) -> Recent {
        self.stages.iter().find(|(known, _)| *known == stage).map(|(_, recent)| *recent).unwrap_or_default()
    }
}

/// What room there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What counts towards the quota, in bytes.
    pub used_bytes: u64,
    /// The quota in bytes; `None`: no limit.
    pub quota_bytes: Option<u64>,
    /// Whether a NOSPACE alarm is raised in the cluster.
    pub nospace: bool,
    /// Which of the member's files cannot grow, and why, if one cannot.
    pub shortage: Option<String>,
    /// Applied bytes that are not in the backend file yet.
    pub unwritten_bytes: u64,
}

/// How this member is, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineReport {
    /// The leader's id, 0 if there is none.
    pub leader: u64,
    /// Whether that is this member.
    pub is_leader: bool,
    /// The term.
    pub term: u64,
    /// How far it is with the log.
    pub indexes: Indexes,
    /// Writes that wait for their outcome.
    pub pending: u64,
    /// How long the write waits that waits longest, of those in a log entry.
    pub oldest_write: Option<Duration>,
    /// How long things took in the last minute.
    pub durations: Durations,
    /// Revision of the newest change.
    pub revision: i64,
    /// Revision of the last compaction.
    pub compact_revision: i64,
    /// The watch streams, those that lag most first; `None`: the watches' thread did not answer.
    pub watches: Option<HubReport>,
    /// What room there is.
    pub room: Room,
    /// Whether a CORRUPT alarm is raised in the cluster.
    pub corrupt: bool,
    /// Reads in progress, the oldest first.
    pub open_reads: OpenReads,
    /// The compaction under way, if one is.
    pub compaction: Option<CompactionProgress>,
    /// Room being given back, if it is.
    pub reclaim: Option<ReclaimProgress>,
}

/// Tells how this member is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PipelineService {
    core: Core,
    metrics: Arc<Metrics>,
}

impl PipelineService {
    pub(super) fn new(core: Core, metrics: &Metrics) -> PipelineService {
        PipelineService { core, metrics: Arc::new(metrics.clone()) }
    }

    /// How this member is, and what is wrong with that, the worst first. For those who may do what concerns everybody: it
    /// tells who is connected.
    pub async fn report(&self, caller: &Caller) -> Result<(PipelineReport, Vec<Finding>), ApiError> {
        self.core.require_observer(caller)?;
        let watches = self.watches().await;
        let report = self.look(watches);
        let findings = diagnose(&report);
        Ok((report, findings))
    }

    async fn watches(&self) -> Option<HubReport> {
        let (sender, report) = oneshot::channel();
        self.core.state.hub.report(TOLD_MAX, move |report| {
            // Whoever asked may be gone.
            let _ = sender.send(report);
        });
        timeout(Duration::from_millis(WATCHES_WAIT_MAX_MILLIS), report).await.ok()?.ok()
    }

    fn look(&self, watches: Option<HubReport>) -> PipelineReport {
        let Core { state, consensus, quota, .. } = &self.core;
        let metrics = &self.metrics;
        let status = consensus.status();
        let stages = Stage::ALL.map(|stage| (stage, metrics.stages.of(stage).recent()));
        PipelineReport {
            leader: status.leader,
            is_leader: status.is_leader,
            term: status.term,
            indexes: Indexes {
                proposed: status.last_log_index,
                committed: status.committed,
                applied: status.applied,
                written: state.store.durable_position().index,
            },
            pending: u64::try_from(metrics.proposals_pending.get()).unwrap_or(0),
            oldest_write: consensus.oldest_write_age(),
            durations: Durations { stages: stages.to_vec(), backend_commit: metrics.backend_commit.recent() },
            // The store's own are behind a lock that an apply may hold.
            revision: metrics.current_revision.get(),
            compact_revision: metrics.compact_revision.get(),
            watches,
            room: Room {
                used_bytes: state.store.used_bytes(),
                quota_bytes: quota.bytes_max(),
                nospace: state.alarms.is_raised(AlarmType::Nospace),
                shortage: consensus.shortage(),
                unwritten_bytes: state.store.unwritten_bytes(),
            },
            corrupt: state.alarms.is_raised(AlarmType::Corrupt),
            open_reads: state.store.open_reads(TOLD_MAX),
            compaction: state.store.compaction(),
            reclaim: state.store.reclaim(),
        }
    }
}

/// Puts into the metrics how long what goes on has been going on, for ever.
pub(super) async fn keep(core: Core, metrics: Metrics) {
    let running = |name: &str| metrics.stage_running.with_label_values(&[name]);
    let mut steps: Vec<_> = [Stage::WalWrite, Stage::Fsync, Stage::Apply]
        .map(|stage| (metrics.stages.of(stage).clone(), running(stage.name())))
        .to_vec();
    steps.push((metrics.backend_commit.clone(), running("backend_commit")));
    let mut ticks = interval(Duration::from_millis(LOOK_INTERVAL_MILLIS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (timed, gauge) in &steps {
            set_age(gauge, timed.recent().running);
        }
        set_age(&metrics.oldest_write_age, core.consensus.oldest_write_age());
        let oldest_read = core.state.store.open_reads(1).oldest.first().map(|read| read.age);
        set_age(&metrics.oldest_read_age, oldest_read);
    }
}

fn set_age(gauge: &Gauge, age: Option<Duration>) {
    gauge.set(age.unwrap_or_default().as_secs_f64());
}
