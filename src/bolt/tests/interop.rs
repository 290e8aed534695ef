//! Against the real bbolt: it accepts our files and sees the same pairs, and we accept its.
//!
//! Needs the Go program of `tests/interop/bolt`, which is not built by cargo:
//! `(cd tests/interop/bolt && go build -o ../../../target/interop-bolt .)`, then
//! `REVGATE_INTEROP_BOLT=$PWD/target/interop-bolt cargo test --lib bolt::tests::interop -- --ignored`.

use std::process::Command;

use super::*;

fn bbolt(command: &str, path: &Path) -> String {
    let program = std::env::var_os("REVGATE_INTEROP_BOLT").expect("REVGATE_INTEROP_BOLT names the built Go program");
    let output = Command::new(program).arg(command).arg(path).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same lines as the Go program's `dump`.
fn dump(db: &Db) -> String {
    fn add(lines: &mut String, path: &str, bucket: Bucket<'_>) {
        let mut cursor = bucket.cursor();
        while let Some((key, value)) = cursor.next().unwrap() {
            if cursor.is_bucket() {
                let separator = if path.is_empty() { "" } else { "/" };
                let path = format!("{path}{separator}{}", hex(key));
                lines.push_str(&format!("{path}\n"));
                add(lines, &path, bucket.bucket(key).unwrap().unwrap());
            } else {
                lines.push_str(&format!("{path} {} {}\n", hex(key), hex(value)));
            }
        }
    }
    let mut lines = String::new();
    add(&mut lines, "", db.read().unwrap().root());
    lines
}

/// Closes the file, has bbolt look at it, and opens it again.
fn shown_to_bbolt(place: &Place, db: Db, cleanly: bool) -> Db {
    assert_sound(&db);
    let ours = dump(&db);
    if cleanly {
        db.close().unwrap()
    } else {
        drop(db)
    }
    bbolt("check", &place.path);
    assert!(bbolt("dump", &place.path) == ours, "bbolt sees the same pairs");
    let db = place.open();
    assert_sound(&db);
    db
}

fn churn(db: &Db, round: u64) {
    let mut tx = db.write().unwrap();
    for name in [&b"key"[..], b"small", b"empty"] {
        tx.create_bucket_if_missing(name).unwrap();
    }
    tx.set_fill_percent(b"key", 0.9).unwrap();
    for number in 0..2000 {
        let key = number_key(number * (round + 1) % 5000);
        match (number + round) % 5 {
            0 => tx.delete(b"key", &key).unwrap(),
            4 if number % 90 == 0 => tx.put(b"key", &key, &vec![number as u8; 100 << 10]).unwrap(),
            _ => tx.put(b"key", &key, &vec![round as u8; (number % 300) as usize]).unwrap(),
        }
    }
    tx.put(b"small", &number_key(round), b"inline").unwrap();
    tx.commit().unwrap();
}

#[test]
#[ignore = "needs the Go program of tests/interop/bolt"]
fn bbolt_accepts_our_files() {
    let place = Place::new();
    let mut db = place.open();
    db = shown_to_bbolt(&place, db, false);
    for round in 0..12 {
        churn(&db, round);
        churn(&db, round + 100);
        db = shown_to_bbolt(&place, db, round % 2 == 0);
        // Between two steps, too, and after the last.
        let mut reclaim = Reclaim::new(ReclaimLimits { step_pages_max: 100, ..ReclaimLimits::default() });
        for step in 0.. {
            if db.reclaim_step(&mut reclaim).unwrap().progress != ReclaimProgress::More {
                break;
            }
            if step % 16 == round {
                db = shown_to_bbolt(&place, db, step % 2 == 0);
            }
        }
        db = shown_to_bbolt(&place, db, round % 3 == 0);
    }
    let mut tx = db.write().unwrap();
    for number in 100..5000 {
        tx.delete(b"key", &number_key(number)).unwrap();
    }
    tx.commit().unwrap();
    db = shown_to_bbolt(&place, db, true);
    let mut tx = db.write().unwrap();
    for number in 0..100 {
        tx.delete(b"key", &number_key(number)).unwrap();
    }
    tx.commit().unwrap();
    shown_to_bbolt(&place, db, false);
}

#[test]
#[ignore = "needs the Go program of tests/interop/bolt"]
fn bbolt_and_we_take_turns_on_one_file() {
    let place = Place::new();
    bbolt("make", &place.path);
    let mut db = place.open();
    assert_sound(&db);
    let nest = |db: &Db| dump(db).lines().filter(|line| line.starts_with(&hex(b"nest"))).count();
    assert_eq!(nest(&db), 1 + 1 + 1 + 1 + 500 + 1);
    for round in 0..6 {
        db = shown_to_bbolt(&place, db, round % 2 == 0);
        churn(&db, round);
        let mut tx = db.write().unwrap();
        tx.put(b"nest", b"plain", &number_key(round)).unwrap();
        assert!(matches!(tx.put(b"nest", b"paged", b""), Err(BoltError::IncompatibleValue { .. })));
        assert!(matches!(tx.delete(b"nest", b"inline"), Err(BoltError::IncompatibleValue { .. })));
        assert_eq!(tx.get(b"nest", b"inline").unwrap(), None);
        tx.commit().unwrap();
        db = shown_to_bbolt(&place, db, round % 3 == 0);
        drop(db);
        bbolt("touch", &place.path);
        db = place.open();
        assert_sound(&db);
        assert_eq!(nest(&db), 505);
    }
}
