//! What the tree promises, tested on real files.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod copies;
mod crash;
mod damage;
mod directory;
mod failures;
mod interop;
mod landmarks;
mod layout;
mod model;
mod reclaim;
mod transactions;

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;

use super::*;
use crate::disk::RealDisk;

const OPTIONS: Options = Options { map_bytes_max: 256 << 20 };

/// A file in a directory of its own, gone at the end of the test.
struct Place {
    _dir: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        Place { _dir: dir, path }
    }

    fn open(&self) -> Db {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Db, BoltError> {
        Db::open(Arc::new(RealDisk), &self.path, &OPTIONS)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

/// Commits puts into a bucket, making it if need be.
fn put_all<'a>(db: &Db, bucket: &[u8], pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    let mut tx = db.write().unwrap();
    tx.create_bucket_if_missing(bucket).unwrap();
    for (key, value) in pairs {
        tx.put(bucket, key, value).unwrap();
    }
    tx.commit().unwrap();
}

/// The same value under many keys, in one commit.
fn put_same(db: &Db, bucket: &[u8], keys: &[[u8; 8]], value: &[u8]) {
    put_all(db, bucket, keys.iter().map(|key| (&key[..], value)));
}

fn assert_sound(db: &Db) {
    let problems = db.check().unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Every pair of a bucket, read forwards.
fn pairs(tx: &ReadTx, bucket: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = tx.bucket(bucket).unwrap().unwrap().cursor();
    let mut pairs = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    pairs
}

/// The root page of a top-level bucket that is not inline.
fn root_page(read: &ReadTx, bucket: &[u8]) -> u64 {
    let root = read::Root::Page(read.meta().root);
    let (_, element) = read::find(&read.pages(), root, bucket).unwrap().unwrap();
    page::u64_at(element.value(), 0)
}

fn number_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A file of another page size than new ones have, without buckets.
fn empty_file(page_bytes: u32) -> Vec<u8> {
    let size = page_bytes as usize;
    let meta = |txid| Meta { page_bytes, root: 3, sequence: 0, freelist: NO_FREELIST, high_water: 4, txid };
    let mut bytes = [meta(0).encode(), meta(1).encode(), vec![0; 2 * size]].concat();
    page::put_header(&mut bytes[3 * size..], 3, page::LEAF, 0, 0);
    bytes
}
