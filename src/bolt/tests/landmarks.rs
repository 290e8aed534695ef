//! Landmarks: keys that cut a bucket into parts.

use super::*;

const LEAST: usize = 64;

/// A bucket of so many keys.
fn filled(keys: u64) -> (Place, Db, Vec<[u8; 8]>) {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<_> = (0..keys).map(number_key).collect();
    put_same(&db, b"bucket", &keys, &[b'v'; 500]);
    (place, db, keys)
}

#[test]
fn landmarks_are_keys_that_begin_parts_of_like_size() {
    for count in [50, 600, 20_000] {
        let (_place, db, keys) = filled(count);
        let tx = db.read().unwrap();
        let bucket = tx.bucket(b"bucket").unwrap().unwrap();
        for least in [1, LEAST, 1_000_000] {
            let landmarks = bucket.landmarks(least).unwrap();
            assert_eq!(landmarks[0], keys[0], "the first part begins where the bucket does");
            let places: Vec<usize> =
                landmarks.iter().map(|mark| keys.binary_search_by(|key| key[..].cmp(mark)).unwrap()).collect();
            assert!(places.is_sorted_by(|a, b| a < b));
            let ends = places[1..].iter().copied().chain([keys.len()]);
            let longest = places.iter().zip(ends).map(|(start, end)| end - start).max().unwrap();
            assert!(longest <= 4 * keys.len().div_ceil(landmarks.len()), "{longest} of {count} in one part");
            // Each leaf holds a few keys: there are enough of them, unless the bucket is small.
            assert!(landmarks.len() >= least.min(keys.len() / 10), "{} for {least} of {count}", landmarks.len());
        }
    }
}

#[test]
fn what_is_a_single_leaf_has_none() {
    let (_place, db, _) = filled(3);
    let tx = db.read().unwrap();
    assert!(tx.bucket(b"bucket").unwrap().unwrap().landmarks(LEAST).unwrap().is_empty());
    // One that lies in its parent's page, too.
    put_all(&db, b"small", [(&b"a"[..], &b"1"[..])]);
    let tx = db.read().unwrap();
    assert!(tx.bucket(b"small").unwrap().unwrap().landmarks(LEAST).unwrap().is_empty());
}
