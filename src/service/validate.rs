//! What can be refused about a request without looking at any state.
//!
//! Which requests are refused, with which text and in which order is etcd's, found by asking one. What etcd checks only
//! when it applies a command (unknown leases, revisions, missing keys) is not checked here.

mod overlap;
#[cfg(test)]
mod tests;

use crate::{
    error::ApiError,
    proto::etcdserverpb::{
        DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, range_request, request_op::Request,
    },
};

/// How deep txns may nest, the outermost one included. etcd stops at `max-txn-ops`. Here a command must also be read
/// back from the log, and the decoder follows messages 100 deep: two for each level, and a few around them.
pub(super) const TXN_DEPTH_MAX: usize = 45;

/// Checks a range.
pub(super) fn check_range(request: &RangeRequest) -> Result<(), ApiError> {
    if request.key.is_empty() {
        return Err(ApiError::KeyNotProvided);
    }
    let in_key_order = request.sort_target == range_request::SortTarget::Key as i32;
    if !request.r#continue.is_empty() && (request.count_only || !in_key_order) {
        return Err(ApiError::PageTokenInvalid);
    }
    let order_known = range_request::SortOrder::try_from(request.sort_order).is_ok();
    let target_known = range_request::SortTarget::try_from(request.sort_target).is_ok();
    if order_known && target_known { Ok(()) } else { Err(ApiError::InvalidSortOption) }
}

/// Checks a put.
pub(super) fn check_put(request: &PutRequest) -> Result<(), ApiError> {
    if request.key.is_empty() {
        return Err(ApiError::KeyNotProvided);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(ApiError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(ApiError::LeaseProvided);
    }
    Ok(())
}

/// Checks a delete.
pub(super) fn check_delete_range(request: &DeleteRangeRequest) -> Result<(), ApiError> {
    if request.key.is_empty() { Err(ApiError::KeyNotProvided) } else { Ok(()) }
}

/// Checks a txn and all that is nested in it.
pub(super) fn check_txn(request: &TxnRequest, ops_max: usize) -> Result<(), ApiError> {
    check_txn_level(request, ops_max, TXN_DEPTH_MAX)?;
    overlap::check(&request.success)?;
    overlap::check(&request.failure)
}

/// `ops_max` is what the levels above have left over; `depth_left` counts this level.
fn check_txn_level(request: &TxnRequest, ops_max: usize, depth_left: usize) -> Result<(), ApiError> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    if ops > ops_max || depth_left == 0 {
        return Err(ApiError::TooManyOps);
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(ApiError::KeyNotProvided);
    }
    for op in request.success.iter().chain(&request.failure) {
        check_op(op, ops_max - ops, depth_left - 1)?;
    }
    Ok(())
}

fn check_op(op: &RequestOp, ops_max: usize, depth_left: usize) -> Result<(), ApiError> {
    match &op.request {
        // A txn's answer is one piece: there is no next page.
        Some(Request::RequestRange(range)) if !range.r#continue.is_empty() => Err(ApiError::PageTokenInvalid),
        Some(Request::RequestRange(range)) => check_range(range),
        Some(Request::RequestPut(put)) => check_put(put),
        Some(Request::RequestDeleteRange(delete)) => check_delete_range(delete),
        Some(Request::RequestTxn(txn)) => check_txn_level(txn, ops_max, depth_left),
        None => Err(ApiError::KeyNotFound),
    }
}

/// Whether a txn changes nothing whichever branch it takes. A nested txn counts as a change, as in etcd.
pub(super) fn is_read_only(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Whether a read-only txn asks for nothing but local answers. One without any range still compares, and compares
/// linearizably.
pub(super) fn is_serializable(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure).peekable();
    ops.peek().is_some()
        && ops.all(|op| matches!(&op.request, Some(Request::RequestRange(range)) if range.serializable))
}
