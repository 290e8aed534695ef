//! What happened, as the store itself tells it: the difference between each revision and the one before.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::number;
use crate::support::Client;

/// One change of a key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The pair as it was put; `None`: it was deleted.
    pub(crate) kv: Option<Value>,
    pub(crate) previous: Option<Value>,
}

/// Every change since the empty store, by revision and key.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) changes: BTreeMap<i64, BTreeMap<String, Change>>,
    state: BTreeMap<String, Value>,
    through: i64,
}

impl Truth {
    /// Reads on, up to a revision.
    pub(crate) fn extend(&mut self, client: &mut Client, through: i64) {
        // A fresh store is at revision 1, where nothing is.
        for revision in self.through.max(1) + 1..=through {
            let request = json!({"key": "AA==", "range_end": "AA==", "revision": revision.to_string()});
            let answer = client.call("/v3/kv/range", &request);
            let pairs = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
            self.add(revision, pairs);
        }
        self.through = through;
    }

    /// Adds what is stored at the next revision.
    pub(crate) fn add(&mut self, revision: i64, pairs: &[Value]) {
        let state: BTreeMap<String, Value> =
            pairs.iter().map(|kv| (kv["key"].as_str().unwrap().to_owned(), kv.clone())).collect();
        let mut changes = BTreeMap::new();
        for (key, kv) in &state {
            if number(&kv["mod_revision"]) == Some(revision) {
                changes.insert(key.clone(), Change { kv: Some(kv.clone()), previous: self.state.get(key).cloned() });
            }
        }
        for (key, kv) in &self.state {
            if !state.contains_key(key) {
                changes.insert(key.clone(), Change { kv: None, previous: Some(kv.clone()) });
            }
        }
        assert!(!changes.is_empty(), "revision {revision} changes nothing");
        self.changes.insert(revision, changes);
        self.state = state;
        self.through = revision;
    }
}
