//! Two tasks that keep leases: one follows the leadership, one revokes what has run out while this member leads.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use prometheus::IntCounter;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use crate::{
    error::ApiError,
    metrics::Metrics,
    proto::{etcdserverpb::LeaseRevokeRequest, revgatepb::internal_raft_request::Request},
};

use super::Core;

/// How often the leader looks for leases that have run out.
const EXPIRY_INTERVAL_MILLIS: u64 = 500;
/// Most leases taken up by one look.
const EXPIRED_PER_LOOK_MAX: usize = 500;
/// Most revocations in flight.
const REVOKES_IN_FLIGHT_MAX: usize = 16;
/// After which a lease whose revocation failed is taken up again.
const REVOKE_RETRY_SECS: u64 = 3;

/// What is counted of leases that run out.
pub(super) struct Counters {
    expired: IntCounter,
    revoked: IntCounter,
}

impl Counters {
    pub(super) fn new(metrics: &Metrics) -> Counters {
        Counters { expired: metrics.lease_expired.clone(), revoked: metrics.lease_revoked.clone() }
    }
}

/// Promotes and demotes the lessor with the leadership, until the consensus is gone. `extend` is added to every lease on
/// a promotion: the time in which there may have been no leader to renew with.
pub(super) async fn follow_leadership(core: Core, primary: watch::Sender<bool>, extend: Duration) {
    let mut leadership = core.consensus.leadership();
    loop {
        let leads = *leadership.borrow_and_update();
        if leads {
            // Also when it was lost and won back before we looked: somebody else may have counted in between.
            core.state.lessor.promote(extend);
        } else {
            core.state.lessor.demote();
        }
        primary.send_replace(leads);
        if leadership.changed().await.is_err() {
            core.state.lessor.demote();
            primary.send_replace(false);
            return;
        }
    }
}

/// Revokes leases that have run out, for ever.
pub(super) async fn revoke_expired(core: Core, counters: Counters) {
    let mut ticks = interval(Duration::from_millis(EXPIRY_INTERVAL_MILLIS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !core.state.lessor.is_primary() {
            continue;
        }
        let due = core.state.lessor.expired(EXPIRED_PER_LOOK_MAX, Duration::from_secs(REVOKE_RETRY_SECS));
        if due.is_empty() {
            continue;
        }
        let failures = Failures::default();
        stream::iter(due)
            .for_each_concurrent(REVOKES_IN_FLIGHT_MAX, |id| revoke(&core, id, &counters, &failures))
            .await;
        failures.log();
    }
}

async fn revoke(core: &Core, id: i64, counters: &Counters, failures: &Failures) {
    match core.propose(Request::LeaseRevoke(LeaseRevokeRequest { id })).await {
        Ok(_) => {
            counters.expired.inc();
            counters.revoked.inc();
        }
        // Its owner was faster.
        Err(ApiError::LeaseNotFound) => {}
        Err(error) => failures.add(id, &error),
    }
}

/// Counts the failures of one look, so that a leader in trouble writes one line and not 500.
#[derive(Default)]
struct Failures {
    count: AtomicU64,
}

impl Failures {
    fn add(&self, id: i64, error: &ApiError) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(lease = id, %error, "a lease that ran out could not be revoked; it is tried again");
        }
    }

    fn log(&self) {
        let failed = self.count.load(Ordering::Relaxed);
        if failed > 1 {
            tracing::warn!(failed, "leases that ran out could not be revoked; they are tried again");
        }
    }
}
