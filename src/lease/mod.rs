//! Leases: which exist, when they end, and which keys hang on which.
//!
//! Granting, revoking and attaching are replicated: apply calls them in log order, and every member ends in the same
//! state. The countdown is not: only the primary (the leader) counts, by its own monotonic clock, and what it finds
//! due it hands out for the log to revoke. Nothing here ends a lease by itself.
//!
//! Promises: `expired` and `ids` touch only what they return; a lease never ends before its full TTL has passed on one
//! primary. Must never know: the store, the log, how a revoke deletes keys.

mod pace;
mod state;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use thiserror::Error;

pub use self::pace::EXPIRIES_PER_SEC_MAX;
use self::state::State;
use crate::{
    clock::Clock,
    mvcc::{BucketWrite, buckets},
    proto::leasepb,
};

/// The longest TTL a lease may ask for, in seconds (etcd's limit).
pub const TTL_MAX_SECS: i64 = 9_000_000_000;

/// Why a lease operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// There is no such lease, or it has run out and only waits to be revoked.
    #[error("lease not found")]
    NotFound,
    /// The id is taken.
    #[error("lease already exists")]
    Exists,
    /// The TTL is above [`TTL_MAX_SECS`].
    #[error("lease TTL is too large")]
    TtlTooLarge,
    /// This member does not count leases down (it is not the leader).
    #[error("not the primary lessor")]
    NotPrimary,
}

/// What is known of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeToLive {
    /// The TTL in force, in seconds.
    pub granted_ttl_secs: i64,
    /// What is left of it, in whole seconds, rounded down.
    pub remaining_secs: i64,
    /// The keys that hang on it, in order; empty unless asked for.
    pub keys: Vec<Bytes>,
}

/// Every lease, and which keys hang on which. Thread-safe (`&self`); apply calls grant/revoke/attach, requests call renew/time_to_live.
pub struct Lessor {
    clock: Arc<dyn Clock>,
    ttl_min_secs: i64,
    state: Mutex<State>,
}

impl Lessor {
    /// A lessor without leases that is not the primary. TTLs below `ttl_min_secs` are raised to it.
    pub fn new(clock: Arc<dyn Clock>, ttl_min_secs: i64) -> Lessor {
        Lessor { clock, ttl_min_secs, state: Mutex::new(State::default()) }
    }

    /// Takes leases as stored (bucket `lease`: 8-byte BE id -> leasepb.Lease) and the attachments the store found, in place
    /// of what was known. None of them counts down before `promote`. An error names the record that cannot be read, and
    /// then nothing has changed.
    ///
    /// A key whose lease is not stored (etcd's files can hold such) stays without a lease: it lives until it is deleted.
    pub fn restore(&self, stored: &[(Bytes, Bytes)], attachments: Vec<(i64, Bytes)>) -> Result<(), String> {
        let mut state = State::default();
        for (key, value) in stored {
            let (id, ttl_secs) = decode(key, value)?;
            state.insert(id, ttl_secs, Duration::MAX);
        }
        for (id, key) in attachments {
            if id != 0 && state.attach(&key, id).is_err() {
                tracing::warn!(lease = id, key_bytes = key.len(), "a key hangs on a lease that is not stored");
            }
        }
        *self.state.lock() = state;
        Ok(())
    }

    /// Registers a lease; id is not 0 (it would be `NotFound`). Returns the TTL in force (raised to the minimum) and what to store.
    pub fn grant(&self, id: i64, ttl_secs: i64) -> Result<(i64, BucketWrite), LeaseError> {
        if id == 0 {
            return Err(LeaseError::NotFound);
        }
        if ttl_secs > TTL_MAX_SECS {
            return Err(LeaseError::TtlTooLarge);
        }
        let mut state = self.state.lock();
        if state.get(id).is_some() {
            return Err(LeaseError::Exists);
        }
        let ttl_secs = ttl_secs.max(self.ttl_min_secs);
        let expiry = if state.primary { self.clock.monotonic() + secs(ttl_secs) } else { Duration::MAX };
        state.insert(id, ttl_secs, expiry);
        Ok((ttl_secs, BucketWrite { bucket: buckets::LEASE, key: bucket_key(id), value: Some(encode(id, ttl_secs)) }))
    }

    /// Whether the lease exists: also true for one that has run out and is not revoked yet, so that all members agree.
    pub fn contains(&self, id: i64) -> bool {
        self.state.lock().get(id).is_some()
    }

    /// The keys of a lease in key order (what a revoke deletes).
    pub fn keys(&self, id: i64) -> Result<Vec<Bytes>, LeaseError> {
        let state = self.state.lock();
        let lease = state.get(id).ok_or(LeaseError::NotFound)?;
        Ok(lease.keys.iter().cloned().collect())
    }

    /// Forgets a lease and its attachments. Returns what to store.
    pub fn revoke(&self, id: i64) -> Result<BucketWrite, LeaseError> {
        self.state.lock().remove(id)?;
        Ok(BucketWrite { bucket: buckets::LEASE, key: bucket_key(id), value: None })
    }

    /// The lease a key hangs on, 0 for none.
    pub fn lease_of(&self, key: &[u8]) -> i64 {
        self.state.lock().lease_of(key)
    }

    /// Hangs a key on a lease (0 = on none), taking it off the one before.
    pub fn attach(&self, key: &Bytes, id: i64) -> Result<(), LeaseError> {
        let mut state = self.state.lock();
        if id == 0 {
            state.detach(key);
            return Ok(());
        }
        state.attach(key, id)
    }

    /// Takes a deleted key off its lease.
    pub fn detach(&self, key: &[u8]) {
        self.state.lock().detach(key);
    }

    /// Restarts a lease's countdown; the TTL in force. Only on the primary. An expired one that is not yet revoked is NotFound.
    pub fn renew(&self, id: i64) -> Result<i64, LeaseError> {
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        let ttl_secs = state.live(id, now)?.ttl_secs;
        state.set_expiry(id, now + secs(ttl_secs));
        Ok(ttl_secs)
    }

    /// What is left of a lease. Only on the primary. An expired one that is not yet revoked is NotFound.
    pub fn time_to_live(&self, id: i64, with_keys: bool) -> Result<TimeToLive, LeaseError> {
        let state = self.state.lock();
        let now = self.clock.monotonic();
        let lease = state.live(id, now)?;
        Ok(TimeToLive {
            granted_ttl_secs: lease.ttl_secs,
            remaining_secs: i64::try_from((lease.expiry - now).as_secs()).unwrap_or(i64::MAX),
            keys: if with_keys { lease.keys.iter().cloned().collect() } else { Vec::new() },
        })
    }

    /// All ids, by expiry (where nothing counts down, and among equals, by id).
    pub fn ids(&self) -> Vec<i64> {
        self.state.lock().ids()
    }

    /// Up to `max` leases that are due; each is handed out again only after `retry_after`. None where this is not the primary.
    pub fn expired(&self, max: usize, retry_after: Duration) -> Vec<i64> {
        let now = self.clock.monotonic();
        self.state.lock().take_due(max, now, now + retry_after)
    }

    /// This member leads from now on: every lease gets its full TTL plus `extend`, spread where more than
    /// [`EXPIRIES_PER_SEC_MAX`] would expire within one second.
    pub fn promote(&self, extend: Duration) {
        let mut state = self.state.lock();
        // Read under the lock, so that no lease granted in between ends before one that is older.
        let now = self.clock.monotonic();
        state.primary = true;
        state.restart_all(|ttl_secs| now + secs(ttl_secs) + extend);
    }

    /// This member leads no more: nothing expires here.
    pub fn demote(&self) {
        let mut state = self.state.lock();
        state.primary = false;
        state.stop_all();
    }

    /// Whether this member counts leases down.
    pub fn is_primary(&self) -> bool {
        self.state.lock().primary
    }
}

impl std::fmt::Debug for Lessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lessor").field("ttl_min_secs", &self.ttl_min_secs).finish_non_exhaustive()
    }
}

fn secs(ttl_secs: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl_secs).unwrap_or(0))
}

fn bucket_key(id: i64) -> Bytes {
    Bytes::copy_from_slice(&id.to_be_bytes())
}

fn encode(id: i64, ttl_secs: i64) -> Bytes {
    leasepb::Lease { id, ttl: ttl_secs, remaining_ttl: 0 }.encode_to_vec().into()
}

/// The (id, TTL in seconds) of a stored lease. A remaining TTL, which etcd stores with checkpoints on, is not used: a
/// promotion gives the full one.
/// What is wrong with a pair of bucket `lease`, if something is.
pub fn check_record(key: &[u8], value: &[u8]) -> Result<(), String> {
    decode(key, value).map(drop)
}

fn decode(key: &[u8], value: &[u8]) -> Result<(i64, i64), String> {
    let id = <[u8; 8]>::try_from(key)
        .map(i64::from_be_bytes)
        .map_err(|_| format!("lease bucket: key {:?} is not 8 bytes long", key.escape_ascii().to_string()))?;
    let lease = leasepb::Lease::decode(value).map_err(|e| format!("lease bucket: record of lease {id:016x}: {e}"))?;
    if lease.id != id {
        return Err(format!("lease bucket: record of lease {id:016x} is about lease {:016x}", lease.id));
    }
    if id == 0 || !(0..=TTL_MAX_SECS).contains(&lease.ttl) {
        return Err(format!("lease bucket: record of lease {id:016x} has TTL {} s", lease.ttl));
    }
    Ok((id, lease.ttl))
}
