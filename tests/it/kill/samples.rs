//! Forged replays: the check must find what is wrong with each.

use serde_json::{Value, json};

use super::{
    history::History,
    writer::{Change, Outcome, Report},
};

fn put(key: &str, value: &str) -> Change {
    Change { key: key.to_owned(), value: Some(value.to_owned()) }
}

/// Revision 2 and 4 were acknowledged, what came at 3 was not, and another request was lost.
fn history() -> History {
    let mut history = History::default();
    history.add(Report { changes: vec![put("YQ==", "MQ==")], outcome: Outcome::Done(2) });
    history.add(Report { changes: vec![put("Yg==", "Mg==")], outcome: Outcome::Unknown });
    history.add(Report { changes: vec![put("Yw==", "OQ==")], outcome: Outcome::Unknown });
    history.add(Report { changes: vec![put("YQ==", "Mw=="), put("ZA==", "NA==")], outcome: Outcome::Done(4) });
    history
}

fn kv(key: &str, value: &str, [create, modified, version]: [i64; 3]) -> Value {
    json!({"key": key, "value": value, "create_revision": create.to_string(), "mod_revision": modified.to_string(),
        "version": version.to_string()})
}

fn truth() -> [Value; 4] {
    [
        kv("YQ==", "MQ==", [2, 2, 1]),
        kv("Yg==", "Mg==", [3, 3, 1]),
        kv("YQ==", "Mw==", [2, 4, 2]),
        kv("ZA==", "NA==", [4, 4, 1]),
    ]
}

/// Replays kvs as put events, one response after another, against the history.
fn replay(responses: &[&[Value]], stored: &[Value]) {
    let history = history();
    let mut replay = history.replay();
    for response in responses {
        let events: Vec<Value> = response.iter().map(|kv| json!({ "kv": kv })).collect();
        replay.take(&events);
    }
    replay.finish(stored);
}

#[test]
fn true_story_passes() {
    let [a2, b3, a4, d4] = truth();
    replay(&[&[a2, b3.clone()], &[a4.clone(), d4.clone()]], &[a4, b3, d4]);
}

#[test]
#[should_panic(expected = "a revision is missing or out of order")]
fn missing_revision_is_found() {
    let [a2, _, a4, d4] = truth();
    replay(&[&[a2], &[a4.clone(), d4.clone()]], &[a4, d4]);
}

#[test]
#[should_panic(expected = "is told again, or torn in two")]
fn repeated_revision_is_found() {
    let [a2, ..] = truth();
    let once = std::slice::from_ref(&a2);
    replay(&[once, once], &[]);
}

#[test]
#[should_panic(expected = "is told again, or torn in two")]
fn revision_in_two_responses_is_found() {
    let [a2, b3, a4, d4] = truth();
    replay(&[&[a2, b3], &[a4], &[d4]], &[]);
}

#[test]
#[should_panic(expected = "revision 2 is not what was acknowledged")]
fn other_value_is_found() {
    let [_, b3, ..] = truth();
    replay(&[&[kv("YQ==", "Nw==", [2, 2, 1]), b3]], &[]);
}

#[test]
#[should_panic(expected = "revision 4 is not what was acknowledged")]
fn half_a_txn_is_found() {
    let [a2, b3, a4, _] = truth();
    replay(&[&[a2, b3.clone(), a4.clone()]], &[a4, b3]);
}

#[test]
#[should_panic(expected = "nobody asked for revision 3")]
fn invented_change_is_found() {
    let [a2, _, a4, _] = truth();
    replay(&[&[a2, kv("Yg==", "OA==", [3, 3, 1]), a4]], &[]);
}

#[test]
#[should_panic(expected = "an acknowledged revision was not told")]
fn lost_end_is_found() {
    let [a2, b3, ..] = truth();
    replay(&[&[a2.clone(), b3.clone()]], &[a2, b3]);
}

#[test]
#[should_panic(expected = "the events do not add up to what is stored")]
fn stale_store_is_found() {
    let [a2, b3, a4, d4] = truth();
    replay(&[&[a2.clone(), b3.clone(), a4, d4.clone()]], &[a2, b3, d4]);
}
