//! One of the writers: it changes keys of its own and keys that all share, one request after another, and reports each
//! with what came back. Values are never used twice, so that every event can be told to its request.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
};

use serde_json::{Value, json};

use super::revision_of;
use crate::support::Client;

/// Six bytes: whole groups in base64, so that the prefix of a key is the prefix of its base64.
const OWN_PREFIX: &str = "writer";
const OWN_KEYS: usize = 6;
const SHARED_KEYS: usize = 4;

/// One key's change, in base64 as the interface has it. No value: the key is deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// What a request would change, in its order, and what became of it.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) changes: Vec<Change>,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Acknowledged: exactly these changes were made, at this revision.
    Done(i64),
    /// Acknowledged, and nothing had to be changed; the store was at this revision.
    Nothing(i64),
    /// No answer: some time or never.
    Unknown,
}

/// A writer, which outlives its servers.
pub(super) struct Writer {
    number: usize,
    random: fastrand::Rng,
    values_used: u64,
    /// What its own keys hold, as far as it knows. `None`: deleted, or never there.
    own: BTreeMap<String, Option<String>>,
}

impl Writer {
    pub(super) fn new(number: usize, random: fastrand::Rng) -> Writer {
        Writer { number, random, values_used: 0, own: BTreeMap::new() }
    }

    /// Writes until the server is gone. No revision it is told is below `lowest_revision`, or below one it was told.
    pub(super) fn run(
        &mut self,
        mut client: Client,
        lowest_revision: i64,
        stop: &AtomicBool,
        reports: &Sender<Report>,
    ) {
        self.own.clear();
        let mut lowest_revision = lowest_revision;
        while !stop.load(Ordering::Relaxed) {
            if self.random.u8(..8) == 0 {
                if !self.read_own_key(&mut client, &mut lowest_revision) {
                    return;
                }
                // What a read has seen is durable too.
                let _ = reports.send(Report { changes: Vec::new(), outcome: Outcome::Nothing(lowest_revision) });
            }
            let (path, body, changes) = self.next_request();
            let outcome = match client.post(path, body.to_string()) {
                Ok(answer) if answer.status == 200 => outcome_of(path, &answer.json()),
                // It may not be able to say what became of the request; it must not say that it was wrong.
                Ok(answer) => {
                    assert!(answer.status >= 500 || answer.status == 429, "{path} {body}: {}", answer.text());
                    Outcome::Unknown
                }
                Err(_) => Outcome::Unknown,
            };
            match outcome {
                Outcome::Done(revision) => {
                    assert!(revision > lowest_revision, "{path} {body}: {revision} after {lowest_revision}");
                    lowest_revision = revision;
                    self.remember(&changes);
                }
                Outcome::Nothing(revision) => {
                    assert!(revision >= lowest_revision, "{path} {body}: {revision} after {lowest_revision}");
                    lowest_revision = revision;
                }
                Outcome::Unknown => {}
            }
            // The receiver is there until every writer has ended.
            let _ = reports.send(Report { changes, outcome });
            if outcome == Outcome::Unknown {
                return;
            }
        }
    }

    /// Reads one of its own keys, which nobody else writes: it holds what was last acknowledged. `false`: no answer.
    fn read_own_key(&mut self, client: &mut Client, lowest_revision: &mut i64) -> bool {
        let key = self.own_key();
        let Ok(answer) = client.post("/v3/kv/range", json!({"key": key}).to_string()) else { return false };
        if answer.status != 200 {
            return false;
        }
        let answer = answer.json();
        let revision = revision_of(&answer["header"]["revision"]);
        assert!(revision >= *lowest_revision, "read at {revision} after {lowest_revision}");
        *lowest_revision = revision;
        let value = answer["kvs"].get(0).map(|kv| kv["value"].as_str().unwrap_or_default().to_owned());
        if let Some(expected) = self.own.get(&key) {
            assert_eq!(&value, expected, "{key} does not hold what was acknowledged: {answer}");
        }
        self.own.insert(key, value);
        true
    }

    fn remember(&mut self, changes: &[Change]) {
        let own_prefix = base64_simd::STANDARD.encode_to_string(OWN_PREFIX);
        for change in changes.iter().filter(|change| change.key.starts_with(&own_prefix)) {
            self.own.insert(change.key.clone(), change.value.clone());
        }
    }

    /// Path, body, and what it changes if it is done.
    fn next_request(&mut self) -> (&'static str, Value, Vec<Change>) {
        match self.random.u8(..10) {
            0..4 => {
                let put = self.put_of(true);
                ("/v3/kv/put", json!({"key": put.key, "value": put.value}), vec![put])
            }
            4..6 => {
                let put = self.put_of(false);
                ("/v3/kv/put", json!({"key": put.key, "value": put.value}), vec![put])
            }
            6..8 => {
                let changes = vec![self.put_of(true), self.put_of(false)];
                ("/v3/kv/txn", txn(&changes), changes)
            }
            8 => {
                let key = if self.random.bool() { self.own_key() } else { self.shared_key() };
                ("/v3/kv/deleterange", json!({"key": key}), vec![Change { key, value: None }])
            }
            _ => {
                let changes = vec![self.put_of(false), self.put_of(true)];
                let mut body = txn(&changes);
                // A compare that never holds, so that the other branch is the one that counts.
                body["compare"] = json!([{"key": changes[1].key, "target": "VERSION", "result": "LESS", "version": 0}]);
                body["failure"] = body["success"].take();
                body["success"] = json!([{"request_delete_range": {"key": "AA==", "range_end": "AA=="}}]);
                ("/v3/kv/txn", body, changes)
            }
        }
    }

    fn put_of(&mut self, own: bool) -> Change {
        let key = if own { self.own_key() } else { self.shared_key() };
        self.values_used += 1;
        let value = format!("writer {} value {}", self.number, self.values_used);
        Change { key, value: Some(base64_simd::STANDARD.encode_to_string(value)) }
    }

    fn own_key(&mut self) -> String {
        let key = format!("{OWN_PREFIX}/{}/{}", self.number, self.random.usize(..OWN_KEYS));
        base64_simd::STANDARD.encode_to_string(key)
    }

    fn shared_key(&mut self) -> String {
        let key = format!("shared/{}", self.random.usize(..SHARED_KEYS));
        base64_simd::STANDARD.encode_to_string(key)
    }
}

/// A txn that makes the changes in their order.
fn txn(changes: &[Change]) -> Value {
    let operations: Vec<Value> = changes
        .iter()
        .map(|change| match &change.value {
            Some(value) => json!({"request_put": {"key": change.key, "value": value}}),
            None => json!({"request_delete_range": {"key": change.key}}),
        })
        .collect();
    json!({ "success": operations })
}

fn outcome_of(path: &str, answer: &Value) -> Outcome {
    let revision = revision_of(&answer["header"]["revision"]);
    if path.ends_with("deleterange") && answer.get("deleted").is_none() {
        return Outcome::Nothing(revision);
    }
    Outcome::Done(revision)
}
