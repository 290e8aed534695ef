//! Packs the requests that wait into log entries: whatever is there goes into one entry, few entries are in flight.
//!
//! Every request is answered exactly once: with its outcome, with a refusal that means it was not proposed, or with an
//! error that says its outcome is unknown. A client that goes away before its request is proposed takes it with it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use openraft::{async_runtime::watch::WatchReceiver, errors::ClientWriteError, impls::OneshotResponder};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    RaftHandle,
    types::{Answer, Batch, TypeConfig, Waiter},
};
use crate::{error::ApiError, metrics::Metrics, proto::revgatepb::InternalRaftRequest};

/// Most requests one entry carries.
const BATCH_REQUESTS_MAX: usize = 1024;
/// Most bytes of requests one entry carries, unless the first alone is larger.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Entries proposed and not yet applied. Two keep the disk busy while the next batch gathers; more only make batches smaller.
const ENTRIES_IN_FLIGHT_MAX: usize = 2;
/// Requests that may wait to be packed.
const QUEUE_REQUESTS_MAX: usize = 65_536;
/// Bytes of requests that may wait to be packed.
const QUEUE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How much later than its deadline a request ends that nobody has answered by then.
pub(super) const ANSWER_GRACE: Duration = Duration::from_millis(20);
/// Longest time between two tries to propose while there is no leader that takes it.
const RETRY_INTERVAL_MAX: Duration = Duration::from_millis(10);

/// A request on its way into an entry.
struct Request {
    command: InternalRaftRequest,
    bytes: usize,
    waiter: Waiter,
    deadline: Instant,
}

/// Where requests are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ProposalQueue {
    sender: mpsc::Sender<Request>,
    waiting_bytes: Arc<AtomicUsize>,
    under_way: UnderWay,
    request_timeout: Duration,
    metrics: Metrics,
}

/// When the first request of each entry that is under way was handed in, the oldest entry first. As many as may be in
/// flight.
type UnderWay = Arc<Mutex<VecDeque<Duration>>>;

/// What `ProposalQueue` hands to, before it runs.
pub(super) struct Proposer {
    queue: mpsc::Receiver<Request>,
    waiting_bytes: Arc<AtomicUsize>,
    under_way: UnderWay,
    /// Taken from the queue, but too large for the last batch.
    carried: Option<Request>,
    metrics: Metrics,
}

/// The two ends of a queue.
pub(super) fn proposal_queue(request_timeout: Duration, metrics: &Metrics) -> (ProposalQueue, Proposer) {
    let (sender, queue) = mpsc::channel(QUEUE_REQUESTS_MAX);
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    let under_way = UnderWay::default();
    let handle = ProposalQueue {
        sender,
        waiting_bytes: Arc::clone(&waiting_bytes),
        under_way: Arc::clone(&under_way),
        request_timeout,
        metrics: metrics.clone(),
    };
    (handle, Proposer { queue, waiting_bytes, under_way, carried: None, metrics: metrics.clone() })
}

/// Counts a request as pending while it lives.
struct Pending<'a>(&'a Metrics);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.proposals_pending.dec();
    }
}

impl ProposalQueue {
    /// Hands in a request and waits for its outcome. `bytes` is its encoded size.
    pub(super) async fn propose(&self, command: InternalRaftRequest, bytes: usize) -> Answer {
        let deadline = Instant::now() + self.request_timeout;
        let outcome = match self.enqueue(command, bytes, deadline) {
            Ok(outcome) => outcome,
            Err(refusal) => return (Err(refusal), None),
        };
        self.metrics.proposals_pending.inc();
        let _pending = Pending(&self.metrics);
        // Here too: the proposer's thread may be waiting for the disk. If it is not, it knows better what to say.
        match timeout_at(deadline + ANSWER_GRACE, outcome).await {
            // Dropped unanswered: the member stopped with the request's outcome unknown.
            Ok(answer) => answer.unwrap_or((Err(ApiError::Stopped), None)),
            Err(_) => {
                self.metrics.proposals_failed.inc();
                (Err(ApiError::Timeout), None)
            }
        }
    }

    /// How long the first request of the oldest entry under way has been waiting.
    pub(super) fn oldest_age(&self) -> Option<Duration> {
        let oldest = self.under_way.lock().front().copied();
        oldest.map(|handed_in| self.metrics.time.now().saturating_sub(handed_in))
    }

    fn enqueue(
        &self,
        command: InternalRaftRequest,
        bytes: usize,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Answer>, ApiError> {
        let (sender, outcome) = oneshot::channel();
        let waiter = Waiter { sender, handed_in: self.metrics.time.now() };
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let refusal = if self.sender.is_closed() {
            Some(ApiError::Stopped)
        } else if waiting > QUEUE_BYTES_MAX {
            Some(ApiError::TooManyRequests)
        } else {
            match self.sender.try_send(Request { command, bytes, waiter, deadline }) {
                Ok(()) => None,
                Err(mpsc::error::TrySendError::Full(_)) => Some(ApiError::TooManyRequests),
                Err(mpsc::error::TrySendError::Closed(_)) => Some(ApiError::Stopped),
            }
        };
        match refusal {
            None => Ok(outcome),
            Some(error) => {
                self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

impl Proposer {
    /// Proposes until every [`ProposalQueue`] is gone or the task is dropped; what waits then is dropped unanswered.
    pub(super) async fn run(mut self, raft: RaftHandle) {
        let failed = self.metrics.proposals_failed.clone();
        let under_way = Arc::clone(&self.under_way);
        let mut in_flight = FuturesUnordered::new();
        loop {
            tokio::select! {
                // Finished entries first: they make room.
                biased;
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                first = next_request(&mut self.carried, &mut self.queue), if in_flight.len() < ENTRIES_IN_FLIGHT_MAX => {
                    let Some(first) = first else { return };
                    let (handed_in, packed) = (first.waiter.handed_in, self.pack(first));
                    if let Some((batch, deadline)) = packed {
                        let under_way = Noted::new(&under_way, handed_in);
                        in_flight.push(propose(&raft, batch, deadline, &failed, under_way));
                    }
                }
            }
        }
    }

    /// Takes all that waits, up to the limits, into one batch. `None` if nobody waits for any of it any more.
    fn pack(&mut self, first: Request) -> Option<(Batch, Instant)> {
        let deadline = first.deadline;
        let mut bytes = 0;
        let mut commands = Vec::new();
        let mut waiters = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next {
            if bytes > 0 && bytes + request.bytes > BATCH_BYTES_MAX {
                self.carried = Some(request);
                break;
            }
            self.waiting_bytes.fetch_sub(request.bytes, Ordering::Relaxed);
            if !request.waiter.sender.is_closed() {
                bytes += request.bytes;
                commands.push(request.command);
                waiters.push(request.waiter);
            }
            next = if commands.len() < BATCH_REQUESTS_MAX { self.queue.try_recv().ok() } else { None };
        }
        if commands.is_empty() {
            return None;
        }
        self.metrics.proposal_batch_requests.observe(commands.len() as f64);
        Some((Batch::new(commands, waiters), deadline))
    }
}

async fn next_request(carried: &mut Option<Request>, queue: &mut mpsc::Receiver<Request>) -> Option<Request> {
    match carried.take() {
        Some(request) => Some(request),
        None => queue.recv().await,
    }
}

/// An entry is under way while this lives.
struct Noted<'a> {
    under_way: &'a Mutex<VecDeque<Duration>>,
    handed_in: Duration,
}

impl<'a> Noted<'a> {
    fn new(under_way: &'a Mutex<VecDeque<Duration>>, handed_in: Duration) -> Noted<'a> {
        under_way.lock().push_back(handed_in);
        Noted { under_way, handed_in }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        if let Some(at) = under_way.iter().position(|handed_in| *handed_in == self.handed_in) {
            under_way.remove(at);
        }
    }
}

/// Proposes one batch and waits until it is applied here. Only a proposal that certainly is in no log is tried again.
async fn propose(
    raft: &RaftHandle,
    batch: Batch,
    deadline: Instant,
    failed: &prometheus::IntCounter,
    _under_way: Noted<'_>,
) {
    let Err(error) = try_until(raft, &batch, deadline).await else { return };
    failed.inc_by(batch.fail(&error));
}

async fn try_until(raft: &RaftHandle, batch: &Batch, deadline: Instant) -> Result<(), ApiError> {
    loop {
        let (responder, answer) = OneshotResponder::<TypeConfig, _>::new_pair();
        raft.client_write_ff(batch.clone(), Some(responder)).await.map_err(|_| ApiError::Stopped)?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(_applied))) => return Ok(()),
            // Never appended. A leader that has just been elected refuses until a quorum has answered it.
            Ok(Ok(Err(ClientWriteError::ForwardToLeader(forward)))) => {
                let refusal = match forward.leader_id {
                    Some(_) => ApiError::Timeout,
                    None => ApiError::NoLeader,
                };
                wait_for_change(raft, deadline).await.map_err(|()| refusal)?;
            }
            // It was in this member's log; whether another leader commits it nobody here knows.
            Ok(Ok(Err(_))) => return Err(ApiError::LeaderChanged),
            Ok(Err(_)) => return Err(ApiError::Stopped),
            Err(_) => return Err(ApiError::Timeout),
        }
    }
}

/// Waits until the library's view of the cluster changes, for a bounded time; an error once the deadline has passed.
pub(super) async fn wait_for_change(raft: &RaftHandle, deadline: Instant) -> Result<(), ()> {
    let now = Instant::now();
    if now >= deadline {
        return Err(());
    }
    let mut changes = raft.metrics();
    // Some conditions (a lease) end without a change: the bound is what ends the wait then.
    let _either = timeout_at(deadline.min(now + RETRY_INTERVAL_MAX), changes.changed()).await;
    Ok(())
}
