//! A disk whose syncs fail from a moment on.

use std::{
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::disk::{Disk, File, OpenMode, RealDisk};

#[derive(Clone, Debug, Default)]
pub(super) struct FailingDisk {
    failing: Arc<AtomicBool>,
}

impl FailingDisk {
    /// From here on no sync succeeds.
    pub(super) fn fail_syncs(&self) {
        self.failing.store(true, Ordering::SeqCst);
    }
}

fn check(failing: &AtomicBool) -> io::Result<()> {
    if failing.load(Ordering::SeqCst) { Err(io::Error::other("the test's disk fails")) } else { Ok(()) }
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(FailingFile { file: RealDisk.open(path, mode)?, failing: self.failing.clone() }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        RealDisk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        check(&self.failing)?;
        RealDisk.sync_dir(dir)
    }
}

#[derive(Debug)]
struct FailingFile {
    file: Box<dyn File>,
    failing: Arc<AtomicBool>,
}

impl File for FailingFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        check(&self.failing)?;
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        check(&self.failing)?;
        self.file.sync_all()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.allocate(offset, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.file.try_lock_exclusive()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}
