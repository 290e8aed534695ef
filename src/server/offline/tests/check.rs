//! What check, inspect and status tell.

use super::*;
use crate::mvcc::Revision;

#[test]
fn a_sound_file_is_told_to_be_one_and_is_not_changed() {
    for cleanly in [true, false] {
        let dir = place();
        let path = sample(dir.path(), cleanly);
        let before = std::fs::read(&path).unwrap();
        let checked = check_file(&disk(), &path).unwrap();
        assert_eq!((checked.findings_total, &checked.findings[..], checked.has_hash), (0, &[][..], false));
        assert!(checked.pairs > 900);
        snapshot_status(&disk(), &path).unwrap();
        inspect_file(&disk(), &path, 3, 2).unwrap();
        assert!(std::fs::read(&path).unwrap() == before, "looking changes nothing");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "and leaves nothing behind");
    }
}

#[test]
fn a_file_in_use_is_refused() {
    let dir = place();
    let path = sample(dir.path(), true);
    let store = open(&path).unwrap();
    let error = check_file(&disk(), &path).unwrap_err();
    assert!(matches!(error, OfflineError::InUse { .. }) && !error.is_damage());
    assert!(error.to_string().contains("revgate snapshot save"), "{error}");
    drop(store);
    check_file(&disk(), &path).unwrap();
    let looking = Db::open_read_only(&disk(), &path).unwrap();
    check_file(&disk(), &path).expect("two may look at once");
    assert!(open(&path).unwrap_err().contains("in use"), "but nobody writes meanwhile");
    drop(looking);
    open(&path).unwrap();
}

#[test]
fn status_counts_what_exists() {
    let dir = place();
    let path = sample(dir.path(), true);
    let status = snapshot_status(&disk(), &path).unwrap();
    let (store, _) = open(&path).unwrap();
    let mut cursor = store.range(&crate::mvcc::RangeQuery::all(everything())).unwrap();
    let mut keys = 0;
    while cursor.next_chunk(1000, &mut |_| keys += 1).unwrap() {}
    assert_eq!((status.file.revision, status.file.total_keys), (store.revision(), keys));
    assert_eq!((&status.file.version[..], status.has_hash), ("3.7.0", false));
}

#[test]
fn a_hash_at_the_end_must_be_right() {
    let dir = place();
    let path = sample(dir.path(), true);
    let mut bytes = with_hash(&path);
    std::fs::write(&path, &bytes).unwrap();
    assert!(snapshot_status(&disk(), &path).unwrap().has_hash && check_file(&disk(), &path).unwrap().has_hash);
    // In the middle of the large value: nothing of the structure.
    let at = bytes.windows(9).position(|window| window == b"zzzzzzzzz").unwrap();
    bytes[at + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = snapshot_status(&disk(), &path).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("SHA-256"), "{error}");
    let checked = check_file(&disk(), &path).unwrap();
    assert_eq!((checked.findings_total, checked.findings[0].page), (1, None));
    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    assert!(matches!(check_file(&disk(), &path).unwrap_err(), OfflineError::OddLength { .. }));
}

#[test]
fn what_is_damaged_is_named_by_page_and_keys() {
    let dir = place();
    let path = sample(dir.path(), true);
    let good = std::fs::read(&path).unwrap();
    // A leaf of bucket `key`: the first page that holds a change made late.
    let name = Revision { main: 700, sub: 0 }.encode();
    let page = good.windows(17).position(|window| window == name).unwrap() / 4096;
    let mut bad = good.clone();
    bad[page * 4096 + 8] ^= 0x40;
    std::fs::write(&path, &bad).unwrap();
    let checked = check_file(&disk(), &path).unwrap();
    let finding = &checked.findings[0];
    assert_eq!(finding.page, Some(page as u64));
    let place = finding.place.clone().unwrap();
    assert_eq!(place.bucket, b"key");
    assert!(place.low.as_slice() <= &name[..] && place.high.is_none_or(|high| high.as_slice() > &name[..]));
    let error = inspect_file(&disk(), &path, 3, 2).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains(&format!("page {page}:")), "{error}");

    // A meta page that cannot be believed, while the other can.
    let mut bad = good.clone();
    bad[4096 + 20] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    assert_eq!(check_file(&disk(), &path).unwrap().findings[0].page, Some(1));
}

#[test]
fn records_that_make_no_history_are_found() {
    let dir = place();
    let path = sample(dir.path(), true);
    let db = Db::open(disk(), &path, &bolt::Options { map_bytes_max: 1 << 30 }).unwrap();
    let mut tx = db.write().unwrap();
    let pair = |key: &[u8], create: i64, modified: i64, version: i64| {
        crate::proto::mvccpb::KeyValue {
            key: Bytes::copy_from_slice(key),
            create_revision: create,
            mod_revision: modified,
            version,
            ..Default::default()
        }
        .encode_to_vec()
    };
    let name = |main: i64| Revision { main, sub: 0 }.encode();
    tx.put(buckets::KEY, &name(5000), &pair(b"new", 5000, 5000, 1)).unwrap();
    tx.put(buckets::KEY, &name(5003), &pair(b"new", 5000, 5003, 3)).unwrap();
    tx.put(buckets::KEY, &name(5002), &pair(b"other", 5002, 5009, 1)).unwrap();
    tx.put(buckets::KEY, &name(5004), b"\xff").unwrap();
    tx.put(buckets::KEY, &Revision { main: 5005, sub: 0 }.encode_tombstone(), &pair(b"new", 1, 5005, 1)).unwrap();
    tx.put(buckets::KEY, &name(5006), &pair(b"new", 5000, 5006, 4)).unwrap();
    tx.put(buckets::LEASE, &[0; 7], b"").unwrap();
    tx.put(buckets::AUTH_USERS, b"v", &authpb::User { name: "w".into(), ..Default::default() }.encode_to_vec())
        .unwrap();
    tx.put(buckets::MEMBERS, b"8", b"{}").unwrap();
    tx.put(buckets::ALARM, &alarm_key(), b"").unwrap();
    tx.put(buckets::META, b"finishedCompactRev", &name(900)).unwrap();
    tx.commit().unwrap();
    db.close().unwrap();
    let checked = check_file(&disk(), &path).unwrap();
    let told: Vec<&str> = checked.findings.iter().map(|finding| &finding.what[..]).collect();
    for expected in [
        "has version 3 since revision 5000, before it had version 1",
        "says it is of revision 5009",
        "revision 5004.0",
        "a deletion holds more than its key",
        "was deleted before, but has version 4",
        "is not 8 bytes long",
        "it names another",
        "members bucket",
        "the compaction at 900 is finished",
    ] {
        assert_eq!(told.iter().filter(|what| what.contains(expected)).count(), 1, "{expected}: {told:#?}");
    }
    assert_eq!(checked.findings_total, 9, "{told:#?}");
    assert!(checked.findings.iter().filter(|finding| finding.page.is_none()).count() == 1);
}

#[test]
fn a_bucket_whose_name_was_damaged_is_not_replaced_by_an_empty_one() {
    let dir = place();
    let path = sample(dir.path(), true);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|window| window == b"lease").unwrap();
    bytes[at + 3] ^= 2;
    std::fs::write(&path, &bytes).unwrap();
    let checked = check_file(&disk(), &path).unwrap();
    assert_eq!(checked.findings[0].page, Some(at as u64 / 4096));
    let error = open(&path).unwrap_err();
    assert!(error.contains("bucket leaqe is unknown, and bucket lease is missing (page "), "{error}");
}

#[test]
fn inspect_adds_up() {
    let dir = place();
    let path = sample(dir.path(), true);
    let inspected = inspect_file(&disk(), &path, 3, 2).unwrap();
    let pages = &inspected.pages;
    let all = pages.meta_pages + pages.branch_pages + pages.leaf_pages + pages.overflow_pages;
    assert_eq!(all + pages.freelist_pages + pages.free_pages, pages.pages);
    assert_eq!(pages.file_bytes, std::fs::metadata(&path).unwrap().len());
    let keys = pages.buckets.iter().find(|bucket| bucket.name == b"key").unwrap();
    assert_eq!((keys.depth_levels, keys.overflow_pages >= 4), (2, true));
    assert!(pages.buckets.iter().any(|bucket| bucket.name == b"auth" && bucket.depth_levels == 0 && bucket.keys == 2));
    assert_eq!((&inspected.keys[0].key[..], inspected.keys[0].revisions), (&key(KEYS)[..], 1));
    assert_eq!(inspected.newest[0].newest_value_bytes, 20_000);
    assert_eq!(inspected.prefixes[0].prefix, b"/registry/0/");
    assert_eq!(inspected.prefixes.len(), 3);
    assert_eq!(inspected.prefixes.iter().map(|prefix| prefix.revisions).sum::<u64>(), keys.keys);
    assert_eq!(inspected.forgotten_bytes, 0);
}
