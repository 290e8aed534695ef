//! How all streams stand: for an operator who asks, and for the metrics.

use std::{fmt, time::Duration};

use super::{
    StreamClient,
    engine::{Engine, Phase, StreamState},
};

/// How often it is measured how far watchers are behind, while any is.
const LAG_INTERVAL: Duration = Duration::from_secs(1);

/// How one stream stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// No other stream of this member has it.
    pub number: u64,
    /// Whose it is.
    pub client: StreamClient,
    /// Since it was opened.
    pub age: Duration,
    /// Watches on it.
    pub watches: usize,
    /// Those of them that read history, or wait for room to do so.
    pub lagging: usize,
    /// Revisions between what the client was sent and the newest.
    pub lag_revisions: i64,
    /// What is ready for the client and not sent.
    pub queued_deliveries: usize,
    /// The same in bytes.
    pub queued_bytes: usize,
}

/// How all streams stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubReport {
    /// Synced watchers have been given everything up to here.
    pub revision: i64,
    /// How many streams there are.
    pub streams_total: usize,
    /// Those that lag most, the worst first.
    pub streams: Vec<StreamReport>,
}

type Reply = Box<dyn FnOnce(HubReport) + Send>;

/// A question and where its answer goes.
pub(super) struct ReportRequest {
    streams_max: usize,
    reply: Reply,
}

impl ReportRequest {
    pub(super) fn new(streams_max: usize, reply: impl FnOnce(HubReport) + Send + 'static) -> ReportRequest {
        ReportRequest { streams_max, reply: Box::new(reply) }
    }
}

impl fmt::Debug for ReportRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportRequest").field("streams_max", &self.streams_max).finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn report(&self, request: ReportRequest) {
        let mut streams: Vec<StreamReport> = self.streams.values().map(|state| self.report_of(state)).collect();
        streams.sort_by_key(|stream| (std::cmp::Reverse((stream.lag_revisions, stream.queued_bytes)), stream.number));
        let streams_total = streams.len();
        streams.truncate(request.streams_max);
        (request.reply)(HubReport { revision: self.distributed, streams_total, streams });
    }

    fn report_of(&self, state: &StreamState) -> StreamReport {
        let queued = state.stream.queued();
        let watchers = state.watchers.values().filter_map(|slot| self.watchers.get(*slot).and_then(Option::as_ref));
        let unsynced = watchers.filter(|watcher| watcher.phase != Phase::Synced).map(|watcher| watcher.next);
        let first_missing = unsynced.chain(queued.first_revision).min();
        StreamReport {
            number: state.stream.number,
            client: state.stream.client.clone(),
            age: state.stream.opened_at.elapsed(),
            watches: state.watchers.len(),
            lagging: state.unsynced,
            lag_revisions: first_missing.map_or(0, |revision| (self.distributed + 1 - revision).max(0)),
            queued_deliveries: queued.deliveries,
            queued_bytes: queued.bytes,
        }
    }

    /// Puts into the metrics how far watchers are behind, if it is time.
    pub(super) fn measure_lag(&mut self) {
        let metrics = &self.shared.metrics;
        if metrics.slow_watcher_total.get() == 0 {
            metrics.watch_lag_revisions_max.set(0);
            self.lag_due = Duration::ZERO;
            return;
        }
        let now = self.clock.0.monotonic();
        if now < self.lag_due {
            return;
        }
        self.lag_due = now + LAG_INTERVAL;
        let behind = self.watchers.iter().flatten().filter(|watcher| watcher.phase != Phase::Synced);
        let mut max = 0;
        for watcher in behind {
            let lag = (self.distributed + 1 - watcher.next).max(0);
            metrics.watch_lag_revisions.observe(lag as f64);
            max = max.max(lag);
        }
        metrics.watch_lag_revisions_max.set(max);
    }
}
