//! Which permissions a command needs. One table for commands from the log and for reads that go past it.
//!
//! Both branches of a txn count, whichever is taken, and so does everything nested in them: what a txn would have done
//! tells as much as what it did. Keys that hang on a lease are written by whoever hangs another key on it, since it may
//! be revoked by then, and read by whoever asks which they are.

use crate::{
    auth::Rights,
    error::ApiError,
    lease::Lessor,
    mvcc::KeyRange,
    proto::{
        etcdserverpb::{
            AlarmRequest, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
            alarm_request::AlarmAction, request_op,
        },
        revgatepb::internal_raft_request::Request,
    },
};

/// What a command is about, as far as permissions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Keys: permissions decide.
    Keys,
    /// Something any user may do.
    User,
    /// Something that concerns everybody: only the role `root` may.
    Admin,
}

pub(super) fn kind(request: &Request) -> Kind {
    match request {
        Request::Range(_) | Request::Put(_) | Request::DeleteRange(_) | Request::Txn(_) | Request::LeaseRevoke(_) => {
            Kind::Keys
        }
        Request::LeaseGrant(_) => Kind::User,
        Request::Alarm(AlarmRequest { action, .. }) if *action == AlarmAction::Get as i32 => Kind::User,
        // Whatever comes that has no rule yet is not for everybody.
        _ => Kind::Admin,
    }
}

/// Checks a command about keys.
pub fn check_command(rights: &Rights, lessor: &Lessor, request: &Request) -> Result<(), ApiError> {
    if rights.are_unlimited() {
        return Ok(());
    }
    match request {
        Request::Range(range) => check_range(rights, range),
        Request::Put(put) => check_put(rights, lessor, put),
        Request::DeleteRange(delete) => check_delete(rights, delete),
        Request::Txn(txn) => check_txn(rights, lessor, txn),
        Request::LeaseRevoke(revoke) => check_lease_write(rights, lessor, revoke.id),
        _ => Err(ApiError::PermissionDenied),
    }
}

/// Checks a range.
pub fn check_range(rights: &Rights, range: &RangeRequest) -> Result<(), ApiError> {
    rights.read(&KeyRange::new(range.key.clone(), range.range_end.clone()))
}

fn check_put(rights: &Rights, lessor: &Lessor, put: &PutRequest) -> Result<(), ApiError> {
    let key = KeyRange::Single(put.key.clone());
    rights.write(&key)?;
    // A value that is kept is not told.
    if put.prev_kv {
        rights.read(&key)?;
    }
    if put.lease == 0 { Ok(()) } else { check_lease_write(rights, lessor, put.lease) }
}

fn check_delete(rights: &Rights, delete: &DeleteRangeRequest) -> Result<(), ApiError> {
    let range = KeyRange::new(delete.key.clone(), delete.range_end.clone());
    rights.write(&range)?;
    if delete.prev_kv { rights.read(&range) } else { Ok(()) }
}

/// Checks a txn with all that is nested in it. How deep it nests was limited before it was proposed.
pub fn check_txn(rights: &Rights, lessor: &Lessor, txn: &TxnRequest) -> Result<(), ApiError> {
    if rights.are_unlimited() {
        return Ok(());
    }
    for compare in &txn.compare {
        rights.read(&KeyRange::new(compare.key.clone(), compare.range_end.clone()))?;
    }
    for RequestOp { request } in txn.success.iter().chain(&txn.failure) {
        match request {
            Some(request_op::Request::RequestRange(range)) => check_range(rights, range)?,
            Some(request_op::Request::RequestPut(put)) => check_put(rights, lessor, put)?,
            Some(request_op::Request::RequestDeleteRange(delete)) => check_delete(rights, delete)?,
            Some(request_op::Request::RequestTxn(nested)) => check_txn(rights, lessor, nested)?,
            None => {}
        }
    }
    Ok(())
}

/// Checks that every key of a lease may be written: to revoke it, to hang a key on it, and to keep it alive. A lease that
/// is not there is refused where it is looked for.
pub fn check_lease_write(rights: &Rights, lessor: &Lessor, lease: i64) -> Result<(), ApiError> {
    check_lease(rights, lessor, lease, Rights::write)
}

/// Checks that every key of a lease may be read: to be told of the lease.
pub fn check_lease_read(rights: &Rights, lessor: &Lessor, lease: i64) -> Result<(), ApiError> {
    check_lease(rights, lessor, lease, Rights::read)
}

fn check_lease(
    rights: &Rights,
    lessor: &Lessor,
    lease: i64,
    permit: fn(&Rights, &KeyRange) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if rights.are_unlimited() {
        return Ok(());
    }
    let keys = lessor.keys(lease).unwrap_or_default();
    keys.into_iter().try_for_each(|key| permit(rights, &KeyRange::Single(key)))
}
