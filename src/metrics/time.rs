//! The clock durations are measured with: the system's, or a test's.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// Tells how long it has been since a fixed point. Cheap to clone; all clones have the same fixed point.
#[derive(Clone)]
pub struct Time {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Time {
    /// A clock that `now` reads. It never goes back.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Time {
        Time { now: Arc::new(now) }
    }

    /// The system's clock; the fixed point is now.
    pub fn system() -> Time {
        let start = Instant::now();
        Time::new(move || start.elapsed())
    }

    /// Time since the fixed point.
    pub fn now(&self) -> Duration {
        (self.now)()
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Time").finish_non_exhaustive()
    }
}
