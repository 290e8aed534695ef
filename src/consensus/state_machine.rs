//! The library's state machine: hands committed entries to the applier and their outcomes to those who wait.
//!
//! A snapshot is a position and a membership: the backend file itself is the state, and a snapshot "is there" as soon as
//! the file holds the position durably. Its bytes are never copied here; sending them to a peer comes with clusters.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::{
    EmptyNode, OptionalSend, RaftSnapshotBuilder, Snapshot,
    storage::{EntryResponder, RaftStateMachine},
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::{
    log_store::LogStore,
    standing::Standing,
    types::{
        CommittedLeaderId, Entry, LogId, Membership, Payload, SnapshotMeta, StoredMembership, TypeConfig,
        decode_stored_membership, encode_stored_membership, log_id_of, position_of,
    },
};
use crate::{
    apply::{Applier, ApplyFatal},
    metrics::{Metrics, Stage, StageTimes},
    mvcc::{BucketWrite, LogPosition, Store, buckets},
};

/// Where the membership lives in bucket `meta`.
const MEMBERSHIP_KEY: &[u8] = b"confState";

/// How long entries are applied at a stretch before the library's other tasks get their turn.
const APPLY_STRETCH_MAX: Duration = Duration::from_micros(500);

/// Memory the log's tail may take before the oldest entries are purged, in bytes.
pub(super) const TAIL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The state machine. Owned by the library's apply task.
pub(super) struct StateMachine {
    applier: Applier,
    store: Store,
    log: LogStore,
    standing: Arc<Standing>,
    metrics: Metrics,
    membership: StoredMembership,
    /// What the backend file was last known to hold durably.
    snapshot: Arc<Mutex<SnapshotMeta>>,
    /// Told when the log's tail is too large.
    tail_too_large: Arc<Notify>,
}

impl StateMachine {
    /// Reads the membership from the backend file.
    pub(super) fn open(
        applier: Applier,
        store: Store,
        log: LogStore,
        standing: Arc<Standing>,
        metrics: Metrics,
        tail_too_large: Arc<Notify>,
    ) -> Result<StateMachine, String> {
        let applied = applier.position();
        let membership = read_membership(&store, applied)?;
        standing.set_applied(applied.index);
        standing.membership_applied(
            membership.log_id().as_ref().map_or(0, |id| position_of(id).index),
            membership.membership(),
        );
        let snapshot = SnapshotMeta { last_log_id: log_id_of(applied), last_membership: membership.clone() };
        Ok(StateMachine {
            applier,
            store,
            log,
            standing,
            metrics,
            membership,
            snapshot: Arc::new(Mutex::new(snapshot)),
            tail_too_large,
        })
    }

    fn apply_entry(&mut self, entry: &Entry) -> Result<(), ApplyFatal> {
        let position = position_of(&entry.log_id);
        let commands = match &entry.payload {
            Payload::Normal(batch) => batch.commands(),
            Payload::Blank => &[],
            Payload::Membership(membership) => {
                self.take_membership(entry.log_id, membership);
                &[]
            }
        };
        let apply = self.metrics.stages.of(Stage::Apply).begin();
        let began = apply.began();
        let outcomes = self.applier.apply(position, commands)?;
        let notify = self.applier.take_notify_time();
        let applied_at = apply.end_less(notify);
        if let Payload::Membership(membership) = &entry.payload {
            self.standing.membership_applied(position.index, membership);
        }
        // Before anyone hears of it: who does must find it applied.
        self.standing.entry_applied(position.term, position.index);
        if let Payload::Normal(batch) = &entry.payload {
            let waiters = batch.take_waiters();
            let times = |handed_in| StageTimes {
                apply: applied_at.saturating_sub(began).saturating_sub(notify),
                notify,
                applied_at,
                ..batch.marks().stages(handed_in, began)
            };
            if let Some(first) = waiters.first() {
                self.observe(&times(first.handed_in));
            }
            for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
                let stages = times(waiter.handed_in);
                // One that is gone does not want to know.
                let _is_there = waiter.answer((outcome, Some(Box::new(stages))));
            }
        }
        Ok(())
    }

    /// Notes the stages that are measured once a log entry.
    fn observe(&self, times: &StageTimes) {
        let stages = &self.metrics.stages;
        for (stage, took) in [
            (Stage::Queue, times.queue),
            (Stage::Replicate, times.replicate),
            (Stage::CommitToApply, times.commit_to_apply),
            (Stage::Notify, times.notify),
        ] {
            stages.of(stage).observe(took);
        }
    }

    /// Stages the membership for the commit that holds its entry.
    fn take_membership(&mut self, log_id: LogId, membership: &Membership) {
        self.membership = StoredMembership::new(Some(log_id), membership.clone());
        if position_of(&log_id).index > self.applier.position().index {
            self.store.stage(vec![BucketWrite {
                bucket: buckets::META,
                key: Bytes::from_static(MEMBERSHIP_KEY),
                value: Some(encode_stored_membership(&self.membership)),
            }]);
        }
    }

    fn report(&self) {
        let (committed, applied) = (self.standing.committed(), self.standing.applied());
        self.metrics.proposals_committed.set(gauge(committed));
        self.metrics.proposals_applied.set(gauge(applied));
        self.metrics.apply_lag_entries.set(gauge(committed.saturating_sub(applied)));
        if self.log.memory_bytes() > TAIL_BYTES_MAX {
            self.tail_too_large.notify_one();
        }
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn read_membership(store: &Store, applied: LogPosition) -> Result<StoredMembership, String> {
    let pairs = store.bucket_pairs(buckets::META).map_err(|error| error.to_string())?;
    let stored = pairs.iter().find(|(key, _)| key.as_ref() == MEMBERSHIP_KEY);
    match stored {
        Some((_, encoded)) => decode_stored_membership(encoded, applied)
            .map_err(|what| format!("meta/confState in the backend file is damaged: {what}")),
        None => Ok(StoredMembership::default()),
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = ();
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((log_id_of(self.applier.position()), self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut stretch_began = Instant::now();
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            if let Err(fatal) = self.apply_entry(&entry) {
                self.standing.fail(fatal.to_string());
                return Err(io::Error::other(fatal));
            }
            if let Some(responder) = responder {
                responder.send(());
            }
            if stretch_began.elapsed() > APPLY_STRETCH_MAX {
                tokio::task::yield_now().await;
                stretch_began = Instant::now();
            }
        }
        self.report();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            store: self.store.clone(),
            meta: SnapshotMeta {
                last_log_id: log_id_of(self.applier.position()),
                last_membership: self.membership.clone(),
            },
            current: Arc::clone(&self.snapshot),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("no peer can have sent a snapshot ({meta})")))
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot<CommittedLeaderId, u64, EmptyNode, ()>>> {
        let meta = self.snapshot.lock().clone();
        Ok(meta.last_log_id.is_some().then_some(Snapshot { meta, snapshot: () }))
    }
}

/// Waits until the backend file holds what was applied when the builder was made.
pub(super) struct SnapshotBuilder {
    store: Store,
    meta: SnapshotMeta,
    current: Arc<Mutex<SnapshotMeta>>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<Snapshot<CommittedLeaderId, u64, EmptyNode, ()>> {
        let (sender, durable) = oneshot::channel();
        self.store.flush(Box::new(move |result| {
            // The receiver is gone only if the library's core is.
            let _gone = sender.send(result);
        }));
        let durable = durable.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let wanted = self.meta.last_log_id.as_ref().map_or_else(LogPosition::default, position_of);
        if durable < wanted {
            return Err(io::Error::other(format!(
                "the backend file holds entries up to {} after a flush at {}",
                durable.index, wanted.index
            )));
        }
        let mut current = self.current.lock();
        if current.last_log_id < self.meta.last_log_id {
            *current = self.meta.clone();
        }
        Ok(Snapshot { meta: self.meta.clone(), snapshot: () })
    }
}
