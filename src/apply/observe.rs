//! How long commands take to apply: one histogram an operation, and a warning for the slow ones.

use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter};
use prost::Message;

use crate::{
    metrics::Metrics,
    proto::revgatepb::{InternalRaftRequest, internal_raft_request::Request},
};

/// Names of the operations, as etcd's metric spells them.
const OPERATIONS: [&str; 12] = [
    "Put",
    "DeleteRange",
    "Txn",
    "Compaction",
    "LeaseGrant",
    "LeaseRevoke",
    "Alarm",
    "LeaseCheckpoint",
    "Auth",
    "DowngradeInfoSet",
    "Membership",
    "unknown",
];

/// The handles, resolved once.
#[derive(Debug)]
pub(super) struct Observer {
    /// By operation; failed and successful.
    durations: Vec<[Histogram; 2]>,
    slow: IntCounter,
    slow_min: Duration,
}

/// A command being applied.
pub(super) struct Timer<'a> {
    command: &'a InternalRaftRequest,
    began: Instant,
}

impl Observer {
    pub(super) fn new(slow_min: Duration, metrics: &Metrics) -> Observer {
        let histogram =
            |operation: &str, success: &str| metrics.apply_duration.with_label_values(&["v3", operation, success]);
        let durations =
            OPERATIONS.iter().map(|operation| [histogram(operation, "false"), histogram(operation, "true")]).collect();
        Observer { durations, slow: metrics.slow_apply.clone(), slow_min }
    }

    pub(super) fn begin<'a>(&self, command: &'a InternalRaftRequest) -> Timer<'a> {
        Timer { command, began: Instant::now() }
    }

    pub(super) fn end(&self, timer: Timer<'_>, success: bool) {
        let took = timer.began.elapsed();
        let operation = operation(timer.command);
        self.durations[operation][usize::from(success)].observe(took.as_secs_f64());
        if took > self.slow_min {
            self.slow.inc();
            tracing::warn!(
                operation = OPERATIONS[operation],
                ?took,
                expected = ?self.slow_min,
                request_bytes = timer.command.encoded_len(),
                "applying a request took too long"
            );
        }
    }
}

/// Index into [`OPERATIONS`].
fn operation(command: &InternalRaftRequest) -> usize {
    match command.request {
        Some(Request::Put(_)) => 0,
        Some(Request::DeleteRange(_)) => 1,
        Some(Request::Txn(_)) => 2,
        Some(Request::Compaction(_)) => 3,
        Some(Request::LeaseGrant(_)) => 4,
        Some(Request::LeaseRevoke(_)) => 5,
        Some(Request::Alarm(_)) => 6,
        Some(Request::LeaseCheckpoint(_)) => 7,
        Some(Request::DowngradeInfoSet(_)) => 9,
        Some(Request::MemberAdd(_) | Request::MemberUpdate(_) | Request::MemberRemove(_)) => 10,
        Some(Request::Range(_) | Request::PageKeySet(_)) | None => 11,
        // etcd has no name for these.
        Some(_) => 8,
    }
}
