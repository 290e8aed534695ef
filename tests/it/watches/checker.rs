//! Holds a recorded stream against what happened, and lists everything that is wrong with it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{number, truth::Truth, writers::is_the_end};

/// What a watch asks for. Keys are text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec {
    pub(crate) key: String,
    /// As the interface has it: nothing for a single key, "\0" for everything from the key on.
    pub(crate) range_end: String,
    /// 0: from now on.
    pub(crate) start_revision: i64,
    pub(crate) prev_kv: bool,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) fragment: bool,
    pub(crate) progress_notify: bool,
}

impl Spec {
    pub(crate) fn request(&self) -> Value {
        let encode = |text: &str| base64_simd::STANDARD.encode_to_string(text);
        let mut filters = Vec::new();
        filters.extend(self.no_put.then_some("NOPUT"));
        filters.extend(self.no_delete.then_some("NODELETE"));
        json!({"create_request": {
            "key": encode(&self.key), "range_end": encode(&self.range_end),
            "start_revision": self.start_revision.to_string(), "prev_kv": self.prev_kv, "filters": filters,
            "fragment": self.fragment, "progress_notify": self.progress_notify,
        }})
    }

    fn wants(&self, key: &str, is_delete: bool) -> bool {
        let key = base64_simd::STANDARD.decode_to_vec(key).unwrap();
        let (start, end) = (self.key.as_bytes(), self.range_end.as_bytes());
        let in_range = match end {
            b"" => key == start,
            b"\0" => *key >= *start,
            end => *key >= *start && *key < *end,
        };
        in_range && !(if is_delete { self.no_delete } else { self.no_put })
    }
}

/// One watch's responses, in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) spec: Spec,
    pub(crate) responses: Vec<Value>,
    /// The highest revision history was compacted at meanwhile; 0: it was not.
    pub(crate) compacted: i64,
}

impl Recording {
    /// Whether it was recorded to the end, and not broken off before.
    pub(crate) fn tells_the_end(&self) -> bool {
        self.responses.last().is_some_and(|last| events(last).iter().any(is_the_end))
    }

    pub(crate) fn last_event_revision(&self) -> Option<i64> {
        self.responses.iter().rev().find_map(|response| number(&events(response).last()?["kv"]["mod_revision"]))
    }
}

fn events(response: &Value) -> &[Value] {
    response["events"].as_array().map_or(&[], Vec::as_slice)
}

/// What is wrong with a recording. It must be whole up to its last event and up to every bookmark in it.
pub(crate) fn violations(recording: &Recording, truth: &Truth) -> Vec<String> {
    let mut check =
        Check { recording, truth, found: Vec::new(), from: 0, told: BTreeSet::new(), newest: 0, header: 0, open: None };
    let mut responses = recording.responses.iter();
    match responses.next() {
        Some(created) if created["created"] == true => check.begin(created),
        other => check.found.push(format!("does not begin with its creation: {other:?}")),
    }
    for response in responses {
        check.response(response);
    }
    if let Some(revision) = check.open {
        // A stream that broke off in the middle of pieces is whole only up to before them.
        check.whole_through(revision - 1);
    } else {
        check.whole_through(check.newest);
    }
    check.found
}

struct Check<'a> {
    recording: &'a Recording,
    truth: &'a Truth,
    found: Vec<String>,
    /// The first revision that is to be told.
    from: i64,
    told: BTreeSet<(i64, String)>,
    /// The newest revision of which whole responses have told.
    newest: i64,
    header: i64,
    /// The first revision of a response of which more pieces are to come.
    open: Option<i64>,
}

impl Check<'_> {
    fn begin(&mut self, created: &Value) {
        let header = number(&created["header"]["revision"]).unwrap_or_default();
        let start = self.recording.spec.start_revision;
        self.from = if start == 0 { header + 1 } else { start };
        self.newest = self.from - 1;
        self.header = header;
    }

    fn response(&mut self, response: &Value) {
        if response["canceled"] == true {
            return self.canceled(response);
        }
        let header = number(&response["header"]["revision"]).unwrap_or_default();
        if header < self.header {
            self.found.push(format!("the header goes back from {} to {header}", self.header));
        }
        self.header = header;
        if events(response).is_empty() {
            return self.bookmark(header);
        }
        if response["fragment"] == true && !self.recording.spec.fragment {
            self.found.push("pieces that nobody asked for".to_owned());
        }
        self.events(response, header);
    }

    fn canceled(&mut self, response: &Value) {
        let compacted = number(&response["compact_revision"]).unwrap_or_default();
        if compacted == 0 || self.newest + 1 >= compacted {
            self.found.push(format!("canceled without need after {}: {response}", self.newest));
        }
    }

    /// Everything up to a bookmark was told before it.
    fn bookmark(&mut self, header: i64) {
        if self.open.is_some() {
            self.found.push(format!("a bookmark at {header} between pieces"));
        }
        self.whole_through(header);
        self.newest = self.newest.max(header);
    }

    fn events(&mut self, response: &Value, header: i64) {
        let events = events(response);
        let continues = self.open.is_some();
        let mut last = self.newest;
        for event in events {
            let revision = number(&event["kv"]["mod_revision"]).unwrap_or_default();
            if revision > header {
                self.found.push(format!("revision {revision} under a header of {header}"));
            }
            if revision <= self.newest && !(continues && revision == self.newest) {
                self.found.push(format!("revision {revision} after {}: torn, repeated or out of order", self.newest));
            } else if revision < last {
                self.found.push(format!("revision {revision} after {last}: out of order"));
            }
            last = last.max(revision);
            self.event(revision, event);
        }
        let first = events.first().and_then(|event| number(&event["kv"]["mod_revision"])).unwrap_or_default();
        self.open = (response["fragment"] == true).then(|| self.open.unwrap_or(first));
        // Pieces may split a revision: until the last has come, it is not told.
        self.newest = last;
    }

    fn event(&mut self, revision: i64, event: &Value) {
        let kv = &event["kv"];
        let key = kv["key"].as_str().unwrap_or_default().to_owned();
        let is_delete = event["type"] == "DELETE";
        if revision < self.from {
            self.found.push(format!("revision {revision} is before the start, {}", self.from));
        }
        if !self.recording.spec.wants(&key, is_delete) {
            self.found.push(format!("not asked for: {event}"));
        }
        if !self.told.insert((revision, key.clone())) {
            self.found.push(format!("told twice: {event}"));
        }
        let Some(change) = self.truth.changes.get(&revision).and_then(|changes| changes.get(&key)) else {
            return self.found.push(format!("never happened: {event}"));
        };
        let deleted = json!({"key": key, "mod_revision": revision.to_string()});
        if is_delete != change.kv.is_none() || *kv != *change.kv.as_ref().unwrap_or(&deleted) {
            self.found.push(format!("not what happened: {event}, but {change:?}"));
        }
        let previous = event.get("prev_kv");
        let may_lack = revision - 1 < self.recording.compacted;
        let expected = change.previous.as_ref().filter(|_| self.recording.spec.prev_kv);
        if previous != expected && !(previous.is_none() && may_lack) {
            self.found.push(format!("the previous pair is not {expected:?}: {event}"));
        }
    }

    /// Everything that was asked for is told up to a revision.
    fn whole_through(&mut self, through: i64) {
        for (revision, changes) in self.truth.changes.range(self.from..(through + 1).max(self.from)) {
            for (key, change) in changes {
                let wanted = self.recording.spec.wants(key, change.kv.is_none());
                if wanted && !self.told.contains(&(*revision, key.clone())) {
                    self.found.push(format!("missing: {key} at {revision}, though {through} is told"));
                }
            }
        }
    }
}
