//! A single-file copy-on-write B+tree in bbolt's file format, read through a memory map.
//!
//! One writer, any number of readers. A commit never touches the pages of the one before: readers keep their view
//! without waiting for anybody, and a crash leaves the last durable commit. Real bbolt opens our files and we its.
//! Bytes on disk are not trusted: damage is a [`BoltError`], never a panic. After a failed write or sync nothing more
//! is written until the file is opened anew.
//!
//! From bottom to top: `map` (the file as memory), `page` and `meta` (the format), `freelist`, `search`, `read`, `directory`,
//! `together` and `cursor` (looking), `node`, `spill` and `write` (changing), `commit` and `open` (the file), `reclaim` (giving its unused room
//! back), `snapshot` (a copy of it), `look`, `walk`, `check` and `inspect` (looking without writing, doubting, counting).
//! This room knows nothing of revisions, leases or any other meaning of keys.

mod check;
mod commit;
mod cursor;
mod directory;
mod error;
mod freelist;
mod inspect;
mod landmarks;
mod look;
mod map;
mod meta;
mod node;
mod open;
mod page;
mod read;
mod reclaim;
mod room;
mod search;
mod snapshot;
mod spill;
#[cfg(test)]
mod tests;
mod together;
mod walk;
mod write;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use crate::disk::{Disk, File};

use directory::Directories;
use freelist::Freelist;
use map::Map;
use meta::{Meta, NO_FREELIST};
use page::{Pages, Run};

pub use check::{Damage, DamagedPlace, PlacedPair};
pub use cursor::{Cursor, Pair};
pub use error::BoltError;
pub use inspect::{BucketUse, PageUse};
pub use read::{Bucket, ReadTx};
pub use reclaim::{Reclaim, ReclaimLimits, ReclaimProgress, ReclaimStep};
pub use write::WriteTx;

/// Longest key, in bytes. bbolt's limit.
pub const KEY_BYTES_MAX: usize = 32_768;
/// Longest value, in bytes. bbolt's limit.
pub const VALUE_BYTES_MAX: usize = (1 << 31) - 2;

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address space reserved for the map: the largest size the file can ever have, in bytes. A file that is larger
    /// already can be opened, but grows no further.
    pub map_bytes_max: u64,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitStats {
    /// Bytes written.
    pub bytes_written: u64,
    /// Time spent merging nodes that became too small.
    pub rebalance: Duration,
    /// Time spent making node changes into pages.
    pub spill: Duration,
    /// Time spent in writes and syncs.
    pub write: Duration,
}

/// An open file. Cheap to clone; all clones are the same file.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

/// What all handles and transactions of a file share.
#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: Box<dyn File>,
    map: Map,
    map_bytes_max: u64,
    /// Held for a few instructions only, never across I/O.
    view: Mutex<View>,
    /// Held by the write transaction for as long as it lives. Taken before `view`.
    writer: Mutex<Writer>,
    /// For those that look many keys up.
    directories: Directories,
}

/// What readers see of the file.
#[derive(Debug)]
struct View {
    meta: Meta,
    file_bytes: u64,
    /// Free pages as of `meta`, those waiting for readers included.
    free_pages: u64,
    /// The read transactions that are open, by commit.
    readers: BTreeMap<u64, Readers>,
}

/// The read transactions open at one commit.
#[derive(Debug)]
struct Readers {
    count: u64,
    /// The commit's high-water mark: the file must hold all pages below it.
    high_water: u64,
}

/// What only the writer sees.
#[derive(Debug)]
struct Writer {
    freelist: Freelist,
    /// The file's length. May be ahead of the view's while a commit is at work.
    file_bytes: u64,
    /// Where the freelist is in the file, if it is.
    freelist_run: Option<Run>,
    /// A write or sync failed.
    poisoned: bool,
    /// The high-water marks in the two meta pages: the file must hold all pages below either.
    slot_high_water: [u64; 2],
}

impl Inner {
    fn pages(&self, meta: &Meta) -> Pages<'_> {
        Pages { map: &self.map, path: &self.path, page_bytes: meta.page_bytes, high_water: meta.high_water }
    }

    /// Shows a durable commit to the readers to come.
    fn publish(&self, meta: Meta, file_bytes: u64, free_pages: u64) {
        let mut view = self.view.lock();
        view.meta = meta;
        view.file_bytes = file_bytes;
        view.free_pages = free_pages;
    }
}

impl Db {
    /// Opens the file, or creates it durably if it is not there. Its directory must exist.
    ///
    /// After a [`Db::close`] opening takes time in proportion to the free pages; otherwise to all pages of the file.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, options: &Options) -> Result<Db, BoltError> {
        open::open(&disk, path, options)
    }

    /// Opens a file to look at its last commit only. Nothing of the file is written or asked to be sound but a meta page,
    /// and others may look at it too; a process that has it open for writing is [`BoltError::Locked`].
    pub fn open_read_only(disk: &Arc<dyn Disk>, path: &Path) -> Result<ReadTx, BoltError> {
        look::open_read_only(disk, path)
    }

    /// A read transaction at the last commit. Never blocks on a writer's I/O.
    pub fn read(&self) -> Result<ReadTx, BoltError> {
        Ok(ReadTx::open(Arc::clone(&self.inner)))
    }

    /// The write transaction; waits for the one before it to end.
    pub fn write(&self) -> Result<WriteTx<'_>, BoltError> {
        WriteTx::begin(self)
    }

    /// Puts the freelist into the file, so that the next start need not search for it. The file itself is closed when
    /// the last handle and the last read transaction are gone; a commit by another handle undoes this call.
    pub fn close(self) -> Result<(), BoltError> {
        let tx = self.write()?;
        if !self.has_free_list() {
            tx.commit_with(true)?;
        }
        Ok(())
    }

    /// One step of giving room back: a small write transaction, or a cut of the file's end; see [`Reclaim`]. It waits for
    /// no reader. After [`BoltError::Io`] every later write is refused, as after a commit; after any other error the step
    /// has left no trace.
    pub fn reclaim_step(&self, reclaim: &mut Reclaim) -> Result<ReclaimStep, BoltError> {
        reclaim.step(self)
    }

    /// Whether the last commit has the list of free pages in the file, as [`Db::close`] leaves it.
    pub fn has_free_list(&self) -> bool {
        self.inner.view.lock().meta.freelist != NO_FREELIST
    }

    /// Bytes allocated behind the last page ever used, as of the last commit.
    pub fn unused_end_bytes(&self) -> u64 {
        let view = self.inner.view.lock();
        view.file_bytes.saturating_sub(view.meta.used_bytes())
    }

    /// Size of the file in bytes as of the last commit.
    pub fn size_bytes(&self) -> u64 {
        self.inner.view.lock().file_bytes
    }

    /// Bytes of the pages in use as of the last commit: all pages ever used, less the free ones.
    pub fn size_in_use_bytes(&self) -> u64 {
        let view = self.inner.view.lock();
        view.meta.high_water.saturating_sub(view.free_pages) * u64::from(view.meta.page_bytes)
    }

    /// How many read transactions are open.
    pub fn open_reads(&self) -> u64 {
        self.inner.view.lock().readers.values().map(|readers| readers.count).sum()
    }

    /// Looks at every page of the last commit; returns what is wrong, at most a hundred findings. Waits for the write
    /// transaction and keeps others from beginning; takes time in proportion to the file.
    pub fn check(&self) -> Result<Vec<BoltError>, BoltError> {
        check::check(self)
    }
}
