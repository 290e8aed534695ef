//! A member on a free port, and a client that sees every byte.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    apply::{Alarms, Applier, State},
    auth::{AuthStore, SimpleTokens, Tokens},
    bolt,
    clock::SystemClock,
    config::{AUTH_TOKEN_TTL_DEFAULT, AuthTokens, AutoCompaction, Config, Transport},
    consensus::{Consensus, ConsensusOptions},
    disk::{RealDisk, sim::SimDisk},
    http::{HttpListener, HttpOptions, HttpServer, Serves, Tls, Tracing},
    lease::Lessor,
    members::{Member as Peer, Members},
    metrics::Metrics,
    mvcc::{Store, StoreOptions},
    service::{Services, Tasks},
    watch::{Hub, HubOptions},
};

/// Largest proposal of the test's member, in bytes.
pub(super) const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// What tests want of a member's front.
pub(super) struct MemberOptions {
    pub(super) connections_max: usize,
    pub(super) transport: Transport,
    pub(super) tls: Option<Tls>,
    pub(super) tracing: Option<Tracing>,
}

impl Default for MemberOptions {
    fn default() -> MemberOptions {
        MemberOptions { connections_max: 64, transport: Transport::default(), tls: None, tracing: None }
    }
}

/// A running member.
pub(super) struct Member {
    pub(super) server: HttpServer,
    pub(super) metrics: Metrics,
    pub(super) address: SocketAddr,
    state: State,
    tasks: Tasks,
    pub(super) consensus: Consensus,
    /// The log's.
    pub(super) log_disk: SimDisk,
    _dir: tempfile::TempDir,
}

/// What is left of a member that serves nobody any more.
pub(super) struct Rest {
    consensus: Consensus,
    state: State,
    _dir: tempfile::TempDir,
}

impl Rest {
    pub(super) async fn end(self) {
        self.consensus.shutdown().await.unwrap();
        self.state.hub.close();
        tokio::task::spawn_blocking(move || self.state.store.close()).await.unwrap().unwrap();
    }
}

fn config(dir: &std::path::Path) -> Config {
    let peer = "http://127.0.0.1:2380".to_owned();
    Config {
        name: "default".into(),
        data_dir: dir.to_owned(),
        listen_client_urls: Vec::new(),
        listen_metrics_urls: Vec::new(),
        transport: Default::default(),
        advertise_client_urls: vec!["http://127.0.0.1:2379".into()],
        listen_peer_urls: vec![peer.clone()],
        initial_advertise_peer_urls: vec![peer.clone()],
        initial_cluster: vec![("default".into(), peer)],
        initial_cluster_token: "etcd-cluster".into(),
        snapshot_count: 10_000,
        snapshot_catchup_entries: 5_000,
        wals_max: 5,
        wal_segment_bytes: 1 << 20,
        heartbeat_interval: Duration::from_millis(100),
        election_timeout: Duration::from_secs(1),
        quota_backend_bytes: 0,
        nospace_low_water_percent: Some(90),
        backend_batch_interval: Duration::from_millis(100),
        backend_batch_limit: 10_000,
        txn_ops_max: 128,
        request_bytes_max: REQUEST_BYTES_MAX,
        connections_max: 64,
        extensive_metrics: true,
        auto_compaction: AutoCompaction::Off,
        compaction_batch_limit: 1_000,
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

impl Member {
    pub(super) async fn start() -> Member {
        Member::with(MemberOptions::default()).await
    }

    pub(super) async fn with_connections_max(connections_max: usize) -> Member {
        Member::with(MemberOptions { connections_max, ..Default::default() }).await
    }

    pub(super) async fn with(options: MemberOptions) -> Member {
        let MemberOptions { connections_max, transport, tls, tracing } = options;
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let metrics = Metrics::new();
        let disk = Arc::new(RealDisk);
        let clock = Arc::new(SystemClock::new());
        let options = bolt::Options { map_bytes_max: 1 << 30 };
        let db = bolt::Db::open(disk.clone(), &dir.path().join("db"), &options).unwrap();
        let store_options = StoreOptions {
            commit_interval: config.backend_batch_interval,
            commit_ops_max: config.backend_batch_limit,
            compaction_batch_revisions: config.compaction_batch_limit,
            compaction_sleep: config.compaction_sleep_interval,
            compaction_reads_wait: config.compaction_reads_wait,
            ..StoreOptions::default()
        };
        let (store, _) = Store::open(db, store_options, &metrics).unwrap();
        let hub_options = HubOptions {
            stream_bytes_max: 1 << 20,
            progress_interval: config.watch_progress_notify_interval,
            catch_up_revisions_max: 100,
            catch_up_bytes_max: 1 << 20,
        };
        let state = State {
            lessor: Arc::new(Lessor::new(clock.clone(), config.lease_ttl_min_secs())),
            members: Arc::new(Members::new(22, 11, vec![peer(&config)])),
            alarms: Arc::new(Alarms::new()),
            auth: Arc::new(AuthStore::new(Tokens::Simple(SimpleTokens::new(clock.clone(), AUTH_TOKEN_TTL_DEFAULT)))),
            hub: Hub::start(store.clone(), hub_options, clock, &metrics),
            store,
        };
        let applier = Applier::new(state.clone(), &config, &metrics);
        let log_disk = SimDisk::default();
        let log = Arc::new(log_disk.clone());
        let consensus =
            Consensus::start(consensus_options(&config), log, state.store.clone(), applier, &metrics).await.unwrap();
        let services = Services::new(&config, state.clone(), consensus.clone(), &metrics);
        let tasks = Tasks::start(&config, &services, &metrics);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let options = HttpOptions {
            request_bytes_max: config.request_bytes_max,
            connections_max,
            transport,
            request_log: config.request_log,
            tracing,
            tls,
        };
        let listener = HttpListener { socket: listener, is_tls: options.tls.is_some(), serves: Serves::Everything };
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics_listener = HttpListener { socket, is_tls: false, serves: Serves::Metrics };
        let server = HttpServer::start(vec![listener, metrics_listener], options, services, metrics.clone()).unwrap();
        Member { address: server.addresses()[0], server, metrics, state, tasks, consensus, log_disk, _dir: dir }
    }

    pub(super) fn store(&self) -> Store {
        self.state.store.clone()
    }

    /// Drains, and takes the floors below down.
    pub(super) async fn stop(self) {
        self.drain_and_end_tasks().await.end().await;
    }

    /// What is above the consensus, as a server takes it down.
    pub(super) async fn drain_and_end_tasks(self) -> Rest {
        let threads = self.server.drain(Duration::from_secs(5)).await;
        self.tasks.stop().await;
        drop(threads);
        Rest { consensus: self.consensus, state: self.state, _dir: self._dir }
    }

    pub(super) async fn connect(&self) -> Client {
        connect(self.address).await
    }

    /// A connection to where metrics alone are served.
    pub(super) async fn connect_metrics(&self) -> Client {
        connect(self.server.metrics_addresses()[0]).await
    }

    /// One POST on a connection of its own.
    pub(super) async fn post(&self, path: &str, body: &str) -> Answer {
        let mut client = self.connect().await;
        client.request("POST", path, "", body).await
    }

    /// The status a POST is answered with, whether or not the answer ends.
    pub(super) async fn status_of(&self, path: &str, body: &str) -> u16 {
        let mut client = self.connect().await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.send(head.as_bytes()).await;
        status(&client.head().await)
    }

    /// One GET on a connection of its own.
    pub(super) async fn get(&self, path: &str) -> Answer {
        self.connect().await.request("GET", path, "", "").await
    }

    /// Waits until no watch stream is left.
    pub(super) async fn no_watch_streams(&self) {
        self.until(|metrics| metrics.watch_stream_total.get() == 0).await;
    }

    /// Waits for a state of the metrics.
    pub(super) async fn until(&self, reached: impl Fn(&Metrics) -> bool) {
        let polling = async {
            while !reached(&self.metrics) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), polling).await.unwrap();
    }
}

async fn connect(address: SocketAddr) -> Client {
    Client { stream: BufReader::new(TcpStream::connect(address).await.unwrap()) }
}

fn peer(config: &Config) -> Peer {
    Peer {
        id: 11,
        name: config.name.clone(),
        peer_urls: config.initial_advertise_peer_urls.clone(),
        client_urls: config.advertise_client_urls.clone(),
        is_learner: false,
    }
}

fn consensus_options(config: &Config) -> ConsensusOptions {
    ConsensusOptions {
        member_id: 11,
        cluster_id: 22,
        wal_dir: config.data_dir.join("wal"),
        heartbeat_interval: config.heartbeat_interval,
        election_timeout: config.election_timeout,
        request_timeout: config.request_timeout(),
        snapshot_count: config.snapshot_count,
        snapshot_catchup_entries: config.snapshot_catchup_entries,
        wal_segment_bytes: config.wal_segment_bytes,
        wals_max: config.wals_max,
        request_bytes_max: config.request_bytes_max,
    }
}

/// An answer, as it came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// One connection.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).await.unwrap();
    }

    /// A request with its length, and its whole answer. `headers` end each with a line's end.
    pub(super) async fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n");
        self.send(format!("{head}{body}").as_bytes()).await;
        self.answer().await
    }

    pub(super) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        let mut body = String::new();
        if header(&head, "transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                body += &chunk;
            }
        } else {
            let length = header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
            let mut bytes = vec![0; length];
            self.stream.read_exact(&mut bytes).await.unwrap();
            body = String::from_utf8(bytes).unwrap();
        }
        Answer { status: status(&head), head, body }
    }

    /// The head of an answer.
    pub(super) async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.line(&mut head).await, 0, "the connection ended in a head: {head}");
        }
        head
    }

    /// The next chunk of a streamed answer; `None` after the last.
    pub(super) async fn chunk(&mut self) -> Option<String> {
        let mut size = String::new();
        self.line(&mut size).await;
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        let reading = self.stream.read_exact(&mut bytes);
        tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap().unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// Whether the server has closed, with nothing more to read.
    pub(super) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let reading = self.stream.read_to_end(&mut rest);
        matches!(tokio::time::timeout(Duration::from_secs(20), reading).await, Ok(Ok(0)))
    }

    /// Everything up to the end of the connection, which may be a broken one.
    pub(super) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let reading = self.stream.read_to_end(&mut rest);
        let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap();
        rest
    }

    async fn line(&mut self, into: &mut String) -> usize {
        tokio::time::timeout(Duration::from_secs(20), self.stream.read_line(into)).await.unwrap().unwrap()
    }
}

pub(super) fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A header's value, by its name in lower case.
pub(super) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
}
