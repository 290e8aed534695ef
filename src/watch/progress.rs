//! Telling clients how far they are: by the clock for those that asked to be told, and on request; and ending streams
//! that have come as far as they were to.
//!
//! Both say the distributed revision, and only while it is not below what the stream has already said: under it lies
//! everything a synced watcher has been given, in stream order.

use std::time::Duration;

use super::engine::{Engine, Phase};

/// The watch id that means all watches of a stream.
const ALL_WATCHES: i64 = -1;

/// Streams opened together are told at up to this many different moments, within a tenth of the interval.
const TICK_SPREAD_STEPS: u32 = 16;

/// Shorter intervals are taken as this (etcd's limit).
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);

impl Engine {
    /// Starts a stream's ticking if it does not tick yet.
    pub(super) fn schedule_tick(&mut self, stream: u64) {
        let interval = self.shared.options.progress_interval.max(PROGRESS_INTERVAL_MIN);
        // Less than the number of steps.
        let step = u32::try_from(stream % u64::from(TICK_SPREAD_STEPS)).unwrap_or(0);
        let tick = self.clock.0.monotonic() + interval + interval / 10 / TICK_SPREAD_STEPS * step;
        if let Some(state) = self.streams.get_mut(&stream)
            && state.tick.is_none()
        {
            state.tick = Some(tick);
            self.ticks.insert((tick, stream));
        }
    }

    /// Marks the streams whose time has come.
    pub(super) fn take_ticks(&mut self) {
        let now = self.clock.0.monotonic();
        while self.ticks.first().is_some_and(|(tick, _)| *tick <= now) {
            let Some((_, stream)) = self.ticks.pop_first() else { return };
            let Some(state) = self.streams.get_mut(&stream) else { continue };
            state.tick = None;
            let wants_progress =
                |slot: &usize| matches!(self.watchers.get(*slot), Some(Some(watcher)) if watcher.progress_notify);
            if state.watchers.values().any(wants_progress) {
                state.tick_due = true;
                self.waiting.insert(stream);
                self.schedule_tick(stream);
            }
        }
    }

    /// How long nothing is due, at most; `None`: for ever.
    pub(super) fn time_to_tick(&self) -> Option<Duration> {
        self.ticks.first().map(|(tick, _)| tick.saturating_sub(self.clock.0.monotonic()))
    }

    /// Tells the waiting streams what can be told now.
    pub(super) fn tell_progress(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|stream| self.tell_stream(*stream));
        self.waiting = waiting;
    }

    /// Whether the stream still waits.
    fn tell_stream(&mut self, stream: u64) -> bool {
        let Some(state) = self.streams.get_mut(&stream) else { return false };
        let through = self.distributed;
        if state.tick_due && state.stream.header_is_within(through) {
            state.tick_due = false;
            for slot in state.watchers.values() {
                let Some(watcher) = self.watchers.get_mut(*slot).and_then(Option::as_mut) else { continue };
                if watcher.progress_notify && watcher.quiet && watcher.phase == Phase::Synced {
                    // Without room for it the client has enough to read: the next tick will tell.
                    state.stream.push_progress(watcher.watch_id, through, &mut self.wakes);
                }
                watcher.quiet = true;
            }
        }
        while state.requests > 0
            && state.unsynced == 0
            && through >= state.request_target
            && state.stream.push_progress(ALL_WATCHES, through, &mut self.wakes)
        {
            state.requests -= 1;
        }
        if state.requests == 0 && state.unsynced == 0 && state.finish_target.is_some_and(|target| through >= target) {
            state.finish_target = None;
            self.wakes.extend(state.stream.end());
        }
        state.tick_due || state.requests > 0 || state.finish_target.is_some()
    }
}
