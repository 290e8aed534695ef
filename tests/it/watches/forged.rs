//! Forged recordings: the checker must find what is wrong with each.

use serde_json::{Value, json};

use super::{
    checker::{Recording, Spec, violations},
    truth::Truth,
};

/// Keys a and b in base64.
const A: &str = "YQ==";
const B: &str = "Yg==";

fn kv(key: &str, value: &str, [create, modified, version]: [i64; 3]) -> Value {
    json!({"key": key, "create_revision": create.to_string(), "mod_revision": modified.to_string(),
        "version": version.to_string(), "value": value})
}

/// a is put at 2 and 3, b with a at 4, a is deleted at 5, b put at 6.
fn truth() -> Truth {
    let mut truth = Truth::default();
    let b4 = kv(B, "MQ==", [4, 4, 1]);
    truth.add(2, &[kv(A, "MQ==", [2, 2, 1])]);
    truth.add(3, &[kv(A, "Mg==", [2, 3, 2])]);
    truth.add(4, &[kv(A, "Mw==", [2, 4, 3]), b4.clone()]);
    truth.add(5, &[b4]);
    truth.add(6, &[kv(B, "Mg==", [4, 6, 2])]);
    truth
}

fn put(kv: Value) -> Value {
    json!({ "kv": kv })
}

fn deleted(key: &str, revision: i64) -> Value {
    json!({"type": "DELETE", "kv": {"key": key, "mod_revision": revision.to_string()}})
}

fn response(header: i64, events: &[Value]) -> Value {
    json!({"header": {"revision": header.to_string()}, "events": events})
}

fn bookmark(header: i64) -> Value {
    json!({"header": {"revision": header.to_string()}})
}

fn created() -> Value {
    json!({"header": {"revision": "1"}, "created": true})
}

fn spec() -> Spec {
    Spec { key: "\0".into(), range_end: "\0".into(), ..Spec::default() }
}

/// The events of the true story, by revision.
fn story() -> [Vec<Value>; 5] {
    [
        vec![put(kv(A, "MQ==", [2, 2, 1]))],
        vec![put(kv(A, "Mg==", [2, 3, 2]))],
        vec![put(kv(A, "Mw==", [2, 4, 3])), put(kv(B, "MQ==", [4, 4, 1]))],
        vec![deleted(A, 5)],
        vec![put(kv(B, "Mg==", [4, 6, 2]))],
    ]
}

fn true_responses() -> Vec<Value> {
    let [two, three, four, five, six] = story();
    let both = [three, four].concat();
    vec![created(), response(2, &two), response(4, &both), bookmark(4), response(6, &five), response(6, &six)]
}

fn check(spec: Spec, responses: Vec<Value>) -> Vec<String> {
    violations(&Recording { spec, responses, compacted: 0 }, &truth())
}

fn assert_found(what: &str, spec: Spec, responses: Vec<Value>) {
    let found = check(spec, responses);
    assert!(found.iter().any(|violation| violation.contains(what)), "{what}: {found:?}");
}

#[test]
fn true_stories_pass() {
    assert_eq!(check(spec(), true_responses()), Vec::<String>::new());
    // Seen from b alone, without deletes, and from the middle.
    let [_, _, four, five, six] = story();
    let single = Spec { key: "b".into(), ..Spec::default() };
    assert_eq!(check(single, vec![created(), response(4, &four[1..]), response(6, &six)]), Vec::<String>::new());
    let late = Spec { start_revision: 5, no_put: true, ..spec() };
    assert_eq!(check(late, vec![created(), response(6, &five), bookmark(6)]), Vec::<String>::new());
    // In pieces, where they are allowed.
    let mut piece = response(4, &four[..1]);
    piece["fragment"] = true.into();
    let pieces = Spec { start_revision: 4, fragment: true, ..spec() };
    assert_eq!(check(pieces, vec![created(), piece, response(4, &four[1..])]), Vec::<String>::new());
}

#[test]
fn what_is_out_of_order_repeated_or_torn_is_found() {
    let mut swapped = true_responses();
    swapped.swap(4, 5);
    assert_found("out of order", spec(), swapped);
    let [two, three, four, ..] = story();
    assert_found("repeated", spec(), vec![created(), response(2, &two), response(2, &two)]);
    let twice = [two.clone(), two.clone()].concat();
    assert_found("told twice", spec(), vec![created(), response(2, &twice)]);
    let halves = vec![created(), response(3, &[two, three].concat()), response(4, &four[..1]), response(4, &four[1..])];
    assert_found("torn", spec(), halves);
    let [two, three, ..] = story();
    assert_found("out of order", spec(), vec![created(), response(3, &[three, two].concat())]);
}

#[test]
fn what_is_missing_is_found() {
    for left_out in [1, 2, 4] {
        let mut responses = true_responses();
        responses.remove(left_out);
        assert_found("missing", spec(), responses);
    }
    let mut half = true_responses();
    half[2]["events"].as_array_mut().unwrap().pop();
    assert_found("missing: Yg== at 4", spec(), half);
    let [two, ..] = story();
    assert_found("missing: YQ== at 3, though 3 is told", spec(), vec![created(), response(2, &two), bookmark(3)]);
    assert_found("does not begin", spec(), true_responses()[1..].to_vec());
}

#[test]
fn what_never_happened_or_was_not_asked_for_is_found() {
    let [two, three, ..] = story();
    assert_found("never happened", spec(), vec![created(), response(9, &[put(kv(A, "MQ==", [2, 9, 1]))])]);
    assert_found("not what happened", spec(), vec![created(), response(2, &[put(kv(A, "Mg==", [2, 2, 1]))])]);
    assert_found("not what happened", spec(), vec![created(), response(2, &[deleted(A, 2)])]);
    assert_found("not asked for", Spec { no_put: true, ..spec() }, vec![created(), response(2, &two)]);
    assert_found("not asked for", Spec { key: "b".into(), ..Spec::default() }, vec![created(), response(2, &two)]);
    assert_found("before the start", Spec { start_revision: 3, ..spec() }, vec![created(), response(2, &two)]);
    let mut piece = response(2, &two);
    piece["fragment"] = true.into();
    assert_found("nobody asked for", spec(), vec![created(), piece, response(3, &three)]);
}

#[test]
fn wrong_headers_and_bookmarks_are_found() {
    let [two, three, ..] = story();
    assert_found("under a header", spec(), vec![created(), response(1, &two)]);
    assert_found("goes back", spec(), vec![created(), response(6, &two), response(3, &three)]);
    // Told after a bookmark that said there would be no more of it.
    assert_found("after 3", spec(), vec![created(), response(2, &two), bookmark(3), response(3, &three)]);
}

#[test]
fn wrong_previous_pairs_are_found() {
    let [_, three, ..] = story();
    let with = |previous: Value| {
        let mut event = three[0].clone();
        event["prev_kv"] = previous;
        vec![created(), response(3, &[event])]
    };
    let wanted = Spec { start_revision: 3, prev_kv: true, ..spec() };
    let right = kv(A, "MQ==", [2, 2, 1]);
    assert_eq!(check(wanted.clone(), with(right.clone())), Vec::<String>::new());
    assert_found("previous", wanted.clone(), with(kv(A, "OQ==", [2, 2, 1])));
    assert_found("previous", wanted.clone(), vec![created(), response(3, &three)]);
    assert_found("previous", Spec { prev_kv: false, ..wanted }, with(right));
}

#[test]
fn needless_cancels_are_found() {
    let canceled = json!({"canceled": true, "compact_revision": "3"});
    assert_eq!(check(Spec { start_revision: 2, ..spec() }, vec![created(), canceled.clone()]), Vec::<String>::new());
    assert_found("without need", Spec { start_revision: 3, ..spec() }, vec![created(), canceled]);
}
