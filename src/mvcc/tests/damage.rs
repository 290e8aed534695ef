//! Damaged names of revisions, in files of many leaves that several threads read part by part.

use super::*;

const PAGE_BYTES: usize = 4096;
const REVISIONS: usize = 300;
/// Leaves of two or three records, where a search begins with the second, and of some more.
const VALUE_BYTES: [usize; 3] = [1_000, 1_400, 150];

/// A record's name and the page it lies in.
type Place = (Vec<u8>, u64);

/// A file of one revision a record, and where each lies.
fn file_of(value_bytes: usize, path: &Path) -> (Vec<u8>, Vec<Place>) {
    let (store, _) = open(path);
    for n in 0..REVISIONS {
        put(&store, &format!("k{n}"), &"v".repeat(value_bytes));
    }
    store.end_entry(at(1));
    flush(&store).unwrap();
    store.close().unwrap();
    drop(store);
    let db = bolt::Db::open(Arc::new(RealDisk), path, &bolt::Options { map_bytes_max: MAP_BYTES_MAX }).unwrap();
    let tx = db.read().unwrap();
    let mut cursor = tx.bucket(buckets::KEY).unwrap().unwrap().cursor();
    let mut pair = cursor.first().unwrap();
    let mut places = Vec::new();
    while let Some((name, _)) = pair {
        places.push((name.to_vec(), cursor.page().unwrap()));
        pair = cursor.next().unwrap();
    }
    assert_eq!(places.len(), REVISIONS);
    (std::fs::read(path).unwrap(), places)
}

/// Flips bits of every record's name in turn. `flip` says which of the main revision.
fn every_one_is_noticed(flip: impl Fn(u64) -> u64) {
    for value_bytes in VALUE_BYTES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let (bytes, places) = file_of(value_bytes, &path);
        for (name, page) in places {
            let start = page as usize * PAGE_BYTES;
            let found = bytes[start..].windows(name.len()).position(|window| window == name).unwrap();
            let name_at = start + found;
            let main = u64::from_be_bytes(name[..8].try_into().unwrap());
            let mut damaged = bytes.clone();
            damaged[name_at..name_at + 8].copy_from_slice(&(main ^ flip(main)).to_be_bytes());
            std::fs::write(&path, &damaged).unwrap();
            let opened = open_on(Arc::new(RealDisk), &path, options());
            let error = opened.map(|_| ()).expect_err(&format!("revision {main} in page {page}")).to_string();
            assert!(error.contains(&format!("page {page}")), "revision {main} in page {page}: {error}");
        }
    }
}

#[test]
fn a_revision_whose_name_became_larger_ends_no_part() {
    every_one_is_noticed(|_| 0x40 << 56);
}

#[test]
fn a_revision_whose_name_became_smaller_hides_none() {
    every_one_is_noticed(|main| 1 << main.ilog2());
}
