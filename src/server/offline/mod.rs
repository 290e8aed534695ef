//! Work on a file that nobody serves: checking it, telling what it holds, beginning a member's life with it.
//!
//! A snapshot is the bytes of the data file with their SHA-256 behind them, etcd's form; a data file itself (etcd's
//! `member/snap/db`, or revgate's) has no hash. Files are opened for reading and with a lock that is shared with others
//! who read; nothing here changes the file it is given.

mod check;
mod error;
mod inspect;
mod restore;
mod source;
#[cfg(test)]
mod tests;

pub use check::{Checked, Finding, check_file};
pub use error::OfflineError;
pub use inspect::{Inspected, inspect_file};
pub use restore::{RestoreOptions, RestoreReport, restore_file};
pub use source::{SnapshotStatus, snapshot_status};
