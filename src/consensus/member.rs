//! The member's raft thread: builds the library's parts from the log and the backend file, runs them, takes them down.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use openraft::{Config, EmptyNode, RaftState, ServerState, SnapshotPolicy, async_runtime::watch::WatchReceiver};
use tokio::{
    runtime::Builder,
    sync::{Notify, oneshot, watch},
};

use super::{
    ConsensusError, ConsensusOptions, RaftHandle,
    barrier::{BarrierQueue, Barriers, barrier_queue},
    log_store::LogStore,
    network::NoPeers,
    proposer::{ProposalQueue, Proposer, proposal_queue},
    standing::Standing,
    state_machine::{StateMachine, TAIL_BYTES_MAX},
    types::{TypeConfig, is_sole_voter},
};
use crate::{
    apply::Applier,
    disk::Disk,
    metrics::Metrics,
    mvcc::Store,
    wal::{self, Wal, WalMetrics},
};

/// Bytes of entries the log may hold unwritten. Far above what two entries in flight can take, so that appending, which
/// happens in the library's core, does not wait for room here.
const WAL_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time a peer may take to install a snapshot, in milliseconds.
const SNAPSHOT_TIMEOUT_MS: u64 = 10 * 60 * 1000;
/// Entries that are purged at once at least: each purge writes a record.
const PURGE_BATCH_ENTRIES: u64 = 64;

/// Dropped to stop the thread.
#[derive(Debug)]
pub(super) struct Stop {
    _sender: oneshot::Sender<()>,
}

/// A started member, as the facade holds it.
pub(super) struct Member {
    pub(super) raft: RaftHandle,
    pub(super) proposals: ProposalQueue,
    pub(super) barriers: BarrierQueue,
    pub(super) standing: Arc<Standing>,
    pub(super) log_room: Arc<wal::Room>,
    pub(super) leadership: watch::Receiver<bool>,
    pub(super) stop: Stop,
    /// Resolves when the thread has ended.
    pub(super) stopped: oneshot::Receiver<Result<(), ConsensusError>>,
}

/// What the thread runs on.
struct Parts {
    options: ConsensusOptions,
    log: LogStore,
    state_machine: StateMachine,
    standing: Arc<Standing>,
    tail_too_large: Arc<Notify>,
    metrics: Metrics,
}

/// Starts the thread and waits until the member is up.
pub(super) async fn start(
    options: ConsensusOptions,
    disk: Arc<dyn Disk>,
    store: Store,
    applier: Applier,
    metrics: Metrics,
) -> Result<Member, ConsensusError> {
    let (started_sender, started) = oneshot::channel();
    let (stopped_sender, stopped) = oneshot::channel();
    let run = move || {
        let result = run_thread(options, disk, store, applier, metrics, started_sender);
        // Nobody waits if the last handle was dropped without a shutdown.
        let _nobody = stopped_sender.send(result);
    };
    std::thread::Builder::new().name("revgate-raft".into()).spawn(run).map_err(ConsensusError::Thread)?;
    match started.await {
        Ok(begun) => Ok(begun.with_stopped(stopped)),
        Err(_) => match stopped.await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Err(ConsensusError::Raft("the raft thread ended before it was up".into())),
        },
    }
}

/// A member whose end cannot be awaited yet.
struct Begun {
    raft: RaftHandle,
    proposals: ProposalQueue,
    barriers: BarrierQueue,
    standing: Arc<Standing>,
    log_room: Arc<wal::Room>,
    leadership: watch::Receiver<bool>,
    stop: Stop,
}

impl Begun {
    fn with_stopped(self, stopped: oneshot::Receiver<Result<(), ConsensusError>>) -> Member {
        Member {
            raft: self.raft,
            proposals: self.proposals,
            barriers: self.barriers,
            standing: self.standing,
            log_room: self.log_room,
            leadership: self.leadership,
            stop: self.stop,
            stopped,
        }
    }
}

fn run_thread(
    options: ConsensusOptions,
    disk: Arc<dyn Disk>,
    store: Store,
    applier: Applier,
    metrics: Metrics,
    started: oneshot::Sender<Begun>,
) -> Result<(), ConsensusError> {
    let parts = open_parts(options, disk, store, applier, metrics)?;
    let log = parts.log.clone();
    let runtime = Builder::new_current_thread().enable_time().build().map_err(ConsensusError::Thread)?;
    let result = runtime.block_on(run(parts, started));
    // Ends every task that is left, the apply loop with the applier included, before the log goes.
    drop(runtime);
    let closed = log.close();
    result?;
    Ok(closed?)
}

fn open_parts(
    options: ConsensusOptions,
    disk: Arc<dyn Disk>,
    store: Store,
    applier: Applier,
    metrics: Metrics,
) -> Result<Parts, ConsensusError> {
    let standing = Arc::new(Standing::new(options.member_id));
    let on_fatal = Arc::clone(&standing);
    store.on_fatal(Box::new(move |error| on_fatal.fail(format!("backend file: {error}"))));

    let applied = applier.position();
    let from_index = applied.index.saturating_sub(options.snapshot_catchup_entries).max(1);
    let mut metadata = options.member_id.to_be_bytes().to_vec();
    metadata.extend_from_slice(&options.cluster_id.to_be_bytes());
    let wal_options = wal::Options {
        segment_bytes: options.wal_segment_bytes,
        queue_bytes_max: WAL_QUEUE_BYTES_MAX,
        released_segments_kept: options.wals_max,
    };
    let (wal, recovered) =
        Wal::open(disk, &options.wal_dir, &metadata, from_index, wal_options, WalMetrics::from(&metrics))?;
    if recovered.metadata != metadata {
        return Err(ConsensusError::Raft(format!(
            "the log in {} belongs to another member or cluster",
            options.wal_dir.display()
        )));
    }
    if let Some(torn) = &recovered.repaired {
        tracing::warn!(
            segment = %torn.path.display(),
            offset = torn.offset,
            backup = %torn.backup.display(),
            "cut a half-written record off the end of the log"
        );
    }
    let log = LogStore::new(wal, recovered, applied, options.member_id, Arc::clone(&standing), metrics.clone())?;
    let tail_too_large = Arc::new(Notify::new());
    let state_machine = StateMachine::open(
        applier,
        store,
        log.clone(),
        Arc::clone(&standing),
        metrics.clone(),
        Arc::clone(&tail_too_large),
    )
    .map_err(ConsensusError::Raft)?;
    Ok(Parts { options, log, state_machine, standing, tail_too_large, metrics })
}

async fn run(parts: Parts, started: oneshot::Sender<Begun>) -> Result<(), ConsensusError> {
    let Parts { options, log, state_machine, standing, tail_too_large, metrics } = parts;
    let log_room = log.room().ok_or_else(|| ConsensusError::Raft("the log was closed before it was used".into()))?;
    let config = Arc::new(raft_config(&options)?);
    let raft =
        RaftHandle::new(options.member_id, config, NoPeers, log.clone(), state_machine).await.map_err(raft_error)?;
    let (proposals, proposer) = proposal_queue(options.request_timeout, &metrics);
    let (barriers, barrier_server) = barrier_queue(options.request_timeout, &metrics);
    let (leads, leadership) = watch::channel(false);
    let (stop, stop_requested) = oneshot::channel();

    let tasks = Tasks { raft: raft.clone(), log, standing: Arc::clone(&standing), tail_too_large, metrics };
    let serve = tasks.run(proposer, barrier_server, leads);
    let begin = async {
        let up = begin(&raft, options.member_id, &standing, leadership.clone()).await;
        up.map(|()| {
            let stop = Stop { _sender: stop };
            // Refused only if the caller gave up: then `stop` is dropped, which ends the thread.
            let _gave_up = started.send(Begun {
                raft: raft.clone(),
                proposals,
                barriers,
                standing: Arc::clone(&standing),
                log_room,
                leadership,
                stop,
            });
        })
    };
    let result = tokio::select! {
        () = serve => Ok(()),
        result = async { begin.await?; stop_requested.await.or(Ok(())) } => result,
    };
    standing.stopped();
    raft.shutdown().await.map_err(|error| ConsensusError::Raft(error.to_string()))?;
    result
}

/// Makes a cluster of a pristine member, and has a sole voter elect itself and become ready.
async fn begin(
    raft: &RaftHandle,
    member_id: u64,
    standing: &Standing,
    mut leadership: watch::Receiver<bool>,
) -> Result<(), ConsensusError> {
    if raft.is_initialized().await.map_err(raft_error)? {
        let is_sole = move |state: &RaftState<TypeConfig>| {
            is_sole_voter(state.membership_state.effective().membership(), member_id)
        };
        if !raft.with_raft_state(is_sole).await.map_err(raft_error)? {
            return Err(ConsensusError::Raft(
                "the log or the backend file names other voters than this member; clusters are not supported yet"
                    .into(),
            ));
        }
        // No need to wait for an election timeout: nobody else can be leading.
        raft.trigger().elect(false).await.map_err(raft_error)?;
    } else {
        // Elects at once.
        raft.initialize(BTreeMap::from([(member_id, EmptyNode::new())])).await.map_err(raft_error)?;
    }
    let mut ready = standing.ready_changes();
    let up = async {
        // Either sender outlives this wait.
        drop(ready.wait_for(|ready| *ready).await);
        drop(leadership.wait_for(|leads| *leads).await);
    };
    let mut failure = standing.failure();
    tokio::select! {
        () = up => Ok(()),
        reason = async { failure.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone()) } => {
            Err(ConsensusError::Raft(reason.unwrap_or_default()))
        }
    }
}

fn raft_error(error: impl std::fmt::Display) -> ConsensusError {
    ConsensusError::Raft(error.to_string())
}

fn raft_config(options: &ConsensusOptions) -> Result<Config, ConsensusError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let election_timeout_ms = millis(options.election_timeout);
    Config {
        cluster_name: format!("{:x}", options.cluster_id),
        heartbeat_interval: millis(options.heartbeat_interval),
        election_timeout_min: election_timeout_ms,
        election_timeout_max: election_timeout_ms.saturating_mul(2),
        install_snapshot_timeout: SNAPSHOT_TIMEOUT_MS,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_count),
        max_in_snapshot_log_to_keep: options.snapshot_catchup_entries,
        purge_batch_size: PURGE_BATCH_ENTRIES,
        enable_pre_vote: Some(true),
        // Each start is a new term, as in etcd, and its first entry commits and applies all that the log holds.
        enable_leader_restore: Some(false),
        ..Config::default()
    }
    .validate()
    .map_err(raft_error)
}

/// The tasks beside the library's own.
struct Tasks {
    raft: RaftHandle,
    log: LogStore,
    standing: Arc<Standing>,
    tail_too_large: Arc<Notify>,
    metrics: Metrics,
}

impl Tasks {
    /// Runs until one of them ends, which only a stopped library makes them do.
    async fn run(&self, proposer: Proposer, barriers: Barriers, leads: watch::Sender<bool>) {
        tokio::join!(
            proposer.run(self.raft.clone()),
            barriers.run(self.raft.clone()),
            self.watch_server(leads),
            self.bound_tail()
        );
    }

    /// Follows who leads, and notices when the library has stopped by itself.
    async fn watch_server(&self, leads: watch::Sender<bool>) {
        let mut server = self.raft.server_metrics();
        let mut leader = None;
        loop {
            {
                let now = server.borrow_and_update();
                let is_leader = now.state == ServerState::Leader;
                self.metrics.has_leader.set(i64::from(now.current_leader.is_some()));
                self.metrics.is_leader.set(i64::from(is_leader));
                if now.current_leader.is_some() && now.current_leader != leader {
                    self.metrics.leader_changes_seen.inc();
                }
                leader = now.current_leader;
                leads.send_if_modified(|current| std::mem::replace(current, is_leader) != is_leader);
            }
            if server.changed().await.is_err() {
                break;
            }
        }
        leads.send_replace(false);
        self.metrics.has_leader.set(0);
        self.metrics.is_leader.set(0);
        let state = self.raft.metrics().borrow_watched().running_state.clone();
        let reason = state.err().map_or_else(|| "stopped".to_owned(), |fatal| fatal.to_string());
        self.standing.fail(format!("raft: {reason}"));
    }

    /// Has the oldest entries purged whenever the tail in memory is too large.
    async fn bound_tail(&self) {
        loop {
            self.tail_too_large.notified().await;
            let Some(upto) = self.log.purge_point(TAIL_BYTES_MAX / 2) else { continue };
            let before = self.raft.metrics().borrow_watched().snapshot;
            if self.raft.trigger().snapshot().await.is_err() {
                return;
            }
            let advanced = |metrics: &openraft::RaftMetrics<TypeConfig>| {
                metrics.snapshot > before || metrics.snapshot.is_some_and(|snapshot| snapshot.index >= upto)
            };
            if self.raft.wait(None).metrics(advanced, "the backend file holds more entries").await.is_err()
                || self.raft.trigger().purge_log(upto).await.is_err()
            {
                return;
            }
        }
    }
}
