//! Why work on a file came to nothing, in words that say what to do.

use std::{io, path::PathBuf, sync::Arc};

use thiserror::Error;

use crate::{bolt::BoltError, mvcc::MvccError};

/// Why work on a file came to nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// A member serves the file.
    #[error(
        "{} is in use by a running member: take a snapshot of it (revgate snapshot save) and work on that, or stop the \
         member first",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The system refused a call.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what it was when its hash was made.
    #[error(
        "{}: its SHA-256 is {found}, the one at its end is {expected}: the file is not what it was when it was saved",
        path.display()
    )]
    WrongHash {
        /// The file.
        path: PathBuf,
        /// The hash at its end, in hexadecimal digits.
        expected: String,
        /// That of its content.
        found: String,
    },
    /// Neither a whole snapshot nor a data file.
    #[error(
        "{}: {bytes} bytes are neither whole pages (a data file) nor whole pages with a SHA-256 behind them (a \
         snapshot): the file was cut, or it is something else",
        path.display()
    )]
    OddLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A data file without a hash that is not sound.
    #[error(
        "{}: {first}; {findings} findings in all, revgate check tells them; there is no hash that could vouch for the \
         file: find another copy, or go on at your own risk with --skip-hash-check",
        path.display()
    )]
    Unsound {
        /// The file.
        path: PathBuf,
        /// The first thing that is wrong.
        first: String,
        /// How many there are.
        findings: u64,
    },
    /// Something is there that must not be lost.
    #[error("{} is not empty: choose a directory that is, or that does not exist yet", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// What was written for a new member could not be finished.
    #[error("{source}; what is in {} is of no use: remove it before you try again", unfinished.display())]
    Unfinished {
        /// The directory that holds it.
        unfinished: PathBuf,
        /// Why.
        #[source]
        source: Box<OfflineError>,
    },
    /// The file's structure.
    #[error(transparent)]
    Bolt(Arc<BoltError>),
    /// The file's records.
    #[error(transparent)]
    Mvcc(MvccError),
}

impl OfflineError {
    /// Whether the file was read and found to be damaged, rather than not to be had.
    pub fn is_damage(&self) -> bool {
        match self {
            OfflineError::WrongHash { .. } | OfflineError::OddLength { .. } | OfflineError::Unsound { .. } => true,
            OfflineError::Bolt(error) => matches!(
                **error,
                BoltError::BothMetasBad { .. } | BoltError::TooShort { .. } | BoltError::DamagedPage { .. }
            ),
            OfflineError::Mvcc(error) => matches!(error, MvccError::DamagedRecord { .. }),
            _ => false,
        }
    }
}

impl From<BoltError> for OfflineError {
    fn from(error: BoltError) -> Self {
        match error {
            BoltError::Locked { path } => OfflineError::InUse { path },
            other => OfflineError::Bolt(Arc::new(other)),
        }
    }
}

impl From<MvccError> for OfflineError {
    fn from(error: MvccError) -> Self {
        match error {
            MvccError::Bolt(error) => OfflineError::Bolt(error),
            other => OfflineError::Mvcc(other),
        }
    }
}
