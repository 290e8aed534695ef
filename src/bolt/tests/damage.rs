//! Files that are not what they should be: an error at worst, never a panic, never a wrong fallback.

use super::*;

/// A file with a branch, overflow pages, an inline bucket, free pages and, if closed, a freelist.
fn sample(cleanly: bool) -> Vec<u8> {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<[u8; 8]> = (0..150).map(number_key).collect();
    put_same(&db, b"large", &keys, &[5; 100]);
    put_all(&db, b"large", [(&number_key(77)[..], &[6; 9000][..])]);
    put_all(&db, b"small", [(&b"a"[..], &b"1"[..]), (&b"b"[..], &b"2"[..])]);
    if cleanly {
        db.close().unwrap()
    } else {
        drop(db)
    }
    place.bytes()
}

/// Everything one can do to a file, with errors allowed.
fn exercise(place: &Place) -> Result<(), BoltError> {
    let db = place.try_open()?;
    let _ = db.check();
    let read = db.read()?;
    for name in [&b"large"[..], b"small"] {
        let Ok(Some(bucket)) = read.bucket(name) else { continue };
        let (mut cursor, mut steps) = (bucket.cursor(), 0);
        while let Ok(Some(_)) = cursor.next() {
            steps += 1;
            assert!(steps < 10_000, "a walk through a damaged tree ends");
        }
        if let Err(error) = cursor.next() {
            assert_eq!(cursor.prev().unwrap_err().to_string(), error.to_string(), "a broken cursor stays broken");
        }
        let mut cursor = bucket.cursor();
        let _ = cursor.last();
        while let Ok(Some(_)) = cursor.prev() {}
        look_up_together(&bucket);
        for number in (0..150).step_by(10) {
            let _ = bucket.get(&number_key(number));
            let _ = bucket.cursor().seek(&number_key(number));
        }
    }
    let mut tx = db.write()?;
    for number in (0..150).step_by(3) {
        let _ = tx.delete(b"large", &number_key(number));
        let _ = tx.put(b"large", &number_key(number + 1), &[1; 500]);
    }
    let _ = tx.put(b"small", b"c", b"3");
    tx.commit()?;
    db.close()
}

/// What look-ups together find is what single ones find, or better.
fn look_up_together(bucket: &Bucket<'_>) {
    let keys: Vec<[u8; 8]> = (0..150).map(number_key).collect();
    let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let Ok(found) = bucket.get_each(&asked) else { return };
    for ((number, key), found) in asked.iter().enumerate().zip(found) {
        let stored = if number == 77 { &[6; 9000][..] } else { &[5; 100] };
        assert!(found == Some(stored) || Ok(found) == bucket.get(key).map_err(|_| ()), "key {number}");
    }
}

#[test]
fn flipped_bits_do_no_worse_than_errors() {
    let place = Place::new();
    for cleanly in [false, true] {
        let good = sample(cleanly);
        std::fs::write(&place.path, &good).unwrap();
        exercise(&place).unwrap();
        // Where the structure is: headers and elements at the beginning of each page; some bits of it.
        let places = (0..good.len()).filter(|at| at % 4096 < 120).flat_map(|at| (0..8).map(move |bit| (at, bit)));
        for (at, bit) in places.step_by(97) {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            std::fs::write(&place.path, &bad).unwrap();
            let _ = exercise(&place);
        }
    }
}

#[test]
fn a_tree_that_leads_in_circles_is_an_error_not_an_endless_walk() {
    let place = Place::new();
    let good = sample(true);
    std::fs::write(&place.path, &good).unwrap();
    let branch = root_page(&place.open().read().unwrap(), b"large") as usize * 4096;
    let child = |index: usize| branch + 16 + 16 * index + 8;
    let own = (branch as u64 / 4096).to_le_bytes();
    let first: [u8; 8] = good[child(0)..child(0) + 8].try_into().unwrap();
    for (twisted, what) in [(first, "the branch above says"), (own, "levels deep")] {
        let mut bad = good.clone();
        bad[child(1)..child(1) + 8].copy_from_slice(&twisted);
        bad[child(0)..child(0) + 8].copy_from_slice(if what == "levels deep" { &own } else { &first });
        std::fs::write(&place.path, &bad).unwrap();
        let db = place.open();
        let read = db.read().unwrap();
        let mut cursor = read.bucket(b"large").unwrap().unwrap().cursor();
        let error = std::iter::repeat_with(|| cursor.next()).take(1000).find_map(Result::err).unwrap().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(cursor.first().unwrap_err().to_string(), error);
        assert!(!db.check().unwrap().is_empty());
    }
}

#[test]
fn a_cut_file_is_refused_by_name_and_size() {
    let place = Place::new();
    let good = sample(false);
    let db_bytes = {
        std::fs::write(&place.path, &good).unwrap();
        place.open().inner.view.lock().meta.used_bytes()
    };
    for keep in (0..db_bytes).step_by(1000) {
        std::fs::write(&place.path, &good[..keep as usize]).unwrap();
        let error = place.try_open().unwrap_err();
        match error {
            BoltError::TooShort { file_bytes, needed_bytes, .. } => {
                assert_eq!((file_bytes, needed_bytes), (keep, db_bytes));
            }
            BoltError::BothMetasBad { .. } => assert!(keep < 80, "{keep}"),
            other => panic!("{keep}: {other}"),
        }
    }
}

#[test]
fn a_damaged_meta_page_falls_back_to_the_commit_before() {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<[u8; 8]> = (0..100).map(number_key).collect();
    for fill in 1..=6u8 {
        put_same(&db, b"b", &keys, &[fill; 100]);
    }
    let last = db.read().unwrap().txid();
    drop(db);
    let good = place.bytes();
    for at in [16, 40, 72] {
        let mut bad = good.clone();
        bad[(last % 2) as usize * 4096 + at] ^= 0x10;
        std::fs::write(&place.path, &bad).unwrap();
        let db = place.open();
        assert_eq!(db.read().unwrap().txid(), last - 1);
        assert_sound(&db);
        assert!(pairs(&db.read().unwrap(), b"b").iter().all(|(_, value)| value[..] == [5; 100]));
        put_same(&db, b"b", &keys, &[9; 100]);
        drop(db);
        let db = place.open();
        assert_eq!(db.read().unwrap().txid(), last);
        assert_sound(&db);
    }
}

#[test]
fn two_damaged_meta_pages_are_refused_with_reasons() {
    let place = Place::new();
    let mut bytes = sample(false);
    bytes[16] = 0;
    bytes[4096 + 20] = 9;
    std::fs::write(&place.path, &bytes).unwrap();
    let text = place.try_open().unwrap_err().to_string();
    assert!(text.starts_with(&format!("{}: both meta pages are damaged", place.path.display())), "{text}");
    assert!(text.contains("first, at byte 0: magic is 0xed0cda00, not 0xed0cdaed"), "{text}");
    assert!(text.contains("second, at byte 4096: format version is 9, not 2"), "{text}");
    assert!(text.contains("restore the file from a snapshot"), "{text}");
}

#[test]
fn other_page_sizes_are_found_by_either_meta_page() {
    for page_bytes in [1024u32, 8192, 65536] {
        let place = Place::new();
        let mut bytes = empty_file(page_bytes);
        bytes[20] ^= 1;
        std::fs::write(&place.path, &bytes).unwrap();
        let keys: Vec<[u8; 8]> = (0..500).map(number_key).collect();
        let db = place.open();
        put_all(&db, b"b", keys.iter().map(|key| (&key[..], &key[..])));
        assert_sound(&db);
        db.close().unwrap();
        let db = place.open();
        assert_sound(&db);
        assert_eq!(pairs(&db.read().unwrap(), b"b").len(), 500);
    }
}
