//! Revisions of keys: the key index, history, reads at a revision, write transactions, compaction.
//!
//! Promises: a change is visible the moment its transaction ends and goes into the file later, whole log entries at a
//! time, together with the entry's position; a read sees one revision and holds no lock while values are read; history
//! below the compact revision is refused, never told with holes.
//!
//! Concurrency: the apply loop is the only writer, any thread may read, the backend thread alone writes the file. A helper
//! of lower priority does, for the backend thread and while it waits, what of a compaction needs no lock that others need.
//! This room must never know of leases' lives, watchers, requests, sessions or consensus.

mod backend;
mod compaction;
mod hash;
mod history;
mod index;
mod key_value;
mod offline;
mod pins;
mod progress;
mod query;
mod read;
mod reclaim;
mod restore;
mod revision;
mod ring;
mod runs;
mod selection;
mod shortage;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::bolt;

pub use hash::KeysHash;
pub use key_value::{ChangeSet, KeyValueRef, Record};
pub use offline::{Biggest, Bump, FileStatus, KeyAudit, KeySize, PrefixSize, Reborn, file_status, rebirth};
pub use pins::{OpenRead, OpenReads, PinnedFile, ReadKind};
pub use query::{RangeQuery, SortOrder, SortTarget};
pub use read::RangeCursor;
pub use reclaim::ReclaimOptions;
pub use restore::{Restored, STORAGE_VERSION, misnamed_bucket};
pub use revision::{KeyRange, REVISION_BYTES, Revision, TOMBSTONE_BYTES};
pub use store::{Callback, Store, StoreOptions};
pub use upkeep::{CompactionPhase, CompactionProgress, ReclaimProgress};
pub use write::{DeleteOutcome, KeyMeta, PutOutcome, WriteTxn};

/// A position in the replicated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    /// The term the entry was proposed in.
    pub term: u64,
    /// The entry's number.
    pub index: u64,
}

/// A write to a bucket other than `key`, to be committed with the log entry it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketWrite {
    /// The bucket, one of [`buckets`].
    pub bucket: &'static [u8],
    /// The key in it.
    pub key: Bytes,
    /// The value; `None` removes the key.
    pub value: Option<Bytes>,
}

/// Why a call failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum MvccError {
    /// The revision's history is gone.
    #[error("revision {requested} has been compacted (compact revision {compacted})")]
    Compacted {
        /// What was asked for.
        requested: i64,
        /// The first revision that can be read.
        compacted: i64,
    },
    /// The revision does not exist yet.
    #[error("revision {requested} is in the future (current revision {current})")]
    Future {
        /// What was asked for.
        requested: i64,
        /// The newest revision.
        current: i64,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Bolt(Arc<bolt::BoltError>),
    /// The file holds what it cannot hold.
    #[error("damaged record at revision {}.{}: {what}", revision.main, revision.sub)]
    DamagedRecord {
        /// Where; 0.0 if the place is not a revision.
        revision: Revision,
        /// What is wrong with it.
        what: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Too much of the kind is waiting, or under way.
    #[error("the store is busy with others of the kind")]
    Busy,
    /// A file of a form that is newer than this program.
    #[error("the file has storage version {found}, newer than {STORAGE_VERSION}: a newer program wrote it")]
    TooNew {
        /// The version in bucket `meta`.
        found: String,
    },
    /// The backend thread, or its helper, could not be started.
    #[error("the backend thread could not be started: {0}")]
    Thread(Arc<std::io::Error>),
}

impl MvccError {
    fn damaged(revision: Revision, what: impl Into<String>) -> MvccError {
        MvccError::DamagedRecord { revision, what: what.into() }
    }

    /// Names the page a damaged record lies in, if it is known.
    fn in_page(self, page: Option<u64>) -> MvccError {
        match (self, page) {
            (MvccError::DamagedRecord { revision, what }, Some(page)) => {
                MvccError::DamagedRecord { revision, what: format!("{what} (page {page})") }
            }
            (error, _) => error,
        }
    }

    /// Something in bucket `key` that is no revision.
    fn misnamed(name: &[u8]) -> MvccError {
        MvccError::damaged(Revision::default(), format!("{name:02x?} in bucket key is not a revision"))
    }
}

impl From<bolt::BoltError> for MvccError {
    fn from(error: bolt::BoltError) -> Self {
        MvccError::Bolt(Arc::new(error))
    }
}

/// Names of the file's buckets, all etcd's.
pub mod buckets {
    /// Revisions to key-value pairs.
    pub const KEY: &[u8] = b"key";
    /// Marks of the store itself.
    pub const META: &[u8] = b"meta";
    /// Leases.
    pub const LEASE: &[u8] = b"lease";
    /// Raised alarms.
    pub const ALARM: &[u8] = b"alarm";
    /// The cluster's version.
    pub const CLUSTER: &[u8] = b"cluster";
    /// Members.
    pub const MEMBERS: &[u8] = b"members";
    /// Members that were removed.
    pub const MEMBERS_REMOVED: &[u8] = b"members_removed";
    /// Whether auth is on, and its revision.
    pub const AUTH: &[u8] = b"auth";
    /// Users.
    pub const AUTH_USERS: &[u8] = b"authUsers";
    /// Roles.
    pub const AUTH_ROLES: &[u8] = b"authRoles";

    /// Every bucket; an open file has them all.
    pub(super) const ALL: [&[u8]; 10] =
        [KEY, META, LEASE, ALARM, CLUSTER, MEMBERS, MEMBERS_REMOVED, AUTH, AUTH_USERS, AUTH_ROLES];

    // Keys in bucket `meta`.
    pub(super) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
    pub(super) const TERM: &[u8] = b"term";
    pub(super) const SCHEDULED_COMPACTION: &[u8] = b"scheduledCompactRev";
    pub(super) const FINISHED_COMPACTION: &[u8] = b"finishedCompactRev";
    pub(super) const STORAGE_VERSION: &[u8] = b"storageVersion";
}
