//! Who is interested in a key. Watchers that want the same (range, filters, prev_kv) form one group: a change is
//! matched against groups and its events are listed once a group, however many watchers share it.
//!
//! Single keys are found by hash map, ranges by interval index. Knows watchers only as slot numbers.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    WatchSpec,
    intervals::{Interval, Intervals},
};
use crate::mvcc::{KeyRange, Record};

/// What all watchers of a group want.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Interest {
    range: KeyRange,
    no_put: bool,
    no_delete: bool,
    pub(super) prev_kv: bool,
}

impl Interest {
    pub(super) fn of(spec: &WatchSpec) -> Interest {
        Interest { range: spec.range.clone(), no_put: spec.no_put, no_delete: spec.no_delete, prev_kv: spec.prev_kv }
    }

    fn passes(&self, record: &Record) -> bool {
        if record.tombstone { !self.no_delete } else { !self.no_put }
    }
}

/// Watchers of one interest.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) interest: Interest,
    /// Watcher slots, in no order.
    pub(super) members: Vec<usize>,
    /// How many of them follow live. With none, live changes need no events built for this group.
    pub(super) synced: usize,
}

/// All groups, and the indexes from keys to them.
#[derive(Debug)]
pub(super) struct Matcher {
    groups: Vec<Option<Group>>,
    free: Vec<usize>,
    by_interest: HashMap<Interest, usize>,
    exact: HashMap<Bytes, Vec<usize>>,
    ranges: Intervals,
}

impl Matcher {
    pub(super) fn new() -> Matcher {
        Matcher {
            groups: Vec::new(),
            free: Vec::new(),
            by_interest: HashMap::new(),
            exact: HashMap::new(),
            ranges: Intervals::new(),
        }
    }

    /// The group of an interest, made if need be.
    pub(super) fn group_for(&mut self, interest: Interest) -> usize {
        if let Some(at) = self.by_interest.get(&interest) {
            return *at;
        }
        let at = self.free.pop().unwrap_or(self.groups.len());
        match place(&interest.range) {
            Place::Key(key) => self.exact.entry(key).or_default().push(at),
            Place::Range(interval) => self.ranges.insert(interval, at),
        }
        self.by_interest.insert(interest.clone(), at);
        let group = Some(Group { interest, members: Vec::new(), synced: 0 });
        if at == self.groups.len() {
            self.groups.push(group);
        } else {
            self.groups[at] = group;
        }
        at
    }

    /// One group for each of the interests, which differ, numbered in their order.
    pub(super) fn of(interests: Vec<Interest>) -> Matcher {
        let mut matcher = Matcher::new();
        for interest in interests {
            matcher.group_for(interest);
        }
        matcher
    }

    pub(super) fn group(&self, at: usize) -> Option<&Group> {
        self.groups.get(at).and_then(Option::as_ref)
    }

    pub(super) fn group_mut(&mut self, at: usize) -> Option<&mut Group> {
        self.groups.get_mut(at).and_then(Option::as_mut)
    }

    /// Forgets a group that has no members.
    pub(super) fn remove_if_empty(&mut self, at: usize) {
        let Some(group) = self.groups.get_mut(at).and_then(|slot| slot.take_if(|group| group.members.is_empty()))
        else {
            return;
        };
        self.by_interest.remove(&group.interest);
        self.free.push(at);
        match place(&group.interest.range) {
            Place::Key(key) => {
                if let Some(groups) = self.exact.get_mut(&key) {
                    groups.retain(|g| *g != at);
                    if groups.is_empty() {
                        self.exact.remove(&key);
                    }
                }
            }
            Place::Range(interval) => self.ranges.remove(&interval, at),
        }
    }

    /// Calls `visit` with each group, once, that is interested in the record.
    pub(super) fn visit(&self, record: &Record, visit: &mut dyn FnMut(usize, &Group)) {
        let mut interested = |at: usize| {
            if let Some(group) = self.group(at)
                && group.interest.passes(record)
            {
                visit(at, group);
            }
        };
        if let Some(groups) = self.exact.get(&record.kv.key) {
            groups.iter().for_each(|at| interested(*at));
        }
        self.ranges.stab(&record.kv.key, &mut interested);
    }
}

enum Place {
    Key(Bytes),
    Range(Interval),
}

fn place(range: &KeyRange) -> Place {
    match range {
        KeyRange::Single(key) => Place::Key(key.clone()),
        KeyRange::Bounded { start, end } => Place::Range(Interval { start: start.clone(), end: Some(end.clone()) }),
        KeyRange::From(start) => Place::Range(Interval { start: start.clone(), end: None }),
    }
}
