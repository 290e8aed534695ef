//! What a range read asks for, and how its answer is filtered and ordered.

use bytes::Bytes;

use super::{KeyRange, KeyValueRef, index::Entry};
use crate::proto::mvccpb;

/// The order of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortOrder {
    /// Ascending by key; ascending by the target if that is not the key.
    #[default]
    None,
    /// Smallest first.
    Ascend,
    /// Greatest first.
    Descend,
}

/// What an answer is ordered by. Equals are in order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// The version.
    Version,
    /// The revision of the key's creation.
    CreateRevision,
    /// The revision of its last change.
    ModRevision,
    /// The value.
    Value,
}

/// A range read. Revision 0 and below means the current one, limit 0 and below no limit; a filter of 0 is none. (Nothing is
/// below a negative upper bound, as in etcd.)
#[derive(Clone, Debug)]
pub struct RangeQuery {
    /// The keys.
    pub range: KeyRange,
    /// The revision to read at; the current one if none is given.
    pub revision: i64,
    /// The most pairs that are answered.
    pub limit: i64,
    /// The answer's order.
    pub order: SortOrder,
    /// What the order is about.
    pub target: SortTarget,
    /// Leaves the values out.
    pub keys_only: bool,
    /// Answers with the count alone.
    pub count_only: bool,
    /// Leaves out keys last changed below this revision.
    pub min_mod_revision: i64,
    /// Leaves out keys last changed above this revision.
    pub max_mod_revision: i64,
    /// Leaves out keys created below this revision.
    pub min_create_revision: i64,
    /// Leaves out keys created above this revision.
    pub max_create_revision: i64,
    /// Goes on behind this key, in key order.
    pub after: Option<Bytes>,
    /// How many keys the whole range has, if that is known already.
    pub known_count: Option<i64>,
}

impl RangeQuery {
    /// Everything in the range, at the current revision, in order of keys.
    pub fn all(range: KeyRange) -> RangeQuery {
        RangeQuery {
            range,
            revision: 0,
            limit: 0,
            order: SortOrder::None,
            target: SortTarget::Key,
            keys_only: false,
            count_only: false,
            min_mod_revision: 0,
            max_mod_revision: 0,
            min_create_revision: 0,
            max_create_revision: 0,
            after: None,
            known_count: None,
        }
    }

    /// Whether the filters let a key pass.
    pub(super) fn admits(&self, entry: &Entry) -> bool {
        let within = |number, min, max| number >= min && (max == 0 || number <= max);
        within(entry.revision.main, self.min_mod_revision, self.max_mod_revision)
            && within(entry.created, self.min_create_revision, self.max_create_revision)
    }

    /// Whether the answer comes in an order the index can be walked in, so that it need not be collected before it is given.
    pub(super) fn is_in_key_order(&self) -> bool {
        self.target == SortTarget::Key
    }

    /// Whether the answer is cut before it is put in order. etcd looks no further than one key behind the limit unless an order
    /// or a filter makes it, and then orders what it found by the target.
    pub(super) fn is_cut_unordered(&self) -> bool {
        self.order == SortOrder::None && self.is_unfiltered()
    }

    /// After how many keys the answer is whole, if that is known beforehand.
    pub(super) fn keys_to_give(&self) -> Option<u64> {
        if self.count_only {
            return Some(0);
        }
        let is_cut_early = self.is_in_key_order() && self.is_unfiltered();
        self.limit().filter(|_| is_cut_early).map(|limit| limit as u64)
    }

    fn is_unfiltered(&self) -> bool {
        [self.min_mod_revision, self.max_mod_revision, self.min_create_revision, self.max_create_revision] == [0; 4]
    }

    /// The limit as a count; `None` without one.
    pub(super) fn limit(&self) -> Option<usize> {
        (self.limit > 0).then(|| usize::try_from(self.limit).unwrap_or(usize::MAX))
    }

    /// Puts entries, given in order of their keys, into the answer's order. Values are sorted by [`sort_pairs`].
    ///
    /// [`sort_pairs`]: Self::sort_pairs
    pub(super) fn sort_entries(&self, entries: &mut [Entry]) {
        let number: fn(&Entry) -> i64 = match self.target {
            SortTarget::Key => {
                if self.order == SortOrder::Descend {
                    entries.reverse();
                }
                return;
            }
            SortTarget::Version => |entry| entry.version,
            SortTarget::CreateRevision => |entry| entry.created,
            SortTarget::ModRevision => |entry| entry.revision.main,
            SortTarget::Value => return,
        };
        if self.order == SortOrder::Descend {
            entries.sort_by_key(|entry| std::cmp::Reverse(number(entry)));
        } else {
            entries.sort_by_key(number);
        }
    }

    /// Puts pairs, given in order of their keys, into order of their values.
    pub(super) fn sort_pairs(&self, pairs: &mut [mvccpb::KeyValue]) {
        if self.order == SortOrder::Descend {
            pairs.sort_by(|a, b| b.value.cmp(&a.value));
        } else {
            pairs.sort_by(|a, b| a.value.cmp(&b.value));
        }
    }

    /// What the answer shows of a pair.
    pub(super) fn shown<'a>(&self, kv: KeyValueRef<'a>) -> KeyValueRef<'a> {
        if self.keys_only { KeyValueRef { value: &[], ..kv } } else { kv }
    }
}
