//! Why a member did not start, or did not stop in order, in words that say what to do.

use std::{io, path::PathBuf, sync::Arc};

use thiserror::Error;

use crate::{
    bolt::BoltError,
    consensus::ConsensusError,
    http::{TlsError, TracingError},
    mvcc::MvccError,
};

use super::data_dir::DataDir;

/// bbolt's usual page size, in bytes: tells about where in the file a page is.
const USUAL_PAGE_BYTES: u64 = 4096;

/// What to do about a damaged data file.
const DAMAGE_ADVICE: &str = "nothing was changed; restore the data dir from a backup or a snapshot";

/// Why a member did not start, or did not stop in order.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A listener could not be bound.
    #[error("cannot listen on {url}: {}", listen_advice(source, flag))]
    Listen {
        /// As configured.
        url: String,
        /// By which flag.
        flag: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The data dir could not be made ready.
    #[error("cannot {action} the data dir {}: {source}", path.display())]
    DataDir {
        /// The data dir.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process has the data dir.
    #[error(
        "the data dir {} is in use by another process{}: stop that one first, or choose another with --data-dir",
        path.display(),
        holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    DataDirInUse {
        /// The data dir.
        path: PathBuf,
        /// The process that has it, if it left its number.
        holder: Option<u32>,
    },
    /// The keys of signed tokens could not be read, or are no such keys.
    #[error("--auth-token: {0}")]
    AuthTokens(String),
    /// The data belongs to a cluster of more than one member.
    #[error("the data dir holds a cluster of {count} members: clusters of more than one come later")]
    SeveralMembers {
        /// How many.
        count: usize,
    },
    /// The data file, or a page of it.
    #[error("{}", bolt_text(.0))]
    Bolt(#[source] Arc<BoltError>),
    /// What the data file holds.
    #[error("the data file is damaged: {0}; {DAMAGE_ADVICE}")]
    Damaged(String),
    /// Entries are missing between the log and the data file.
    #[error(
        "the log in {} and the data file {} do not belong together: {what}; put the two of one member and one moment \
         back together, or restore the data dir from a backup or a snapshot",
        wal_dir.display(),
        db_path.display()
    )]
    Apart {
        /// Where the log is.
        wal_dir: PathBuf,
        /// The data file.
        db_path: PathBuf,
        /// Which entries.
        what: String,
    },
    /// The log, or the Raft library.
    #[error(transparent)]
    Consensus(#[from] ConsensusError),
    /// The certificates for clients.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The way to the collector of traces.
    #[error(transparent)]
    Tracing(#[from] TracingError),
    /// The HTTP front.
    #[error("the HTTP server did not start: {0}")]
    Http(#[source] io::Error),
    /// The thread that opens or closes the files ended without an answer.
    #[error("the thread that works on the data file ended: {0}")]
    Worker(String),
}

impl ServerError {
    /// Why the consensus did not start on the files of `data_dir`.
    pub(super) fn consensus(error: ConsensusError, data_dir: &DataDir) -> ServerError {
        match error {
            ConsensusError::Apart(what) => {
                ServerError::Apart { wal_dir: data_dir.wal_dir(), db_path: data_dir.db_path(), what }
            }
            other => ServerError::Consensus(other),
        }
    }

    pub(super) fn damaged_bucket(bucket: &[u8], what: impl Into<String>) -> ServerError {
        ServerError::Damaged(format!("bucket {}: {}", String::from_utf8_lossy(bucket), what.into()))
    }
}

impl From<BoltError> for ServerError {
    fn from(error: BoltError) -> Self {
        ServerError::Bolt(Arc::new(error))
    }
}

impl From<MvccError> for ServerError {
    fn from(error: MvccError) -> Self {
        match error {
            MvccError::Bolt(error) => ServerError::Bolt(error),
            other => ServerError::Damaged(other.to_string()),
        }
    }
}

fn listen_advice(source: &io::Error, flag: &str) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "address already in use; another process (a revgate, an etcd?) listens there: stop that one, or choose \
                 another address with {flag}"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{source}; this machine has no such address: choose one it has with {flag}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{source}; choose a port above 1023 with {flag}, or give the process the right")
        }
        _ => source.to_string(),
    }
}

fn bolt_text(error: &BoltError) -> String {
    match error {
        BoltError::DamagedPage { page, .. } => {
            let offset = page.saturating_mul(USUAL_PAGE_BYTES);
            format!("{error} (at offset {offset} with pages of {USUAL_PAGE_BYTES} bytes); {DAMAGE_ADVICE}")
        }
        BoltError::Locked { .. } => format!("{error}: stop that one first, or choose another with --data-dir"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_where_and_what_to_do() {
        let in_use = ServerError::Listen {
            url: "http://127.0.0.1:2379".into(),
            flag: "--listen-client-urls",
            source: io::Error::from(io::ErrorKind::AddrInUse),
        };
        let text = in_use.to_string();
        assert!(text.starts_with("cannot listen on http://127.0.0.1:2379: address already in use"), "{text}");
        assert!(text.contains("--listen-client-urls"), "{text}");

        let page =
            BoltError::DamagedPage { path: "d/member/snap/db".into(), page: 3, what: "no such page type".into() };
        let text = ServerError::from(page).to_string();
        assert!(text.starts_with("d/member/snap/db: page 3: no such page type (at offset 12288 "), "{text}");
        assert!(text.ends_with("restore the data dir from a backup or a snapshot"), "{text}");

        let apart = ServerError::Apart {
            wal_dir: "d/member/wal".into(),
            db_path: "d/member/snap/db".into(),
            what: "the log begins at entry 7".into(),
        };
        let text = apart.to_string();
        assert!(text.starts_with("the log in d/member/wal and the data file d/member/snap/db do not belong"), "{text}");

        let held = ServerError::DataDirInUse { path: "d".into(), holder: Some(7) };
        assert!(held.to_string().starts_with("the data dir d is in use by another process (pid 7): stop"), "{held}");
    }
}
