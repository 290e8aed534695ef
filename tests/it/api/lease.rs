//! Leases: grant, keep alive, time to live, revoke, expiry.

use serde_json::Value;

use super::Member;

#[test]
fn lease_from_grant_to_revoke() {
    let mut member = Member::start();
    member.expect("/v3/lease/grant", r#"{"TTL":"60","ID":"77"}"#, r#"{"header":@1,"ID":"77","TTL":"60"}"#);
    member.expect_error("/v3/lease/grant", r#"{"TTL":60,"ID":77}"#, (400, 9, "etcdserver: lease already exists"));
    member.expect("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy","lease":"77"}"#, r#"{"header":@2}"#);
    member.expect(
        "/v3/kv/range",
        r#"{"key":"Zm9v"}"#,
        r#"{"header":@2,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy","lease":"77"}],"count":"1"}"#,
    );
    member.expect("/v3/lease/leases", "{}", r#"{"header":@2,"leases":[{"ID":"77"}]}"#);
    member.expect("/v3/kv/lease/leases", "", r#"{"header":@2,"leases":[{"ID":"77"}]}"#);
    member.expect("/v3/lease/keepalive", r#"{"ID":"77"}"#, r#"{"result":{"header":@2,"ID":"77","TTL":"60"}}"#);
    member.expect("/v3/lease/keepalive", r#"{"ID":"78"}"#, r#"{"result":{"header":@2,"ID":"78"}}"#);
    let left = member.call("/v3/kv/lease/timetolive", r#"{"ID":"77","keys":true}"#);
    assert_eq!((&left["ID"], &left["grantedTTL"], &left["keys"][0]), (&"77".into(), &"60".into(), &"Zm9v".into()));
    let ttl_secs: i64 = left["TTL"].as_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&ttl_secs), "{left}");
    member.expect("/v3/lease/timetolive", r#"{"ID":"78"}"#, r#"{"header":@2,"ID":"78","TTL":"-1"}"#);
    member.expect("/v3/kv/lease/revoke", r#"{"ID":"77"}"#, r#"{"header":@3}"#);
    member.expect("/v3/kv/range", r#"{"key":"Zm9v"}"#, r#"{"header":@3}"#);
    member.expect("/v3/lease/leases", "{}", r#"{"header":@3}"#);
}

#[test]
fn lease_ids_are_picked_and_short_ttls_are_raised() {
    let mut member = Member::start();
    let granted = member.call("/v3/lease/grant", r#"{"TTL":1}"#);
    let id: i64 = granted["ID"].as_str().unwrap().parse().unwrap();
    assert!(id > 0, "{granted}");
    // One and a half election timeouts of a second, in whole seconds.
    assert_eq!(granted["TTL"], Value::from("2"));
}

#[test]
fn expiry_deletes_the_keys_in_one_revision() {
    let mut member = Member::start();
    let mut watch =
        member.server.client().open_lines("/v3/watch", r#"{"create_request":{"key":"AA==","range_end":"AA=="}}"#);
    assert_eq!(watch.next_json()["result"]["created"], Value::from(true));
    member.call("/v3/lease/grant", r#"{"TTL":2,"ID":5}"#);
    member.call("/v3/kv/put", r#"{"key":"Yg==","lease":5}"#);
    member.call("/v3/kv/put", r#"{"key":"YQ==","lease":5}"#);
    assert_eq!(watch.next_json()["result"]["events"][0]["kv"]["key"], Value::from("Yg=="));
    assert_eq!(watch.next_json()["result"]["events"][0]["kv"]["key"], Value::from("YQ=="));
    let expired = &watch.next_json()["result"]["events"];
    let deleted = |key: &str| serde_json::json!({"type": "DELETE", "kv": {"key": key, "mod_revision": "4"}});
    assert_eq!(*expired, Value::from(vec![deleted("YQ=="), deleted("Yg==")]));
    member.expect("/v3/kv/range", r#"{"key":"AA==","range_end":"AA=="}"#, r#"{"header":@4}"#);
    member.expect_error("/v3/lease/revoke", r#"{"ID":5}"#, (404, 5, "etcdserver: requested lease not found"));
}
