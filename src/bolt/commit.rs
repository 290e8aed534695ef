//! A commit's way into the file: grow, write the pages, sync, write the meta page, sync.
//!
//! The order is what makes a crash harmless. Until the meta page is durable the commit before rules, and none of its
//! pages is touched; the file's new length is durable before a meta page can speak of it. A failed write or sync is
//! final: what the file holds then is unknown, and no second attempt would tell.

use std::io;

use super::{
    Inner,
    error::BoltError,
    meta::Meta,
    spill::{Dirty, Spill},
};

/// Smallest step by which a file grows.
const GROW_BYTES_MIN: u64 = 32 << 10;
/// Largest step by which a file grows beyond what a commit needs.
const GROW_BYTES_MAX: u64 = 16 << 20;
/// Largest single write.
const WRITE_BYTES_MAX: usize = 4 << 20;

/// How a commit failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was written that matters: forget the transaction and go on.
    RolledBack(BoltError),
    /// The file's state is unknown.
    Poisoned(BoltError),
}

/// Writes a laid-out commit; returns the bytes written. `file_bytes` follows the file's growth.
pub(super) fn write(inner: &Inner, meta: &Meta, spill: &Spill<'_, '_>, file_bytes: &mut u64) -> Result<u64, Failure> {
    grow(inner, meta, file_bytes)?;
    let poisoned = |action| move |source| Failure::Poisoned(BoltError::io(&inner.path, action, source));
    let page_bytes = u64::from(meta.page_bytes);
    let mut dirty = spill.dirty.clone();
    dirty.sort_unstable_by_key(|page| page.id);
    let mut buffer = Vec::new();
    for pages in neighbours(&dirty, page_bytes) {
        let bytes = contiguous(&spill.arena, pages, &mut buffer);
        inner.file.write_all_at(bytes, pages[0].id * page_bytes).map_err(poisoned("writing pages"))?;
    }
    inner.file.sync_data().map_err(poisoned("syncing pages"))?;
    let meta_page = meta.encode();
    inner.file.write_all_at(&meta_page, meta.slot() * page_bytes).map_err(poisoned("writing the meta page"))?;
    inner.file.sync_data().map_err(poisoned("syncing the meta page"))?;
    Ok((spill.arena.len() + meta_page.len()) as u64)
}

/// Makes the file long enough for the commit, durably.
fn grow(inner: &Inner, meta: &Meta, file_bytes: &mut u64) -> Result<(), Failure> {
    let needed_bytes = meta.used_bytes();
    if needed_bytes <= *file_bytes {
        return Ok(());
    }
    let step = (*file_bytes).clamp(GROW_BYTES_MIN, GROW_BYTES_MAX);
    let wanted = needed_bytes.max(*file_bytes + step).next_multiple_of(u64::from(meta.page_bytes));
    let wanted = if wanted <= inner.map_bytes_max { wanted } else { needed_bytes };
    match grow_to(inner, wanted, file_bytes) {
        // Not as much as would be good, but perhaps as much as is needed.
        Err(Failure::RolledBack(BoltError::NoRoom { .. })) => grow_to(inner, needed_bytes, file_bytes),
        outcome => outcome,
    }
}

/// Makes the file at least so long, durably.
pub(super) fn grow_to(inner: &Inner, needed_bytes: u64, file_bytes: &mut u64) -> Result<(), Failure> {
    if needed_bytes <= *file_bytes {
        return Ok(());
    }
    let limit = inner.map_bytes_max;
    if needed_bytes > limit {
        let full = BoltError::Full { path: inner.path.clone(), needed_bytes, map_bytes_max: limit };
        return Err(Failure::RolledBack(full));
    }
    // A file that is out of room is not harmed by it: there is nothing yet that speaks of the new part.
    inner
        .file
        .allocate(*file_bytes, needed_bytes - *file_bytes)
        .map_err(|source| Failure::RolledBack(not_grown(inner, source)))?;
    inner
        .file
        .sync_all()
        .map_err(|source| Failure::Poisoned(BoltError::io(&inner.path, "syncing the new length", source)))?;
    inner.map.set_readable(needed_bytes);
    *file_bytes = needed_bytes;
    Ok(())
}

fn not_grown(inner: &Inner, source: io::Error) -> BoltError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            BoltError::NoRoom { path: inner.path.clone(), source }
        }
        _ => BoltError::io(&inner.path, "allocating room", source),
    }
}

/// Cuts sorted pages into groups that follow each other without a gap, of at most [`WRITE_BYTES_MAX`] where one page
/// is not larger than that alone.
fn neighbours(dirty: &[Dirty], page_bytes: u64) -> impl Iterator<Item = &[Dirty]> {
    let mut bytes = 0;
    dirty.chunk_by(move |left, right| {
        bytes += left.bytes;
        let follows = left.id + left.bytes as u64 / page_bytes == right.id;
        if follows && bytes + right.bytes <= WRITE_BYTES_MAX {
            return true;
        }
        bytes = 0;
        false
    })
}

/// The bytes of pages in one piece: as they lie in the arena, or else brought together in `buffer`.
fn contiguous<'a>(arena: &'a [u8], pages: &[Dirty], buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let (first, last) = (pages[0], pages[pages.len() - 1]);
    if pages.windows(2).all(|pair| pair[0].start + pair[0].bytes == pair[1].start) {
        return &arena[first.start..last.start + last.bytes];
    }
    buffer.clear();
    pages.iter().for_each(|page| buffer.extend_from_slice(&arena[page.start..page.start + page.bytes]));
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_pages_are_written_together_up_to_the_limit() {
        let page = |id, pages: usize| Dirty { id, start: 0, bytes: pages * 4096 };
        let dirty = [page(3, 1), page(4, 2), page(6, 1), page(9, 1), page(10, 1023), page(1033, 1)];
        let groups: Vec<Vec<u64>> =
            neighbours(&dirty, 4096).map(|group| group.iter().map(|page| page.id).collect()).collect();
        assert_eq!(groups, [vec![3, 4, 6], vec![9, 10], vec![1033]]);
    }
}
