//! Leases. SKELETON: the signatures below are the contract; the lease room replaces this file.
#![allow(missing_docs, unused, clippy::all)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use thiserror::Error;

use crate::{clock::Clock, mvcc::BucketWrite};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    #[error("lease not found")]
    NotFound,
    #[error("lease already exists")]
    Exists,
    #[error("lease TTL is too large")]
    TtlTooLarge,
    /// This member does not count leases down (it is not the leader).
    #[error("not the primary lessor")]
    NotPrimary,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeToLive {
    pub granted_ttl_secs: i64,
    pub remaining_secs: i64,
    pub keys: Vec<Bytes>,
}

/// Every lease, and which keys hang on which. Thread-safe (`&self`); apply calls grant/revoke/attach, requests call renew/time_to_live.
#[derive(Debug)]
pub struct Lessor {
    _p: (),
}

impl Lessor {
    pub fn new(clock: Arc<dyn Clock>, ttl_min_secs: i64) -> Lessor {
        todo!()
    }
    /// Takes leases as stored (bucket `lease`: 8-byte BE id -> leasepb.Lease) and the attachments the store found.
    pub fn restore(&self, stored: &[(Bytes, Bytes)], attachments: Vec<(i64, Bytes)>) -> Result<(), String> {
        todo!()
    }
    /// Registers a lease; id is not 0. Returns the TTL in force (raised to the minimum) and what to store.
    pub fn grant(&self, id: i64, ttl_secs: i64) -> Result<(i64, BucketWrite), LeaseError> {
        todo!()
    }
    pub fn contains(&self, id: i64) -> bool {
        todo!()
    }
    /// The keys of a lease in key order (what a revoke deletes).
    pub fn keys(&self, id: i64) -> Result<Vec<Bytes>, LeaseError> {
        todo!()
    }
    /// Forgets a lease and its attachments. Returns what to store.
    pub fn revoke(&self, id: i64) -> Result<BucketWrite, LeaseError> {
        todo!()
    }
    /// The lease a key hangs on, 0 for none.
    pub fn lease_of(&self, key: &[u8]) -> i64 {
        todo!()
    }
    /// Hangs a key on a lease (0 = on none), taking it off the one before.
    pub fn attach(&self, key: &Bytes, id: i64) -> Result<(), LeaseError> {
        todo!()
    }
    /// Takes a deleted key off its lease.
    pub fn detach(&self, key: &[u8]) {
        todo!()
    }
    /// Restarts a lease's countdown; the TTL in force. Only on the primary. An expired one that is not yet revoked is NotFound.
    pub fn renew(&self, id: i64) -> Result<i64, LeaseError> {
        todo!()
    }
    pub fn time_to_live(&self, id: i64, with_keys: bool) -> Result<TimeToLive, LeaseError> {
        todo!()
    }
    /// All ids, by expiry.
    pub fn ids(&self) -> Vec<i64> {
        todo!()
    }
    /// Up to `max` leases that are due; each is handed out again only after `retry_after`.
    pub fn expired(&self, max: usize, retry_after: Duration) -> Vec<i64> {
        todo!()
    }
    /// This member leads from now on: every lease gets its full TTL plus `extend`, spread where many would expire together.
    pub fn promote(&self, extend: Duration) {
        todo!()
    }
    /// This member leads no more: nothing expires here.
    pub fn demote(&self) {
        todo!()
    }
    pub fn is_primary(&self) -> bool {
        todo!()
    }
}
