//! The bytes in the file, worked out by hand from the format.

use super::*;

fn u64s(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn header(id: u64, flags: u16, count: u16, overflow: u32) -> Vec<u8> {
    [id.to_le_bytes().to_vec(), flags.to_le_bytes().to_vec(), count.to_le_bytes().to_vec(), u32s(&[overflow])].concat()
}

fn meta_page(slot: u64, root: u64, freelist: u64, high_water: u64, txid: u64, checksum: u64) -> Vec<u8> {
    let mut page = header(slot, 4, 0, 0);
    page.extend(u32s(&[0xED0C_DAED, 2, 4096, 0]));
    page.extend(u64s(&[root, 0, freelist, high_water, txid, checksum]));
    page.resize(4096, 0);
    page
}

fn page(parts: &[&[u8]]) -> Vec<u8> {
    let mut page = parts.concat();
    page.resize(4096, 0);
    page
}

fn checksum(page: &[u8]) -> u64 {
    let fold = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    page[16..72].iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

fn summed(page: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&page).to_le_bytes();
    [&page[..72], &sum, &page[80..]].concat()
}

#[test]
fn a_fresh_file() {
    let place = Place::new();
    drop(place.open());
    let expected = [
        summed(meta_page(0, 3, 2, 4, 0, 0)),
        summed(meta_page(1, 3, 2, 4, 1, 0)),
        page(&[&header(2, 0x10, 0, 0)]),
        page(&[&header(3, 2, 0, 0)]),
    ];
    assert_eq!(place.bytes(), expected.concat());
}

#[test]
fn one_put_makes_an_inline_bucket() {
    let place = Place::new();
    put_all(&place.open(), b"key", [(&b"foo"[..], &b"barbaz"[..])]);
    let bytes = place.bytes();
    // The root leaf: one element, a bucket, whose data follows it at once.
    let inline = [header(0, 2, 1, 0), u32s(&[0, 16, 3, 6]), b"foobarbaz".to_vec()].concat();
    assert_eq!(inline.len(), 41);
    let root = page(&[&header(4, 2, 1, 0), &u32s(&[1, 16, 3, 16 + 41]), b"key", &u64s(&[0, 0]), &inline]);
    assert_eq!(bytes[4 * 4096..5 * 4096], root);
    assert_eq!(bytes[..4096], summed(meta_page(0, 4, u64::MAX, 5, 2, 0)));
    assert_eq!(bytes[4096..8192], summed(meta_page(1, 3, 2, 4, 1, 0)), "the commit before is as it was");
}

#[test]
fn a_large_bucket_is_a_branch_above_leaves() {
    let place = Place::new();
    let value = [7; 1500];
    put_all(&place.open(), b"b", [&b"k1"[..], b"k2", b"k3", b"k4", b"k5"].map(|key| (key, &value[..])));
    let bytes = place.bytes();
    // Half a page is filled by two elements, and no page has fewer: 2 + 3, the second of them on two pages.
    let leaf = &bytes[4 * 4096..];
    assert_eq!(leaf[..16], header(4, 2, 2, 0));
    assert_eq!(leaf[16..48], u32s(&[0, 32, 2, 1500, 0, 16 + 1502, 2, 1500]));
    assert_eq!(leaf[48..52], *b"k1\x07\x07");
    assert_eq!(bytes[5 * 4096..5 * 4096 + 16], header(5, 2, 3, 1));
    let branch = [header(7, 1, 2, 0), u32s(&[32, 2]), u64s(&[4]), u32s(&[18, 2]), u64s(&[5]), b"k1k3".to_vec()];
    assert_eq!(bytes[7 * 4096..8 * 4096], page(&[&branch.concat()]));
    assert_eq!(bytes[8 * 4096..9 * 4096], page(&[&header(8, 2, 1, 0), &u32s(&[1, 16, 1, 16]), b"b", &u64s(&[7, 0])]));
}

#[test]
fn closing_writes_the_freelist() {
    let place = Place::new();
    let db = place.open();
    put_all(&db, b"b", [(&b"k"[..], &b"v"[..])]);
    db.close().unwrap();
    let bytes = place.bytes();
    // Page 4 is the root; the old freelist (2) and root (3) are free. The list takes page 2 itself, 3 remains.
    assert_eq!(bytes[4096..8192], summed(meta_page(1, 4, 2, 5, 3, 0)));
    assert_eq!(bytes[2 * 4096..3 * 4096], page(&[&header(2, 0x10, 1, 0), &u64s(&[3])]));
    let db = place.open();
    assert_sound(&db);
    assert_eq!(db.size_in_use_bytes(), 4 * 4096);
    put_all(&db, b"b", [(&b"k"[..], &b"w"[..])]);
    assert_sound(&db);
    let again = place.bytes();
    assert_eq!(again[..4096], summed(meta_page(0, 3, u64::MAX, 5, 4, 0)));
}

#[test]
fn a_freelist_that_cannot_be_true_is_refused() {
    let place = Place::new();
    let db = place.open();
    put_all(&db, b"b", [(&b"k"[..], &b"v"[..])]);
    db.close().unwrap();
    let good = place.bytes();
    for (page, what) in [(4, "lists page 4 as free"), (2, "lists page 2 as free"), (1, "lists page 1"), (5, "page 5")] {
        let mut bad = good.clone();
        bad[2 * 4096 + 16] = page;
        std::fs::write(&place.path, &bad).unwrap();
        let error = place.try_open().unwrap_err().to_string();
        assert!(error.contains("page 2: ") && error.contains(what), "{error}");
    }
}

#[test]
fn nested_buckets_and_sequences_are_kept() {
    // Root (3): bucket "a", sequence 5, in page 4. Page 4: bucket "n", sequence 6, inline with x = y; and p = q.
    let inner = [header(0, 2, 1, 0), u32s(&[0, 16, 1, 1]), b"xy".to_vec()].concat();
    let nested = [u64s(&[0, 6]), inner].concat();
    let root = page(&[&header(3, 2, 1, 0), &u32s(&[1, 16, 1, 16]), b"a", &u64s(&[4, 5])]);
    let elements = u32s(&[1, 32, 1, nested.len() as u32, 0, 16 + 1 + nested.len() as u32, 1, 1]);
    let leaf = page(&[&header(4, 2, 2, 0), &elements, b"n", &nested, b"pq"]);
    let meta = |txid| summed(meta_page(txid, 3, u64::MAX, 5, txid, 0));
    let place = Place::new();
    std::fs::write(&place.path, [meta(0), meta(1), page(&[]), root, leaf].concat()).unwrap();
    let db = place.open();
    for value in [&b"q"[..], b"Q"] {
        assert_sound(&db);
        let read = db.read().unwrap();
        let outer = read.bucket(b"a").unwrap().unwrap();
        assert_eq!(outer.get(b"p").unwrap(), Some(value));
        assert_eq!(outer.get(b"n").unwrap(), None);
        assert_eq!(outer.bucket(b"n").unwrap().unwrap().get(b"x").unwrap(), Some(&b"y"[..]));
        assert_eq!(pairs(&read, b"a"), [(b"n".to_vec(), vec![]), (b"p".to_vec(), value.to_vec())]);
        put_all(&db, b"a", [(&b"p"[..], &b"Q"[..])]);
    }
    let (bytes, last) = (place.bytes(), db.inner.view.lock().meta.root as usize);
    assert_eq!(bytes[last * 4096 + 33 + 8..last * 4096 + 33 + 16], 5u64.to_le_bytes());
    assert!(bytes.windows(nested.len()).filter(|window| *window == nested).count() > 1, "copied as it was");

    // It moves with the leaf it lies in.
    put_all(&db, b"a", [(&b"large"[..], &[0; 100 << 10][..])]);
    put_all(&db, b"a", [(&b"large"[..], &b""[..])]);
    let mut reclaim = Reclaim::new(ReclaimLimits::default());
    while db.reclaim_step(&mut reclaim).unwrap().progress == ReclaimProgress::More {}
    assert_sound(&db);
    let read = db.read().unwrap();
    let outer = read.bucket(b"a").unwrap().unwrap();
    assert_eq!(outer.get(b"p").unwrap(), Some(&b"Q"[..]));
    assert_eq!(outer.bucket(b"n").unwrap().unwrap().get(b"x").unwrap(), Some(&b"y"[..]));
}

#[test]
fn a_freelist_longer_than_its_count_can_say() {
    let place = Place::new();
    std::fs::write(&place.path, empty_file(1024)).unwrap();
    let db = place.open();
    let large = vec![1; 70 << 20];
    put_all(&db, b"b", [(&b"k"[..], &large[..])]);
    put_all(&db, b"b", [(&b"k"[..], &b"small"[..])]);
    let in_use = db.size_in_use_bytes();
    assert!(in_use < 10 * 1024, "{in_use}");
    db.close().unwrap();
    let db = place.open();
    assert_sound(&db);
    // 71,681 page numbers and more of 8 bytes take 561 pages.
    assert_eq!(db.size_in_use_bytes(), in_use + 561 * 1024);
}
