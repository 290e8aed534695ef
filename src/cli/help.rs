//! How the options of `revgate serve` are shown: under headings, one or two lines each.

use clap::{Arg, ArgAction, Command};

/// Each option's heading, in the order in which they are shown.
const HEADINGS: [(&str, &[&str]); 9] = [
    (
        "Data",
        &[
            "config_file",
            "name",
            "data_dir",
            "snapshot_count",
            "snapshot_catchup_entries",
            "max_wals",
            "wal_segment_bytes",
            "backend_batch_interval",
            "backend_batch_limit",
        ],
    ),
    (
        "Listening",
        &[
            "listen_client_urls",
            "listen_metrics_urls",
            "advertise_client_urls",
            "cors",
            "host_whitelist",
            "enable_grpc_gateway",
            "drain_timeout",
        ],
    ),
    ("TLS", &["cert_file", "key_file", "trusted_ca_file", "client_cert_auth", "tls_min_version"]),
    (
        "Limits",
        &[
            "max_connections",
            "max_request_bytes",
            "max_txn_ops",
            "client_ping_interval",
            "client_stall_timeout",
            "watch_progress_notify_interval",
        ],
    ),
    (
        "History",
        &[
            "auto_compaction_mode",
            "auto_compaction_retention",
            "compaction_batch_limit",
            "compaction_sleep_interval",
            "compaction_reads_wait",
        ],
    ),
    (
        "Space",
        &[
            "quota_backend_bytes",
            "nospace_disarm",
            "nospace_low_water_percent",
            "reclaim_free_percent",
            "reclaim_free_bytes",
        ],
    ),
    ("Auth", &["auth_token", "auth_token_ttl", "bcrypt_cost"]),
    (
        "Cluster",
        &[
            "initial_cluster",
            "initial_cluster_state",
            "initial_cluster_token",
            "listen_peer_urls",
            "initial_advertise_peer_urls",
            "heartbeat_interval",
            "election_timeout",
        ],
    ),
    (
        "Metrics, logs and traces",
        &[
            "metrics",
            "log_level",
            "log_format",
            "log_outputs",
            "warning_apply_duration",
            "warning_unary_request_duration",
            "enable_distributed_tracing",
            "distributed_tracing_address",
            "distributed_tracing_trusted_ca_file",
            "distributed_tracing_service_name",
            "distributed_tracing_sampling_rate",
        ],
    ),
];

/// What stands below the options.
const AFTER: &str = "Durations are numbers with units, such as 100ms, 30s or 1h30m. Each option can be given as an environment \
    variable too, REVGATE_ and its name in capitals with _ for - (REVGATE_DATA_DIR), or as a key in the YAML file of \
    --config-file (data-dir: …). The command line wins over the environment, that over the file, and that over the default. \
    `revgate config print` with the same options shows what is in effect, and from where.";

/// Puts the options of every command that takes those of `serve` under headings.
pub(super) fn arranged(command: Command) -> Command {
    command
        .mut_subcommand("serve", |serve| short(under_headings(serve)).after_help(AFTER))
        .mut_subcommand("config", |config| {
            config.mut_subcommand("print", |print| short(under_headings(print)).after_help(AFTER))
        })
}

fn under_headings(command: Command) -> Command {
    command.mut_args(|arg| {
        let is_bool = arg.get_value_names().unwrap_or_default().iter().any(|name| name.as_str() == "BOOL");
        let arg = arg.hide_env(true).hide_possible_values(is_bool);
        let id = arg.get_id().as_str().to_owned();
        let options = HEADINGS.iter().flat_map(|(heading, ids)| ids.iter().map(move |id| (*heading, *id)));
        let place = options.enumerate().find(|(_, (_, known))| *known == id);
        match place {
            Some((order, (heading, _))) => arg.help_heading(heading).display_order(order),
            None => arg,
        }
    })
}

/// `--help` shows values in the line, as `-h` does: a page, not a book.
fn short(command: Command) -> Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help");
    command.disable_help_flag(true).arg(help).next_line_help(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Widest line of the page.
    const COLUMNS: usize = 120;

    #[test]
    fn every_option_of_serve_stands_under_one_heading() {
        let listed: Vec<&str> = HEADINGS.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len());
        let command = Cli::command();
        let serve = command.find_subcommand("serve").expect("the command");
        let ids: BTreeSet<&str> = serve.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        assert_eq!(ids, listed.into_iter().collect());
    }

    #[test]
    fn options_take_two_lines_at_most() {
        let mut command = arranged(Cli::command()).term_width(COLUMNS);
        let serve = command.find_subcommand_mut("serve").expect("the command");
        let page = serve.render_help().to_string();
        assert!(!page.contains("[env:"), "{page}");
        let mut lines = 0;
        for line in page.lines() {
            lines = if line.starts_with("          ") { lines + 1 } else { 0 };
            assert!(lines <= 2, "{line}\n{page}");
        }
        assert!(page.contains("\nTLS:\n") && page.contains("\nMetrics, logs and traces:\n"), "{page}");
    }
}
