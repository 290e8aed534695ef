//! The library's own conformance suite, run on our log storage over a real directory.

use std::{io, sync::Arc};

use futures_util::{Stream, StreamExt};
use openraft::{
    EmptyNode, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageError,
    storage::{EntryResponder, RaftStateMachine},
    testing::log::{StoreBuilder, Suite},
};
use tempfile::TempDir;

use super::super::{
    log_store::LogStore,
    standing::Standing,
    types::{CommittedLeaderId, LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig},
};
use crate::{
    disk::RealDisk,
    metrics::Metrics,
    mvcc::LogPosition,
    wal::{Options, Wal, WalMetrics},
};

/// The least a state machine can be: the suite is about the log.
#[derive(Clone, Default)]
struct Positions {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Arc<parking_lot::Mutex<Option<SnapshotMeta>>>,
}

type SnapshotOfPositions = Snapshot<CommittedLeaderId, u64, EmptyNode, ()>;

impl RaftStateMachine<TypeConfig> for Positions {
    type SnapshotData = ();
    type SnapshotBuilder = Positions;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, _) = next?;
            self.applied = Some(entry.log_id);
            if let Payload::Membership(membership) = entry.payload {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Positions {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> io::Result<()> {
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        *self.snapshot.lock() = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOfPositions>> {
        Ok(self.snapshot.lock().clone().map(|meta| Snapshot { meta, snapshot: () }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Positions {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOfPositions> {
        let meta = SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() };
        *self.snapshot.lock() = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: () })
    }
}

struct TempLogs;

impl StoreBuilder<TypeConfig, LogStore, Positions, TempDir> for TempLogs {
    async fn build(&self) -> Result<(TempDir, LogStore, Positions), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let metrics = Metrics::new();
        let options = Options { segment_bytes: 64 * 1024, ..Options::default() };
        let (wal, recovered) =
            Wal::open(Arc::new(RealDisk), dir.path(), b"suite", 1, options, WalMetrics::from(&metrics)).unwrap();
        let log = LogStore::new(wal, recovered, LogPosition::default(), 0, Arc::new(Standing::new(0)), metrics.clone())
            .unwrap();
        Ok((dir, log, Positions::default()))
    }
}

#[test]
// The suite sleeps where a store may purge in the background; ours does not, and the clock is skipped ahead.
fn log_storage_conforms() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(Suite::test_all(TempLogs)).unwrap();
}
