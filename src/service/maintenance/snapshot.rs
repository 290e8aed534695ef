//! A copy of the backend file for a client: parts, and at the end the SHA-256 of them all.

use std::time::Instant;

use prometheus::Histogram;
use sha2::{Digest, Sha256};

use crate::{
    error::ApiError,
    mvcc::{PinnedFile, STORAGE_VERSION},
    proto::etcdserverpb::SnapshotResponse,
};

/// Size of a part; etcd's.
const PART_BYTES: usize = 32 * 1024;
/// Parts that are read at a time, on a thread that may wait for the disk.
const PARTS_AT_ONCE: u64 = 16;

/// A snapshot on its way: one commit of the file, which stays as it is until this is dropped.
#[derive(Debug)]
pub struct SnapshotStream {
    tx: PinnedFile,
    sent_bytes: u64,
    sha256: Sha256,
    began: Instant,
    duration: Histogram,
    ended: bool,
}

impl SnapshotStream {
    pub(super) fn new(tx: PinnedFile, duration: Histogram) -> SnapshotStream {
        let (sent_bytes, sha256, began) = (0, Sha256::new(), Instant::now());
        SnapshotStream { tx, sent_bytes, sha256, began, duration, ended: false }
    }

    /// The next few messages; none at the end. Only as much is read as is asked for.
    pub async fn next(mut self) -> Result<(Vec<SnapshotResponse>, SnapshotStream), ApiError> {
        let read = move || {
            let responses = self.read()?;
            Ok((responses, self))
        };
        let outcome = tokio::task::spawn_blocking(read).await;
        outcome.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
    }

    fn read(&mut self) -> Result<Vec<SnapshotResponse>, ApiError> {
        let total_bytes = self.tx.snapshot_bytes();
        let mut responses = Vec::new();
        while !self.ended && (responses.len() as u64) < PARTS_AT_ONCE {
            let left = total_bytes - self.sent_bytes;
            let mut part = vec![0; usize::try_from(left).map_or(PART_BYTES, |left| left.min(PART_BYTES))];
            if part.is_empty() {
                part = self.sha256.finalize_reset().to_vec();
                self.duration.observe(self.began.elapsed().as_secs_f64());
                self.ended = true;
            } else {
                let read = self.tx.read_snapshot(self.sent_bytes, &mut part);
                let read = read.map_err(|error| ApiError::DataLoss(error.to_string()))?;
                part.truncate(read);
                self.sha256.update(&part);
                self.sent_bytes += read as u64;
            }
            responses.push(SnapshotResponse {
                remaining_bytes: total_bytes - self.sent_bytes,
                blob: part.into(),
                version: STORAGE_VERSION.into(),
                ..Default::default()
            });
        }
        Ok(responses)
    }
}
