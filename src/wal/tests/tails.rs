//! What a crash or a bad disk leaves at the end of a log, and in its middle.

use std::fs;

use proptest::prelude::*;

use super::*;

/// A log whose last record, an entry of `data_bytes`, begins at `begin` and ends at `end` of its only segment.
struct Log {
    temp: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

const OPTIONS: Options = Options { segment_bytes: 8192, ..SMALL };

fn reopen(dir: &Path) -> Result<(Wal, Recovered), WalError> {
    open_on(Arc::new(RealDisk), dir, 1, OPTIONS)
}

fn log(data_bytes: usize) -> Log {
    let temp = TempDir::new().unwrap();
    let (wal, _) = reopen(temp.path()).unwrap();
    append(&wal, vec![entry(1, "one"), Record::State(Bytes::from_static(b"vote")), entry(2, vec![2; 300])]).unwrap();
    let path = segments(temp.path())[0].path(temp.path());
    let begin = used_bytes(&fs::read(&path).unwrap()).next_multiple_of(8);
    append(&wal, vec![entry(3, vec![0xab; data_bytes])]).unwrap();
    wal.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 8192);
    let end = used_bytes(&bytes);
    Log { temp, path, bytes, begin, end }
}

/// Opens a torn log: the acknowledged records are there, it takes more, and the next opening is clean.
fn assert_recovers(log: &Log, found: &[u8], what: &str) {
    fs::write(&log.path, found).unwrap();
    let (wal, recovered) = reopen(log.temp.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(indexes(&recovered), [1, 2], "{what}");
    assert_eq!(recovered.state.as_deref(), Some(&b"vote"[..]));
    let torn = used_bytes(found) > log.begin;
    assert_eq!(recovered.repaired.is_some(), torn, "{what}");
    if let Some(tail) = recovered.repaired {
        assert_eq!((&tail.path, tail.offset), (&log.path, log.begin as u64));
        assert_eq!(fs::read(&tail.backup).unwrap(), found[..used_bytes(found)]);
    }
    let repaired = fs::read(&log.path).unwrap();
    assert_eq!(repaired.len(), 8192, "{what}");
    assert_eq!(used_bytes(&repaired), used_bytes(&log.bytes[..log.begin]), "{what}: old bytes are left");
    append(&wal, vec![entry(3, "new")]).unwrap();
    wal.close().unwrap();
    let (wal, recovered) = reopen(log.temp.path()).unwrap();
    assert_eq!((indexes(&recovered), recovered.repaired), (vec![1, 2, 3], None), "{what}");
    wal.close().unwrap();
}

#[test]
fn a_tail_missing_from_any_byte_on_is_cut_off() {
    let log = log(40);
    for cut in log.begin..log.end {
        let mut zeroed = log.bytes.clone();
        zeroed[cut..].fill(0);
        assert_recovers(&log, &zeroed, &format!("zeros from {cut}"));
        assert_recovers(&log, &log.bytes[..cut], &format!("file ends at {cut}"));
    }
}

#[test]
fn a_record_with_missing_sectors_is_cut_off() {
    let log = log(1500);
    let sectors = log.begin / 512..log.end.div_ceil(512);
    assert_eq!(sectors.len(), 4);
    for missing in 1_u32..1 << sectors.len() {
        let mut torn = log.bytes.clone();
        for sector in sectors.clone().filter(|sector| missing >> (sector - sectors.start) & 1 == 1) {
            torn[(sector * 512).max(log.begin)..(sector + 1) * 512].fill(0);
        }
        assert_recovers(&log, &torn, &format!("missing {missing:b}"));
    }
}

#[test]
fn whole_records_behind_a_torn_one_are_cut_off_with_it() {
    let log = log(1500);
    let mut torn = log.bytes.clone();
    // The rest of the same unsynced write, as it would lie there.
    let behind = log.end.next_multiple_of(8);
    torn.copy_within(log.begin..log.end, behind);
    torn[1024..1536].fill(0);
    assert_recovers(&log, &torn, "a record behind");
}

#[test]
fn a_flipped_bit_is_damage_wherever_it_is() {
    let log = log(40);
    let head = 16; // The checksum record: its own flip shows at the next record.
    for bit in (head * 8..log.end * 8).step_by(3) {
        let mut flipped = log.bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&log.path, &flipped).unwrap();
        let error = reopen(log.temp.path()).err().unwrap_or_else(|| panic!("bit {bit} went unnoticed"));
        let WalError::Damaged { path, offset, .. } = &error else { panic!("{error}") };
        assert_eq!(path, &log.path);
        assert!(*offset as usize <= bit / 8, "{error} for byte {}", bit / 8);
        assert_eq!(fs::read(&log.path).unwrap(), flipped, "a damaged log was changed");
    }
}

#[test]
fn a_segment_that_is_not_the_last_has_no_torn_tail() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    fill(&wal, 1..=10);
    wal.close().unwrap();
    let path = segments(temp.path())[1].path(temp.path());
    let whole = fs::read(&path).unwrap();
    let cuts = [whole.len() - 20, whole.len() - 1100, whole.len() - 3000, 40];
    for cut in cuts {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = open_on(Arc::new(RealDisk), temp.path(), 1, SMALL).unwrap_err();
        assert!(matches!(error, WalError::Damaged { .. }), "{error}");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    fs::write(&path, &flipped).unwrap();
    let error = open_on(Arc::new(RealDisk), temp.path(), 1, SMALL).unwrap_err();
    let WalError::Damaged { path: named, offset, .. } = error else { panic!("{error}") };
    assert_eq!(named, path);
    assert!(offset > 0 && offset < whole.len() as u64 / 2);
}

#[test]
fn a_segment_without_its_beginning_is_damage() {
    let log = log(40);
    for found in [&log.bytes[..0], &log.bytes[..16], &vec![0; 8192][..]] {
        fs::write(&log.path, found).unwrap();
        assert!(matches!(reopen(log.temp.path()), Err(WalError::Damaged { .. })));
    }
}

#[test]
fn a_cut_segment_without_a_successor_goes_on() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    fill(&wal, 1..=10);
    wal.close().unwrap();
    // As if the machine had stopped between cutting the second and naming the third.
    fs::remove_file(segments(temp.path())[2].path(temp.path())).unwrap();
    let (wal, recovered) = open(temp.path(), 1);
    assert_eq!(indexes(&recovered), (1..=8).collect::<Vec<_>>());
    fill(&wal, 9..=20);
    wal.close().unwrap();
    assert_eq!(indexes(&open(temp.path(), 1).1), (1..=20).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Of a batch that was not synced any sectors may be missing: what was acknowledged before it is there, and of the
    /// batch itself at most a prefix.
    #[test]
    fn a_batch_with_any_sectors_missing_keeps_a_prefix(
        before in proptest::collection::vec(0_usize..900, 0..4),
        batch in proptest::collection::vec(0_usize..900, 1..6),
        missing in any::<u32>(),
        cut in proptest::option::of(0_usize..6000),
    ) {
        let temp = TempDir::new().unwrap();
        let entries = |first: u64, sizes: &[usize]| -> Vec<Record> {
            (first..).zip(sizes).map(|(index, size)| entry(index, vec![index as u8; *size])).collect()
        };
        let (wal, _) = reopen(temp.path()).unwrap();
        let path = segments(temp.path())[0].path(temp.path());
        append(&wal, entries(1, &before)).unwrap();
        let begin = used_bytes(&fs::read(&path).unwrap()).next_multiple_of(8);
        let acknowledged = before.len() as u64;
        append(&wal, entries(acknowledged + 1, &batch)).unwrap();
        wal.close().unwrap();

        let mut torn = fs::read(&path).unwrap();
        for sector in (begin / 512..torn.len() / 512).filter(|sector| missing >> (sector % 32) & 1 == 1) {
            torn[(sector * 512).max(begin)..(sector + 1) * 512].fill(0);
        }
        torn.truncate(cut.map_or(torn.len(), |cut| begin + cut));
        fs::write(&path, &torn).unwrap();
        let (wal, recovered) = reopen(temp.path()).unwrap();
        let found = recovered.entries.len() as u64;
        prop_assert!(found >= acknowledged && found <= acknowledged + batch.len() as u64);
        for entry in &recovered.entries {
            prop_assert!(entry.data.iter().all(|byte| *byte == entry.index as u8));
        }
        append(&wal, vec![entry(found + 1, "next")]).unwrap();
        wal.close().unwrap();
        let (wal, recovered) = reopen(temp.path()).unwrap();
        prop_assert_eq!((recovered.entries.len() as u64, recovered.repaired), (found + 1, None));
        wal.close().unwrap();
    }
}
