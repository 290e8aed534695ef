//! `/debug/pipeline` on the wire. What it says, and when, is tested in `service`.

use serde_json::Value;

use super::harness::{Member, header};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_json_and_text_for_who_wants_text() {
    let member = Member::start().await;
    member.post("/v3/kv/put", r#"{"key":"Zm9v"}"#).await;
    let answer = member.get("/debug/pipeline").await;
    assert_eq!((answer.status, header(&answer.head, "content-type")), (200, Some("application/json")));
    let report: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&report["proposed_index"], &report["revision"]), (&3.into(), &2.into()));
    assert_eq!((&report["leader"], &report["is_leader"]), (&"11".into(), &true.into()));
    assert_eq!(report["last_minute"]["respond"]["count"], 1);
    for stage in ["queue", "wal_write", "fsync", "replicate", "commit_to_apply", "apply", "notify", "backend_commit"] {
        assert!(report["last_minute"][stage]["p99_seconds"].is_number(), "{stage}: {report}");
    }
    assert!(report["verdict"].is_string() && report["findings"].is_array() && report["compaction"].is_null());

    let mut client = member.connect().await;
    let by_query = client.request("GET", "/debug/pipeline?format=text", "", "").await;
    let by_header = client.request("GET", "/debug/pipeline", "Accept: text/plain\r\n", "").await;
    for answer in [by_query, by_header] {
        assert_eq!(header(&answer.head, "content-type"), Some("text/plain; charset=utf-8"));
        assert!(answer.body.contains("proposed 3, committed 3 (0 behind)"), "{}", answer.body);
        assert!(answer.body.contains("\nfsync "), "{}", answer.body);
    }
    let json = client.request("GET", "/debug/pipeline?format=json", "Accept: text/plain\r\n", "").await;
    assert!(json.body.starts_with('{'));
    assert_eq!(member.post("/debug/pipeline", "").await.status, 405);
    member.stop().await;
}
