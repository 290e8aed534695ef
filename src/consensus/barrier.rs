//! Read barriers by ReadIndex, shared: one is in flight, all that arrive meanwhile share the next.

use std::time::Duration;

use openraft::{
    ReadPolicy,
    errors::{LinearizableReadError, RaftError},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    RaftHandle,
    proposer::{ANSWER_GRACE, wait_for_change},
};
use crate::{error::ApiError, metrics::Metrics};

/// Readers that may wait for a barrier.
const QUEUE_READERS_MAX: usize = 65_536;

/// A barrier slower than this is counted as slow.
const SLOW_BARRIER_MIN: Duration = Duration::from_secs(1);

type Reader = oneshot::Sender<Result<(), ApiError>>;

/// Where readers ask. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct BarrierQueue {
    sender: mpsc::Sender<Reader>,
    request_timeout: Duration,
}

/// Serves the readers of a queue.
pub(super) struct Barriers {
    queue: mpsc::Receiver<Reader>,
    request_timeout: Duration,
    metrics: Metrics,
}

/// The two ends of a queue.
pub(super) fn barrier_queue(request_timeout: Duration, metrics: &Metrics) -> (BarrierQueue, Barriers) {
    let (sender, queue) = mpsc::channel(QUEUE_READERS_MAX);
    (BarrierQueue { sender, request_timeout }, Barriers { queue, request_timeout, metrics: metrics.clone() })
}

impl BarrierQueue {
    /// Waits for a barrier that began after this call.
    pub(super) async fn wait(&self) -> Result<(), ApiError> {
        let (reader, passed) = oneshot::channel();
        self.sender.try_send(reader).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ApiError::TooManyRequests,
            mpsc::error::TrySendError::Closed(_) => ApiError::Stopped,
        })?;
        // A barrier begins after the one that is in flight, which may take as long.
        let deadline = Instant::now() + self.request_timeout * 2 + ANSWER_GRACE;
        let passed = timeout_at(deadline, passed).await;
        passed.map_or(Err(ApiError::Timeout), |passed| passed.unwrap_or(Err(ApiError::Stopped)))
    }
}

impl Barriers {
    /// Serves until every [`BarrierQueue`] is gone or the task is dropped.
    pub(super) async fn run(mut self, raft: RaftHandle) {
        let mut readers = Vec::new();
        while self.queue.recv_many(&mut readers, QUEUE_READERS_MAX).await > 0 {
            let began = Instant::now();
            let result = pass(&raft, began + self.request_timeout).await;
            if began.elapsed() > SLOW_BARRIER_MIN {
                self.metrics.slow_read_indexes.inc();
            }
            if result.is_err() {
                self.metrics.read_indexes_failed.inc();
            }
            for reader in readers.drain(..) {
                // One that went away does not want to know.
                let _gone = reader.send(result.clone());
            }
        }
    }
}

/// Learns the commit index from a confirmed leader and waits until it is applied here.
async fn pass(raft: &RaftHandle, deadline: Instant) -> Result<(), ApiError> {
    loop {
        let asked = timeout_at(deadline, raft.get_read_linearizer(ReadPolicy::ReadIndex)).await;
        let refusal = match asked.map_err(|_| ApiError::Timeout)? {
            Ok(linearizer) => {
                let applied = timeout_at(deadline, linearizer.await_ready(raft)).await;
                return match applied {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(_)) => Err(ApiError::Stopped),
                    Err(_) => Err(ApiError::TimeoutWaitApplied),
                };
            }
            Err(RaftError::Fatal(_)) => return Err(ApiError::Stopped),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => match forward.leader_id {
                Some(_) => ApiError::NotLeader,
                None => ApiError::NoLeader,
            },
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => ApiError::Timeout,
        };
        wait_for_change(raft, deadline).await.map_err(|()| refusal)?;
    }
}
