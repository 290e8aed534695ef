//! Change sets turned into the events of each group: one event object a change and form (with prev_kv, without), one
//! list a group, one slice for all watchers that need the same part of it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use super::{
    Event, EventBatch,
    history::History,
    inbox::record_bytes,
    matcher::{Group, Matcher},
};
use crate::mvcc::{ChangeSet, MvccError, Record};

/// Events for one delivery: whole revisions, shared by all who get the same.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) events: Arc<EventBatch>,
    /// What they cost in memory, in bytes, as if nobody else held them.
    pub(super) bytes: usize,
    pub(super) first_revision: i64,
    pub(super) last_revision: i64,
}

/// A group's events, in revision order.
#[derive(Debug, Default)]
pub(super) struct EventList {
    events: Vec<Arc<Event>>,
    /// Why a previous value could not be read: the list is not to be used.
    pub(super) failed: Option<String>,
    /// Batches made of it, by the position of their first event.
    batches: HashMap<usize, Batch>,
}

impl EventList {
    /// The events of revisions from `from` on.
    pub(super) fn since(&mut self, from: i64) -> Option<Batch> {
        let at = self.events.partition_point(|event| event.record.revision.main < from);
        let events = &self.events[at..];
        let (first, last) = (events.first()?, events.last()?);
        let batch = self.batches.entry(at).or_insert_with(|| Batch {
            events: Arc::new(EventBatch::new(events.to_vec())),
            bytes: events.iter().map(|event| event_bytes(event)).sum(),
            first_revision: first.record.revision.main,
            last_revision: last.record.revision.main,
        });
        Some(batch.clone())
    }
}

/// The events that the changes are for each group that is `wanted`; groups without any are left out.
pub(super) fn collect(
    history: &History,
    matcher: &Matcher,
    changes: &[ChangeSet],
    wanted: impl Fn(usize, &Group) -> bool,
) -> BTreeMap<usize, EventList> {
    let mut lists: BTreeMap<usize, EventList> = BTreeMap::new();
    for record in changes.iter().flat_map(|set| set.changes.iter()) {
        let mut forms = Forms { history, record, plain: None, with_previous: None };
        matcher.visit(record, &mut |at, group| {
            if wanted(at, group) {
                let list = lists.entry(at).or_default();
                match forms.get(group.interest.prev_kv) {
                    Ok(event) => list.events.push(event),
                    Err(error) => list.failed = Some(error.to_string()),
                }
            }
        });
    }
    lists
}

/// The event objects of one change, each made when first needed.
struct Forms<'a> {
    history: &'a History,
    record: &'a Arc<Record>,
    plain: Option<Arc<Event>>,
    with_previous: Option<Result<Arc<Event>, MvccError>>,
}

impl Forms<'_> {
    fn get(&mut self, prev_kv: bool) -> Result<Arc<Event>, MvccError> {
        if prev_kv {
            let (history, record) = (self.history, self.record);
            return self.with_previous.get_or_insert_with(|| with_previous(history, record)).clone();
        }
        let event = |record| Arc::new(Event { record, previous: None, encoded: OnceLock::new() });
        Ok(self.plain.get_or_insert_with(|| event(self.record.clone())).clone())
    }
}

fn with_previous(history: &History, record: &Arc<Record>) -> Result<Arc<Event>, MvccError> {
    let is_creation = !record.tombstone && record.kv.version == 1;
    let previous = if is_creation { None } else { history.previous(&record.kv.key, record.revision.main)? };
    Ok(Arc::new(Event { record: record.clone(), previous, encoded: OnceLock::new() }))
}

fn event_bytes(event: &Event) -> usize {
    record_bytes(&event.record.kv) + event.previous.as_ref().map_or(0, record_bytes)
}
