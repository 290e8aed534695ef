//! Compares of a txn, and the path they choose: every branch of every nested txn is decided before anything executes.

use std::cmp::Ordering;

use super::txn::View;
use crate::{
    mvcc::{KeyRange, KeyValueRef, MvccError, RangeQuery},
    proto::etcdserverpb::{
        Compare, RequestOp, TxnRequest,
        compare::{CompareResult, CompareTarget, TargetUnion},
        request_op,
    },
};

/// Which branches are taken: the txn's own first, then those of the nested txns on the way, in order.
#[derive(Debug, Default)]
pub(super) struct Path {
    succeeded: Vec<bool>,
}

impl Path {
    /// Decides every branch against the state before the txn.
    pub(super) fn decide(view: &View<'_, '_>, txn: &TxnRequest) -> Result<Path, MvccError> {
        let mut path = Path::default();
        path.descend(view, txn)?;
        Ok(path)
    }

    fn descend(&mut self, view: &View<'_, '_>, txn: &TxnRequest) -> Result<(), MvccError> {
        let succeeded = all_hold(view, &txn.compare)?;
        self.succeeded.push(succeeded);
        for op in branch(txn, succeeded) {
            if let Some(request_op::Request::RequestTxn(nested)) = &op.request {
                self.descend(view, nested)?;
            }
        }
        Ok(())
    }

    /// The decisions, in the order in which a walk along the path needs them.
    pub(super) fn decisions(&self) -> Decisions<'_> {
        Decisions { rest: self.succeeded.iter() }
    }
}

/// A walk along a path.
#[derive(Debug)]
pub(super) struct Decisions<'a> {
    rest: std::slice::Iter<'a, bool>,
}

impl Decisions<'_> {
    /// Whether the next txn on the way succeeded. Walks meet the txns in the order in which they were decided.
    pub(super) fn next(&mut self) -> bool {
        self.rest.next().copied().unwrap_or(false)
    }
}

/// The operations of the branch that is taken.
pub(super) fn branch(txn: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded { &txn.success } else { &txn.failure }
}

fn all_hold(view: &View<'_, '_>, compares: &[Compare]) -> Result<bool, MvccError> {
    for compare in compares {
        if !holds_for_keys(view, compare)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All keys in the range must satisfy the compare. No key at all is like one missing key.
fn holds_for_keys(view: &View<'_, '_>, compare: &Compare) -> Result<bool, MvccError> {
    let mut found = false;
    let mut all = true;
    let mut visit = |kv: KeyValueRef<'_>| {
        found = true;
        all = all && holds(compare, &kv);
    };
    if compare.range_end.is_empty() {
        view.visit_key(&compare.key, !needs_record(compare), &mut visit)?;
    } else {
        view.range(&whole_range(compare), &mut visit)?;
    }
    Ok(if found { all } else { holds_for_missing(compare) })
}

/// Whether the compare looks at more than the index knows.
fn needs_record(compare: &Compare) -> bool {
    matches!(CompareTarget::try_from(compare.target), Ok(CompareTarget::Value | CompareTarget::Lease))
}

fn whole_range(compare: &Compare) -> RangeQuery {
    RangeQuery::all(KeyRange::new(compare.key.clone(), compare.range_end.clone()))
}

/// A missing key has no value to compare; its numbers are 0.
fn holds_for_missing(compare: &Compare) -> bool {
    compare.target != CompareTarget::Value as i32 && holds(compare, &KeyValueRef::default())
}

/// Compares one key. An operand that is not set, or is of another target, is 0 or empty.
fn holds(compare: &Compare, kv: &KeyValueRef<'_>) -> bool {
    let ordering = match (CompareTarget::try_from(compare.target), &compare.target_union) {
        (Ok(CompareTarget::Version), Some(TargetUnion::Version(wanted))) => kv.version.cmp(wanted),
        (Ok(CompareTarget::Version), _) => kv.version.cmp(&0),
        (Ok(CompareTarget::Create), Some(TargetUnion::CreateRevision(wanted))) => kv.create_revision.cmp(wanted),
        (Ok(CompareTarget::Create), _) => kv.create_revision.cmp(&0),
        (Ok(CompareTarget::Mod), Some(TargetUnion::ModRevision(wanted))) => kv.mod_revision.cmp(wanted),
        (Ok(CompareTarget::Mod), _) => kv.mod_revision.cmp(&0),
        (Ok(CompareTarget::Value), Some(TargetUnion::Value(wanted))) => kv.value.cmp(wanted.as_ref()),
        (Ok(CompareTarget::Value), _) => kv.value.cmp(&[]),
        (Ok(CompareTarget::Lease), Some(TargetUnion::Lease(wanted))) => kv.lease.cmp(wanted),
        (Ok(CompareTarget::Lease), _) => kv.lease.cmp(&0),
        // A target outside the enum compares nothing, and nothing equals nothing.
        (Err(_), _) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        // A result outside the enum demands nothing.
        Err(_) => true,
    }
}
