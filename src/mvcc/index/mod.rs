//! The key index: for each key, in order, the revisions at which it can be read. Values are not its business.
//!
//! The map behind it is a detail: callers walk ranges by steps that look at a bounded number of keys and resume
//! behind a key, so that a lock around the index is never held for long.

mod key_index;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, btree_map},
    ops::{Bound, ControlFlow},
};

pub(super) use key_index::Garbage;
use key_index::KeyIndex;

use super::{KeyMeta, KeyRange, Revision};

/// The key's state as one revision left it, as far as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) revision: Revision,
    /// The main revision that created the key; 0 in a tombstone.
    pub(super) created: i64,
    /// Puts since then; 0 in a tombstone.
    pub(super) version: i64,
}

impl Entry {
    /// The state after a put at `revision`, given the state before.
    pub(super) fn after_put(revision: Revision, before: Option<Entry>) -> Entry {
        match before {
            Some(before) => Entry { revision, created: before.created, version: before.version.saturating_add(1) },
            None => Entry { revision, created: revision.main, version: 1 },
        }
    }

    pub(super) fn tombstone(revision: Revision) -> Entry {
        Entry { revision, created: 0, version: 0 }
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    pub(super) fn meta(&self) -> KeyMeta {
        KeyMeta { create_revision: self.created, mod_revision: self.revision.main, version: self.version }
    }
}

/// Where a walk goes on: behind this key. `None`: it is through.
pub(super) type Resume = Option<Box<[u8]>>;

#[derive(Debug, Default)]
pub(super) struct Index {
    keys: BTreeMap<Box<[u8]>, KeyIndex>,
}

impl Index {
    /// Builds the index from all revisions of all keys, ascending by key, then by revision.
    pub(super) fn from_sorted(entries: impl Iterator<Item = (Box<[u8]>, Entry)>) -> Index {
        let mut entries = entries.peekable();
        let keys = std::iter::from_fn(|| {
            let (key, first) = entries.next()?;
            let mut index = KeyIndex::new(first);
            while let Some((_, entry)) = entries.next_if(|(next, _)| *next == key) {
                index.push(entry);
            }
            Some((key, index))
        });
        // The map's bulk build: sorted input fills its nodes whole.
        Index { keys: keys.collect() }
    }

    /// How many keys are known, live or not.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many keys of a range are known, live or not, counted up to `keys_max`.
    pub(super) fn known(&self, range: &KeyRange, keys_max: usize) -> usize {
        match range {
            KeyRange::Single(_) => 1,
            _ => self.walk(range, None).take(keys_max).count(),
        }
    }

    /// Adds a key's newest revision.
    pub(super) fn record(&mut self, key: &[u8], entry: Entry) {
        match self.keys.get_mut(key) {
            Some(index) => index.push(entry),
            None => _ = self.keys.insert(key.into(), KeyIndex::new(entry)),
        }
    }

    /// The key's state at main revision `at`; `None` if it did not exist then.
    pub(super) fn get(&self, key: &[u8], at: i64) -> Option<Entry> {
        self.keys.get(key)?.at(at)
    }

    /// Whether this very revision of the key is still kept.
    pub(super) fn contains(&self, key: &[u8], revision: Revision) -> bool {
        self.keys.get(key).is_some_and(|index| index.contains(revision))
    }

    /// Visits the range's keys that exist at main revision `at`, ascending, behind `after`, until `visit` breaks or
    /// `keys_max` keys have been looked at.
    pub(super) fn visit(
        &self,
        range: &KeyRange,
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
        let mut looked_at = 0;
        for (key, index) in self.walk(range, after) {
            looked_at += 1;
            let flow = index.at(at).map_or(ControlFlow::Continue(()), |entry| visit(key, entry));
            if flow.is_break() || looked_at == keys_max {
                return Some(key.clone());
            }
        }
        None
    }

    /// How many of the range's keys behind `after` exist at main revision `at`, looking at `keys_max` keys at most.
    pub(super) fn count(&self, range: &KeyRange, after: Option<&[u8]>, at: i64, keys_max: usize) -> (i64, Resume) {
        let mut count = 0;
        let resume = self.visit(range, after, at, keys_max, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        (count, resume)
    }

    /// Compacts up to `keys_max` keys behind `after`. Long histories go to `garbage`, to be freed without a lock.
    pub(super) fn compact_step(
        &mut self,
        after: Option<&[u8]>,
        revision: i64,
        keys_max: usize,
        garbage: &mut Garbage,
    ) -> Resume {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut gone: Vec<Box<[u8]>> = Vec::new();
        let mut resume = None;
        for (looked_at, (key, index)) in (1..).zip(self.keys.range_mut::<[u8], _>((start, Bound::Unbounded))) {
            if !index.compact(revision, garbage) {
                gone.push(key.clone());
            }
            if looked_at == keys_max {
                resume = Some(key.clone());
                break;
            }
        }
        for key in gone {
            self.keys.remove(&key);
        }
        resume
    }

    fn walk<'a>(&'a self, range: &'a KeyRange, after: Option<&'a [u8]>) -> btree_map::Range<'a, Box<[u8]>, KeyIndex> {
        if range.is_empty() {
            return btree_map::Range::default();
        }
        self.keys.range::<[u8], _>(range.bounds(after))
    }
}
