//! A state machine on a real directory, for tests of this room and of those above.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, sync::Arc, time::Duration};

use super::{Alarms, Applied, Applier, State};
use crate::{
    auth::{AuthStore, SimpleTokens, Tokens},
    bolt,
    clock::SystemClock,
    config::{AUTH_TOKEN_TTL_DEFAULT, AuthTokens, AutoCompaction, Config},
    disk::Disk,
    error::ApiError,
    lease::Lessor,
    members::{Member, Members},
    metrics::Metrics,
    mvcc::{LogPosition, MvccError, Store, StoreOptions, buckets},
    proto::{
        etcdserverpb as pb,
        revgatepb::{InternalRaftRequest, RequestHeader, internal_raft_request::Request},
    },
    watch::{Hub, HubOptions},
};

/// This member's id.
pub(crate) const MEMBER_ID: u64 = 0xa1;
/// The cluster's id.
pub(crate) const CLUSTER_ID: u64 = 0xc1;

/// Opens the state in `dir/db`. Commits come only when they are asked for, or never: `commit_interval` is an hour.
pub(crate) fn open_state(disk: Arc<dyn Disk>, dir: &Path, metrics: &Metrics) -> State {
    try_open_state(disk, dir, metrics).unwrap()
}

/// The same on a disk that may fail.
pub(crate) fn try_open_state(disk: Arc<dyn Disk>, dir: &Path, metrics: &Metrics) -> Result<State, MvccError> {
    let options = bolt::Options { map_bytes_max: 1 << 30 };
    let db = bolt::Db::open(disk, &dir.join("db"), &options)?;
    let options = StoreOptions { commit_interval: Duration::from_secs(3600), ..StoreOptions::default() };
    let (store, restored) = Store::open(db, options, metrics)?;
    let clock = Arc::new(SystemClock::new());
    let lessor = Arc::new(Lessor::new(clock.clone(), 1));
    lessor.restore(&store.bucket_pairs(buckets::LEASE)?, restored.lease_attachments).unwrap();
    let alarms = Arc::new(Alarms::new());
    alarms.restore(&store.bucket_pairs(buckets::ALARM)?).unwrap();
    let member = Member {
        id: MEMBER_ID,
        name: "default".into(),
        peer_urls: vec!["http://localhost:2380".into()],
        client_urls: Vec::new(),
        is_learner: false,
    };
    let members = Arc::new(Members::new(CLUSTER_ID, MEMBER_ID, vec![member]));
    let options = HubOptions {
        stream_bytes_max: 1 << 20,
        progress_interval: Duration::from_secs(600),
        catch_up_revisions_max: 1000,
        catch_up_bytes_max: 1 << 20,
    };
    let auth = Arc::new(AuthStore::new(Tokens::Simple(SimpleTokens::new(clock.clone(), AUTH_TOKEN_TTL_DEFAULT))));
    let pairs = |bucket| store.bucket_pairs(bucket);
    auth.restore(&pairs(buckets::AUTH)?, &pairs(buckets::AUTH_USERS)?, &pairs(buckets::AUTH_ROLES)?).unwrap();
    let hub = Hub::start(store.clone(), options, clock, metrics);
    Ok(State { store, lessor, members, alarms, auth, hub })
}

/// etcd's defaults, but for the quota.
pub(crate) fn config(quota_backend_bytes: i64) -> Config {
    Config {
        name: "default".into(),
        data_dir: "unused".into(),
        listen_client_urls: Vec::new(),
        listen_metrics_urls: Vec::new(),
        transport: Default::default(),
        advertise_client_urls: Vec::new(),
        listen_peer_urls: Vec::new(),
        initial_advertise_peer_urls: Vec::new(),
        initial_cluster: Vec::new(),
        initial_cluster_token: "etcd-cluster".into(),
        snapshot_count: 10_000,
        snapshot_catchup_entries: 5_000,
        wals_max: 5,
        wal_segment_bytes: 64_000_000,
        heartbeat_interval: Duration::from_millis(100),
        election_timeout: Duration::from_secs(1),
        quota_backend_bytes,
        nospace_low_water_percent: Some(90),
        backend_batch_interval: Duration::from_millis(100),
        backend_batch_limit: 10_000,
        txn_ops_max: 128,
        request_bytes_max: 1_572_864,
        connections_max: 1024,
        extensive_metrics: true,
        auto_compaction: AutoCompaction::Off,
        compaction_batch_limit: 1000,
        compaction_sleep_interval: Duration::ZERO,
        compaction_reads_wait: Duration::ZERO,
        reclaim_free_percent: 25,
        reclaim_free_bytes: 64 << 20,
        watch_progress_notify_interval: Duration::from_secs(600),
        warning_apply_duration: Duration::from_secs(3600),
        request_log: Default::default(),
        tracing: None,
        auth_tokens: AuthTokens::Simple { ttl: AUTH_TOKEN_TTL_DEFAULT },
        bcrypt_cost: 4,
        drain_timeout: Duration::from_secs(1),
    }
}

/// A command for the log.
pub(crate) fn command(request: Request) -> InternalRaftRequest {
    InternalRaftRequest { request: Some(request), ..Default::default() }
}

/// A put.
pub(crate) fn put(key: &str, value: &str) -> Request {
    Request::Put(pb::PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() })
}

/// A put with a lease.
pub(crate) fn put_leased(key: &str, lease: i64) -> Request {
    Request::Put(pb::PutRequest { key: key.to_owned().into(), lease, ..Default::default() })
}

/// An applier on a directory of its own, fed one entry a command.
pub(crate) struct Fixture {
    pub(crate) state: State,
    pub(crate) metrics: Metrics,
    applier: Applier,
    dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::open(tempfile::tempdir().unwrap())
    }

    fn open(dir: tempfile::TempDir) -> Fixture {
        let metrics = Metrics::new();
        let state = open_state(Arc::new(crate::disk::RealDisk), dir.path(), &metrics);
        let applier = Applier::new(state.clone(), &config(0), &metrics);
        Fixture { state, metrics, applier, dir }
    }

    /// Writes everything and opens the file anew.
    pub(crate) fn reopen(self) -> Fixture {
        let Fixture { state, applier, dir, .. } = self;
        state.hub.close();
        state.store.close().unwrap();
        drop((state, applier));
        Fixture::open(dir)
    }

    pub(crate) fn position(&self) -> LogPosition {
        self.applier.position()
    }

    pub(crate) fn apply_at(&mut self, index: u64, requests: Vec<Request>) -> Vec<Result<Applied, ApiError>> {
        let commands: Vec<_> = requests.into_iter().map(command).collect();
        self.applier.apply(LogPosition { term: 1, index }, &commands).unwrap()
    }

    /// Applies a command in the name of a user, as looked at at an auth revision.
    pub(crate) fn apply_as(
        &mut self,
        username: &str,
        auth_revision: u64,
        request: Request,
    ) -> Result<Applied, ApiError> {
        let header = RequestHeader { id: 0, username: username.into(), auth_revision };
        let command = InternalRaftRequest { header: Some(header), ..command(request) };
        let index = self.position().index + 1;
        self.applier.apply(LogPosition { term: 1, index }, &[command]).unwrap().remove(0)
    }

    pub(crate) fn apply(&mut self, request: Request) -> Result<Applied, ApiError> {
        self.apply_at(self.position().index + 1, vec![request]).remove(0)
    }

    /// Everything that lives, as `key=value`.
    pub(crate) fn contents(&self) -> String {
        let query = super::range_query(&pb::RangeRequest {
            key: bytes::Bytes::from_static(&[0]),
            range_end: bytes::Bytes::from_static(&[0]),
            ..Default::default()
        });
        let mut cursor = self.state.store.range(&query).unwrap();
        let mut pairs = Vec::new();
        let mut visit = |kv: crate::mvcc::KeyValueRef<'_>| {
            pairs.push(format!("{}={}", String::from_utf8_lossy(kv.key), String::from_utf8_lossy(kv.value)));
        };
        while cursor.next_chunk(100, &mut visit).unwrap() {}
        pairs.join(" ")
    }
}
