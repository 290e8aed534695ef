//! Watchers that read history and have room for what they read: whose turn it is, and who can share the read.

use std::collections::{BTreeMap, BTreeSet};

/// Watcher slots by turn and by the revision they need next.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    by_turn: BTreeMap<u64, usize>,
    by_revision: BTreeSet<(i64, usize)>,
    turn_next: u64,
}

impl Cursors {
    /// Queues a watcher behind all others. The turn is needed to remove it.
    pub(super) fn insert(&mut self, slot: usize, revision: i64) -> u64 {
        let turn = self.turn_next;
        self.turn_next += 1;
        self.by_turn.insert(turn, slot);
        self.by_revision.insert((revision, slot));
        turn
    }

    pub(super) fn remove(&mut self, slot: usize, revision: i64, turn: u64) {
        self.by_turn.remove(&turn);
        self.by_revision.remove(&(revision, slot));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// The watcher that has waited longest.
    pub(super) fn front(&self) -> Option<usize> {
        self.by_turn.first_key_value().map(|(_, slot)| *slot)
    }

    /// Up to `max` watchers that need a revision in `from..=to` next, those farthest behind first.
    pub(super) fn between(&self, from: i64, to: i64, max: usize) -> Vec<usize> {
        if from > to {
            return Vec::new();
        }
        self.by_revision.range((from, 0)..=(to, usize::MAX)).take(max).map(|(_, slot)| *slot).collect()
    }
}
