//! Giving the file's unused room back: the one place that knows how it is done.
//!
//! The file is replaced by a compacted copy, on the backend thread. What is applied meanwhile gathers in the ring, and
//! readers keep what they have pinned; nobody waits but who asked, and flushes.

use std::time::Instant;

use super::{MvccError, backend::KEY_BUCKET_FILL, state::Shared};
use crate::bolt::{CompactError, Db};

/// How a defragmentation ended that did not end the store.
pub(super) type Outcome = Result<Db, MvccError>;

/// Gives room back; returns the file to go on with. The outer error is final.
pub(super) fn run(shared: &Shared, db: &Db, keep_going: &dyn Fn() -> bool) -> Result<Outcome, MvccError> {
    let started = Instant::now();
    let before_bytes = db.size_bytes();
    shared.metrics.defrag_inflight.set(1);
    let compacted = db.compact(KEY_BUCKET_FILL, keep_going);
    shared.metrics.defrag_inflight.set(0);
    match compacted {
        Ok(copy) => {
            let old = shared.db.write().replace(copy.clone());
            // Unmapping and freeing a large file takes time: not under the lock.
            drop(old);
            shared.metrics.backend_defrag_duration.observe(started.elapsed().as_secs_f64());
            let (after_bytes, took) = (copy.size_bytes(), started.elapsed());
            tracing::info!(before_bytes, after_bytes, ?took, "the backend file was defragmented");
            Ok(Ok(copy))
        }
        Err(CompactError::Untouched(error)) => {
            tracing::warn!(%error, "defragmentation failed; the backend file is as it was");
            Ok(Err(error.into()))
        }
        Err(CompactError::Unknown(error)) => Err(error.into()),
    }
}
