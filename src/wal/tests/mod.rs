//! What the log promises, on a real directory: creation, reopening, locking, release, and the modules beside.

#![allow(clippy::unwrap_used, reason = "tests")]

mod crash;
mod gate;
mod model;
mod room;
mod tails;
mod zeros;

use std::{
    sync::mpsc,
    thread::{self, ThreadId},
};

use tempfile::TempDir;

use super::{segment::SegmentName, *};
use crate::disk::RealDisk;

const SMALL: Options = Options { segment_bytes: 4096, queue_bytes_max: 1 << 20, released_segments_kept: 0 };

fn metrics() -> WalMetrics {
    WalMetrics::from(&Metrics::new())
}

fn open_on(disk: Arc<dyn Disk>, dir: &Path, from_index: u64, options: Options) -> Result<(Wal, Recovered), WalError> {
    Wal::open(disk, dir, b"metadata", from_index, options, metrics())
}

fn open(dir: &Path, from_index: u64) -> (Wal, Recovered) {
    open_on(Arc::new(RealDisk), dir, from_index, SMALL).unwrap()
}

fn entry(index: u64, data: impl Into<Bytes>) -> Record {
    Record::Entry(Entry { index, term: 1, kind: 0, data: data.into() })
}

fn append(wal: &Wal, records: Vec<Record>) -> Result<(), WalError> {
    let (sender, outcome) = mpsc::channel();
    wal.append(records, Box::new(move |result| sender.send(result.map(drop)).unwrap()));
    outcome.recv().unwrap()
}

fn indexes(recovered: &Recovered) -> Vec<u64> {
    recovered.entries.iter().map(|entry| entry.index).collect()
}

/// The segments in the order of their sequence.
fn segments(dir: &Path) -> Vec<SegmentName> {
    segment::list(&RealDisk, dir).unwrap()
}

/// Appends entries of 1000 bytes, each in a batch of its own, so that about four fit into a segment.
fn fill(wal: &Wal, range: std::ops::RangeInclusive<u64>) {
    for index in range {
        append(wal, vec![entry(index, vec![index as u8; 1000])]).unwrap();
    }
}

#[test]
fn a_new_log_is_empty_and_keeps_its_first_metadata() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("member/wal");
    assert!(!Wal::exists(&RealDisk, &dir).unwrap());
    let (wal, recovered) = open(&dir, 0);
    assert_eq!((recovered.entries.len(), recovered.state, recovered.released), (0, None, None));
    assert_eq!(recovered.repaired, None);
    wal.close().unwrap();
    assert!(Wal::exists(&RealDisk, &dir).unwrap());
    assert_eq!(segments(&dir), [SegmentName { sequence: 0, first_index: 0 }]);
    assert_eq!(std::fs::metadata(segments(&dir)[0].path(&dir)).unwrap().len(), 4096);
    let (_wal, recovered) = Wal::open(Arc::new(RealDisk), &dir, b"other", 1, SMALL, metrics()).unwrap();
    assert_eq!(recovered.metadata, &b"metadata"[..]);
}

#[test]
fn an_unfinished_creation_is_no_log() {
    let temp = TempDir::new().unwrap();
    std::fs::write(temp.path().join("0.tmp"), b"half").unwrap();
    assert!(!Wal::exists(&RealDisk, temp.path()).unwrap());
    let (wal, _) = open(temp.path(), 1);
    append(&wal, vec![entry(1, "a")]).unwrap();
    wal.close().unwrap();
    assert_eq!(indexes(&open(temp.path(), 1).1), [1]);
}

#[test]
fn records_come_back_from_the_index_asked_for() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    append(&wal, vec![Record::State(Bytes::from_static(b"old")), entry(1, "a"), entry(2, "b"), entry(3, "c")]).unwrap();
    append(&wal, vec![entry(2, "B"), Record::State(Bytes::from_static(b"new"))]).unwrap();
    append(&wal, vec![entry(3, "C"), entry(4, "D"), Record::Truncate { last_index: 3 }]).unwrap();
    append(&wal, vec![]).unwrap();
    wal.close().unwrap();
    let (wal, recovered) = open(temp.path(), 2);
    let data: Vec<_> = recovered.entries.iter().map(|entry| (entry.index, &entry.data[..])).collect();
    assert_eq!(data, [(2, &b"B"[..]), (3, b"C")]);
    assert_eq!(recovered.state.unwrap(), &b"new"[..]);
    drop(wal);
    assert!(indexes(&open(temp.path(), 9).1).is_empty());
}

#[test]
fn a_log_goes_on_after_an_installed_snapshot() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    append(&wal, vec![entry(1, "a"), entry(2, "b")]).unwrap();
    append(&wal, vec![Record::Released { index: 500, term: 3 }, entry(501, "c")]).unwrap();
    wal.close().unwrap();
    let (_wal, recovered) = open(temp.path(), 1);
    assert_eq!((indexes(&recovered), recovered.released), (vec![501], Some((500, 3))));
}

#[test]
fn a_hole_is_refused_before_it_is_written() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    append(&wal, vec![entry(1, "a")]).unwrap();
    let refused = append(&wal, vec![entry(2, "b"), entry(4, "d")]).unwrap_err();
    assert!(refused.to_string().contains("entry 4 does not follow entry 2"), "{refused}");
    assert!(matches!(append(&wal, vec![entry(2, "b")]), Err(WalError::Stopped(_))));
    assert!(wal.close().is_err());
    assert_eq!(indexes(&open(temp.path(), 1).1), [1]);
}

#[test]
fn a_second_opening_is_locked_out() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    let second = open_on(Arc::new(RealDisk), temp.path(), 1, SMALL);
    assert!(matches!(second, Err(WalError::Locked { .. })));
    wal.close().unwrap();
    open(temp.path(), 1);
}

#[test]
fn full_segments_are_cut_and_begin_with_what_is_newest() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    append(&wal, vec![Record::State(Bytes::from_static(b"vote"))]).unwrap();
    fill(&wal, 1..=10);
    wal.close().unwrap();
    let names = segments(temp.path());
    let described: Vec<_> = names.iter().map(|name| (name.sequence, name.first_index)).collect();
    assert_eq!(described, [(0, 0), (1, 5), (2, 9)]);
    // Reading from entry 9 on needs the last segment only.
    names[..2].iter().for_each(|name| std::fs::write(name.path(temp.path()), b"garbage").unwrap());
    let (_wal, recovered) = open(temp.path(), 9);
    assert_eq!(indexes(&recovered), [9, 10]);
    assert_eq!((recovered.metadata, recovered.state.unwrap()), (b"metadata"[..].into(), b"vote"[..].into()));
}

#[test]
fn a_batch_larger_than_a_segment_makes_a_larger_segment() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    append(&wal, (1..=20).map(|index| entry(index, vec![7; 1000])).collect()).unwrap();
    append(&wal, vec![entry(21, vec![8; 100_000])]).unwrap();
    append(&wal, vec![entry(22, "small")]).unwrap();
    wal.close().unwrap();
    assert_eq!(segments(temp.path()).len(), 3);
    assert_eq!(indexes(&open(temp.path(), 1).1), (1..=22).collect::<Vec<_>>());
}

#[test]
fn released_segments_are_removed_but_for_those_kept() {
    let temp = TempDir::new().unwrap();
    let options = Options { released_segments_kept: 2, ..SMALL };
    let (wal, _) = open_on(Arc::new(RealDisk), temp.path(), 1, options.clone()).unwrap();
    for round in 1..=20 {
        fill(&wal, round * 10 - 9..=round * 10);
        append(&wal, vec![Record::Released { index: round * 10 - 1, term: 1 }]).unwrap();
    }
    wal.close().unwrap();
    // Two released, and one or two with an entry that is not.
    let names = segments(temp.path());
    assert!(names.len() <= 4, "{names:?}");
    assert!(names[2].last_before() <= 199, "{names:?}");
    let (wal, recovered) = open_on(Arc::new(RealDisk), temp.path(), 1, options).unwrap();
    assert_eq!((indexes(&recovered), recovered.released), (vec![200], Some((199, 1))));
    wal.close().unwrap();
    let files: Vec<_> = RealDisk.list(temp.path()).unwrap();
    assert!(files.len() <= 4 + 1 + 2, "segments, lock, prepared: {files:?}");
}

#[test]
fn entries_missing_with_their_segment_are_damage() {
    let temp = TempDir::new().unwrap();
    let (wal, _) = open(temp.path(), 1);
    fill(&wal, 1..=14);
    wal.close().unwrap();
    let names = segments(temp.path());
    assert_eq!(names.len(), 4);
    for missing in [0, 1, 2] {
        let path = names[missing].path(temp.path());
        let aside = temp.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        let error = open_on(Arc::new(RealDisk), temp.path(), 1, SMALL).unwrap_err();
        let WalError::Damaged { path: named, .. } = &error else { panic!("{error}") };
        assert_eq!(*named, names[missing + 1].path(temp.path()));
        assert!(error.to_string().contains("restore this member"), "{error}");
        std::fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(indexes(&open(temp.path(), 1).1), (1..=14).collect::<Vec<_>>());
}

#[test]
fn a_gap_left_by_an_interrupted_removal_is_no_damage() {
    let temp = TempDir::new().unwrap();
    let keep = Options { released_segments_kept: 100, ..SMALL };
    let (wal, _) = open_on(Arc::new(RealDisk), temp.path(), 1, keep).unwrap();
    fill(&wal, 1..=14);
    append(&wal, vec![Record::Released { index: 9, term: 1 }]).unwrap();
    wal.close().unwrap();
    let names = segments(temp.path());
    std::fs::remove_file(names[1].path(temp.path())).unwrap();
    let (wal, recovered) = open(temp.path(), 1);
    assert_eq!(indexes(&recovered), (10..=14).collect::<Vec<_>>());
    wal.close().unwrap();
    assert_eq!(segments(temp.path()), names[2..]);
}

#[test]
fn what_was_released_before_the_last_segment_is_not_read() {
    let temp = TempDir::new().unwrap();
    let keep = Options { released_segments_kept: 100, ..SMALL };
    let (wal, _) = open_on(Arc::new(RealDisk), temp.path(), 1, keep).unwrap();
    fill(&wal, 1..=14);
    append(&wal, vec![Record::Released { index: 12, term: 1 }]).unwrap();
    fill(&wal, 15..=18);
    wal.close().unwrap();
    let names = segments(temp.path());
    let garble = |name: &SegmentName| {
        let path = name.path(temp.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[2000] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    let is_needed = |name: &&SegmentName| name.first_index > 12;
    let first_needed = names.iter().position(|name| is_needed(&name)).unwrap() - 1;
    // One that holds only what is released, and would be read by the index asked for.
    assert!(names[..first_needed].iter().any(|name| name.first_index > 1), "{names:?}");
    names[..first_needed].iter().for_each(garble);
    let (wal, recovered) = open(temp.path(), 1);
    assert_eq!((indexes(&recovered), recovered.released), ((13..=18).collect(), Some((12, 1))));
    wal.close().unwrap();
    // What is needed is looked at as before.
    garble(segments(temp.path()).first().unwrap());
    let error = open_on(Arc::new(RealDisk), temp.path(), 1, SMALL).unwrap_err();
    assert!(matches!(error, WalError::Damaged { .. }), "{error}");
}

#[test]
fn a_segment_may_begin_at_a_lower_index_than_the_one_before() {
    let temp = TempDir::new().unwrap();
    let options = Options { released_segments_kept: 1, ..SMALL };
    let (wal, _) = open_on(Arc::new(RealDisk), temp.path(), 1, options.clone()).unwrap();
    fill(&wal, 1..=10);
    append(&wal, vec![entry(3, vec![3; 4000])]).unwrap();
    append(&wal, vec![entry(4, "d"), Record::Released { index: 3, term: 1 }]).unwrap();
    wal.close().unwrap();
    let first_indexes: Vec<_> = segments(temp.path()).iter().map(|name| name.first_index).collect();
    assert_eq!(first_indexes, [9, 4]);
    for from_index in [1, 4, 9] {
        let (wal, recovered) = open_on(Arc::new(RealDisk), temp.path(), from_index, options.clone()).unwrap();
        assert_eq!(indexes(&recovered), if from_index > 4 { vec![] } else { vec![4] });
        wal.close().unwrap();
    }
}

#[test]
fn metrics_count_each_write_and_sync() {
    let temp = TempDir::new().unwrap();
    let metrics = metrics();
    let opened = Wal::open(Arc::new(RealDisk), temp.path(), b"", 1, SMALL, metrics.clone()).unwrap();
    append(&opened.0, vec![Record::Truncate { last_index: 0 }]).unwrap();
    append(&opened.0, vec![]).unwrap();
    opened.0.close().unwrap();
    assert_eq!((metrics.fsync.recent().count, metrics.write.recent().count), (1, 1));
    // 8 header, 2 type, 2..=6 checksum, 2 field, 2 data, 2 end, padding.
    assert_eq!(metrics.write_bytes.get(), 24);
}
