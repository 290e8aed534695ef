//! Who wins, what is refused and how it is told.

use std::fs;

use clap::{CommandFactory as _, FromArgMatches as _};

use super::*;
use crate::cli::{Cli, Command as Asked, help, settings};

/// A configuration file with that text, and the member's settings with those flags.
fn read_with(text: &str, flags: &[&str], variables: &[&str]) -> Result<Sources, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("revgate.yaml");
    fs::write(&path, text).expect("a file");
    let mut args: Vec<OsString> = ["revgate", "serve", "--config-file"].map(Into::into).to_vec();
    args.push(path.clone().into());
    args.extend(flags.iter().map(Into::into));
    let command = help::arranged(Cli::command());
    let pairs = variables.iter().map(|variable| variable.split_once('=').unwrap_or((variable, "")));
    let read = super::read(&command, &args, 2, pairs.map(|(name, value)| (name.into(), value.into())));
    let shown = path.display().to_string();
    let plain = |text: String| text.replace(&shown, "FILE");
    let mut sources = read.map_err(|error| plain(error.to_string()))?;
    sources.warnings = sources.warnings.into_iter().map(plain).collect();
    for setting in &mut sources.settings {
        if let Origin::File { path, .. } = &mut setting.origin {
            *path = "FILE".into();
        }
    }
    Ok(sources)
}

fn of_file(text: &str) -> Result<Sources, String> {
    read_with(text, &[], &[])
}

fn setting<'a>(sources: &'a Sources, name: &str) -> (Option<&'a str>, String) {
    let found = sources.settings.iter().find(|setting| setting.name == name).expect("a setting");
    (found.value.as_deref(), found.origin.to_string())
}

/// The settings as a member gets them.
fn config_of(sources: &Sources) -> Result<crate::config::Config, String> {
    let cli = Cli::from_arg_matches(&sources.matches).expect("what was read");
    let Asked::Serve(flags) = cli.command else { panic!("another command") };
    settings::config(&flags).map_err(|error| sources.complaint(&error))
}

#[test]
fn the_command_line_wins_over_the_file_and_the_file_over_the_default() {
    let text = "name: of-file\nmax-txn-ops: 7\nbackend-batch-interval: 5ms\nclient-cert-auth: false\n";
    let sources = read_with(text, &["--name", "of-flag"], &[]).expect("settings");
    assert_eq!(setting(&sources, "name"), (Some("of-flag"), "flag".to_owned()));
    assert_eq!(setting(&sources, "max-txn-ops"), (Some("7"), "FILE:2".to_owned()));
    assert_eq!(setting(&sources, "max-connections"), (Some("50000"), "default".to_owned()));
    assert_eq!(setting(&sources, "initial-cluster"), (None, "default".to_owned()));
    let config = config_of(&sources).expect("a member's settings");
    assert_eq!((&config.name[..], config.txn_ops_max), ("of-flag", 7));
    assert_eq!(config.backend_batch_interval.as_millis(), 5);
}

/// What etcd's own example has, where it means something here.
#[test]
fn a_file_of_etcd_is_taken_up() {
    let text = "name: 'default'\ndata-dir: /var/lib/x\nwal-dir:\nsnapshot-count: 10000\nheartbeat-interval: 100\n\
                quota-backend-bytes: 0\nlisten-client-urls: http://localhost:2379\nmax-wals: 5\ncors:\n\
                discovery-fallback: 'proxy'\nstrict-reconfig-check: false\nenable-pprof: true\n\
                backend-batch-interval: 200000000\n\
                client-transport-security:\n  cert-file: c.pem\n  key-file: k.pem\n  auto-tls: false\n\
                peer-transport-security:\n  cert-file:\n  auto-tls: false\n\
                log-level: debug\nauto-compaction-mode: periodic\nauto-compaction-retention: \"1\"\n";
    let sources = of_file(text).expect("settings");
    assert_eq!(setting(&sources, "data-dir"), (Some("/var/lib/x"), "FILE:2".to_owned()));
    assert_eq!(setting(&sources, "cert-file"), (Some("c.pem"), "FILE:15".to_owned()));
    assert_eq!(setting(&sources, "cors"), (Some("*"), "default".to_owned()));
    let config = config_of(&sources).expect("a member's settings");
    assert_eq!(config.backend_batch_interval.as_millis(), 200);
    let without_effect: Vec<&str> =
        sources.warnings.iter().filter_map(|warning| warning.split(" in FILE line ").next()).collect();
    let expected = [
        "wal-dir",
        "discovery-fallback",
        "strict-reconfig-check",
        "enable-pprof",
        "client-transport-security/auto-tls",
        "peer-transport-security",
        "peer-transport-security/auto-tls",
    ];
    assert_eq!(without_effect, expected, "{:?}", sources.warnings);
    assert!(sources.warnings.iter().all(|warning| warning.contains("has no effect here: ")));
}

#[test]
fn older_spellings_are_the_same_setting() {
    let sources = of_file("experimental-watch-progress-notify-interval: 1m\n").expect("settings");
    assert_eq!(setting(&sources, "watch-progress-notify-interval"), (Some("1m"), "FILE:1".to_owned()));
}

#[test]
fn refusals_name_the_key_and_its_place() {
    for (text, expected) in [
        ("quota-backend-byte: 1", "FILE line 1: quota-backend-byte is no setting; did you mean quota-backend-bytes?"),
        ("\nquota: 1\n", "FILE line 2: quota is no setting; "),
        ("zzz: 1", "FILE line 1: zzz is no setting; revgate serve --help names all of them"),
        ("name: a\nmax-txn-ops: many", "max-txn-ops in FILE line 2: \"many\": invalid digit found in string"),
        ("auto-compaction-mode: daily", "auto-compaction-mode in FILE line 1: \"daily\" is none of periodic, revision"),
        ("drain-timeout: 10", "drain-timeout in FILE line 1: \"10\": expected a duration such as"),
        ("client-cert-auth: yes", "client-cert-auth in FILE line 1: \"yes\" is none of true, false"),
        ("name: a\nname: b", "FILE line 2: name is there twice: --name is in line 1, too"),
        (
            "cert-file: a\nclient-transport-security:\n  cert-file: b",
            "FILE line 3: client-transport-security/cert-file is",
        ),
        ("config-file: x", "FILE line 1: a file cannot name another"),
        ("help: true", "FILE line 1: help is no setting"),
        ("client-transport-security:\n  cert: x", "FILE line 2: client-transport-security/cert is no setting"),
        ("name", "FILE line 1: expected lines of the form NAME: VALUE"),
    ] {
        let refused = of_file(text).err().unwrap_or_else(|| panic!("{text:?} was taken"));
        assert!(refused.starts_with(expected), "{text:?}: {refused}");
    }
    // A value is refused also where the command line has another: the file is wrong all the same.
    let refused = read_with("max-txn-ops: many", &["--max-txn-ops", "1"], &[]).expect_err("a bad file");
    assert!(refused.starts_with("max-txn-ops in FILE line 1"), "{refused}");
}

#[test]
fn what_only_all_settings_together_show_names_the_place_too() {
    let refused = |text: &str, flags: &[&str]| {
        config_of(&read_with(text, flags, &[]).expect("settings")).expect_err("they do not fit together")
    };
    assert_eq!(refused("max-txn-ops: 0\n", &[]), "max-txn-ops in FILE line 1: 0 is not between 1 and 1000000");
    assert_eq!(refused("max-txn-ops: 5\n", &["--max-txn-ops=0"]), "--max-txn-ops: 0 is not between 1 and 1000000");
    let election = "heartbeat-interval: 100\nelection-timeout: 200\n";
    assert!(refused(election, &[]).starts_with("election-timeout in FILE line 2: 200 is less than 5 times"));
}

#[test]
fn a_missing_file_is_told() {
    let command = help::arranged(Cli::command());
    let args = ["revgate", "serve", "--config-file", "no/such.yaml"].map(OsString::from);
    let error = super::read(&command, &args, 2, []).expect_err("no file");
    assert!(error.to_string().starts_with("no/such.yaml: No such file"), "{error}");
}

#[test]
fn variables_that_name_no_setting_are_told() {
    let variables = ["REVGATE_NAME", "PATH", "REVGATE_NAMES", "REVGATE_ENABLE_PPROF", "REVGATE_PORT_2379_TCP_ADDR_ZZ"];
    let warnings = read_with("", &[], &variables).expect("settings").warnings;
    let expected = [
        "REVGATE_ENABLE_PPROF has no effect here: there is no profiler in the process",
        "REVGATE_NAMES is set and is no setting; did you mean REVGATE_NAME?",
        "REVGATE_PORT_2379_TCP_ADDR_ZZ is set and is no setting",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn opentelemetry_s_own_variable_stands_in_for_an_address() {
    const OTEL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318";
    const NAME: &str = "distributed-tracing-address";
    let endpoint = |sources: &Sources| config_of(sources).expect("settings").tracing.map(|tracing| tracing.endpoint);
    let sources = read_with("", &[], &[OTEL]).expect("settings");
    assert_eq!(setting(&sources, NAME), (Some("http://c:4318"), "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned()));
    assert_eq!(endpoint(&sources).as_deref(), Some("http://c:4318/v1/traces"));
    let sources = read_with("distributed-tracing-address: d:1", &[], &[OTEL]).expect("settings");
    assert_eq!(setting(&sources, NAME), (Some("d:1"), "FILE:1".to_owned()));
    let sources = read_with("", &["--distributed-tracing-address=e:1"], &[OTEL]).expect("settings");
    assert_eq!(endpoint(&sources).as_deref(), Some("http://e:1/v1/traces"));
    let sources = read_with("", &["--enable-distributed-tracing=false"], &[OTEL]).expect("settings");
    assert_eq!(endpoint(&sources), None);
    let sources = read_with("", &["--enable-distributed-tracing"], &[]).expect("settings");
    assert_eq!(endpoint(&sources).as_deref(), Some("http://localhost:4318/v1/traces"));
    assert_eq!(endpoint(&read_with("", &[], &[]).expect("settings")), None);
    let refused = config_of(&read_with("", &[], &["OTEL_EXPORTER_OTLP_ENDPOINT=x"]).expect("settings"));
    assert!(refused.expect_err("no URL").starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL such as"));
}

#[test]
fn passwords_in_urls_are_not_shown() {
    assert_eq!(without_password("http://a:b@c:1,https://d/e@f"), "http://…@c:1,https://d/e@f");
    assert_eq!(without_password("plain"), "plain");
}

#[test]
fn every_setting_has_the_variable_of_its_name() {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("the command");
    for arg in serve.get_arguments() {
        let name = arg.get_long().expect("a name").to_uppercase().replace('-', "_");
        let variable = arg.get_env().map(|variable| variable.to_string_lossy().into_owned());
        assert_eq!(variable, Some(format!("{PREFIX}{name}")));
    }
}
