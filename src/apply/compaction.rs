//! Tells one waiter when a compaction's physical part is done, whichever of the two comes first.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{error::ApiError, mvcc::Callback};

type OnDone = Box<dyn FnOnce(Result<(), ApiError>) + Send>;

/// Resolves when a physical compaction is finished and durable.
pub struct CompactionFinished {
    meeting: Arc<Mutex<Meeting>>,
}

enum Meeting {
    Nobody,
    Waiting(OnDone),
    Done(Result<(), ApiError>),
    Over,
}

impl CompactionFinished {
    /// The two ends: what the waiter gets, and what the store calls.
    pub(super) fn new() -> (CompactionFinished, Callback) {
        let meeting = Arc::new(Mutex::new(Meeting::Nobody));
        let finished = CompactionFinished { meeting: Arc::clone(&meeting) };
        let callback: Callback = Box::new(move |result| {
            let result = result.map(|_| ()).map_err(|error| ApiError::DataLoss(format!("compaction failed: {error}")));
            arrive(&meeting, |nobody_waits| match nobody_waits {
                Meeting::Waiting(on_done) => {
                    on_done(result);
                    Meeting::Over
                }
                _ => Meeting::Done(result),
            });
        });
        (finished, callback)
    }

    /// Calls back when it is done, at once if it is; from a thread of the store's otherwise.
    pub fn on_done(self, callback: OnDone) {
        arrive(&self.meeting, |done| match done {
            Meeting::Done(result) => {
                callback(result);
                Meeting::Over
            }
            _ => Meeting::Waiting(callback),
        });
    }
}

/// The callbacks only hand on: calling them under the lock is safe, and nobody else takes it.
fn arrive(meeting: &Mutex<Meeting>, next: impl FnOnce(Meeting) -> Meeting) {
    let mut meeting = meeting.lock();
    *meeting = next(std::mem::replace(&mut *meeting, Meeting::Over));
}

impl std::fmt::Debug for CompactionFinished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactionFinished").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use super::*;
    use crate::mvcc::LogPosition;

    #[test]
    fn whoever_comes_second_completes_it() {
        for store_first in [true, false] {
            let (finished, callback) = CompactionFinished::new();
            let (sender, receiver) = mpsc::channel();
            let on_done: OnDone = Box::new(move |result| sender.send(result).unwrap());
            if store_first {
                callback(Ok(LogPosition::default()));
                finished.on_done(on_done);
            } else {
                finished.on_done(on_done);
                assert!(receiver.try_recv().is_err());
                callback(Ok(LogPosition::default()));
            }
            assert_eq!(receiver.try_recv().unwrap(), Ok(()));
        }
    }
}
