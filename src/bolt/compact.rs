//! A copy of the file without its free pages, put in the file's place.
//!
//! The copy is built from the leaves up, page after page in one pass, under a temporary name; it is synced every few
//! megabytes, so that no other sync on the disk has to wait for all of it. Renaming it is the last step: a crash before
//! leaves the old file and a leftover, which the next opening removes, and a crash after it the new one.

mod tree;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use thiserror::Error;

use super::{
    Db, Inner,
    error::BoltError,
    meta::Meta,
    open,
    page::{self, FIRST_DATA_PAGE, HEADER_BYTES},
    read::ReadTx,
};
use crate::disk::{Disk, File, OpenMode, durable_rename};

/// Bytes that are written and synced together.
const STRETCH_BYTES: usize = 4 << 20;
/// What the name of a copy in the making ends with.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Why there is no compacted file.
#[derive(Debug, Error)]
pub enum CompactError {
    /// The copy could not be made; the file is as it was and can be used.
    #[error(transparent)]
    Untouched(BoltError),
    /// Nobody knows which file the name stands for: the handle can only be read from. Either file holds everything.
    #[error(transparent)]
    Unknown(BoltError),
}

pub(super) fn compact(db: &Db, fill: f64, keep_going: &dyn Fn() -> bool) -> Result<Db, CompactError> {
    let inner = &*db.inner;
    // Held to the end: what is committed meanwhile would be lost.
    let mut writer = inner.writer.lock();
    if writer.poisoned {
        return Err(CompactError::Untouched(BoltError::Poisoned { path: inner.path.clone() }));
    }
    let read = ReadTx::open(Arc::clone(&db.inner));
    let temporary = temporary(&inner.path);
    let copy = match make_copy(inner, &read, &temporary, fill, keep_going) {
        Ok(copy) => copy,
        Err(error) => {
            if let Err(left) = inner.disk.remove(&temporary)
                && left.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %temporary.display(), %left, "a copy that was given up stays until the next start");
            }
            return Err(CompactError::Untouched(error));
        }
    };
    // Whether this fails or not, the handle must not write any more.
    writer.poisoned = true;
    let renamed = durable_rename(&*inner.disk, &temporary, &inner.path);
    renamed.map_err(|source| CompactError::Unknown(BoltError::io(&inner.path, "replacing it by its copy", source)))?;
    Ok(copy)
}

/// Removes copies that an earlier process did not get to put in place. The caller has the file's lock.
pub(super) fn remove_leftovers(disk: &dyn Disk, path: &Path) -> Result<(), BoltError> {
    let leftover = temporary(path);
    match disk.remove(&leftover) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BoltError::io(&leftover, "removing a leftover copy", error))
        }
        _ => Ok(()),
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}

/// Writes the copy and opens it, all but its name.
fn make_copy(
    inner: &Inner,
    read: &ReadTx,
    temporary: &Path,
    fill: f64,
    keep_going: &dyn Fn() -> bool,
) -> Result<Db, BoltError> {
    let file = inner
        .disk
        .open(temporary, OpenMode::CreateOrTruncate)
        .map_err(|source| BoltError::io(temporary, "creating a copy", source))?;
    open::lock(&*file, temporary)?;
    let old = read.meta();
    let mut out = Output::new(&*file, temporary, old.page_bytes, keep_going);
    let root = tree::copy(&read.pages(), old.root, fill, &mut out)?;
    let freelist = out.empty_freelist()?;
    out.finish(Meta { root, freelist, high_water: 0, ..old })?;
    open::open_file(Arc::clone(&inner.disk), file, &inner.path, inner.map_bytes_max)
}

/// Pages on their way into a new file, one behind the other.
struct Output<'a> {
    file: &'a dyn File,
    path: &'a Path,
    page_bytes: usize,
    keep_going: &'a dyn Fn() -> bool,
    /// Pages not written yet; they end before `next_page`.
    stretch: Vec<u8>,
    next_page: u64,
}

impl<'a> Output<'a> {
    fn new(file: &'a dyn File, path: &'a Path, page_bytes: u32, keep_going: &'a dyn Fn() -> bool) -> Output<'a> {
        // Room for the meta pages, which come last.
        let next_page = FIRST_DATA_PAGE;
        Output { file, path, page_bytes: page_bytes as usize, keep_going, stretch: Vec::new(), next_page }
    }

    /// Adds a page of `bytes` content, with as many behind it as it overflows into; its number.
    fn page(&mut self, bytes: usize, encode: impl FnOnce(&mut [u8], u64, u32)) -> Result<u64, BoltError> {
        let id = self.next_page;
        let pages = bytes.div_ceil(self.page_bytes).max(1);
        let start = self.stretch.len();
        self.stretch.resize(start + pages * self.page_bytes, 0);
        let overflow = u32::try_from(pages - 1).map_err(|_| BoltError::damaged(self.path, id, "is too large"))?;
        encode(&mut self.stretch[start..], id, overflow);
        self.next_page += pages as u64;
        if self.stretch.len() >= STRETCH_BYTES {
            self.write_stretch()?;
        }
        Ok(id)
    }

    /// An empty list of free pages: opening then need not look for any.
    fn empty_freelist(&mut self) -> Result<u64, BoltError> {
        self.page(HEADER_BYTES, |out, id, overflow| page::put_header(out, id, page::FREELIST, 0, overflow))
    }

    fn write_stretch(&mut self) -> Result<(), BoltError> {
        if !(self.keep_going)() {
            return Err(BoltError::Interrupted { path: self.path.to_owned() });
        }
        let end = self.next_page * self.page_bytes as u64;
        let start = end - self.stretch.len() as u64;
        let path = self.path;
        let failed = |action| move |source| BoltError::io(path, action, source);
        self.file.allocate(start, end - start).map_err(failed("allocating room for a copy"))?;
        self.file.write_all_at(&self.stretch, start).map_err(failed("writing a copy"))?;
        self.file.sync_data().map_err(failed("syncing a copy"))?;
        self.stretch.clear();
        Ok(())
    }

    /// Writes what is left, and the meta pages: that of the copied commit, and the same with the number before it.
    fn finish(mut self, meta: Meta) -> Result<(), BoltError> {
        self.write_stretch()?;
        let path = self.path;
        let failed = |action| move |source| BoltError::io(path, action, source);
        for txid in [meta.txid, meta.txid.wrapping_sub(1)] {
            let meta = Meta { high_water: self.next_page, txid: txid.min(meta.txid), ..meta };
            let at = (txid % 2) * self.page_bytes as u64;
            self.file.write_all_at(&meta.encode_at(txid % 2), at).map_err(failed("writing a copy's meta page"))?;
        }
        self.file.sync_all().map_err(failed("syncing a copy"))
    }
}
