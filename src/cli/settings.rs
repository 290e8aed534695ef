//! From flags to a [`Config`], or to a sentence that says which flag is wrong and what it may be.

#[cfg(test)]
mod tests;
mod tracing;
mod transport;

use std::{ops::RangeInclusive, time::Duration};

use thiserror::Error;

use crate::config::{AutoCompaction, Config, ListenUrl, QUOTA_DEFAULT_BYTES, RequestLog};

use super::{
    auth_token,
    duration::parse_duration,
    flags::{ClusterState, CompactionMode, LogLevel, MetricsDetail, NospaceDisarm, ServeFlags},
    urls,
};

const BACKEND_BATCH_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
const BACKEND_BATCH_LIMIT_DEFAULT: usize = 10_000;
const COMPACTION_BATCH_LIMIT_DEFAULT: usize = 1_000;
const COMPACTION_SLEEP_DEFAULT: Duration = Duration::from_millis(10);
const PROGRESS_NOTIFY_DEFAULT: Duration = Duration::from_secs(600);
const PROGRESS_NOTIFY_MIN: Duration = Duration::from_millis(100);

const HEARTBEAT_MILLIS: RangeInclusive<u64> = 1..=10_000;
const ELECTION_MILLIS: RangeInclusive<u64> = 5..=50_000;
const ELECTION_HEARTBEATS_MIN: u64 = 5;
const SNAPSHOT_ENTRIES: RangeInclusive<u64> = 1..=1_000_000_000;
const CATCHUP_ENTRIES: RangeInclusive<u64> = 0..=1_000_000_000;
const WAL_SEGMENT_BYTES: RangeInclusive<u64> = 65_536..=1_073_741_824;
const LOW_WATER_PERCENT: RangeInclusive<u8> = 1..=99;
const TXN_OPS: RangeInclusive<usize> = 1..=1_000_000;
const REQUEST_BYTES: RangeInclusive<usize> = 1_024..=268_435_456;
const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;
const RECLAIM_FREE_PERCENT: RangeInclusive<u64> = 0..=99;
const TOKEN_TTL_SECS: RangeInclusive<u64> = 1..=31_536_000;
const BCRYPT_COSTS: RangeInclusive<u32> = 4..=31;

/// A flag that cannot be, and what it may be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("--{flag}: {problem}")]
pub(super) struct FlagError {
    /// Its name.
    pub(super) flag: &'static str,
    /// What is wrong with its value.
    pub(super) problem: String,
}

fn wrong<T>(flag: &'static str, problem: impl Into<String>) -> Result<T, FlagError> {
    Err(FlagError { flag, problem: problem.into() })
}

/// Checks the flags, alone and against each other.
pub(super) fn config(flags: &ServeFlags) -> Result<Config, FlagError> {
    let flag = |flag| move |problem| FlagError { flag, problem };
    let peer_urls = urls::url_list(&flags.initial_advertise_peer_urls).map_err(flag("initial-advertise-peer-urls"))?;
    let advertise_client_urls = match &flags.advertise_client_urls {
        Some(urls) => urls::url_list(urls).map_err(flag("advertise-client-urls"))?,
        None => Vec::new(),
    };
    check_elections(flags)?;
    if flags.name.is_empty() || flags.name.contains([',', '=']) {
        return wrong("name", "must not be empty, and must not contain ',' or '='");
    }
    let listen_client_urls = urls::listen_urls(&flags.listen_client_urls).map_err(flag("listen-client-urls"))?;
    let listen_metrics_urls = metrics_urls(flags)?;
    Ok(Config {
        name: flags.name.clone(),
        data_dir: flags.data_dir.clone(),
        transport: transport::transport(flags, &listen_client_urls, &listen_metrics_urls)?,
        listen_client_urls,
        listen_metrics_urls,
        advertise_client_urls,
        listen_peer_urls: urls::url_list(&flags.listen_peer_urls).map_err(flag("listen-peer-urls"))?,
        initial_cluster: initial_cluster(flags, &peer_urls)?,
        initial_advertise_peer_urls: peer_urls,
        initial_cluster_token: flags.initial_cluster_token.clone(),
        snapshot_count: within("snapshot-count", flags.snapshot_count, SNAPSHOT_ENTRIES)?,
        snapshot_catchup_entries: within("snapshot-catchup-entries", flags.snapshot_catchup_entries, CATCHUP_ENTRIES)?,
        wals_max: if flags.max_wals == 0 { usize::MAX } else { flags.max_wals },
        wal_segment_bytes: within("wal-segment-bytes", flags.wal_segment_bytes, WAL_SEGMENT_BYTES)?,
        heartbeat_interval: Duration::from_millis(flags.heartbeat_interval),
        election_timeout: Duration::from_millis(flags.election_timeout),
        quota_backend_bytes: or_default(flags.quota_backend_bytes, QUOTA_DEFAULT_BYTES),
        nospace_low_water_percent: nospace_low_water(flags)?,
        backend_batch_interval: or_default(flags.backend_batch_interval, BACKEND_BATCH_INTERVAL_DEFAULT),
        backend_batch_limit: or_default(flags.backend_batch_limit, BACKEND_BATCH_LIMIT_DEFAULT),
        txn_ops_max: within("max-txn-ops", flags.max_txn_ops, TXN_OPS)?,
        request_bytes_max: within("max-request-bytes", flags.max_request_bytes, REQUEST_BYTES)?,
        connections_max: within("max-connections", flags.max_connections, CONNECTIONS)?,
        extensive_metrics: flags.metrics == MetricsDetail::Extensive,
        auto_compaction: auto_compaction(flags)?,
        compaction_batch_limit: or_default(flags.compaction_batch_limit, COMPACTION_BATCH_LIMIT_DEFAULT),
        compaction_sleep_interval: or_default(flags.compaction_sleep_interval, COMPACTION_SLEEP_DEFAULT),
        compaction_reads_wait: flags.compaction_reads_wait,
        reclaim_free_percent: within("reclaim-free-percent", flags.reclaim_free_percent, RECLAIM_FREE_PERCENT)?,
        reclaim_free_bytes: flags.reclaim_free_bytes,
        watch_progress_notify_interval: progress_notify(flags)?,
        warning_apply_duration: flags.warning_apply_duration,
        request_log: RequestLog {
            slow: flags.warning_unary_request_duration,
            key_prefixes: flags.log_level == LogLevel::Debug,
        },
        tracing: tracing::tracing(flags)?,
        auth_tokens: auth_token::parse(
            &flags.auth_token,
            within("auth-token-ttl", flags.auth_token_ttl, TOKEN_TTL_SECS)?,
        )
        .map_err(flag("auth-token"))?,
        bcrypt_cost: within("bcrypt-cost", flags.bcrypt_cost, BCRYPT_COSTS)?,
        drain_timeout: flags.drain_timeout,
    })
}

/// No URLs, or an empty list of them, as etcd has it: no port of their own.
fn metrics_urls(flags: &ServeFlags) -> Result<Vec<ListenUrl>, FlagError> {
    match flags.listen_metrics_urls.as_deref().map(str::trim) {
        None | Some("") => Ok(Vec::new()),
        Some(urls) => urls::listen_urls(urls).map_err(|problem| FlagError { flag: "listen-metrics-urls", problem }),
    }
}

/// What 0 stands for, as in etcd.
fn or_default<T: PartialEq + Default>(value: T, default: T) -> T {
    if value == T::default() { default } else { value }
}

fn within<T: PartialOrd + std::fmt::Display>(
    flag: &'static str,
    value: T,
    allowed: RangeInclusive<T>,
) -> Result<T, FlagError> {
    if allowed.contains(&value) {
        Ok(value)
    } else {
        wrong(flag, format!("{value} is not between {} and {}", allowed.start(), allowed.end()))
    }
}

fn check_elections(flags: &ServeFlags) -> Result<(), FlagError> {
    let heartbeat = within("heartbeat-interval", flags.heartbeat_interval, HEARTBEAT_MILLIS)?;
    let election = within("election-timeout", flags.election_timeout, ELECTION_MILLIS)?;
    if election < ELECTION_HEARTBEATS_MIN * heartbeat {
        let problem =
            format!("{election} is less than {ELECTION_HEARTBEATS_MIN} times --heartbeat-interval {heartbeat}");
        return wrong("election-timeout", problem);
    }
    Ok(())
}

fn initial_cluster(flags: &ServeFlags, peer_urls: &[String]) -> Result<Vec<(String, String)>, FlagError> {
    const FLAG: &str = "initial-cluster";
    let Some(text) = &flags.initial_cluster else {
        return Ok(peer_urls.iter().map(|url| (flags.name.clone(), url.clone())).collect());
    };
    let wrong = |problem| FlagError { flag: FLAG, problem };
    urls::check_cluster_of_one(text, &flags.name, peer_urls).map_err(wrong)?;
    urls::cluster(text).map_err(wrong)
}

/// With `existing`, something must be there to go on with: a fresh start would be another, empty cluster.
pub(super) fn check_existing(flags: &ServeFlags) -> Result<(), FlagError> {
    if flags.initial_cluster_state == ClusterState::Existing && !flags.data_dir.join("member").exists() {
        let problem = format!(
            "\"existing\", but there is no data in {}; joining a running cluster comes later. Use \"new\", or the right \
             --data-dir",
            flags.data_dir.display()
        );
        return wrong("initial-cluster-state", problem);
    }
    Ok(())
}

fn auto_compaction(flags: &ServeFlags) -> Result<AutoCompaction, FlagError> {
    const FLAG: &str = "auto-compaction-retention";
    const SECS_PER_HOUR: u64 = 3600;
    let text = flags.auto_compaction_retention.trim();
    let number = text.parse::<i64>().ok();
    match (flags.auto_compaction_mode, number) {
        (_, Some(0)) => Ok(AutoCompaction::Off),
        (CompactionMode::Revision, Some(revisions)) if revisions > 0 => Ok(AutoCompaction::Revision(revisions)),
        (CompactionMode::Revision, _) => wrong(FLAG, format!("{text:?}: revision mode expects a number of revisions")),
        (CompactionMode::Periodic, Some(hours)) => {
            match u64::try_from(hours).ok().and_then(|hours| hours.checked_mul(SECS_PER_HOUR)) {
                Some(secs) => Ok(AutoCompaction::Periodic(Duration::from_secs(secs))),
                None => wrong(FLAG, format!("{text:?}: periodic mode expects hours or a duration such as 30m")),
            }
        }
        (CompactionMode::Periodic, None) => match parse_duration(text) {
            Ok(Duration::ZERO) => Ok(AutoCompaction::Off),
            Ok(retention) => Ok(AutoCompaction::Periodic(retention)),
            Err(problem) => wrong(FLAG, format!("{text:?}: {problem}")),
        },
    }
}

fn nospace_low_water(flags: &ServeFlags) -> Result<Option<u8>, FlagError> {
    let percent = within("nospace-low-water-percent", flags.nospace_low_water_percent, LOW_WATER_PERCENT)?;
    Ok((flags.nospace_disarm == NospaceDisarm::Auto).then_some(percent))
}

fn progress_notify(flags: &ServeFlags) -> Result<Duration, FlagError> {
    let interval = or_default(flags.watch_progress_notify_interval, PROGRESS_NOTIFY_DEFAULT);
    if interval < PROGRESS_NOTIFY_MIN {
        return wrong("watch-progress-notify-interval", format!("{interval:?} is less than {PROGRESS_NOTIFY_MIN:?}"));
    }
    Ok(interval)
}
