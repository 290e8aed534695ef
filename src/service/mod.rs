//! etcd's semantics, one file a service.
//!
//! A service checks what needs no state, asks `consensus` for what must be agreed on or waited for, and reads the rest
//! where it lies. Every answer's header is complete when it leaves this room, every failure is an [`ApiError`].
//!
//! Must never know: HTTP, JSON, sockets, or who the client is connected through. A transport calls these services, and
//! two transports get the same answers.

mod auto_compaction;
mod cluster;
mod header;
mod health;
mod kv;
mod lease;
mod lease_expiry;
mod maintenance;
mod tasks;
mod validate;
mod watch;

pub use self::{
    cluster::ClusterService,
    health::{Check, HealthService},
    kv::{KvService, RangeAnswer, read_error},
    lease::LeaseService,
    maintenance::{MaintenanceService, Versions},
    tasks::Tasks,
    watch::{WatchOutput, WatchService, WatchSession},
};

use crate::{
    apply::{Applied, State},
    config::Config,
    consensus::Consensus,
    error::ApiError,
    metrics::Metrics,
    proto::revgatepb::{InternalRaftRequest, internal_raft_request::Request},
};

use self::header::Headers;

/// All services of one member. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Services {
    /// Range, put, delete, txn, compaction.
    pub kv: KvService,
    /// Streams of events.
    pub watch: WatchService,
    /// Leases.
    pub lease: LeaseService,
    /// Who belongs to the cluster.
    pub cluster: ClusterService,
    /// Status, alarms, versions.
    pub maintenance: MaintenanceService,
    /// What `/health`, `/livez` and `/readyz` ask.
    pub health: HealthService,
}

impl Services {
    /// The services of a member whose floors below are running.
    pub fn new(config: &Config, state: State, consensus: Consensus, metrics: &Metrics) -> Services {
        let core = Core { headers: Headers::new(&state.members, consensus.clone()), state, consensus };
        Services {
            kv: KvService::new(core.clone(), config.txn_ops_max),
            watch: WatchService::new(core.clone(), config.request_bytes_max),
            lease: LeaseService::new(core.clone(), config.request_timeout(), metrics),
            cluster: ClusterService::new(core.clone()),
            maintenance: MaintenanceService::new(core.clone(), config.quota_backend_bytes),
            health: HealthService::new(core, config.request_timeout(), metrics),
        }
    }
}

/// What every service stands on.
#[derive(Clone, Debug)]
struct Core {
    state: State,
    consensus: Consensus,
    headers: Headers,
}

impl Core {
    /// Commits a command and waits until it is applied here.
    async fn propose(&self, request: Request) -> Result<Applied, ApiError> {
        self.consensus.propose(InternalRaftRequest { header: None, id: 0, request: Some(request) }).await
    }
}

/// The state machine answered a command with another command's outcome.
fn wrong_outcome(command: &str, applied: &Applied) -> ApiError {
    tracing::error!(command, ?applied, "a command was applied as another one");
    ApiError::Internal(format!("{command} was applied as another command"))
}
