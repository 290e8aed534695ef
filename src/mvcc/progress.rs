//! Something that takes long tells the log every few seconds how far it is.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread::{Builder, Scope},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// How far it is. Counted by those who work, told by a thread of its own.
pub(super) struct Progress {
    total: u64,
    done: AtomicU64,
    is_over: Mutex<bool>,
    over: Condvar,
}

/// While it lives, there are reports.
pub(super) struct Reports<'a>(&'a Progress);

impl Progress {
    pub(super) fn new(total: u64) -> Progress {
        Progress { total, done: AtomicU64::new(0), is_over: Mutex::new(false), over: Condvar::new() }
    }

    pub(super) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Calls `report` with what is done and the total, each time an interval has passed, until what is returned is
    /// dropped. Where the system gives no thread there are none.
    pub(super) fn report_every<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        interval: Duration,
        mut report: impl FnMut(u64, u64) + Send + 'scope,
    ) -> Reports<'env> {
        let tell = move || {
            let mut is_over = self.is_over.lock();
            while !*is_over {
                let waited = self.over.wait_for(&mut is_over, interval);
                if waited.timed_out() && !*is_over {
                    report(self.done.load(Ordering::Relaxed).min(self.total), self.total);
                }
            }
        };
        let _ = Builder::new().spawn_scoped(scope, tell);
        Reports(self)
    }
}

impl Drop for Reports<'_> {
    fn drop(&mut self) {
        *self.0.is_over.lock() = true;
        self.0.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn reports_come_until_it_is_over() {
        let progress = Progress::new(10);
        progress.add(3);
        progress.add(4);
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let reports = progress.report_every(scope, Duration::from_millis(1), move |done, total| {
                // Nobody listens any more once the second has come.
                let _ = sender.send((done, total));
            });
            assert_eq!(receiver.recv(), Ok((7, 10)));
            assert_eq!(receiver.recv(), Ok((7, 10)));
            drop(reports);
        });
        // The thread is gone, or the scope would not have ended; nothing comes after what was on its way.
        while receiver.try_recv().is_ok() {}
        assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
