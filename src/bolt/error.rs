//! What can go wrong with the tree and its file, in words an operator can act on.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// What can go wrong with the file, or with what a caller asks of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BoltError {
    /// The operating system refused a call.
    #[error("{path}: {action} failed: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Neither meta page can be believed.
    #[error(
        "{path}: both meta pages are damaged (first, at byte 0: {first}; second, {second}); restore the file from a \
         snapshot, or remove this member and let it join anew from another member's data"
    )]
    BothMetasBad {
        /// The file.
        path: PathBuf,
        /// What is wrong with the page at offset 0.
        first: String,
        /// Where the second was looked for, and what is wrong with it.
        second: String,
    },
    /// The meta page speaks of more pages than the file holds.
    #[error(
        "{path}: the file is cut short: it has {file_bytes} bytes, its meta page speaks of {needed_bytes}; restore it \
         from a snapshot or from another member"
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        file_bytes: u64,
        /// The length its high-water mark asks for, in bytes.
        needed_bytes: u64,
    },
    /// A page holds what it cannot hold.
    #[error("{path}: page {page}: {what}")]
    DamagedPage {
        /// The file.
        path: PathBuf,
        /// The page's number.
        page: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The commit needs a larger file than the reserved address space; nothing was written.
    #[error("{path}: the file would need {needed_bytes} bytes, the limit is {map_bytes_max}")]
    Full {
        /// The file.
        path: PathBuf,
        /// What the commit needs, in bytes.
        needed_bytes: u64,
        /// The limit given on opening, in bytes.
        map_bytes_max: u64,
    },
    /// The disk, or the share of it that may be used, has no room for the file to grow; nothing was written.
    #[error("{path}: no room for the file to grow: {source}")]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// An earlier write or sync failed: the file's state is unknown until it is opened anew.
    #[error("{path}: an earlier write failed; reopen the file")]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
    /// No top-level bucket has this name.
    #[error("there is no bucket {bucket:?}")]
    BucketMissing {
        /// The name, as text as far as it is one.
        bucket: String,
    },
    /// The key names a bucket where a plain key is needed, or the other way round.
    #[error("{key:?} is a bucket where a plain key is needed, or a plain key where a bucket is")]
    IncompatibleValue {
        /// The key, as text as far as it is one.
        key: String,
    },
    /// A key of no bytes.
    #[error("a key must have at least one byte")]
    EmptyKey,
    /// A key longer than the format allows.
    #[error("a key of {bytes} bytes is longer than the limit of {max} bytes", max = super::KEY_BYTES_MAX)]
    KeyTooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A value longer than the format allows.
    #[error("a value of {bytes} bytes is longer than the limit of {max} bytes", max = super::VALUE_BYTES_MAX)]
    ValueTooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl BoltError {
    #[cold]
    pub(super) fn damaged(path: &Path, page: u64, what: impl Into<String>) -> BoltError {
        BoltError::DamagedPage { path: path.to_owned(), page, what: what.into() }
    }

    #[cold]
    pub(super) fn io(path: &Path, action: &'static str, source: std::io::Error) -> BoltError {
        BoltError::Io { path: path.to_owned(), action, source }
    }
}
