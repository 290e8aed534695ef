//! `revgate snapshot status`.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;
use serde_json::json;

use crate::{
    cli::output::{self, EXIT_FAILED},
    disk::{Disk, RealDisk},
    server::offline::snapshot_status,
};

/// Flags of `revgate snapshot status`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct StatusFlags {
    /// The snapshot or data file.
    file: PathBuf,

    /// Print JSON, with the names of `etcdutl --write-out json snapshot status`.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &StatusFlags) -> ExitCode {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let status = match snapshot_status(&disk, &flags.file) {
        Ok(status) => status,
        Err(error) => return output::failed(error, EXIT_FAILED),
    };
    let file = &status.file;
    if flags.json {
        output::print_json(&json!({
            "hash": file.hash,
            "revision": file.revision,
            "totalKey": file.total_keys,
            "totalSize": file.total_bytes,
            "version": file.version,
            "hasSha256": status.has_hash,
        }));
        return ExitCode::SUCCESS;
    }
    let row = vec![
        format!("{:x}", file.hash),
        file.revision.to_string(),
        file.total_keys.to_string(),
        output::bytes(file.total_bytes),
        file.version.clone(),
        if status.has_hash { "right" } else { "none" }.to_owned(),
    ];
    output::print(&output::table(&["hash", "revision", "total keys", "total size", "version", "SHA-256"], &[row]));
    ExitCode::SUCCESS
}
