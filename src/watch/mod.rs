//! Watch hub. SKELETON: the signatures below are the contract; the watch room replaces this file.
#![allow(missing_docs, unused, clippy::all)]

use std::{
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use thiserror::Error;

use crate::{
    clock::Clock,
    metrics::Metrics,
    mvcc::{ChangeSet, KeyRange, Record, Store},
    proto::mvccpb,
};

#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Undelivered bytes one stream may hold before its watchers turn into cursors.
    pub stream_bytes_max: usize,
    /// How often a quiet watcher that asked for it is told where it stands (10 min).
    pub progress_interval: Duration,
    /// Revisions and bytes one catch-up step reads.
    pub catch_up_revisions_max: usize,
    pub catch_up_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct WatchSpec {
    pub range: KeyRange,
    /// 0 = from now on.
    pub start_revision: i64,
    pub progress_notify: bool,
    pub no_put: bool,
    pub no_delete: bool,
    pub prev_kv: bool,
    pub fragment: bool,
    /// 0 = the hub chooses (counting from 0).
    pub watch_id: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CreateError {
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    #[error("etcdserver: mvcc: required revision has been compacted")]
    NegativeRevision,
}

/// One event as delivered. Shared by all streams that get it; `encoded` is a slot in which the transport keeps the event's
/// wire form so that it is made once (this room does not know what is in it).
#[derive(Debug)]
pub struct Event {
    pub record: Arc<Record>,
    /// Filled for watchers that asked for it and where there is one that is not compacted.
    pub previous: Option<mvccpb::KeyValue>,
    pub encoded: OnceLock<Bytes>,
}

/// What a stream delivers, in order.
#[derive(Clone, Debug)]
pub enum Delivery {
    Created {
        watch_id: i64,
        revision: i64,
    },
    /// All events of one or more whole revisions. `revision` is the header's. `fragment`: the watcher allows splitting.
    Events {
        watch_id: i64,
        revision: i64,
        events: Arc<[Arc<Event>]>,
        fragment: bool,
    },
    /// Everything up to `revision` has been delivered. watch_id -1: asked for, holds for all watchers of the stream.
    Progress {
        watch_id: i64,
        revision: i64,
    },
    /// `compact_revision` is 0 unless the watcher fell behind a compaction. An answered cancel request has neither that nor a reason.
    Canceled {
        watch_id: i64,
        revision: i64,
        compact_revision: i64,
        reason: String,
    },
}

/// The hub. Cheap to clone. Owns a thread that matches, distributes and catches up.
#[derive(Clone, Debug)]
pub struct Hub {
    _p: Arc<()>,
}

impl Hub {
    pub fn start(store: Store, options: HubOptions, clock: Arc<dyn Clock>, metrics: &Metrics) -> Hub {
        todo!()
    }
    /// Hands over a change set, in revision order. Called by the apply loop; returns at once and never waits for a watcher.
    pub fn notify(&self, changes: ChangeSet) {
        todo!()
    }
    pub fn open_stream(&self) -> WatchStream {
        todo!()
    }
    /// Ends every stream (their next delivery is None) and stops the thread.
    pub fn close(&self) {
        todo!()
    }
}

/// One client's stream of watches. Dropping it cancels them all.
#[derive(Debug)]
pub struct WatchStream {
    _p: (),
}

impl WatchStream {
    /// Registers a watch; its Created delivery comes through the stream before any of its events. The id in force.
    pub fn create(&self, spec: WatchSpec) -> Result<i64, CreateError> {
        todo!()
    }
    /// Cancels a watch; the Canceled delivery comes through the stream. `false`: no such watch, nothing will come.
    pub fn cancel(&self, watch_id: i64) -> bool {
        todo!()
    }
    /// Asks for a Progress delivery with id -1, in stream order: as soon as everything up to its revision is delivered to all watchers here.
    pub fn request_progress(&self) {
        todo!()
    }
    /// The next delivery; `None` once the hub is closed. One task polls.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        todo!()
    }
}
