//! Range reads: keys by the chunk, at one revision, without a lock or a pinned file between chunks.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    KeyRange, KeyValueRef, MvccError, RangeQuery, Revision, SortTarget,
    index::{Entry, Resume},
    state::{LOCKED_WALK_KEYS_MAX, Shared, VIEW_VALUES_MAX, visit_sources},
};
use crate::proto::mvccpb;

/// A range read in progress: keys come by the chunk, at one revision, without a lock held between chunks.
///
/// A compaction above its revision ends it: the next chunk is a [`MvccError::Compacted`].
#[derive(Debug)]
pub struct RangeCursor {
    shared: Arc<Shared>,
    query: RangeQuery,
    at: i64,
    store_revision: i64,
    plan: Plan,
    more: bool,
    count: i64,
}

/// What is left to do.
#[derive(Debug)]
enum Plan {
    /// One key, not read yet.
    Single,
    /// The index is walked in its own order, behind `after`.
    Walk {
        after: Resume,
        given: usize,
    },
    /// Only the count is wanted.
    Count,
    /// The answer was put in order; its pairs are read as they are given.
    Sorted {
        entries: Vec<Entry>,
        given: usize,
    },
    /// The answer was put in order of its values.
    Values {
        pairs: Vec<mvccpb::KeyValue>,
        given: usize,
    },
    Done,
}

impl RangeCursor {
    pub(super) fn open(shared: Arc<Shared>, query: &RangeQuery) -> Result<RangeCursor, MvccError> {
        shared.backend.check_usable()?;
        let (at, store_revision) = {
            let state = shared.state.read();
            (state.readable(query.revision)?, state.current_revision)
        };
        shared.metrics.range_total.inc();
        let plan = Plan::Done;
        let mut cursor = RangeCursor { shared, query: query.clone(), at, store_revision, plan, more: false, count: 0 };
        cursor.plan = cursor.first_plan()?;
        Ok(cursor)
    }

    /// The store's revision when the cursor was opened (the response header's).
    pub fn store_revision(&self) -> i64 {
        self.store_revision
    }

    /// Visits up to `keys_max` further pairs in the answer's order; `false` once nothing is left.
    pub fn next_chunk(&mut self, keys_max: usize, visit: &mut dyn FnMut(KeyValueRef<'_>)) -> Result<bool, MvccError> {
        let query = &self.query;
        let mut visit = |kv: KeyValueRef<'_>| visit(query.shown(kv));
        match std::mem::replace(&mut self.plan, Plan::Done) {
            Plan::Single => self.count = read_single(&self.shared, query, self.at, &mut visit)?,
            Plan::Walk { after, given } => {
                let mut walk = Walk { shared: &self.shared, query, at: self.at, count: 0, more: false };
                let next = walk.give(after, given, keys_max, &mut visit)?;
                (self.count, self.more) = (self.count + walk.count, self.more || walk.more);
                if let Some((after, given)) = next {
                    self.plan = Plan::Walk { after, given };
                }
            }
            Plan::Count => {
                walk_index(&self.shared, &query.range, self.at, &mut |_, _| self.count += 1)?;
            }
            Plan::Sorted { entries, given } => {
                let end = given.saturating_add(keys_max.max(1)).min(entries.len());
                self.shared.visit_values(self.at, &entries[given..end], &mut visit)?;
                if end < entries.len() {
                    self.plan = Plan::Sorted { entries, given: end };
                }
            }
            Plan::Values { pairs, given } => {
                let end = given.saturating_add(keys_max.max(1)).min(pairs.len());
                pairs[given..end].iter().for_each(|kv| visit(kv.into()));
                if end < pairs.len() {
                    self.plan = Plan::Values { pairs, given: end };
                }
            }
            Plan::Done => {}
        }
        Ok(!matches!(self.plan, Plan::Done))
    }

    /// Whether the limit cut the answer, and how many keys the range holds at the revision. Known once the chunks are through.
    pub fn more_and_count(&self) -> (bool, i64) {
        (self.more, self.count)
    }

    fn first_plan(&mut self) -> Result<Plan, MvccError> {
        let query = &self.query;
        if query.range.is_empty() {
            return Ok(Plan::Done);
        }
        if query.count_only {
            return Ok(Plan::Count);
        }
        if matches!(query.range, KeyRange::Single(_)) {
            return Ok(Plan::Single);
        }
        if query.is_in_key_order() {
            return Ok(Plan::Walk { after: None, given: 0 });
        }
        let mut entries = Vec::new();
        walk_index(&self.shared, &query.range, self.at, &mut |_, entry| {
            self.count += 1;
            if query.admits(&entry) {
                entries.push(entry);
            }
        })?;
        let (shared, at) = (&self.shared, self.at);
        let answer = Answer::arrange(query, entries, &mut |entries, visit| shared.visit_values(at, entries, visit))?;
        self.more = answer.more;
        Ok(match answer.pairs {
            Some(pairs) => Plan::Values { pairs, given: 0 },
            None => Plan::Sorted { entries: answer.entries, given: 0 },
        })
    }
}

/// An answer that is not in the index's order, filtered, put in order and cut.
pub(super) struct Answer {
    pub(super) entries: Vec<Entry>,
    /// Set if values had to be read for the order; then `entries` is empty.
    pub(super) pairs: Option<Vec<mvccpb::KeyValue>>,
    pub(super) more: bool,
}

/// Reads the pairs of entries, in the order given.
pub(super) type ReadPairs<'a> = dyn FnMut(&[Entry], &mut dyn FnMut(KeyValueRef<'_>)) -> Result<(), MvccError> + 'a;

impl Answer {
    /// `entries` are in order of their keys and have passed the filters.
    pub(super) fn arrange(
        query: &RangeQuery,
        mut entries: Vec<Entry>,
        read: &mut ReadPairs<'_>,
    ) -> Result<Answer, MvccError> {
        let limit = query.limit().unwrap_or(usize::MAX);
        let more = entries.len() > limit;
        if query.is_cut_unordered() {
            entries.truncate(limit.saturating_add(1));
        }
        if query.target != SortTarget::Value {
            query.sort_entries(&mut entries);
            entries.truncate(limit);
            return Ok(Answer { entries, pairs: None, more });
        }
        let mut pairs = Vec::with_capacity(entries.len());
        read(&entries, &mut |kv| pairs.push(kv.to_owned()))?;
        query.sort_pairs(&mut pairs);
        pairs.truncate(limit);
        Ok(Answer { entries: Vec::new(), pairs: Some(pairs), more })
    }
}

/// Reads the one key a query is about; returns the count.
fn read_single(
    shared: &Shared,
    query: &RangeQuery,
    at: i64,
    visit: &mut dyn FnMut(KeyValueRef<'_>),
) -> Result<i64, MvccError> {
    let KeyRange::Single(key) = &query.range else { return Ok(0) };
    let found = shared.read_key(key, at, |pair| {
        let kv = KeyValueRef::from(pair);
        let revision = Revision { main: kv.mod_revision, sub: 0 };
        if query.admits(&Entry { revision, created: kv.create_revision, version: kv.version }) {
            visit(kv);
        }
    })?;
    Ok(i64::from(found.is_some()))
}

/// Visits all keys of a range that exist at `at`, by steps, each under a short lock.
pub(super) fn walk_index(
    shared: &Shared,
    range: &KeyRange,
    at: i64,
    visit: &mut dyn FnMut(&[u8], Entry),
) -> Result<(), MvccError> {
    let mut after: Resume = None;
    loop {
        let state = shared.state.read();
        state.check_readable(at)?;
        after = state.index.visit(range, after.as_deref(), at, LOCKED_WALK_KEYS_MAX, &mut |key, entry| {
            visit(key, entry);
            ControlFlow::Continue(())
        });
        if after.is_none() {
            return Ok(());
        }
    }
}

/// One chunk of a walk in key order.
struct Walk<'a> {
    shared: &'a Shared,
    query: &'a RangeQuery,
    at: i64,
    count: i64,
    more: bool,
}

impl Walk<'_> {
    /// Gives up to `keys_max` pairs behind `after`, `given` having been given before. Returns where to go on.
    fn give(
        &mut self,
        mut after: Resume,
        mut given: usize,
        keys_max: usize,
        visit: &mut dyn FnMut(KeyValueRef<'_>),
    ) -> Result<Option<(Resume, usize)>, MvccError> {
        let limit = self.query.limit().unwrap_or(usize::MAX);
        let chunk_end = given.saturating_add(keys_max.max(1));
        while given < chunk_end.min(limit) {
            let wanted = (chunk_end.min(limit) - given).min(VIEW_VALUES_MAX);
            let (query, at, count) = (self.query, self.at, &mut self.count);
            let (tx, (sources, next)) = self.shared.view(|state| {
                state.check_readable(at)?;
                let mut sources = Vec::new();
                let keys_max = LOCKED_WALK_KEYS_MAX;
                let next = state.index.visit(&query.range, after.as_deref(), at, keys_max, &mut |_, entry| {
                    *count += 1;
                    if query.admits(&entry) {
                        sources.push(state.locate(entry.revision));
                    }
                    if sources.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                Ok((sources, next))
            })?;
            visit_sources(&tx, &sources, visit)?;
            given += sources.len();
            after = next;
            if after.is_none() {
                return Ok(None);
            }
        }
        if given < limit {
            return Ok(Some((after, given)));
        }
        self.count_rest(after)?;
        Ok(None)
    }

    /// The limit is reached: what is left is counted, and it is looked whether any of it was cut off.
    fn count_rest(&mut self, mut after: Resume) -> Result<(), MvccError> {
        while after.is_some() {
            let state = self.shared.state.read();
            state.check_readable(self.at)?;
            let (range, keys_max) = (&self.query.range, LOCKED_WALK_KEYS_MAX);
            let counted = if self.more {
                state.index.count(range, after.as_deref(), self.at, keys_max)
            } else {
                let mut count = 0;
                let next = state.index.visit(range, after.as_deref(), self.at, keys_max, &mut |_, entry| {
                    count += 1;
                    self.more |= self.query.admits(&entry);
                    if self.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                (count, next)
            };
            self.count += counted.0;
            after = counted.1;
        }
        Ok(())
    }
}
