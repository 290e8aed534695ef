//! The thread's two ways of giving events: live, to synced watchers, and from history, to those that catch up.

use std::{collections::HashMap, time::Instant};

use super::{
    engine::{Engine, Phase},
    events::{EventList, collect},
    reader::{Ask, Found, Read, Seat},
    tail::Tail,
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
        let (revisions_max, bytes_max) = (self.shared.options.catch_up_revisions_max, self.shared.step_bytes_max());
        if let Some(tail) = &mut self.tail {
            tail.extend(&changes, revisions_max, bytes_max);
        }
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
        if let Some(tail) = &mut self.tail {
            tail.forget();
        }
        for slot in 0..self.watchers.len() {
            let Some(watcher) = self.watcher(slot) else { continue };
            if watcher.phase == Phase::Synced && watcher.next <= revision {
                watcher.next = watcher.next.max(first);
                self.set_reading(slot);
            }
        }
    }

    /// Asks for one bounded read of history, for the watcher whose turn it is and for all others that need the same part.
    /// There is one read at a time.
    pub(super) fn ask_for_history(&mut self) {
        if self.tail.is_some() {
            return;
        }
        let Some(ask) = self.next_ask() else { return };
        self.tail = Some(Tail::after(self.distributed));
        if self.asks.try_send(ask).is_err() {
            // There is room, as there is no other; and the reader outlives this thread, unless it panics.
            tracing::error!("history is read no more: its thread is gone");
        }
    }

    fn next_ask(&self) -> Option<Ask> {
        let front = self.cursors.front()?;
        let from = self.watchers.get(front)?.as_ref()?.next;
        let revisions_max = self.shared.options.catch_up_revisions_max;
        let last = from.saturating_add(i64::try_from(revisions_max).unwrap_or(i64::MAX) - 1);
        let (mut interests, mut numbers) = (Vec::new(), HashMap::new());
        let mut seat = |slot: usize| {
            let watcher = self.watchers.get(slot).and_then(Option::as_ref)?;
            let group = self.matcher.group(watcher.group)?;
            let interest = *numbers.entry(watcher.group).or_insert_with(|| {
                interests.push(group.interest.clone());
                interests.len() - 1
            });
            Some(Seat { slot, serial: watcher.serial, next: watcher.next, interest })
        };
        // Those that need the same revision come in the order of their slots: the front need not be among the first.
        let front = seat(front)?;
        let others =
            self.cursors.between(from, last, WATCHERS_PER_STEP_MAX).into_iter().filter(|slot| *slot != front.slot);
        let seats = std::iter::once(front).chain(others.filter_map(seat)).collect();
        let (distributed, bytes_max) = (self.distributed, self.shared.step_bytes_max());
        Some(Ask { from, revisions_max, bytes_max, distributed, front, seats, interests })
    }

    /// Gives what was read of history to those it was read for. Others have become cursors since, or are cursors no more.
    pub(super) fn take_history(&mut self, read: Read) {
        let Some(tail) = self.tail.take() else { return };
        match read.outcome {
            Ok(found) => self.feed(&read.seats, found, &tail),
            Err(MvccError::Compacted { compacted, .. }) => {
                let behind = self.cursors.between(i64::MIN, read.from.max(compacted - 1), usize::MAX);
                behind.into_iter().for_each(|slot| self.end_watch(slot, compacted, String::new()));
            }
            Err(error) => {
                tracing::error!(%error, revision = read.from, "a watch cannot read its history");
                if self.is_seated(&read.front) {
                    self.end_watch(read.front.slot, 0, error.to_string());
                }
            }
        }
    }

    /// Whether a cursor is still where it was when its read was asked for.
    fn is_seated(&self, seat: &Seat) -> bool {
        self.watchers.get(seat.slot).and_then(Option::as_ref).is_some_and(|watcher| {
            watcher.serial == seat.serial && watcher.next == seat.next && matches!(watcher.phase, Phase::Reading { .. })
        })
    }

    fn feed(&mut self, seats: &[Seat], mut found: Found, tail: &Tail) {
        let next = found.through + 1;
        let mut nothing = EventList::default();
        let mut joining = Vec::new();
        for seat in seats.iter().filter(|seat| seat.next <= next) {
            if !self.is_seated(seat) {
                continue;
            }
            match self.give(seat.slot, found.lists.get_mut(&seat.interest).unwrap_or(&mut nothing), None) {
                Given::Yes => {
                    self.advance(seat.slot, next);
                    if next <= self.distributed && tail.covers(next) {
                        joining.push(seat.slot);
                    }
                }
                Given::NoRoom { first_revision } => self.block(seat.slot, first_revision),
                Given::Failed => {}
            }
        }
        self.join(joining, tail);
    }

    /// Gives cursors what was distributed while their read was on its way. With that they have it all.
    fn join(&mut self, mut joining: Vec<usize>, tail: &Tail) {
        let mut groups: Vec<usize> = joining.iter().filter_map(|slot| self.watcher(*slot).map(|w| w.group)).collect();
        groups.sort_unstable();
        groups.dedup();
        for changes in tail.pieces() {
            let Some(through) = changes.last().map(|set| set.revision) else { continue };
            if joining.is_empty() {
                return;
            }
            let mut lists =
                collect(&self.shared.history, &self.matcher, changes, |at, _| groups.binary_search(&at).is_ok());
            let mut nothing = EventList::default();
            joining.retain(|slot| {
                let Some((group, next)) = self.watcher(*slot).map(|watcher| (watcher.group, watcher.next)) else {
                    return false;
                };
                match self.give(*slot, lists.get_mut(&group).unwrap_or(&mut nothing), None) {
                    Given::Yes => {
                        self.advance(*slot, next.max(through + 1));
                        true
                    }
                    Given::NoRoom { first_revision } => {
                        self.block(*slot, first_revision);
                        false
                    }
                    Given::Failed => false,
                }
            });
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
