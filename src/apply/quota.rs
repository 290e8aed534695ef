//! The quota: refuses what would grow a store that is as large as it may be, and raises the NOSPACE alarm.
//!
//! Deletes, compactions and revocations always pass: they are how room is made. Once raised, the alarm stays until an
//! operator disarms it.

use std::sync::Arc;

use super::{Alarms, Applied, Failure, State, mvcc::MvccLayer};
use crate::{
    config::QUOTA_DEFAULT_BYTES,
    error::ApiError,
    members::Members,
    metrics::Metrics,
    mvcc::Store,
    proto::{
        etcdserverpb::{AlarmType, PutRequest, RequestOp, TxnRequest, request_op},
        revgatepb::internal_raft_request::Request,
    },
};

/// What a key takes beside itself and its value, in bytes.
const KEY_OVERHEAD_BYTES: u64 = 256;
/// What a lease takes, in bytes.
const LEASE_BYTES: u64 = 64;

/// The layer that looks at the size.
#[derive(Debug)]
pub(super) struct QuotaLayer {
    next: MvccLayer,
    store: Store,
    alarms: Arc<Alarms>,
    members: Arc<Members>,
    /// `None`: no limit.
    quota_bytes: Option<u64>,
    /// What the store takes with all that was accepted so far.
    used_bytes: u64,
}

impl QuotaLayer {
    /// `quota_backend_bytes`: 0 is the default, negative is no limit.
    pub(super) fn new(next: MvccLayer, state: &State, quota_backend_bytes: i64, metrics: &Metrics) -> QuotaLayer {
        let quota = if quota_backend_bytes == 0 { QUOTA_DEFAULT_BYTES } else { quota_backend_bytes };
        metrics.quota_backend_bytes.set(quota.max(0));
        QuotaLayer {
            next,
            store: state.store.clone(),
            alarms: Arc::clone(&state.alarms),
            members: Arc::clone(&state.members),
            quota_bytes: u64::try_from(quota).ok(),
            used_bytes: 0,
        }
    }

    /// Looks at the store's size once an entry; the entry's own commands are added as they come.
    pub(super) fn begin_entry(&mut self) {
        self.used_bytes = self.store.db_size_in_use_bytes() + self.store.unwritten_bytes();
    }

    pub(super) fn apply(&mut self, request: &Request) -> Result<Applied, Failure> {
        let cost = cost(request);
        if cost > 0 {
            self.check(cost)?;
        }
        let applied = self.next.apply(request)?;
        self.used_bytes = self.used_bytes.saturating_add(cost);
        Ok(applied)
    }

    fn check(&self, cost: u64) -> Result<(), ApiError> {
        if self.alarms.is_raised(AlarmType::Nospace) {
            return Err(ApiError::NoSpace);
        }
        match self.quota_bytes {
            Some(quota_bytes) if self.used_bytes.saturating_add(cost) >= quota_bytes => {
                tracing::warn!(used_bytes = self.used_bytes, quota_bytes, "the quota is used up: NOSPACE is raised");
                self.store.stage(self.alarms.raise(self.members.local_id(), AlarmType::Nospace));
                Err(ApiError::NoSpace)
            }
            _ => Ok(()),
        }
    }
}

/// How much a command may add to the store, in bytes.
fn cost(request: &Request) -> u64 {
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
        assert_eq!(cost(&Request::Put(put)), 256 + 3 + 5);
        assert_eq!(cost(&Request::LeaseGrant(Default::default())), 64);
        assert_eq!(cost(&Request::DeleteRange(Default::default())), 0);
        let nested = TxnRequest { success: vec![put_op(b"n", b"")], ..Default::default() };
        let txn = TxnRequest {
            success: vec![put_op(b"a", b"1"), put_op(b"b", b"")],
            failure: vec![put_op(b"c", b""), RequestOp { request: Some(request_op::Request::RequestTxn(nested)) }],
            ..Default::default()
        };
        assert_eq!(cost(&Request::Txn(txn)), 258 + 257);
        assert_eq!(cost(&Request::Txn(TxnRequest::default())), 0);
    }
}
