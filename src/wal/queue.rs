//! The queue between those who append and the log's thread: bounded in bytes, taken whole, in order. It also keeps the
//! first failure, after which nothing is taken any more.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Done, Record, WalError};

/// What one `append` brought.
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    pub(super) done: Done,
}

/// What a record and a batch cost besides their payload, in bytes; an estimate for the queue's limit.
const OVERHEAD_BYTES: usize = 64;

impl Batch {
    /// Bytes the batch takes at most once it is written.
    pub(super) fn written_bytes_max(&self) -> u64 {
        (self.queued_bytes() + self.records.len() * OVERHEAD_BYTES) as u64
    }

    fn queued_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.records.iter().map(|record| OVERHEAD_BYTES + record.data_bytes()).sum::<usize>()
    }
}

pub(super) struct Queue {
    bytes_max: usize,
    state: Mutex<State>,
    /// Something is queued, or the queue is closed.
    filled: Condvar,
    /// The queue was emptied, or its reader is gone.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    batches: Vec<Batch>,
    bytes: usize,
    closed: bool,
    abandoned: bool,
    failure: Option<WalError>,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Self {
        Queue { bytes_max, state: Mutex::default(), filled: Condvar::new(), emptied: Condvar::new() }
    }

    /// Adds a batch; waits while the queue is full. A batch larger than the limit enters an empty queue.
    pub(super) fn push(&self, batch: Batch) {
        let bytes = batch.queued_bytes();
        let mut state = self.state.lock();
        while state.bytes > 0 && state.bytes.saturating_add(bytes) > self.bytes_max && !state.abandoned {
            self.emptied.wait(&mut state);
        }
        if state.abandoned {
            drop(state);
            return (batch.done)(Err(self.stopped()));
        }
        state.bytes += bytes;
        state.batches.push(batch);
        let was_empty = state.batches.len() == 1;
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Waits until something is queued. `false` when the queue is closed and drained.
    pub(super) fn wait_filled(&self) -> bool {
        let mut state = self.state.lock();
        while state.batches.is_empty() && !state.closed {
            self.filled.wait(&mut state);
        }
        !state.batches.is_empty()
    }

    /// Whether nothing is queued, and something still may be.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.batches.is_empty() && !state.closed && !state.abandoned
    }

    /// Moves all batches into the empty `batches`, swapping buffers.
    pub(super) fn take(&self, batches: &mut Vec<Batch>) {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.batches, batches);
        state.bytes = 0;
        drop(state);
        self.emptied.notify_all();
    }

    /// Waits until the queue is closed, for so long at most; whether it is.
    pub(super) fn wait_closed(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.closed && !self.filled.wait_until(&mut state, deadline).timed_out() {}
        state.closed
    }

    /// Lets the reader end when it has taken everything.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// Notes that the log has failed; the first failure counts.
    pub(super) fn fail(&self, failure: WalError) {
        self.state.lock().failure.get_or_insert(failure);
    }

    /// The error for everything after the first failure, if there was one.
    pub(super) fn check(&self) -> Result<(), WalError> {
        match &self.state.lock().failure {
            None => Ok(()),
            Some(stopped @ WalError::Stopped(_)) => Err(stopped.clone()),
            Some(failure) => Err(WalError::Stopped(failure.to_string())),
        }
    }

    /// The reader is gone, perhaps by a panic: whoever waits or comes later gets an error.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.bytes = 0;
        let left = std::mem::take(&mut state.batches);
        drop(state);
        self.emptied.notify_all();
        for batch in left {
            (batch.done)(Err(self.stopped()));
        }
    }

    fn stopped(&self) -> WalError {
        self.check().err().unwrap_or_else(|| WalError::Stopped("the log's thread has ended".into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::{Arc, mpsc};

    use bytes::Bytes;

    use super::*;

    fn batch(bytes: usize) -> Batch {
        Batch { records: vec![Record::State(Bytes::from(vec![0; bytes]))], done: Box::new(|_| {}) }
    }

    #[test]
    fn a_full_queue_holds_the_caller_until_it_is_taken() {
        let queue = Arc::new(Queue::new(1000));
        queue.push(batch(5000));
        let (sender, pushed) = mpsc::channel();
        let pusher = std::thread::spawn({
            let queue = queue.clone();
            move || {
                queue.push(batch(1));
                sender.send(()).unwrap();
            }
        });
        assert_eq!(pushed.try_recv(), Err(mpsc::TryRecvError::Empty));
        let mut taken = Vec::new();
        assert!(queue.wait_filled());
        queue.take(&mut taken);
        assert_eq!(taken.len(), 1);
        pushed.recv().unwrap();
        pusher.join().unwrap();
        taken.clear();
        queue.close();
        assert!(queue.wait_filled());
        queue.take(&mut taken);
        assert_eq!(taken.len(), 1);
        assert!(!queue.wait_filled());
    }

    #[test]
    fn an_abandoned_queue_answers() {
        let queue = Queue::new(1000);
        let (sender, answers) = mpsc::channel();
        let answering = |sender: mpsc::Sender<_>| Batch {
            records: vec![],
            done: Box::new(move |outcome| sender.send(outcome.is_err()).unwrap()),
        };
        queue.push(answering(sender.clone()));
        queue.abandon();
        queue.push(answering(sender));
        assert_eq!(answers.iter().collect::<Vec<_>>(), [true, true]);
    }
}
