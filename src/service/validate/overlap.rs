//! The rule that no key is changed twice in one txn, where etcd can tell beforehand.
//!
//! Refused: a key put twice, and a put inside a range that the same txn deletes, nested txns included. The two branches
//! of one nested txn exclude each other and may name the same keys. Deletes may overlap.
//!
//! Two corners are etcd's (seen on 3.5.1): of two nested txns side by side only the later one's puts are held against
//! the earlier one's deletes; and a delete of everything from a key on (`range_end` "\0") is held against no put.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use bytes::Bytes;

use crate::{
    error::ApiError,
    proto::etcdserverpb::{DeleteRangeRequest, RequestOp, TxnRequest, request_op::Request},
};

/// Checks one branch of a txn that has passed the other checks (which bound the depth).
pub(super) fn check(ops: &[RequestOp]) -> Result<(), ApiError> {
    changes(ops).map(drop)
}

#[derive(Default)]
struct Changes<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Spans,
}

/// What a branch changes, if it changes nothing twice.
fn changes(ops: &[RequestOp]) -> Result<Changes<'_>, ApiError> {
    let mut all = Changes::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            all.deletes.insert_request(delete);
        }
    }
    for op in ops {
        if let Some(Request::RequestTxn(txn)) = &op.request {
            add_nested(&mut all, txn)?;
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request {
            let new = all.puts.insert(&put.key);
            if !new || all.deletes.contains(&put.key) {
                return Err(ApiError::DuplicateKey);
            }
        }
    }
    Ok(all)
}

fn add_nested<'a>(all: &mut Changes<'a>, txn: &'a TxnRequest) -> Result<(), ApiError> {
    let branches = [changes(&txn.success)?, changes(&txn.failure)?];
    let mut puts = BTreeSet::new();
    for branch in &branches {
        for key in &branch.puts {
            if all.puts.contains(key) || all.deletes.contains(key) {
                return Err(ApiError::DuplicateKey);
            }
            puts.insert(*key);
        }
    }
    all.puts.append(&mut puts);
    for branch in branches {
        all.deletes.append(branch.deletes);
    }
    Ok(())
}

/// A set of keys as disjoint spans, each from its start (the map's key) up to but without its end.
#[derive(Debug, Default)]
pub(super) struct Spans {
    ends_by_start: BTreeMap<Bytes, Bytes>,
}

impl Spans {
    fn insert_request(&mut self, delete: &DeleteRangeRequest) {
        let end = if delete.range_end.is_empty() { after(&delete.key) } else { delete.range_end.clone() };
        self.insert(delete.key.clone(), end);
    }

    /// Adds all keys from `start` up to but without `end`, which are none if `end` is not above `start`.
    pub(super) fn insert(&mut self, start: Bytes, end: Bytes) {
        if end <= start {
            return;
        }
        let (mut start, mut end) = (start, end);
        // Every span that touches the new one begins at or before its end; those are taken up from the right.
        while let Some((left, right)) = self.last_starting_up_to(&end) {
            if *right < start {
                break;
            }
            let left = left.clone();
            if *right > end {
                end = right.clone();
            }
            self.ends_by_start.remove(&left);
            start = start.min(left);
        }
        self.ends_by_start.insert(start, end);
    }

    /// Whether a key is in the set.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.last_starting_up_to(key).is_some_and(|(_, end)| key < &end[..])
    }

    fn last_starting_up_to(&self, key: &[u8]) -> Option<(&Bytes, &Bytes)> {
        self.ends_by_start.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    fn append(&mut self, mut other: Spans) {
        if other.ends_by_start.len() > self.ends_by_start.len() {
            std::mem::swap(self, &mut other);
        }
        for (start, end) in other.ends_by_start {
            self.insert(start, end);
        }
    }
}

/// The key right after `key`.
fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}
