//! Files in the hands of the commands: sound ones, damaged ones, and members that begin with them.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod check;
mod flips;
mod restore;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use tempfile::TempDir;

use super::*;
use crate::{
    apply::Alarms,
    bolt::{self, Db},
    clock::SystemClock,
    disk::{Disk, RealDisk},
    lease::Lessor,
    members::{Member, Members},
    metrics::Metrics,
    mvcc::{BucketWrite, KeyRange, LogPosition, Restored, Store, StoreOptions, buckets},
    proto::authpb,
};

const RESULT_WAIT_MAX: Duration = Duration::from_secs(60);
const KEYS: usize = 300;
const LEASES: i64 = 8;

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// A directory in memory where there is one: these tests are not about the disk.
fn place() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn open(path: &Path) -> Result<(Store, Restored), String> {
    let options = StoreOptions {
        commit_interval: Duration::from_secs(3_600),
        commit_ops_max: usize::MAX,
        compaction_batch_revisions: 100,
        compaction_sleep: Duration::ZERO,
        ..StoreOptions::default()
    };
    let db = Db::open(disk(), path, &bolt::Options { map_bytes_max: 1 << 30 }).map_err(|error| error.to_string())?;
    Store::open(db, options, &Metrics::new()).map_err(|error| error.to_string())
}

fn everything() -> KeyRange {
    KeyRange::new(Bytes::from_static(b"\0"), Bytes::from_static(b"\0"))
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("/registry/{}/{number:04}", number % 3))
}

fn put(store: &Store, key: Bytes, value: Bytes, lease: i64) -> i64 {
    let mut txn = store.write();
    txn.put(key, value, lease, false).unwrap();
    txn.end().unwrap().revision
}

fn delete(store: &Store, key: Bytes) {
    let mut txn = store.write();
    txn.delete_range(&KeyRange::Single(key), false).unwrap();
    txn.end();
}

/// Waits until everything written is in the file.
fn flush(store: &Store) -> Result<(), String> {
    let (done, result) = mpsc::channel();
    store.flush(Box::new(move |outcome| drop(done.send(outcome))));
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().map(drop).map_err(|error| error.to_string())
}

fn compact(store: &Store, revision: i64) -> Result<(), String> {
    let (done, result) = mpsc::channel();
    let told = store.compact(revision, Some(Box::new(move |outcome| drop(done.send(outcome)))));
    told.map_err(|error| error.to_string())?;
    store.end_entry(LogPosition { term: 1, index: 2 });
    flush(store)?;
    result.recv_timeout(RESULT_WAIT_MAX).unwrap().map(drop).map_err(|error| error.to_string())
}

fn write(bucket: &'static [u8], key: impl Into<Bytes>, value: impl Into<Bytes>) -> BucketWrite {
    BucketWrite { bucket, key: key.into(), value: Some(value.into()) }
}

/// A file with everything in it, as a member leaves it: in order (`cleanly`), or as if it had been killed.
fn sample(dir: &Path, cleanly: bool) -> PathBuf {
    let path = dir.join("db");
    let (store, _) = open(&path).unwrap();
    let lessor = Lessor::new(Arc::new(SystemClock::new()), 1);
    store.stage((1..=LEASES).map(|id| lessor.grant(id, 600 + id).unwrap().1).collect());
    for round in 0..3 {
        for number in 0..KEYS {
            let lease = if number % 11 == 0 { number as i64 % LEASES + 1 } else { 0 };
            put(&store, key(number), Bytes::from(vec![b'a' + round; number % 150]), lease);
        }
        for number in (round as usize..KEYS).step_by(7) {
            delete(&store, key(number));
        }
    }
    put(&store, key(KEYS), Bytes::from(vec![b'z'; 20_000]), 0);
    store.end_entry(LogPosition { term: 1, index: 1 });
    flush(&store).unwrap();
    compact(&store, 200).unwrap();

    let user = authpb::User { name: "u".into(), password: "hash".into(), roles: vec!["r".into()], options: None };
    let role = authpb::Role { name: "r".into(), key_permission: Vec::new() };
    let member = Member {
        id: 7,
        peer_urls: vec!["http://a:1".into()],
        is_learner: false,
        name: "a".into(),
        client_urls: vec![],
    };
    store.stage(vec![
        write(buckets::AUTH, &b"authEnabled"[..], vec![1]),
        write(buckets::AUTH, &b"authRevision"[..], 5u64.to_be_bytes().to_vec()),
        write(buckets::AUTH_USERS, &b"u"[..], user.encode_to_vec()),
        write(buckets::AUTH_ROLES, &b"r"[..], role.encode_to_vec()),
        write(buckets::META, &b"confState"[..], &b"{}"[..]),
        write(buckets::MEMBERS_REMOVED, &b"9"[..], &b"removed"[..]),
        Members::new(1, 7, Vec::new()).set(member),
    ]);
    store.end_entry(LogPosition { term: 1, index: 3 });
    flush(&store).unwrap();
    if cleanly {
        store.close().unwrap();
    } else {
        let copy = dir.join("killed");
        std::fs::copy(&path, &copy).unwrap();
        drop(store);
        std::fs::rename(&copy, &path).unwrap();
    }
    path
}

/// The file as etcd's clients save it: with its hash behind it.
fn with_hash(path: &Path) -> Vec<u8> {
    use sha2::Digest as _;
    let mut bytes = std::fs::read(path).unwrap();
    let hash = sha2::Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    bytes
}

/// Alarms are raised by the floor that decides about them; here it is enough that one is stored.
fn alarm_key() -> Vec<u8> {
    let alarm = crate::proto::etcdserverpb::AlarmMember { member_id: 7, alarm: 1 };
    let key = alarm.encode_to_vec();
    assert!(Alarms::check_record(&key).is_ok());
    key
}
