//! Every file operation of the engine, behind one seam.
//!
//! The log and the tree never touch `std::fs`: they ask a [`Disk`] for files and a [`File`] for reads and writes, so
//! that tests can record, fail and crash each call. Every file is backed by a real descriptor, whichever disk made it,
//! because the tree maps it. This room knows nothing of formats, and decides nothing: it does not retry, and above all
//! it never repeats a failed sync (after one the kernel may have dropped the pages; what they held is unknown).
//!
//! Durability of names: a file that was created, renamed or removed is so for certain only after
//! [`Disk::sync_dir`]; [`durable_rename`] is the one way to put a finished file in its place. What an earlier process
//! showed and did not sync is not durable either: who opens a file it has not made syncs its name first.

mod real;
#[cfg(test)]
pub(crate) mod sim;

use std::{
    fmt::Debug,
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

pub use real::RealDisk;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    ReadWrite,
    /// Create a file that must not exist yet, for reading and writing, with mode 0600.
    CreateNew,
    /// Create a file, or cut an existing one to nothing, for reading and writing, with mode 0600.
    CreateOrTruncate,
}

/// A file system, as far as the engine needs one.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens or creates a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>>;
    /// Creates a directory and those above it, with mode 0700; an existing one is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// The paths directly below a directory, sorted by name.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Whether something is there by this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Gives a file another name, replacing what had it. Not durable until the directory is synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name. Not durable until the directory is synced.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file. All offsets and lengths are in bytes.
pub trait File: Debug + Send + Sync + 'static {
    /// Fills `buf` from `offset`; a file that ends before is an `UnexpectedEof` error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buf` at `offset`.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the data, and the size needed to read it, durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Makes data and all metadata durable (`fsync`).
    fn sync_all(&self) -> io::Result<()>;
    /// Reserves blocks for `offset..offset + len` and grows the file to cover them.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Cuts the file, or grows it with a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The file's length.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Takes an exclusive advisory lock for as long as the file is open; `false` if another process holds it.
    fn try_lock_exclusive(&self) -> io::Result<bool>;
    /// Takes an advisory lock that others who only look may have too; `false` if a process has it for itself.
    fn try_lock_shared(&self) -> io::Result<bool> {
        match rustix::fs::flock(self.descriptor(), rustix::fs::FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
    /// The descriptor, for mapping the file into memory.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Puts the finished file `from` in place as `to`: syncs it, renames it, and syncs the directory of the new name.
///
/// After an `Ok` the new name holds the whole file, whatever happens to the machine; before it, the old file or none
/// may be there instead. Both paths must be in the same directory.
pub fn durable_rename(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    disk.open(from, OpenMode::ReadWrite)?.sync_all()?;
    disk.rename(from, to)?;
    let dir = to.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "path has no directory"))?;
    disk.sync_dir(dir)
}

/// Creates a directory and those above it; after an `Ok` their names stay, whatever happens to the machine.
///
/// One after the other, from the outermost: an earlier process that ended on the way left at most one whose name was
/// not synced, which is the innermost that is there.
pub fn create_dir_durably(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if disk.exists(ancestor)? {
            match sync_parent(disk, ancestor) {
                // Whoever made a directory in one we may not even read, it was not us.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                outcome => outcome?,
            }
            break;
        }
        missing.push(ancestor);
    }
    for created in missing.into_iter().rev() {
        disk.create_dir_all(created)?;
        sync_parent(disk, created)?;
    }
    Ok(())
}

/// Makes a path's name durable.
pub fn sync_parent(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => disk.sync_dir(Path::new(".")),
        Some(parent) => disk.sync_dir(parent),
        None => Ok(()),
    }
}
