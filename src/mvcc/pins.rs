//! Reads in progress: the revisions, and the pages of the file, that they still need.
//!
//! A compaction refuses new reads below it at once, but deletes nothing a read in progress needs until that has ended,
//! or has had its time: a client that stops reading must not keep the store's space. A view of the whole file keeps pages
//! instead, for as long as it is open. An operator is told of the oldest of both.

use std::{collections::BTreeMap, ops::Deref, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{bolt, metrics::Time};

/// What an open read keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadKind {
    /// History from its revision on: a list in progress.
    Range,
    /// The pages of the file as it was: a snapshot or a hash in progress.
    File,
}

/// A read in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRead {
    /// What it keeps.
    pub kind: ReadKind,
    /// The revision it reads at.
    pub revision: i64,
    /// Since it was opened.
    pub age: Duration,
}

/// The reads in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReads {
    /// How many there are.
    pub total: usize,
    /// The oldest, the very oldest first.
    pub oldest: Vec<OpenRead>,
}

/// All reads in progress.
#[derive(Debug)]
pub(super) struct Pins {
    time: Time,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Number of the next one.
    next: u64,
    /// By number, and so by age.
    reads: BTreeMap<u64, Opened>,
}

#[derive(Debug)]
struct Opened {
    kind: ReadKind,
    revision: i64,
    at: Duration,
}

/// Keeps a revision, or the file's pages, for as long as it lives.
#[derive(Debug)]
pub(super) struct Pin {
    pins: Arc<Pins>,
    number: u64,
    revision: i64,
}

impl Pins {
    pub(super) fn new(time: Time) -> Pins {
        Pins { time, open: Mutex::default() }
    }

    /// Whether a list at a revision below is in progress.
    pub(super) fn are_below(&self, revision: i64) -> bool {
        let open = self.open.lock();
        open.reads.values().any(|read| read.kind == ReadKind::Range && read.revision < revision)
    }

    /// The oldest, at most so many.
    pub(super) fn oldest(&self, reads_max: usize) -> OpenReads {
        let now = self.time.now();
        let open = self.open.lock();
        let told =
            |read: &Opened| OpenRead { kind: read.kind, revision: read.revision, age: now.saturating_sub(read.at) };
        OpenReads { total: open.reads.len(), oldest: open.reads.values().take(reads_max).map(told).collect() }
    }
}

impl Pin {
    /// For a list: to be called under the lock under which the revision was found to be readable.
    pub(super) fn new(pins: &Arc<Pins>, kind: ReadKind, revision: i64) -> Pin {
        let mut open = pins.open.lock();
        let number = open.next;
        open.next += 1;
        open.reads.insert(number, Opened { kind, revision, at: pins.time.now() });
        drop(open);
        Pin { pins: Arc::clone(pins), number, revision }
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.open.lock().reads.remove(&self.number);
    }
}

/// The file as of one commit, known to be open.
#[derive(Debug)]
pub struct PinnedFile {
    tx: bolt::ReadTx,
    _pin: Pin,
}

impl PinnedFile {
    pub(super) fn new(tx: bolt::ReadTx, pins: &Arc<Pins>, revision: i64) -> PinnedFile {
        PinnedFile { tx, _pin: Pin::new(pins, ReadKind::File, revision) }
    }
}

impl Deref for PinnedFile {
    type Target = bolt::ReadTx;

    fn deref(&self) -> &bolt::ReadTx {
        &self.tx
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::{Clock, ManualClock};

    use super::*;

    #[test]
    fn the_oldest_come_first_and_only_lists_keep_history() {
        let clock = Arc::new(ManualClock::default());
        let now = Arc::clone(&clock);
        let pins = Arc::new(Pins::new(Time::new(move || now.monotonic())));
        let list = Pin::new(&pins, ReadKind::Range, 9);
        clock.advance(Duration::from_secs(2));
        let file = Pin::new(&pins, ReadKind::File, 3);
        clock.advance(Duration::from_secs(1));
        assert!(pins.are_below(10) && !pins.are_below(9), "a view of the file needs no history");

        let secs = Duration::from_secs;
        let oldest = OpenRead { kind: ReadKind::Range, revision: 9, age: secs(3) };
        assert_eq!(pins.oldest(1), OpenReads { total: 2, oldest: vec![oldest] });
        drop(list);
        let left = OpenRead { kind: ReadKind::File, revision: 3, age: secs(1) };
        assert_eq!(pins.oldest(9), OpenReads { total: 1, oldest: vec![left] });
        assert!(!pins.are_below(10));
        drop(file);
        assert_eq!(pins.oldest(9), OpenReads::default());
    }
}
