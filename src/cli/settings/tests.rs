//! Flags to settings: defaults, limits, and the sentences that refuse.

use clap::Parser;

use super::*;
use crate::{
    cli::Cli,
    config::{Allowed, AuthTokens, TlsFiles, TlsVersion, Transport},
};

fn flags(args: &[&str]) -> ServeFlags {
    match Cli::try_parse_from(["revgate", "serve"].iter().chain(args)).expect("flags that parse").command {
        crate::cli::Command::Serve(flags) => *flags,
        other => panic!("{other:?} is not what was asked for"),
    }
}

fn config_of(args: &[&str]) -> Result<Config, String> {
    config(&flags(args)).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_etcd() {
    let config = config_of(&[]).expect("the defaults");
    assert_eq!(config.name, "default");
    assert_eq!(config.data_dir.to_str(), Some("./revgate.data"));
    assert_eq!(config.listen_client_urls[0].url, "http://127.0.0.1:2379");
    assert_eq!(config.initial_cluster, [("default".to_owned(), "http://localhost:2380".to_owned())]);
    assert_eq!(config.initial_cluster_token, "etcd-cluster");
    assert_eq!((config.snapshot_count, config.snapshot_catchup_entries, config.wals_max), (10_000, 5_000, 5));
    assert_eq!(config.wal_segment_bytes, 64_000_000);
    assert_eq!(config.heartbeat_interval, Duration::from_millis(100));
    assert_eq!(config.election_timeout, Duration::from_millis(1000));
    assert_eq!(config.quota_backend_bytes, 2 << 30);
    assert_eq!(config.nospace_low_water_percent, Some(90));
    assert_eq!((config.backend_batch_interval, config.backend_batch_limit), (Duration::from_millis(100), 10_000));
    assert_eq!((config.txn_ops_max, config.request_bytes_max), (128, 1_572_864));
    assert_eq!(config.auto_compaction, AutoCompaction::Off);
    assert_eq!((config.compaction_batch_limit, config.compaction_sleep_interval), (1000, Duration::from_millis(10)));
    assert_eq!((config.reclaim_free_percent, config.reclaim_free_bytes), (25, 64 << 20));
    assert_eq!(config.watch_progress_notify_interval, Duration::from_secs(600));
    assert!(config.extensive_metrics);
    assert_eq!(config.warning_apply_duration, Duration::from_millis(100));
    assert_eq!(config.auth_tokens, AuthTokens::Simple { ttl: Duration::from_secs(300) });
    assert_eq!(config.bcrypt_cost, 10);
    assert_eq!(config.request_timeout(), Duration::from_secs(7));
    assert_eq!(config.lease_ttl_min_secs(), 2);
}

#[test]
fn the_cluster_follows_name_and_peer_urls() {
    let config =
        config_of(&["--name", "m", "--initial-advertise-peer-urls", "http://h:1,http://h:2"]).expect("one member");
    let pair = |url: &str| ("m".to_owned(), url.to_owned());
    assert_eq!(config.initial_cluster, [pair("http://h:1"), pair("http://h:2")]);
}

#[test]
fn users_prove_who_they_are_as_the_flags_say() {
    let config = config_of(&["--auth-token-ttl", "60", "--bcrypt-cost", "4"]).expect("both are allowed");
    assert_eq!(config.auth_tokens, AuthTokens::Simple { ttl: Duration::from_secs(60) });
    assert_eq!(config.bcrypt_cost, 4);
    for (flag, value) in
        [("--auth-token-ttl", "0"), ("--bcrypt-cost", "3"), ("--bcrypt-cost", "32"), ("--auth-token", "jwt")]
    {
        let error = config_of(&[flag, value]).expect_err(value);
        assert!(error.starts_with(flag), "{error}");
    }
}

#[test]
fn retentions() {
    let retention = |mode: &str, text: &str| {
        let retention = format!("--auto-compaction-retention={text}");
        config_of(&["--auto-compaction-mode", mode, &retention]).map(|config| config.auto_compaction)
    };
    let hours = |n: u64| Ok(AutoCompaction::Periodic(Duration::from_secs(n * 3600)));
    assert_eq!(retention("periodic", "1h"), hours(1));
    assert_eq!(retention("periodic", "12"), hours(12));
    assert_eq!(retention("periodic", "30m"), Ok(AutoCompaction::Periodic(Duration::from_secs(1800))));
    assert_eq!(retention("periodic", "0"), Ok(AutoCompaction::Off));
    assert_eq!(retention("periodic", "0s"), Ok(AutoCompaction::Off));
    assert_eq!(retention("revision", "1000"), Ok(AutoCompaction::Revision(1000)));
    assert_eq!(retention("revision", "0"), Ok(AutoCompaction::Off));
    for (mode, text) in [("periodic", "soon"), ("periodic", "-1"), ("revision", "1h"), ("revision", "-5")] {
        let error = retention(mode, text).expect_err(text);
        assert!(error.starts_with("--auto-compaction-retention: ") && error.contains("expect"), "{error}");
    }
}

#[test]
fn errors_name_the_flag_and_what_is_allowed() {
    let table: [(&[&str], &str); 29] = [
        (&["--nospace-low-water-percent", "100"], "--nospace-low-water-percent: 100 is not between 1 and 99"),
        (
            &["--listen-client-urls", "https://127.0.0.1:1"],
            "--listen-client-urls: https://127.0.0.1:1: https needs --cert-file and --key-file",
        ),
        (&["--cert-file", "c"], "--cert-file: needs the certificate's key: give --key-file too"),
        (&["--key-file", "k"], "--key-file: needs the key's certificate: give --cert-file too"),
        (&["--trusted-ca-file", "a"], "--trusted-ca-file: is for https URLs"),
        (&["--client-cert-auth"], "--client-cert-auth: needs --trusted-ca-file"),
        (&["--cors", "example.com"], "--cors: example.com: expected an origin"),
        (&["--cors", "http://a,https://b/c"], "--cors: https://b/c: expected an origin"),
        (&["--cors", "http://a b"], "--cors: http://a b: expected an origin"),
        (&["--host-whitelist", "http://a"], "--host-whitelist: http://a: expected a name"),
        (&["--advertise-client-urls", "h"], "--advertise-client-urls: h: expected a URL"),
        (&["--listen-peer-urls", "h"], "--listen-peer-urls: h: expected a URL"),
        (&["--initial-advertise-peer-urls", "h"], "--initial-advertise-peer-urls: h: expected a URL"),
        (&["--initial-cluster", "default"], "--initial-cluster: default: expected NAME=URL"),
        (
            &["--initial-cluster", "default=http://localhost:2380,b=http://h:2"],
            "--initial-cluster: more than one member: clusters come later",
        ),
        (&["--initial-cluster", "b=http://localhost:2380"], "--initial-cluster: names b, but --name is default"),
        (&["--initial-cluster", "default=http://h:1"], "--initial-cluster: its URLs must be those of"),
        (&["--name", "a=b"], "--name: must not be empty"),
        (&["--heartbeat-interval", "0"], "--heartbeat-interval: 0 is not between 1 and 10000"),
        (&["--election-timeout", "50001"], "--election-timeout: 50001 is not between 5 and 50000"),
        (&["--election-timeout", "499"], "--election-timeout: 499 is less than 5 times --heartbeat-interval 100"),
        (&["--max-txn-ops", "0"], "--max-txn-ops: 0 is not between 1 and 1000000"),
        (&["--max-request-bytes", "1"], "--max-request-bytes: 1 is not between 1024 and 268435456"),
        (&["--snapshot-count", "0"], "--snapshot-count: 0 is not between 1 and"),
        (&["--client-ping-interval", "1ms"], "--client-ping-interval: 1ms is less than 100ms"),
        (&["--client-stall-timeout", "0"], "--client-stall-timeout: 0ns is less than 1s"),
        (&["--client-stall-timeout", "5s"], "--client-stall-timeout: 5s is less than --client-ping-interval 30s"),
        (&["--experimental-watch-progress-notify-interval", "50ms"], "--watch-progress-notify-interval: 50ms is less"),
        (&["--watch-progress-notify-interval", "50ms"], "--watch-progress-notify-interval: 50ms is less than 100ms"),
    ];
    for (args, expected) in table {
        let error = config_of(args).expect_err(expected);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn zeros_and_negatives_as_in_etcd() {
    let config = config_of(&["--quota-backend-bytes", "-1", "--max-wals", "0"]).expect("no limits");
    assert_eq!((config.quota_backend_bytes, config.wals_max), (-1, usize::MAX));
    let low_water = |args| config_of(args).map(|config| config.nospace_low_water_percent);
    assert_eq!(low_water(&["--nospace-low-water-percent=70"]), Ok(Some(70)));
    assert_eq!(low_water(&["--nospace-disarm=manual"]), Ok(None));
    let config = config_of(&["--quota-backend-bytes=0", "--backend-batch-interval=0"]).expect("defaults");
    assert_eq!(config.quota_backend_bytes, QUOTA_DEFAULT_BYTES);
    assert_eq!(config.backend_batch_interval, BACKEND_BATCH_INTERVAL_DEFAULT);
}

#[test]
fn how_clients_are_met() {
    assert_eq!(config_of(&[]).expect("the defaults").transport, Transport::default());
    let config = config_of(&[
        "--listen-client-urls=https://127.0.0.1:1",
        "--cert-file=c",
        "--key-file=k",
        "--trusted-ca-file=a",
        "--client-cert-auth",
        "--tls-min-version=TLS1.3",
        "--cors=http://a, https://b:8",
        "--host-whitelist=c,::1",
        "--enable-grpc-gateway=false",
        "--client-ping-interval=10s",
        "--client-stall-timeout=20s",
    ]);
    let only = |entries: [&str; 2]| Allowed::Only(entries.map(str::to_owned).into());
    let expected = Transport {
        tls: Some(TlsFiles {
            cert: "c".into(),
            key: "k".into(),
            trusted_ca: Some("a".into()),
            min_version: TlsVersion::Tls13,
        }),
        cors: only(["http://a", "https://b:8"]),
        hosts: only(["c", "::1"]),
        gateway: false,
        ping_interval: Duration::from_secs(10),
        stall_timeout: Duration::from_secs(20),
    };
    assert_eq!(config.expect("it fits together").transport, expected);
    for flag in ["--cors=", "--cors=http://a,*", "--host-whitelist=", "--client-cert-auth=false"] {
        assert_eq!(config_of(&[flag]).expect(flag).transport, Transport::default());
    }
}

#[test]
fn existing_needs_data() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a printable path");
    let flags = flags(&["--initial-cluster-state", "existing", "--data-dir", path]);
    let error = check_existing(&flags).expect_err("nothing is there").to_string();
    assert!(error.starts_with("--initial-cluster-state: \"existing\", but there is no data in"), "{error}");
    std::fs::create_dir(dir.path().join("member")).expect("a directory");
    assert_eq!(check_existing(&flags), Ok(()));
}

#[test]
fn every_flag_has_its_environment_variable() {
    use clap::CommandFactory;
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("there is serve");
    for arg in serve.get_arguments().filter(|arg| arg.get_id() != "help") {
        let long = arg.get_long().expect("each flag is a long one");
        let expected = format!("REVGATE_{}", long.to_uppercase().replace('-', "_"));
        assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(&expected[..]), "--{long}");
    }
}

#[test]
fn ports_for_metrics_alone() {
    assert_eq!(config_of(&[]).expect("the defaults").listen_metrics_urls, []);
    assert_eq!(config_of(&["--listen-metrics-urls", ""]).expect("none, as in etcd").listen_metrics_urls, []);
    let config = config_of(&["--listen-metrics-urls", "http://127.0.0.1:1,http://[::1]:2"]).expect("two listeners");
    let urls: Vec<&str> = config.listen_metrics_urls.iter().map(|listener| &listener.url[..]).collect();
    assert_eq!(urls, ["http://127.0.0.1:1", "http://[::1]:2"]);
    let refused = config_of(&["--listen-metrics-urls", "https://127.0.0.1:1"]).expect_err("no certificate");
    assert_eq!(refused, "--listen-metrics-urls: https://127.0.0.1:1: https needs --cert-file and --key-file");
    let refused = config_of(&["--listen-metrics-urls", "127.0.0.1:1"]).expect_err("no URL");
    assert!(refused.starts_with("--listen-metrics-urls: 127.0.0.1:1: expected a URL such as"), "{refused}");
}

/// The platform may name a collector that is none of ours.
#[test]
fn a_collector_that_cannot_be_used_is_no_matter_while_traces_are_off() {
    for address in ["unix:///run/otel.sock", "https://collector:4318"] {
        let address = format!("--distributed-tracing-address={address}");
        let off = config_of(&["--enable-distributed-tracing=false", &address]).expect("traces are off");
        assert!(off.tracing.is_none());
        assert!(config_of(&[&address]).is_err());
    }
}
