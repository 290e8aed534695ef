//! `revgate snapshot restore`.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;

use crate::{
    cli::{
        EXIT_USAGE,
        output::{self, EXIT_FAILED},
        urls,
    },
    disk::{Disk, RealDisk},
    mvcc::Bump,
    server::offline::{RestoreOptions, RestoreReport, restore_file},
};

/// Flags of `revgate snapshot restore`: etcdutl's where the meaning is etcdutl's.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct RestoreFlags {
    /// The snapshot or data file.
    file: PathBuf,

    /// The data dir to make. It must be empty, or not exist yet.
    #[arg(long, value_name = "DIR", default_value = "./revgate.data")]
    data_dir: PathBuf,

    /// Name of the member.
    #[arg(long, default_value = "default")]
    name: String,

    /// The member's peer URLs, separated by commas.
    #[arg(long, value_name = "URLS", default_value = "http://localhost:2380")]
    initial_advertise_peer_urls: String,

    /// The cluster as NAME=URL, separated by commas: this member alone. Default: its name and peer URLs.
    #[arg(long, value_name = "MEMBERS")]
    initial_cluster: Option<String>,

    /// The cluster's token; together with the peer URLs it makes the ids of member and cluster.
    #[arg(long, value_name = "TOKEN", default_value = "etcd-cluster")]
    initial_cluster_token: String,

    /// By how much revisions jump ahead, so that clients which saw later ones than the file holds see no revision twice.
    #[arg(long, value_name = "REVISIONS", requires = "mark_compacted", value_parser = clap::value_parser!(i64).range(1..))]
    bump_revision: Option<i64>,

    /// Let all revisions up to the one that was jumped to count as compacted, so that watches learn that they missed some.
    #[arg(long, requires = "bump_revision")]
    mark_compacted: bool,

    /// Take the file as it is: do not ask its SHA-256 nor, where it has none, whether it is sound.
    #[arg(long)]
    skip_hash_check: bool,
}

pub(super) fn run(flags: &RestoreFlags) -> ExitCode {
    let options = match options(flags) {
        Ok(options) => options,
        Err(error) => return output::failed(error, EXIT_USAGE),
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    match restore_file(&disk, &options) {
        Ok(report) => {
            output::print(&told(&options, &report));
            ExitCode::SUCCESS
        }
        Err(error) => output::failed(error, EXIT_FAILED),
    }
}

fn options(flags: &RestoreFlags) -> Result<RestoreOptions, String> {
    let peer_urls = urls::url_list(&flags.initial_advertise_peer_urls)
        .map_err(|problem| format!("--initial-advertise-peer-urls: {problem}"))?;
    if flags.name.is_empty() || flags.name.contains([',', '=']) {
        return Err("--name: must not be empty, and must not contain ',' or '='".into());
    }
    if let Some(cluster) = &flags.initial_cluster {
        urls::check_cluster_of_one(cluster, &flags.name, &peer_urls)
            .map_err(|problem| format!("--initial-cluster: {problem}"))?;
    }
    Ok(RestoreOptions {
        // Names without a directory would leave nothing to sync.
        file: flags.file.clone(),
        data_dir: std::path::absolute(&flags.data_dir).map_err(|error| format!("--data-dir: {error}"))?,
        name: flags.name.clone(),
        peer_urls,
        cluster_token: flags.initial_cluster_token.clone(),
        bump: flags.bump_revision.map(|revisions| Bump { revisions }),
        skip_hash_check: flags.skip_hash_check,
    })
}

fn told(options: &RestoreOptions, report: &RestoreReport) -> String {
    let checked = match (report.has_hash, options.skip_hash_check) {
        (_, true) => "It was taken as it is, unchecked.",
        (true, false) => "Its SHA-256 is right.",
        (false, false) => {
            "It is a data file without a hash: its pages and records were checked instead. What its member had in its \
             log only is not in it."
        }
    };
    let mut text = format!("restored {} into {}. {checked}\n", options.file.display(), options.data_dir.display());
    let revisions = &report.revisions;
    if revisions.revision == revisions.revision_now {
        text += &format!("revision: {}\n", revisions.revision);
    } else {
        text += &format!(
            "revision: {}, jumped ahead to {}, up to which everything counts as compacted\n",
            revisions.revision, revisions.revision_now
        );
    }
    text += &format!("member {:x} of cluster {:x}\n", report.member_id, report.cluster_id);
    if report.alarms > 0 {
        text += &format!("alarms kept: {}; see /v3/maintenance/alarm\n", report.alarms);
    }
    text += &format!("to go on: revgate serve --data-dir {}", options.data_dir.display());
    if options.name != "default" {
        text += &format!(" --name {}", options.name);
    }
    text.push('\n');
    text
}
