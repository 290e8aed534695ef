//! The write transaction: changes gathered beside the store, published together.
//!
//! What a change did to its key (creation, version) comes from the index alone; the file is read only for values that
//! are asked for. Until `end` nothing is visible outside.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use parking_lot::MutexGuard;

use super::{
    ChangeSet, KeyRange, KeyValueRef, MvccError, RangeQuery, Record, Revision,
    index::Entry,
    read::{RangeCursor, walk_index},
    selection::Selection,
    state::{Shared, VIEW_VALUES_MAX},
};
use crate::proto::mvccpb;

/// Changes published while the lock is held once; readers see none of them before the last is in.
const PUBLISH_CHANGES_MAX: usize = 4_096;

/// What a put did.
#[derive(Debug)]
pub struct PutOutcome {
    /// The key's state before, if it existed and was asked for.
    pub previous: Option<mvccpb::KeyValue>,
}

/// What a delete did: the keys that are gone, with their last state when it was asked for.
#[derive(Debug)]
pub struct DeleteOutcome {
    /// How many keys are gone.
    pub deleted: i64,
    /// Their last states, in order of keys, if asked for.
    pub previous: Vec<mvccpb::KeyValue>,
}

/// A key's place in its own history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMeta {
    /// The revision that created it.
    pub create_revision: i64,
    /// The revision that changed it last.
    pub mod_revision: i64,
    /// Puts since its creation.
    pub version: i64,
}

/// One write transaction on the keys: all its changes get one main revision and become visible together on `end`.
/// Reads through it see its own changes. There is one at a time. Dropped without `end` it leaves no trace.
#[derive(Debug)]
pub struct WriteTxn<'a> {
    shared: &'a Arc<Shared>,
    base_revision: i64,
    /// Change `n` has sub revision `n`.
    changes: Vec<Arc<Record>>,
    /// The newest of this transaction's changes of each key it changed.
    overlay: BTreeMap<Bytes, Entry>,
    puts: u64,
    deletes: u64,
    _the_only_writer: MutexGuard<'a, ()>,
}

impl<'a> WriteTxn<'a> {
    pub(super) fn begin(shared: &'a Arc<Shared>) -> WriteTxn<'a> {
        let the_only_writer = shared.writer.lock();
        let base_revision = shared.state.read().current_revision;
        WriteTxn {
            shared,
            base_revision,
            changes: Vec::new(),
            overlay: BTreeMap::new(),
            puts: 0,
            deletes: 0,
            _the_only_writer: the_only_writer,
        }
    }

    /// The revision before this transaction's changes.
    pub fn base_revision(&self) -> i64 {
        self.base_revision
    }

    /// base_revision, plus one if anything changed.
    pub fn revision(&self) -> i64 {
        self.base_revision + i64::from(!self.changes.is_empty())
    }

    /// The key's state now, including this transaction's changes.
    pub fn get(&self, key: &[u8]) -> Result<Option<mvccpb::KeyValue>, MvccError> {
        match self.overlay.get(key) {
            Some(entry) => Ok(self.own(entry).filter(|record| !record.tombstone).map(|record| record.kv.clone())),
            None => self.shared.get(key, self.base_revision),
        }
    }

    /// The key's (create_revision, mod_revision, version) now; touches no value and no file.
    pub fn key_meta(&self, key: &[u8]) -> Option<KeyMeta> {
        self.entry(key).map(|entry| entry.meta())
    }

    /// Sets a key. `lease` is 0 for none; whether it exists is the caller's business.
    pub fn put(&mut self, key: Bytes, value: Bytes, lease: i64, want_previous: bool) -> Result<PutOutcome, MvccError> {
        self.shared.backend.check_usable()?;
        let previous = if want_previous { self.get(&key)? } else { None };
        let entry = Entry::after_put(self.next_revision(), self.entry(&key), lease != 0);
        let kv = mvccpb::KeyValue {
            key: key.clone(),
            create_revision: entry.created,
            mod_revision: entry.revision.main,
            version: entry.version,
            value,
            lease,
        };
        self.change(key, entry, kv);
        self.puts += 1;
        Ok(PutOutcome { previous })
    }

    /// Deletes every key of the range that exists now, in order; each is a change of its own.
    pub fn delete_range(&mut self, range: &KeyRange, want_previous: bool) -> Result<DeleteOutcome, MvccError> {
        self.shared.backend.check_usable()?;
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        self.walk(range, &mut |key, entry| {
            keys.push(Bytes::copy_from_slice(key));
            if want_previous {
                entries.push(entry);
            }
        })?;
        let mut previous = Vec::with_capacity(entries.len());
        self.visit_values(&entries, &mut |kv| previous.push(kv.to_owned()))?;
        let deleted = i64::try_from(keys.len()).unwrap_or(i64::MAX);
        for key in keys {
            let revision = self.next_revision();
            let kv = mvccpb::KeyValue { key: key.clone(), mod_revision: revision.main, ..Default::default() };
            self.change(key, Entry::tombstone(revision), kv);
        }
        self.deletes += 1;
        Ok(DeleteOutcome { deleted, previous })
    }

    /// Reads with this transaction's own changes. `revision` in the query is honoured for older revisions.
    /// Returns `more` and `count` as [`RangeCursor::more_and_count`].
    pub fn range(&self, query: &RangeQuery, visit: &mut dyn FnMut(KeyValueRef<'_>)) -> Result<(bool, i64), MvccError> {
        let is_older = query.revision > 0 && query.revision <= self.base_revision;
        if self.changes.is_empty() || is_older {
            let mut cursor = RangeCursor::open(Arc::clone(self.shared), query)?;
            while cursor.next_chunk(VIEW_VALUES_MAX, visit)? {}
            return Ok(cursor.more_and_count());
        }
        if query.revision > self.revision() {
            return Err(MvccError::Future { requested: query.revision, current: self.revision() });
        }
        self.range_with_own(query, visit)
    }

    /// Publishes the changes to readers; `None` if there were none.
    pub fn end(self) -> Option<ChangeSet> {
        let metrics = &self.shared.metrics;
        metrics.put_total.inc_by(self.puts);
        metrics.delete_total.inc_by(self.deletes);
        if self.changes.is_empty() {
            return None;
        }
        let revision = self.base_revision + 1;
        let bytes = self.changes.iter().map(|record| record.cost_bytes() as u64).sum();
        self.shared.backend.note_changes(self.shared, self.changes.len(), bytes);
        self.publish(revision);
        metrics.current_revision.set(revision);
        Some(ChangeSet { revision, changes: self.changes.into() })
    }

    fn publish(&self, revision: i64) {
        for part in self.changes.chunks(PUBLISH_CHANGES_MAX) {
            let mut state = self.shared.state.write();
            for record in part {
                state.index.record(&record.kv.key, Entry::from(record.as_ref()));
                state.ring.push(Arc::clone(record));
            }
            if part.last().is_some_and(|record| record.revision.sub + 1 == self.changes.len() as i64) {
                state.current_revision = revision;
            }
            self.shared.metrics.keys_total.set(state.index.len() as i64);
        }
    }

    fn range_with_own(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(KeyValueRef<'_>),
    ) -> Result<(bool, i64), MvccError> {
        self.shared.metrics.range_total.inc();
        let (mut selection, mut count, mut is_settled) = (Selection::new(query), 0, query.count_only);
        self.walk(&query.range, &mut |_, entry| {
            count += 1;
            is_settled = is_settled || !selection.offer(entry);
        })?;
        let answer = selection.finish(&mut |entries, visit| self.visit_values(entries, visit))?;
        let mut visit = |kv: KeyValueRef<'_>| visit(query.shown(kv));
        match answer.pairs {
            Some(pairs) => pairs.iter().for_each(|kv| visit(kv.into())),
            None => self.visit_values(&answer.entries, &mut visit)?,
        }
        Ok((answer.more, count))
    }

    /// Visits the range's keys that exist now, in order: the store's as this transaction's changes left them.
    fn walk(&self, range: &KeyRange, visit: &mut dyn FnMut(&[u8], Entry)) -> Result<(), MvccError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut own = self.overlay.range::<[u8], _>(range.bounds(None)).peekable();
        let visit_own = |(key, entry): (&Bytes, &Entry), visit: &mut dyn FnMut(&[u8], Entry)| {
            if !entry.is_tombstone() {
                visit(key, *entry);
            }
        };
        walk_index(self.shared, range, self.base_revision, &mut |key, entry| {
            while let Some(before) = own.next_if(|(own, _)| own.as_ref() < key) {
                visit_own(before, visit);
            }
            match own.next_if(|(own, _)| own.as_ref() == key) {
                Some(same) => visit_own(same, visit),
                None => visit(key, entry),
            }
        })?;
        own.for_each(|rest| visit_own(rest, visit));
        Ok(())
    }

    /// Visits the pairs of entries `walk` found, in the order given.
    fn visit_values(&self, entries: &[Entry], visit: &mut dyn FnMut(KeyValueRef<'_>)) -> Result<(), MvccError> {
        for run in entries.chunk_by(|a, b| self.own(a).is_some() == self.own(b).is_some()) {
            match run.first().and_then(|entry| self.own(entry)) {
                Some(_) => {
                    run.iter().filter_map(|entry| self.own(entry)).for_each(|record| visit((&record.kv).into()));
                }
                None => self.shared.visit_values(self.base_revision, run, &mut |kv| {
                    visit(kv);
                    ControlFlow::Continue(())
                })?,
            }
        }
        Ok(())
    }

    /// This transaction's change, if the entry is one.
    fn own(&self, entry: &Entry) -> Option<&Arc<Record>> {
        if entry.revision.main <= self.base_revision {
            return None;
        }
        self.changes.get(usize::try_from(entry.revision.sub).ok()?)
    }

    fn entry(&self, key: &[u8]) -> Option<Entry> {
        match self.overlay.get(key) {
            Some(entry) => (!entry.is_tombstone()).then_some(*entry),
            None => self.shared.state.read().index.get(key, self.base_revision),
        }
    }

    fn next_revision(&self) -> Revision {
        Revision { main: self.base_revision + 1, sub: self.changes.len() as i64 }
    }

    fn change(&mut self, key: Bytes, entry: Entry, kv: mvccpb::KeyValue) {
        let tombstone = entry.is_tombstone();
        self.changes.push(Arc::new(Record { revision: entry.revision, tombstone, kv }));
        self.overlay.insert(key, entry);
    }
}
