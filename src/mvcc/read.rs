//! Range reads: keys by the chunk, at one revision, without a lock or a pinned file between chunks.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    KeyRange, KeyValueRef, MvccError, RangeQuery, Revision, SortOrder,
    index::{Direction, Entry, Resume},
    selection::Selection,
    state::{LOCKED_WALK_KEYS_MAX, Shared, Source, State, VIEW_VALUES_MAX, Values},
};
use crate::{bolt, proto::mvccpb};

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
                let walk = Walk { shared: &self.shared, query, at: self.at };
                let (next, seen) = walk.give(after, given, keys_max, &mut visit)?;
                self.count += seen;
                match next {
                    Next::Chunk { after, given } => self.plan = Plan::Walk { after, given },
                    Next::LimitReached { last } => {
                        self.more = walk.has_more(last)?;
                        self.count = count(&self.shared, &query.range, self.at)?;
                    }
                    Next::End => {}
                }
            }
            Plan::Count => self.count = count(&self.shared, &query.range, self.at)?,
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
        let (shared, at) = (&self.shared, self.at);
        let mut read =
            |entries: &[Entry], visit: &mut dyn FnMut(KeyValueRef<'_>)| shared.visit_values(at, entries, visit);
        let mut selection = Selection::new(query);
        let mut after: Resume = None;
        loop {
            let mut is_settled = false;
            after = shared.state.read().walk(&query.range, Direction::Ascending, after, at, &mut |_, entry| {
                is_settled = !selection.offer(entry);
                if is_settled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            selection.absorb(&mut read)?;
            if is_settled || after.is_none() {
                break;
            }
        }
        let answer = selection.finish(&mut read)?;
        self.more = answer.more;
        self.count = count(shared, &query.range, at)?;
        Ok(match answer.pairs {
            Some(pairs) => Plan::Values { pairs, given: 0 },
            None => Plan::Sorted { entries: answer.entries, given: 0 },
        })
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
        let (created, version, leased) = (kv.create_revision, kv.version, kv.lease != 0);
        if query.admits(&Entry { revision, created, version, leased }) {
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
        after = shared.state.read().walk(range, Direction::Ascending, after, at, &mut |key, entry| {
            visit(key, entry);
            ControlFlow::Continue(())
        })?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// How many keys of a range exist at `at`. Where nothing has changed since, that is known without a look at the keys.
pub(super) fn count(shared: &Shared, range: &KeyRange, at: i64) -> Result<i64, MvccError> {
    let (mut total, mut after) = (0, None::<Box<[u8]>>);
    loop {
        let state = shared.state.read();
        state.check_readable(at)?;
        let (counted, next) = state.index.count(range, after.as_deref(), at, LOCKED_WALK_KEYS_MAX);
        total += counted;
        if next.is_none() {
            return Ok(total);
        }
        after = next;
    }
}

impl State {
    /// One step of a walk at `at`.
    fn walk(
        &self,
        range: &KeyRange,
        direction: Direction,
        after: Resume,
        at: i64,
        visit: &mut dyn FnMut(&[u8], Entry) -> ControlFlow<()>,
    ) -> Result<Resume, MvccError> {
        self.check_readable(at)?;
        Ok(self.index.visit(range, direction, after.as_deref(), at, LOCKED_WALK_KEYS_MAX, visit))
    }
}

/// A walk in the order of keys.
struct Walk<'a> {
    shared: &'a Shared,
    query: &'a RangeQuery,
    at: i64,
}

/// How a walk goes on after a chunk.
enum Next {
    /// Behind this key.
    Chunk { after: Resume, given: usize },
    /// The answer is whole; what is behind the last key that was looked at was cut off.
    LimitReached { last: Resume },
    /// The range is through.
    End,
}

/// What is to be given of a key.
enum Given {
    /// Its pair, from where it is.
    Pair(Source),
    /// Key and revisions alone, as the index has them; the key is the next so many bytes of those set aside.
    Bare { key_bytes: usize, entry: Entry },
}

impl Walk<'_> {
    /// Gives up to `keys_max` pairs behind `after`, `given` having been given before. Also returns how many keys it
    /// found, whether they passed the filters or not.
    fn give(
        &self,
        mut after: Resume,
        mut given: usize,
        keys_max: usize,
        visit: &mut dyn FnMut(KeyValueRef<'_>),
    ) -> Result<(Next, i64), MvccError> {
        let limit = self.query.limit().unwrap_or(usize::MAX);
        let chunk_end = given.saturating_add(keys_max.max(1)).min(limit);
        let mut seen = 0;
        while given < chunk_end {
            let wanted = (chunk_end - given).min(VIEW_VALUES_MAX);
            let mut keys = Vec::new();
            let (tx, (found, next)) = self.shared.view(|state| {
                let mut found = Vec::with_capacity(wanted);
                let next =
                    state.walk(&self.query.range, self.direction(), after.take(), self.at, &mut |key, entry| {
                        seen += 1;
                        if self.query.admits(&entry) {
                            found.push(self.locate(state, key, entry, &mut keys));
                        }
                        if found.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    })?;
                Ok((found, next))
            })?;
            given += found.len();
            visit_found(&tx, &found, &keys, visit)?;
            if next.is_none() {
                return Ok((Next::End, seen));
            }
            after = next;
        }
        let next = if given < limit { Next::Chunk { after, given } } else { Next::LimitReached { last: after } };
        Ok((next, seen))
    }

    fn locate(&self, state: &State, key: &[u8], entry: Entry, keys: &mut Vec<u8>) -> Given {
        if self.query.keys_only && !entry.leased {
            keys.extend_from_slice(key);
            return Given::Bare { key_bytes: key.len(), entry };
        }
        Given::Pair(state.locate(entry.revision))
    }

    /// Whether a key behind `after` passes the filters.
    fn has_more(&self, mut after: Resume) -> Result<bool, MvccError> {
        let mut is_any = false;
        while after.is_some() && !is_any {
            let (range, direction) = (&self.query.range, self.direction());
            after = self.shared.state.read().walk(range, direction, after, self.at, &mut |_, entry| {
                is_any = self.query.admits(&entry);
                if is_any { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        Ok(is_any)
    }

    fn direction(&self) -> Direction {
        if self.query.order == SortOrder::Descend { Direction::Descending } else { Direction::Ascending }
    }
}

/// Visits what a look at the state for which `tx` was pinned has found.
fn visit_found(
    tx: &bolt::ReadTx,
    found: &[Given],
    mut keys: &[u8],
    visit: &mut dyn FnMut(KeyValueRef<'_>),
) -> Result<(), MvccError> {
    let values = Values::of(tx)?;
    for given in found {
        match given {
            Given::Pair(Source::Memory(record)) => visit((&record.kv).into()),
            Given::Pair(Source::File(revision)) => visit(values.require(*revision)?),
            Given::Bare { key_bytes, entry } => {
                let (key, rest) = keys.split_at(*key_bytes);
                keys = rest;
                visit(KeyValueRef {
                    key,
                    create_revision: entry.created,
                    mod_revision: entry.revision.main,
                    version: entry.version,
                    value: &[],
                    lease: 0,
                });
            }
        }
    }
    Ok(())
}
