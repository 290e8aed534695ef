//! What room the log has on its disk, for those who must not give it more than it can take.
//!
//! The log writes only where blocks are reserved: for want of room nothing fails in the middle of a write. While the
//! next segment cannot be reserved, what is left of the one being written is the reserve out of which the way back is
//! paid: whoever proposes keeps what grows away, and lets through what makes room.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;
use prometheus::IntGauge;

use super::WalError;

/// The log's room. Shared by the log's threads and those who append.
#[derive(Debug)]
pub struct Room {
    /// Why there is none for another segment, if there is none.
    shortage: Mutex<Option<String>>,
    is_short: AtomicBool,
    left_bytes: AtomicU64,
    gauge: IntGauge,
}

impl Room {
    pub(super) fn new(gauge: IntGauge) -> Room {
        Room { shortage: Mutex::default(), is_short: AtomicBool::new(false), left_bytes: AtomicU64::new(0), gauge }
    }

    /// Why the log can have no more than what is reserved, if so.
    pub fn shortage(&self) -> Option<String> {
        if self.is_short.load(Ordering::Acquire) { self.shortage.lock().clone() } else { None }
    }

    /// Bytes of room that are left in the segment being written.
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_left(&self, bytes: u64) {
        self.left_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn found_short(&self, error: &WalError) {
        if self.shortage.lock().replace(error.to_string()).is_none() {
            tracing::error!(%error, "no room for the log: what grows is refused until there is");
        }
        self.is_short.store(true, Ordering::Release);
        self.gauge.set(1);
    }

    pub(super) fn found_enough(&self) {
        if self.is_short.swap(false, Ordering::AcqRel) {
            self.shortage.lock().take();
            self.gauge.set(0);
            tracing::info!("there is room for the log again");
        }
    }
}

/// Whether this error of the system says that there is no room: on the disk, in somebody's share of it, or in a file.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}
