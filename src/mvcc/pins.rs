//! Revisions that reads in progress still need.
//!
//! A compaction refuses new reads below it at once, but deletes nothing a read in progress needs until that has ended,
//! or has had its time: a client that stops reading must not keep the store's space.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// The revisions, each with the number of reads at it.
#[derive(Debug, Default)]
pub(super) struct Pins {
    reads: Mutex<BTreeMap<i64, usize>>,
}

/// Keeps a revision for as long as it lives.
#[derive(Debug)]
pub(super) struct Pin {
    pins: Arc<Pins>,
    revision: i64,
}

impl Pins {
    /// Whether a read at a revision below is in progress.
    pub(super) fn are_below(&self, revision: i64) -> bool {
        self.reads.lock().first_key_value().is_some_and(|(oldest, _)| *oldest < revision)
    }
}

impl Pin {
    /// To be called under the lock under which the revision was found to be readable.
    pub(super) fn new(pins: &Arc<Pins>, revision: i64) -> Pin {
        *pins.reads.lock().entry(revision).or_default() += 1;
        Pin { pins: Arc::clone(pins), revision }
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut reads = self.pins.reads.lock();
        if let Some(count) = reads.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                reads.remove(&self.revision);
            }
        }
    }
}
