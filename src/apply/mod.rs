//! The replicated state machine. SKELETON: the signatures below are the contract.
#![allow(missing_docs, unused, clippy::all)]

use std::sync::Arc;

use crate::{
    config::Config,
    error::ApiError,
    lease::Lessor,
    members::Members,
    metrics::Metrics,
    mvcc::{LogPosition, Store},
    proto::{etcdserverpb as pb, revgatepb::InternalRaftRequest},
    watch::Hub,
};

/// What a command came to. Headers carry the revision only; `service` fills in the rest.
#[derive(Debug)]
pub enum Applied {
    Put(pb::PutResponse),
    DeleteRange(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
    /// The physical part goes on; the receiver end is called when it is done (only if the request was `physical`).
    Compaction {
        response: pb::CompactionResponse,
        finished: Option<CompactionFinished>,
    },
    LeaseGrant(pb::LeaseGrantResponse),
    LeaseRevoke(pb::LeaseRevokeResponse),
    Alarm(pb::AlarmResponse),
}

/// Resolves when a physical compaction is finished and durable: `wait_with(callback)`.
#[derive(Debug)]
pub struct CompactionFinished {
    _p: (),
}
impl CompactionFinished {
    pub fn on_done(self, callback: Box<dyn FnOnce(Result<(), ApiError>) + Send>) {
        todo!()
    }
}

/// Alarms raised in the cluster. Thread-safe, shared with `service` (health, alarm list) .
#[derive(Debug)]
pub struct Alarms {
    _p: (),
}
impl Alarms {
    pub fn list(&self) -> Vec<pb::AlarmMember> {
        todo!()
    }
    pub fn is_raised(&self, alarm: pb::AlarmType) -> bool {
        todo!()
    }
}

/// Everything the state machine keeps.
#[derive(Clone, Debug)]
pub struct State {
    pub store: Store,
    pub lessor: Arc<Lessor>,
    pub members: Arc<Members>,
    pub alarms: Arc<Alarms>,
    pub hub: Hub,
}

/// Applies committed entries, one after another, through quota, auth and mvcc. One thread calls it.
#[derive(Debug)]
pub struct Applier {
    _p: (),
}
impl Applier {
    pub fn new(state: State, config: &Config, metrics: &Metrics) -> Applier {
        todo!()
    }
    /// The last entry whose effects the state holds.
    pub fn position(&self) -> LogPosition {
        todo!()
    }
    /// Applies one entry's commands in order, all of them into one entry of the file; one outcome per command.
    /// Entries at or below `position()` are skipped (no outcomes). Never fails: a refused command is an outcome.
    pub fn apply(
        &mut self,
        position: LogPosition,
        commands: &[InternalRaftRequest],
    ) -> Result<Vec<Result<Applied, ApiError>>, ApplyFatal> {
        todo!()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ApplyFatal(#[from] pub crate::mvcc::MvccError);
