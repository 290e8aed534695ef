//! What etcd's command line and file have and this server has not: each with what is here instead, or why it is not needed.
//!
//! A file that an etcd was run with is taken up with these told as warnings: none of them changes what is stored.

/// Keys in which etcd's file counts nanoseconds, if they are whole numbers.
pub(super) const NANOSECONDS: [&str; 5] = [
    "backend-batch-interval",
    "compaction-sleep-interval",
    "watch-progress-notify-interval",
    "warning-apply-duration",
    "warning-unary-request-duration",
];

/// The section of etcd's file whose keys are flags here.
pub(super) const CLIENT_TLS_SECTION: &str = "client-transport-security/";
/// The keys of that section that are.
pub(super) const CLIENT_TLS_KEYS: [&str; 4] = ["cert-file", "key-file", "trusted-ca-file", "client-cert-auth"];

const PEERS: &str = "there are no peers yet";
const DISCOVERY: &str = "members are named by --initial-cluster, not discovered";
const CLIENT_TLS: &str = "certificates are those of --cert-file, --key-file and --trusted-ca-file";
const GRPC: &str =
    "there is no gRPC server; --client-ping-interval and --client-stall-timeout say how clients are watched";
const RAFT: &str = "elections are as etcd's defaults have them";
const CHECKS: &str = "pages are checked when they are read, and by revgate check";
const LOGS: &str = "logs are set by --log-level, --log-format and --log-outputs";
const FILES: &str = "where the data lies is set by --data-dir alone";
const OLD: &str = "etcd itself has given it up";

/// Names, and why they have no effect.
const ETCD_ONLY: &[(&[&str], &str)] = &[
    (&["wal-dir", "memory-mlock", "unsafe-no-fsync", "max-snapshots", "backend-bbolt-freelist-type"], FILES),
    (&["bootstrap-defrag-threshold-megabytes"], "unused room is given back by itself (--reclaim-free-percent)"),
    (&["force-new-cluster"], "revgate snapshot restore makes a new cluster of old data"),
    (
        &[
            "initial-election-tick-advance",
            "pre-vote",
            "strict-reconfig-check",
            "raft-read-timeout",
            "raft-write-timeout",
        ],
        RAFT,
    ),
    (&["max-learners", "downgrade-check-time", "feature-gates", "memory-limit"], RAFT),
    (&["grpc-keepalive-min-time", "grpc-keepalive-interval", "grpc-keepalive-timeout", "max-concurrent-streams"], GRPC),
    (&["listen-client-http-urls", "socket-reuse-port", "socket-reuse-address", "socket-options"], GRPC),
    (
        &["client-crl-file", "client-cert-allowed-hostname", "client-cert-file", "client-key-file", "auto-tls"],
        CLIENT_TLS,
    ),
    (&["self-signed-cert-validity", "cipher-suites", "tls-max-version", "allowed-cn", "allowed-hostname"], CLIENT_TLS),
    (
        &[
            "peer-cert-file",
            "peer-key-file",
            "peer-client-cert-file",
            "peer-client-key-file",
            "peer-client-cert-auth",
            "peer-trusted-ca-file",
            "peer-crl-file",
            "peer-auto-tls",
            "peer-cert-allowed-cn",
            "peer-cert-allowed-hostname",
            "peer-skip-client-san-verification",
            "peer-transport-security",
            "local-address",
        ],
        PEERS,
    ),
    (
        &[
            "discovery",
            "discovery-token",
            "discovery-endpoints",
            "discovery-dial-timeout",
            "discovery-request-timeout",
            "discovery-keepalive-time",
            "discovery-keepalive-timeout",
            "discovery-insecure-transport",
            "discovery-insecure-skip-tls-verify",
            "discovery-cert",
            "discovery-key",
            "discovery-cacert",
            "discovery-user",
            "discovery-password",
            "discovery-srv",
            "discovery-srv-name",
            "discovery-proxy",
            "discovery-fallback",
        ],
        DISCOVERY,
    ),
    (&["logger", "enable-log-rotation", "log-rotation-config-json", "log-package-levels", "debug"], LOGS),
    (&["enable-pprof"], "there is no profiler in the process"),
    (&["metrics"], "all metrics there are are always told"),
    (&["corrupt-check-time", "compact-hash-check-time", "initial-corrupt-check", "compact-hash-check-enabled"], CHECKS),
    (&["enable-lease-checkpoint", "enable-lease-checkpoint-persist"], "leases keep their deadlines by themselves"),
    (&["distributed-tracing-instance-id"], "the member's name and id are told with every span"),
    (
        &[
            "proxy",
            "proxy-failure-wait",
            "proxy-refresh-interval",
            "proxy-dial-timeout",
            "proxy-write-timeout",
            "proxy-read-timeout",
            "enable-v2",
            "v2-deprecation",
            "stop-grpc-service-on-defrag",
        ],
        OLD,
    ),
];

/// Why an etcd's key has no effect here; `None`: it is none of etcd's, or it is one of ours.
pub(super) fn why_without_effect(key: &str) -> Option<&'static str> {
    let key = key.strip_prefix(CLIENT_TLS_SECTION).unwrap_or(key);
    let key = key.split_once('/').map_or(key, |(section, _)| section);
    let known = |key: &str| ETCD_ONLY.iter().find(|(names, _)| names.contains(&key)).map(|(_, why)| *why);
    known(key).or_else(|| known(key.strip_prefix("experimental-")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_etcd_are_known() {
        for key in [
            "wal-dir",
            "enable-pprof",
            "experimental-initial-corrupt-check",
            "peer-transport-security",
            "peer-transport-security/cert-file",
            "client-transport-security/auto-tls",
        ] {
            assert!(why_without_effect(key).is_some(), "{key}");
        }
        for key in ["name", "no-such-key", "client-transport-security/cert-file", "experimental-name"] {
            assert_eq!(why_without_effect(key), None, "{key}");
        }
    }
}
