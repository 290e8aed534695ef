//! Segments as files: their names, their order, how one comes into being and how it begins.
//!
//! A segment is `<sequence>-<index>.wal`, both as 16 hex digits; `index` is the one the next entry had when the segment
//! was begun. It begins with the checksum of all before it, the metadata, the newest state and the newest released
//! position, so that reading can begin at any segment. It gets its name only when all that is durable: a file with a
//! segment's name always has a whole beginning.
//!
//! Its room is reserved first, so that want of it shows at once and the blocks lie together, and then written full of
//! zeros. The first write to a block that is only reserved changes what the file system knows of the file, and a sync
//! must write that as well; where zeros were written, a sync writes the record alone. Both read as zeros: a segment may
//! be used whatever part of it was written.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{Record, WalError, position::Position, record::Encoder};
use crate::disk::{Disk, File, OpenMode, durable_rename};

/// How many zeros are written at once. Whoever syncs meanwhile waits for no more than these.
const ZEROS_PIECE_BYTES: usize = 256 << 10;
static ZEROS: [u8; ZEROS_PIECE_BYTES] = [0; ZEROS_PIECE_BYTES];
/// Size of a new log's first segment: a member's first start waits until it is written full of zeros.
const FIRST_SEGMENT_BYTES: u64 = 8 << 20;
/// How much larger the next one is, until segments have their full size.
const SEGMENT_GROWTH: u64 = 2;

/// A segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentName {
    /// Counts the segments of a log, from 0.
    pub(super) sequence: u64,
    /// The entry that comes next at the beginning of the segment.
    pub(super) first_index: u64,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}.wal", self.sequence, self.first_index)
    }
}

impl SegmentName {
    fn parse(name: &str) -> Option<Self> {
        let (sequence, first_index) = name.strip_suffix(".wal")?.split_once('-')?;
        let name = SegmentName { sequence: hex16(sequence)?, first_index: hex16(first_index)? };
        Some(name)
    }

    pub(super) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }

    /// Where the copy of a torn segment goes.
    pub(super) fn backup_path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.broken"))
    }

    /// Index of the last entry that was live when the segment was begun.
    pub(super) fn last_before(&self) -> u64 {
        self.first_index.saturating_sub(1)
    }
}

fn hex16(text: &str) -> Option<u64> {
    let plain = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(text, 16).ok() } else { None }
}

/// Makes an operating system's error ours.
pub(super) fn io_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> WalError {
    move |source| WalError::Io { path: path.to_owned(), action, source: Arc::new(source) }
}

/// The segments in a directory, by sequence. Other files are not looked at.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<SegmentName>, WalError> {
    let paths = disk.list(dir).map_err(io_error(dir, "listing the directory"))?;
    let mut names: Vec<SegmentName> =
        paths.iter().filter_map(|path| SegmentName::parse(path.file_name()?.to_str()?)).collect();
    names.sort_by_key(|name| (name.sequence, name.first_index));
    Ok(names)
}

/// Size of the first segment of a log whose segments have `full_bytes` later.
pub(super) fn first_bytes(full_bytes: u64) -> u64 {
    FIRST_SEGMENT_BYTES.min(full_bytes)
}

/// Size of the segment after one of `bytes`.
pub(super) fn next_bytes(bytes: u64, full_bytes: u64) -> u64 {
    bytes.saturating_mul(SEGMENT_GROWTH).clamp(first_bytes(full_bytes), full_bytes)
}

/// The name an unfinished segment has until it is activated.
pub(super) fn temporary_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.tmp"))
}

/// Removes what unfinished segments an earlier run left.
pub(super) fn remove_temporary(disk: &dyn Disk, dir: &Path) -> Result<(), WalError> {
    for path in disk.list(dir).map_err(io_error(dir, "listing the directory"))? {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            disk.remove(&path).map_err(io_error(&path, "removing an unfinished segment"))?;
        }
    }
    Ok(())
}

/// Makes a file that reads as zeros for a coming segment; its size is durable, and that its blocks are reserved.
pub(super) fn create_temporary(disk: &dyn Disk, path: &Path, segment_bytes: u64) -> Result<Box<dyn File>, WalError> {
    let file = disk.open(path, OpenMode::CreateOrTruncate).map_err(io_error(path, "creating a segment"))?;
    reserve(file.as_ref(), path, 0, segment_bytes)?;
    file.sync_all().map_err(io_error(path, "syncing a new segment"))?;
    Ok(file)
}

/// Reserves zeros from the file's end `from` up to `to`. Not durable until synced.
pub(super) fn reserve(file: &dyn File, path: &Path, from: u64, to: u64) -> Result<(), WalError> {
    if to <= from {
        return Ok(());
    }
    match file.allocate(from, to - from) {
        // Some file systems cannot reserve; growing with a hole is correct, only slower.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => file.set_len(to),
        outcome => outcome,
    }
    .map_err(io_error(path, "reserving space for a segment"))
}

/// Writes the next zeros over what is reserved from `from` up to `to`: a piece of them at most. Returns where they end.
/// Not durable until synced.
pub(super) fn write_zeros(file: &dyn File, path: &Path, from: u64, to: u64) -> Result<u64, WalError> {
    let bytes = to.saturating_sub(from).min(ZEROS.len() as u64);
    file.write_all_at(&ZEROS[..bytes as usize], from).map_err(io_error(path, "writing zeros to a segment"))?;
    Ok(from + bytes)
}

/// Removes an unfinished segment for which there is no room: the part of it that was reserved is others' to use. What
/// cannot be removed is cut at the next try.
pub(super) fn give_up(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a segment for which there is no room stays");
    }
}

/// Writes a segment's beginning into a prepared file and gives it its name. Durable on return. Returns the length of
/// the beginning.
pub(super) fn activate(
    disk: &dyn Disk,
    dir: &Path,
    temporary: (&Path, &dyn File),
    name: SegmentName,
    encoder: &mut Encoder,
    head: &Head,
) -> Result<u64, WalError> {
    let mut bytes = Vec::new();
    encoder.checksum(&mut bytes);
    encoder.metadata(&mut bytes, &head.metadata);
    if let Some(state) = &head.state {
        encoder.record(&mut bytes, &Record::State(state.clone()));
    }
    if let Some((index, term)) = head.position.released {
        encoder.record(&mut bytes, &Record::Released { index, term });
    }
    let (path, file) = temporary;
    file.write_all_at(&bytes, 0).map_err(io_error(path, "writing the beginning of a segment"))?;
    durable_rename(disk, path, &name.path(dir)).map_err(io_error(path, "activating a segment"))?;
    Ok(bytes.len() as u64)
}

/// What every segment begins with, and what the log knows at its end.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) metadata: Bytes,
    pub(super) state: Option<Bytes>,
    pub(super) position: Position,
}

/// Makes the first segment, of `bytes`. A crash on the way leaves no segment.
pub(super) fn create_log(disk: &dyn Disk, dir: &Path, head: &Head, bytes: u64) -> Result<(), WalError> {
    remove_temporary(disk, dir)?;
    let path = temporary_path(dir, 0);
    let file = create_first(disk, &path, bytes).inspect_err(|error| {
        if error.is_no_room() {
            give_up(disk, &path);
        }
    })?;
    let first = SegmentName { sequence: 0, first_index: 0 };
    activate(disk, dir, (&path, file.as_ref()), first, &mut Encoder::new(0), head)?;
    Ok(())
}

/// Its zeros become durable with its beginning, before it gets its name.
fn create_first(disk: &dyn Disk, path: &Path, bytes: u64) -> Result<Box<dyn File>, WalError> {
    let file = create_temporary(disk, path, bytes)?;
    let mut written = 0;
    while written < bytes {
        written = write_zeros(file.as_ref(), path, written, bytes)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn segments_double_until_they_have_their_full_size() {
        let sizes = |full| {
            let next = move |bytes: &u64| Some(next_bytes(*bytes, full));
            std::iter::successors(Some(first_bytes(full)), next).take(5).collect::<Vec<_>>()
        };
        assert_eq!(sizes(64_000_000), [8 << 20, 16 << 20, 32 << 20, 64_000_000, 64_000_000]);
        assert_eq!(sizes(4096), [4096; 5]);
        assert_eq!(next_bytes(100_000_000, 64_000_000), 64_000_000, "one that was too large for its last record");
        assert_eq!(next_bytes(0, 64_000_000), 8 << 20);
    }

    #[test]
    fn names_are_etcds() {
        let name = SegmentName { sequence: 0x1f, first_index: 0xabc };
        assert_eq!(name.to_string(), "000000000000001f-0000000000000abc.wal");
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for other in [
            "1f-abc.wal",
            "000000000000001f-0000000000000abc.wal.broken",
            "0.tmp",
            "lock",
            "a-b",
            "+00000000000001f-0000000000000abc.wal",
            "000000000000001F-0000000000000abc.wal",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
