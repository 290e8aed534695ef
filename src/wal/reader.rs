//! Reads a log from its segments: which to read, what they say, where the valid records end. Changes nothing on disk.
//!
//! Segments must follow each other without a gap, each must take up the checksum its predecessor ended with, and only
//! the last may end in a torn record. Older segments before a gap are left from an interrupted removal if everything
//! they held is released; otherwise the log is damaged.

use std::{collections::VecDeque, path::Path};

use bytes::Bytes;

use super::{
    Entry, WalError,
    position::Position,
    record::{Decoded, Fault, decode_frame},
    segment::{Head, SegmentName, io_error},
    tail::{is_torn, used_bytes},
};
use crate::disk::{Disk, OpenMode};

/// A log as read.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) head: Head,
    /// The live entries from the first one asked for.
    pub(super) entries: VecDeque<Entry>,
    /// The rolling checksum after the last valid record.
    pub(super) crc: u32,
    /// The last segment.
    pub(super) last: LastSegment,
}

/// The segment that will be written on.
#[derive(Debug)]
pub(super) struct LastSegment {
    pub(super) name: SegmentName,
    /// Its bytes as found.
    pub(super) bytes: Vec<u8>,
    /// Where the valid records end.
    pub(super) valid_bytes: usize,
    /// Whether a torn record follows them.
    pub(super) torn: bool,
}

/// Reads the live entries from `from_index` on, and the newest of everything else. `segments` is in order and not empty.
/// What was released before the last segment was begun is not read.
pub(super) fn replay(
    disk: &dyn Disk,
    dir: &Path,
    segments: &[SegmentName],
    from_index: u64,
) -> Result<Replay, WalError> {
    let connected = connected_suffix(dir, segments)?;
    let released = match connected.last() {
        Some(last) => released_at_beginning(disk, &last.path(dir))?,
        None => 0,
    };
    let from_index = from_index.max(released.saturating_add(1));
    let begin = connected.iter().rposition(|name| name.first_index <= from_index).unwrap_or(0);
    let mut reader = Reader::new(connected[begin], from_index);
    let mut last = None;
    for (number, name) in connected.iter().enumerate().skip(begin) {
        let is_last = number + 1 == connected.len();
        last = Some(reader.read_segment(disk, dir, *name, is_last)?);
    }
    let last = last.expect("a suffix of a list that is not empty has a segment");
    let has_gap = segments.len() > connected.len();
    reader.check_complete(dir, if has_gap { connected } else { &connected[begin..] }, has_gap)?;
    let metadata = reader.metadata.unwrap_or_default();
    let head = Head { metadata, state: reader.state, position: reader.position };
    Ok(Replay { head, entries: reader.entries, crc: reader.crc.unwrap_or(0), last })
}

/// Up to which entry the log was released when a segment was begun; 0 where its beginning does not say, even if that is
/// because it is damaged: who reads all of the segment finds that.
fn released_at_beginning(disk: &dyn Disk, path: &Path) -> Result<u64, WalError> {
    let file = disk.open(path, OpenMode::Read).map_err(io_error(path, "opening a segment"))?;
    let length = file.len().map_err(io_error(path, "asking for the length of a segment"))?;
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(BEGINNING_BYTES_MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(io_error(path, "reading the beginning of a segment"))?;
    let (mut offset, mut crc, mut released) = (0, 0, 0);
    while let Ok(Some(frame)) = decode_frame(&bytes, offset, crc) {
        match frame.record {
            Decoded::Released { index, .. } => released = index.max(released),
            Decoded::Entry { .. } | Decoded::Truncate { .. } => break,
            Decoded::Checksum | Decoded::Metadata(_) | Decoded::State(_) => {}
        }
        (offset, crc) = (frame.next, frame.crc);
    }
    Ok(released)
}

/// The newest segments whose sequence has no gap.
fn connected_suffix<'a>(dir: &Path, segments: &'a [SegmentName]) -> Result<&'a [SegmentName], WalError> {
    let mut begin = 0;
    for (number, pair) in segments.windows(2).enumerate() {
        if pair[0].sequence == pair[1].sequence {
            return Err(damaged(dir, pair[1], 0, "another segment has the same sequence number".into()));
        }
        if pair[0].sequence + 1 != pair[1].sequence {
            begin = number + 1;
        }
    }
    Ok(&segments[begin..])
}

struct Reader {
    from_index: u64,
    position: Position,
    entries: VecDeque<Entry>,
    metadata: Option<Bytes>,
    state: Option<Bytes>,
    /// Unknown until the first record of the first segment is read.
    crc: Option<u32>,
}

impl Reader {
    fn new(first: SegmentName, from_index: u64) -> Self {
        let position = Position { last: first.last_before(), released: None };
        Reader { from_index, position, entries: VecDeque::new(), metadata: None, state: None, crc: None }
    }

    fn read_segment(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        name: SegmentName,
        is_last: bool,
    ) -> Result<LastSegment, WalError> {
        let bytes = read_file(disk, &name.path(dir))?;
        let mut offset = 0;
        let mut head = 0;
        let torn = loop {
            let fault = match decode_frame(&bytes, offset, self.crc.unwrap_or(0)) {
                Ok(Some(frame)) => {
                    self.take(head, frame.record, frame.crc, name).map_err(|what| damaged(dir, name, offset, what))?;
                    (offset, self.crc, head) = (frame.next, Some(frame.crc), head + 1);
                    continue;
                }
                Ok(None) if used_bytes(&bytes) <= offset => break false,
                Ok(None) => Fault("something follows where the records end"),
                Err(fault) => fault,
            };
            if is_last && head >= HEAD_RECORDS_MIN && is_torn(&bytes, offset) {
                break true;
            }
            return Err(damaged(dir, name, offset, fault.0.into()));
        };
        if head < HEAD_RECORDS_MIN {
            return Err(damaged(dir, name, offset, "the beginning of the segment is missing".into()));
        }
        Ok(LastSegment { name, bytes, valid_bytes: offset, torn })
    }

    /// Follows the `number`th record of a segment.
    fn take(&mut self, number: usize, record: Decoded<'_>, crc: u32, segment: SegmentName) -> Result<(), String> {
        match (number, record) {
            (0, Decoded::Checksum) => {
                if self.crc.is_some_and(|before| before != crc) {
                    return Err("the segment does not continue the one before".into());
                }
                if self.position.last != segment.last_before() {
                    return Err(format!("the segment before ends with entry {}", self.position.last));
                }
            }
            (1, Decoded::Metadata(metadata)) => {
                if self.metadata.as_ref().is_some_and(|before| before != metadata) {
                    return Err("the metadata is another log's".into());
                }
                self.metadata = Some(Bytes::copy_from_slice(metadata));
            }
            (0 | 1, _) | (_, Decoded::Checksum | Decoded::Metadata(_)) => {
                return Err("a record of this type does not belong here".into());
            }
            (_, Decoded::State(state)) => self.state = Some(Bytes::copy_from_slice(state)),
            (_, Decoded::Truncate { last_index }) => {
                self.position.truncate(last_index);
                self.drop_from(last_index.saturating_add(1));
            }
            (_, Decoded::Released { index, term }) => self.release(index, term),
            (_, Decoded::Entry { index, term, kind, data }) => self.enter(index, term, kind, data)?,
        }
        Ok(())
    }

    fn enter(&mut self, index: u64, term: u64, kind: u32, data: &[u8]) -> Result<(), String> {
        self.position.enter(index).map_err(|hole| hole.to_string())?;
        self.drop_from(index);
        if index >= self.from_index && index > self.position.floor() {
            self.entries.push_back(Entry { index, term, kind, data: Bytes::copy_from_slice(data) });
        }
        Ok(())
    }

    fn release(&mut self, index: u64, term: u64) {
        self.position.release(index, term);
        while self.entries.front().is_some_and(|entry| entry.index <= self.position.floor()) {
            self.entries.pop_front();
        }
    }

    /// Drops the entries from `index` on.
    fn drop_from(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.index >= index) {
            self.entries.pop_back();
        }
    }

    /// Refuses a log whose missing segments held something that is needed: one of those that were read must begin
    /// where nothing before it is. Not always the first of them: entries that replace earlier ones can make a segment
    /// begin at a lower index than the one before it.
    fn check_complete(&self, dir: &Path, read: &[SegmentName], has_gap: bool) -> Result<(), WalError> {
        let asked = if has_gap { 0 } else { self.from_index - 1 };
        let not_needed = asked.max(self.position.floor());
        if read.iter().any(|name| name.last_before() <= not_needed) {
            return Ok(());
        }
        let what = format!("the segment before this one is missing, and entries after {not_needed} with it");
        Err(damaged(dir, read[0], 0, what))
    }
}

/// The records every segment has at its beginning: checksum and metadata.
const HEAD_RECORDS_MIN: usize = 2;
/// Bytes in which the records are looked for that a segment begins with.
const BEGINNING_BYTES_MAX: usize = 4096;
/// Largest single read of a segment.
const READ_BYTES_MAX: usize = 1 << 20;

fn damaged(dir: &Path, name: SegmentName, offset: usize, what: String) -> WalError {
    WalError::Damaged { path: name.path(dir), offset: offset as u64, what }
}

fn read_file(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, WalError> {
    let file = disk.open(path, OpenMode::Read).map_err(io_error(path, "opening a segment"))?;
    let length = file.len().map_err(io_error(path, "asking for the length of a segment"))?;
    let too_large = || std::io::Error::new(std::io::ErrorKind::OutOfMemory, "the segment does not fit into memory");
    let length = usize::try_from(length).map_err(|_| io_error(path, "reading a segment")(too_large()))?;
    // Zeroed memory costs nothing until it is touched, and most of a fresh segment is zeros: only what is something else
    // is copied into it.
    let mut bytes = vec![0; length];
    let mut chunk = vec![0; READ_BYTES_MAX.min(length)];
    let zeros = vec![0; chunk.len()];
    let mut offset = 0;
    while offset < length {
        let chunk = &mut chunk[..READ_BYTES_MAX.min(length - offset)];
        file.read_exact_at(chunk, offset as u64).map_err(io_error(path, "reading a segment"))?;
        if *chunk != zeros[..chunk.len()] {
            bytes[offset..offset + chunk.len()].copy_from_slice(chunk);
        }
        offset += chunk.len();
    }
    Ok(bytes)
}
