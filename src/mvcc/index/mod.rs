//! The key index: for each key, in order, the revisions at which it can be read. Values are not its business.
//!
//! The map behind it is a detail: callers walk ranges by steps that look at a bounded number of keys and resume
//! behind a key, so that a lock around the index is never held for long.

mod key_index;
mod packed;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::ops::{Bound, ControlFlow};

use key_index::KeyIndex;
use tree::{Compaction, Level, Node, Sums};
use walk::Count;

use super::{KeyMeta, KeyRange, Record, Revision};

pub(super) use key_index::{Garbage, VERSION_MAX};

/// The key's state as one revision left it, as far as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) revision: Revision,
    /// The main revision that created the key; 0 in a tombstone.
    pub(super) created: i64,
    /// Puts since then; 0 in a tombstone.
    pub(super) version: i64,
    /// Whether a lease holds the key. Which one, the value's record knows.
    pub(super) leased: bool,
}

impl Entry {
    /// The state after a put at `revision`, given the state before.
    pub(super) fn after_put(revision: Revision, before: Option<Entry>, leased: bool) -> Entry {
        match before {
            Some(before) => {
                Entry { revision, created: before.created, version: before.version.saturating_add(1), leased }
            }
            None => Entry { revision, created: revision.main, version: 1, leased },
        }
    }

    pub(super) fn tombstone(revision: Revision) -> Entry {
        Entry { revision, created: 0, version: 0, leased: false }
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    pub(super) fn meta(&self) -> KeyMeta {
        KeyMeta { create_revision: self.created, mod_revision: self.revision.main, version: self.version }
    }
}

impl From<&Record> for Entry {
    fn from(record: &Record) -> Entry {
        let kv = &record.kv;
        Entry { revision: record.revision, created: kv.create_revision, version: kv.version, leased: kv.lease != 0 }
    }
}

/// Where a walk goes on: behind this key. `None`: it is through.
pub(super) type Resume = Option<Box<[u8]>>;

/// Which way a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    root: Node,
}

/// The keys of some range, ready to become a part of an index. Parts can be made at the same time.
pub(super) struct Part(Level);

impl Part {
    /// Takes all revisions of all keys of the range, ascending by key, then by revision.
    pub(super) fn from_sorted<'k>(entries: impl Iterator<Item = (&'k [u8], Entry)>) -> Part {
        let mut entries = entries.peekable();
        let keys = std::iter::from_fn(|| {
            let (key, first) = entries.next()?;
            let mut index = KeyIndex::new(first);
            while let Some((_, entry)) = entries.next_if(|(next, _)| *next == key) {
                index.push(entry);
            }
            Some((key, index))
        });
        Part(tree::leaves(keys))
    }
}

impl Index {
    /// The index of all keys, from parts of it: in order, no key in two of them.
    pub(super) fn of_parts(parts: Vec<Part>) -> Index {
        Index { root: tree::build(parts.into_iter().map(|part| part.0)) }
    }

    /// How many keys are known, live or not.
    pub(super) fn len(&self) -> usize {
        self.root.sums().keys as usize
    }

    /// How many keys of a range are known, and how many of them have a newest revision that is not a tombstone. Costs
    /// what the tree's height costs.
    pub(super) fn known_and_live(&self, range: &KeyRange) -> (u64, u64) {
        match range {
            KeyRange::Single(_) => (1, 1),
            range if range.is_empty() => (0, 0),
            _ => {
                let count = |part: &dyn Fn(&Sums) -> Option<u64>, key: &dyn Fn(&KeyIndex) -> u64| {
                    let mut count = Count { part, key, budget: usize::MAX, total: 0 };
                    count.count(&self.root, range.bounds(None));
                    count.total
                };
                let known = count(&|sums| Some(sums.keys), &|_| 1);
                (known, count(&|sums| Some(sums.live), &|index| u64::from(index.is_live())))
            }
        }
    }

    /// Adds a key's newest revision.
    pub(super) fn record(&mut self, key: &[u8], entry: Entry) {
        tree::record(&mut self.root, key, entry);
    }

    /// The key's state at main revision `at`; `None` if it did not exist then.
    pub(super) fn get(&self, key: &[u8], at: i64) -> Option<Entry> {
        self.root.get(key)?.at(at)
    }

    /// Whether this very revision of the key is still kept.
    pub(super) fn contains(&self, key: &[u8], revision: Revision) -> bool {
        self.root.get(key).is_some_and(|index| index.contains(revision))
    }

    /// Visits the range's keys that exist at main revision `at`, in `direction`, behind `after`, until `visit` breaks or
    /// `keys_max` keys have been looked at.
    pub(super) fn visit(
        &self,
        range: &KeyRange,
        direction: Direction,
        after: Option<&[u8]>,
        at: i64,
        keys_max: usize,
        visit: &mut dyn FnMut(&[u8], Entry) -> ControlFlow<()>,
    ) -> Resume {
        if let KeyRange::Single(key) = range {
            if let Some(entry) = self.get(key, at).filter(|_| after.is_none()) {
                let _ = visit(key, entry);
            }
            return None;
        }
        if range.is_empty() {
            return None;
        }
        let (mut looked_at, mut resume) = (0, None);
        let mut look = |key: &[u8], index: &KeyIndex| {
            looked_at += 1;
            let flow = index.at(at).map_or(ControlFlow::Continue(()), |entry| visit(key, entry));
            if flow.is_break() || looked_at == keys_max {
                resume = Some(key.into());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let _ = match direction {
            Direction::Ascending => walk::ascend(&self.root, range.bounds(after), &mut look),
            Direction::Descending => {
                let (low, high) = range.bounds(None);
                walk::descend(&self.root, (low, after.map_or(high, Bound::Excluded)), &mut look)
            }
        };
        resume
    }

    /// How many of the range's keys behind `after` exist at main revision `at`. Parts of the tree that have not changed
    /// since are not looked into; of the others, `keys_max` keys at most.
    pub(super) fn count(&self, range: &KeyRange, after: Option<&[u8]>, at: i64, keys_max: usize) -> (i64, Resume) {
        if let KeyRange::Single(key) = range {
            return (i64::from(after.is_none() && self.get(key, at).is_some()), None);
        }
        if range.is_empty() {
            return (0, None);
        }
        let mut count = Count {
            part: &|sums| (sums.newest <= at).then_some(sums.live),
            key: &|index| u64::from(index.at(at).is_some()),
            budget: keys_max,
            total: 0,
        };
        let resume = count.count(&self.root, range.bounds(after));
        (i64::try_from(count.total).unwrap_or(i64::MAX), resume)
    }

    /// Compacts up to `keys_max` keys behind `after`. Keys a compaction cannot change are passed by, many at a time. Long
    /// histories go to `garbage`, to be freed without a lock.
    pub(super) fn compact_step(
        &mut self,
        after: Option<&[u8]>,
        revision: i64,
        keys_max: usize,
        garbage: &mut Garbage,
    ) -> Resume {
        tree::compact(&mut self.root, after, &mut Compaction { revision, budget: keys_max.max(1), garbage })
    }
}
