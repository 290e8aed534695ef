//! The lessor's tables and their invariants: every lease is in `by_expiry` and in `due` exactly once, under the times it
//! holds; a key is in the set of the lease `lease_of` names, and in no other.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

use super::{LeaseError, pace::Pace};

/// A lease. Times are the clock's monotonic ones; [`Duration::MAX`] is never.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) ttl_secs: i64,
    pub(super) expiry: Duration,
    /// When it is to be handed out for revoking: its expiry, or later if that was done already.
    due: Duration,
    pub(super) keys: BTreeSet<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) primary: bool,
    leases: HashMap<i64, Lease>,
    lease_of: HashMap<Bytes, i64>,
    by_expiry: BTreeSet<(Duration, i64)>,
    due: BTreeSet<(Duration, i64)>,
}

impl State {
    pub(super) fn get(&self, id: i64) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// A lease that counts down here and has not run out.
    pub(super) fn live(&self, id: i64, now: Duration) -> Result<&Lease, LeaseError> {
        if !self.primary {
            return Err(LeaseError::NotPrimary);
        }
        self.get(id).filter(|lease| lease.expiry > now).ok_or(LeaseError::NotFound)
    }

    /// Adds a lease whose id is free.
    pub(super) fn insert(&mut self, id: i64, ttl_secs: i64, expiry: Duration) {
        self.by_expiry.insert((expiry, id));
        self.due.insert((expiry, id));
        self.leases.insert(id, Lease { ttl_secs, expiry, due: expiry, keys: BTreeSet::new() });
    }

    pub(super) fn remove(&mut self, id: i64) -> Result<(), LeaseError> {
        let lease = self.leases.remove(&id).ok_or(LeaseError::NotFound)?;
        self.by_expiry.remove(&(lease.expiry, id));
        self.due.remove(&(lease.due, id));
        for key in &lease.keys {
            self.lease_of.remove(key);
        }
        Ok(())
    }

    pub(super) fn lease_of(&self, key: &[u8]) -> i64 {
        self.lease_of.get(key).copied().unwrap_or(0)
    }

    pub(super) fn attach(&mut self, key: &Bytes, id: i64) -> Result<(), LeaseError> {
        if self.lease_of(key) == id {
            return Ok(());
        }
        if !self.leases.contains_key(&id) {
            return Err(LeaseError::NotFound);
        }
        self.detach(key);
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key.clone());
            self.lease_of.insert(key.clone(), id);
        }
        Ok(())
    }

    pub(super) fn detach(&mut self, key: &[u8]) {
        if let Some(id) = self.lease_of.remove(key)
            && let Some(lease) = self.leases.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }

    pub(super) fn set_expiry(&mut self, id: i64, expiry: Duration) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        self.by_expiry.remove(&(lease.expiry, id));
        self.due.remove(&(lease.due, id));
        lease.expiry = expiry;
        lease.due = expiry;
        self.by_expiry.insert((expiry, id));
        self.due.insert((expiry, id));
    }

    pub(super) fn ids(&self) -> Vec<i64> {
        self.by_expiry.iter().map(|(_, id)| *id).collect()
    }

    /// Up to `max` leases that are due at `now`, the longest due first; they are due again at `again`.
    pub(super) fn take_due(&mut self, max: usize, now: Duration, again: Duration) -> Vec<i64> {
        let due: Vec<(Duration, i64)> = self.due.range(..=(now, i64::MAX)).take(max).copied().collect();
        for entry @ (_, id) in &due {
            self.due.remove(entry);
            self.due.insert((again, *id));
            if let Some(lease) = self.leases.get_mut(id) {
                lease.due = again;
            }
        }
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Gives every lease the expiry its TTL leads to, kept apart by [`Pace`].
    pub(super) fn restart_all(&mut self, expiry_of: impl Fn(i64) -> Duration) {
        let mut wanted: Vec<(Duration, i64)> =
            self.leases.iter().map(|(id, lease)| (expiry_of(lease.ttl_secs), *id)).collect();
        wanted.sort_unstable();
        let mut pace = Pace::default();
        for (expiry, id) in wanted {
            self.set_expiry(id, pace.place(expiry));
        }
    }

    /// Nothing ends any more.
    pub(super) fn stop_all(&mut self) {
        self.by_expiry.clear();
        self.due.clear();
        for (id, lease) in &mut self.leases {
            lease.expiry = Duration::MAX;
            lease.due = Duration::MAX;
            self.by_expiry.insert((Duration::MAX, *id));
            self.due.insert((Duration::MAX, *id));
        }
    }
}
