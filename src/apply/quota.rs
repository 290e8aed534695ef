//! What grows the store, and that it is refused while the NOSPACE alarm is raised.
//!
//! Deletes, compactions and revocations always pass: they are how room is made. A txn is refused if either of its
//! branches puts, whichever is taken, as in etcd: every put is a new revision, and takes room until it is compacted.
//! Sizes are not looked at here. They differ from member to member, and what is decided here must not: `service` looks at
//! its own member's, and raises and clears the alarm through the log.

use std::{sync::Arc, time::Duration};

use super::{Alarms, Applied, Failure, State, alarms::Origin, mvcc::MvccLayer};
use crate::{
    error::ApiError,
    proto::{
        etcdserverpb::{AlarmType, PutRequest, RequestOp, TxnRequest, request_op},
        revgatepb::internal_raft_request::Request,
    },
};

/// What a key takes beside itself and its value, in bytes.
const KEY_OVERHEAD_BYTES: u64 = 256;
/// What a lease takes, in bytes.
const LEASE_BYTES: u64 = 64;

/// The layer that heeds the alarm.
#[derive(Debug)]
pub(super) struct QuotaLayer {
    next: MvccLayer,
    alarms: Arc<Alarms>,
}

impl QuotaLayer {
    pub(super) fn new(next: MvccLayer, state: &State) -> QuotaLayer {
        QuotaLayer { next, alarms: Arc::clone(&state.alarms) }
    }

    pub(super) fn take_notify_time(&mut self) -> Duration {
        self.next.take_notify_time()
    }

    /// `origin`: whose command it is.
    pub(super) fn apply(&mut self, request: &Request, origin: Origin) -> Result<Applied, Failure> {
        if self.alarms.is_raised(AlarmType::Nospace) && growth_bytes(request) > 0 {
            return Err(ApiError::NoSpace.into());
        }
        self.next.apply(request, origin)
    }
}

/// How much a command may add to the store, in bytes, by etcd's estimate; 0 for what never adds to it.
pub fn growth_bytes(request: &Request) -> u64 {
    match request {
        Request::Put(put) => put_cost(put),
        Request::Txn(txn) => txn_cost(txn),
        Request::LeaseGrant(_) => LEASE_BYTES,
        _ => 0,
    }
}

fn put_cost(put: &PutRequest) -> u64 {
    KEY_OVERHEAD_BYTES + (put.key.len() + put.value.len()) as u64
}

/// The dearer branch counts, whichever is taken.
fn txn_cost(txn: &TxnRequest) -> u64 {
    let branch = |ops: &[RequestOp]| ops.iter().map(op_cost).sum::<u64>();
    branch(&txn.success).max(branch(&txn.failure))
}

fn op_cost(op: &RequestOp) -> u64 {
    match &op.request {
        Some(request_op::Request::RequestPut(put)) => put_cost(put),
        Some(request_op::Request::RequestTxn(txn)) => txn_cost(txn),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_op(key: &'static [u8], value: &'static [u8]) -> RequestOp {
        let put = PutRequest { key: key.into(), value: value.into(), ..Default::default() };
        RequestOp { request: Some(request_op::Request::RequestPut(put)) }
    }

    #[test]
    fn costs_are_etcds() {
        let put = PutRequest { key: "abc".into(), value: "12345".into(), ..Default::default() };
        assert_eq!(growth_bytes(&Request::Put(put)), 256 + 3 + 5);
        assert_eq!(growth_bytes(&Request::LeaseGrant(Default::default())), 64);
        assert_eq!(growth_bytes(&Request::DeleteRange(Default::default())), 0);
        let nested = TxnRequest { success: vec![put_op(b"n", b"")], ..Default::default() };
        let txn = TxnRequest {
            success: vec![put_op(b"a", b"1"), put_op(b"b", b"")],
            failure: vec![put_op(b"c", b""), RequestOp { request: Some(request_op::Request::RequestTxn(nested)) }],
            ..Default::default()
        };
        assert_eq!(growth_bytes(&Request::Txn(txn)), 258 + 257);
        assert_eq!(growth_bytes(&Request::Txn(TxnRequest::default())), 0);
    }
}
