//! What all handles, cursors and threads of one store share, and how a reader gets a consistent view of it.
//!
//! The apply loop is the only writer; readers are any threads. A reader pins the file, then looks at index and ring
//! under a short read lock, then reads values without one. What makes this sound: the file is known to hold every
//! revision up to `flushed_revision` as it was *before* pinning, and the ring every revision above `dropped_through`;
//! as long as the second is not above the first, each revision the index names is in one of them. Two commits between
//! pinning and looking can break that; then the file is pinned again under the lock, where no commit can interfere.
//! Deletions by a compaction do not: they are committed only after readers below it are refused and the index has
//! forgotten what is deleted, and a view of the file from before simply holds more.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use super::{
    KeyValueRef, MvccError, REVISION_BYTES, Record, Revision, StoreOptions,
    backend::Backend,
    buckets,
    index::{Entry, Index},
    pins::{PinnedFile, Pins},
    ring::Ring,
    shortage::Shortage,
    upkeep::Upkeep,
};
use crate::{bolt, metrics::Metrics, proto::mvccpb};

/// Most keys a walk looks at while it holds the lock.
pub(super) const LOCKED_WALK_KEYS_MAX: usize = 4_096;
/// Most values that are read from one view of the file.
pub(super) const VIEW_VALUES_MAX: usize = 1_000;
/// Values that are looked up in the file together: enough for their waits to overlap.
pub(super) const LOOKUPS_TOGETHER: usize = 64;

/// What the one lock guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) index: Index,
    pub(super) ring: Ring,
    pub(super) current_revision: i64,
    /// Reads that begin are refused below.
    pub(super) compact_revision: i64,
    /// Reads that had begun are broken off below: what they need may be deleted. At most the compact revision.
    pub(super) forgotten_revision: i64,
}

impl State {
    /// Whether a read at a revision can be answered.
    pub(super) fn check_readable(&self, revision: i64) -> Result<(), MvccError> {
        if revision > self.current_revision {
            return Err(MvccError::Future { requested: revision, current: self.current_revision });
        }
        if revision < self.compact_revision {
            return Err(MvccError::Compacted { requested: revision, compacted: self.compact_revision });
        }
        Ok(())
    }

    /// Whether a read in progress can go on.
    pub(super) fn check_kept(&self, revision: i64) -> Result<(), MvccError> {
        if revision < self.forgotten_revision {
            return Err(MvccError::Compacted { requested: revision, compacted: self.compact_revision });
        }
        Ok(())
    }

    /// The revision a request means, if it can be read.
    pub(super) fn readable(&self, requested: i64) -> Result<i64, MvccError> {
        if requested <= 0 {
            return Ok(self.current_revision);
        }
        self.check_readable(requested).map(|()| requested)
    }

    /// Where a change is to be found.
    pub(super) fn locate(&self, revision: Revision) -> Source {
        self.ring.get(revision).map_or(Source::File(revision), |record| Source::Memory(Arc::clone(record)))
    }
}

/// Where a change is.
#[derive(Debug)]
pub(super) enum Source {
    Memory(Arc<Record>),
    File(Revision),
}

impl Source {
    fn itself(&self) -> Option<&Source> {
        Some(self)
    }
}

/// Called if the store cannot go on.
pub(super) type FatalCallback = Box<dyn Fn(MvccError) + Send + Sync>;

pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// The file holds every change up to this main revision. Raised after each commit, before the ring lets go.
    pub(super) flushed_revision: AtomicI64,
    /// `None` once the store is closed.
    pub(super) db: RwLock<Option<bolt::Db>>,
    pub(super) backend: Backend,
    /// Held by the write transaction.
    pub(super) writer: Mutex<()>,
    pub(super) unwritten_bytes: AtomicU64,
    pub(super) pins: Arc<Pins>,
    pub(super) upkeep: Upkeep,
    pub(super) shortage: Shortage,
    pub(super) on_fatal: Mutex<Option<FatalCallback>>,
    pub(super) options: StoreOptions,
    pub(super) metrics: Metrics,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("flushed_revision", &self.flushed_revision).finish_non_exhaustive()
    }
}

impl Shared {
    /// The file, unless the store is closed.
    pub(super) fn db(&self) -> Result<bolt::Db, MvccError> {
        self.db.read().clone().ok_or(MvccError::Closed)
    }

    /// Pins the file.
    pub(super) fn pin(&self) -> Result<bolt::ReadTx, MvccError> {
        self.backend.check_usable()?;
        Ok(self.db.read().as_ref().ok_or(MvccError::Closed)?.read()?)
    }

    /// Pins the file for long: it is known to be open.
    pub(super) fn pin_long(&self) -> Result<PinnedFile, MvccError> {
        let revision = self.flushed_revision.load(Ordering::Acquire);
        Ok(PinnedFile::new(self.pin()?, &self.pins, revision))
    }

    /// Pins the file and looks at the state, so that every change `look` locates is where it says.
    pub(super) fn view<T>(
        &self,
        look: impl FnOnce(&State) -> Result<T, MvccError>,
    ) -> Result<(bolt::ReadTx, T), MvccError> {
        let held_through = self.flushed_revision.load(Ordering::Acquire);
        let mut tx = self.pin()?;
        let state = self.state.read();
        if state.ring.dropped_through() > held_through {
            tx = self.pin()?;
        }
        let seen = look(&state)?;
        Ok((tx, seen))
    }

    /// Hands the key's state at a revision (0: the current one) to `visit`; `None` if there was no such key.
    ///
    /// What is in memory costs no view of the file.
    pub(super) fn read_key<T>(
        &self,
        key: &[u8],
        revision: i64,
        visit: impl FnOnce(Pair<'_>) -> T,
    ) -> Result<Option<T>, MvccError> {
        self.backend.check_usable()?;
        let look = |state: &State| -> Result<Option<Source>, MvccError> {
            let at = state.readable(revision)?;
            Ok(state.index.get(key, at).map(|entry| state.locate(entry.revision)))
        };
        let source = look(&self.state.read())?;
        if let Some(Source::File(revision)) = source {
            let tx = self.pin()?;
            if let Some(kv) = Values::of(&tx)?.get(revision)? {
                return Ok(Some(visit(Pair::Borrowed(kv))));
            }
            // A compaction may have deleted it since the look: look again with the file pinned first.
            let (tx, source) = self.view(look)?;
            return source.map(|source| Ok(visit(Values::of(&tx)?.pair(&source)?))).transpose();
        }
        Ok(match source {
            Some(Source::Memory(record)) => Some(visit(Pair::Shared(&record.kv))),
            _ => None,
        })
    }

    /// A copy of the key's state at a revision (0: the current one).
    pub(super) fn get(&self, key: &[u8], revision: i64) -> Result<Option<mvccpb::KeyValue>, MvccError> {
        self.read_key(key, revision, |pair| match pair {
            Pair::Shared(kv) => kv.clone(),
            Pair::Borrowed(kv) => kv.to_owned(),
        })
    }

    /// Visits the values of index entries, all readable at `at`, in the order given, until `visit` breaks.
    pub(super) fn visit_values(
        &self,
        at: i64,
        entries: &[Entry],
        visit: &mut dyn FnMut(KeyValueRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), MvccError> {
        for part in entries.chunks(VIEW_VALUES_MAX) {
            let (tx, sources) = self.view(|state| {
                state.check_kept(at)?;
                Ok(part.iter().map(|entry| state.locate(entry.revision)).collect::<Vec<_>>())
            })?;
            let mut is_broken = false;
            Values::of(&tx)?.visit_each(&sources, Source::itself, |_, pair| {
                let flow = pair.map_or(ControlFlow::Continue(()), |pair| visit(pair.into()));
                is_broken = flow.is_break();
                flow
            })?;
            if is_broken {
                break;
            }
        }
        Ok(())
    }
}

/// A key's state where it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pair<'a> {
    /// In memory, where a copy shares the strings.
    Shared(&'a mvccpb::KeyValue),
    /// In a page.
    Borrowed(KeyValueRef<'a>),
}

impl<'a> From<Pair<'a>> for KeyValueRef<'a> {
    fn from(pair: Pair<'a>) -> Self {
        match pair {
            Pair::Shared(kv) => kv.into(),
            Pair::Borrowed(kv) => kv,
        }
    }
}

/// Bucket `key` of one view of the file.
pub(super) struct Values<'tx> {
    bucket: bolt::Bucket<'tx>,
}

impl<'tx> Values<'tx> {
    pub(super) fn of(tx: &'tx bolt::ReadTx) -> Result<Self, MvccError> {
        match tx.bucket(buckets::KEY)? {
            Some(bucket) => Ok(Values { bucket }),
            None => Err(MvccError::damaged(Revision::default(), "the file has no bucket `key`")),
        }
    }

    pub(super) fn cursor(&self) -> bolt::Cursor<'tx> {
        self.bucket.cursor()
    }

    /// Names that cut the bucket into parts of about the same size; see [`bolt::Bucket::landmarks`].
    pub(super) fn landmarks(&self, least: usize) -> Result<Vec<&'tx [u8]>, MvccError> {
        Ok(self.bucket.landmarks(least)?)
    }

    /// The pair of a change that a look at the state has located for which this view was pinned.
    pub(super) fn pair<'a>(&self, source: &'a Source) -> Result<Pair<'a>, MvccError>
    where
        'tx: 'a,
    {
        match source {
            Source::Memory(record) => Ok(Pair::Shared(&record.kv)),
            Source::File(revision) => Ok(Pair::Borrowed(self.require(*revision)?)),
        }
    }

    /// Visits items, each with the pair of the change it names, if it names one, until `visit` breaks. The changes are
    /// such as may be asked of [`pair`](Self::pair).
    pub(super) fn visit_each<T>(
        &self,
        items: &[T],
        source_of: impl Fn(&T) -> Option<&Source>,
        mut visit: impl FnMut(&T, Option<Pair<'_>>) -> ControlFlow<()>,
    ) -> Result<(), MvccError> {
        for together in items.chunks(LOOKUPS_TOGETHER) {
            let mut names = [[0; REVISION_BYTES]; LOOKUPS_TOGETHER];
            let in_file = together.iter().filter_map(|item| match source_of(item) {
                Some(Source::File(revision)) => Some(revision.encode()),
                Some(Source::Memory(_)) | None => None,
            });
            let count = names.iter_mut().zip(in_file).map(|(name, encoded)| *name = encoded).count();
            let asked = names.each_ref().map(|name| name.as_slice());
            let mut found = self.bucket.get_each(&asked[..count])?.into_iter();
            for item in together {
                let pair = match source_of(item) {
                    None => None,
                    Some(Source::Memory(record)) => Some(Pair::Shared(&record.kv)),
                    Some(Source::File(revision)) => {
                        let encoded = found.next().flatten();
                        let encoded = encoded.ok_or_else(|| MvccError::damaged(*revision, "the file lacks it"))?;
                        Some(Pair::Borrowed(decode(*revision, encoded)?))
                    }
                };
                if visit(item, pair).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn get(&self, revision: Revision) -> Result<Option<KeyValueRef<'tx>>, MvccError> {
        let Some(encoded) = self.bucket.get(&revision.encode())? else { return Ok(None) };
        decode(revision, encoded).map(Some)
    }

    fn require(&self, revision: Revision) -> Result<KeyValueRef<'tx>, MvccError> {
        self.get(revision)?.ok_or_else(|| MvccError::damaged(revision, "the file lacks it"))
    }
}

fn decode(revision: Revision, encoded: &[u8]) -> Result<KeyValueRef<'_>, MvccError> {
    let kv = KeyValueRef::decode_at(revision, encoded)?;
    if kv.mod_revision != revision.main {
        return Err(MvccError::damaged(revision, "it holds another revision's pair"));
    }
    Ok(kv)
}
