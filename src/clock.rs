//! Time, behind a seam so that tests own it: leases and tickers ask a [`Clock`], never the system.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Time since an arbitrary fixed point; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since the Unix epoch, as the system believes it to be.
    fn unix_time(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose fixed point is now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn unix_time(&self) -> Duration {
        // A clock set before 1970 reads as the epoch: ids made from it are still unique by their random part.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_nanos: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.now_nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now_nanos.load(Ordering::SeqCst))
    }

    fn unix_time(&self) -> Duration {
        self.monotonic()
    }
}
