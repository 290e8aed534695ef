//! Zeros are written ahead of the log, and durable before a segment gets its name; where they are not, it is as sound.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::*;
use crate::disk::sim::{Call, CrashState, ENOSPC, Failure, Fault, FileId, Op, SimDisk, explore, scratch};

const ZEROS_WAIT_MAX: Duration = Duration::from_secs(60);
/// Of several orders of zeros.
const LARGE: Options = Options { segment_bytes: 3 << 20, queue_bytes_max: 8 << 20, released_segments_kept: 9 };

/// How much of a file's beginning was written and then synced.
fn written_durably(ops: &[Op], of: FileId) -> u64 {
    let (mut written, mut durable) = (0, 0);
    for op in ops {
        match op {
            Op::Write { file, offset, bytes } if *file == of && *offset <= written => {
                written = written.max(offset + bytes.len() as u64);
            }
            Op::Sync { file } if *file == of => durable = written,
            _ => {}
        }
    }
    durable
}

/// Segments in the order in which they got their names, and how much of each was written durably by then.
fn written_before_named(ops: &[Op]) -> Vec<u64> {
    let mut files = BTreeMap::new();
    let mut written = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Create { path, file } => drop(files.insert(path, *file)),
            Op::Rename { from, .. } => written.push(written_durably(&ops[..at], files[from])),
            _ => {}
        }
    }
    written
}

/// Waits until the segment that has no name yet has so many zeros.
fn wait_zeros(disk: &SimDisk, bytes: u64) {
    let deadline = Instant::now() + ZEROS_WAIT_MAX;
    loop {
        let recording = disk.recorded();
        let mut unnamed = BTreeMap::new();
        for op in recording.ops() {
            match op {
                Op::Create { path, file } if path.extension().is_some_and(|extension| extension == "tmp") => {
                    unnamed.insert(path, *file);
                }
                Op::Rename { from, .. } => drop(unnamed.remove(from)),
                _ => {}
            }
        }
        if unnamed.into_values().any(|file| written_durably(recording.ops(), file) >= bytes) {
            return;
        }
        assert!(Instant::now() < deadline, "the zeros never came");
        std::thread::yield_now();
    }
}

#[test]
fn every_byte_of_a_segment_was_written_and_synced_before_it_got_its_name() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let options = Options { segment_bytes: 1 << 20, ..LARGE };
    let (wal, _) = open_on(Arc::new(disk.clone()), dir.path(), 1, options.clone()).unwrap();
    for segment in 0..3 {
        append(&wal, vec![entry(2 * segment + 1, vec![1; 600_000])]).unwrap();
        wait_zeros(&disk, options.segment_bytes);
        append(&wal, vec![entry(2 * segment + 2, vec![2; 600_000])]).unwrap();
    }
    wal.close().unwrap();
    assert_eq!(written_before_named(disk.recorded().ops()), [options.segment_bytes; 4]);
}

#[test]
fn a_new_log_begins_with_a_small_segment_and_keeps_its_size_when_it_is_opened_again() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let options = Options { segment_bytes: 64 << 20, ..LARGE };
    for _ in 0..2 {
        let (wal, _) = open_on(Arc::new(disk.clone()), dir.path(), 1, options.clone()).unwrap();
        wal.close().unwrap();
        assert_eq!(written_before_named(disk.recorded().ops()), [8 << 20]);
        assert_eq!(std::fs::metadata(segments(dir.path())[0].path(dir.path())).unwrap().len(), 8 << 20);
    }
    let (wal, _) = open_on(Arc::new(disk.clone()), dir.path(), 1, options).unwrap();
    append(&wal, vec![entry(1, vec![1; 5 << 20])]).unwrap();
    wait_zeros(&disk, 16 << 20);
    append(&wal, vec![entry(2, vec![1; 5 << 20])]).unwrap();
    wal.close().unwrap();
    assert_eq!(written_before_named(disk.recorded().ops()), [8 << 20, 16 << 20], "the next one is twice as large");
}

#[test]
fn a_segment_that_is_wanted_before_its_zeros_is_sound() {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    let (wal, _) = open_on(Arc::new(disk.clone()), dir.path(), 1, LARGE).unwrap();
    append(&wal, vec![entry(1, vec![1; 800_000])]).unwrap();
    wait_zeros(&disk, 1 << 20);
    // The log jumps over the end of the segment, then into what is only reserved of the next one.
    append(&wal, vec![entry(2, vec![2; 3 << 20])]).unwrap();
    append(&wal, vec![entry(3, vec![3; (1 << 20) - 500])]).unwrap();
    let from = disk.recorded().ops().len();
    append(&wal, (4..=8).map(|index| entry(index, vec![index as u8; 700])).collect()).unwrap();
    wal.close().unwrap();
    let written = written_before_named(disk.recorded().ops());
    assert_eq!(written, [LARGE.segment_bytes, 1 << 20], "the second was handed over with a part of its zeros");
    let mut check = |state: &CrashState<'_>| {
        let (_, recovered) = open_on(Arc::new(RealDisk), &state.dir, 1, LARGE).map_err(|error| error.to_string())?;
        let sound = recovered
            .entries
            .iter()
            .zip(1..)
            .all(|(entry, index)| entry.index == index && entry.data.iter().all(|byte| *byte == index as u8));
        if sound && recovered.entries.len() >= 3 { Ok(()) } else { Err(format!("{:?}", indexes(&recovered))) }
    };
    explore(&disk.recorded(), from, 40, &mut check).assert_sound("a segment without all its zeros");
    assert_eq!(indexes(&open_on(Arc::new(RealDisk), dir.path(), 1, LARGE).unwrap().1), (1..=8).collect::<Vec<_>>());
}

#[test]
fn a_new_log_whose_zeros_find_no_room_leaves_nothing() {
    let dir = scratch();
    let disk = SimDisk::default();
    disk.fail(Fault::after(0, &[Call::Write], Failure::Short(ENOSPC)));
    let error = open_on(Arc::new(disk.clone()), dir.path(), 1, LARGE).unwrap_err();
    assert!(error.is_no_room(), "{error}");
    let left: Vec<_> = RealDisk.list(dir.path()).unwrap();
    assert_eq!(left, [dir.path().join("lock")]);
    let (wal, _) = open_on(Arc::new(disk), dir.path(), 1, LARGE).unwrap();
    append(&wal, vec![entry(1, "a")]).unwrap();
}
