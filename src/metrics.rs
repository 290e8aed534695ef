//! Every metric the member exports, resolved once: rooms hold handles and never look anything up.
//!
//! Names, types and buckets are etcd's where etcd has the metric, so that its dashboards and alerts work unchanged
//! (`..._total` gauges included). The registry belongs to one server: two in one process do not meet.
//!
//! `stages`: the way of a write, stage by stage. `timed`: what is told of the last minute too, and while it
//! goes on. `window`: the last minute. `time`: the clock of all that. `make`: a metric in one call.

mod make;
mod stages;
mod time;
mod timed;
mod window;

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    TextEncoder,
};

use self::make::{counter, counter_vec, float_gauge, float_gauge_vec, gauge, gauge_vec, histogram, histogram_vec};
pub use self::{
    stages::{Stage, StageTimes, WriteStages},
    time::Time,
    timed::{Running, Timed},
    window::Recent,
};

/// How much is exported, as etcd's `--metrics` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Without the series of which there are many.
    Basic,
    /// All: also `grpc_server_handling_seconds`, a histogram for each method that is called.
    #[default]
    Extensive,
}

/// Handles of all metrics of one server.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is named as it is exported; the help text is below")]
pub struct Metrics {
    registry: Registry,
    /// What durations are measured with.
    pub time: Time,
    // etcd_server_
    pub has_leader: IntGauge,
    pub is_leader: IntGauge,
    pub is_learner: IntGauge,
    pub leader_changes_seen: IntCounter,
    pub proposals_committed: IntGauge,
    pub proposals_applied: IntGauge,
    pub proposals_pending: IntGauge,
    pub proposals_failed: IntCounter,
    pub slow_apply: IntCounter,
    pub slow_read_indexes: IntCounter,
    pub read_indexes_failed: IntCounter,
    pub apply_duration: HistogramVec,
    pub request_duration: HistogramVec,
    pub quota_backend_bytes: IntGauge,
    pub version: IntGaugeVec,
    pub id: IntGaugeVec,
    pub health_success: IntCounter,
    pub health_failures: IntCounter,
    pub lease_expired: IntCounter,
    // etcd_disk_
    pub wal_write_bytes: IntGauge,
    pub backend_commit: Timed,
    pub backend_commit_spill_duration: Histogram,
    pub backend_commit_write_duration: Histogram,
    pub backend_defrag_duration: Histogram,
    pub backend_snapshot_duration: Histogram,
    pub defrag_inflight: IntGauge,
    // etcd_mvcc_
    pub hash_duration: Histogram,
    pub hash_rev_duration: Histogram,
    pub range_total: IntCounter,
    pub put_total: IntCounter,
    pub delete_total: IntCounter,
    pub txn_total: IntCounter,
    pub db_total_size: IntGauge,
    pub db_total_size_in_use: IntGauge,
    pub db_open_read_transactions: IntGauge,
    // etcd_debugging_
    pub keys_total: IntGauge,
    pub current_revision: IntGauge,
    pub compact_revision: IntGauge,
    pub compaction_keys: IntCounter,
    pub compaction_total_duration: Histogram,
    pub watch_stream_total: IntGauge,
    pub watcher_total: IntGauge,
    pub slow_watcher_total: IntGauge,
    pub events_total: IntCounter,
    pub pending_events_total: IntGauge,
    pub auth_revision: IntGauge,
    pub lease_granted: IntCounter,
    pub lease_revoked: IntCounter,
    pub lease_renewed: IntCounter,
    pub lease_ttl: Histogram,
    // etcd_network_
    pub client_received_bytes: IntCounter,
    pub client_sent_bytes: IntCounter,
    pub peer_received_bytes: IntCounterVec,
    pub peer_sent_bytes: IntCounterVec,
    pub peer_sent_failures: IntCounterVec,
    pub peer_round_trip_time: HistogramVec,
    // grpc_server_
    pub rpc_started: IntCounterVec,
    pub rpc_handled: IntCounterVec,
    pub rpc_handling: Option<HistogramVec>,
    // revgate_
    pub stages: WriteStages,
    pub stage_running: GaugeVec,
    pub oldest_write_age: Gauge,
    pub oldest_read_age: Gauge,
    pub apply_lag_entries: IntGauge,
    pub proposal_batch_requests: Histogram,
    pub wal_batch_records: Histogram,
    pub unwritten_bytes: IntGauge,
    pub backend_written_bytes: IntCounter,
    pub quota_used_bytes: IntGauge,
    pub nospace_alarm: IntGauge,
    pub nospace_raised: IntCounter,
    pub nospace_cleared: IntCounter,
    pub disk_full: IntGaugeVec,
    pub compaction_running: IntGauge,
    pub compaction_target_revision: IntGauge,
    pub compaction_done_revision: IntGauge,
    pub reclaim_pages_moved: IntCounter,
    pub reclaim_bytes_given_back: IntCounter,
    pub watch_buffered_bytes: IntGauge,
    pub watch_events_delivered: IntCounter,
    pub watch_lag_revisions_max: IntGauge,
    pub watch_lag_revisions: Histogram,
    pub watch_delivery_duration: Histogram,
    pub watch_disconnects: IntCounterVec,
    pub http_connections: IntGauge,
    pub http_requests: IntCounterVec,
    pub http_request_duration: HistogramVec,
    pub http_streams: IntGaugeVec,
    pub range_streamed_bytes: IntCounter,
    pub start_time_seconds: Gauge,
}

impl Metrics {
    /// A fresh registry with every metric in it and the process' own figures.
    pub fn new() -> Self {
        Metrics::with(Time::system(), Detail::default())
    }

    /// The same with a clock of the caller's, and as much in it as is asked for.
    pub fn with(time: Time, detail: Detail) -> Self {
        let r = Registry::new();
        // Linux' process figures (`process_*`). Only a second registration could fail.
        #[cfg(target_os = "linux")]
        make::register(&r, prometheus::process_collector::ProcessCollector::for_self());
        let rpc_labels = ["grpc_type", "grpc_service", "grpc_method"];
        let handled_labels = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
        Self {
            has_leader: gauge(&r, "etcd_server_has_leader", "Whether this member knows a leader."),
            is_leader: gauge(&r, "etcd_server_is_leader", "Whether this member leads."),
            is_learner: gauge(&r, "etcd_server_is_learner", "Whether this member is a learner."),
            leader_changes_seen: counter(&r, "etcd_server_leader_changes_seen_total", "Changes of leader seen."),
            proposals_committed: gauge(
                &r,
                "etcd_server_proposals_committed_total",
                "Index of the last committed log entry.",
            ),
            proposals_applied: gauge(&r, "etcd_server_proposals_applied_total", "Index of the last applied log entry."),
            proposals_pending: gauge(
                &r,
                "etcd_server_proposals_pending",
                "Requests waiting to be committed and applied.",
            ),
            proposals_failed: counter(&r, "etcd_server_proposals_failed_total", "Requests that were not committed."),
            slow_apply: counter(&r, "etcd_server_slow_apply_total", "Applies that took longer than the warning limit."),
            slow_read_indexes: counter(&r, "etcd_server_slow_read_indexes_total", "Read barriers that took too long."),
            read_indexes_failed: counter(&r, "etcd_server_read_indexes_failed_total", "Read barriers that failed."),
            apply_duration: histogram_vec(
                &r,
                "etcd_server_apply_duration_seconds",
                "Time to apply one request.",
                &["version", "op", "success"],
                (0.0001, 20),
            ),
            request_duration: histogram_vec(
                &r,
                "etcd_server_request_duration_seconds",
                "Time from a request's arrival to its answer.",
                &["type", "success"],
                (0.001, 14),
            ),
            quota_backend_bytes: gauge(
                &r,
                "etcd_server_quota_backend_bytes",
                "Size at which growing writes are refused.",
            ),
            version: gauge_vec(&r, "etcd_server_version", "Which version runs; always 1.", &["server_version"]),
            id: gauge_vec(&r, "etcd_server_id", "This member's id; always 1.", &["server_id"]),
            health_success: counter(&r, "etcd_server_health_success", "Successful health checks."),
            health_failures: counter(&r, "etcd_server_health_failures", "Failed health checks."),
            lease_expired: counter(&r, "etcd_debugging_server_lease_expired_total", "Leases that ran out."),
            wal_write_bytes: gauge(
                &r,
                "etcd_disk_wal_write_bytes_total",
                "Bytes of records written to the log, without the zeros before them.",
            ),
            backend_commit: {
                let name = "etcd_disk_backend_commit_duration_seconds";
                let durations = histogram(&r, name, "Time of one commit of the backend file.", (0.001, 14));
                Timed::new(&time, vec![durations])
            },
            backend_commit_spill_duration: histogram(
                &r,
                "etcd_debugging_disk_backend_commit_spill_duration_seconds",
                "Part of a backend commit: making pages of changed nodes.",
                (0.001, 14),
            ),
            backend_commit_write_duration: histogram(
                &r,
                "etcd_debugging_disk_backend_commit_write_duration_seconds",
                "Part of a backend commit: writing and syncing pages.",
                (0.001, 14),
            ),
            backend_defrag_duration: histogram(
                &r,
                "etcd_disk_backend_defrag_duration_seconds",
                "Time of one defragmentation.",
                (0.1, 13),
            ),
            backend_snapshot_duration: histogram(
                &r,
                "etcd_disk_backend_snapshot_duration_seconds",
                "Time to send one snapshot.",
                (0.01, 17),
            ),
            defrag_inflight: gauge(&r, "etcd_disk_defrag_inflight", "1 while a defragmentation is under way."),
            hash_duration: histogram(&r, "etcd_mvcc_hash_duration_seconds", "Time to hash the file.", (0.01, 15)),
            hash_rev_duration: histogram(
                &r,
                "etcd_mvcc_hash_rev_duration_seconds",
                "Time to hash the keys up to a revision.",
                (0.01, 15),
            ),
            range_total: counter(&r, "etcd_mvcc_range_total", "Range reads."),
            put_total: counter(&r, "etcd_mvcc_put_total", "Puts applied."),
            delete_total: counter(&r, "etcd_mvcc_delete_total", "Deletes applied."),
            txn_total: counter(&r, "etcd_mvcc_txn_total", "Transactions applied."),
            db_total_size: gauge(&r, "etcd_mvcc_db_total_size_in_bytes", "Size of the backend file."),
            db_total_size_in_use: gauge(
                &r,
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "Size of the backend file less its free pages.",
            ),
            db_open_read_transactions: gauge(
                &r,
                "etcd_mvcc_db_open_read_transactions",
                "Read transactions open on the backend file.",
            ),
            keys_total: gauge(&r, "etcd_debugging_mvcc_keys_total", "Keys in the index."),
            current_revision: gauge(&r, "etcd_debugging_mvcc_current_revision", "Revision of the newest change."),
            compact_revision: gauge(&r, "etcd_debugging_mvcc_compact_revision", "Revision of the last compaction."),
            compaction_keys: counter(
                &r,
                "etcd_debugging_mvcc_db_compaction_keys_total",
                "Revisions deleted by compactions.",
            ),
            compaction_total_duration: {
                let name = "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds";
                histogram(&r, name, "Time of one whole compaction, in milliseconds.", (100.0, 14))
            },
            watch_stream_total: gauge(&r, "etcd_debugging_mvcc_watch_stream_total", "Open watch streams."),
            watcher_total: gauge(&r, "etcd_debugging_mvcc_watcher_total", "Watchers."),
            slow_watcher_total: gauge(&r, "etcd_debugging_mvcc_slow_watcher_total", "Watchers that are behind."),
            events_total: counter(&r, "etcd_debugging_mvcc_events_total", "Events queued to streams."),
            pending_events_total: gauge(&r, "etcd_debugging_mvcc_pending_events_total", "Events queued and not sent."),
            auth_revision: gauge(&r, "etcd_debugging_auth_revision", "Changes of users and roles, counted from 1."),
            lease_granted: counter(&r, "etcd_debugging_lease_granted_total", "Leases granted."),
            lease_revoked: counter(&r, "etcd_debugging_lease_revoked_total", "Leases revoked."),
            lease_renewed: counter(&r, "etcd_debugging_lease_renewed_total", "Lease renewals."),
            lease_ttl: histogram(
                &r,
                "etcd_debugging_lease_ttl_total",
                "TTLs of granted leases, in seconds.",
                (1.0, 24),
            ),
            client_received_bytes: counter(
                &r,
                "etcd_network_client_grpc_received_bytes_total",
                "Bytes of the bodies of API requests.",
            ),
            client_sent_bytes: counter(
                &r,
                "etcd_network_client_grpc_sent_bytes_total",
                "Bytes of the bodies of API answers.",
            ),
            // A member alone has no peers: these have no series.
            peer_received_bytes: counter_vec(
                &r,
                "etcd_network_peer_received_bytes_total",
                "Bytes received from peers.",
                &["From"],
            ),
            peer_sent_bytes: counter_vec(&r, "etcd_network_peer_sent_bytes_total", "Bytes sent to peers.", &["To"]),
            peer_sent_failures: counter_vec(
                &r,
                "etcd_network_peer_sent_failures_total",
                "Messages to peers that could not be sent.",
                &["To"],
            ),
            peer_round_trip_time: histogram_vec(
                &r,
                "etcd_network_peer_round_trip_time_seconds",
                "Round trips to peers.",
                &["To"],
                (0.0001, 16),
            ),
            rpc_handling: (detail == Detail::Extensive).then(|| make::rpc_handling(&r, &rpc_labels)),
            rpc_started: counter_vec(&r, "grpc_server_started_total", "Calls begun.", &rpc_labels),
            rpc_handled: counter_vec(&r, "grpc_server_handled_total", "Calls ended, by code.", &handled_labels),
            stages: {
                let name = "revgate_write_stage_duration_seconds";
                let help = "Time of each stage of a write; once a sync, a log entry or a request, as the stage is.";
                let durations = histogram_vec(&r, name, help, &["stage"], (0.000_05, 18));
                let name = "etcd_disk_wal_write_duration_seconds";
                let log_write = histogram(&r, name, "Time of one write to the log.", (0.001, 14));
                let name = "etcd_disk_wal_fsync_duration_seconds";
                let log_sync = histogram(&r, name, "Time of one sync of the log.", (0.001, 14));
                WriteStages::new(&time, &durations, log_write, log_sync)
            },
            stage_running: float_gauge_vec(
                &r,
                "revgate_stage_running_seconds",
                "How long the step that is going on has been going on; 0 between two.",
                &["stage"],
            ),
            oldest_write_age: float_gauge(
                &r,
                "revgate_oldest_write_age_seconds",
                "How long the write has been waiting that waits longest, of those in a log entry.",
            ),
            oldest_read_age: float_gauge(
                &r,
                "revgate_oldest_read_age_seconds",
                "How long the oldest open read has kept a revision, or pages of the backend file.",
            ),
            apply_lag_entries: gauge(&r, "revgate_apply_lag_entries", "Log entries committed and not yet applied."),
            proposal_batch_requests: histogram(
                &r,
                "revgate_proposal_batch_requests",
                "Requests packed into one log entry.",
                (1.0, 12),
            ),
            wal_batch_records: histogram(
                &r,
                "revgate_wal_batch_records",
                "Records made durable by one sync.",
                (1.0, 14),
            ),
            unwritten_bytes: gauge(
                &r,
                "revgate_backend_unwritten_bytes",
                "Applied bytes that are in the log but not yet in the backend file.",
            ),
            backend_written_bytes: counter(
                &r,
                "revgate_backend_written_bytes_total",
                "Bytes written to the backend file by commits.",
            ),
            quota_used_bytes: gauge(
                &r,
                "revgate_quota_used_bytes",
                "What counts towards the quota: bytes of the backend file in use, and what is to be written to it.",
            ),
            nospace_alarm: gauge(&r, "revgate_nospace_alarm", "1 while this member's NOSPACE alarm is raised."),
            nospace_raised: counter(
                &r,
                "revgate_nospace_raised_total",
                "How often this member raised the NOSPACE alarm.",
            ),
            nospace_cleared: counter(
                &r,
                "revgate_nospace_cleared_total",
                "How often this member disarmed its NOSPACE alarm by itself.",
            ),
            disk_full: gauge_vec(
                &r,
                "revgate_disk_full",
                "1 while writes are refused because this file cannot grow.",
                &["file"],
            ),
            compaction_running: gauge(
                &r,
                "revgate_compaction_running",
                "1 while the physical part of a compaction is under way.",
            ),
            compaction_target_revision: gauge(
                &r,
                "revgate_compaction_target_revision",
                "Revision up to which the latest compaction deletes.",
            ),
            compaction_done_revision: gauge(
                &r,
                "revgate_compaction_done_revision",
                "Revision up to which the latest compaction has looked at the backend file.",
            ),
            reclaim_pages_moved: counter(
                &r,
                "revgate_reclaim_pages_moved_total",
                "Pages of the backend file moved so that room could be given back.",
            ),
            reclaim_bytes_given_back: counter(
                &r,
                "revgate_reclaim_given_back_bytes_total",
                "Bytes by which the backend file was made shorter.",
            ),
            watch_buffered_bytes: gauge(
                &r,
                "revgate_watch_buffered_bytes",
                "Events queued and not sent, in bytes, as if no two streams shared any.",
            ),
            watch_events_delivered: counter(
                &r,
                "revgate_watch_events_delivered_total",
                "Events taken from their queues to be sent.",
            ),
            watch_lag_revisions_max: gauge(
                &r,
                "revgate_watch_lag_revisions_max",
                "Revisions the watcher farthest behind is behind.",
            ),
            watch_lag_revisions: histogram(
                &r,
                "revgate_watch_lag_revisions",
                "Revisions by which each watcher that is behind is behind, measured every second.",
                (1.0, 24),
            ),
            watch_delivery_duration: histogram(
                &r,
                "revgate_watch_delivery_duration_seconds",
                "Time from a change's apply until its event is handed to a watcher's connection.",
                (0.000_05, 20),
            ),
            watch_disconnects: counter_vec(
                &r,
                "revgate_watch_disconnects_total",
                "Watch streams that ended, by reason.",
                &["reason"],
            ),
            http_connections: gauge(&r, "revgate_http_connections", "Open client connections."),
            http_requests: counter_vec(
                &r,
                "revgate_http_requests_total",
                "HTTP requests answered, by route, method and status.",
                &["route", "method", "status"],
            ),
            http_request_duration: histogram_vec(
                &r,
                "revgate_http_request_duration_seconds",
                "Time from a request's arrival until its answer is handed to the connection; not of streams.",
                &["route", "method", "class"],
                (0.000_5, 14),
            ),
            http_streams: gauge_vec(
                &r,
                "revgate_http_streams",
                "Open streams: WebSockets, and answers of JSON lines.",
                &["kind"],
            ),
            range_streamed_bytes: counter(
                &r,
                "revgate_range_streamed_bytes_total",
                "Bytes of ranges' answers that were too big to be made as a whole, as they were sent.",
            ),
            start_time_seconds: float_gauge(&r, "revgate_start_seconds", "Time from process start to ready."),
            time,
            registry: r,
        }
    }

    /// All metrics in Prometheus' text format 0.0.4.
    pub fn render(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
