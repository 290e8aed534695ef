//! One client's stream: its queue of deliveries, its byte budget, its table of watch ids.
//!
//! The queue's lock is held for a few moves of pointers. Under it only the inbox is locked (so that commands arrive in
//! the order of what they report) and the store's revision read; wakers are called after it is released.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

use parking_lot::Mutex;
use prometheus::IntGauge;

use super::{CreateError, Delivery, Shared, StreamClient, WatchSpec, events::Batch, inbox::Command};
use crate::metrics::Metrics;

/// What a delivery without events costs in the budget.
const CONTROL_DELIVERY_BYTES: usize = 128;

/// Room an empty queue keeps after a burst.
const IDLE_CAPACITY_DELIVERIES: usize = 8;

/// The part of a stream that the hub's thread and its client share.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) number: u64,
    pub(super) client: StreamClient,
    pub(super) opened_at: Instant,
    bytes_max: usize,
    gauges: Gauges,
    queue: Mutex<Queue>,
}

/// What all queues together hold.
#[derive(Debug)]
pub(super) struct Gauges {
    pending_events: IntGauge,
    buffered_bytes: IntGauge,
}

impl Gauges {
    pub(super) fn of(metrics: &Metrics) -> Gauges {
        Gauges {
            pending_events: metrics.pending_events_total.clone(),
            buffered_bytes: metrics.watch_buffered_bytes.clone(),
        }
    }
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) deliveries: usize,
    pub(super) bytes: usize,
    /// The first revision of the first events that wait.
    pub(super) first_revision: Option<i64>,
}

#[derive(Debug, Default)]
struct Queue {
    deliveries: VecDeque<(Delivery, usize)>,
    bytes: usize,
    /// The highest revision in a header so far: headers of a stream never go back.
    header: i64,
    waker: Option<Waker>,
    /// Watches that exist, with the number the hub knows them by.
    ids: HashMap<i64, u64>,
    id_next: i64,
    /// Something did not fit: the hub is to be told once half the budget is free.
    wants_room: bool,
    /// Nothing more will be queued.
    ended: bool,
    /// Nobody will read any more.
    dropped: bool,
}

impl Queue {
    fn push(&mut self, delivery: Delivery, bytes: usize) -> Option<Waker> {
        if self.dropped || self.ended {
            return None;
        }
        self.bytes += bytes;
        self.deliveries.push_back((delivery, bytes));
        self.waker.take()
    }

    /// Raises the header to at least `revision`.
    fn header(&mut self, revision: i64) -> i64 {
        self.header = self.header.max(revision);
        self.header
    }

    /// Whether `bytes` more fit. An empty queue takes anything: a revision is never split, whatever its size.
    fn reserve(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let fits = self.deliveries.is_empty() || self.bytes + bytes <= bytes_max;
        self.wants_room |= !fits;
        fits
    }
}

impl Stream {
    pub(super) fn new(number: u64, client: StreamClient, bytes_max: usize, gauges: Gauges) -> Stream {
        Stream { number, client, opened_at: Instant::now(), bytes_max, gauges, queue: Mutex::default() }
    }

    /// What waits for the client.
    pub(super) fn queued(&self) -> Queued {
        let queue = self.queue.lock();
        let first_revision = queue.deliveries.iter().find_map(|(delivery, _)| match delivery {
            Delivery::Events { events, .. } => events.first().map(|event| event.record.revision.main),
            _ => None,
        });
        Queued { deliveries: queue.deliveries.len(), bytes: queue.bytes, first_revision }
    }

    /// Queues events unless they exceed the budget; then the stream sends [`Command::Drained`] once there is room.
    pub(super) fn push_events(
        &self,
        (watch_id, fragment): (i64, bool),
        header: i64,
        batch: &Batch,
        applied_at: Option<Instant>,
        wakes: &mut Vec<Waker>,
    ) -> bool {
        let mut queue = self.queue.lock();
        if !queue.reserve(batch.bytes, self.bytes_max) {
            return false;
        }
        if !queue.dropped && !queue.ended {
            let revision = queue.header(header);
            let events = batch.events.clone();
            self.gauges.pending_events.add(count(events.len()));
            self.gauges.buffered_bytes.add(count(batch.bytes));
            let delivery = Delivery::Events { watch_id, revision, events, applied_at, fragment };
            wakes.extend(queue.push(delivery, batch.bytes));
        }
        true
    }

    /// Whether no header so far is above `revision`.
    pub(super) fn header_is_within(&self, revision: i64) -> bool {
        self.queue.lock().header <= revision
    }

    /// Queues a progress delivery unless it would put a lower revision behind a higher one, or does not fit.
    pub(super) fn push_progress(&self, watch_id: i64, revision: i64, wakes: &mut Vec<Waker>) -> bool {
        let mut queue = self.queue.lock();
        if queue.header > revision || !queue.reserve(CONTROL_DELIVERY_BYTES, self.bytes_max) {
            return false;
        }
        queue.header = revision;
        wakes.extend(queue.push(Delivery::Progress { watch_id, revision }, CONTROL_DELIVERY_BYTES));
        true
    }

    /// Queues the answer to a cancel request.
    pub(super) fn push_cancel_answer(&self, watch_id: i64, header: i64, wakes: &mut Vec<Waker>) {
        let mut queue = self.queue.lock();
        let revision = queue.header(header);
        let delivery = Delivery::Canceled { watch_id, revision, compact_revision: 0, reason: String::new() };
        wakes.extend(queue.push(delivery, CONTROL_DELIVERY_BYTES));
    }

    /// Ends a watch that the client did not ask to end. If it just did, its answer is on the way and nothing is queued.
    pub(super) fn end_watch(
        &self,
        (watch_id, serial): (i64, u64),
        header: i64,
        compact_revision: i64,
        reason: String,
        wakes: &mut Vec<Waker>,
    ) -> bool {
        let mut queue = self.queue.lock();
        if queue.ids.get(&watch_id) != Some(&serial) {
            return false;
        }
        queue.ids.remove(&watch_id);
        let revision = queue.header(header);
        let delivery = Delivery::Canceled { watch_id, revision, compact_revision, reason };
        wakes.extend(queue.push(delivery, CONTROL_DELIVERY_BYTES));
        true
    }

    /// Nothing will come after what is queued.
    pub(super) fn end(&self) -> Option<Waker> {
        let mut queue = self.queue.lock();
        queue.ended = true;
        queue.waker.take()
    }
}

/// One client's stream of watches. Dropping it cancels them all.
#[derive(Debug)]
pub struct WatchStream {
    stream: Arc<Stream>,
    shared: Arc<Shared>,
}

impl WatchStream {
    pub(super) fn new(stream: Arc<Stream>, shared: Arc<Shared>) -> WatchStream {
        shared.metrics.watch_stream_total.inc();
        WatchStream { stream, shared }
    }

    /// Registers a watch; its Created delivery comes through the stream before any of its events. The id in force.
    ///
    /// A watch from now on (`start_revision` 0) gets everything above the revision of its Created delivery.
    pub fn create(&self, spec: WatchSpec) -> Result<i64, CreateError> {
        if spec.range.is_empty() {
            return Err(CreateError::EmptyRange);
        }
        if spec.start_revision < 0 {
            return Err(CreateError::NegativeRevision);
        }
        let mut queue = self.stream.queue.lock();
        let watch_id = if spec.watch_id == 0 {
            while queue.ids.contains_key(&queue.id_next) {
                queue.id_next += 1;
            }
            queue.id_next += 1;
            queue.id_next - 1
        } else if queue.ids.contains_key(&spec.watch_id) {
            return Err(CreateError::DuplicateId);
        } else {
            spec.watch_id
        };
        let serial = self.shared.serial();
        queue.ids.insert(watch_id, serial);
        self.shared.metrics.watcher_total.inc();
        let revision = queue.header((self.shared.history.revision)());
        let from = if spec.start_revision == 0 { revision + 1 } else { spec.start_revision };
        let waker = queue.push(Delivery::Created { watch_id, revision }, CONTROL_DELIVERY_BYTES);
        let (stream, reads_history) = (self.stream.number, from <= revision);
        self.shared.inbox.push_command(Command::Create { stream, serial, watch_id, from, reads_history, spec });
        drop(queue);
        wake(waker);
        Ok(watch_id)
    }

    /// Cancels a watch; the Canceled delivery comes through the stream. `false`: no such watch, nothing will come.
    pub fn cancel(&self, watch_id: i64) -> bool {
        let mut queue = self.stream.queue.lock();
        let Some(serial) = queue.ids.remove(&watch_id) else { return false };
        self.shared.metrics.watcher_total.dec();
        self.shared.inbox.push_command(Command::Cancel { stream: self.stream.number, serial, watch_id })
    }

    /// Asks for a Progress delivery with id -1, in stream order: as soon as everything up to its revision is delivered to all watchers here.
    /// Its revision is at least the store's at the time of asking. Each request gets an answer of its own.
    pub fn request_progress(&self) {
        let target = (self.shared.history.revision)();
        self.shared.inbox.push_command(Command::Progress { stream: self.stream.number, target });
    }

    /// Asks for the stream's end as soon as everything that is in the store now is delivered to all watchers here, and every
    /// progress request answered.
    pub fn finish(&self) {
        let target = (self.shared.history.revision)();
        self.shared.inbox.push_command(Command::Finish { stream: self.stream.number, target });
    }

    /// Deliveries that are queued and not polled. Requests are answered whether their answers are read or not: who takes
    /// requests from a client should take no more while this is high.
    pub fn pending_deliveries(&self) -> usize {
        self.stream.queue.lock().deliveries.len()
    }

    /// The next delivery; `None` once the hub is closed. One task polls.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut queue = self.stream.queue.lock();
        let Some((delivery, bytes)) = queue.deliveries.pop_front() else {
            if queue.ended {
                return Poll::Ready(None);
            }
            match &mut queue.waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => queue.waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        };
        queue.bytes -= bytes;
        if queue.wants_room && queue.bytes <= self.stream.bytes_max / 2 {
            queue.wants_room = false;
            self.shared.inbox.push_command(Command::Drained(self.stream.number));
        }
        if queue.deliveries.is_empty() && queue.deliveries.capacity() > IDLE_CAPACITY_DELIVERIES {
            queue.deliveries.shrink_to(IDLE_CAPACITY_DELIVERIES);
        }
        drop(queue);
        if let Delivery::Events { events, .. } = &delivery {
            self.stream.gauges.pending_events.sub(count(events.len()));
            self.stream.gauges.buffered_bytes.sub(count(bytes));
            self.shared.metrics.watch_events_delivered.inc_by(events.len() as u64);
        }
        Poll::Ready(Some(delivery))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let mut queue = self.stream.queue.lock();
        queue.dropped = true;
        queue.bytes = 0;
        let (deliveries, ids) = (std::mem::take(&mut queue.deliveries), std::mem::take(&mut queue.ids));
        let waker = queue.waker.take();
        self.shared.inbox.push_command(Command::Dropped(self.stream.number));
        drop(queue);
        drop(waker);
        for (delivery, bytes) in &deliveries {
            if let Delivery::Events { events, .. } = delivery {
                self.stream.gauges.pending_events.sub(count(events.len()));
                self.stream.gauges.buffered_bytes.sub(count(*bytes));
            }
        }
        self.shared.metrics.watcher_total.sub(count(ids.len()));
        self.shared.metrics.watch_stream_total.dec();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
