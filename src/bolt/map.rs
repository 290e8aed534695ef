//! The file as read-only memory.
//!
//! The one place with `unsafe`. Address space is reserved once, beyond the end of the file, and never moved; the file
//! grows and shrinks below it. Only a raw pointer is kept, never a slice of the whole. What is handed out are slices of pages, and
//! only of bytes the file is known to hold: touching a page beyond its end would kill the process.
//!
//! This file knows nothing of pages, transactions or formats. That a slice's bytes stay as they are while it lives is
//! the promise of the rooms around it, spelled out at [`Map::bytes`].
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};

#[derive(Debug)]
pub(super) struct Map {
    raw: MmapRaw,
    /// How many bytes from the start the file holds, and so may be touched. Never exceeds `raw`.
    readable_bytes: AtomicU64,
}

impl Map {
    /// Reserves `reserve_bytes` of address space over the file, of which `readable_bytes` are there to be read.
    pub(super) fn new(file: BorrowedFd<'_>, reserve_bytes: u64, readable_bytes: u64) -> io::Result<Map> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "larger than the address space");
        let len = usize::try_from(reserve_bytes.max(readable_bytes)).map_err(|_| too_large())?;
        let raw = MmapOptions::new().len(len).no_reserve_swap().map_raw_read_only(&file)?;
        Ok(Map { raw, readable_bytes: AtomicU64::new(readable_bytes) })
    }

    /// The file has grown: its first `bytes` bytes are allocated and durable.
    pub(super) fn set_readable(&self, bytes: u64) {
        let bytes = bytes.min(self.raw.len() as u64);
        self.readable_bytes.store(bytes, Ordering::Release);
    }

    /// The file is about to be cut to its first `bytes` bytes. No transaction is open that may ask for what is behind
    /// them, and none will be until the file has grown again.
    pub(super) fn cut(&self, bytes: u64) {
        self.readable_bytes.fetch_min(bytes, Ordering::Release);
    }

    /// `len` bytes at `offset`, or `None` if the file does not hold them all.
    ///
    /// The caller asks only for pages below its transaction's high-water mark. Those which the transaction can reach
    /// keep their content while it lives: writes go to pages no live transaction reaches. And the file holds them all
    /// while it lives: it is never cut below the high-water mark of a live transaction.
    pub(super) fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let end = offset.checked_add(len)?;
        if end > self.readable_bytes.load(Ordering::Acquire) {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        let len = usize::try_from(len).ok()?;
        // SAFETY: `offset + len <= readable_bytes <= raw.len()`, so the range lies inside the mapping, which lives as
        // long as `self` and is never moved. The file holds these bytes: its length was read or allocated before
        // `readable_bytes` was set, and it is locked against other processes that respect locks. It goes on holding
        // them while the slice lives: `Pages`, the only caller, asks for nothing at or above its transaction's
        // high-water mark, however damaged the page that led there; and `reclaim::cut` cuts the file only above the
        // marks of the last commit and of every open read transaction, which it looks at under the lock that opening
        // one takes, with the write transaction locked out. So a look-up cannot race with a cut of what it looks at.
        // The bytes are initialised, as file content always is, and u8 has no alignment or invalid values.
        // They do not change while the slice lives: the mapping is read-only, and `pwrite` goes only to pages that
        // were free for every live transaction (freelist.rs releases a page only behind the oldest reader, and the
        // two meta pages, which are rewritten, are refused by `Pages::raw` and read with `pread` instead). What this
        // rests on is that no page is both in the tree and in the freelist. A walk on opening makes sure of it; only
        // where a clean close left its freelist in the file is that list trusted, as far as commits do not notice.
        Some(unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(offset), len) })
    }
}
