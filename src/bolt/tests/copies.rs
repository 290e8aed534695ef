//! Copies of a file: as a stream of bytes, and compacted in its place.

use super::*;
use crate::disk::OpenMode;

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

#[test]
fn compacting_keeps_everything_but_the_room() {
    for fill in [0.1, 0.5, 0.9, 1.0] {
        let place = Place::new();
        let db = filled(&place);
        let view = db.read().unwrap();
        let before = content(&view);
        let copied = db.compact(fill, &|| true).unwrap();
        assert_sound(&copied);
        assert!(content(&copied.read().unwrap()) == before, "fill {fill}");
        // The old view lives on, and what it was taken of takes no more writes.
        assert!(content(&view) == before);
        assert!(matches!(db.write(), Err(BoltError::Poisoned { .. })));
        if fill > 0.8 {
            assert!(copied.size_bytes() < db.size_bytes() / 2, "{} {}", copied.size_bytes(), db.size_bytes());
        }
        put_same(&copied, b"many", &(0..900).map(number).collect::<Vec<_>>(), b"later");
        assert_sound(&copied);
        let after = content(&copied.read().unwrap());
        drop((db, view, copied));

        let again = place.open();
        assert_sound(&again);
        assert!(content(&again.read().unwrap()) == after, "fill {fill}");
    }
}

#[test]
fn a_copy_given_up_changes_nothing() {
    let place = Place::new();
    let db = filled(&place);
    let before = place.bytes();
    let failed = db.compact(0.9, &|| false).unwrap_err();
    assert!(matches!(failed, CompactError::Untouched(BoltError::Interrupted { .. })), "{failed}");
    assert!(place.bytes() == before);
    assert_eq!(std::fs::read_dir(place.path.parent().unwrap()).unwrap().count(), 1);
    put_all(&db, b"small", [(&b"b"[..], &b"2"[..])]);
    assert_sound(&db);
}

#[test]
fn opening_removes_what_a_crash_left_of_a_copy() {
    let place = Place::new();
    drop(filled(&place));
    let leftover = place.path.with_extension("tmp");
    std::fs::write(&leftover, b"half a copy").unwrap();
    assert_sound(&place.open());
    assert!(!leftover.exists());
}

#[test]
fn a_copy_is_locked_before_it_has_its_name() {
    let place = Place::new();
    let db = filled(&place);
    let copied = db.compact(0.9, &|| true).unwrap();
    drop(db);
    let file = RealDisk.open(&place.path, OpenMode::ReadWrite).unwrap();
    assert!(!file.try_lock_exclusive().unwrap());
    drop(copied);
    assert!(file.try_lock_exclusive().unwrap());
}
