//! Range reads: keys by the chunk, at one pinned revision, without a lock or a pinned file between chunks.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    KeyMeta, KeyRange, KeyValueRef, MvccError, RangeQuery, Revision, SortOrder,
    index::{Direction, Entry, Resume},
    pins::{Pin, ReadKind},
    selection::Selection,
    state::{LOCKED_WALK_KEYS_MAX, Shared, Source, State, VIEW_VALUES_MAX, Values},
};
use crate::{bolt, proto::mvccpb};

/// A range read in progress: keys come by the chunk, at one revision, without a lock held between chunks.
///
/// A compaction above its revision waits for it, for a bounded time; after that the next chunk is a
/// [`MvccError::Compacted`].
#[derive(Debug)]
pub struct RangeCursor {
    shared: Arc<Shared>,
    query: RangeQuery,
    at: i64,
    _pin: Pin,
    store_revision: i64,
    plan: Plan,
    more: bool,
    count: i64,
    /// The last key given, if the limit cut what is behind it.
    page_end: Resume,
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
        let (pin, store_revision) = {
            let state = shared.state.read();
            (Pin::new(&shared.pins, ReadKind::Range, state.readable(query.revision)?), state.current_revision)
        };
        let at = pin.revision();
        shared.metrics.range_total.inc();
        let plan = Plan::Done;
        let mut cursor = RangeCursor {
            shared,
            query: query.clone(),
            at,
            _pin: pin,
            store_revision,
            plan,
            more: false,
            count: 0,
            page_end: None,
        };
        cursor.plan = cursor.first_plan()?;
        Ok(cursor)
    }

    /// The store's revision when the cursor was opened (the response header's).
    pub fn store_revision(&self) -> i64 {
        self.store_revision
    }

    /// Visits up to `keys_max` further pairs in the answer's order; `false` once nothing is left.
    pub fn next_chunk(&mut self, keys_max: usize, visit: &mut dyn FnMut(KeyValueRef<'_>)) -> Result<bool, MvccError> {
        self.next_chunk_while(keys_max, &mut |kv| {
            visit(kv);
            ControlFlow::Continue(())
        })
    }

    /// Visits up to `keys_max` further pairs in the answer's order, or fewer: the chunk ends behind the pair at which
    /// `visit` breaks. `false` once nothing is left.
    pub fn next_chunk_while(
        &mut self,
        keys_max: usize,
        visit: &mut dyn FnMut(KeyValueRef<'_>) -> ControlFlow<()>,
    ) -> Result<bool, MvccError> {
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
                        self.more = walk.has_more(last.clone())?;
                        self.page_end = last.filter(|_| self.more);
                        self.count = match query.known_count {
                            Some(count) => count,
                            None => count(&self.shared, &query.range, self.at)?,
                        };
                    }
                    Next::End => self.count = query.known_count.unwrap_or(self.count),
                }
            }
            Plan::Count => self.count = count(&self.shared, &query.range, self.at)?,
            Plan::Sorted { entries, mut given } => {
                let end = given.saturating_add(keys_max.max(1)).min(entries.len());
                let part = &entries[given..end];
                self.shared.visit_values(self.at, part, &mut |kv| {
                    given += 1;
                    visit(kv)
                })?;
                if given < entries.len() {
                    self.plan = Plan::Sorted { entries, given };
                }
            }
            Plan::Values { pairs, mut given } => {
                let end = given.saturating_add(keys_max.max(1)).min(pairs.len());
                for kv in &pairs[given..end] {
                    given += 1;
                    if visit(kv.into()).is_break() {
                        break;
                    }
                }
                if given < pairs.len() {
                    self.plan = Plan::Values { pairs, given };
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

    /// The revision the pairs are read at.
    pub fn revision(&self) -> i64 {
        self.at
    }

    /// The key behind which the next page begins, if the limit cut an answer in key order. Known once the chunks are
    /// through.
    pub fn page_end(&self) -> Option<&[u8]> {
        self.page_end.as_deref()
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
            return Ok(Plan::Walk { after: query.after.as_deref().map(Into::into), given: 0 });
        }
        let (shared, at) = (&self.shared, self.at);
        let mut read = |entries: &[Entry], visit: &mut dyn FnMut(KeyValueRef<'_>)| {
            shared.visit_values(at, entries, &mut |kv| {
                visit(kv);
                ControlFlow::Continue(())
            })
        };
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
    visit: &mut dyn FnMut(KeyValueRef<'_>) -> ControlFlow<()>,
) -> Result<i64, MvccError> {
    let KeyRange::Single(key) = &query.range else { return Ok(0) };
    let found = shared.read_key(key, at, |pair| {
        let kv = KeyValueRef::from(pair);
        let revision = Revision { main: kv.mod_revision, sub: 0 };
        let (created, version, leased) = (kv.create_revision, kv.version, kv.lease != 0);
        if query.admits(&Entry { revision, created, version, leased }) {
            let _ = visit(kv);
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
        state.check_kept(at)?;
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
        self.check_kept(at)?;
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

/// A key to be given.
struct Found {
    given: Given,
    /// How many keys of the range have been looked at, this one included.
    seen: i64,
}

impl Found {
    fn source(&self) -> Option<&Source> {
        match &self.given {
            Given::Pair(source) => Some(source),
            Given::Bare { .. } => None,
        }
    }
}

/// What is to be given of a key.
enum Given {
    /// Its pair, from where it is.
    Pair(Source),
    /// Key and revisions alone, as the index has them; the key is the next so many bytes of those set aside.
    Bare { key_bytes: usize, entry: Entry },
}

impl Walk<'_> {
    /// Gives up to `keys_max` pairs behind `after`, `given` having been given before, or fewer if `visit` breaks. Also
    /// returns how many keys there are up to where it goes on, whether they passed the filters or not.
    fn give(
        &self,
        mut after: Resume,
        mut given: usize,
        keys_max: usize,
        visit: &mut dyn FnMut(KeyValueRef<'_>) -> ControlFlow<()>,
    ) -> Result<(Next, i64), MvccError> {
        let limit = self.query.limit().unwrap_or(usize::MAX);
        let chunk_end = given.saturating_add(keys_max.max(1)).min(limit);
        let mut seen = 0;
        while given < chunk_end {
            let wanted = (chunk_end - given).min(VIEW_VALUES_MAX);
            let (mut keys, mut looked_at) = (Vec::new(), seen);
            let (tx, (found, next)) = self.shared.view(|state| {
                let mut found = Vec::with_capacity(wanted);
                let next =
                    state.walk(&self.query.range, self.direction(), after.take(), self.at, &mut |key, entry| {
                        looked_at += 1;
                        if self.query.admits(&entry) {
                            found.push(Found { given: self.locate(state, key, entry, &mut keys), seen: looked_at });
                        }
                        if found.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    })?;
                Ok((found, next))
            })?;
            let (visited, last) = visit_found(&tx, &found, &keys, visit)?;
            given += visited;
            if let Some(last) = last {
                // Where the visitor broke, which need not be where the look ended.
                seen = found[visited - 1].seen;
                let next = if given < limit {
                    Next::Chunk { after: Some(last), given }
                } else {
                    Next::LimitReached { last: Some(last) }
                };
                return Ok((next, seen));
            }
            seen = looked_at;
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

/// Visits what a look at the state for which `tx` was pinned has found. Returns how many were visited, and the last key
/// if `visit` broke there.
fn visit_found(
    tx: &bolt::ReadTx,
    found: &[Found],
    mut keys: &[u8],
    visit: &mut dyn FnMut(KeyValueRef<'_>) -> ControlFlow<()>,
) -> Result<(usize, Resume), MvccError> {
    let (mut visited, mut last) = (0, None);
    Values::of(tx)?.visit_each(found, Found::source, |Found { given, .. }, pair| {
        let kv = match (given, pair) {
            (_, Some(pair)) => pair.into(),
            (Given::Bare { key_bytes, entry }, None) => {
                let (key, rest) = keys.split_at(*key_bytes);
                keys = rest;
                let KeyMeta { create_revision, mod_revision, version } = entry.meta();
                KeyValueRef { key, create_revision, mod_revision, version, value: &[], lease: 0 }
            }
            // What names a source comes with its pair.
            (Given::Pair(_), None) => return ControlFlow::Continue(()),
        };
        visited += 1;
        let flow = visit(kv);
        if flow.is_break() {
            last = Some(kv.key.into());
        }
        flow
    })?;
    Ok((visited, last))
}
