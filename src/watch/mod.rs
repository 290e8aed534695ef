//! The watch hub: from change sets to what each client's stream delivers, in order and complete.
//!
//! `apply` appends change sets to an inbox and goes on. One thread owns all matching state: it finds the watchers, makes
//! each event once and queues it, shared, to the streams. A stream holds a bounded number of bytes; a watcher that does
//! not fit becomes a cursor into the store's history and is fed from there, in turns, when its stream drains. History is
//! read by a second thread, of lower priority: the first never waits for the file on its account. Being synced means
//! having been given everything up to the revision the thread has distributed; only the thread moves either.
//!
//! Promises, per watch: ordered, unique, complete, a revision never torn apart; canceled, never silent, where history is
//! compacted away. Headers of a stream never go back. Locks: a stream's queue, then the inbox; nothing under the inbox.
//! Must never know: how events look on a wire, who applies, permissions.

mod cursors;
mod delivery;
mod engine;
mod events;
mod history;
mod inbox;
mod intervals;
mod matcher;
mod progress;
mod reader;
mod report;
mod stream;
mod tail;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use thiserror::Error;

use self::{
    engine::Engine,
    history::History,
    inbox::{Command, INBOX_BYTES_MAX, Inbox},
    report::ReportRequest,
    stream::{Gauges, Stream},
};
pub use self::{
    report::{HubReport, StreamReport},
    stream::WatchStream,
};
use crate::{
    background,
    clock::Clock,
    metrics::Metrics,
    mvcc::{ChangeSet, KeyRange, Record, Store},
    proto::{etcdserverpb::ResponseHeader, mvccpb},
};

/// Limits and times of the hub.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Undelivered bytes one stream may hold before its watchers turn into cursors. Keys and values as stored, with a
    /// fixed overhead for each event; what the transport keeps in `Event::encoded` comes on top.
    pub stream_bytes_max: usize,
    /// How often a quiet watcher that asked for it is told where it stands (10 min).
    pub progress_interval: Duration,
    /// Revisions one step distributes or reads for those that catch up.
    pub catch_up_revisions_max: usize,
    /// Bytes one step distributes or reads for those that catch up; at most a quarter of `stream_bytes_max` takes effect,
    /// so that what a step brings fits into a stream that has made room.
    pub catch_up_bytes_max: usize,
}

/// What a watch asks for.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// The keys.
    pub range: KeyRange,
    /// 0 = from now on.
    pub start_revision: i64,
    /// Whether it wants to be told where it stands while it is quiet.
    pub progress_notify: bool,
    /// Leaves puts out.
    pub no_put: bool,
    /// Leaves deletes out.
    pub no_delete: bool,
    /// Adds what each change replaced.
    pub prev_kv: bool,
    /// Allows the transport to split deliveries.
    pub fragment: bool,
    /// 0 = the hub chooses (counting from 0).
    pub watch_id: i64,
}

/// Why a watch was not registered. The texts are etcd's, which clients get as cancel reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CreateError {
    /// The range holds no key.
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
    /// The stream has a watch of that id.
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    /// The start revision is negative.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    NegativeRevision,
}

/// One event as delivered. Shared by all streams that get it; `encoded` is a slot in which the transport keeps the event's
/// wire form so that it is made once (this room does not know what is in it).
#[derive(Debug)]
pub struct Event {
    /// The change.
    pub record: Arc<Record>,
    /// Filled for watchers that asked for it and where there is one that is not compacted.
    pub previous: Option<mvccpb::KeyValue>,
    /// The transport's.
    pub encoded: OnceLock<Bytes>,
}

/// Events that all who need the same get in one piece. `encoded` is a slot like an event's, for the whole of them.
#[derive(Debug, Default)]
pub struct EventBatch {
    /// In revision order, and within a revision in order of change.
    pub events: Vec<Arc<Event>>,
    /// The transport's, for the header and watch that came first, which many streams have in common.
    pub encoded: OnceLock<EncodedBatch>,
}

/// A whole response as it was made first, and what it holds beside the events.
#[derive(Debug)]
pub struct EncodedBatch {
    /// Whose header.
    pub header: ResponseHeader,
    /// Whose watch.
    pub watch_id: i64,
    /// The response.
    pub bytes: Bytes,
}

impl EventBatch {
    /// A batch of its own.
    pub fn new(events: Vec<Arc<Event>>) -> EventBatch {
        EventBatch { events, encoded: OnceLock::new() }
    }
}

impl Deref for EventBatch {
    type Target = [Arc<Event>];

    fn deref(&self) -> &[Arc<Event>] {
        &self.events
    }
}

/// Whose stream it is, as reports tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamClient {
    /// Where it connects from; `None`: from inside the member.
    pub peer: Option<SocketAddr>,
    /// The user, if users have names here.
    pub user: Box<str>,
}

/// What a stream delivers, in order.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// The watch exists.
    Created {
        /// The id in force.
        watch_id: i64,
        /// The header's: the store's revision.
        revision: i64,
    },
    /// All events of one or more whole revisions.
    Events {
        /// Whose.
        watch_id: i64,
        /// The header's: at least that of the newest event.
        revision: i64,
        /// What happened.
        events: Arc<EventBatch>,
        /// When the oldest of it was applied; `None` if it was read from history.
        applied_at: Option<Instant>,
        /// The watcher allows splitting.
        fragment: bool,
    },
    /// Everything up to `revision` has been delivered.
    Progress {
        /// Whose; -1: asked for, holds for all watchers of the stream.
        watch_id: i64,
        /// Later events have higher revisions.
        revision: i64,
    },
    /// The watch has ended. An answered cancel request has neither `compact_revision` nor a reason.
    Canceled {
        /// Whose.
        watch_id: i64,
        /// The header's.
        revision: i64,
        /// 0 unless the watcher fell behind a compaction; then its revision.
        compact_revision: i64,
        /// Why history could not be read; else empty.
        reason: String,
    },
}

/// The hub. Cheap to clone. Owns a thread that matches, distributes and catches up,
/// and one that reads history for it; they end with the last clone or by `close`.
#[derive(Clone, Debug)]
pub struct Hub {
    owner: Arc<Owner>,
}

/// What streams and the thread share with the hub.
#[derive(Debug)]
struct Shared {
    inbox: Inbox,
    history: History,
    options: HubOptions,
    metrics: Metrics,
    serial_next: AtomicU64,
}

impl Shared {
    fn new(history: History, options: HubOptions, metrics: &Metrics, inbox_bytes_max: usize) -> Shared {
        Shared {
            inbox: Inbox::new(inbox_bytes_max),
            history,
            options,
            metrics: metrics.clone(),
            serial_next: AtomicU64::new(0),
        }
    }

    /// Bytes one step handles.
    fn step_bytes_max(&self) -> usize {
        self.options.catch_up_bytes_max.min(self.options.stream_bytes_max / 4)
    }

    /// A number no other stream or watcher of this hub has.
    fn serial(&self) -> u64 {
        self.serial_next.fetch_add(1, Ordering::Relaxed)
    }

    fn open_stream(self: &Arc<Self>, client: StreamClient) -> WatchStream {
        let gauges = Gauges::of(&self.metrics);
        let stream = Arc::new(Stream::new(self.serial(), client, self.options.stream_bytes_max, gauges));
        if !self.inbox.push_command(Command::Open(stream.clone())) {
            stream.end();
        }
        WatchStream::new(stream, self.clone())
    }
}

/// Stops the threads when the last handle goes.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    threads: Mutex<Option<Threads>>,
}

/// The hub's two threads.
#[derive(Debug)]
struct Threads {
    hub: JoinHandle<()>,
    /// Ends after the hub's.
    reader: JoinHandle<()>,
}

impl Owner {
    fn close(&self) {
        self.shared.inbox.close();
        let Some(Threads { hub, reader }) = self.threads.lock().take() else { return };
        // The last handle may go on the hub's thread.
        if hub.thread().id() != thread::current().id() && (hub.join().is_err() | reader.join().is_err()) {
            tracing::error!("a watch thread had panicked");
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Hub {
    /// Starts at the store's revision: change sets up to it are history.
    pub fn start(store: Store, options: HubOptions, clock: Arc<dyn Clock>, metrics: &Metrics) -> Hub {
        Hub::spawn(Shared::new(History::of(store), options, metrics, INBOX_BYTES_MAX), clock)
    }

    fn spawn(shared: Shared, clock: Arc<dyn Clock>) -> Hub {
        let shared = Arc::new(shared);
        let (mut engine, reader) = Engine::new(shared.clone(), clock);
        const NO_THREAD: &str = "a member whose system gives it no thread at start cannot run";
        let reader = background::spawn("watch-history", move || reader.run()).expect(NO_THREAD);
        let hub = thread::Builder::new().name("watch".into()).spawn(move || engine.run()).expect(NO_THREAD);
        Hub { owner: Arc::new(Owner { shared, threads: Mutex::new(Some(Threads { hub, reader })) }) }
    }

    /// Hands over a change set, in revision order. Called by the apply loop; returns at once and never waits for a watcher.
    pub fn notify(&self, changes: ChangeSet) {
        self.owner.shared.inbox.push_changes(changes);
    }

    /// A stream without watches.
    pub fn open_stream(&self, client: StreamClient) -> WatchStream {
        self.owner.shared.open_stream(client)
    }

    /// Asks how all streams stand: those that lag most, at most `streams_max` of them. `reply` is called on the thread,
    /// and must not wait; it is dropped without a call once the hub is closed.
    pub fn report(&self, streams_max: usize, reply: impl FnOnce(HubReport) + Send + 'static) {
        self.owner.shared.inbox.push_command(Command::Report(ReportRequest::new(streams_max, reply)));
    }

    /// Makes the thread look at the clock now (it does so by itself when the system's clock says that something is due).
    pub fn poke(&self) {
        self.owner.shared.inbox.poke();
    }

    /// Ends every stream (their next delivery is None, after what is queued) and stops the threads.
    pub fn close(&self) {
        self.owner.close();
    }
}
