//! Single bits of a file flip. Whatever then is done to it ends: it reads as before, or there is an error, and the error
//! or `check` names the page.
//!
//! The format has no checksums. What a pair's own bytes are, its key and its value, the structure cannot know: a flip
//! there may be read. It shows in the hashes (`snapshot status`, hashkv), and in `check` where a record makes no sense
//! any more. The same holds for the lengths of a page's last element, which no neighbour contradicts: where its record
//! still makes sense, only the hashes tell. A flip anywhere else must not change what is read, with two exceptions: where
//! the newest meta page cannot be believed, the format has the commit before it read, and a bucket's root page can become
//! another page of the same bucket, which nothing but a walk over all pages finds. `check` names the page in both cases.
//!
//! `REVGATE_BITFLIPS` says how many bits; `REVGATE_BITFLIPS_SEED` which.

use std::{collections::HashMap, ops::ControlFlow, thread};

use fastrand::Rng;

use super::*;
use crate::mvcc::{ChangeSet, RangeQuery};

const FLIPS_DEFAULT: usize = 400;
const SEED_DEFAULT: u64 = 4;
/// Longest time that all that is done to a file with a flipped bit may take.
const FLIP_MAX: Duration = Duration::from_secs(60);
const PAGE_BYTES: usize = 4096;

/// Everything that can be read from a store.
#[derive(Debug, PartialEq)]
struct Reading {
    revisions: (i64, i64),
    pairs: Vec<Vec<crate::proto::mvccpb::KeyValue>>,
    changes: Vec<String>,
    buckets: Vec<Vec<(Bytes, Bytes)>>,
    leased: Vec<(i64, Bytes)>,
}

fn change_text(set: &ChangeSet) -> String {
    format!("{} {:?}", set.revision, set.changes)
}

fn read_all(path: &Path) -> Result<(Store, Reading), String> {
    let (store, restored) = open(path)?;
    let said = |error: crate::mvcc::MvccError| error.to_string();
    let (first, last) = (store.compact_revision(), store.revision());
    let mut pairs = Vec::new();
    for at in 0..4 {
        let revision = first + (last - first) / 3 * at;
        let query = RangeQuery { revision, ..RangeQuery::all(everything()) };
        let mut cursor = store.range(&query).map_err(said)?;
        let mut found = Vec::new();
        while cursor.next_chunk(100, &mut |kv| found.push(kv.to_owned())).map_err(said)? {}
        pairs.push(found);
    }
    let changes = store.changes_since(first.max(1), usize::MAX, usize::MAX).map_err(said)?;
    let mut read = Vec::new();
    for bucket in
        [buckets::LEASE, buckets::ALARM, buckets::MEMBERS, buckets::AUTH, buckets::AUTH_USERS, buckets::AUTH_ROLES]
    {
        read.push(store.bucket_pairs(bucket).map_err(said)?);
    }
    store.hash_keys(0).map_err(said)?;
    let reading = Reading {
        revisions: (first, last),
        pairs,
        changes: changes.iter().map(change_text).collect(),
        buckets: read,
        leased: restored.lease_attachments,
    };
    Ok((store, reading))
}

/// Writes on, compacts, closes and opens again; how it ends does not matter, only that it does.
fn write_on(store: &Store, path: &Path) -> Result<(), String> {
    let said = |error: crate::mvcc::MvccError| error.to_string();
    for number in (0..KEYS + 20).step_by(9) {
        let mut txn = store.write();
        txn.put(key(number), Bytes::from_static(b"written after"), 0, true).map_err(said)?;
        txn.delete_range(&KeyRange::Single(key(number + 1)), true).map_err(said)?;
        txn.end();
    }
    store.end_entry(LogPosition { term: 1, index: 4 });
    flush(store)?;
    compact(store, store.revision() - 5)?;
    store.close().map_err(said)?;
    let (store, _) = read_all(path)?;
    store.close().map_err(said)
}

/// A file and what is known of it.
struct Sample {
    name: &'static str,
    bytes: Vec<u8>,
    truth: Reading,
    /// What the commit before the last one reads like.
    before: Option<Reading>,
    hash: u32,
    /// Which bytes are those of a key or a value, or of the lengths of a page's last ones.
    is_pair: Vec<bool>,
    /// Which bytes name the root page of a bucket.
    is_root: Vec<bool>,
}

impl Sample {
    fn make(name: &'static str, dir: &Path, cleanly: bool) -> Sample {
        let path = sample(dir, cleanly);
        let bytes = std::fs::read(&path).unwrap();
        let checked = check_file(&disk(), &path).unwrap();
        assert_eq!(checked.findings, []);
        let hash = snapshot_status(&disk(), &path).unwrap().file.hash;
        let is_pair = pair_bytes(&path, &bytes);
        let is_root = root_bytes(&path, &bytes);
        let reading = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_all(&path).map(|(_, reading)| reading)
        };
        let truth = reading(&bytes).unwrap();
        let newest = if txid(&bytes[PAGE_BYTES..]) > txid(&bytes) { PAGE_BYTES } else { 0 };
        let mut without = bytes.clone();
        without[newest + 16] ^= 1;
        let before = reading(&without).ok();
        Sample { name, bytes, truth, before, hash, is_pair, is_root }
    }

    /// A bit: any one, or every other time one of the structure.
    fn pick(&self, rng: &mut Rng) -> usize {
        loop {
            let bit = rng.usize(..self.bytes.len() * 8);
            if rng.bool() || !self.is_pair[bit / 8] && (bit / 8) % PAGE_BYTES < 1_000 {
                return bit;
            }
        }
    }

    fn try_flip(&self, path: &Path, bit: usize, ends: &mut HashMap<&'static str, u64>) {
        let (at, page) = (bit / 8, bit / 8 / PAGE_BYTES);
        let what = format!("{}: bit {bit}: page {page}, byte {} of it", self.name, at % PAGE_BYTES);
        let mut flipped = self.bytes.clone();
        flipped[at] ^= 1 << (bit % 8);
        std::fs::write(path, &flipped).unwrap();

        let checked = check_file(&disk(), path);
        let named = match &checked {
            Ok(checked) => checked.findings.iter().any(|finding| finding.page.is_some()),
            Err(error) => error.to_string().contains("page"),
        };
        let _ = inspect_file(&disk(), path, 5, 2);
        let status = snapshot_status(&disk(), path);
        let (end, store) = match read_all(path) {
            Err(error) => {
                let is_named = named || error.contains("page") || self.is_pair[at];
                assert!(is_named, "{what}: {error}: names no page, nor does check: {checked:?}");
                ("an error", None)
            }
            Ok((store, reading)) if reading == self.truth => ("as before", Some(store)),
            Ok((store, reading)) if at < 2 * PAGE_BYTES => {
                assert!(
                    Some(&reading) == self.before.as_ref() && named,
                    "{what}: neither the last commit nor that before"
                );
                ("the commit before", Some(store))
            }
            Ok((store, _)) if self.is_root[at] => {
                assert!(named, "{what}: another page of the bucket is taken for its root, and check does not see it");
                ("another root, seen by check", Some(store))
            }
            Ok((store, _)) => {
                assert!(self.is_pair[at], "{what}: something else is read, without an error");
                let is_seen = named || status.as_ref().map_or(true, |status| status.file.hash != self.hash);
                assert!(is_seen, "{what}: nothing shows that something else is read");
                ("other bytes of a key or value", Some(store))
            }
        };
        *ends.entry(end).or_default() += 1;
        *ends.entry(if named { "named by check" } else { "not seen by check" }).or_default() += 1;
        // What there is to read from it was as it should be: then it is written to.
        if let Some(store) = store {
            let _ = write_on(&store, path);
        }
        let _ = check_file(&disk(), path);
    }
}

fn txid(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[64..72].try_into().unwrap())
}

/// Finds where in the file the pairs lie: in each page they lie one behind the other in the order they come in.
fn pair_bytes(path: &Path, bytes: &[u8]) -> Vec<bool> {
    let mut is_pair = vec![false; bytes.len()];
    let mut reached: HashMap<u64, usize> = HashMap::new();
    let tx = Db::open_read_only(&disk(), path).unwrap();
    let mut on_pair = |pair: bolt::PlacedPair<'_>| {
        let wanted = [pair.key, pair.value].concat();
        let from = *reached.entry(pair.page).or_insert(pair.page as usize * PAGE_BYTES + 16);
        let found = bytes[from..].windows(wanted.len()).position(|window| window == wanted).unwrap() + from;
        is_pair[found..found + wanted.len()].fill(true);
        let page = pair.page as usize * PAGE_BYTES;
        let count = u16::from_le_bytes(bytes[page + 10..page + 12].try_into().unwrap()) as usize;
        let last = page + 16 + 16 * (count - 1);
        is_pair[last + 8..last + 16].fill(true);
        reached.insert(pair.page, found + wanted.len());
    };
    tx.check_file(&mut on_pair, &mut |damage| panic!("{damage}")).unwrap();
    is_pair
}

/// Finds the values of buckets that have a page of their own, behind their names in the root page.
fn root_bytes(path: &Path, bytes: &[u8]) -> Vec<bool> {
    let mut is_root = vec![false; bytes.len()];
    let tx = Db::open_read_only(&disk(), path).unwrap();
    let mut cursor = tx.root().cursor();
    let mut pair = cursor.first().unwrap();
    let mut reached = cursor.page().unwrap() as usize * PAGE_BYTES + 16 + 16 * 10;
    while let Some((name, _)) = pair {
        let found = bytes[reached..].windows(name.len()).position(|window| window == name).unwrap() + reached;
        reached = found + name.len();
        let value = u64::from_le_bytes(bytes[reached..reached + 8].try_into().unwrap());
        is_root[reached..reached + 8].fill(value != 0);
        pair = cursor.next().unwrap();
    }
    is_root
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_flipped_bit_is_harmless_or_an_error() {
    let flips = number("REVGATE_BITFLIPS").map_or(FLIPS_DEFAULT, |flips| flips as usize);
    let mut rng = Rng::with_seed(number("REVGATE_BITFLIPS_SEED").unwrap_or(SEED_DEFAULT));
    let (begun, progress) = mpsc::channel();
    let worker = thread::spawn(move || {
        let dir = place();
        let samples = [Sample::make("closed", dir.path(), true), {
            std::fs::remove_file(dir.path().join("db")).unwrap();
            Sample::make("killed", dir.path(), false)
        }];
        let path = dir.path().join("flipped");
        let mut ends = HashMap::new();
        for number in 0..flips {
            let sample = &samples[number % 2];
            let bit = sample.pick(&mut rng);
            begun.send(ControlFlow::Continue((sample.name, bit))).unwrap();
            sample.try_flip(&path, bit, &mut ends);
        }
        begun.send(ControlFlow::Break(ends)).unwrap();
    });
    let mut last = None;
    let ends = loop {
        match progress.recv_timeout(FLIP_MAX) {
            Ok(ControlFlow::Continue(flip)) => last = Some(flip),
            Ok(ControlFlow::Break(ends)) => break ends,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs after {last:?}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                eprintln!("the last flip was {last:?}");
                std::panic::resume_unwind(worker.join().unwrap_err());
            }
        }
    };
    worker.join().unwrap();
    println!("{flips} flips: {ends:?}");
}
