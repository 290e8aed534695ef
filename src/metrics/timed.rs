//! Something whose time is taken: for Prometheus, for the last minute, and while it goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus::Histogram;

use super::{
    Time,
    window::{Recent, Window},
};

/// Something whose time is taken. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Timed {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    time: Time,
    histograms: Vec<Histogram>,
    window: Mutex<Window>,
    /// When what goes on now began, in nanoseconds, plus one; 0: nothing goes on.
    began: AtomicU64,
}

impl Timed {
    pub(super) fn new(time: &Time, histograms: Vec<Histogram>) -> Timed {
        let inner =
            Inner { time: time.clone(), histograms, window: Mutex::new(Window::new()), began: AtomicU64::new(0) };
        Timed { inner: Arc::new(inner) }
    }

    /// Notes how long it took, once.
    pub fn observe(&self, took: Duration) {
        for histogram in &self.inner.histograms {
            histogram.observe(took.as_secs_f64());
        }
        self.inner.window.lock().add(self.inner.time.now(), took);
    }

    /// It begins. It goes on once at a time.
    pub fn begin(&self) -> Running<'_> {
        let began = self.inner.time.now();
        let nanos = u64::try_from(began.as_nanos()).unwrap_or(u64::MAX - 1);
        self.inner.began.store(nanos + 1, Ordering::Release);
        Running { timed: self, began }
    }

    /// The last minute, and how long what goes on now has been going on.
    pub fn recent(&self) -> Recent {
        let now = self.inner.time.now();
        let began = self.inner.began.load(Ordering::Acquire);
        let running = began.checked_sub(1).map(|began| now.saturating_sub(Duration::from_nanos(began)));
        Recent { running, ..self.inner.window.lock().recent(now) }
    }
}

/// Something that goes on. Dropped before its end, it was broken off, and counts for nothing.
#[derive(Debug)]
pub struct Running<'a> {
    timed: &'a Timed,
    began: Duration,
}

impl Running<'_> {
    /// When it began.
    pub fn began(&self) -> Duration {
        self.began
    }

    /// It ends: when that is. Notes how long it took, less what of it was something else.
    pub fn end_less(self, something_else: Duration) -> Duration {
        let now = self.timed.inner.time.now();
        self.timed.observe(now.saturating_sub(self.began).saturating_sub(something_else));
        now
    }

    /// It ends: when that is. Notes how long it took.
    pub fn end(self) -> Duration {
        self.end_less(Duration::ZERO)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.timed.inner.began.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::HistogramOpts;

    use super::*;

    #[test]
    fn what_goes_on_is_told_until_it_has_ended_and_then_counts() {
        let clock = Arc::new(AtomicU64::new(0));
        let secs = Arc::clone(&clock);
        let time = Time::new(move || Duration::from_secs(secs.load(Ordering::Relaxed)));
        let histogram = Histogram::with_opts(HistogramOpts::new("a", "b")).expect("a test's histogram");
        let timed = Timed::new(&time, vec![histogram.clone()]);
        assert_eq!(timed.recent(), Recent::default());

        let running = timed.begin();
        clock.store(9, Ordering::Relaxed);
        assert_eq!(timed.recent(), Recent { running: Some(Duration::from_secs(9)), ..Recent::default() });
        assert_eq!(running.end(), Duration::from_secs(9));
        let recent = timed.recent();
        assert_eq!((recent.count, recent.max, recent.running), (1, Duration::from_secs(9), None));
        assert_eq!(histogram.get_sample_sum(), 9.0);

        drop(timed.begin());
        assert_eq!((timed.recent().count, timed.recent().running), (1, None), "broken off");
    }
}
