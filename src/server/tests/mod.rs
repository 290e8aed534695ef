//! A member's parts, and members that start, serve and stop in this process.

mod crash;
mod files;
mod life;

use std::path::Path;

use super::*;
use crate::config::{AUTH_TOKEN_TTL_DEFAULT, AuthTokens, AutoCompaction, ListenUrl};

fn config(data_dir: &Path) -> Config {
    let peer_url = "http://localhost:2380".to_owned();
    Config {
        name: "default".into(),
        data_dir: data_dir.to_owned(),
        listen_client_urls: vec![ListenUrl {
            address: "127.0.0.1:0".parse().expect("an address"),
            url: "http://127.0.0.1:0".into(),
        }],
        listen_metrics_urls: Vec::new(),
        transport: Default::default(),
        advertise_client_urls: Vec::new(),
        listen_peer_urls: vec![peer_url.clone()],
        initial_advertise_peer_urls: vec![peer_url.clone()],
        initial_cluster: vec![("default".into(), peer_url)],
        initial_cluster_token: "etcd-cluster".into(),
        snapshot_count: 100,
        snapshot_catchup_entries: 10,
        wals_max: 5,
        wal_segment_bytes: 1 << 20,
        heartbeat_interval: Duration::from_millis(20),
        election_timeout: Duration::from_millis(200),
        quota_backend_bytes: 1 << 30,
        nospace_low_water_percent: Some(90),
        backend_batch_interval: Duration::from_millis(100),
        backend_batch_limit: 10_000,
        txn_ops_max: 128,
        request_bytes_max: 1_572_864,
        connections_max: 100,
        extensive_metrics: true,
        auto_compaction: AutoCompaction::Off,
        compaction_batch_limit: 1000,
        compaction_sleep_interval: Duration::from_millis(10),
        compaction_reads_wait: Duration::ZERO,
        reclaim_free_percent: 25,
        reclaim_free_bytes: 64 << 20,
        watch_progress_notify_interval: Duration::from_secs(600),
        warning_apply_duration: Duration::from_millis(100),
        request_log: Default::default(),
        tracing: None,
        auth_tokens: AuthTokens::Simple { ttl: AUTH_TOKEN_TTL_DEFAULT },
        bcrypt_cost: 4,
        drain_timeout: Duration::from_secs(5),
    }
}

fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}
