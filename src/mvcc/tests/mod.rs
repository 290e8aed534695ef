//! Tests of the whole room over a real file. Nothing is written unless a test asks: the interval is an hour.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod compaction;
mod concurrency;
mod crash;
mod damage;
mod durability;
mod facts;
mod failures;
mod model;
mod reclaim;
mod scale;
mod upkeep;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};

use bytes::Bytes;

use super::*;
use crate::{
    bolt,
    disk::{Disk, RealDisk},
    metrics::Metrics,
    proto::mvccpb,
};

const MAP_BYTES_MAX: u64 = 1 << 30;
const RESULT_WAIT_MAX: Duration = Duration::from_secs(60);

fn options() -> StoreOptions {
    StoreOptions {
        commit_interval: Duration::from_secs(3_600),
        commit_ops_max: usize::MAX,
        compaction_batch_revisions: 3,
        compaction_sleep: Duration::ZERO,
        compaction_reads_wait: Duration::from_secs(3_600),
        reclaim: ReclaimOptions { free_percent: 0, free_bytes: 0 },
    }
}

fn open_on(disk: Arc<dyn Disk>, path: &Path, options: StoreOptions) -> Result<(Store, Restored), MvccError> {
    let db = bolt::Db::open(disk, path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX })?;
    Store::open(db, options, &Metrics::new())
}

fn open_with(path: &Path, options: StoreOptions) -> (Store, Restored) {
    open_on(Arc::new(RealDisk), path, options).unwrap()
}

fn open(path: &Path) -> (Store, Restored) {
    open_with(path, options())
}

fn fresh() -> (tempfile::TempDir, PathBuf, Store) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (store, restored) = open(&path);
    assert_eq!((restored.position, restored.lease_attachments), (LogPosition::default(), Vec::new()));
    (dir, path, store)
}

/// A callback and where its result arrives.
fn callback() -> (Callback, mpsc::Receiver<Result<LogPosition, MvccError>>) {
    let (sender, receiver) = mpsc::channel();
    (Box::new(move |result| sender.send(result).unwrap()), receiver)
}

fn flush(store: &Store) -> Result<LogPosition, MvccError> {
    let (done, result) = callback();
    store.flush(done);
    result.recv_timeout(RESULT_WAIT_MAX).unwrap()
}

fn at(index: u64) -> LogPosition {
    LogPosition { term: 1, index }
}

fn put(store: &Store, key: &str, value: &str) -> i64 {
    put_leased(store, key, value, 0)
}

fn put_leased(store: &Store, key: &str, value: &str, lease: i64) -> i64 {
    let mut txn = store.write();
    txn.put(Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()), lease, false).unwrap();
    txn.end().unwrap().revision
}

fn delete(store: &Store, key: &str) -> i64 {
    let mut txn = store.write();
    txn.delete_range(&single(key), false).unwrap();
    txn.end().map_or(0, |changes| changes.revision)
}

fn single(key: &str) -> KeyRange {
    range(key, "")
}

fn range(key: &str, end: &str) -> KeyRange {
    KeyRange::new(Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(end.as_bytes()))
}

fn everything() -> KeyRange {
    range("\0", "\0")
}

/// What a range read answers: pairs, more, count.
type Answer = (Vec<mvccpb::KeyValue>, bool, i64);

fn read(store: &Store, query: &RangeQuery, keys_max: usize) -> Result<Answer, MvccError> {
    let mut pairs = Vec::new();
    let mut cursor = store.range(query)?;
    while cursor.next_chunk(keys_max, &mut |kv| pairs.push(kv.to_owned()))? {}
    let (more, count) = cursor.more_and_count();
    let answer = (pairs, more, count);
    assert_eq!(read_broken(store, query, keys_max)?, answer, "in chunks that the visitor breaks");
    if query.target == SortTarget::Key && !query.count_only {
        assert_eq!(read_pages(store, query, keys_max)?, answer, "by pages");
    }
    Ok(answer)
}

/// The same, with a visitor that breaks every chunk behind `pairs_max` pairs.
fn read_broken(store: &Store, query: &RangeQuery, pairs_max: usize) -> Result<Answer, MvccError> {
    let mut pairs = Vec::new();
    let mut cursor = store.range(query)?;
    loop {
        let chunk_end = pairs.len() + pairs_max;
        let more = cursor.next_chunk_while(usize::MAX, &mut |kv| {
            pairs.push(kv.to_owned());
            if pairs.len() < chunk_end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !more {
            let (more, count) = cursor.more_and_count();
            return Ok((pairs, more, count));
        }
    }
}

/// The same, page by page, each of which goes on where the one before ended.
fn read_pages(store: &Store, query: &RangeQuery, page_max: usize) -> Result<Answer, MvccError> {
    let limit = query.limit().unwrap_or(usize::MAX);
    let mut page = query.clone();
    let mut pairs = Vec::new();
    loop {
        page.limit = (limit - pairs.len()).min(page_max) as i64;
        let mut cursor = store.range(&page)?;
        while cursor.next_chunk(page_max, &mut |kv| pairs.push(kv.to_owned()))? {}
        let (more, count) = cursor.more_and_count();
        let Some(after) = cursor.page_end().filter(|_| pairs.len() < limit) else { return Ok((pairs, more, count)) };
        page.revision = cursor.revision();
        page.after = Some(Bytes::copy_from_slice(after));
        page.known_count = Some(count);
    }
}

/// "a=1 b=2" at a revision.
fn text(store: &Store, revision: i64) -> Result<String, MvccError> {
    let (pairs, ..) = read(store, &RangeQuery { revision, ..RangeQuery::all(everything()) }, 2)?;
    let words = pairs.iter().map(|kv| format!("{}={}", kv.key.escape_ascii(), kv.value.escape_ascii()));
    Ok(words.collect::<Vec<_>>().join(" "))
}

/// "3 a=1 -b" for revision 3 that put a and deleted b.
fn changes(store: &Store, from: i64) -> Result<Vec<String>, MvccError> {
    let sets = store.changes_since(from, usize::MAX, usize::MAX)?;
    Ok(sets.iter().map(change_text).collect())
}

fn change_text(set: &ChangeSet) -> String {
    let change = |record: &Arc<Record>| {
        assert_eq!((record.revision.main, record.kv.mod_revision), (set.revision, set.revision));
        let (key, value) = (record.kv.key.escape_ascii(), record.kv.value.escape_ascii());
        if record.tombstone { format!(" -{key}") } else { format!(" {key}={value}") }
    };
    format!("{}{}", set.revision, set.changes.iter().map(change).collect::<String>())
}
