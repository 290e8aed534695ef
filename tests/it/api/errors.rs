//! Every way of asking wrongly, and what the answer is.

use super::Member;

const COMPACTED: (u16, u64, &str) = (400, 11, "etcdserver: mvcc: required revision has been compacted");
const FUTURE: (u16, u64, &str) = (400, 11, "etcdserver: mvcc: required revision is a future revision");
const NO_KEY: (u16, u64, &str) = (400, 3, "etcdserver: key is not provided");
const KEY_NOT_FOUND: (u16, u64, &str) = (400, 3, "etcdserver: key not found");
const LEASE_NOT_FOUND: (u16, u64, &str) = (404, 5, "etcdserver: requested lease not found");
const DUPLICATE: (u16, u64, &str) = (400, 3, "etcdserver: duplicate key given in txn request");
const TOO_MANY_OPS: (u16, u64, &str) = (400, 3, "etcdserver: too many operations in txn request");
const MALFORMED: (u16, u64, &str) = (400, 3, "…");

#[test]
fn wrong_requests_get_etcds_status_code_and_text() {
    let mut member = Member::start();
    for _ in 0..4 {
        member.call("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    }
    member.call("/v3/kv/compaction", r#"{"revision":3}"#);
    let cases = [
        ("/v3/kv/range", "{}", NO_KEY),
        ("/v3/kv/range", "", NO_KEY),
        ("/v3/kv/put", r#"{"value":"YmFy"}"#, NO_KEY),
        ("/v3/kv/deleterange", "{}", NO_KEY),
        ("/v3/kv/txn", r#"{"compare":[{"target":"VERSION","version":"1"}]}"#, NO_KEY),
        ("/v3/kv/txn", r#"{"failure":[{"request_range":{}}]}"#, NO_KEY),
        ("/v3/kv/range", r#"{"key":"Zm9v","revision":"2"}"#, COMPACTED),
        ("/v3/kv/range", r#"{"key":"Zm9v","revision":"6"}"#, FUTURE),
        ("/v3/kv/txn", r#"{"success":[{"request_range":{"key":"Zm9v","revision":"2"}}]}"#, COMPACTED),
        ("/v3/kv/txn", r#"{"success":[{"request_range":{"key":"Zm9v","revision":"9"}}]}"#, FUTURE),
        ("/v3/kv/compaction", r#"{"revision":"3"}"#, COMPACTED),
        ("/v3/kv/compaction", r#"{"revision":"10000"}"#, FUTURE),
        ("/v3/kv/range", r#"{"key":"Zm9v","sort_order":9}"#, (400, 3, "etcdserver: invalid sort option")),
        ("/v3/kv/put", r#"{"key":"bm9uZQ==","ignore_value":true}"#, KEY_NOT_FOUND),
        ("/v3/kv/put", r#"{"key":"bm9uZQ==","ignore_lease":true}"#, KEY_NOT_FOUND),
        ("/v3/kv/txn", r#"{"success":[{}]}"#, KEY_NOT_FOUND),
        (
            "/v3/kv/put",
            r#"{"key":"Zm9v","value":"YmFy","ignore_value":true}"#,
            (400, 3, "etcdserver: value is provided"),
        ),
        ("/v3/kv/put", r#"{"key":"Zm9v","lease":"1","ignore_lease":true}"#, (400, 3, "etcdserver: lease is provided")),
        ("/v3/kv/put", r#"{"key":"Zm9v","lease":"404"}"#, LEASE_NOT_FOUND),
        ("/v3/lease/revoke", r#"{"ID":"404"}"#, LEASE_NOT_FOUND),
        ("/v3/lease/grant", r#"{"TTL":"9000000001"}"#, (400, 11, "etcdserver: too large lease TTL")),
        ("/v3/kv/txn", r#"{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}"#, DUPLICATE),
        (
            "/v3/kv/txn",
            r#"{"success":[{"request_delete_range":{"key":"YQ==","range_end":"eg=="}},{"request_put":{"key":"Yg=="}}]}"#,
            DUPLICATE,
        ),
        ("/v3/kv/range", r#"{"key":"Zm9v""#, MALFORMED),
        ("/v3/kv/range", "not json", MALFORMED),
        ("/v3/kv/range", r#"["key"]"#, MALFORMED),
        ("/v3/kv/range", r#"{"key":"!"}"#, MALFORMED),
        ("/v3/kv/range", r#"{"key":7}"#, MALFORMED),
        ("/v3/kv/range", r#"{"key":"Zm9v","limit":1.5}"#, MALFORMED),
        ("/v3/kv/range", r#"{"key":"Zm9v","limit":"9223372036854775808"}"#, MALFORMED),
        ("/v3/kv/range", r#"{"key":"Zm9v","count_only":"true"}"#, MALFORMED),
        ("/v3/kv/range", r#"{"key":"Zm9v","key":"YmFy"}"#, MALFORMED),
    ];
    for (path, body, error) in cases {
        member.expect_error(path, body, error);
    }
    // None of these has changed anything.
    member.expect("/v3/kv/range", r#"{"key":"bm9uZQ=="}"#, r#"{"header":@5}"#);
}

#[test]
fn txn_operations_are_limited() {
    let mut member = Member::start();
    let txn = |count: usize| {
        let ops: Vec<&str> = std::iter::repeat_n(r#"{"request_range":{"key":"Zm9v"}}"#, count).collect();
        format!(r#"{{"success":[{}]}}"#, ops.join(","))
    };
    assert_eq!(member.call("/v3/kv/txn", &txn(128))["responses"].as_array().unwrap().len(), 128);
    member.expect_error("/v3/kv/txn", &txn(129), TOO_MANY_OPS);
}

#[test]
fn large_requests_are_refused_and_the_member_lives() {
    let mut member = Member::start();
    // Base64 of so many zero bytes.
    let put = |bytes: usize| format!(r#"{{"key":"Zm9v","value":"{}"}}"#, "AAAA".repeat(bytes / 3));
    member.expect("/v3/kv/put", &put(1_500_000), r#"{"header":@2}"#);
    member.expect_error("/v3/kv/put", &put(1_600_000), (400, 3, "etcdserver: request is too large"));
    member.expect_error(
        "/v3/kv/put",
        &put(2_200_000),
        (429, 8, "grpc: received message larger than max (… vs. 2097152)"),
    );
    member.expect("/v3/kv/put", &put(3), r#"{"header":@3}"#);
}
