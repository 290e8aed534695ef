//! The Raft library behind a facade. SKELETON: the signatures below are the contract.
#![allow(missing_docs, unused, clippy::all)]

use std::{path::PathBuf, sync::Arc, time::Duration};

use thiserror::Error;

use crate::{
    apply::{Applied, Applier},
    disk::Disk,
    error::ApiError,
    metrics::Metrics,
    mvcc::Store,
    proto::revgatepb::InternalRaftRequest,
};

#[derive(Debug, Error)]
pub enum ConsensusError {
    #[error(transparent)]
    Wal(#[from] crate::wal::WalError),
    #[error("{0}")]
    Raft(String),
}

#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    pub member_id: u64,
    pub cluster_id: u64,
    pub wal_dir: PathBuf,
    pub heartbeat_interval: Duration,
    pub election_timeout: Duration,
    pub request_timeout: Duration,
    pub snapshot_count: u64,
    pub snapshot_catchup_entries: u64,
    pub wal_segment_bytes: u64,
    pub wals_max: usize,
    pub request_bytes_max: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub leader: u64,
    pub term: u64,
    pub last_log_index: u64,
    pub committed: u64,
    pub applied: u64,
    pub is_leader: bool,
}

/// A running consensus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Consensus {
    _p: Arc<()>,
}

impl Consensus {
    /// Opens the log, replays its tail into the applier, and elects (a single voter elects itself at once).
    pub async fn start(
        options: ConsensusOptions,
        disk: Arc<dyn Disk>,
        store: Store,
        applier: Applier,
        metrics: &Metrics,
    ) -> Result<Consensus, ConsensusError> {
        todo!()
    }
    /// Commits a command and waits until it is applied here.
    pub async fn propose(&self, command: InternalRaftRequest) -> Result<Applied, ApiError> {
        todo!()
    }
    /// Once it returns, a local read sees every write that was acknowledged before the call. Shared by all callers that wait.
    pub async fn read_barrier(&self) -> Result<(), ApiError> {
        todo!()
    }
    pub fn status(&self) -> Status {
        todo!()
    }
    /// Resolves when leadership of this member changes, with the new state.
    pub fn leadership(&self) -> tokio::sync::watch::Receiver<bool> {
        todo!()
    }
    /// Resolves with the reason if the consensus cannot go on (failed fsync …): the member must stop.
    pub async fn failed(&self) -> String {
        todo!()
    }
    pub async fn shutdown(&self) -> Result<(), ConsensusError> {
        todo!()
    }
}
