//! The flags of `revgate serve`: etcd's names where the meaning is etcd's.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum};

use crate::config::{AUTH_TOKEN_TTL_DEFAULT, BCRYPT_COST_DEFAULT, NOSPACE_LOW_WATER_DEFAULT_PERCENT};

use super::duration::parse_duration;

/// How the cluster begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ClusterState {
    /// With this member; data that is already there is taken up.
    New,
    /// This member has data already.
    Existing,
}

/// What `--auto-compaction-retention` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CompactionMode {
    /// Time.
    Periodic,
    /// Revisions.
    Revision,
}

/// Who disarms the NOSPACE alarm that the quota has raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum NospaceDisarm {
    /// The member.
    Auto,
    /// An operator.
    Manual,
}

/// The lowest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TlsMinVersion {
    /// TLS 1.2 and newer.
    #[value(name = "TLS1.2")]
    Tls12,
    /// TLS 1.3 only.
    #[value(name = "TLS1.3")]
    Tls13,
}

/// How much `/metrics` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MetricsDetail {
    /// All but what needs many series.
    Basic,
    /// All.
    Extensive,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// Every flag of `serve`. Each can be given by an environment variable too; a flag given wins.
#[derive(Args, Clone, Debug)]
pub(super) struct ServeFlags {
    // Data.
    /// YAML file with options by their names, as etcd's: what neither the command line nor the environment says.
    #[arg(long, env = "REVGATE_CONFIG_FILE", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,

    /// Name of this member.
    #[arg(long, env = "REVGATE_NAME", default_value = "default")]
    pub(super) name: String,

    /// Where everything is kept. Created if it is not there.
    #[arg(long, env = "REVGATE_DATA_DIR", value_name = "DIR", default_value = "./revgate.data")]
    pub(super) data_dir: PathBuf,

    /// Entries applied between two releases of the log.
    #[arg(long, env = "REVGATE_SNAPSHOT_COUNT", value_name = "ENTRIES", default_value_t = 10_000)]
    pub(super) snapshot_count: u64,

    /// Released entries kept for followers that are behind.
    #[arg(long, env = "REVGATE_SNAPSHOT_CATCHUP_ENTRIES", value_name = "ENTRIES", default_value_t = 5_000)]
    pub(super) snapshot_catchup_entries: u64,

    /// Released log segments kept; 0 keeps all.
    #[arg(long, env = "REVGATE_MAX_WALS", value_name = "SEGMENTS", default_value_t = 5)]
    pub(super) max_wals: usize,

    /// Size of a log segment, in bytes; the first ones of a log are smaller.
    #[arg(long, env = "REVGATE_WAL_SEGMENT_BYTES", value_name = "BYTES", default_value_t = 64_000_000)]
    pub(super) wal_segment_bytes: u64,

    /// Longest time between two commits of the data file; 0 means 100ms. (The log is synced before any answer.)
    #[arg(
        long,
        env = "REVGATE_BACKEND_BATCH_INTERVAL",
        value_name = "DURATION",
        default_value = "0",
        value_parser = parse_duration
    )]
    pub(super) backend_batch_interval: Duration,

    /// Operations after which the data file is committed at once; 0 means 10000.
    #[arg(long, env = "REVGATE_BACKEND_BATCH_LIMIT", value_name = "OPERATIONS", default_value_t = 0)]
    pub(super) backend_batch_limit: usize,

    // Listening.
    /// Where clients connect: http or https URLs with an IP address (or localhost) and a port, separated by commas.
    #[arg(long, env = "REVGATE_LISTEN_CLIENT_URLS", value_name = "URLS", default_value = "http://127.0.0.1:2379")]
    pub(super) listen_client_urls: String,

    /// Ports of their own for probes, /metrics, /version and /debug, beside the client port: http or https URLs. Nobody needs
    /// a user there, not for /debug either.
    #[arg(long, env = "REVGATE_LISTEN_METRICS_URLS", value_name = "URLS")]
    pub(super) listen_metrics_urls: Option<String>,

    /// What clients are told to connect to, in the member list. Default: where this member listens.
    #[arg(long, env = "REVGATE_ADVERTISE_CLIENT_URLS", value_name = "URLS")]
    pub(super) advertise_client_urls: Option<String>,

    /// Origins whose pages may use the API, such as https://console.example, separated by commas; * means any.
    #[arg(long, env = "REVGATE_CORS", value_name = "ORIGINS", default_value = "*")]
    pub(super) cors: String,

    /// Names and addresses clients without TLS may call this member by, separated by commas; * means any.
    #[arg(long, env = "REVGATE_HOST_WHITELIST", value_name = "HOSTS", default_value = "*")]
    pub(super) host_whitelist: String,

    /// Whether the API is served, beside health and metrics.
    #[arg(
        long,
        env = "REVGATE_ENABLE_GRPC_GATEWAY",
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true"
    )]
    pub(super) enable_grpc_gateway: bool,

    /// Longest time a stopping member waits for its clients.
    #[arg(
        long,
        env = "REVGATE_DRAIN_TIMEOUT",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = parse_duration
    )]
    pub(super) drain_timeout: Duration,

    // TLS.
    /// PEM file with the certificate for https URLs, and the chain above it. Read again when it changes.
    #[arg(long, env = "REVGATE_CERT_FILE", value_name = "FILE")]
    pub(super) cert_file: Option<PathBuf>,

    /// PEM file with the certificate's private key.
    #[arg(long, env = "REVGATE_KEY_FILE", value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,

    /// PEM file with the authorities of clients' certificates. With it, a client on an https URL must have one; its common
    /// name is the user's.
    #[arg(long, env = "REVGATE_TRUSTED_CA_FILE", value_name = "FILE")]
    pub(super) trusted_ca_file: Option<PathBuf>,

    /// Whether clients on https URLs must have a certificate; --trusted-ca-file is needed for it, and implies it.
    #[arg(
        long,
        env = "REVGATE_CLIENT_CERT_AUTH",
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true"
    )]
    pub(super) client_cert_auth: bool,

    /// Lowest version of TLS that is spoken.
    #[arg(long, env = "REVGATE_TLS_MIN_VERSION", value_name = "VERSION", value_enum, default_value_t = TlsMinVersion::Tls12)]
    pub(super) tls_min_version: TlsMinVersion,

    // Limits.
    /// Most client connections at once.
    #[arg(long, env = "REVGATE_MAX_CONNECTIONS", value_name = "CONNECTIONS", default_value_t = 50_000)]
    pub(super) max_connections: usize,

    /// Largest request, in bytes.
    #[arg(long, env = "REVGATE_MAX_REQUEST_BYTES", value_name = "BYTES", default_value_t = 1_572_864)]
    pub(super) max_request_bytes: usize,

    /// Most compares or operations of one txn.
    #[arg(long, env = "REVGATE_MAX_TXN_OPS", value_name = "OPERATIONS", default_value_t = 128)]
    pub(super) max_txn_ops: usize,

    /// How often a client that holds a watch or another stream open is asked whether it is still there, at least 100ms.
    #[arg(
        long,
        env = "REVGATE_CLIENT_PING_INTERVAL",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = parse_duration
    )]
    pub(super) client_ping_interval: Duration,

    /// How long a client may neither read what it is sent nor answer before its connection is ended, at least 1s and no less
    /// than the time between two pings.
    #[arg(
        long,
        env = "REVGATE_CLIENT_STALL_TIMEOUT",
        value_name = "DURATION",
        default_value = "2m",
        value_parser = parse_duration
    )]
    pub(super) client_stall_timeout: Duration,

    /// How often a quiet watch that asked for it is told where it stands, at least 100ms; 0 means 10m.
    #[arg(
        long,
        alias = "experimental-watch-progress-notify-interval",
        env = "REVGATE_WATCH_PROGRESS_NOTIFY_INTERVAL",
        value_name = "DURATION",
        default_value = "0",
        value_parser = parse_duration
    )]
    pub(super) watch_progress_notify_interval: Duration,

    // History.
    /// What --auto-compaction-retention counts.
    #[arg(long, env = "REVGATE_AUTO_COMPACTION_MODE", value_name = "MODE", value_enum, default_value_t = CompactionMode::Periodic)]
    pub(super) auto_compaction_mode: CompactionMode,

    /// History that auto-compaction keeps: a duration (or hours) in periodic mode, revisions in revision mode; 0 is off.
    #[arg(long, env = "REVGATE_AUTO_COMPACTION_RETENTION", value_name = "RETENTION", default_value = "0")]
    pub(super) auto_compaction_retention: String,

    /// A tenth of the revisions a compaction looks at before it commits; 1500 deletions are enough for that, too. 0 means
    /// 1000.
    #[arg(long, env = "REVGATE_COMPACTION_BATCH_LIMIT", value_name = "REVISIONS", default_value_t = 0)]
    pub(super) compaction_batch_limit: usize,

    /// Pause of a compaction after ten batches, less after fewer, and at least as long as they took; 0 means 10ms. (etcd
    /// pauses so long after each batch.)
    #[arg(
        long,
        env = "REVGATE_COMPACTION_SLEEP_INTERVAL",
        value_name = "DURATION",
        default_value = "0",
        value_parser = parse_duration
    )]
    pub(super) compaction_sleep_interval: Duration,

    /// Longest time a compaction waits for reads in progress below its revision before it breaks them off.
    #[arg(
        long,
        env = "REVGATE_COMPACTION_READS_WAIT",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = parse_duration
    )]
    pub(super) compaction_reads_wait: Duration,

    // Space.
    /// Bytes of the data file in use at which writes that grow it are refused (NOSPACE); 0 means 2 GiB, below 0 no limit.
    #[arg(
        long,
        env = "REVGATE_QUOTA_BACKEND_BYTES",
        value_name = "BYTES",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(super) quota_backend_bytes: i64,

    /// Who disarms the quota's NOSPACE alarm: the member itself once there is room, or an operator, as in etcd.
    #[arg(long, env = "REVGATE_NOSPACE_DISARM", value_name = "WHO", value_enum, default_value_t = NospaceDisarm::Auto)]
    pub(super) nospace_disarm: NospaceDisarm,

    /// Share of the quota, in percent, below which the bytes in use must fall before the alarm is disarmed by itself.
    #[arg(
        long,
        env = "REVGATE_NOSPACE_LOW_WATER_PERCENT",
        value_name = "PERCENT",
        default_value_t = NOSPACE_LOW_WATER_DEFAULT_PERCENT
    )]
    pub(super) nospace_low_water_percent: u8,

    /// Free share of the data file, in percent, above which room is given back to the disk by itself, down to half of that
    /// share; 0 never does.
    #[arg(long, env = "REVGATE_RECLAIM_FREE_PERCENT", value_name = "PERCENT", default_value_t = 25)]
    pub(super) reclaim_free_percent: u64,

    /// The same in bytes: less than this is never given back without being asked for.
    #[arg(long, env = "REVGATE_RECLAIM_FREE_BYTES", value_name = "BYTES", default_value_t = 67_108_864)]
    pub(super) reclaim_free_bytes: u64,

    // Auth.
    /// What stands for a user that has given its password: "simple", or "jwt,sign-method=METHOD" with pub-key=FILE,
    /// priv-key=FILE and ttl=DURATION as needed.
    #[arg(long, env = "REVGATE_AUTH_TOKEN", value_name = "TOKEN", default_value = "simple")]
    pub(super) auth_token: String,

    /// How long a simple token is good after its last use, in seconds.
    #[arg(long, env = "REVGATE_AUTH_TOKEN_TTL", value_name = "SECONDS", default_value_t = AUTH_TOKEN_TTL_DEFAULT.as_secs())]
    pub(super) auth_token_ttl: u64,

    /// How much work hashing a password is: two to this power rounds, 4 to 31.
    #[arg(long, env = "REVGATE_BCRYPT_COST", value_name = "COST", default_value_t = BCRYPT_COST_DEFAULT)]
    pub(super) bcrypt_cost: u32,

    // Cluster.
    /// The first members, as name=url pairs separated by commas. One member for now. Default: this member.
    #[arg(long, env = "REVGATE_INITIAL_CLUSTER", value_name = "NAME=URL,…")]
    pub(super) initial_cluster: Option<String>,

    /// Whether the cluster begins here, or this member has data already.
    #[arg(long, env = "REVGATE_INITIAL_CLUSTER_STATE", value_name = "STATE", value_enum, default_value_t = ClusterState::New)]
    pub(super) initial_cluster_state: ClusterState,

    /// Keeps clusters with equal URLs apart. Part of what ids are made of.
    #[arg(long, env = "REVGATE_INITIAL_CLUSTER_TOKEN", value_name = "TOKEN", default_value = "etcd-cluster")]
    pub(super) initial_cluster_token: String,

    /// Where peers connect. A cluster of one has no peers: accepted, and nothing listens there.
    #[arg(long, env = "REVGATE_LISTEN_PEER_URLS", value_name = "URLS", default_value = "http://localhost:2380")]
    pub(super) listen_peer_urls: String,

    /// What peers are told to connect to. Part of what the member's id is made of.
    #[arg(
        long,
        env = "REVGATE_INITIAL_ADVERTISE_PEER_URLS",
        value_name = "URLS",
        default_value = "http://localhost:2380"
    )]
    pub(super) initial_advertise_peer_urls: String,

    /// Time between heartbeats of the leader, in milliseconds.
    #[arg(long, env = "REVGATE_HEARTBEAT_INTERVAL", value_name = "MS", default_value_t = 100)]
    pub(super) heartbeat_interval: u64,

    /// Silence after which a new leader is elected, in milliseconds.
    #[arg(long, env = "REVGATE_ELECTION_TIMEOUT", value_name = "MS", default_value_t = 1_000)]
    pub(super) election_timeout: u64,

    // Metrics, logs and traces.
    /// How much /metrics tells; only "extensive" has grpc_server_handling_seconds.
    #[arg(long, env = "REVGATE_METRICS", value_name = "DETAIL", value_enum, default_value_t = MetricsDetail::Extensive)]
    pub(super) metrics: MetricsDetail,

    /// How much is logged.
    #[arg(long, env = "REVGATE_LOG_LEVEL", value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(super) log_level: LogLevel,

    /// How log lines look. Default: text on a terminal, json otherwise.
    #[arg(long, env = "REVGATE_LOG_FORMAT", value_name = "FORMAT", value_enum)]
    pub(super) log_format: Option<LogFormat>,

    /// Where log lines go: stderr, stdout or paths of files that are appended to, separated by commas.
    #[arg(long, env = "REVGATE_LOG_OUTPUTS", value_name = "OUTPUTS", default_value = "stderr")]
    pub(super) log_outputs: String,

    /// Applying a request slower than this is logged.
    #[arg(
        long,
        alias = "experimental-warning-apply-duration",
        env = "REVGATE_WARNING_APPLY_DURATION",
        value_name = "DURATION",
        default_value = "100ms",
        value_parser = parse_duration
    )]
    pub(super) warning_apply_duration: Duration,

    /// A request that takes longer makes one line in the log, with sizes, times and no values; 0 logs none.
    #[arg(
        long,
        alias = "experimental-warning-unary-request-duration",
        env = "REVGATE_WARNING_UNARY_REQUEST_DURATION",
        value_name = "DURATION",
        default_value = "300ms",
        value_parser = parse_duration
    )]
    pub(super) warning_unary_request_duration: Duration,

    /// Whether traces are sent to a collector, by OTLP over HTTP. Default: if there is an address.
    #[arg(
        long,
        alias = "experimental-enable-distributed-tracing",
        env = "REVGATE_ENABLE_DISTRIBUTED_TRACING",
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(super) enable_distributed_tracing: Option<bool>,

    /// The collector: a URL, or HOST:PORT. Else OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.
    #[arg(
        long,
        alias = "experimental-distributed-tracing-address",
        env = "REVGATE_DISTRIBUTED_TRACING_ADDRESS",
        value_name = "URL"
    )]
    pub(super) distributed_tracing_address: Option<String>,

    /// PEM file with the authorities of the collector's certificate, for https.
    #[arg(long, env = "REVGATE_DISTRIBUTED_TRACING_TRUSTED_CA_FILE", value_name = "FILE")]
    pub(super) distributed_tracing_trusted_ca_file: Option<PathBuf>,

    /// What the member is called in traces.
    #[arg(
        long,
        alias = "experimental-distributed-tracing-service-name",
        env = "REVGATE_DISTRIBUTED_TRACING_SERVICE_NAME",
        value_name = "NAME",
        default_value = "revgate"
    )]
    pub(super) distributed_tracing_service_name: String,

    /// Of a million requests, so many get a trace; those whose client samples (traceparent) always do.
    #[arg(
        long,
        alias = "experimental-distributed-tracing-sampling-rate",
        env = "REVGATE_DISTRIBUTED_TRACING_SAMPLING_RATE",
        value_name = "REQUESTS",
        default_value_t = 0
    )]
    pub(super) distributed_tracing_sampling_rate: u32,
}
