//! The ring: changes that are newer than the file, in memory, in order.
//!
//! It is what makes a put visible before it is written. Changes stay for one commit longer than they need to, so that
//! a reader that pinned the file just before a commit still finds here what its view of the file lacks.

use std::{collections::VecDeque, sync::Arc};

use super::{Record, Revision};

#[derive(Debug)]
pub(super) struct Ring {
    /// Ascending by revision. The revision is repeated outside the record for the search's sake.
    records: VecDeque<(Revision, Arc<Record>)>,
    dropped_through: i64,
}

impl Ring {
    /// An empty ring over a file that holds every change up to main revision `flushed_through`.
    pub(super) fn new(flushed_through: i64) -> Ring {
        Ring { records: VecDeque::new(), dropped_through: flushed_through }
    }

    /// Adds a change above all others.
    pub(super) fn push(&mut self, record: Arc<Record>) {
        debug_assert!(self.records.back().is_none_or(|(last, _)| *last < record.revision), "revisions only grow");
        self.records.push_back((record.revision, record));
    }

    /// The change of a revision, if it is here.
    pub(super) fn get(&self, revision: Revision) -> Option<&Arc<Record>> {
        if revision.main <= self.dropped_through {
            return None;
        }
        let at = self.records.binary_search_by_key(&revision, |(revision, _)| *revision).ok()?;
        Some(&self.records[at].1)
    }

    /// Every main revision above this one is here.
    pub(super) fn dropped_through(&self) -> i64 {
        self.dropped_through
    }

    /// The changes from main revision `main` on.
    pub(super) fn starting_at(&self, main: i64) -> impl Iterator<Item = &Arc<Record>> {
        let start = self.records.partition_point(|(revision, _)| revision.main < main);
        self.records.range(start..).map(|(_, record)| record)
    }

    /// Forgets the changes up to main revision `through`; they are handed over so that the caller can free them
    /// without a lock.
    pub(super) fn drop_through(&mut self, through: i64) -> Vec<(Revision, Arc<Record>)> {
        let count = self.records.partition_point(|(revision, _)| revision.main <= through);
        self.dropped_through = self.dropped_through.max(through);
        let dropped = self.records.drain(..count).collect();
        // A burst's memory is given back once it is over.
        if self.records.capacity() / 4 > self.records.len().max(CAPACITY_KEPT_RECORDS) {
            self.records.shrink_to(self.records.len().max(CAPACITY_KEPT_RECORDS) * 2);
        }
        dropped
    }
}

/// Room the ring keeps when it is empty: about what one commit takes.
const CAPACITY_KEPT_RECORDS: usize = 16_384;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails panics")]

    use super::*;
    use crate::proto::mvccpb;

    fn record(main: i64, sub: i64) -> Arc<Record> {
        Arc::new(Record { revision: Revision { main, sub }, tombstone: false, kv: mvccpb::KeyValue::default() })
    }

    #[test]
    fn what_is_dropped_is_gone_and_the_rest_is_found() {
        let mut ring = Ring::new(1);
        for (main, sub) in [(2, 0), (2, 1), (3, 0), (5, 0)] {
            ring.push(record(main, sub));
        }
        assert_eq!(ring.get(Revision { main: 2, sub: 1 }).unwrap().revision, Revision { main: 2, sub: 1 });
        assert_eq!(ring.get(Revision { main: 4, sub: 0 }), None);
        assert_eq!(ring.starting_at(3).count(), 2);
        assert_eq!(ring.drop_through(2).len(), 2);
        assert_eq!(ring.dropped_through(), 2);
        assert_eq!(ring.get(Revision { main: 2, sub: 1 }), None);
        assert_eq!(ring.starting_at(0).map(|record| record.revision.main).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(ring.drop_through(1).len(), 0);
        assert_eq!(ring.dropped_through(), 2);
    }
}
