//! A single-file copy-on-write B+tree in bbolt's file format, read through a memory map.
//!
//! SKELETON: the signatures below are the contract other rooms build against.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;

use crate::disk::Disk;

/// What can go wrong with the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BoltError {
    /// The operating system refused a call.
    #[error("{path}: {action} failed: {source}")]
    Io {
        path: PathBuf,
        action: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("{path} is in use by another process")]
    Locked { path: PathBuf },
    /// Neither meta page can be believed.
    #[error("{path}: both meta pages are damaged")]
    BothMetasBad { path: PathBuf },
    /// A page holds what it cannot hold.
    #[error("{path}: page {page}: {what}")]
    DamagedPage { path: PathBuf, page: u64, what: String },
    /// An earlier write or sync failed: the file's state is unknown until it is opened anew.
    #[error("{path}: an earlier write failed; reopen the file")]
    Poisoned { path: PathBuf },
}

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address space reserved for the map: the largest size the file can ever have, in bytes.
    pub map_bytes_max: u64,
}

/// An open file. Cheap to clone; all clones are the same file.
#[derive(Clone, Debug)]
pub struct Db {
    _private: Arc<()>,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitStats {
    /// Bytes written.
    pub bytes_written: u64,
    /// Time spent making node changes into pages.
    pub spill: Duration,
    /// Time spent in writes and syncs.
    pub write: Duration,
}

impl Db {
    /// Opens the file, or creates it durably if it is not there.
    pub fn open(_disk: Arc<dyn Disk>, _path: &Path, _options: &Options) -> Result<Db, BoltError> {
        todo!()
    }
    /// A read transaction at the last commit. Never blocks on a writer's I/O.
    pub fn read(&self) -> Result<ReadTx, BoltError> {
        todo!()
    }
    /// The write transaction; waits for the one before it to end.
    pub fn write(&self) -> Result<WriteTx<'_>, BoltError> {
        todo!()
    }
    /// Size of the file in bytes as of the last commit.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    /// `size_bytes` less the free pages, as of the last commit.
    pub fn size_in_use_bytes(&self) -> u64 {
        todo!()
    }
    /// How many read transactions are open.
    pub fn open_reads(&self) -> u64 {
        todo!()
    }
}

/// A consistent view of the file at one commit. Pins its pages until dropped. `Send + Sync`, owns what it needs
/// (keeps the map alive): may outlive the `Db` handle and move between threads.
pub struct ReadTx {
    _private: Arc<()>,
}

impl fmt::Debug for ReadTx {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl ReadTx {
    /// The commit this view sees.
    pub fn txid(&self) -> u64 {
        todo!()
    }
    /// A top-level bucket, if there is one by this name.
    pub fn bucket(&self, _name: &[u8]) -> Result<Option<Bucket<'_>>, BoltError> {
        todo!()
    }
}

/// A bucket seen by a read transaction; slices it returns live as long as the transaction is borrowed.
pub struct Bucket<'tx> {
    _tx: &'tx ReadTx,
}

impl<'tx> Bucket<'tx> {
    /// The value of a key.
    pub fn get(&self, _key: &[u8]) -> Result<Option<&'tx [u8]>, BoltError> {
        todo!()
    }
    /// A cursor before the first key.
    pub fn cursor(&self) -> Cursor<'tx> {
        todo!()
    }
}

/// Walks a bucket in key order.
pub struct Cursor<'tx> {
    _tx: &'tx ReadTx,
}

/// A key and its value.
pub type Pair<'tx> = (&'tx [u8], &'tx [u8]);

impl<'tx> Cursor<'tx> {
    /// To the first key.
    pub fn first(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        todo!()
    }
    /// To the last key.
    pub fn last(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        todo!()
    }
    /// To the first key at or after `key`.
    pub fn seek(&mut self, _key: &[u8]) -> Result<Option<Pair<'tx>>, BoltError> {
        todo!()
    }
    /// To the next key.
    pub fn next(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        todo!()
    }
    /// To the key before.
    pub fn prev(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        todo!()
    }
}

/// The one write transaction. Dropped without a commit it leaves no trace.
pub struct WriteTx<'db> {
    _db: &'db Db,
}

impl WriteTx<'_> {
    /// Creates a top-level bucket if there is none by this name.
    pub fn create_bucket_if_missing(&mut self, _name: &[u8]) -> Result<(), BoltError> {
        todo!()
    }
    /// Fill of the bucket's pages on splitting, 0.1 to 1.0; etcd uses 0.9 for the bucket that only grows at its end.
    pub fn set_fill_percent(&mut self, _bucket: &[u8], _fill: f64) -> Result<(), BoltError> {
        todo!()
    }
    /// The value of a key, with this transaction's own changes.
    pub fn get(&self, _bucket: &[u8], _key: &[u8]) -> Result<Option<Vec<u8>>, BoltError> {
        todo!()
    }
    /// Sets a key.
    pub fn put(&mut self, _bucket: &[u8], _key: &[u8], _value: &[u8]) -> Result<(), BoltError> {
        todo!()
    }
    /// Removes a key; absent is fine.
    pub fn delete(&mut self, _bucket: &[u8], _key: &[u8]) -> Result<(), BoltError> {
        todo!()
    }
    /// Makes the changes durable and visible: data pages, fdatasync, meta page, fdatasync.
    pub fn commit(self) -> Result<CommitStats, BoltError> {
        todo!()
    }
}
