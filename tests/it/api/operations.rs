//! What operators look at: status, members, version, health, metrics, and requests that miss every route.

use std::{io::Write, net::TcpStream};

use serde_json::{Value, json};

use super::Member;
use crate::support::{ANSWER_MAX, is_foreign, wait_until};

/// The value of a metric without labels in Prometheus' text.
fn metric(text: &str, name: &str) -> f64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        .unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
}

#[test]
fn status_tells_sizes_and_positions() {
    let mut member = Member::start();
    member.call("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    let status = member.call("/v3/maintenance/status", "{}");
    let number = |name: &str| status[name].as_str().unwrap_or_default().parse::<u64>().unwrap_or_default();
    assert_eq!(status["header"]["revision"], json!("2"));
    assert_eq!(status["leader"], Value::from(member.member_id.as_str()));
    assert_eq!(number("raftTerm").to_string(), member.raft_term);
    assert!(number("dbSize") >= 4 * 4096, "{status}");
    assert!((1..=number("dbSize")).contains(&number("dbSizeInUse")), "{status}");
    assert!(number("raftAppliedIndex") >= 1, "{status}");
    assert!(number("raftIndex") >= number("raftAppliedIndex"), "{status}");
    assert_eq!(status["version"].as_str().unwrap().split('.').count(), 3, "{status}");
    assert_eq!(status["dbSizeQuota"], json!("2147483648"));
    assert_eq!(status["downgradeInfo"], json!({}));
    assert_eq!(status.get("errors"), None, "{status}");
    assert_eq!(status.get("isLearner"), None, "{status}");
}

#[test]
fn member_list_names_the_member() {
    let mut member = Member::start();
    let list = member.call("/v3/cluster/member/list", "{}");
    assert_eq!(list["header"].get("revision"), None, "{list}");
    assert_eq!(list["header"]["member_id"], Value::from(member.member_id.as_str()));
    let members = list["members"].as_array().unwrap();
    assert_eq!(members.len(), 1, "{list}");
    assert_eq!(members[0]["ID"], Value::from(member.member_id.as_str()));
    assert_eq!(members[0]["name"], json!("default"));
    assert_eq!(members[0]["peerURLs"], json!(["http://localhost:2380"]));
    assert!(members[0]["clientURLs"][0].as_str().unwrap().starts_with("http://"), "{list}");
}

#[test]
fn version_names_three_versions() {
    let mut member = Member::start();
    let version = member.client.get("/version").unwrap().json();
    for name in ["etcdserver", "etcdcluster", "storage"] {
        assert!(version[name].is_string(), "{version}");
    }
}

#[test]
fn health_pages() {
    let mut member = Member::start();
    let health = member.client.get("/health").unwrap();
    assert_eq!((health.status, health.text().trim_end()), (200, r#"{"health":"true","reason":""}"#));
    for (path, body) in [
        ("/livez", "ok"),
        ("/readyz", "ok"),
        ("/livez?verbose", "[+]serializable_read ok\nok"),
        ("/readyz/linearizable_read", "ok"),
    ] {
        let page = member.client.get(path).unwrap();
        assert_eq!((page.status, page.text().trim_end()), (200, body), "{path}");
    }
    let verbose = member.client.get("/readyz?verbose").unwrap().text();
    for check in ["data_corruption", "serializable_read", "linearizable_read", "non_learner"] {
        assert!(verbose.contains(&format!("[+]{check} ok\n")), "{verbose}");
    }
    assert_eq!(member.client.post("/health", "").unwrap().status, 405);
}

#[test]
fn metrics_have_the_names_dashboards_read() {
    let mut member = Member::start();
    member.call("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    let page = member.client.get("/metrics").unwrap();
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{:?}", page.headers);
    let text = page.text();
    let value = |name: &str| metric(&text, name);
    assert_eq!(value("etcd_server_has_leader"), 1.0);
    assert_eq!(value("etcd_server_is_leader"), 1.0);
    assert_eq!(value("etcd_debugging_mvcc_current_revision"), 2.0);
    assert_eq!(value("etcd_debugging_mvcc_keys_total"), 1.0);
    assert_eq!(value("etcd_mvcc_put_total"), 1.0);
    assert!(value("etcd_server_proposals_applied_total") >= 1.0);
    assert!(value("etcd_server_proposals_committed_total") >= value("etcd_server_proposals_applied_total"));
    assert!(value("etcd_disk_wal_fsync_duration_seconds_count") >= 1.0);
    assert!(value("etcd_disk_backend_commit_duration_seconds_count") >= 0.0);
    assert!(value("etcd_mvcc_db_total_size_in_bytes") >= value("etcd_mvcc_db_total_size_in_use_in_bytes"));
    assert!(value("process_resident_memory_bytes") > 0.0);
    assert!(text.contains("grpc_server_handled_total{"), "{text}");
}

#[test]
fn misses_are_told_apart() {
    let mut member = Member::start();
    member.expect_error("/v3/kv/nothing", "{}", (404, 5, "Not Found"));
    let wrong_method = member.client.get("/v3/kv/range").unwrap();
    assert_eq!((wrong_method.status, &wrong_method.json()["message"]), (501, &json!("Method Not Allowed")));
    let elsewhere = member.client.get("/nothing").unwrap();
    assert_eq!((elsewhere.status, elsewhere.text().trim_end()), (404, "404 page not found"));
    let options = member.client.request("OPTIONS", "/v3/kv/range", b"").unwrap();
    assert_eq!((options.status, options.header("access-control-allow-origin")), (200, Some("*")));
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let mut member = Member::start();
    let address = member.server.address();
    let mut half_sent = TcpStream::connect(address).unwrap();
    half_sent.write_all(b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"key\":").unwrap();
    let mut watches: Vec<_> = (0..5)
        .map(|_| member.server.client().open_lines("/v3/watch", r#"{"create_request":{"key":"Zm9v"}}"#))
        .collect();
    for watch in &mut watches {
        assert_eq!(watch.next_json()["result"]["created"], json!(true));
    }
    let watchers = "etcd_debugging_mvcc_watcher_total";
    assert_eq!(metric(&member.client.get("/metrics").unwrap().text(), watchers), 5.0);
    drop((half_sent, watches));
    wait_until("no watcher, and one connection", ANSWER_MAX, || {
        let text = member.client.get("/metrics").unwrap().text();
        let connections = if is_foreign() { 1.0 } else { metric(&text, "revgate_http_connections") };
        (metric(&text, watchers) == 0.0 && connections == 1.0).then_some(())
    });
    // And the request of which half came changed nothing.
    assert_eq!(member.call("/v3/kv/range", r#"{"key":"Zm9v"}"#)["header"]["revision"], json!("1"));
}
