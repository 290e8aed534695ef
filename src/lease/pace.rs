//! Keeps expiries apart: after a promotion whole crowds of leases with one TTL would end at one moment, and their
//! revokes would fill the log.

use std::{collections::VecDeque, time::Duration};

/// Leases that may end within any one second after a promotion.
pub const EXPIRIES_PER_SEC_MAX: usize = 1_000;

/// Takes expiries in rising order and moves each to the earliest moment, not before its own, at which fewer than
/// [`EXPIRIES_PER_SEC_MAX`] others end within the second before it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The latest expiries given out, oldest first.
    recent: VecDeque<Duration>,
}

impl Pace {
    pub(super) fn place(&mut self, wanted: Duration) -> Duration {
        let mut expiry = wanted;
        if self.recent.len() == EXPIRIES_PER_SEC_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            expiry = expiry.max(oldest + Duration::from_secs(1));
        }
        self.recent.push_back(expiry);
        expiry
    }
}
