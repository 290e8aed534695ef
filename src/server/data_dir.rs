//! The data dir: where what lies, and that one process at a time has it.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::disk::{Disk, File, OpenMode, create_dir_durably};

use super::error::ServerError;

/// Most bytes of the lock file that are looked at to tell who holds it.
const HOLDER_BYTES_MAX: u64 = 16;

/// Below the data dir: what makes it a member's.
pub(super) const MEMBER_DIR: &str = "member";
/// The same while a restore is at work on it.
pub(super) const UNFINISHED_MEMBER_DIR: &str = "member.part";

/// A data dir that is ours until this is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    lock: Box<dyn File>,
}

impl DataDir {
    /// Creates what is missing and takes the lock.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<DataDir, ServerError> {
        let failed = |action| move |source| ServerError::DataDir { path: path.to_owned(), action, source };
        refuse_unfinished(disk, path).map_err(failed("take up"))?;
        for dir in ["member/snap", "member/wal"] {
            create_dir_durably(disk, &path.join(dir)).map_err(failed("create"))?;
        }
        let lock = open_lock(disk, &path.join("member/lock")).map_err(failed("lock"))?;
        if !lock.try_lock_exclusive().map_err(failed("lock"))? {
            let holder = read_holder(&*lock).map_err(failed("lock"))?;
            return Err(ServerError::DataDirInUse { path: path.to_owned(), holder });
        }
        write_holder(&*lock).map_err(failed("lock"))?;
        Ok(DataDir { path: path.to_owned(), lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn wal_dir(&self) -> PathBuf {
        self.path.join("member/wal")
    }

    pub(super) fn db_path(&self) -> PathBuf {
        self.path.join("member/snap/db")
    }

    /// Gives the data dir up in order: nobody is named as its holder any more.
    pub(super) fn release(self) -> Result<(), ServerError> {
        let failed = |source| ServerError::DataDir { path: self.path.clone(), action: "release", source };
        self.lock.set_len(0).map_err(failed)
    }
}

/// An empty member must not take the place of one that was to be restored.
fn refuse_unfinished(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let is_unfinished = match disk.exists(&path.join(UNFINISHED_MEMBER_DIR)) {
        // Whether it can be made a directory is for those who make it.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => false,
        exists => exists? && !disk.exists(&path.join(MEMBER_DIR))?,
    };
    if !is_unfinished {
        return Ok(());
    }
    let what =
        "a restore into it was begun and not finished; empty the directory and run revgate snapshot restore again";
    Err(io::Error::other(what))
}

fn open_lock(disk: &dyn Disk, path: &Path) -> io::Result<Box<dyn File>> {
    match disk.open(path, OpenMode::CreateNew) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(path, OpenMode::ReadWrite),
        outcome => outcome,
    }
}

/// The process id in the lock file is for people only; the lock itself is the kernel's.
fn write_holder(lock: &dyn File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all_at(std::process::id().to_string().as_bytes(), 0)
}

fn read_holder(lock: &dyn File) -> io::Result<Option<u32>> {
    let mut text = vec![0; usize::try_from(lock.len()?.min(HOLDER_BYTES_MAX)).unwrap_or(0)];
    lock.read_exact_at(&mut text, 0)?;
    Ok(std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()))
}
