//! What the writers were told, and the check of a replay against it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    revision_of,
    writer::{Change, Outcome, Report},
};

/// All reports of all rounds.
#[derive(Default)]
pub(super) struct History {
    /// Acknowledged changes by their revision.
    done: BTreeMap<i64, Vec<Change>>,
    /// What requests without an answer would change.
    unknown: Vec<Vec<Change>>,
    highest_seen: i64,
    /// Up to this revision every acknowledged change was read back.
    unchecked: Vec<(i64, Change)>,
}

impl History {
    pub(super) fn add(&mut self, report: Report) {
        match report.outcome {
            Outcome::Done(revision) => {
                self.highest_seen = self.highest_seen.max(revision);
                self.unchecked.extend(report.changes.iter().cloned().map(|change| (revision, change)));
                let before = self.done.insert(revision, report.changes);
                assert_eq!(before, None, "revision {revision} was acknowledged twice");
            }
            Outcome::Nothing(revision) => self.highest_seen = self.highest_seen.max(revision),
            Outcome::Unknown => self.unknown.push(report.changes),
        }
    }

    /// The highest revision any answer carried.
    pub(super) fn highest_seen(&self) -> i64 {
        self.highest_seen
    }

    /// How many requests had no answer.
    pub(super) fn in_doubt(&self) -> usize {
        self.unknown.len()
    }

    /// Acknowledged changes that were not read back yet.
    pub(super) fn take_unchecked(&mut self) -> Vec<(i64, Change)> {
        std::mem::take(&mut self.unchecked)
    }

    /// A replay that is to be fed with events.
    pub(super) fn replay(&self) -> Replay<'_> {
        Replay {
            history: self,
            unknown_left: self.unknown.clone(),
            current: (1, Vec::new()),
            revisions_checked: 0,
            model: BTreeMap::new(),
        }
    }
}

/// Events one after another, held against the history and added up.
pub(super) struct Replay<'a> {
    history: &'a History,
    unknown_left: Vec<Vec<Change>>,
    /// The revision whose events are coming, and those that came. A fresh store is at revision 1.
    current: (i64, Vec<Change>),
    revisions_checked: usize,
    /// Every key as the events leave it, as JSON has it.
    model: BTreeMap<String, Value>,
}

impl Replay<'_> {
    /// The newest revision that was told.
    pub(super) fn revision(&self) -> i64 {
        self.current.0
    }

    /// Takes the events of one response: whole revisions, each the next one.
    pub(super) fn take(&mut self, events: &[Value]) {
        assert!(!events.is_empty(), "a response without events");
        let told_before = self.current.0;
        for event in events {
            let revision = revision_of(&event["kv"]["mod_revision"]);
            assert!(revision > told_before, "revision {revision} is told again, or torn in two: {event}");
            if revision != self.current.0 {
                self.check_current();
                assert_eq!(revision, self.current.0 + 1, "a revision is missing or out of order: {event}");
                self.current = (revision, Vec::new());
            }
            self.apply(revision, event);
        }
    }

    fn apply(&mut self, revision: i64, event: &Value) {
        let kv = &event["kv"];
        let key = kv["key"].as_str().expect("an event has a key").to_owned();
        let value = if event["type"] == json!("DELETE") {
            assert!(self.model.remove(&key).is_some(), "a key that is not there is deleted: {event}");
            None
        } else {
            let (create_revision, version) = match self.model.get(&key) {
                Some(before) => (revision_of(&before["create_revision"]), revision_of(&before["version"]) + 1),
                None => (revision, 1),
            };
            assert_eq!(
                (revision_of(&kv["create_revision"]), revision_of(&kv["version"])),
                (create_revision, version),
                "{event}"
            );
            self.model.insert(key.clone(), kv.clone());
            Some(kv["value"].as_str().unwrap_or_default().to_owned())
        };
        self.current.1.push(Change { key, value });
    }

    /// All events of a revision are there: they are what was acknowledged at it, or what one unanswered request wanted.
    fn check_current(&mut self) {
        let (revision, changes) = &self.current;
        if *revision == 1 {
            return;
        }
        if let Some(expected) = self.history.done.get(revision) {
            assert_eq!(changes, expected, "revision {revision} is not what was acknowledged");
            self.revisions_checked += 1;
            return;
        }
        let request = self.unknown_left.iter().position(|request| request == changes);
        let request = request.unwrap_or_else(|| panic!("nobody asked for revision {revision}: {changes:?}"));
        self.unknown_left.swap_remove(request);
    }

    /// The last event came: everything acknowledged was told, and the events add up to what is stored.
    pub(super) fn finish(mut self, stored: &[Value]) {
        self.check_current();
        assert_eq!(self.revisions_checked, self.history.done.len(), "an acknowledged revision was not told");
        let told: Vec<&Value> = self.model.values().collect();
        let mut stored: Vec<&Value> = stored.iter().collect();
        stored.sort_by_key(|kv| kv["key"].as_str());
        assert_eq!(told, stored, "the events do not add up to what is stored");
    }
}
