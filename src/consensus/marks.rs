//! When a log entry passed each stage on its way, noted by the threads that it passes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{metrics::StageTimes, wal::Written};

/// The times, in nanoseconds, plus one; 0 is not yet.
#[derive(Debug, Default)]
pub(super) struct Marks {
    began: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    committed: AtomicU64,
}

impl Marks {
    /// The log has made it durable.
    pub(super) fn durable(&self, written: &Written) {
        set(&self.began, written.began);
        set(&self.written, written.written);
        set(&self.durable, written.durable);
    }

    /// A quorum has it.
    pub(super) fn committed(&self, now: Duration) {
        set(&self.committed, now);
    }

    /// The stages up to its turn to be applied, for a request that was handed in at `handed_in`. What was not noted took no
    /// time: an entry that others have made durable may be applied before this member has.
    pub(super) fn stages(&self, handed_in: Duration, apply_began: Duration) -> StageTimes {
        let began = get(&self.began).unwrap_or(apply_began);
        let written = get(&self.written).unwrap_or(began);
        let durable = get(&self.durable).unwrap_or(written);
        let committed = get(&self.committed).unwrap_or(durable).max(durable);
        StageTimes {
            queue: began.saturating_sub(handed_in),
            wal_write: written.saturating_sub(began),
            fsync: durable.saturating_sub(written),
            replicate: committed.saturating_sub(durable),
            commit_to_apply: apply_began.saturating_sub(committed),
            ..StageTimes::default()
        }
    }
}

fn set(mark: &AtomicU64, at: Duration) {
    mark.store(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).saturating_add(1), Ordering::Release);
}

fn get(mark: &AtomicU64) -> Option<Duration> {
    mark.load(Ordering::Acquire).checked_sub(1).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_stages_are_the_whole_time() {
        let marks = Marks::default();
        marks.durable(&Written { began: at(3), written: at(5), durable: at(15) });
        marks.committed(at(18));
        let times = marks.stages(at(1), at(19));
        let expected = StageTimes {
            queue: at(2),
            wal_write: at(2),
            fsync: at(10),
            replicate: at(3),
            commit_to_apply: at(1),
            ..StageTimes::default()
        };
        assert_eq!(times, expected);
    }

    #[test]
    fn what_was_not_noted_took_no_time() {
        let all_queue = StageTimes { queue: at(6), ..StageTimes::default() };
        assert_eq!(Marks::default().stages(at(1), at(7)), all_queue);
    }
}
