//! Settings of one member, as every room gets them: typed, complete, with units last in the names.
//!
//! Defaults are etcd's where the meaning is etcd's. Reading flags and environment is `cli`'s business.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// How the history is compacted without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Never.
    Off,
    /// Keep what is younger than this.
    Periodic(Duration),
    /// Keep this many revisions.
    Revision(i64),
}

/// A listener's address, and how it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    /// Where to bind.
    pub address: SocketAddr,
    /// The URL as given, for logs and for the member list.
    pub url: String,
}

/// How users prove who they are once their password was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthTokens {
    /// Random tokens, known to the members only.
    Simple {
        /// How long one is good after it was used last.
        ttl: Duration,
    },
    /// Signed tokens that carry all that must be known of them.
    Jwt(JwtConfig),
}

/// Signed tokens. Which key is needed depends on the method; the keys are PEM files, or one secret for HMAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    /// Name of the method, as JWTs spell it: RS256, ES384, HS512, EdDSA, …
    pub sign_method: String,
    /// The key that checks tokens.
    pub public_key: Option<PathBuf>,
    /// The key that makes tokens; without it this member only checks them.
    pub private_key: Option<PathBuf>,
    /// How long a token is good.
    pub ttl: Duration,
}

impl ListenUrl {
    /// Whether clients speak TLS there.
    pub fn is_tls(&self) -> bool {
        self.url.starts_with("https://")
    }
}

/// The lowest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 and what is newer.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Where the certificates for clients lie. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The member's certificate, and the chain above it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates. With these, a client must have one.
    pub trusted_ca: Option<PathBuf>,
    /// The lowest version spoken.
    pub min_version: TlsVersion,
}

/// Who is let in: of pages' origins, or of names the member is called by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    /// Everyone.
    #[default]
    Any,
    /// These.
    Only(Vec<String>),
}

/// How clients are met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// For the listeners whose URLs ask for TLS.
    pub tls: Option<TlsFiles>,
    /// Pages of which origins may use the API.
    pub cors: Allowed,
    /// What the member may be called in requests without TLS.
    pub hosts: Allowed,
    /// Whether the API is served at all, beside health and metrics.
    pub gateway: bool,
    /// How often a client that holds a connection open is asked whether it is still there.
    pub ping_interval: Duration,
    /// How long a client may neither read nor answer before it is given up.
    pub stall_timeout: Duration,
}

/// Which requests make a line in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    /// Those that take longer than this; zero: none.
    pub slow: Duration,
    /// Whether the line tells how a key begins.
    pub key_prefixes: bool,
}

/// Where traces go. OTLP by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// The collector's URL for traces, with its path.
    pub endpoint: String,
    /// PEM file with the authorities of its certificate, for https.
    pub trusted_ca: Option<PathBuf>,
    /// What the member is called there.
    pub service_name: String,
    /// Of a million requests without a trace of their client's, so many get one.
    pub samples_per_million: u32,
}

/// What is asked of clients unless it is set, in time between pings.
pub const PING_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);
/// Twice what a client may well be busy with something else.
pub const STALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

impl Default for Transport {
    fn default() -> Transport {
        Transport {
            tls: None,
            cors: Allowed::Any,
            hosts: Allowed::Any,
            gateway: true,
            ping_interval: PING_INTERVAL_DEFAULT,
            stall_timeout: STALL_TIMEOUT_DEFAULT,
        }
    }
}

/// Everything a member needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name.
    pub name: String,
    /// Root of everything the member keeps.
    pub data_dir: PathBuf,
    /// Where clients connect.
    pub listen_client_urls: Vec<ListenUrl>,
    /// Where operators' tools connect: probes, metrics, debug, and nothing else.
    pub listen_metrics_urls: Vec<ListenUrl>,
    /// How clients are met there.
    pub transport: Transport,
    /// What the member tells clients to connect to.
    pub advertise_client_urls: Vec<String>,
    /// Where peers connect.
    pub listen_peer_urls: Vec<String>,
    /// What the member tells peers to connect to.
    pub initial_advertise_peer_urls: Vec<String>,
    /// `name=url` pairs of the first members.
    pub initial_cluster: Vec<(String, String)>,
    /// Keeps clusters with equal URLs apart.
    pub initial_cluster_token: String,
    /// Entries applied between two releases of the log.
    pub snapshot_count: u64,
    /// Released entries kept for followers that are behind.
    pub snapshot_catchup_entries: u64,
    /// Released log segments kept.
    pub wals_max: usize,
    /// Size of a log segment, in bytes; the first ones of a log are smaller.
    pub wal_segment_bytes: u64,
    /// Time between heartbeats of the leader.
    pub heartbeat_interval: Duration,
    /// Silence after which followers elect a new leader.
    pub election_timeout: Duration,
    /// Bytes of the file in use at which writes that grow it are refused. Negative: no limit.
    pub quota_backend_bytes: i64,
    /// Below which share of the quota, in percent, a member disarms the NOSPACE alarm that it has raised itself. `None`: an
    /// operator must, as in etcd.
    pub nospace_low_water_percent: Option<u8>,
    /// Longest time between two commits of the file while there is something to commit.
    pub backend_batch_interval: Duration,
    /// Operations after which the file is committed at once.
    pub backend_batch_limit: usize,
    /// Most compares or operations of one txn.
    pub txn_ops_max: usize,
    /// Largest encoded proposal, in bytes.
    pub request_bytes_max: usize,
    /// Most client connections at once.
    pub connections_max: usize,
    /// Whether metrics of which there are many series are exported too.
    pub extensive_metrics: bool,
    /// Compaction of the history without being asked.
    pub auto_compaction: AutoCompaction,
    /// A tenth of the revisions that a compaction looks at for one commit, at most.
    pub compaction_batch_limit: usize,
    /// Pause for ten such batches, and for fewer in proportion.
    pub compaction_sleep_interval: Duration,
    /// Longest time a compaction waits for reads in progress below it, before it breaks them off.
    pub compaction_reads_wait: Duration,
    /// Free pages of the data file from which on room is given back without being asked for, in percent of the file; 0:
    /// never.
    pub reclaim_free_percent: u64,
    /// The same in bytes; both must be exceeded.
    pub reclaim_free_bytes: u64,
    /// How often a quiet watcher that asked for it is told where it stands.
    pub watch_progress_notify_interval: Duration,
    /// Applies slower than this are counted and logged.
    pub warning_apply_duration: Duration,
    /// Which requests make a line in the log.
    pub request_log: RequestLog,
    /// Where traces go, if they do.
    pub tracing: Option<TracingConfig>,
    /// How users prove who they are.
    pub auth_tokens: AuthTokens,
    /// How much work hashing a password is: two to this power rounds.
    pub bcrypt_cost: u32,
    /// Longest time a stopping member waits for its clients.
    pub drain_timeout: Duration,
}

/// etcd's time to live of a random token.
pub const AUTH_TOKEN_TTL_DEFAULT: Duration = Duration::from_secs(300);
/// etcd's cost of hashing a password.
pub const BCRYPT_COST_DEFAULT: u32 = 10;

/// Below which share of the quota, in percent, the NOSPACE alarm goes by itself. The gap keeps it from coming and going.
pub const NOSPACE_LOW_WATER_DEFAULT_PERCENT: u8 = 90;

/// What `--quota-backend-bytes 0` means, in bytes.
pub const QUOTA_DEFAULT_BYTES: i64 = 2 * 1024 * 1024 * 1024;

impl Config {
    /// How long a request may take before its client is told that it timed out: five seconds for the disk and two elections.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election_timeout
    }

    /// The lowest TTL of a lease: long enough that a new leader is there before it ends.
    pub fn lease_ttl_min_secs(&self) -> i64 {
        let election_ticks = self.election_timeout.as_millis() / self.heartbeat_interval.as_millis().max(1);
        let shortest = Duration::from_millis(
            u64::try_from((election_ticks * 3).div_ceil(2) * self.heartbeat_interval.as_millis()).unwrap_or(u64::MAX),
        );
        i64::try_from(shortest.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
    }
}
