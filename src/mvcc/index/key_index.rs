//! The revisions of one key.

use super::Entry;
use crate::mvcc::Revision;

/// An entry as it is kept: 32 bytes. The lease mark is the lowest bit of what is the version otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    revision: Revision,
    created: i64,
    version_and_mark: i64,
}

impl From<Entry> for Packed {
    fn from(entry: Entry) -> Packed {
        let version_and_mark = entry.version.min(VERSION_MAX) << 1 | i64::from(entry.leased);
        Packed { revision: entry.revision, created: entry.created, version_and_mark }
    }
}

impl From<Packed> for Entry {
    fn from(packed: Packed) -> Entry {
        Entry {
            revision: packed.revision,
            created: packed.created,
            version: packed.version_and_mark >> 1,
            leased: packed.version_and_mark & 1 == 1,
        }
    }
}

/// The highest version there is room for; nobody puts a key so often.
pub(in crate::mvcc) const VERSION_MAX: i64 = i64::MAX >> 1;

/// What the index holds of a key: its newest revision inline, the older ones, if any are kept, on the heap.
///
/// The common key has one revision and costs these 40 bytes. A put after a tombstone opens a new generation: its
/// version is 1 again, and its creation its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyIndex {
    newest: Packed,
    older: Option<Box<Older>>,
}

/// Ascending by revision, all below the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Older(Vec<Packed>);

/// Most entries of one key that are freed on the spot.
const DROPPED_ENTRIES_MAX: usize = 1_024;

/// Histories that were forgotten. Freeing a long one takes time.
#[derive(Debug, Default)]
pub(in crate::mvcc) struct Garbage(Vec<Vec<Packed>>);

impl KeyIndex {
    pub(super) fn new(first: Entry) -> Self {
        KeyIndex { newest: first.into(), older: None }
    }

    /// Adds a revision above all others.
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert!(entry.revision > self.newest.revision, "revisions of a key only grow");
        self.older.get_or_insert_with(|| Box::new(Older(Vec::with_capacity(1)))).0.push(self.newest);
        self.newest = entry.into();
    }

    /// Whether the newest revision is not a tombstone.
    pub(super) fn is_live(&self) -> bool {
        !Entry::from(self.newest).is_tombstone()
    }

    /// The newest main revision.
    pub(super) fn newest_main(&self) -> i64 {
        self.newest.revision.main
    }

    /// How many revisions are kept.
    pub(super) fn revisions(&self) -> usize {
        self.older().len() + 1
    }

    /// The state at main revision `at`; `None` if the key did not exist then.
    pub(super) fn at(&self, at: i64) -> Option<Entry> {
        let entry = if self.newest.revision.main <= at {
            self.newest
        } else {
            let older = self.older();
            older[..older.partition_point(|entry| entry.revision.main <= at)].last().copied()?
        };
        let entry = Entry::from(entry);
        (!entry.is_tombstone()).then_some(entry)
    }

    /// Whether this very revision is still kept.
    pub(super) fn contains(&self, revision: Revision) -> bool {
        self.newest.revision == revision || self.older().binary_search_by_key(&revision, |entry| entry.revision).is_ok()
    }

    /// Forgets what no read at `revision` or above needs; `false` if nothing is left of the key.
    ///
    /// Everything above `revision` stays, everything at it stays (so that the changes of `revision` can still be told
    /// whole), and if there is nothing at it, the newest below stays unless it is a tombstone.
    pub(super) fn compact(&mut self, revision: i64, garbage: &mut Garbage) -> bool {
        if self.newest.revision.main < revision {
            if let Some(older) = self.older.take().filter(|older| older.0.len() > DROPPED_ENTRIES_MAX) {
                garbage.0.push(older.0);
            }
            return self.is_live();
        }
        let older = self.older();
        let below = older.partition_point(|entry| entry.revision.main < revision);
        let is_changed_at =
            self.newest.revision.main == revision || older.get(below).is_some_and(|e| e.revision.main == revision);
        let first_kept = match older[..below].last() {
            Some(last) if !is_changed_at && !Entry::from(*last).is_tombstone() => below - 1,
            _ => below,
        };
        self.forget(first_kept, garbage);
        true
    }

    fn forget(&mut self, count: usize, garbage: &mut Garbage) {
        let Some(older) = self.older.as_mut().filter(|_| count > 0) else { return };
        let kept = older.0.split_off(count);
        let forgotten = std::mem::replace(&mut older.0, kept);
        if older.0.is_empty() {
            self.older = None;
        }
        if forgotten.len() > DROPPED_ENTRIES_MAX {
            garbage.0.push(forgotten);
        }
    }

    fn older(&self) -> &[Packed] {
        self.older.as_ref().map_or(&[], |older| &older.0)
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.older().iter().copied().chain([self.newest]).map(Entry::from).collect()
    }
}
