//! What the engine did to the disk, in order.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::disk::OpenMode;

/// A file, whatever its name; numbers are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(pub(super) usize);

/// A call that changed something. Paths are below the recording's root.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    CreateDir {
        path: PathBuf,
    },
    Create {
        path: PathBuf,
        file: FileId,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    SyncDir {
        path: PathBuf,
    },
    Write {
        file: FileId,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// The file now reaches to `end` at least.
    Allocate {
        file: FileId,
        end: u64,
    },
    SetLen {
        file: FileId,
        len: u64,
    },
    /// `fdatasync` and `fsync`: both make data and size durable.
    Sync {
        file: FileId,
    },
    FailedSync {
        file: FileId,
    },
    Mark(Mark),
}

/// A test's note. Steps are what a workload does one after another, each with a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A process begins; the one before has ended.
    Started,
    /// A step is asked of the engine; it may be there from here on.
    Begun(u64),
    /// The engine promised that this step, and all before it, are there for good.
    Done(u64),
    /// The engine was started anew and holds so many of the steps; what it shows is promised again.
    Restarted(usize),
}

/// A recording: what was there, and what was done.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    root: PathBuf,
    pub(super) base_dirs: Vec<PathBuf>,
    pub(super) base_files: Vec<(PathBuf, FileId, Arc<[u8]>)>,
    pub(super) ops: Vec<Op>,
    names: HashMap<PathBuf, FileId>,
    files: usize,
}

impl Recording {
    pub(super) fn begin(root: &Path) -> Recording {
        let mut recording = Recording {
            root: root.to_owned(),
            base_dirs: Vec::new(),
            base_files: Vec::new(),
            ops: Vec::new(),
            names: HashMap::new(),
            files: 0,
        };
        recording.take_stock(root);
        recording
    }

    fn take_stock(&mut self, dir: &Path) {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let below = self.below(&path).expect("it was found below the root");
            if path.is_dir() {
                self.base_dirs.push(below);
                self.take_stock(&path);
            } else {
                let file = self.next_file(&below);
                self.base_files.push((below, file, std::fs::read(&path).unwrap().into()));
            }
        }
    }

    /// Every call so far.
    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The same without some of the calls: what another engine, or a disk that lies, would have done.
    pub(crate) fn without(&self, mut is_left_out: impl FnMut(&Op) -> bool) -> Recording {
        let ops = self.ops.iter().filter(|op| !is_left_out(op)).cloned().collect();
        Recording { ops, ..self.clone() }
    }

    /// Whether anything was done to a file after a sync of it failed and before another process began.
    pub(crate) fn goes_on_after_a_failed_sync(&self) -> bool {
        let mut failed = Vec::new();
        self.ops.iter().any(|op| match op {
            Op::FailedSync { file } => {
                let again = failed.contains(file);
                failed.push(*file);
                again
            }
            Op::Sync { file } | Op::Write { file, .. } => failed.contains(file),
            Op::Mark(Mark::Started) => {
                failed.clear();
                false
            }
            _ => false,
        })
    }

    pub(super) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    fn below(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&self.root).ok().map(Path::to_owned)
    }

    fn next_file(&mut self, path: &Path) -> FileId {
        let file = FileId(self.files);
        self.files += 1;
        self.names.insert(path.to_owned(), file);
        file
    }

    pub(super) fn opened(&mut self, path: &Path, existed: bool, mode: OpenMode) -> Option<FileId> {
        let path = self.below(path)?;
        if !existed {
            let file = self.next_file(&path);
            self.push(Op::Create { path, file });
            return Some(file);
        }
        let file = *self.names.get(&path)?;
        if mode == OpenMode::CreateOrTruncate {
            self.push(Op::SetLen { file, len: 0 });
        }
        Some(file)
    }

    pub(super) fn created_dir(&mut self, path: &Path) {
        if let Some(path) = self.below(path) {
            self.push(Op::CreateDir { path });
        }
    }

    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        if let (Some(from), Some(to)) = (self.below(from), self.below(to)) {
            if let Some(file) = self.names.remove(&from) {
                self.names.insert(to.clone(), file);
            }
            self.push(Op::Rename { from, to });
        }
    }

    pub(super) fn removed(&mut self, path: &Path) {
        if let Some(path) = self.below(path) {
            self.names.remove(&path);
            self.push(Op::Remove { path });
        }
    }

    pub(super) fn synced_dir(&mut self, path: &Path) {
        if let Some(path) = self.below(path) {
            self.push(Op::SyncDir { path });
        }
    }
}
