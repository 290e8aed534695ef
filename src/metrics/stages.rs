//! The stages of a write, and when one write passed them.
//!
//! One after the other they are the whole time a client waits for a unary write: waiting until the log takes it,
//! one write and one sync of the log, agreement, waiting for the apply loop, being applied, being handed to the watches,
//! and being answered.

use std::time::Duration;

use prometheus::HistogramVec;

use super::{Time, Timed};

/// A stage of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From being handed in until the log begins to write it. Once a log entry, for the request that waited longest.
    Queue,
    /// Writing to the log. Once a sync.
    WalWrite,
    /// Syncing the log. Once a sync.
    Fsync,
    /// From being durable here until a quorum has it. Once a log entry.
    Replicate,
    /// From then until its turn to be applied. Once a log entry.
    CommitToApply,
    /// Being applied. Once a log entry.
    Apply,
    /// Being handed to the watches. Once a log entry.
    Notify,
    /// From being applied until its answer is made. Once a request.
    Respond,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Stage; 8] = [
        Stage::Queue,
        Stage::WalWrite,
        Stage::Fsync,
        Stage::Replicate,
        Stage::CommitToApply,
        Stage::Apply,
        Stage::Notify,
        Stage::Respond,
    ];

    /// As metrics and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Queue => "queue",
            Stage::WalWrite => "wal_write",
            Stage::Fsync => "fsync",
            Stage::Replicate => "replicate",
            Stage::CommitToApply => "commit_to_apply",
            Stage::Apply => "apply",
            Stage::Notify => "notify",
            Stage::Respond => "respond",
        }
    }
}

/// The time of each stage, for all writes.
#[derive(Clone, Debug)]
pub struct WriteStages {
    timed: [Timed; Stage::ALL.len()],
}

impl WriteStages {
    /// `log_write` and `log_sync` go under etcd's names too.
    pub(super) fn new(
        time: &Time,
        durations: &HistogramVec,
        log_write: prometheus::Histogram,
        log_sync: prometheus::Histogram,
    ) -> WriteStages {
        let timed = |stage: Stage| {
            let own = durations.with_label_values(&[stage.name()]);
            let histograms = match stage {
                Stage::WalWrite => vec![own, log_write.clone()],
                Stage::Fsync => vec![own, log_sync.clone()],
                _ => vec![own],
            };
            Timed::new(time, histograms)
        };
        WriteStages { timed: Stage::ALL.map(timed) }
    }

    /// One stage.
    pub fn of(&self, stage: Stage) -> &Timed {
        &self.timed[stage as usize]
    }
}

/// How long one write that has been applied was in each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// [`Stage::Queue`], of this request.
    pub queue: Duration,
    /// [`Stage::WalWrite`]
    pub wal_write: Duration,
    /// [`Stage::Fsync`]
    pub fsync: Duration,
    /// [`Stage::Replicate`]
    pub replicate: Duration,
    /// [`Stage::CommitToApply`]
    pub commit_to_apply: Duration,
    /// [`Stage::Apply`], of its whole log entry.
    pub apply: Duration,
    /// [`Stage::Notify`], of its whole log entry.
    pub notify: Duration,
    /// When it was applied, by [`Time`]: what comes after is [`Stage::Respond`].
    pub applied_at: Duration,
}

impl StageTimes {
    /// Every stage with its time, `now` being when the answer is made.
    pub fn by_stage(&self, now: Duration) -> [(Stage, Duration); Stage::ALL.len()] {
        [
            (Stage::Queue, self.queue),
            (Stage::WalWrite, self.wal_write),
            (Stage::Fsync, self.fsync),
            (Stage::Replicate, self.replicate),
            (Stage::CommitToApply, self.commit_to_apply),
            (Stage::Apply, self.apply),
            (Stage::Notify, self.notify),
            (Stage::Respond, now.saturating_sub(self.applied_at)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_named_once_and_in_their_order() {
        let times = StageTimes { applied_at: Duration::from_secs(3), ..Default::default() };
        let by_stage = times.by_stage(Duration::from_secs(5));
        assert_eq!(by_stage.map(|(stage, _)| stage), Stage::ALL);
        assert_eq!(by_stage[7].1, Duration::from_secs(2));
        for (index, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, index);
        }
    }
}
