//! etcd's semantics, one file a service; no HTTP in it. SKELETON: the signatures below are the contract.
#![allow(missing_docs, unused, clippy::all)]

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    apply::State, config::Config, consensus::Consensus, error::ApiError, metrics::Metrics, mvcc::RangeCursor,
    proto::etcdserverpb as pb, watch::Delivery,
};

/// All services of one member. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Services {
    pub kv: KvService,
    pub watch: WatchService,
    pub lease: LeaseService,
    pub cluster: ClusterService,
    pub maintenance: MaintenanceService,
    pub health: HealthService,
}

impl Services {
    pub fn new(config: &Config, state: State, consensus: Consensus, metrics: &Metrics) -> Services {
        todo!()
    }
}

/// A range's answer: header first, then pairs from the cursor, then more and count.
#[derive(Debug)]
pub struct RangeAnswer {
    pub header: pb::ResponseHeader,
    pub cursor: RangeCursor,
}

#[derive(Clone, Debug)]
pub struct KvService {
    _p: Arc<()>,
}
impl KvService {
    pub async fn range(&self, request: pb::RangeRequest) -> Result<RangeAnswer, ApiError> {
        todo!()
    }
    pub async fn put(&self, request: pb::PutRequest) -> Result<pb::PutResponse, ApiError> {
        todo!()
    }
    pub async fn delete_range(&self, request: pb::DeleteRangeRequest) -> Result<pb::DeleteRangeResponse, ApiError> {
        todo!()
    }
    pub async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, ApiError> {
        todo!()
    }
    pub async fn compact(&self, request: pb::CompactionRequest) -> Result<pb::CompactionResponse, ApiError> {
        todo!()
    }
}

#[derive(Clone, Debug)]
pub struct WatchService {
    _p: Arc<()>,
}
impl WatchService {
    pub fn open(&self) -> WatchSession {
        todo!()
    }
}

/// One client's stream of watches: requests in, deliveries out.
#[derive(Debug)]
pub struct WatchSession {
    _p: (),
}

/// What goes to the client. Headers are complete.
#[derive(Debug)]
pub enum WatchOutput {
    /// Anything without events.
    Control(pb::WatchResponse),
    /// Events, shared with other streams; `header` and the flag `fragment` are this response's. Already split if the watcher allows it.
    Events { header: pb::ResponseHeader, watch_id: i64, fragment: bool, events: Vec<Arc<crate::watch::Event>> },
}

impl WatchSession {
    /// Takes one request of the client's. Unknown or empty ones are ignored, as etcd does. Refused creations come out as a
    /// created+canceled response with watch_id -1.
    pub fn handle(&mut self, request: pb::WatchRequest) {
        todo!()
    }
    /// The next response; `None` when the member is going down.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchOutput>> {
        todo!()
    }
    /// Whether any response is ready without waiting (so that a transport can gather a burst into one write).
    pub fn try_next(&mut self) -> Option<WatchOutput> {
        todo!()
    }
}

#[derive(Clone, Debug)]
pub struct LeaseService {
    _p: Arc<()>,
}
impl LeaseService {
    pub async fn grant(&self, request: pb::LeaseGrantRequest) -> Result<pb::LeaseGrantResponse, ApiError> {
        todo!()
    }
    pub async fn revoke(&self, request: pb::LeaseRevokeRequest) -> Result<pb::LeaseRevokeResponse, ApiError> {
        todo!()
    }
    pub async fn keep_alive(&self, request: pb::LeaseKeepAliveRequest) -> Result<pb::LeaseKeepAliveResponse, ApiError> {
        todo!()
    }
    pub async fn time_to_live(
        &self,
        request: pb::LeaseTimeToLiveRequest,
    ) -> Result<pb::LeaseTimeToLiveResponse, ApiError> {
        todo!()
    }
    pub async fn leases(&self, request: pb::LeaseLeasesRequest) -> Result<pb::LeaseLeasesResponse, ApiError> {
        todo!()
    }
}

#[derive(Clone, Debug)]
pub struct ClusterService {
    _p: Arc<()>,
}
impl ClusterService {
    pub async fn member_list(&self, request: pb::MemberListRequest) -> Result<pb::MemberListResponse, ApiError> {
        todo!()
    }
}

#[derive(Clone, Debug)]
pub struct MaintenanceService {
    _p: Arc<()>,
}
impl MaintenanceService {
    pub async fn status(&self, request: pb::StatusRequest) -> Result<pb::StatusResponse, ApiError> {
        todo!()
    }
    pub async fn alarm(&self, request: pb::AlarmRequest) -> Result<pb::AlarmResponse, ApiError> {
        todo!()
    }
    /// etcd version this member behaves as ("3.7.1"), cluster version ("3.7.0"), storage version ("3.7.0").
    pub fn versions(&self) -> Versions {
        todo!()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    pub server: String,
    pub cluster: String,
    pub storage: String,
}

/// One check's name and what is wrong, if anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub failure: Option<String>,
}

#[derive(Clone, Debug)]
pub struct HealthService {
    _p: Arc<()>,
}
impl HealthService {
    /// `/health`: the reason it is not healthy ("ALARM NOSPACE", "RAFT NO LEADER", "RANGE ERROR:…"), if any. `excluded` names alarms to ignore.
    pub async fn health(&self, excluded: &[String], serializable: bool) -> Result<(), String> {
        todo!()
    }
    /// `/livez`: serializable_read.
    pub async fn live_checks(&self, excluded: &[String]) -> Vec<Check> {
        todo!()
    }
    /// `/readyz`: data_corruption, serializable_read, linearizable_read, non_learner.
    pub async fn ready_checks(&self, excluded: &[String]) -> Vec<Check> {
        todo!()
    }
}
