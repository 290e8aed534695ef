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
/// The common key has one revision and costs these 32 bytes. A put after a tombstone opens a new generation: its
/// version is 1 again, and its creation its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyIndex {
    /// The newest main revision.
    main: i64,
    /// What created the newest entry's generation.
    created: i64,
    /// The rest of the newest entry: version and mark in the upper 32 bits, `sub` in the lower; or [`WHOLE`].
    rest: u64,
    older: Option<Box<Older>>,
}

/// The newest entry has numbers too large to be kept inline: it lies whole behind the older ones.
const WHOLE: u64 = u64::MAX;

/// What of an entry goes beside its main revision and its creation, if it fits.
fn rest_of(entry: Packed) -> Option<u64> {
    let version_and_mark = u32::try_from(entry.version_and_mark).ok()?;
    let sub = u32::try_from(entry.revision.sub).ok()?;
    Some(u64::from(version_and_mark) << 32 | u64::from(sub)).filter(|rest| *rest != WHOLE)
}

/// Ascending by revision, all below the newest, which comes last if it is [`WHOLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Older(Vec<Packed>);

/// Most entries of one key that are freed on the spot.
const DROPPED_ENTRIES_MAX: usize = 1_024;

/// Histories that were forgotten. Freeing a long one takes time.
#[derive(Debug, Default)]
pub(in crate::mvcc) struct Garbage(Vec<Vec<Packed>>);

impl KeyIndex {
    pub(super) fn new(first: Entry) -> Self {
        let mut index = KeyIndex { main: 0, created: 0, rest: 0, older: None };
        index.set_newest(first.into());
        index
    }

    fn set_newest(&mut self, entry: Packed) {
        (self.main, self.created) = (entry.revision.main, entry.created);
        self.rest = rest_of(entry).unwrap_or_else(|| {
            self.list().push(entry);
            WHOLE
        });
    }

    fn newest(&self) -> Packed {
        match self.older.as_ref().and_then(|older| older.0.last()).filter(|_| self.rest == WHOLE) {
            Some(whole) => *whole,
            None => Packed {
                revision: Revision { main: self.main, sub: (self.rest & u64::from(u32::MAX)) as i64 },
                created: self.created,
                version_and_mark: (self.rest >> 32) as i64,
            },
        }
    }

    fn list(&mut self) -> &mut Vec<Packed> {
        &mut self.older.get_or_insert_with(|| Box::new(Older(Vec::with_capacity(1)))).0
    }

    /// Adds a revision above all others.
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert!(entry.revision > self.newest().revision, "revisions of a key only grow");
        if self.rest != WHOLE {
            let before = self.newest();
            self.list().push(before);
        }
        self.set_newest(entry.into());
    }

    /// Whether the newest revision is not a tombstone.
    pub(super) fn is_live(&self) -> bool {
        !Entry::from(self.newest()).is_tombstone()
    }

    /// The newest main revision.
    pub(super) fn newest_main(&self) -> i64 {
        self.main
    }

    /// How many revisions are kept.
    pub(super) fn revisions(&self) -> usize {
        self.older().len() + 1
    }

    /// The state at main revision `at`; `None` if the key did not exist then.
    pub(super) fn at(&self, at: i64) -> Option<Entry> {
        let entry = if self.main <= at {
            self.newest()
        } else {
            let older = self.older();
            older[..older.partition_point(|entry| entry.revision.main <= at)].last().copied()?
        };
        let entry = Entry::from(entry);
        (!entry.is_tombstone()).then_some(entry)
    }

    /// Whether this very revision is still kept.
    pub(super) fn contains(&self, revision: Revision) -> bool {
        self.newest().revision == revision
            || self.older().binary_search_by_key(&revision, |entry| entry.revision).is_ok()
    }

    /// Forgets what no read at `revision` or above needs; `false` if nothing is left of the key.
    ///
    /// Everything above `revision` stays, everything at it stays (so that the changes of `revision` can still be told
    /// whole), and if there is nothing at it, the newest below stays unless it is a tombstone.
    pub(super) fn compact(&mut self, revision: i64, garbage: &mut Garbage) -> bool {
        if self.main < revision {
            let newest = self.newest();
            if let Some(older) = self.older.take().filter(|older| older.0.len() > DROPPED_ENTRIES_MAX) {
                garbage.0.push(older.0);
            }
            self.set_newest(newest);
            return self.is_live();
        }
        let older = self.older();
        let below = older.partition_point(|entry| entry.revision.main < revision);
        let is_changed_at = self.main == revision || older.get(below).is_some_and(|e| e.revision.main == revision);
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
        let list = self.older.as_ref().map_or(&[][..], |older| &older.0);
        if self.rest == WHOLE { &list[..list.len().saturating_sub(1)] } else { list }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.older().iter().copied().chain([self.newest()]).map(Entry::from).collect()
    }
}
