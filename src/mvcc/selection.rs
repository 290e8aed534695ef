//! Answers that do not come in the order of keys: what is kept while the range is walked, and how it is ordered.
//!
//! With a limit no more than about twice as many are kept, however many there are.

use super::{KeyValueRef, MvccError, RangeQuery, SortTarget, index::Entry};
use crate::proto::mvccpb;

/// Fewest that are gathered before what is beyond the limit is dropped.
const KEPT_MIN: usize = 1_024;

/// Reads the pairs of entries, in the order given.
pub(super) type ReadPairs<'a> = dyn FnMut(&[Entry], &mut dyn FnMut(KeyValueRef<'_>)) -> Result<(), MvccError> + 'a;

/// An answer, filtered, put in order and cut.
pub(super) struct Answer {
    pub(super) entries: Vec<Entry>,
    /// Set if values had to be read for the order; then `entries` is empty.
    pub(super) pairs: Option<Vec<mvccpb::KeyValue>>,
    pub(super) more: bool,
}

/// An answer in the making. Entries are offered in order of their keys.
pub(super) struct Selection<'q> {
    query: &'q RangeQuery,
    limit: usize,
    admitted: usize,
    entries: Vec<Entry>,
    pairs: Vec<mvccpb::KeyValue>,
}

impl<'q> Selection<'q> {
    pub(super) fn new(query: &'q RangeQuery) -> Selection<'q> {
        let limit = query.limit().unwrap_or(usize::MAX);
        Selection { query, limit, admitted: 0, entries: Vec::new(), pairs: Vec::new() }
    }

    /// Takes an entry into account; `false` once no further one can change the answer.
    pub(super) fn offer(&mut self, entry: Entry) -> bool {
        if !self.query.admits(&entry) {
            return true;
        }
        self.admitted += 1;
        self.entries.push(entry);
        if self.query.is_cut_unordered() {
            return self.admitted <= self.limit;
        }
        if self.query.target != SortTarget::Value && self.entries.len() >= self.kept_max() {
            self.query.sort_entries(&mut self.entries);
            self.entries.truncate(self.limit);
        }
        true
    }

    /// Reads the values of what was offered so far if the order needs them, and drops what is beyond the limit.
    pub(super) fn absorb(&mut self, read: &mut ReadPairs<'_>) -> Result<(), MvccError> {
        if self.query.target == SortTarget::Value {
            let (query, limit, kept_max) = (self.query, self.limit, self.kept_max());
            for part in self.entries.chunks(KEPT_MIN) {
                let pairs = &mut self.pairs;
                read(part, &mut |kv| pairs.push(kv.to_owned()))?;
                if pairs.len() >= kept_max {
                    query.sort_pairs(pairs);
                    pairs.truncate(limit);
                }
            }
            self.entries.clear();
        }
        Ok(())
    }

    pub(super) fn finish(mut self, read: &mut ReadPairs<'_>) -> Result<Answer, MvccError> {
        self.absorb(read)?;
        let more = self.admitted > self.limit;
        if self.query.target == SortTarget::Value {
            self.query.sort_pairs(&mut self.pairs);
            self.pairs.truncate(self.limit);
            return Ok(Answer { entries: Vec::new(), pairs: Some(self.pairs), more });
        }
        self.query.sort_entries(&mut self.entries);
        self.entries.truncate(self.limit);
        Ok(Answer { entries: self.entries, pairs: None, more })
    }

    fn kept_max(&self) -> usize {
        self.limit.saturating_mul(2).max(KEPT_MIN)
    }
}
