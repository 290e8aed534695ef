//! Reading history for those that catch up: a thread of its own, so that the hub's never waits for the file.
//!
//! The hub asks for one bounded read at a time, saying who wants what. The answer comes through its inbox, already made
//! into events: matching, what the changes replaced, and all that touches the file is done here, in the background.
//! Knows no stream and no position: what the events mean for whom, the hub decides when it has them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use super::{
    Shared,
    events::{EventList, collect},
    history::History,
    matcher::{Interest, Matcher},
};
use crate::mvcc::MvccError;

/// Reads that may be asked for and not begun.
const WAITING_READS_MAX: usize = 1;

/// A cursor as it was when the read was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) slot: usize,
    /// Tells whether the slot still holds the same watcher.
    pub(super) serial: u64,
    /// The first revision it had not been given.
    pub(super) next: i64,
    /// Which of the interests is its own.
    pub(super) interest: usize,
}

/// What to read, and for whom.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) from: i64,
    pub(super) revisions_max: usize,
    pub(super) bytes_max: usize,
    /// What live watchers had been given when this was asked.
    pub(super) distributed: i64,
    /// Whose turn it is.
    pub(super) front: Seat,
    /// All who can share the read, the front among them.
    pub(super) seats: Vec<Seat>,
    /// What they want, each once.
    pub(super) interests: Vec<Interest>,
}

/// Events from history.
#[derive(Debug)]
pub(super) struct Found {
    /// The read is complete from where it began up to here.
    pub(super) through: i64,
    /// By interest; none where there are no events.
    pub(super) lists: BTreeMap<usize, EventList>,
}

/// What came of a read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) from: i64,
    pub(super) front: Seat,
    pub(super) seats: Vec<Seat>,
    pub(super) outcome: Result<Found, MvccError>,
}

impl Ask {
    fn answer(self, history: &History) -> Read {
        let Ask { from, revisions_max, bytes_max, distributed, front, seats, interests } = self;
        let outcome = (history.changes_since)(from, revisions_max, bytes_max).map(|changes| {
            // Nothing from there on: then nothing is missing up to what live watchers had before it was looked for. What
            // they have been given since may not have been there then.
            let through = changes.last().map_or(distributed.max(from - 1), |last| last.revision);
            let lists = collect(history, &Matcher::of(interests), &changes, |_, _| true);
            Found { through, lists }
        });
        Read { from, front, seats, outcome }
    }
}

/// Where reads are asked for, and who makes them. The reader ends when the asking end is gone.
pub(super) fn pair(shared: &Arc<Shared>) -> (SyncSender<Ask>, Reader) {
    let (asks, asked) = sync_channel(WAITING_READS_MAX);
    (asks, Reader { shared: Arc::clone(shared), asked })
}

/// Makes the reads.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    asked: Receiver<Ask>,
}

impl Reader {
    /// The thread's life.
    pub(super) fn run(&self) {
        while let Ok(ask) = self.asked.recv() {
            self.make(ask);
        }
    }

    fn make(&self, ask: Ask) {
        self.shared.inbox.push_read(ask.answer(&self.shared.history));
    }

    /// Makes the read that is asked for; `false`: there is none.
    #[cfg(test)]
    pub(super) fn step(&self) -> bool {
        self.asked.try_recv().map(|ask| self.make(ask)).is_ok()
    }
}
