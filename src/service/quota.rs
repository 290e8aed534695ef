//! The quota: turns away what would grow a member that is as large as it may be, and raises and clears the NOSPACE alarm.
//!
//! What counts is bytes in use: pages of the backend file that are not free, and what is to be written to it. Pages that
//! wait for a reader count as free, so that room made by a compaction counts at once and nobody needs to defragment.
//! Each member looks at its own size and speaks for itself, through the log: what is then refused is refused alike
//! everywhere. The alarm goes by itself below a low-water mark; the gap between the two keeps it from coming and going.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus::{IntCounter, IntGauge};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    apply,
    auth::Identity,
    config::{Config, QUOTA_DEFAULT_BYTES},
    error::ApiError,
    metrics::Metrics,
    proto::{
        etcdserverpb::{AlarmRequest, AlarmType, alarm_request::AlarmAction},
        revgatepb::internal_raft_request::Request,
    },
};

use super::Core;

/// How often a member looks whether its alarm should be raised or cleared.
const LOOK_INTERVAL_MILLIS: u64 = 250;

/// How large this member may be, and what is on its way into it. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    /// `None`: no limit.
    bytes_max: Option<u64>,
    /// Below this the member clears its alarm. `None`: it never does.
    low_water_bytes: Option<u64>,
    /// What admitted requests may add that are not applied yet.
    in_flight_bytes: Arc<AtomicU64>,
    /// Held by who raises the alarm: who comes second finds it raised.
    raising: Arc<tokio::sync::Mutex<()>>,
    used: IntGauge,
    alarm: IntGauge,
    raised: IntCounter,
    cleared: IntCounter,
}

/// A request that was let in. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    in_flight_bytes: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.in_flight_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a look at the size says of the alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Raise,
    Clear,
    Leave,
}

impl Quota {
    pub(super) fn new(config: &Config, metrics: &Metrics) -> Quota {
        let configured = if config.quota_backend_bytes == 0 { QUOTA_DEFAULT_BYTES } else { config.quota_backend_bytes };
        metrics.quota_backend_bytes.set(configured.max(0));
        let bytes_max = u64::try_from(configured).ok();
        // Without a limit every size is below it: an alarm that an earlier run raised goes.
        let low_water = |percent: u8| bytes_max.map_or(u64::MAX, |bytes| bytes / 100 * u64::from(percent));
        Quota {
            bytes_max,
            low_water_bytes: config.nospace_low_water_percent.map(low_water),
            in_flight_bytes: Arc::default(),
            raising: Arc::default(),
            used: metrics.quota_used_bytes.clone(),
            alarm: metrics.nospace_alarm.clone(),
            raised: metrics.nospace_raised.clone(),
            cleared: metrics.nospace_cleared.clone(),
        }
    }

    /// The quota; `None`: no limit.
    pub(super) fn bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    /// Lets a request in if it fits beside what is there and what is on its way.
    fn admit(&self, used_bytes: u64, bytes: u64) -> Option<Admitted> {
        let before = self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        let admitted = Admitted { in_flight_bytes: Arc::clone(&self.in_flight_bytes), bytes };
        let after = used_bytes.saturating_add(before).saturating_add(bytes);
        self.bytes_max.is_none_or(|bytes_max| after < bytes_max).then_some(admitted)
    }

    fn verdict(&self, used_bytes: u64, is_raised: bool, is_own: bool) -> Verdict {
        if !is_raised && self.bytes_max.is_some_and(|bytes_max| used_bytes >= bytes_max) {
            Verdict::Raise
        } else if is_own && self.low_water_bytes.is_some_and(|low_water| used_bytes < low_water) {
            Verdict::Clear
        } else {
            Verdict::Leave
        }
    }
}

impl Core {
    /// Whether the quota leaves room for a request; if it does not, the alarm is raised before the request is refused.
    pub(super) async fn admit(&self, identity: &Identity, request: &Request) -> Result<Option<Admitted>, ApiError> {
        let bytes = apply::growth_bytes(request);
        if bytes == 0 {
            return Ok(None);
        }
        // It would be refused when it is applied. Until then it would fill the log.
        if self.state.alarms.is_raised(AlarmType::Nospace) {
            return Err(ApiError::NoSpace);
        }
        if let Some(admitted) = self.quota.admit(self.state.store.used_bytes(), bytes) {
            return Ok(Some(admitted));
        }
        // What is not permitted must not be able to raise an alarm. Granting a lease is permitted to every user.
        if !matches!(request, Request::LeaseGrant(_)) {
            apply::check_command(&self.state.auth.rights(identity)?, &self.state.lessor, request)?;
        }
        self.raise().await;
        Err(ApiError::NoSpace)
    }

    async fn raise(&self) {
        let _turn = self.quota.raising.lock().await;
        let local = self.state.members.local_id();
        if self.state.alarms.is_raised_by(local, AlarmType::Nospace) {
            return;
        }
        let (used_bytes, quota_bytes) = (self.state.store.used_bytes(), self.quota.bytes_max);
        match self.propose_own(alarm(AlarmAction::Activate, local)).await {
            Ok(_) => {
                self.quota.raised.inc();
                tracing::warn!(
                    used_bytes,
                    quota_bytes,
                    "the quota is used up: the NOSPACE alarm is raised, and what grows is refused"
                );
            }
            Err(error) => {
                tracing::warn!(%error, used_bytes, "the NOSPACE alarm could not be raised; it is tried again")
            }
        }
    }

    async fn clear(&self, used_bytes: u64) {
        match self.propose_own(alarm(AlarmAction::Deactivate, self.state.members.local_id())).await {
            Ok(_) => {
                self.quota.cleared.inc();
                let quota_bytes = self.quota.bytes_max;
                tracing::info!(used_bytes, quota_bytes, "there is room again: the NOSPACE alarm is disarmed");
            }
            Err(error) => tracing::warn!(%error, "the NOSPACE alarm could not be disarmed; it is tried again"),
        }
    }
}

fn alarm(action: AlarmAction, member_id: u64) -> Request {
    Request::Alarm(AlarmRequest { action: action as i32, member_id, alarm: AlarmType::Nospace as i32 })
}

/// Raises and clears this member's alarm as its size says, for ever. An alarm that was raised by hand is left alone.
pub(super) async fn keep(core: Core) {
    let mut ticks = interval(Duration::from_millis(LOOK_INTERVAL_MILLIS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let used_bytes = core.state.store.used_bytes();
        core.quota.used.set(i64::try_from(used_bytes).unwrap_or(i64::MAX));
        let local = core.state.members.local_id();
        let is_raised = core.state.alarms.is_raised_by(local, AlarmType::Nospace);
        core.quota.alarm.set(i64::from(is_raised));
        match core.quota.verdict(used_bytes, is_raised, core.state.alarms.is_own(local, AlarmType::Nospace)) {
            Verdict::Raise => core.raise().await,
            Verdict::Clear => core.clear(used_bytes).await,
            Verdict::Leave => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(bytes_max: i64, low_water_percent: Option<u8>) -> Quota {
        let config = Config { nospace_low_water_percent: low_water_percent, ..apply::fixture::config(bytes_max) };
        Quota::new(&config, &Metrics::new())
    }

    #[test]
    fn what_is_on_its_way_counts_until_it_is_there() {
        let quota = quota(1000, Some(90));
        let first = quota.admit(400, 300).expect("there is room");
        assert!(quota.admit(400, 300).is_none(), "1000 is the quota, and not below it");
        let second = quota.admit(400, 299).expect("just below");
        drop(first);
        assert!(quota.admit(700, 1).is_none(), "what was applied counts as used now");
        drop(second);
        assert!(quota.admit(700, 299).is_some());
        assert_eq!(quota.in_flight_bytes.load(Ordering::Relaxed), 0, "the refused count for nothing");
    }

    #[test]
    fn the_alarm_comes_at_the_quota_and_goes_below_the_low_water_mark() {
        let quota = quota(1000, Some(90));
        for (used_bytes, is_raised, expected) in [
            (999, false, Verdict::Leave),
            (1000, false, Verdict::Raise),
            (1000, true, Verdict::Leave),
            (900, true, Verdict::Leave),
            (899, true, Verdict::Clear),
            (899, false, Verdict::Leave),
        ] {
            assert_eq!(quota.verdict(used_bytes, is_raised, is_raised), expected, "{used_bytes} {is_raised}");
        }
        assert_eq!(quota.verdict(0, true, false), Verdict::Leave, "raised by hand");
    }

    #[test]
    fn by_hand_only_if_asked_for_and_always_without_a_limit() {
        assert_eq!(quota(1000, None).verdict(0, true, true), Verdict::Leave);
        let unlimited = quota(-1, Some(90));
        assert!(unlimited.admit(u64::MAX - 1, 1).is_some());
        assert_eq!(unlimited.verdict(1 << 40, false, false), Verdict::Leave);
        assert_eq!(unlimited.verdict(1 << 40, true, true), Verdict::Clear);
    }
}
