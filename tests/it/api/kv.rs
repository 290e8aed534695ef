//! Put, range, delete, txn, compaction.

use super::Member;

const RANGE: &str = "/v3/kv/range";
const PUT: &str = "/v3/kv/put";
const DELETE: &str = "/v3/kv/deleterange";
const TXN: &str = "/v3/kv/txn";

#[test]
fn put_range_and_delete_of_one_key() {
    let mut member = Member::start();
    member.expect(RANGE, r#"{"key":"Zm9v"}"#, r#"{"header":@1}"#);
    member.expect(PUT, r#"{"key":"Zm9v","value":"YmFy"}"#, r#"{"header":@2}"#);
    member.expect(
        RANGE,
        r#"{"key":"Zm9v"}"#,
        r#"{"header":@2,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}"#,
    );
    member.expect(
        PUT,
        r#"{"key":"Zm9v","value":"YmF6","prev_kv":true}"#,
        r#"{"header":@3,"prev_kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}"#,
    );
    member.expect(
        RANGE,
        r#"{"key":"Zm9v","revision":"2"}"#,
        r#"{"header":@3,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}"#,
    );
    member.expect(PUT, r#"{"key":"Zm9v","ignore_value":true}"#, r#"{"header":@4}"#);
    member.expect(
        DELETE,
        r#"{"key":"Zm9v","prev_kv":true}"#,
        r#"{"header":@5,"deleted":"1","prev_kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"4","version":"3","value":"YmF6"}]}"#,
    );
    // Deleting nothing changes nothing.
    member.expect(DELETE, r#"{"key":"Zm9v"}"#, r#"{"header":@5}"#);
    member.expect(RANGE, r#"{"key":"Zm9v"}"#, r#"{"header":@5}"#);
    // A key that comes back is a new one; a value may be empty.
    member.expect(PUT, r#"{"key":"Zm9v"}"#, r#"{"header":@6}"#);
    member.expect(
        RANGE,
        r#"{"key":"Zm9v"}"#,
        r#"{"header":@6,"kvs":[{"key":"Zm9v","create_revision":"6","mod_revision":"6","version":"1"}],"count":"1"}"#,
    );
}

/// k1=c at 2, k2=a at 3, k3=b at 4, then k1=d at 5.
fn member_with_three_keys() -> Member {
    let mut member = Member::start();
    for body in [
        r#"{"key":"azE=","value":"Yw=="}"#,
        r#"{"key":"azI=","value":"YQ=="}"#,
        r#"{"key":"azM=","value":"Yg=="}"#,
        r#"{"key":"azE=","value":"ZA=="}"#,
    ] {
        member.call(PUT, body);
    }
    member
}

const K1: &str = r#"{"key":"azE=","create_revision":"2","mod_revision":"5","version":"2","value":"ZA=="}"#;
const K2: &str = r#"{"key":"azI=","create_revision":"3","mod_revision":"3","version":"1","value":"YQ=="}"#;
const K3: &str = r#"{"key":"azM=","create_revision":"4","mod_revision":"4","version":"1","value":"Yg=="}"#;

#[test]
fn range_options() {
    let mut member = member_with_three_keys();
    let cases = [
        // "k".."l": a prefix. "\0".."\0": everything. "k2".."\0": from k2 on. An end before the start: nothing.
        (r#""key":"aw==","range_end":"bA==""#, format!(r#""kvs":[{K1},{K2},{K3}],"count":"3""#)),
        (r#""key":"AA==","range_end":"AA==""#, format!(r#""kvs":[{K1},{K2},{K3}],"count":"3""#)),
        (r#""key":"azI=","range_end":"AA==""#, format!(r#""kvs":[{K2},{K3}],"count":"2""#)),
        (r#""key":"azM=","range_end":"azE=""#, String::new()),
        (r#""key":"aw==","range_end":"bA==","limit":"2""#, format!(r#""kvs":[{K1},{K2}],"more":true,"count":"3""#)),
        (r#""key":"aw==","range_end":"bA==","count_only":true"#, r#""count":"3""#.to_owned()),
        (r#""key":"aw==","range_end":"bA==","sort_order":"DESCEND""#, format!(r#""kvs":[{K3},{K2},{K1}],"count":"3""#)),
        (
            r#""key":"aw==","range_end":"bA==","sort_order":"ASCEND","sort_target":"VALUE""#,
            format!(r#""kvs":[{K2},{K3},{K1}],"count":"3""#),
        ),
        (
            r#""key":"aw==","range_end":"bA==","sort_order":2,"sort_target":3,"limit":1"#,
            format!(r#""kvs":[{K1}],"more":true,"count":"3""#),
        ),
        (
            r#""key":"aw==","range_end":"bA==","min_mod_revision":"4","max_create_revision":"2""#,
            format!(r#""kvs":[{K1}],"count":"3""#),
        ),
        (
            r#""key":"aw==","range_end":"bA==","serializable":true,"limit":"3""#,
            format!(r#""kvs":[{K1},{K2},{K3}],"count":"3""#),
        ),
        (
            r#""key":"aw==","range_end":"bA==","revision":"3""#,
            format!(
                r#""kvs":[{{"key":"azE=","create_revision":"2","mod_revision":"2","version":"1","value":"Yw=="}},{K2}],"count":"2""#
            ),
        ),
        (
            r#""key":"azI=","keys_only":true"#,
            r#""kvs":[{"key":"azI=","create_revision":"3","mod_revision":"3","version":"1"}],"count":"1""#.to_owned(),
        ),
    ];
    for (request, answer) in cases {
        let comma = if answer.is_empty() { "" } else { "," };
        member.expect(RANGE, &format!("{{{request}}}"), &format!(r#"{{"header":@5{comma}{answer}}}"#));
    }
}

#[test]
fn range_delete_is_one_revision() {
    let mut member = member_with_three_keys();
    member.expect(
        DELETE,
        r#"{"key":"azI=","range_end":"AA==","prev_kv":true}"#,
        &format!(r#"{{"header":@6,"deleted":"2","prev_kvs":[{K2},{K3}]}}"#),
    );
    member.expect(
        RANGE,
        r#"{"key":"aw==","range_end":"bA=="}"#,
        &format!(r#"{{"header":@6,"kvs":[{K1}],"count":"1"}}"#),
    );
}

#[test]
fn txn_takes_one_branch_in_one_revision_and_reads_its_own_writes() {
    let mut member = Member::start();
    let body = r#"{"compare":[{"key":"Zm9v","target":"VERSION","version":"0"}],
        "success":[{"request_put":{"key":"Zm9v","value":"YmFy"}},{"request_put":{"key":"cXV4"}},
            {"request_range":{"key":"Zm9v"}},{"request_delete_range":{"key":"cXV4"}}],
        "failure":[{"request_range":{"key":"Zm9v"}}]}"#;
    let kv = r#"{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}"#;
    // A put into a range that the same txn deletes is refused, so the delete goes elsewhere.
    let body =
        body.replace(r#"{"request_delete_range":{"key":"cXV4"}}"#, r#"{"request_delete_range":{"key":"bm9uZQ=="}}"#);
    member.expect(
        TXN,
        &body,
        &format!(
            r#"{{"header":@2,"succeeded":true,"responses":[{{"response_put":{{"header":{{"revision":"2"}}}}}},{{"response_put":{{"header":{{"revision":"2"}}}}}},{{"response_range":{{"header":{{"revision":"2"}},"kvs":[{kv}],"count":"1"}}}},{{"response_delete_range":{{"header":{{"revision":"2"}}}}}}]}}"#
        ),
    );
    member.expect(
        TXN,
        &body,
        &format!(
            r#"{{"header":@2,"responses":[{{"response_range":{{"header":{{"revision":"2"}},"kvs":[{kv}],"count":"1"}}}}]}}"#
        ),
    );
    // A txn without anything in it succeeds and changes nothing.
    member.expect(TXN, "{}", r#"{"header":@2,"succeeded":true}"#);
}

#[test]
fn txn_compares_every_target() {
    let mut member = Member::start();
    member.call(PUT, r#"{"key":"Zm9v","value":"YmFy"}"#);
    member.call(PUT, r#"{"key":"Zm9v","value":"YmFy"}"#);
    let cases = [
        (r#"{"key":"Zm9v","target":"VERSION","version":"2"}"#, true),
        (r#"{"key":"Zm9v","target":"CREATE","create_revision":"2"}"#, true),
        (r#"{"key":"Zm9v","target":"MOD","result":"GREATER","mod_revision":"2"}"#, true),
        (r#"{"key":"Zm9v","target":"MOD","result":"LESS","mod_revision":"3"}"#, false),
        (r#"{"key":"Zm9v","target":"VALUE","value":"YmFy"}"#, true),
        (r#"{"key":"Zm9v","target":"VALUE","result":"NOT_EQUAL","value":"YmFy"}"#, false),
        (r#"{"key":"Zm9v","target":"LEASE","lease":"0"}"#, true),
        (r#"{"key":"bm9uZQ==","target":"VALUE","result":"NOT_EQUAL","value":"YmFy"}"#, false),
        (r#"{"key":"bm9uZQ==","target":"CREATE","create_revision":"0"}"#, true),
        (r#"{"key":"Zg==","range_end":"Zw==","target":"VALUE","value":"YmFy"}"#, true),
    ];
    for (compare, succeeded) in cases {
        let expected = if succeeded { r#"{"header":@3,"succeeded":true}"# } else { r#"{"header":@3}"# };
        member.expect(TXN, &format!(r#"{{"compare":[{compare}]}}"#), expected);
    }
}

#[test]
fn nested_txn_is_decided_before_anything_is_written() {
    let mut member = Member::start();
    let body = r#"{"success":[{"request_put":{"key":"Zm9v","value":"YmFy"}},{"request_txn":{
        "compare":[{"key":"Zm9v","target":"VERSION","version":"0"}],
        "success":[{"request_put":{"key":"YmFy"}}]}}]}"#;
    member.expect(
        TXN,
        body,
        r#"{"header":@2,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}},{"response_txn":{"header":{},"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}}]}}]}"#,
    );
}

#[test]
fn compaction_takes_the_past_away() {
    let mut member = member_with_three_keys();
    member.expect("/v3/kv/compaction", r#"{"revision":"4","physical":true}"#, r#"{"header":@5}"#);
    member.expect_error(
        RANGE,
        r#"{"key":"azE=","revision":"3"}"#,
        (400, 11, "etcdserver: mvcc: required revision has been compacted"),
    );
    // The compacted revision itself can still be read.
    member.expect(
        RANGE,
        r#"{"key":"azE=","revision":"4"}"#,
        r#"{"header":@5,"kvs":[{"key":"azE=","create_revision":"2","mod_revision":"2","version":"1","value":"Yw=="}],"count":"1"}"#,
    );
}

#[test]
fn requests_are_read_generously() {
    let mut member = Member::start();
    // Numbers or strings, both spellings, both base64 alphabets, unknown names, nulls, the old prefix.
    member.expect(
        PUT,
        r#"{"key":"_-8","value":"YmFy","lease":0,"prevKv":true,"unknown":{"a":[1]}}"#,
        r#"{"header":@2}"#,
    );
    member.expect(
        "/v3beta/kv/range",
        r#"{"key":"/+8=","rangeEnd":null,"limit":1.0,"revision":"2","serializable":false}"#,
        r#"{"header":@2,"kvs":[{"key":"/+8=","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}"#,
    );
}

#[test]
fn large_answer_comes_whole_and_in_order() {
    const TXNS: usize = 8;
    const PUTS_PER_TXN: usize = 128;
    let mut member = Member::start();
    // 1,024 keys of 4 bytes with values of 3,000 bytes: an answer of about 4 MB.
    let key = |number: usize| base64_simd::STANDARD.encode_to_string(format!("{number:04}"));
    let value = "dmFs".repeat(1000);
    for txn in 0..TXNS {
        let puts: Vec<String> = (txn * PUTS_PER_TXN..(txn + 1) * PUTS_PER_TXN)
            .map(|number| format!(r#"{{"request_put":{{"key":"{}","value":"{value}"}}}}"#, key(number)))
            .collect();
        member.call(TXN, &format!(r#"{{"success":[{}]}}"#, puts.join(",")));
    }
    let answer = member.call(RANGE, r#"{"key":"AA==","range_end":"AA=="}"#);
    let kvs = answer["kvs"].as_array().unwrap();
    assert_eq!((kvs.len(), answer["count"].as_str()), (TXNS * PUTS_PER_TXN, Some("1024")));
    for (number, kv) in kvs.iter().enumerate() {
        assert_eq!((kv["key"].as_str(), kv["value"].as_str()), (Some(key(number).as_str()), Some(value.as_str())));
    }
}
