//! Leases: grant and revoke through the log, the countdown on the leader.
//!
//! Keeping a lease alive writes nothing. The member that leads counts down alone, and every lease starts over when
//! another one takes the lead.

use std::{ops::RangeInclusive, time::Duration};

use prometheus::{Histogram, IntCounter};
use tokio::{sync::watch, time::timeout};

use crate::{
    apply::{self, Applied},
    error::ApiError,
    lease::{LeaseError, TimeToLive},
    metrics::Metrics,
    mvcc::KeyRange,
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

use super::{Caller, Core, wrong_outcome};

/// Ids the member chooses: positive, so that clients that print or parse them as signed agree.
const CHOSEN_IDS: RangeInclusive<i64> = 1..=i64::MAX;
/// How often another id is tried when the chosen one is in use.
const GRANT_ATTEMPTS_MAX: usize = 16;
/// How long a request about a lease waits until everything committed is applied.
const APPLIED_WAIT_MAX_MILLIS: u64 = 1000;

/// Answers requests about leases. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LeaseService {
    core: Core,
    /// Whether this member counts leases down. Set by the task that follows the leadership.
    primary: watch::Sender<bool>,
    primary_wait: Duration,
    granted: IntCounter,
    granted_ttls_secs: Histogram,
    revoked: IntCounter,
    renewed: IntCounter,
}

impl LeaseService {
    pub(super) fn new(core: Core, request_timeout: Duration, metrics: &Metrics) -> LeaseService {
        LeaseService {
            core,
            primary: watch::Sender::new(false),
            primary_wait: request_timeout,
            granted: metrics.lease_granted.clone(),
            granted_ttls_secs: metrics.lease_ttl.clone(),
            revoked: metrics.lease_revoked.clone(),
            renewed: metrics.lease_renewed.clone(),
        }
    }

    /// What the task that follows the leadership reports to.
    pub(super) fn primary(&self) -> watch::Sender<bool> {
        self.primary.clone()
    }

    /// Grants a lease, with an id of the member's choice unless one is given.
    pub async fn grant(
        &self,
        caller: &Caller,
        mut request: pb::LeaseGrantRequest,
    ) -> Result<pb::LeaseGrantResponse, ApiError> {
        if request.id != 0 {
            return self.propose_grant(caller, request).await;
        }
        for _ in 0..GRANT_ATTEMPTS_MAX {
            request.id = fastrand::i64(CHOSEN_IDS);
            match self.propose_grant(caller, request).await {
                Err(ApiError::LeaseExists) => continue,
                outcome => return outcome,
            }
        }
        Err(ApiError::LeaseExists)
    }

    async fn propose_grant(
        &self,
        caller: &Caller,
        request: pb::LeaseGrantRequest,
    ) -> Result<pb::LeaseGrantResponse, ApiError> {
        match self.core.propose(caller, Request::LeaseGrant(request)).await? {
            Applied::LeaseGrant(mut response) => {
                self.granted.inc();
                self.granted_ttls_secs.observe(response.ttl as f64);
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("lease grant", &other)),
        }
    }

    /// Revokes a lease; its keys are deleted.
    pub async fn revoke(
        &self,
        caller: &Caller,
        request: pb::LeaseRevokeRequest,
    ) -> Result<pb::LeaseRevokeResponse, ApiError> {
        match self.core.propose(caller, Request::LeaseRevoke(request)).await? {
            Applied::LeaseRevoke(mut response) => {
                self.revoked.inc();
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("lease revoke", &other)),
        }
    }

    /// Starts a lease's countdown over. An unknown or expired lease is told by a TTL of 0, not by an error.
    pub async fn keep_alive(
        &self,
        caller: &Caller,
        request: pb::LeaseKeepAliveRequest,
    ) -> Result<pb::LeaseKeepAliveResponse, ApiError> {
        self.core.require_user(caller)?;
        self.wait_primary().await?;
        let rights = self.core.rights(caller)?;
        apply::check_lease_write(&rights.rights, &self.core.state.lessor, request.id)?;
        // Taken first: a client that watches from here on misses no deletion by this lease's end.
        let revision = self.core.state.store.revision();
        let ttl = match self.core.state.lessor.renew(request.id) {
            Ok(ttl) => {
                self.renewed.inc();
                ttl
            }
            // The grant may be committed and not yet applied: the client was told of it by another member.
            Err(LeaseError::NotFound) if self.wait_applied().await? => {
                self.core.state.lessor.renew(request.id).or_else(unknown_is_zero)?
            }
            Err(error) => unknown_is_zero(error)?,
        };
        Ok(pb::LeaseKeepAliveResponse { header: Some(self.core.headers.at(revision)), id: request.id, ttl })
    }

    /// What is left of a lease; -1 for one that is unknown or has run out.
    pub async fn time_to_live(
        &self,
        caller: &Caller,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveResponse, ApiError> {
        self.core.require_user(caller)?;
        self.wait_primary().await?;
        self.wait_applied().await?;
        let rights = self.core.rights(caller)?;
        let header = Some(self.core.headers.at(self.core.state.store.revision()));
        let found = match self.core.state.lessor.time_to_live(request.id, request.keys) {
            Ok(found) if found.remaining_secs >= 0 => Some(found),
            Ok(_) | Err(LeaseError::NotFound) => None,
            Err(error) => return Err(lease_error(error)),
        };
        if let Some(found) = &found {
            found.keys.iter().try_for_each(|key| rights.rights.read(&KeyRange::Single(key.clone())))?;
            self.core.still_has(&rights)?;
        }
        Ok(time_to_live_response(header, request.id, found))
    }

    /// All leases. Who may not read all their keys is refused, as in etcd.
    pub async fn leases(
        &self,
        caller: &Caller,
        _request: pb::LeaseLeasesRequest,
    ) -> Result<pb::LeaseLeasesResponse, ApiError> {
        self.wait_applied().await?;
        let rights = self.core.rights(caller)?;
        let header = Some(self.core.headers.at(self.core.state.store.revision()));
        let lessor = &self.core.state.lessor;
        let ids = lessor.ids();
        ids.iter().try_for_each(|id| apply::check_lease_read(&rights.rights, lessor, *id))?;
        self.core.still_has(&rights)?;
        let leases = ids.into_iter().map(|id| pb::LeaseStatus { id }).collect();
        Ok(pb::LeaseLeasesResponse { header, leases })
    }

    /// Waits, for as long as a request may take, until this member counts leases down.
    async fn wait_primary(&self) -> Result<(), ApiError> {
        if *self.primary.borrow() {
            return Ok(());
        }
        let mut primary = self.primary.subscribe();
        match timeout(self.primary_wait, primary.wait_for(|primary| *primary)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ApiError::Stopped),
            Err(_) if self.core.consensus.status().leader == 0 => Err(ApiError::NoLeader),
            Err(_) => Err(ApiError::NotLeader),
        }
    }

    /// Waits until everything that is committed now is applied; whether there was anything to wait for.
    async fn wait_applied(&self) -> Result<bool, ApiError> {
        let status = self.core.consensus.status();
        if status.applied >= status.committed {
            return Ok(false);
        }
        let limit = Duration::from_millis(APPLIED_WAIT_MAX_MILLIS);
        timeout(limit, self.core.consensus.read_barrier()).await.map_err(|_| ApiError::TimeoutWaitApplied)??;
        Ok(true)
    }
}

fn time_to_live_response(
    header: Option<pb::ResponseHeader>,
    id: i64,
    found: Option<TimeToLive>,
) -> pb::LeaseTimeToLiveResponse {
    match found {
        Some(TimeToLive { granted_ttl_secs, remaining_secs, keys }) => {
            pb::LeaseTimeToLiveResponse { header, id, ttl: remaining_secs, granted_ttl: granted_ttl_secs, keys }
        }
        None => pb::LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() },
    }
}

fn unknown_is_zero(error: LeaseError) -> Result<i64, ApiError> {
    match error {
        LeaseError::NotFound => Ok(0),
        error => Err(lease_error(error)),
    }
}

fn lease_error(error: LeaseError) -> ApiError {
    match error {
        LeaseError::NotFound => ApiError::LeaseNotFound,
        LeaseError::Exists => ApiError::LeaseExists,
        LeaseError::TtlTooLarge => ApiError::LeaseTtlTooLarge,
        LeaseError::NotPrimary => ApiError::NotLeader,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_lease_that_is_not_there_has_minus_one_second_left() {
        let gone = time_to_live_response(None, 7, None);
        assert_eq!((gone.id, gone.ttl, gone.granted_ttl), (7, -1, 0));
        let found = TimeToLive { granted_ttl_secs: 20, remaining_secs: 0, keys: vec![Bytes::from_static(b"k")] };
        let there = time_to_live_response(None, 7, Some(found));
        assert_eq!((there.id, there.ttl, there.granted_ttl, there.keys.len()), (7, 0, 20, 1));
    }

    #[test]
    fn renewing_an_unknown_lease_is_no_error() {
        assert_eq!(unknown_is_zero(LeaseError::NotFound), Ok(0));
        assert_eq!(unknown_is_zero(LeaseError::NotPrimary), Err(ApiError::NotLeader));
    }
}
