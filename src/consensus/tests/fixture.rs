//! A member on a real directory whose log's disk can be made to fail.

use std::{path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;

use crate::{
    apply::{
        Applied, Applier, State,
        fixture::{CLUSTER_ID, MEMBER_ID, command, config, open_state},
    },
    consensus::{Consensus, ConsensusError, ConsensusOptions},
    disk::sim::SimDisk,
    error::ApiError,
    metrics::Metrics,
    proto::revgatepb::internal_raft_request::Request,
};

pub(super) fn options(dir: &Path) -> ConsensusOptions {
    ConsensusOptions {
        member_id: MEMBER_ID,
        cluster_id: CLUSTER_ID,
        wal_dir: dir.join("wal"),
        heartbeat_interval: Duration::from_millis(100),
        election_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_secs(7),
        snapshot_count: 10_000,
        snapshot_catchup_entries: 5_000,
        wal_segment_bytes: 1 << 20,
        wals_max: 5,
        request_bytes_max: 1_572_864,
    }
}

/// A running member.
pub(super) struct Member {
    pub(super) consensus: Consensus,
    pub(super) state: State,
    pub(super) metrics: Metrics,
    /// The log's.
    pub(super) disk: SimDisk,
    /// The backend file's.
    pub(super) file_disk: SimDisk,
    pub(super) dir: TempDir,
}

impl Member {
    pub(super) async fn start() -> Member {
        Member::start_in(tempfile::tempdir().unwrap(), |_| {}).await.unwrap()
    }

    pub(super) async fn start_on_slow_disk(sync_delay: Duration) -> Member {
        let disk = SimDisk::with_slow_syncs(sync_delay);
        Member::start_on(disk, tempfile::tempdir().unwrap(), |_| {}).await.unwrap()
    }

    pub(super) async fn start_measured(metrics: Metrics) -> Member {
        let (disk, dir) = (SimDisk::default(), tempfile::tempdir().unwrap());
        let (started, state, file_disk) = launch(&disk, dir.path(), &metrics, |_| {}).await;
        Member { consensus: started.unwrap(), state, metrics, disk, file_disk, dir }
    }

    pub(super) async fn start_in(
        dir: TempDir,
        adjust: impl FnOnce(&mut ConsensusOptions),
    ) -> Result<Member, ConsensusError> {
        Member::start_on(SimDisk::default(), dir, adjust).await
    }

    /// Starts a member that must refuse.
    pub(super) async fn refused_in(dir: &TempDir, adjust: impl FnOnce(&mut ConsensusOptions)) -> ConsensusError {
        let (started, state, ..) = launch(&SimDisk::default(), dir.path(), &Metrics::new(), adjust).await;
        state.hub.close();
        started.expect_err("a member that refuses to start")
    }

    async fn start_on(
        disk: SimDisk,
        dir: TempDir,
        adjust: impl FnOnce(&mut ConsensusOptions),
    ) -> Result<Member, ConsensusError> {
        let metrics = Metrics::new();
        let (started, state, file_disk) = launch(&disk, dir.path(), &metrics, adjust).await;
        match started {
            Ok(consensus) => Ok(Member { consensus, state, metrics, disk, file_disk, dir }),
            Err(error) => {
                state.hub.close();
                Err(error)
            }
        }
    }

    /// Ends the member as a crash would leave it: what the backend file does not hold is only in the log.
    pub(super) async fn crash(self) -> TempDir {
        self.consensus.shutdown().await.unwrap();
        self.state.hub.close();
        self.dir
    }

    pub(super) async fn propose(&self, request: Request) -> Result<Applied, ApiError> {
        self.consensus.propose(command(request)).await
    }

    /// Has the backend file written.
    pub(super) async fn flush(&self) {
        let (sender, written) = tokio::sync::oneshot::channel();
        self.state.store.flush(Box::new(move |result| drop(sender.send(result))));
        written.await.unwrap().unwrap();
    }

    pub(super) fn value(&self, key: &str) -> Option<String> {
        let kv = self.state.store.get(key.as_bytes(), 0).unwrap()?;
        Some(String::from_utf8_lossy(&kv.value).into_owned())
    }
}

async fn launch(
    disk: &SimDisk,
    dir: &Path,
    metrics: &Metrics,
    adjust: impl FnOnce(&mut ConsensusOptions),
) -> (Result<Consensus, ConsensusError>, State, SimDisk) {
    let file_disk = SimDisk::default();
    let state = open_state(Arc::new(file_disk.clone()), dir, metrics);
    let applier = Applier::new(state.clone(), &config(-1), metrics);
    let mut options = options(dir);
    adjust(&mut options);
    let started = Consensus::start(options, Arc::new(disk.clone()), state.store.clone(), applier, metrics).await;
    (started, state, file_disk)
}
