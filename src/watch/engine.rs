//! The hub's thread: its rounds, and the watchers and streams it owns.
//!
//! A round takes all commands, then a bounded piece of what apply handed over, then gives what was read of history to those
//! that catch up, and asks for more. Commands come first so that a watch from now on is there before the changes it is to see.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, mpsc::SyncSender},
    task::Waker,
    time::Duration,
};

use super::{
    Shared, WatchSpec,
    cursors::Cursors,
    inbox::Command,
    matcher::{Interest, Matcher},
    reader::{self, Ask, Reader},
    stream::Stream,
    tail::Tail,
};
use crate::clock::Clock;

/// Where a watcher stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Has everything up to the distributed revision; gets changes live.
    Synced,
    /// Reads history; waits for its turn.
    Reading { turn: u64 },
    /// Needs history, but its stream has no room.
    Blocked,
}

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) stream: Arc<Stream>,
    pub(super) watch_id: i64,
    pub(super) serial: u64,
    pub(super) group: usize,
    /// Its place among the group's members.
    member_at: usize,
    /// Takes no revision below. Of a watcher that is not synced: the first it has not been given.
    pub(super) next: i64,
    pub(super) phase: Phase,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
    /// No events since the last progress tick.
    pub(super) quiet: bool,
}

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) stream: Arc<Stream>,
    /// Slots of its watchers, by serial number.
    pub(super) watchers: HashMap<u64, usize>,
    /// Watchers that are not synced.
    pub(super) unsynced: usize,
    /// Those of them that wait for room, the longest waiting first.
    pub(super) blocked: Vec<usize>,
    /// Progress requests without answer, and the revision they ask for at least.
    pub(super) requests: u64,
    pub(super) request_target: i64,
    /// When its progress_notify watchers are next looked at; `None` while there are none.
    pub(super) tick: Option<Duration>,
    /// They are to be looked at as soon as the distributed revision has reached the stream's header.
    pub(super) tick_due: bool,
    /// The stream ends once everything up to here is delivered.
    pub(super) finish_target: Option<i64>,
}

/// What to do after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Round,
    Wait(Option<Duration>),
    Stop,
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: ClockHandle,
    /// Synced watchers have been given everything up to here.
    pub(super) distributed: i64,
    pub(super) matcher: Matcher,
    pub(super) watchers: Vec<Option<Watcher>>,
    free: Vec<usize>,
    pub(super) streams: HashMap<u64, StreamState>,
    pub(super) cursors: Cursors,
    /// Where history is asked for.
    pub(super) asks: SyncSender<Ask>,
    /// What has been distributed since it was asked for; `None` while it is not.
    pub(super) tail: Option<Tail>,
    /// Streams that wait for a moment at which progress can be told.
    pub(super) waiting: BTreeSet<u64>,
    pub(super) ticks: BTreeSet<(Duration, u64)>,
    /// Tasks to wake at the end of the step.
    pub(super) wakes: Vec<Waker>,
    /// When it is next measured how far watchers are behind.
    pub(super) lag_due: Duration,
}

/// A clock that does not stand in the way of `Debug`.
pub(super) struct ClockHandle(pub(super) Arc<dyn Clock>);

impl std::fmt::Debug for ClockHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Engine {
    /// An engine, and who reads history for it.
    pub(super) fn new(shared: Arc<Shared>, clock: Arc<dyn Clock>) -> (Engine, Reader) {
        let (asks, reader) = reader::pair(&shared);
        let engine = Engine {
            distributed: (shared.history.revision)(),
            shared,
            clock: ClockHandle(clock),
            matcher: Matcher::new(),
            watchers: Vec::new(),
            free: Vec::new(),
            streams: HashMap::new(),
            cursors: Cursors::default(),
            asks,
            tail: None,
            waiting: BTreeSet::new(),
            ticks: BTreeSet::new(),
            wakes: Vec::new(),
            lag_due: Duration::ZERO,
        };
        (engine, reader)
    }

    /// The thread's life.
    pub(super) fn run(&mut self) {
        loop {
            match self.round() {
                Next::Round => {}
                Next::Wait(timeout) => self.shared.inbox.wait(timeout, self.is_idle()),
                Next::Stop => return,
            }
        }
    }

    /// Nobody is there for whom what is distributed makes a difference.
    fn is_idle(&self) -> bool {
        self.watchers.len() == self.free.len() && self.waiting.is_empty()
    }

    /// One round. With `Wait`, everything that can be done is done until the inbox or the clock says otherwise.
    pub(super) fn round(&mut self) -> Next {
        let revisions_max = self.shared.options.catch_up_revisions_max;
        let taken = self.shared.inbox.take(revisions_max, self.shared.step_bytes_max());
        let is_quiet = taken.commands.is_empty() && taken.changes.is_empty() && taken.read.is_none();
        self.skip_to(taken.dropped_through);
        for command in taken.commands {
            self.obey(command);
        }
        if taken.closed {
            self.wakes.extend(self.streams.values().filter_map(|state| state.stream.end()));
            self.wake_all();
            return Next::Stop;
        }
        self.distribute(taken.changes, taken.handed_over);
        self.wake_all();
        if let Some(read) = taken.read {
            self.take_history(read);
        }
        self.ask_for_history();
        self.take_ticks();
        self.tell_progress();
        self.wake_all();
        self.measure_lag();
        let has_asked = self.tail.is_some() || self.cursors.is_empty();
        if is_quiet && has_asked { Next::Wait(self.time_to_tick()) } else { Next::Round }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Open(stream) => self.open(stream),
            Command::Create { stream, serial, watch_id, from, reads_history, spec } => {
                let Some(slot) = self.create(stream, (watch_id, serial), from, &spec) else { return };
                // Also where the live path would still bring it all: whether a start is compacted must not depend on
                // how far that path is.
                if reads_history || from <= self.distributed {
                    self.set_reading(slot);
                }
            }
            Command::Cancel { stream, serial, watch_id } => {
                let Some(state) = self.streams.get(&stream) else { return };
                let (stream, slot) = (state.stream.clone(), state.watchers.get(&serial).copied());
                if let Some(slot) = slot {
                    self.remove(slot);
                }
                stream.push_cancel_answer(watch_id, self.distributed, &mut self.wakes);
            }
            Command::Progress { stream, target } => {
                let Some(state) = self.streams.get_mut(&stream) else { return };
                state.requests += 1;
                state.request_target = state.request_target.max(target);
                self.waiting.insert(stream);
            }
            Command::Finish { stream, target } => {
                let Some(state) = self.streams.get_mut(&stream) else { return };
                state.finish_target = Some(target);
                self.waiting.insert(stream);
            }
            Command::Report(request) => self.report(request),
            Command::Drained(stream) => self.unblock(stream),
            Command::Dropped(stream) => self.drop_stream(stream),
        }
    }

    fn open(&mut self, stream: Arc<Stream>) {
        let state = StreamState {
            stream: stream.clone(),
            watchers: HashMap::new(),
            unsynced: 0,
            blocked: Vec::new(),
            requests: 0,
            request_target: 0,
            tick: None,
            tick_due: false,
            finish_target: None,
        };
        self.streams.insert(stream.number, state);
    }

    /// Adds a watcher, as synced.
    fn create(&mut self, stream: u64, (watch_id, serial): (i64, u64), from: i64, spec: &WatchSpec) -> Option<usize> {
        let state = self.streams.get_mut(&stream)?;
        let slot = self.free.pop().unwrap_or(self.watchers.len());
        state.watchers.insert(serial, slot);
        let group = self.matcher.group_for(Interest::of(spec));
        let mut member_at = 0;
        if let Some(group) = self.matcher.group_mut(group) {
            member_at = group.members.len();
            group.members.push(slot);
            group.synced += 1;
        }
        let watcher = Watcher {
            stream: state.stream.clone(),
            watch_id,
            serial,
            group,
            member_at,
            next: from,
            phase: Phase::Synced,
            fragment: spec.fragment,
            progress_notify: spec.progress_notify,
            quiet: true,
        };
        if slot == self.watchers.len() {
            self.watchers.push(Some(watcher));
        } else {
            self.watchers[slot] = Some(watcher);
        }
        if spec.progress_notify {
            self.schedule_tick(stream);
        }
        Some(slot)
    }

    /// Forgets a watcher.
    pub(super) fn remove(&mut self, slot: usize) {
        self.set_synced(slot);
        let Some(watcher) = self.watchers.get_mut(slot).and_then(Option::take) else { return };
        self.free.push(slot);
        if let Some(state) = self.streams.get_mut(&watcher.stream.number) {
            state.watchers.remove(&watcher.serial);
        }
        if let Some(group) = self.matcher.group_mut(watcher.group) {
            group.synced -= 1;
            group.members.swap_remove(watcher.member_at);
            let moved = group.members.get(watcher.member_at).copied();
            if let Some(moved) = moved.and_then(|moved| self.watchers.get_mut(moved)).and_then(Option::as_mut) {
                moved.member_at = watcher.member_at;
            }
        }
        self.matcher.remove_if_empty(watcher.group);
    }

    fn drop_stream(&mut self, stream: u64) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        // Not one by one, which would be quadratic.
        let blocked = std::mem::take(&mut state.blocked);
        let slots: Vec<usize> = state.watchers.values().copied().collect();
        for slot in blocked {
            self.set_reading(slot);
        }
        for slot in slots {
            self.remove(slot);
        }
        if let Some(tick) = self.streams.remove(&stream).and_then(|state| state.tick) {
            self.ticks.remove(&(tick, stream));
        }
        self.waiting.remove(&stream);
    }

    /// Lets a stream's blocked watchers read again.
    fn unblock(&mut self, stream: u64) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        for slot in std::mem::take(&mut state.blocked) {
            self.set_reading(slot);
        }
    }

    pub(super) fn watcher(&mut self, slot: usize) -> Option<&mut Watcher> {
        self.watchers.get_mut(slot).and_then(Option::as_mut)
    }

    pub(super) fn set_synced(&mut self, slot: usize) {
        self.set_phase(slot, |_, _, _| Phase::Synced);
    }

    /// The watcher waits for a turn to read from its `next` on.
    pub(super) fn set_reading(&mut self, slot: usize) {
        self.set_phase(slot, |cursors, next, _| Phase::Reading { turn: cursors.insert(slot, next) });
    }

    pub(super) fn set_blocked(&mut self, slot: usize) {
        self.set_phase(slot, |_, _, state| {
            state.blocked.push(slot);
            Phase::Blocked
        });
    }

    /// Moves a watcher from phase to phase and keeps every count of it right. A watcher that reads must leave that phase
    /// before its `next` changes.
    fn set_phase(&mut self, slot: usize, enter: impl FnOnce(&mut Cursors, i64, &mut StreamState) -> Phase) {
        let Some(watcher) = self.watchers.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(state) = self.streams.get_mut(&watcher.stream.number) else { return };
        let was_synced = watcher.phase == Phase::Synced;
        match watcher.phase {
            Phase::Synced => {}
            Phase::Reading { turn } => self.cursors.remove(slot, watcher.next, turn),
            Phase::Blocked => state.blocked.retain(|blocked| *blocked != slot),
        }
        watcher.phase = enter(&mut self.cursors, watcher.next, state);
        let is_synced = watcher.phase == Phase::Synced;
        if was_synced == is_synced {
            return;
        }
        let slow = &self.shared.metrics.slow_watcher_total;
        if is_synced {
            state.unsynced -= 1;
            slow.dec();
        } else {
            state.unsynced += 1;
            slow.inc();
        }
        if let Some(group) = self.matcher.group_mut(watcher.group) {
            if is_synced { group.synced += 1 } else { group.synced -= 1 }
        }
    }

    /// Wakes whoever got something. Here no lock is held.
    fn wake_all(&mut self) {
        self.wakes.drain(..).for_each(Waker::wake);
    }
}
