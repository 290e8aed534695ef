//! A member on a real directory whose log's disk can be made to fail.

use std::{
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    apply::{
        Applied, Applier, State,
        fixture::{CLUSTER_ID, MEMBER_ID, command, config, open_state},
    },
    consensus::{Consensus, ConsensusError, ConsensusOptions},
    disk::{Disk, File, OpenMode, RealDisk},
    error::ApiError,
    metrics::Metrics,
    proto::revgatepb::internal_raft_request::Request,
};

/// The real disk, until it is told to fail every sync of data.
#[derive(Clone, Debug, Default)]
pub(super) struct FailingDisk {
    pub(super) fails: Arc<AtomicBool>,
    /// What every sync of data takes beside its own time.
    pub(super) sync_delay: Duration,
}

#[derive(Debug)]
struct FailingFile {
    file: Box<dyn File>,
    disk: FailingDisk,
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let file = RealDisk.open(path, mode)?;
        Ok(Box::new(FailingFile { file, disk: self.clone() }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
}

impl File for FailingFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(self.disk.sync_delay);
        if self.disk.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is gone"));
        }
        self.file.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.file.try_lock_exclusive()
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}

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
    pub(super) disk: FailingDisk,
    /// The backend file's.
    pub(super) file_disk: FailingDisk,
    pub(super) dir: TempDir,
}

impl Member {
    pub(super) async fn start() -> Member {
        Member::start_in(tempfile::tempdir().unwrap(), |_| {}).await.unwrap()
    }

    pub(super) async fn start_on_slow_disk(sync_delay: Duration) -> Member {
        let disk = FailingDisk { sync_delay, ..FailingDisk::default() };
        Member::start_on(disk, tempfile::tempdir().unwrap(), |_| {}).await.unwrap()
    }

    pub(super) async fn start_in(
        dir: TempDir,
        adjust: impl FnOnce(&mut ConsensusOptions),
    ) -> Result<Member, ConsensusError> {
        Member::start_on(FailingDisk::default(), dir, adjust).await
    }

    /// Starts a member that must refuse.
    pub(super) async fn refused_in(dir: &TempDir, adjust: impl FnOnce(&mut ConsensusOptions)) -> ConsensusError {
        let (started, state, ..) = launch(&FailingDisk::default(), dir.path(), adjust).await;
        state.hub.close();
        started.expect_err("a member that refuses to start")
    }

    async fn start_on(
        disk: FailingDisk,
        dir: TempDir,
        adjust: impl FnOnce(&mut ConsensusOptions),
    ) -> Result<Member, ConsensusError> {
        let (started, state, metrics, file_disk) = launch(&disk, dir.path(), adjust).await;
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
    disk: &FailingDisk,
    dir: &Path,
    adjust: impl FnOnce(&mut ConsensusOptions),
) -> (Result<Consensus, ConsensusError>, State, Metrics, FailingDisk) {
    let metrics = Metrics::new();
    let file_disk = FailingDisk::default();
    let state = open_state(Arc::new(file_disk.clone()), dir, &metrics);
    let applier = Applier::new(state.clone(), &config(-1), &metrics);
    let mut options = options(dir);
    adjust(&mut options);
    let started = Consensus::start(options, Arc::new(disk.clone()), state.store.clone(), applier, &metrics).await;
    (started, state, metrics, file_disk)
}
