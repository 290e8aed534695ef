//! Whether the backend file has the room that is kept for the way back from a full disk.
//!
//! A copy-on-write tree needs room even to delete. So some is kept, in the file, beyond what commits need; while it cannot
//! be had, writes that grow are to be refused, and what is kept pays for the deletes and compactions that make room.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prometheus::IntGauge;

use crate::{bolt, metrics::Metrics};

/// Least room that is kept, in bytes.
const KEPT_BYTES_MIN: u64 = 1 << 20;
/// Most room that is kept, in bytes: more than is applied between two commits.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Share of the bytes in use that is kept, between the two: one in so many.
const KEPT_DIVISOR: u64 = 16;

#[derive(Debug)]
pub(super) struct Shortage {
    reason: Mutex<Option<String>>,
    is_short: AtomicBool,
    gauge: IntGauge,
}

impl Shortage {
    pub(super) fn new(metrics: &Metrics) -> Shortage {
        let gauge = metrics.disk_full.with_label_values(&["db"]);
        Shortage { reason: Mutex::default(), is_short: AtomicBool::new(false), gauge }
    }

    pub(super) fn reason(&self) -> Option<String> {
        if self.is_short.load(Ordering::Acquire) { self.reason.lock().clone() } else { None }
    }

    /// Sees to it that the room is kept; whether it is. An error that is not for want of room is final.
    pub(super) fn keep_room(&self, db: &bolt::Db) -> Result<bool, bolt::BoltError> {
        let kept_bytes = (db.size_in_use_bytes() / KEPT_DIVISOR).clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX);
        match db.ensure_room(kept_bytes) {
            Ok(()) => {
                self.found_enough();
                Ok(true)
            }
            Err(error) if is_disk_full(&error) => {
                self.found_short(&error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn found_short(&self, error: &bolt::BoltError) {
        if self.reason.lock().replace(error.to_string()).is_none() {
            tracing::error!(%error, "no room for the backend file: what grows is refused until there is");
        }
        self.is_short.store(true, Ordering::Release);
        self.gauge.set(1);
    }

    fn found_enough(&self) {
        if self.is_short.swap(false, Ordering::AcqRel) {
            self.reason.lock().take();
            self.gauge.set(0);
            tracing::info!("there is room for the backend file again");
        }
    }
}

/// Whether the file is as it was and can be written once there is room. A write or sync that fails for want of room is
/// none of these: what the file holds after it is unknown.
pub(super) fn is_disk_full(error: &bolt::BoltError) -> bool {
    matches!(error, bolt::BoltError::NoRoom { .. } | bolt::BoltError::Full { .. })
}
