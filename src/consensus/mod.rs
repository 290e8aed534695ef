//! The Raft library behind a facade: propose, read barrier, status, leadership, failure. Nothing of the library's
//! leaves this room.
//!
//! A thread of its own (`revgate-raft`) runs the library's core, the apply loop, the proposer and the read barriers, so
//! that requests cannot delay them and long applies cannot stall requests. A sole voter writes small entries on it too.
//! What this room never knows: what a command means, and what the log and the backend file look like inside.

mod barrier;
mod log_store;
mod marks;
mod member;
mod network;
mod proposer;
mod standing;
mod state_machine;
#[cfg(test)]
mod tests;
mod types;

use std::{path::PathBuf, sync::Arc, time::Duration};

use openraft::{
    Raft, async_runtime::watch::WatchReceiver, metrics::RaftServerMetrics, type_config::alias::WatchReceiverOf,
};
use parking_lot::Mutex;
use prost::Message;
use thiserror::Error;
use tokio::sync::{oneshot, watch};

use self::{
    barrier::BarrierQueue,
    proposer::ProposalQueue,
    standing::Standing,
    state_machine::StateMachine,
    types::{TypeConfig, is_readable},
};
use crate::{
    apply::{Applied, Applier, growth_bytes},
    disk::Disk,
    error::ApiError,
    metrics::{Metrics, StageTimes},
    mvcc::Store,
    proto::revgatepb::{InternalRaftRequest, internal_raft_request},
    wal,
};

type RaftHandle = Raft<TypeConfig, StateMachine>;
type ServerMetrics = WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>;

/// Entries committed and not yet applied above which requests are refused.
const APPLY_LAG_ENTRIES_MAX: u64 = 5_000;
/// The same for revoking leases, which makes room.
const APPLY_LAG_PRIORITY_ENTRIES_MAX: u64 = 10_000;
/// Applied bytes not yet in the backend file above which requests are refused.
const UNWRITTEN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Room in the log that is kept for its own records while there is no more to be had, in bytes.
const LOG_KEPT_BYTES: u64 = 64 * 1024;

/// Why the consensus could not start or end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConsensusError {
    /// The write-ahead log.
    #[error(transparent)]
    Wal(#[from] crate::wal::WalError),
    /// Entries are missing between the log and the backend file; the text says which.
    #[error("the log and the backend file do not belong together: {0}")]
    Apart(String),
    /// The Raft library, or the state it was given; the text says what.
    #[error("{0}")]
    Raft(String),
    /// The operating system would not start the thread.
    #[error("could not start the raft thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// Settings of the consensus.
#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    /// This member.
    pub member_id: u64,
    /// The cluster; a log of another one is refused.
    pub cluster_id: u64,
    /// Where the log lives.
    pub wal_dir: PathBuf,
    /// Time between heartbeats of the leader.
    pub heartbeat_interval: Duration,
    /// Silence after which an election begins.
    pub election_timeout: Duration,
    /// How long a request may take before it is answered with a timeout.
    pub request_timeout: Duration,
    /// Entries between two releases of the log.
    pub snapshot_count: u64,
    /// Released entries kept for followers that are behind.
    pub snapshot_catchup_entries: u64,
    /// Size of a log segment, in bytes.
    pub wal_segment_bytes: u64,
    /// Released log segments kept.
    pub wals_max: usize,
    /// Largest encoded proposal, in bytes.
    pub request_bytes_max: usize,
}

/// Where this member stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The leader's id, 0 if there is none.
    pub leader: u64,
    /// The term.
    pub term: u64,
    /// Index of the last entry in the log.
    pub last_log_index: u64,
    /// Index of the last committed entry.
    pub committed: u64,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Whether this member leads.
    pub is_leader: bool,
}

/// A running consensus. Cheap to clone; ends on [`Consensus::shutdown`], or when the last clone goes.
#[derive(Clone, Debug)]
pub struct Consensus {
    inner: Arc<Inner>,
}

struct Inner {
    raft: RaftHandle,
    proposals: ProposalQueue,
    barriers: BarrierQueue,
    standing: Arc<Standing>,
    store: Store,
    log_room: Arc<wal::Room>,
    request_bytes_max: usize,
    leadership: watch::Receiver<bool>,
    stop: Mutex<Option<member::Stop>>,
    stopped: tokio::sync::Mutex<Option<oneshot::Receiver<Result<(), ConsensusError>>>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("standing", &self.standing).finish_non_exhaustive()
    }
}

impl Consensus {
    /// Opens the log, replays its tail into the applier, and elects. A sole voter elects itself at once, and is ready for
    /// reads and writes when this returns.
    pub async fn start(
        options: ConsensusOptions,
        disk: Arc<dyn Disk>,
        store: Store,
        applier: Applier,
        metrics: &Metrics,
    ) -> Result<Consensus, ConsensusError> {
        let request_bytes_max = options.request_bytes_max;
        let member = member::start(options, disk, store.clone(), applier, metrics.clone()).await?;
        Ok(Consensus {
            inner: Arc::new(Inner {
                raft: member.raft,
                proposals: member.proposals,
                barriers: member.barriers,
                standing: member.standing,
                store,
                log_room: member.log_room,
                request_bytes_max,
                leadership: member.leadership,
                stop: Mutex::new(Some(member.stop)),
                stopped: tokio::sync::Mutex::new(Some(member.stopped)),
            }),
        })
    }

    /// Commits a command and waits until it is applied here. [`ApiError::Timeout`], [`ApiError::LeaderChanged`] and
    /// [`ApiError::Stopped`] leave open whether it will be; every other error is a refusal. Dropping the future cancels
    /// nothing that is already proposed.
    pub async fn propose(&self, command: InternalRaftRequest) -> Result<Applied, ApiError> {
        self.propose_timed(command).await.0
    }

    /// The same; also tells how long the command was in each stage of its way, if it was applied or refused there.
    pub async fn propose_timed(
        &self,
        command: InternalRaftRequest,
    ) -> (Result<Applied, ApiError>, Option<Box<StageTimes>>) {
        match self.check(&command) {
            Ok(bytes) => self.inner.proposals.propose(command, bytes).await,
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// Whether a command may be handed in; its size in bytes.
    fn check(&self, command: &InternalRaftRequest) -> Result<usize, ApiError> {
        let bytes = command.encoded_len();
        if bytes > self.inner.request_bytes_max {
            return Err(ApiError::RequestTooLarge);
        }
        if !is_readable(command) {
            return Err(ApiError::TooManyOps);
        }
        self.check_room(command, bytes as u64)?;
        self.check_pressure(command)?;
        Ok(bytes)
    }

    /// How long the write has been waiting that waits longest, of those that are in a log entry.
    pub fn oldest_write_age(&self) -> Option<Duration> {
        self.inner.proposals.oldest_age()
    }

    /// Which of the member's files cannot grow, and why, if one cannot.
    pub fn shortage(&self) -> Option<String> {
        self.inner.log_room.shortage().or_else(|| self.inner.store.shortage())
    }

    /// On a full disk only what makes room gets through, and that only as long as the log's reserve lasts: a record that
    /// does not fit would wait for room, and all that come after it.
    fn check_room(&self, command: &InternalRaftRequest, bytes: u64) -> Result<(), ApiError> {
        let Some(shortage) = self.shortage() else { return Ok(()) };
        let grows = command.request.as_ref().is_some_and(|request| growth_bytes(request) > 0);
        let room = &self.inner.log_room;
        let is_used_up = room.shortage().is_some() && room.left_bytes() < bytes.saturating_add(LOG_KEPT_BYTES);
        let has_too_much = self.inner.store.unwritten_bytes() > UNWRITTEN_BYTES_MAX;
        if grows || is_used_up || has_too_much { Err(ApiError::DiskFull(shortage)) } else { Ok(()) }
    }

    fn check_pressure(&self, command: &InternalRaftRequest) -> Result<(), ApiError> {
        let standing = &self.inner.standing;
        let lag_max = match command.request {
            Some(internal_raft_request::Request::LeaseRevoke(_)) => APPLY_LAG_PRIORITY_ENTRIES_MAX,
            _ => APPLY_LAG_ENTRIES_MAX,
        };
        let lag = standing.committed().saturating_sub(standing.applied());
        if lag > lag_max || self.inner.store.unwritten_bytes() > UNWRITTEN_BYTES_MAX {
            return Err(ApiError::TooManyRequests);
        }
        Ok(())
    }

    /// Once it returns, a local read sees every write that was acknowledged before the call. Shared by all callers that wait.
    pub async fn read_barrier(&self) -> Result<(), ApiError> {
        if self.inner.standing.is_ready() {
            return Ok(());
        }
        self.inner.barriers.wait().await
    }

    /// Where this member stands.
    pub fn status(&self) -> Status {
        let server = self.inner.raft.server_metrics();
        let server = server.borrow_watched();
        let standing = &self.inner.standing;
        Status {
            leader: server.current_leader.unwrap_or(0),
            term: standing.term(),
            last_log_index: standing.last_log(),
            committed: standing.committed(),
            applied: standing.applied(),
            is_leader: *self.inner.leadership.borrow(),
        }
    }

    /// Resolves once there has been no leader for `limit`, without a break.
    pub async fn leaderless(&self, limit: Duration) {
        let mut metrics = self.inner.raft.server_metrics();
        loop {
            // A library that has ended knows of no leader, whatever it said last.
            let goes_on = until_led(&mut metrics, false).await;
            let elected = async {
                if !goes_on || !until_led(&mut metrics, true).await {
                    std::future::pending::<()>().await;
                }
            };
            if tokio::time::timeout(limit, elected).await.is_err() {
                return;
            }
        }
    }

    /// Whether this member leads, and every change of it.
    pub fn leadership(&self) -> watch::Receiver<bool> {
        self.inner.leadership.clone()
    }

    /// Resolves with the reason if the consensus cannot go on (a failed sync, a damaged record): the member must stop.
    pub async fn failed(&self) -> String {
        let mut failure = self.inner.standing.failure();
        match failure.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The sender lives as long as `inner`, which `self` holds.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops: requests that wait are answered [`ApiError::Stopped`], the library ends, the log is closed. Waits for all of
    /// it; a second call does nothing.
    pub async fn shutdown(&self) -> Result<(), ConsensusError> {
        drop(self.inner.stop.lock().take());
        match self.inner.stopped.lock().await.take() {
            Some(stopped) => {
                stopped.await.unwrap_or_else(|_| Err(ConsensusError::Raft("the raft thread panicked".into())))
            }
            None => Ok(()),
        }
    }
}

/// Waits until there is a leader, or until there is none. `false`: the library has ended first.
async fn until_led(metrics: &mut ServerMetrics, led: bool) -> bool {
    while metrics.borrow_watched().current_leader.is_some() != led {
        if metrics.changed().await.is_err() {
            return false;
        }
    }
    true
}
