//! The engine without its rim: a command applied, keys found and added, the file read and committed, the log's records.
//!
//! Files are real ones in a directory that is not looked at again: what the kernel does for them is not counted.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use revgate::{
    apply::{Alarms, Applier, State},
    auth::{AuthStore, SimpleTokens, Tokens},
    bolt,
    cli::config_of,
    clock::SystemClock,
    disk::RealDisk,
    lease::Lessor,
    members::{Member, Members},
    metrics::Metrics,
    mvcc::{LogPosition, Store, StoreOptions},
    proto::{
        etcdserverpb as pb,
        revgatepb::{InternalRaftRequest, internal_raft_request::Request},
    },
    wal,
    watch::{Hub, HubOptions},
};

use crate::counted;

const TIMES: u64 = 500;
/// Keys that are there before anything is counted.
const KEYS: usize = 5_000;
const VALUE: &[u8] = &[b'v'; 256];
/// No commit of the backend's own falls into what is counted.
const NEVER: Duration = Duration::from_secs(3600);
const BUCKET: &[u8] = b"key";

/// A key of 32 bytes; neighbours in number are not neighbours in order.
fn key(number: usize) -> Bytes {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Bytes::from(format!("{mixed:016x}{number:016}"))
}

fn open_file(dir: &Path) -> bolt::Db {
    bolt::Db::open(Arc::new(RealDisk), &dir.join("db"), &bolt::Options { map_bytes_max: 1 << 30 }).unwrap()
}

/// A store with keys.
fn store(dir: &Path, metrics: &Metrics) -> Store {
    let options = StoreOptions { commit_interval: NEVER, ..StoreOptions::default() };
    let (store, _) = Store::open(open_file(dir), options, metrics).unwrap();
    for number in 0..KEYS {
        let mut txn = store.write();
        txn.put(key(number), Bytes::from_static(VALUE), 0, false).unwrap();
        txn.end();
    }
    store
}

pub(crate) fn apply_put(dir: &Path) -> u64 {
    let metrics = Metrics::new();
    let (store, clock) = (store(dir, &metrics), Arc::new(SystemClock::new()));
    let member = Member {
        id: 1,
        name: "default".into(),
        peer_urls: vec!["http://localhost:2380".into()],
        client_urls: Vec::new(),
        is_learner: false,
    };
    let hub = HubOptions {
        stream_bytes_max: 1 << 20,
        progress_interval: NEVER,
        catch_up_revisions_max: 1000,
        catch_up_bytes_max: 1 << 20,
    };
    let state = State {
        lessor: Arc::new(Lessor::new(clock.clone(), 1)),
        members: Arc::new(Members::new(1, 1, vec![member])),
        alarms: Arc::new(Alarms::new()),
        auth: Arc::new(AuthStore::new(Tokens::Simple(SimpleTokens::new(clock.clone(), NEVER)))),
        hub: Hub::start(store.clone(), hub, clock, &metrics),
        store,
    };
    let mut applier = Applier::new(state, &config_of(&[]), &metrics);
    for number in 0..TIMES as usize {
        let put = pb::PutRequest { key: key(number), value: Bytes::from_static(VALUE), ..Default::default() };
        let command = [InternalRaftRequest { request: Some(Request::Put(put)), ..Default::default() }];
        let position = LogPosition { term: 1, index: number as u64 + 1 };
        let outcomes = counted(|| applier.apply(position, &command)).unwrap();
        assert!(outcomes[0].is_ok());
    }
    TIMES
}

pub(crate) fn store_get(dir: &Path) -> u64 {
    let store = store(dir, &Metrics::new());
    for number in 0..TIMES as usize {
        let key = key(number);
        assert!(counted(|| store.get(&key, 0)).unwrap().is_some());
    }
    TIMES
}

pub(crate) fn index_look_up(dir: &Path) -> u64 {
    let store = store(dir, &Metrics::new());
    let txn = store.write();
    for number in 0..TIMES as usize {
        let key = key(number);
        assert!(counted(|| txn.key_meta(&key)).is_some());
    }
    TIMES
}

/// With what else a put of a new key is to the store.
pub(crate) fn index_insert(dir: &Path) -> u64 {
    let store = store(dir, &Metrics::new());
    for number in KEYS..KEYS + TIMES as usize {
        let key = key(number);
        counted(|| {
            let mut txn = store.write();
            txn.put(key.clone(), Bytes::from_static(VALUE), 0, false).unwrap();
            txn.end()
        });
    }
    TIMES
}

/// Puts keys by their revision, as the backend does, and commits.
fn commit(db: &bolt::Db, revisions: std::ops::Range<u64>) {
    let mut tx = db.write().unwrap();
    tx.create_bucket_if_missing(BUCKET).unwrap();
    tx.set_fill_percent(BUCKET, 0.9).unwrap();
    for revision in revisions {
        tx.put(BUCKET, &revision_key(revision), VALUE).unwrap();
    }
    tx.commit().unwrap();
}

fn revision_key(revision: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[..8].copy_from_slice(&revision.to_be_bytes());
    key[8] = b'_';
    key
}

pub(crate) fn bolt_get(dir: &Path) -> u64 {
    let db = open_file(dir);
    commit(&db, 0..KEYS as u64);
    let read = db.read().unwrap();
    let bucket = read.bucket(BUCKET).unwrap().unwrap();
    for number in 0..TIMES {
        let key = revision_key(number * 7 % KEYS as u64);
        assert!(counted(|| bucket.get(&key)).unwrap().is_some());
    }
    TIMES
}

pub(crate) fn bolt_commit(dir: &Path) -> u64 {
    const TIMES: u64 = 5;
    const PUTS: u64 = 1_000;
    let db = open_file(dir);
    commit(&db, 0..PUTS);
    for time in 1..=TIMES {
        counted(|| commit(&db, time * PUTS..(time + 1) * PUTS));
    }
    TIMES
}

pub(crate) fn wal_encode(_: &Path) -> u64 {
    const TIMES: u64 = 50;
    const RECORDS: u64 = 64;
    // On the heap: how a static lies to a multiple of eight is another thing in each build, and the checksum notices.
    let data = Bytes::copy_from_slice(VALUE);
    let entry = |index| wal::Entry { index, term: 2, kind: 0, data: data.clone() };
    let records: Vec<wal::Record> = (1..=RECORDS).map(|index| wal::Record::Entry(entry(index))).collect();
    for _ in 0..TIMES {
        assert!(counted(|| wal::encode(&records)).len() > RECORDS as usize * VALUE.len());
    }
    TIMES
}
