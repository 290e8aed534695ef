//! What comes to the hub's thread: change sets from apply, commands from streams, history from its reader. Never makes
//! a sender wait.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{WatchSpec, reader::Read, report::ReportRequest, stream::Stream};
use crate::mvcc::ChangeSet;

/// Change sets the hub may be behind apply before they are dropped and re-read from the store's history.
pub(super) const INBOX_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a change costs in memory beside its key and value.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// What a stream asks of the hub. Commands of one stream arrive in the order in which it changed its own state.
/// Their number is bounded by what clients send: each needs a request, and the thread takes all there are in every round.
#[derive(Debug)]
pub(super) enum Command {
    Open(Arc<Stream>),
    /// A watch that wants revisions from `from` on, some of which are there already if it `reads_history`.
    Create {
        stream: u64,
        serial: u64,
        watch_id: i64,
        from: i64,
        reads_history: bool,
        spec: WatchSpec,
    },
    Cancel {
        stream: u64,
        serial: u64,
        watch_id: i64,
    },
    /// Wants to hear once everything up to `target` is delivered.
    Progress {
        stream: u64,
        target: i64,
    },
    /// Is to end once everything up to `target` is delivered.
    Finish {
        stream: u64,
        target: i64,
    },
    /// Somebody wants to know how all streams stand.
    Report(ReportRequest),
    /// The stream has room again.
    Drained(u64),
    Dropped(u64),
}

/// One round's work.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) commands: Vec<Command>,
    /// Change sets up to this revision were dropped (0: none).
    pub(super) dropped_through: i64,
    pub(super) changes: Vec<ChangeSet>,
    /// When the oldest of them was handed over.
    pub(super) handed_over: Option<Instant>,
    pub(super) read: Option<Read>,
    pub(super) closed: bool,
}

#[derive(Debug, Default)]
struct Content {
    commands: Vec<Command>,
    changes: VecDeque<(ChangeSet, Instant)>,
    changes_bytes: usize,
    dropped_through: i64,
    /// What was read of history. There is one read at a time.
    read: Option<Read>,
    poked: bool,
    /// The thread waits, and nobody does who is to hear of changes.
    idle: bool,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Inbox {
    content: Mutex<Content>,
    arrived: Condvar,
    bytes_max: usize,
}

impl Inbox {
    pub(super) fn new(bytes_max: usize) -> Inbox {
        Inbox { content: Mutex::default(), arrived: Condvar::new(), bytes_max }
    }

    /// Appends a change set. If the hub is too far behind, what it has not taken yet is dropped: it will read it from
    /// the history instead.
    pub(super) fn push_changes(&self, changes: ChangeSet) {
        let bytes = changes_bytes(&changes);
        let mut content = self.content.lock();
        if content.closed {
            return;
        }
        if content.idle {
            // Nobody's: not worth waking a thread for. Whoever comes in the meantime reads it from the history.
            content.dropped_through = changes.revision;
            return;
        }
        if content.changes_bytes + bytes > self.bytes_max
            && let Some(last) = content.changes.back().map(|(set, _)| set.revision)
        {
            content.dropped_through = last;
            content.changes.clear();
            content.changes_bytes = 0;
        }
        content.changes_bytes += bytes;
        content.changes.push_back((changes, Instant::now()));
        self.arrived.notify_one();
    }

    /// Hands over a command; `false` once the hub is closed.
    pub(super) fn push_command(&self, command: Command) -> bool {
        let mut content = self.content.lock();
        if content.closed {
            return false;
        }
        // What comes after the command may be for whom it speaks of.
        content.idle = false;
        content.commands.push(command);
        self.arrived.notify_one();
        true
    }

    /// Hands over what was read of history.
    pub(super) fn push_read(&self, read: Read) {
        let mut content = self.content.lock();
        if !content.closed {
            content.read = Some(read);
            self.arrived.notify_one();
        }
    }

    /// Makes the thread look at the clock.
    pub(super) fn poke(&self) {
        self.content.lock().poked = true;
        self.arrived.notify_one();
    }

    pub(super) fn close(&self) {
        let mut content = self.content.lock();
        content.closed = true;
        content.changes.clear();
        content.changes_bytes = 0;
        content.read = None;
        self.arrived.notify_one();
    }

    /// All commands, and change sets up to the limits (at least one if there is any).
    pub(super) fn take(&self, revisions_max: usize, bytes_max: usize) -> Taken {
        let mut content = self.content.lock();
        content.poked = false;
        let mut taken = Taken {
            commands: std::mem::take(&mut content.commands),
            dropped_through: std::mem::take(&mut content.dropped_through),
            changes: Vec::new(),
            handed_over: content.changes.front().map(|(_, at)| *at),
            read: content.read.take(),
            closed: content.closed,
        };
        let mut bytes = 0;
        while taken.changes.is_empty() || (taken.changes.len() < revisions_max && bytes < bytes_max) {
            let Some((changes, _)) = content.changes.pop_front() else { break };
            let size = changes_bytes(&changes);
            content.changes_bytes -= size;
            bytes += size;
            taken.changes.push(changes);
        }
        taken
    }

    /// Waits until there is something to take, or for `timeout`. For the `idle`, who have nobody to give changes to, changes
    /// are no reason: only how far they go is noted.
    pub(super) fn wait(&self, timeout: Option<Duration>, idle: bool) {
        let mut content = self.content.lock();
        content.idle = idle;
        let is_empty = |content: &mut Content| {
            content.commands.is_empty()
                && content.changes.is_empty()
                && content.read.is_none()
                && !content.poked
                && !content.closed
        };
        match timeout {
            Some(timeout) => {
                self.arrived.wait_while_for(&mut content, is_empty, timeout);
            }
            None => self.arrived.wait_while(&mut content, is_empty),
        }
        content.idle = false;
    }
}

/// What a change set costs in memory.
pub(super) fn changes_bytes(changes: &ChangeSet) -> usize {
    changes.changes.iter().map(|record| record_bytes(&record.kv)).sum()
}

/// What a change costs in memory.
pub(super) fn record_bytes(kv: &crate::proto::mvccpb::KeyValue) -> usize {
    kv.key.len() + kv.value.len() + RECORD_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn changes(revision: i64) -> ChangeSet {
        ChangeSet { revision, changes: Vec::new().into() }
    }

    #[test]
    fn changes_wake_nobody_who_has_no_one_to_tell_and_are_not_forgotten() {
        let inbox = Inbox::new(1 << 20);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.wait(None, true));
            while !inbox.content.lock().idle {
                thread::yield_now();
            }
            inbox.push_changes(changes(7));
            inbox.push_changes(changes(8));
            assert!(inbox.content.lock().idle && !waiting.is_finished());
            inbox.poke();
            waiting.join().expect("the wait ends");
        });
        inbox.push_changes(changes(9));
        let taken = inbox.take(10, 1 << 20);
        assert_eq!(taken.dropped_through, 8);
        assert_eq!(taken.changes.iter().map(|set| set.revision).collect::<Vec<_>>(), [9]);
    }
}
