//! What a file holds, in the figures by which snapshots are told apart. Hash, revision and number of keys are those of
//! etcd's `etcdutl snapshot status`.

use std::collections::HashSet;

use super::super::{KeyValueRef, MvccError, Revision, buckets, restore};
use crate::bolt;

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// CRC-32C over the name of every bucket and, behind it, its keys and values, all in order.
    pub hash: u32,
    /// The last revision in bucket `key`; 0 if there is none.
    pub revision: i64,
    /// Keys that exist at it.
    pub total_keys: u64,
    /// Bytes of the pages that were ever used.
    pub total_bytes: u64,
    /// The version of the file's form, from bucket `meta`; empty if it names none (before etcd 3.6).
    pub version: String,
}

/// Reads the whole file. Needs memory for every key that exists.
pub fn file_status(tx: &bolt::ReadTx) -> Result<FileStatus, MvccError> {
    let (mut hash, mut revision) = (0, 0);
    let mut live: HashSet<Box<[u8]>> = HashSet::new();
    let mut names = tx.root().cursor();
    let mut name = names.first()?;
    while let Some((bucket_name, _)) = name {
        hash = crc32c::crc32c_append(hash, bucket_name);
        let mut cursor = match tx.bucket(bucket_name)? {
            Some(bucket) => bucket.cursor(),
            None => return Err(MvccError::damaged(Revision::default(), "a key lies between the buckets")),
        };
        let mut pair = cursor.first()?;
        while let Some((key, value)) = pair {
            hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, key), value);
            if bucket_name == buckets::KEY {
                let (at, tombstone) = Revision::decode(key).ok_or_else(|| MvccError::misnamed(key))?;
                let kv = KeyValueRef::decode_at(at, value).map_err(|error| error.in_page(cursor.page()))?;
                revision = at.main;
                if tombstone {
                    live.remove(kv.key);
                } else if !live.contains(kv.key) {
                    live.insert(kv.key.into());
                }
            }
            pair = cursor.next()?;
        }
        name = names.next()?;
    }
    let version = restore::meta(tx, buckets::STORAGE_VERSION)?.unwrap_or_default();
    Ok(FileStatus {
        hash,
        revision,
        total_keys: live.len() as u64,
        total_bytes: tx.snapshot_bytes(),
        version: String::from_utf8_lossy(version).into_owned(),
    })
}
