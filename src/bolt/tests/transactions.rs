//! Buckets, views, reuse of pages, limits.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn inline_buckets_are_read_and_grow_out_of_their_value() {
    let place = Place::new();
    let db = place.open();
    put_all(&db, b"small", [(&b"a"[..], &b"1"[..])]);
    let before = db.size_in_use_bytes();
    let read = db.read().unwrap();
    assert_eq!(read.bucket(b"small").unwrap().unwrap().get(b"a").unwrap(), Some(&b"1"[..]));
    // 1024 bytes are a quarter of a page: header 16, elements 2 * 16, keys 2, values 1 + 973.
    put_all(&db, b"small", [(&b"b"[..], &[2; 973][..])]);
    assert_eq!(db.size_in_use_bytes(), before, "still inline");
    put_all(&db, b"small", [(&b"b"[..], &[2; 974][..])]);
    assert_eq!(db.size_in_use_bytes(), before + 4096, "has a page of its own");
    put_all(&db, b"small", [(&b"b"[..], &b"2"[..])]);
    assert_eq!(db.size_in_use_bytes(), before, "inline again");
    assert_sound(&db);
    assert_eq!(pairs(&read, b"small"), [(b"a".to_vec(), b"1".to_vec())]);
    assert_eq!(pairs(&db.read().unwrap(), b"small"), [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
}

#[test]
fn large_values_overflow_into_neighbouring_pages() {
    let place = Place::new();
    let db = place.open();
    let values: Vec<Vec<u8>> = (0..9u8).map(|fill| vec![fill; 100 << 10]).collect();
    put_all(&db, b"b", values.iter().map(|value| (&value[..1], &value[..])));
    assert_sound(&db);
    let read = db.read().unwrap();
    assert!(pairs(&read, b"b").iter().zip(&values).all(|((_, found), value)| found == value));
    let mut tx = db.write().unwrap();
    for key in 1..9u8 {
        tx.delete(b"b", &[key]).unwrap();
    }
    tx.commit().unwrap();
    drop(read);
    assert_sound(&db);
    let size = db.size_bytes();
    put_all(&db, b"b", values[1..8].iter().map(|value| (&value[..1], &value[..])));
    assert_eq!(db.size_bytes(), size, "room of deleted values is used again");
    drop(db);
    let db = place.open();
    assert_sound(&db);
    assert_eq!(pairs(&db.read().unwrap(), b"b").len(), 8);
}

#[test]
fn looking_up_together_finds_what_one_after_the_other_does() {
    let place = Place::new();
    let db = place.open();
    put_all(&db, b"inline", [(&number_key(3)[..], &b"x"[..])]);
    put_all(&db, b"empty", [(&b"a"[..], &b""[..])]);
    let keys: Vec<[u8; 8]> = (0..5_000).map(|number| number_key(number * 2)).collect();
    put_same(&db, b"large", &keys, &[5; 100]);
    put_all(&db, b"large", [(&number_key(77)[..], &[6; 9000][..])]);
    let read = db.read().unwrap();
    let asked: Vec<[u8; 8]> =
        (0..300).map(|number: u64| number_key(number * 7_919 % 10_100)).chain([number_key(77)]).collect();
    let asked: Vec<&[u8]> = asked.iter().map(|key| key.as_slice()).chain([&b""[..], b"\xff"]).collect();
    for bucket in [&b"large"[..], b"inline", b"empty"] {
        let bucket = read.bucket(bucket).unwrap().unwrap();
        let one_by_one: Vec<_> = asked.iter().map(|key| bucket.get(key).unwrap()).collect();
        assert_eq!(bucket.get_each(&asked).unwrap(), one_by_one);
        assert_eq!(bucket.get_each(&[]).unwrap(), Vec::<Option<&[u8]>>::new());
    }
    // Names of buckets have no values.
    assert_eq!(read.root().get_each(&[b"large", b"none"]).unwrap(), [None, None]);
}

#[test]
fn a_reader_keeps_its_view_while_a_writer_goes_on() {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<[u8; 8]> = (0..200).map(number_key).collect();
    put_same(&db, b"b", &keys, &[0; 100]);
    let old = db.read().unwrap();
    let before = pairs(&old, b"b");
    for round in 1..100u8 {
        put_same(&db, b"b", &keys, &[round; 100]);
        assert_eq!(db.open_reads(), 1);
    }
    assert_eq!(pairs(&old, b"b"), before);
    assert!(pairs(&db.read().unwrap(), b"b").iter().all(|(_, value)| value[..] == [99; 100]));
    assert_sound(&db);
    drop(db);
    let elsewhere = std::thread::spawn(move || pairs(&old, b"b"));
    assert_eq!(elsewhere.join().unwrap(), before, "a view outlives the handle and moves between threads");
}

#[test]
fn readers_and_a_writer_at_once_see_whole_commits() {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<[u8; 8]> = (0..60).map(number_key).collect();
    put_same(&db, b"b", &keys, &[0; 300]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let found = pairs(&db.read().unwrap(), b"b");
                    assert_eq!(found.len(), 60);
                    assert!(found.iter().all(|(_, value)| *value == found[0].1));
                }
            });
        }
        for round in 1..=60u8 {
            put_same(&db, b"b", &keys, &[round; 300]);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.open_reads(), 0);
    assert_sound(&db);
}

#[test]
fn overwriting_does_not_make_the_file_grow() {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<[u8; 8]> = (0..100).map(number_key).collect();
    let overwrite = |fill: u8| put_same(&db, b"b", &keys, &[fill; 200]);
    (0..4).for_each(overwrite);
    let size = db.size_bytes();
    let high_water = db.inner.view.lock().meta.high_water;
    (4..100).for_each(overwrite);
    assert_eq!(db.size_bytes(), size);
    assert_eq!(db.inner.view.lock().meta.high_water, high_water);
    assert_sound(&db);
}

#[test]
fn a_tree_that_loses_its_keys_loses_its_levels() {
    let place = Place::new();
    let db = place.open();
    // At most twelve keys to a page, so 2000 of them make four levels; at least four to one that is not merged.
    let key = |number: u64| [&number_key(number)[..], &[b'.'; 300]].concat();
    let depth = || {
        let (read, mut levels) = (db.read().unwrap(), 1);
        let pages = read.pages();
        let mut page = pages.page(root_page(&read, b"b")).unwrap();
        while !page.is_leaf {
            page = pages.page(page.child(0)).unwrap();
            levels += 1;
        }
        levels
    };
    let keys: Vec<Vec<u8>> = (0..2000).map(key).collect();
    put_all(&db, b"b", keys.iter().map(|key| (&key[..], &b"v"[..])));
    assert!(depth() >= 4, "{} levels", depth());
    for round in 1..10u64 {
        let mut tx = db.write().unwrap();
        (0..2000).filter(|n| n % 100 != 0 && n % 9 == round - 1).for_each(|n| tx.delete(b"b", &key(n)).unwrap());
        tx.commit().unwrap();
        assert_sound(&db);
    }
    assert_eq!(pairs(&db.read().unwrap(), b"b").len(), 20);
    assert_eq!(depth(), 2);
    // At worst a page for every four keys, the branch above them, the root of buckets, and the two meta pages.
    assert!(db.size_in_use_bytes() <= 9 * 4096, "{} pages in use", db.size_in_use_bytes() / 4096);
}

#[test]
fn a_transaction_that_is_dropped_leaves_no_trace() {
    let place = Place::new();
    let db = place.open();
    put_all(&db, b"b", [(&b"k"[..], &b"v"[..])]);
    let before = place.bytes();
    let mut tx = db.write().unwrap();
    tx.put(b"b", b"k", b"other").unwrap();
    tx.create_bucket_if_missing(b"c").unwrap();
    tx.put(b"c", b"k", &[1; 10_000]).unwrap();
    assert_eq!(tx.get(b"b", b"k").unwrap(), Some(b"other".to_vec()));
    drop(tx);
    assert_eq!(place.bytes(), before);
    let read = db.read().unwrap();
    assert_eq!(pairs(&read, b"b"), [(b"k".to_vec(), b"v".to_vec())]);
    assert!(read.bucket(b"c").unwrap().is_none());
    let txid = read.txid();
    db.write().unwrap().commit().unwrap();
    assert_eq!(db.read().unwrap().txid(), txid, "nothing to commit, nothing written");
}

#[test]
fn cursors_go_both_ways_and_stop_at_both_ends() {
    let place = Place::new();
    let db = place.open();
    let keys: Vec<[u8; 8]> = (1..=500).map(|n| number_key(2 * n)).collect();
    put_all(&db, b"b", keys.iter().map(|key| (&key[..], &key[..])));
    let read = db.read().unwrap();
    let mut cursor = read.bucket(b"b").unwrap().unwrap().cursor();
    let number = |pair: Result<Option<Pair<'_>>, BoltError>| {
        pair.unwrap().map(|(key, _)| u64::from_be_bytes(key.try_into().unwrap()))
    };
    assert_eq!(number(cursor.prev()), None);
    assert_eq!(number(cursor.next()), Some(2));
    assert_eq!(number(cursor.prev()), None);
    assert_eq!(number(cursor.next()), Some(2));
    assert_eq!(number(cursor.last()), Some(1000));
    assert_eq!(number(cursor.next()), None);
    assert_eq!(number(cursor.next()), None);
    assert_eq!(number(cursor.prev()), Some(1000));
    assert_eq!(number(cursor.seek(&number_key(1001))), None);
    assert_eq!(number(cursor.prev()), Some(1000));
    for n in 1..=500 {
        assert_eq!(number(cursor.seek(&number_key(2 * n - 1))), Some(2 * n));
        assert_eq!(number(cursor.seek(&number_key(2 * n))), Some(2 * n));
        assert_eq!(number(cursor.prev()), Some(2 * n - 2).filter(|&n| n > 0));
    }
    let backwards: Vec<u64> = std::iter::successors(number(cursor.last()), |_| number(cursor.prev())).collect();
    assert!(backwards.iter().copied().eq((1..=500).rev().map(|n| 2 * n)));
    put_all(&db, b"empty", []);
    let read = db.read().unwrap();
    let mut cursor = read.bucket(b"empty").unwrap().unwrap().cursor();
    assert_eq!(number(cursor.first()), None);
    assert_eq!(number(cursor.last()), None);
    assert_eq!(number(cursor.seek(b"x")), None);
    assert_eq!(number(cursor.next()), None);
}

#[test]
fn keys_and_values_beyond_the_format_are_refused() {
    let place = Place::new();
    let db = place.open();
    let mut tx = db.write().unwrap();
    assert!(matches!(tx.put(b"b", b"k", b""), Err(BoltError::BucketMissing { .. })));
    assert!(matches!(tx.get(b"b", b"k"), Err(BoltError::BucketMissing { .. })));
    assert!(matches!(tx.create_bucket_if_missing(b""), Err(BoltError::EmptyKey)));
    tx.create_bucket_if_missing(b"b").unwrap();
    assert!(matches!(tx.put(b"b", b"", b""), Err(BoltError::EmptyKey)));
    tx.put(b"b", &[1; KEY_BYTES_MAX], b"v").unwrap();
    let long = [1; KEY_BYTES_MAX + 1];
    assert!(matches!(tx.put(b"b", &long, b""), Err(BoltError::KeyTooLarge { bytes: 32_769 })));
    tx.commit().unwrap();
    assert_eq!(pairs(&db.read().unwrap(), b"b"), [(vec![1; KEY_BYTES_MAX], b"v".to_vec())]);
    assert_sound(&db);
}

#[test]
fn revisions_are_packed_at_the_fill_asked_for() {
    let place = Place::new();
    let db = place.open();
    let mut next = 0u64;
    for _ in 0..20 {
        let mut tx = db.write().unwrap();
        tx.create_bucket_if_missing(b"key").unwrap();
        tx.set_fill_percent(b"key", 0.9).unwrap();
        for _ in 0..500 {
            let key = [&next.to_be_bytes()[..], b"_", &0u64.to_be_bytes()].concat();
            tx.put(b"key", &key, &[1; 256]).unwrap();
            next += 1;
        }
        tx.commit().unwrap();
    }
    assert_sound(&db);
    // Twelve pairs of 289 bytes fill nine tenths of a page.
    let leaves = 10_000 / 12;
    let in_use = db.size_in_use_bytes() / 4096;
    assert!((leaves..leaves + 50).contains(&in_use), "{in_use} pages");
}

#[test]
fn a_file_is_locked_while_it_is_open() {
    let place = Place::new();
    let db = place.open();
    assert!(matches!(place.try_open(), Err(BoltError::Locked { .. })));
    let read = db.read().unwrap();
    drop(db);
    assert!(matches!(place.try_open(), Err(BoltError::Locked { .. })), "a view keeps the file open");
    drop(read);
    place.open();
}

#[test]
fn a_closed_file_is_unlocked_though_a_child_process_is_being_started() {
    let place = Place::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::process::Command::new("/bin/true").status().unwrap();
            }
        });
        let locked = (0..300).filter(|_| matches!(place.try_open(), Err(BoltError::Locked { .. }))).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(locked, 0);
    });
}

#[test]
fn sent_and_shared() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Db>();
    shared::<ReadTx>();
    shared::<BoltError>();
}
