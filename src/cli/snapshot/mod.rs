//! `revgate snapshot`: saving, restoring and looking at snapshots.

mod restore;
mod save;
mod status;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do with a snapshot.
#[derive(Debug, Subcommand)]
pub(super) enum SnapshotCommand {
    /// Save a snapshot of a running revgate, or of an etcd with its HTTP gateway, to a file.
    Save(save::SaveFlags),
    /// Tell what a snapshot or data file holds, in the figures of `etcdutl snapshot status`.
    Status(status::StatusFlags),
    /// Make a data dir of a snapshot, or of a data file (`member/snap/db`), revgate's or etcd's. `revgate serve` with
    /// that --data-dir goes on from there: keys, their history, leases, users and roles are kept.
    Restore(restore::RestoreFlags),
}

impl SnapshotCommand {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        match self {
            SnapshotCommand::Save(flags) => save::run(&flags),
            SnapshotCommand::Status(flags) => status::run(&flags),
            SnapshotCommand::Restore(flags) => restore::run(&flags),
        }
    }
}
