//! A copy of a file as a stream of bytes.

use super::*;

fn number(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A file with buckets of every kind, holes, and a view of it.
fn filled(place: &Place) -> Db {
    let db = place.open();
    let value = [7; 300];
    let keys: Vec<[u8; 8]> = (0..5_000).map(number).collect();
    put_same(&db, b"many", &keys, &value);
    put_all(&db, b"small", [(&b"a"[..], &b"1"[..])]);
    put_all(&db, b"empty", []);
    put_all(
        &db,
        b"large",
        (0..6_u8).map(|n| ([n], vec![n; 9_000])).collect::<Vec<_>>().iter().map(|(k, v)| (&k[..], &v[..])),
    );
    let mut tx = db.write().unwrap();
    for key in keys.iter().filter(|key| key[7] % 4 != 0) {
        tx.delete(b"many", key).unwrap();
    }
    tx.commit().unwrap();
    db
}

type Content = Vec<(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

fn content(tx: &ReadTx) -> Content {
    let mut buckets = Vec::new();
    let mut names = tx.root().cursor();
    let mut name = names.first().unwrap();
    while let Some((found, _)) = name {
        let mut pairs = Vec::new();
        let mut cursor = tx.bucket(found).unwrap().unwrap().cursor();
        let mut pair = cursor.first().unwrap();
        while let Some((key, value)) = pair {
            pairs.push((key.to_vec(), value.to_vec()));
            pair = cursor.next().unwrap();
        }
        buckets.push((found.to_vec(), pairs));
        name = names.next().unwrap();
    }
    buckets
}

#[test]
fn a_snapshot_is_a_file_with_the_views_content() {
    let place = Place::new();
    let db = filled(&place);
    let view = db.read().unwrap();
    let before = content(&view);
    // What is committed later is not in it.
    put_same(&db, b"many", &(0..900).map(number).collect::<Vec<_>>(), b"later");

    for step in [1_000_usize, 4_096, 32_768, 1 << 20] {
        let mut bytes = Vec::new();
        let mut part = vec![0; step];
        loop {
            let read = view.read_snapshot(bytes.len() as u64, &mut part).unwrap();
            bytes.extend_from_slice(&part[..read]);
            if read < step {
                break;
            }
        }
        assert_eq!(bytes.len() as u64, view.snapshot_bytes());
        let copy = Place::new();
        std::fs::write(&copy.path, &bytes).unwrap();
        let copied = copy.open();
        assert_sound(&copied);
        assert_eq!(copied.read().unwrap().txid(), view.txid());
        assert!(content(&copied.read().unwrap()) == before);
        // It can be written, too.
        put_all(&copied, b"small", [(&b"b"[..], &b"2"[..])]);
        assert_sound(&copied);
    }
}
