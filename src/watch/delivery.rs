//! The thread's two ways of giving events: live, to synced watchers, and from history, to those that catch up.

use std::time::Instant;

use super::{
    engine::{Engine, Phase},
    events::{EventList, collect},
};
use crate::mvcc::{ChangeSet, MvccError};

/// Watchers one catch-up step serves.
const WATCHERS_PER_STEP_MAX: usize = 512;

/// What became of events for a watcher.
enum Given {
    /// It has them, or there were none for it.
    Yes,
    /// Its stream has no room from this revision on.
    NoRoom { first_revision: i64 },
    /// They could not be made; the watch has ended.
    Failed,
}

impl Engine {
    /// Gives change sets to the synced watchers they are for.
    pub(super) fn distribute(&mut self, mut changes: Vec<ChangeSet>, applied_at: Option<Instant>) {
        changes.retain(|set| set.revision > self.distributed);
        let Some(last) = changes.last().map(|set| set.revision) else { return };
        let lists = collect(&self.shared.history, &self.matcher, &changes, |_, group| group.synced > 0);
        self.distributed = last;
        for (group, mut list) in lists {
            // Failing watchers leave the group while it is gone through: not by reference.
            let members = self.matcher.group(group).map(|group| group.members.clone()).unwrap_or_default();
            for slot in members {
                if self.watcher(slot).is_none_or(|watcher| watcher.phase != Phase::Synced) {
                    continue;
                }
                if let Given::NoRoom { first_revision } = self.give(slot, &mut list, applied_at) {
                    self.block(slot, first_revision);
                }
            }
        }
    }

    /// Change sets up to `revision` are lost to the live path: every synced watcher becomes a cursor where they begin.
    pub(super) fn skip_to(&mut self, revision: i64) {
        if revision <= self.distributed {
            return;
        }
        let first = self.distributed + 1;
        self.distributed = revision;
        for slot in 0..self.watchers.len() {
            let Some(watcher) = self.watcher(slot) else { continue };
            if watcher.phase == Phase::Synced && watcher.next <= revision {
                watcher.next = watcher.next.max(first);
                self.set_reading(slot);
            }
        }
    }

    /// One bounded read of history, for the watcher whose turn it is and for all others that need the same part.
    pub(super) fn catch_up(&mut self) {
        let Some(front) = self.cursors.front() else { return };
        let Some(from) = self.watcher(front).map(|watcher| watcher.next) else { return };
        let (revisions_max, bytes_max) = (self.shared.options.catch_up_revisions_max, self.shared.step_bytes_max());
        match (self.shared.history.changes_since)(from, revisions_max, bytes_max) {
            Ok(changes) => self.feed(from, &changes),
            Err(MvccError::Compacted { compacted, .. }) => {
                let behind = self.cursors.between(i64::MIN, from.max(compacted - 1), usize::MAX);
                behind.into_iter().for_each(|slot| self.end_watch(slot, compacted, String::new()));
            }
            Err(error) => {
                tracing::error!(%error, revision = from, "a watch cannot read its history");
                self.end_watch(front, 0, error.to_string());
            }
        }
    }

    /// Gives what was read from `from` on to the cursors that point into it.
    fn feed(&mut self, from: i64, changes: &[ChangeSet]) {
        let (through, next) = match changes.last() {
            Some(last) => (last.revision, last.revision + 1),
            // Nothing from there on: then nothing is missing up to what the live path has given.
            None => (from.max(self.distributed), from.max(self.distributed + 1)),
        };
        let slots = self.cursors.between(from, through, WATCHERS_PER_STEP_MAX);
        let mut groups: Vec<usize> = slots.iter().filter_map(|s| self.watcher(*s).map(|w| w.group)).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut lists =
            collect(&self.shared.history, &self.matcher, changes, |at, _| groups.binary_search(&at).is_ok());
        let mut nothing = EventList::default();
        for slot in slots {
            let Some(group) = self.watcher(slot).map(|watcher| watcher.group) else { continue };
            match self.give(slot, lists.get_mut(&group).unwrap_or(&mut nothing), None) {
                Given::Yes => self.advance(slot, next),
                Given::NoRoom { first_revision } => self.block(slot, first_revision),
                Given::Failed => {}
            }
        }
    }

    /// A cursor has been given everything below `next`. Past the live path it joins that: only this thread moves
    /// either, so there is neither gap nor overlap.
    fn advance(&mut self, slot: usize, next: i64) {
        self.set_synced(slot);
        if let Some(watcher) = self.watcher(slot) {
            watcher.next = next;
        }
        if next <= self.distributed {
            self.set_reading(slot);
        }
    }

    /// The watcher waits, with nothing but its place in history, until its stream has room.
    fn block(&mut self, slot: usize, next: i64) {
        self.set_synced(slot);
        if let Some(watcher) = self.watcher(slot) {
            watcher.next = next;
        }
        self.set_blocked(slot);
    }

    fn give(&mut self, slot: usize, list: &mut EventList, applied_at: Option<Instant>) -> Given {
        if let Some(reason) = &list.failed {
            tracing::error!(reason, "a watch cannot read what a change replaced");
            self.end_watch(slot, 0, reason.clone());
            return Given::Failed;
        }
        let Some(watcher) = self.watchers.get_mut(slot).and_then(Option::as_mut) else { return Given::Failed };
        let Some(batch) = list.since(watcher.next) else { return Given::Yes };
        let header = self.distributed.max(batch.last_revision);
        let watch = (watcher.watch_id, watcher.fragment);
        if !watcher.stream.push_events(watch, header, &batch, applied_at, &mut self.wakes) {
            return Given::NoRoom { first_revision: batch.first_revision };
        }
        watcher.quiet = false;
        self.shared.metrics.events_total.inc_by(u64::try_from(batch.events.len()).unwrap_or(u64::MAX));
        Given::Yes
    }

    /// Ends a watch and tells its client why.
    fn end_watch(&mut self, slot: usize, compact_revision: i64, reason: String) {
        let header = self.distributed.max(compact_revision);
        let Some(watcher) = self.watchers.get(slot).and_then(Option::as_ref) else { return };
        let id = (watcher.watch_id, watcher.serial);
        if watcher.stream.end_watch(id, header, compact_revision, reason, &mut self.wakes) {
            self.shared.metrics.watcher_total.dec();
        }
        self.remove(slot);
    }
}
