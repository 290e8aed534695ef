//! How this member stands: whether it may answer reads from what it has applied, and whether it has failed.
//!
//! A sole voter that leads, and has applied an entry of its own term, holds every acknowledged write before the
//! acknowledgement is sent: a read barrier then has nothing to wait for. The storage moves the flag, not the library's
//! metrics: an append that would add a voter, or a vote for another leader, takes it back before it can take effect.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::types::{Membership, Vote, is_sole_voter};

/// Shared by the log's storage, the state machine, the proposer and the facade.
#[derive(Debug)]
pub(super) struct Standing {
    member_id: u64,
    /// The facts `ready` follows from. Transitions happen under this lock, reads of `ready` need none.
    facts: Mutex<Facts>,
    ready: AtomicBool,
    ready_changes: watch::Sender<bool>,
    term: AtomicU64,
    committed: AtomicU64,
    applied: AtomicU64,
    last_log: AtomicU64,
    failure: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct Facts {
    sole_voter: bool,
    /// Index of the newest membership in the log.
    membership_index: u64,
    /// The term this member leads; 0 if it does not.
    led_term: u64,
    stopped: bool,
}

impl Standing {
    pub(super) fn new(member_id: u64) -> Standing {
        Standing {
            member_id,
            facts: Mutex::default(),
            ready: AtomicBool::new(false),
            ready_changes: watch::Sender::new(false),
            term: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            last_log: AtomicU64::new(0),
            failure: watch::Sender::new(None),
        }
    }

    /// Whether everything acknowledged is applied here, without asking anyone.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(super) fn ready_changes(&self) -> watch::Receiver<bool> {
        self.ready_changes.subscribe()
    }

    /// A vote is about to be made durable.
    pub(super) fn voted(&self, vote: &Vote) {
        self.term.store(vote.leader_id.term, Ordering::Release);
        let mut facts = self.facts.lock();
        let leads = vote.committed && vote.leader_id.voted_for == self.member_id;
        let led_term = if leads { vote.leader_id.term } else { 0 };
        if facts.led_term != led_term {
            facts.led_term = led_term;
            self.set_ready(false);
        }
    }

    /// A membership is about to be appended: it is in force from then on.
    pub(super) fn membership_appended(&self, index: u64, membership: &Membership) {
        let mut facts = self.facts.lock();
        facts.membership_index = index;
        if !is_sole_voter(membership, self.member_id) {
            facts.sole_voter = false;
            self.set_ready(false);
        }
    }

    /// A committed membership is applied.
    pub(super) fn membership_applied(&self, index: u64, membership: &Membership) {
        let mut facts = self.facts.lock();
        // A newer one in the log is in force already.
        if index >= facts.membership_index {
            facts.sole_voter = is_sole_voter(membership, self.member_id);
        }
    }

    /// An entry of `term` is applied, and with it every entry before it.
    pub(super) fn entry_applied(&self, term: u64, index: u64) {
        self.applied.store(index, Ordering::Release);
        if !self.is_ready() {
            let facts = self.facts.lock();
            if facts.sole_voter && facts.led_term == term && term != 0 && !facts.stopped {
                self.set_ready(true);
            }
        }
    }

    /// Nothing is answered from here any more.
    pub(super) fn stopped(&self) {
        let mut facts = self.facts.lock();
        facts.stopped = true;
        self.set_ready(false);
    }

    fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
        self.ready_changes.send_if_modified(|current| std::mem::replace(current, ready) != ready);
    }

    /// The term of the last vote.
    pub(super) fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// Index of the last committed entry known here.
    pub(super) fn committed(&self) -> u64 {
        // Replay applies entries whose commit is not announced anew.
        self.committed.load(Ordering::Acquire).max(self.applied())
    }

    pub(super) fn set_committed(&self, index: u64) {
        self.committed.store(index, Ordering::Release);
    }

    /// Index of the last applied entry.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(super) fn set_applied(&self, index: u64) {
        self.applied.store(index, Ordering::Release);
    }

    /// Index of the last entry in the log.
    pub(super) fn last_log(&self) -> u64 {
        self.last_log.load(Ordering::Acquire)
    }

    pub(super) fn set_last_log(&self, index: u64) {
        self.last_log.store(index, Ordering::Release);
    }

    /// The member cannot go on. The first reason stays.
    pub(super) fn fail(&self, reason: String) {
        self.stopped();
        let first = self.failure.send_if_modified(|current| {
            if current.is_some() {
                return false;
            }
            *current = Some(reason.clone());
            true
        });
        if first {
            tracing::error!(reason, "the member cannot go on");
        }
    }

    pub(super) fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.subscribe()
    }
}
