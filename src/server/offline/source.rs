//! The file that is given: what kind it is, whether its hash is right, and what it holds in figures.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::OfflineError;
use crate::{
    bolt::{Db, ReadTx},
    disk::{Disk, File, OpenMode},
    mvcc::{self, FileStatus},
};

/// Bytes of the hash behind a snapshot.
const HASH_BYTES: u64 = 32;
/// Every page size is a multiple of this: what is behind whole ones is a hash. etcd's rule.
const UNIT_BYTES: u64 = 512;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A file that was opened to be looked at.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    pub(super) tx: ReadTx,
    file: Box<dyn File>,
    bytes: u64,
    /// Whether a hash is behind the last page.
    pub(super) has_hash: bool,
}

/// What a snapshot or a data file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// The figures.
    pub file: FileStatus,
    /// Whether it has a SHA-256 behind it, which then is right.
    pub has_hash: bool,
}

/// Reads a snapshot or a data file whole and tells what it holds. A wrong SHA-256 at its end is an error.
pub fn snapshot_status(disk: &Arc<dyn Disk>, path: &Path) -> Result<SnapshotStatus, OfflineError> {
    let source = Source::open(disk, path)?;
    source.check_hash()?;
    Ok(SnapshotStatus { file: mvcc::file_status(&source.tx)?, has_hash: source.has_hash })
}

impl Source {
    pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path) -> Result<Source, OfflineError> {
        let failed = |action| move |source| OfflineError::Io { path: path.to_owned(), action, source };
        let file = disk.open(path, OpenMode::Read).map_err(failed("open"))?;
        let bytes = file.len().map_err(failed("ask for the length of"))?;
        let has_hash = bytes % UNIT_BYTES == HASH_BYTES;
        if !has_hash && bytes % UNIT_BYTES != 0 {
            return Err(OfflineError::OddLength { path: path.to_owned(), bytes });
        }
        let tx = Db::open_read_only(disk, path)?;
        Ok(Source { path: path.to_owned(), tx, file, bytes, has_hash })
    }

    /// Whether the hash at the end is that of what is before it. Without a hash nothing is wrong.
    pub(super) fn check_hash(&self) -> Result<(), OfflineError> {
        if !self.has_hash {
            return Ok(());
        }
        let failed = |source| OfflineError::Io { path: self.path.clone(), action: "read", source };
        let content_bytes = self.bytes - HASH_BYTES;
        let mut hash = Sha256::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        while at < content_bytes {
            let length = usize::try_from(content_bytes - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            self.file.read_exact_at(&mut chunk[..length], at).map_err(failed)?;
            hash.update(&chunk[..length]);
            at += length as u64;
        }
        let mut expected = [0; HASH_BYTES as usize];
        self.file.read_exact_at(&mut expected, content_bytes).map_err(failed)?;
        let found: [u8; HASH_BYTES as usize] = hash.finalize().into();
        if found == expected {
            return Ok(());
        }
        Err(OfflineError::WrongHash { path: self.path.clone(), expected: hex(&expected), found: hex(&found) })
    }

    /// Writes the data file that the source stands for, without a hash, from its beginning to its last page in use.
    pub(super) fn copy_to(&self, file: &dyn File, to: &Path) -> Result<(), OfflineError> {
        let failed = |source| OfflineError::Io { path: to.to_owned(), action: "write", source };
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        loop {
            let length = self.tx.read_snapshot(at, &mut chunk)?;
            if length == 0 {
                return file.sync_all().map_err(failed);
            }
            file.write_all_at(&chunk[..length], at).map_err(failed)?;
            at += length as u64;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
