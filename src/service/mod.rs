//! etcd's semantics, one file a service.
//!
//! A service checks what needs no state, asks `consensus` for what must be agreed on or waited for, and reads the rest
//! where it lies. Every answer's header is complete when it leaves this room, every failure is an [`ApiError`].
//!
//! Must never know: HTTP, JSON, sockets, or who the client is connected through. A transport calls these services, and
//! two transports get the same answers.

mod auth;
mod auto_compaction;
mod caller;
mod cluster;
mod diagnosis;
mod election;
mod header;
mod health;
mod kv;
mod lease;
mod lease_expiry;
mod lock;
mod maintenance;
mod pages;
mod pipeline;
mod quota;
mod tasks;
mod turn;
mod validate;
mod watch;

pub use self::{
    auth::AuthService,
    caller::Caller,
    cluster::ClusterService,
    diagnosis::{Finding, Severity, diagnose, short, size, verdict},
    election::ElectionService,
    health::{Check, HealthService},
    kv::{KvService, RangeAnswer, read_error},
    lease::LeaseService,
    lock::LockService,
    maintenance::{MaintenanceService, SnapshotStream, Versions},
    pages::NextPage,
    pipeline::{Durations, Indexes, PipelineReport, PipelineService, Room},
    tasks::Tasks,
    watch::{WatchOutput, WatchService, WatchSession},
};

use crate::{
    apply::{Applied, State},
    config::Config,
    consensus::Consensus,
    error::ApiError,
    metrics::Metrics,
    proto::revgatepb::{InternalRaftRequest, RequestHeader, internal_raft_request::Request},
};

use tokio_util::task::TaskTracker;

use self::{header::Headers, quota::Quota, turn::Turns};

/// After how many election timeouts without a leader the streams end whose clients require one.
const LEADERLESS_ELECTION_TIMEOUTS_MAX: u32 = 3;

/// All services of one member. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Services {
    /// Range, put, delete, txn, compaction.
    pub kv: KvService,
    /// Streams of events.
    pub watch: WatchService,
    /// Leases.
    pub lease: LeaseService,
    /// Locks.
    pub lock: LockService,
    /// Elections.
    pub election: ElectionService,
    /// Who belongs to the cluster.
    pub cluster: ClusterService,
    /// Status, alarms, versions.
    pub maintenance: MaintenanceService,
    /// Users, roles, tokens.
    pub auth: AuthService,
    /// What `/health`, `/livez` and `/readyz` ask.
    pub health: HealthService,
    /// Where writes are on their way, and what holds them up.
    pub pipeline: PipelineService,
    /// Waits for locks and elections that go on, or give back what their clients left.
    waits: TaskTracker,
}

impl Services {
    /// The services of a member whose floors below are running.
    pub fn new(config: &Config, state: State, consensus: Consensus, metrics: &Metrics) -> Services {
        let headers = Headers::new(&state.members, consensus.clone());
        let core = Core { headers, state, consensus, quota: Quota::new(config, metrics) };
        let kv = KvService::new(core.clone(), config.txn_ops_max);
        let lease = LeaseService::new(core.clone(), config.request_timeout(), metrics);
        let leaderless_max = LEADERLESS_ELECTION_TIMEOUTS_MAX * config.election_timeout;
        let watch = WatchService::new(core.clone(), config.request_bytes_max, leaderless_max);
        let waits = TaskTracker::new();
        let turns = Turns::new(core.clone(), kv.clone(), lease.clone(), watch.clone(), waits.clone());
        Services {
            lock: LockService::new(turns.clone(), kv.clone()),
            election: ElectionService::new(turns),
            waits,
            kv,
            lease,
            watch,
            cluster: ClusterService::new(core.clone()),
            auth: AuthService::new(core.clone(), config.bcrypt_cost, config.request_timeout()),
            maintenance: MaintenanceService::new(core.clone(), config.quota_backend_bytes, metrics),
            pipeline: PipelineService::new(core.clone(), metrics),
            health: HealthService::new(core, config.request_timeout(), metrics),
        }
    }
}

impl Services {
    /// Whether there is a leader, as far as this member knows.
    pub fn has_leader(&self) -> bool {
        self.kv.core().consensus.status().leader != 0
    }
}

/// What every service stands on.
#[derive(Clone, Debug)]
struct Core {
    state: State,
    consensus: Consensus,
    headers: Headers,
    quota: Quota,
}

impl Core {
    /// Commits a command in a caller's name and waits until it is applied here.
    async fn propose(&self, caller: &Caller, request: Request) -> Result<Applied, ApiError> {
        let identity = self.identify(caller)?;
        // Nobody's command would be refused when it is applied. Until then it would fill the log.
        self.state.auth.check_user(&identity.user)?;
        let _admitted = self.admit(&identity, &request).await?;
        let command = InternalRaftRequest { header: Some(caller::header(identity)), id: 0, request: Some(request) };
        let (outcome, stages) = self.consensus.propose_timed(command).await;
        caller.note_write(stages);
        outcome
    }

    /// Commits a command of the member's own and waits until it is applied here.
    async fn propose_own(&self, request: Request) -> Result<Applied, ApiError> {
        self.propose_as(None, request).await
    }

    async fn propose_as(&self, header: Option<RequestHeader>, request: Request) -> Result<Applied, ApiError> {
        self.consensus.propose(InternalRaftRequest { header, id: 0, request: Some(request) }).await
    }
}

/// The state machine answered a command with another command's outcome.
fn wrong_outcome(command: &str, applied: &Applied) -> ApiError {
    tracing::error!(command, ?applied, "a command was applied as another one");
    ApiError::Internal(format!("{command} was applied as another command"))
}
