//! One member, from its listeners to its files and back.
//!
//! Builds the floors from the bottom up and takes them down from the top: nobody is served by what is not there. The
//! listeners are bound first, so that an address in use is known before any file is touched. This room decides nothing
//! about keys; it knows in which order things live.

mod data_dir;
mod error;
mod identity;
mod keys;
mod listen;
pub mod offline;
mod process;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;

use crate::{
    apply::{Alarms, Applier, State},
    auth::AuthStore,
    bolt::{self, Db},
    clock::{Clock, SystemClock},
    config::{Config, ListenUrl},
    consensus::{Consensus, ConsensusOptions},
    disk::{Disk, RealDisk},
    http::{HttpListener, HttpOptions, HttpServer, Serves, Tls, Tracing},
    lease::Lessor,
    metrics::{Detail, Metrics, Time},
    mvcc::{ReclaimOptions, Store, StoreOptions, buckets},
    service::{Services, Tasks},
    watch::{Hub, HubOptions},
};

use self::data_dir::DataDir;
pub use self::{error::ServerError, process::run};

/// Address space for the data file where there is no quota, in bytes.
const MAP_BYTES_UNLIMITED: u64 = 1 << 40;
/// Least address space for the data file, in bytes: the file may be over its quota, and the quota may be raised.
const MAP_BYTES_MIN: u64 = 64 << 30;
/// Address space for the data file, in quotas.
const MAP_QUOTAS: u64 = 4;
/// Undelivered bytes one watch stream may hold in memory.
const WATCH_STREAM_BYTES_MAX: usize = 512 << 10;
/// Revisions one step of a watch that catches up reads: small steps, because live events wait while one is given out.
const CATCH_UP_REVISIONS_MAX: usize = 256;
/// Bytes one step of a watch that catches up reads.
const CATCH_UP_BYTES_MAX: usize = 64 << 10;

/// A running member.
#[derive(Debug)]
pub struct Server {
    http: HttpServer,
    /// Whether clients speak TLS, for each listener.
    is_tls: Vec<bool>,
    /// The same for the listeners of metrics.
    is_metrics_tls: Vec<bool>,
    tasks: Tasks,
    consensus: Consensus,
    state: State,
    data_dir: DataDir,
    drain_timeout: Duration,
}

impl Server {
    /// Starts a member and returns when it can serve. If this fails, or is dropped, nothing is left behind but files
    /// that the next start takes up.
    pub async fn start(config: Config) -> Result<Server, ServerError> {
        Server::start_on(Arc::new(RealDisk), config).await
    }

    /// The same on a disk of the caller's, which may fail.
    pub async fn start_on(disk: Arc<dyn Disk>, config: Config) -> Result<Server, ServerError> {
        let begun = Instant::now();
        let tls = config.transport.tls.clone().map(Tls::load).transpose()?;
        let listeners = listen::bind(&config.listen_client_urls, "--listen-client-urls")?;
        let metrics_listeners = listen::bind(&config.listen_metrics_urls, "--listen-metrics-urls")?;
        let detail = if config.extensive_metrics { Detail::Extensive } else { Detail::Basic };
        let metrics = Metrics::with(Time::system(), detail);
        let floors = {
            let (disk, config, metrics) = (disk.clone(), config.clone(), metrics.clone());
            let advertised = listen::advertised_urls(&config, &listeners)?;
            spawn_blocking(move || open_floors(&disk, &config, &advertised, &metrics))
        };
        let Floors { data_dir, state, applier } =
            floors.await.map_err(|error| ServerError::Worker(error.to_string()))??;

        let options = consensus_options(&config, &state, &data_dir);
        let consensus = Consensus::start(options, disk, state.store.clone(), applier, &metrics)
            .await
            .map_err(|error| ServerError::consensus(error, &data_dir))?;
        let services = Services::new(&config, state.clone(), consensus.clone(), &metrics);
        let tasks = Tasks::start(&config, &services, &metrics);
        let tracing =
            config.tracing.as_ref().map(|tracing| Tracing::start(tracing, state.members.local_id())).transpose()?;
        let http = start_http(&config, (listeners, metrics_listeners), (tls, tracing), services.clone(), &metrics)?;

        metrics.version.with_label_values(&[&services.maintenance.versions().server]).set(1);
        metrics.id.with_label_values(&[&format!("{:x}", state.members.local_id())]).set(1);
        metrics.start_time_seconds.set(begun.elapsed().as_secs_f64());
        tracing::info!(
            member_id = format!("{:x}", state.members.local_id()),
            cluster_id = format!("{:x}", state.members.cluster_id()),
            revision = state.store.revision(),
            took = ?begun.elapsed(),
            "ready to serve"
        );
        let is_tls = |urls: &[ListenUrl]| urls.iter().map(ListenUrl::is_tls).collect();
        Ok(Server {
            http,
            is_tls: is_tls(&config.listen_client_urls),
            is_metrics_tls: is_tls(&config.listen_metrics_urls),
            tasks,
            consensus,
            state,
            data_dir,
            drain_timeout: config.drain_timeout,
        })
    }

    /// Where clients connect; a port given as 0 is the one that was found.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.http.addresses()
    }

    /// The same as URLs.
    pub fn urls(&self) -> Vec<String> {
        listen::urls(self.addresses(), &self.is_tls)
    }

    /// Where metrics alone are served, as URLs.
    pub fn metrics_urls(&self) -> Vec<String> {
        listen::urls(self.http.metrics_addresses(), &self.is_metrics_tls)
    }

    /// Where everything is kept.
    pub fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// Resolves with the reason if the member cannot go on: a failed sync, a damaged record. It must then end at once,
    /// without [`Server::stop`], which would write after a failure to write.
    pub fn failure(&self) -> impl Future<Output = String> + use<> {
        let consensus = self.consensus.clone();
        async move { consensus.failed().await }
    }

    /// Stops serving, waits for the clients a while, and closes everything in order.
    pub async fn stop(self) -> Result<(), ServerError> {
        let threads = self.http.drain(self.drain_timeout).await;
        // Those who waited for others take back on these threads what they have written.
        self.tasks.stop().await;
        drop(threads);
        self.consensus.shutdown().await?;
        self.state.hub.close();
        let store = self.state.store.clone();
        spawn_blocking(move || store.close()).await.map_err(|error| ServerError::Worker(error.to_string()))??;
        self.data_dir.release()
    }
}

/// Everything below the consensus.
struct Floors {
    data_dir: DataDir,
    state: State,
    applier: Applier,
}

/// Opens the files and rebuilds what is kept in memory. Takes as long as the data is large.
fn open_floors(
    disk: &Arc<dyn Disk>,
    config: &Config,
    advertised_urls: &[String],
    metrics: &Metrics,
) -> Result<Floors, ServerError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tokens = keys::tokens(&config.auth_tokens, &clock)?;
    let data_dir = DataDir::open(&**disk, &config.data_dir)?;
    let db = Db::open(disk.clone(), &data_dir.db_path(), &bolt::Options { map_bytes_max: map_bytes_max(config) })?;
    let members = Arc::new(identity::establish(&db, config, advertised_urls)?);

    let (store, restored) = Store::open(db, store_options(config), metrics)?;
    let damaged = |bucket: &'static [u8]| move |what| ServerError::damaged_bucket(bucket, what);
    let lessor = Arc::new(Lessor::new(clock.clone(), config.lease_ttl_min_secs()));
    lessor
        .restore(&store.bucket_pairs(buckets::LEASE)?, restored.lease_attachments)
        .map_err(damaged(buckets::LEASE))?;
    let alarms = Arc::new(Alarms::new());
    alarms.restore(&store.bucket_pairs(buckets::ALARM)?).map_err(damaged(buckets::ALARM))?;
    let hub = Hub::start(store.clone(), hub_options(config), clock, metrics);

    let auth = Arc::new(AuthStore::new(tokens));
    let pairs = |bucket| store.bucket_pairs(bucket);
    auth.restore(&pairs(buckets::AUTH)?, &pairs(buckets::AUTH_USERS)?, &pairs(buckets::AUTH_ROLES)?)
        .map_err(damaged(buckets::AUTH))?;

    let state = State { store, lessor, members, alarms, auth, hub };
    let applier = Applier::new(state.clone(), config, metrics);
    Ok(Floors { data_dir, state, applier })
}

fn map_bytes_max(config: &Config) -> u64 {
    match u64::try_from(config.quota_backend_bytes) {
        Ok(quota) => quota.saturating_mul(MAP_QUOTAS).clamp(MAP_BYTES_MIN, MAP_BYTES_UNLIMITED),
        Err(_) => MAP_BYTES_UNLIMITED,
    }
}

fn store_options(config: &Config) -> StoreOptions {
    StoreOptions {
        commit_interval: config.backend_batch_interval,
        commit_ops_max: config.backend_batch_limit,
        compaction_batch_revisions: config.compaction_batch_limit,
        compaction_sleep: config.compaction_sleep_interval,
        compaction_reads_wait: config.compaction_reads_wait,
        reclaim: ReclaimOptions { free_percent: config.reclaim_free_percent, free_bytes: config.reclaim_free_bytes },
    }
}

fn hub_options(config: &Config) -> HubOptions {
    HubOptions {
        stream_bytes_max: WATCH_STREAM_BYTES_MAX,
        progress_interval: config.watch_progress_notify_interval,
        catch_up_revisions_max: CATCH_UP_REVISIONS_MAX,
        catch_up_bytes_max: CATCH_UP_BYTES_MAX,
    }
}

fn consensus_options(config: &Config, state: &State, data_dir: &DataDir) -> ConsensusOptions {
    ConsensusOptions {
        member_id: state.members.local_id(),
        cluster_id: state.members.cluster_id(),
        wal_dir: data_dir.wal_dir(),
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

fn start_http(
    config: &Config,
    (clients, metrics_alone): (Vec<TcpListener>, Vec<TcpListener>),
    (tls, tracing): (Option<Tls>, Option<Tracing>),
    services: Services,
    metrics: &Metrics,
) -> Result<HttpServer, ServerError> {
    let options = HttpOptions {
        request_bytes_max: config.request_bytes_max,
        connections_max: config.connections_max,
        transport: config.transport.clone(),
        request_log: config.request_log.clone(),
        tracing,
        tls,
    };
    let clients = clients.into_iter().zip(&config.listen_client_urls);
    let metrics_alone = metrics_alone.into_iter().zip(&config.listen_metrics_urls);
    let listener =
        |serves| move |(socket, url): (TcpListener, &ListenUrl)| HttpListener { socket, is_tls: url.is_tls(), serves };
    let listeners =
        clients.map(listener(Serves::Everything)).chain(metrics_alone.map(listener(Serves::Metrics))).collect();
    HttpServer::start(listeners, options, services, metrics.clone()).map_err(ServerError::Http)
}
