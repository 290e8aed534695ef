//! A history in memory, and an engine whose rounds the test starts: nothing happens between two lines of a test.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    clock::ManualClock,
    metrics::Metrics,
    mvcc::{ChangeSet, KeyRange, MvccError, Record, Revision},
    proto::mvccpb::KeyValue,
    watch::{
        Delivery, Event, HubOptions, Shared, StreamClient, WatchSpec, WatchStream,
        engine::{Engine, Next},
        history::History,
        inbox::INBOX_BYTES_MAX,
        reader::Reader,
    },
};

/// One change to make: a key and its new value, or `None` to delete it.
pub(super) type Change<'a> = (&'a str, Option<&'a str>);

/// A store's history. Revision 1 is the empty store.
#[derive(Debug, Default)]
pub(super) struct World {
    sets: Mutex<Vec<ChangeSet>>,
    states: Mutex<BTreeMap<Bytes, KeyValue>>,
    pub(super) compacted: AtomicI64,
    pub(super) broken: AtomicBool,
}

impl World {
    pub(super) fn revision(&self) -> i64 {
        1 + self.sets.lock().len() as i64
    }

    pub(super) fn sets(&self) -> Vec<ChangeSet> {
        self.sets.lock().clone()
    }

    /// Makes changes visible, as one transaction. Deletes of what is not there change nothing.
    pub(super) fn commit(&self, changes: &[Change<'_>]) -> Option<ChangeSet> {
        let main = self.revision() + 1;
        let mut states = self.states.lock();
        let mut records = Vec::new();
        for (key, value) in changes {
            let key = Bytes::copy_from_slice(key.as_bytes());
            let old = states.remove(&key);
            let revision = Revision { main, sub: records.len() as i64 };
            let kv = match value {
                Some(value) => KeyValue {
                    key: key.clone(),
                    create_revision: old.as_ref().map_or(main, |old| old.create_revision),
                    mod_revision: main,
                    version: old.as_ref().map_or(0, |old| old.version) + 1,
                    value: Bytes::copy_from_slice(value.as_bytes()),
                    lease: 0,
                },
                None if old.is_none() => continue,
                None => KeyValue { key: key.clone(), mod_revision: main, ..KeyValue::default() },
            };
            if value.is_some() {
                states.insert(key, kv.clone());
            }
            records.push(Arc::new(Record { revision, tombstone: value.is_none(), kv }));
        }
        if records.is_empty() {
            return None;
        }
        let set = ChangeSet { revision: main, changes: records.into() };
        self.sets.lock().push(set.clone());
        Some(set)
    }

    pub(super) fn get(&self, key: &[u8], revision: i64) -> Option<KeyValue> {
        let sets = self.sets.lock();
        let mut changes = sets.iter().filter(|set| set.revision <= revision).flat_map(|set| set.changes.iter());
        let last = changes.rfind(|record| record.kv.key == key)?;
        (!last.tombstone).then(|| last.kv.clone())
    }

    fn check(&self, requested: i64) -> Result<(), MvccError> {
        let compacted = self.compacted.load(Ordering::SeqCst);
        if self.broken.load(Ordering::SeqCst) {
            let revision = Revision { main: requested, sub: 0 };
            return Err(MvccError::DamagedRecord { revision, what: "bad tag".into() });
        }
        if requested < compacted { Err(MvccError::Compacted { requested, compacted }) } else { Ok(()) }
    }

    pub(super) fn history(self: &Arc<World>) -> History {
        let (one, two, three) = (self.clone(), self.clone(), self.clone());
        History {
            revision: Box::new(move || one.revision()),
            get: Box::new(move |key, revision| two.check(revision).map(|()| two.get(key, revision))),
            changes_since: Box::new(move |from, revisions_max, bytes_max| {
                three.check(from)?;
                let mut bytes = 0;
                let sets = three.sets().into_iter().filter(|set| set.revision >= from);
                let within = sets.take_while(|set| {
                    let fits = bytes < bytes_max;
                    bytes += set.changes.iter().map(|r| r.kv.key.len() + r.kv.value.len()).sum::<usize>();
                    fits
                });
                Ok(within.take(revisions_max).collect())
            }),
        }
    }
}

pub(super) struct Rig {
    pub(super) world: Arc<World>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) metrics: Metrics,
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Engine,
    pub(super) reader: Reader,
}

pub(super) fn options() -> HubOptions {
    HubOptions {
        stream_bytes_max: 1 << 20,
        progress_interval: Duration::from_secs(600),
        catch_up_revisions_max: 1000,
        catch_up_bytes_max: 1 << 20,
    }
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::with(options(), INBOX_BYTES_MAX)
    }

    pub(super) fn with(options: HubOptions, inbox_bytes_max: usize) -> Rig {
        let (world, clock, metrics) = (Arc::new(World::default()), Arc::new(ManualClock::default()), Metrics::new());
        let shared = Arc::new(Shared::new(world.history(), options, &metrics, inbox_bytes_max));
        let (engine, reader) = Engine::new(shared.clone(), clock.clone());
        Rig { world, clock, metrics, shared, engine, reader }
    }

    /// Begins anew, at the store's revision.
    pub(super) fn restart(&mut self) {
        (self.engine, self.reader) = Engine::new(self.shared.clone(), self.clock.clone());
    }

    pub(super) fn open(&self) -> WatchStream {
        self.shared.open_stream(StreamClient::default())
    }

    /// Makes changes visible and hands them over.
    pub(super) fn commit(&self, changes: &[Change<'_>]) {
        self.shared.inbox.push_changes(self.world.commit(changes).unwrap());
    }

    pub(super) fn put(&self, key: &str, value: &str) {
        self.commit(&[(key, Some(value))]);
    }

    /// Rounds until the hub's thread would wait, while history is not read.
    pub(super) fn settle_without_reads(&mut self) {
        while self.engine.round() == Next::Round {}
    }

    /// One round, and the read it asks for.
    pub(super) fn round(&mut self) {
        self.engine.round();
        self.reader.step();
    }

    /// Rounds and reads until both threads would wait.
    pub(super) fn settle(&mut self) {
        self.settle_without_reads();
        while self.reader.step() {
            self.settle_without_reads();
        }
    }
}

pub(super) fn everything() -> KeyRange {
    KeyRange::From(Bytes::from_static(b"\0"))
}

pub(super) fn single(key: &'static str) -> KeyRange {
    KeyRange::Single(Bytes::from_static(key.as_bytes()))
}

pub(super) fn bounded(start: &'static str, end: &'static str) -> KeyRange {
    KeyRange::Bounded { start: start.into(), end: end.into() }
}

pub(super) fn spec(range: KeyRange, start_revision: i64) -> WatchSpec {
    WatchSpec {
        range,
        start_revision,
        progress_notify: false,
        no_put: false,
        no_delete: false,
        prev_kv: false,
        fragment: false,
        watch_id: 0,
    }
}

pub(super) fn next(stream: &WatchStream) -> Option<Delivery> {
    match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(delivery) => delivery,
        Poll::Pending => None,
    }
}

pub(super) fn is_ended(stream: &WatchStream) -> bool {
    matches!(stream.poll_next(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
}

pub(super) fn drain(stream: &WatchStream) -> Vec<String> {
    std::iter::from_fn(|| next(stream)).map(|delivery| show(&delivery)).collect()
}

/// `id@header: event event ...`, an event as `revision+key=value` or `revision-key`, with `(previous)` if there is one.
pub(super) fn show(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Created { watch_id, revision } => format!("{watch_id}@{revision} created"),
        Delivery::Progress { watch_id, revision } => format!("{watch_id}@{revision} progress"),
        Delivery::Canceled { watch_id, revision, compact_revision: 0, reason } => {
            format!("{watch_id}@{revision} canceled {reason}").trim_end().to_string()
        }
        Delivery::Canceled { watch_id, revision, compact_revision, .. } => {
            format!("{watch_id}@{revision} canceled compact={compact_revision}")
        }
        Delivery::Events { watch_id, revision, events, .. } => {
            let events: Vec<String> = events.iter().map(|event| show_event(event)).collect();
            format!("{watch_id}@{revision}: {}", events.join(" "))
        }
    }
}

fn show_event(event: &Event) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let (kv, revision) = (&event.record.kv, event.record.revision.main);
    let mut shown = match event.record.tombstone {
        true => format!("{revision}-{}", text(&kv.key)),
        false => format!("{revision}+{}={}", text(&kv.key), text(&kv.value)),
    };
    if let Some(previous) = &event.previous {
        shown += &format!("({})", text(&previous.value));
    }
    shown
}
