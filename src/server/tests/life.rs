//! Members that start, serve over HTTP and stop.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use super::*;
use crate::disk::sim::{Call, EIO, Failure, Fault, SimDisk};

async fn start(data_dir: &Path) -> Server {
    Server::start(config(data_dir)).await.expect("a member")
}

async fn connect(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("a request");
    stream
}

/// Status and body of one call.
pub(super) async fn call(address: SocketAddr, path: &str, body: Value) -> (u16, Value) {
    let mut answer = String::new();
    connect(address, path, &body).await.read_to_string(&mut answer).await.expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (start, end) = (answer.find('{').expect("a body"), answer.rfind('}').expect("a body"));
    (status, serde_json::from_str(&answer[start..=end]).expect("JSON"))
}

async fn ok(address: SocketAddr, path: &str, body: Value) -> Value {
    let (status, answer) = call(address, path, body).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// A watch's responses, one by one.
struct Watch(BufReader<TcpStream>);

impl Watch {
    async fn open(address: SocketAddr, create: Value) -> Watch {
        Watch(BufReader::new(connect(address, "/v3/watch", &json!({ "create_request": create })).await))
    }

    /// The next response; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.0.read_line(&mut line).await.expect("a line") > 0 {
            if line.starts_with('{') {
                return Some(serde_json::from_str::<Value>(&line).expect("JSON")["result"].take());
            }
            line.clear();
        }
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_is_there_after_a_restart() {
    let dir = temp_dir();
    let server = start(dir.path()).await;
    let address = server.addresses()[0];
    let put = ok(address, "/v3/kv/put", json!({"key": "Zm9v", "value": "YmFy"})).await;
    assert_eq!(put["header"]["revision"], "2");
    let lease = ok(address, "/v3/lease/grant", json!({"TTL": 1000, "ID": 7})).await;
    assert_eq!((&lease["ID"], &lease["TTL"]), (&json!("7"), &json!("1000")));
    ok(address, "/v3/kv/put", json!({"key": "YQ==", "lease": 7})).await;
    server.stop().await.expect("an orderly end");

    let server = start(dir.path()).await;
    let address = server.addresses()[0];
    let range = ok(address, "/v3/kv/range", json!({"key": "Zm9v"})).await;
    assert_eq!((&range["kvs"][0]["value"], &range["header"]["revision"]), (&json!("YmFy"), &json!("3")));
    let lease = ok(address, "/v3/lease/timetolive", json!({"ID": 7, "keys": true})).await;
    assert_eq!((&lease["grantedTTL"], &lease["keys"]), (&json!("1000"), &json!(["YQ=="])));
    server.stop().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_member_on_the_data_dir_or_the_address_is_refused() {
    let dir = temp_dir();
    let server = start(dir.path()).await;
    let error = Server::start(config(dir.path())).await.expect_err("in use").to_string();
    assert!(error.contains("is in use by another process"), "{error}");

    let other_dir = temp_dir();
    let mut other = config(other_dir.path());
    other.listen_client_urls[0].address = server.addresses()[0];
    let error = Server::start(other).await.expect_err("in use").to_string();
    assert!(error.contains("address already in use"), "{error}");
    assert!(!other_dir.path().join("member").exists(), "no file is touched before the address is ours");
    server.stop().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_runs_out_takes_its_keys_along() {
    let dir = temp_dir();
    let server = start(dir.path()).await;
    let address = server.addresses()[0];
    let lease = ok(address, "/v3/lease/grant", json!({"TTL": 1})).await["ID"].take();
    let id: i64 = lease.as_str().and_then(|id| id.parse().ok()).expect("an id");
    assert!(id > 0);
    ok(address, "/v3/kv/put", json!({"key": "Zm9v", "lease": lease})).await;
    let mut watch = Watch::open(address, json!({"key": "Zm9v", "start_revision": 3})).await;
    assert_eq!(watch.next().await.expect("a response")["created"], true);
    let event = watch.next().await.expect("the deletion")["events"][0].take();
    assert_eq!((&event["type"], &event["kv"]["mod_revision"]), (&json!("DELETE"), &json!("3")));

    let gone = ok(address, "/v3/lease/timetolive", json!({"ID": lease})).await;
    assert_eq!((&gone["ID"], &gone["TTL"]), (&lease, &json!("-1")));
    let (status, error) = call(address, "/v3/lease/revoke", json!({"ID": lease})).await;
    assert_eq!((status, &error["message"]), (404, &json!("etcdserver: requested lease not found")));
    server.stop().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_refused_as_etcd_refuses_them_and_end_with_the_member() {
    let dir = temp_dir();
    let server = start(dir.path()).await;
    let address = server.addresses()[0];
    let mut watch = Watch::open(address, json!({"key": "eg==", "range_end": "YQ=="})).await;
    let refused = watch.next().await.expect("a response");
    assert_eq!((&refused["watch_id"], &refused["created"]), (&json!("-1"), &json!(true)));
    assert_eq!(
        (&refused["canceled"], &refused["cancel_reason"]),
        (&json!(true), &json!("mvcc: watcher range is empty"))
    );

    let mut all = Watch::open(address, json!({"range_end": "AA=="})).await;
    assert_eq!(all.next().await.expect("a response")["created"], true);
    ok(address, "/v3/kv/put", json!({"key": "Zm9v"})).await;
    assert_eq!(all.next().await.expect("an event")["events"][0]["kv"]["key"], "Zm9v");
    let (ended, stopped) = tokio::join!(all.next(), server.stop());
    stopped.expect("an orderly end");
    assert_eq!(ended, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_txns_leave_no_trace_in_the_log() {
    let dir = temp_dir();
    let server = start(dir.path()).await;
    let address = server.addresses()[0];
    ok(address, "/v3/kv/put", json!({"key": "Zm9v", "value": "YmFy"})).await;
    let index = |status: Value| status["raftIndex"].clone();
    let before = index(ok(address, "/v3/maintenance/status", json!({})).await);
    let txn = json!({
        "compare": [{"key": "Zm9v", "target": "VERSION", "version": 1}],
        "success": [{"request_range": {"key": "Zm9v"}}],
    });
    let answer = ok(address, "/v3/kv/txn", txn).await;
    assert_eq!((&answer["succeeded"], &answer["header"]["revision"]), (&json!(true), &json!("2")));
    let range = &answer["responses"][0]["response_range"];
    assert_eq!((&range["header"], &range["count"]), (&json!({"revision": "2"}), &json!("1")));
    assert_eq!(index(ok(address, "/v3/maintenance/status", json!({})).await), before);

    let (status, error) = call(address, "/v3/kv/txn", json!({"success": [{}]})).await;
    assert_eq!((status, &error["message"]), (400, &json!("etcdserver: key not found")));
    server.stop().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alarms_show_in_status() {
    let dir = temp_dir();
    let server = start(dir.path()).await;
    let address = server.addresses()[0];
    let status = ok(address, "/v3/maintenance/status", json!({})).await;
    assert_eq!((&status["version"], &status["downgradeInfo"]), (&json!("3.7.1"), &json!({})));
    assert_eq!(status.get("errors"), None);
    let alarm = json!({"action": "ACTIVATE", "alarm": "NOSPACE", "memberID": 5});
    ok(address, "/v3/maintenance/alarm", alarm).await;
    let status = ok(address, "/v3/maintenance/status", json!({})).await;
    assert_eq!(status["errors"], json!(["memberID:5 alarm:NOSPACE"]));
    server.stop().await.expect("an orderly end");

    let server = start(dir.path()).await;
    let status = ok(server.addresses()[0], "/v3/maintenance/status", json!({})).await;
    assert_eq!(status["errors"], json!(["memberID:5 alarm:NOSPACE"]), "after a restart");
    server.stop().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_once_a_sync_has_failed() {
    let dir = temp_dir();
    let disk = SimDisk::default();
    let server = Server::start_on(Arc::new(disk.clone()), config(dir.path())).await.expect("a member");
    let address = server.addresses()[0];
    ok(address, "/v3/kv/put", json!({"key": "YQ=="})).await;
    disk.fail(Fault::every(&[Call::SyncData, Call::SyncAll, Call::SyncDir], Failure::Errno(EIO)));
    let (status, _) = call(address, "/v3/kv/put", json!({"key": "Yg=="})).await;
    assert_ne!(status, 200);
    let reason = server.failure().await;
    assert!(reason.contains("sync"), "{reason}");
    let (status, _) = call(address, "/v3/kv/put", json!({"key": "Yw=="})).await;
    assert_ne!(status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_refused_with_its_name() {
    let dir = temp_dir();
    start(dir.path()).await.stop().await.expect("an orderly end");
    let db = dir.path().join("member/snap/db");
    let mut bytes = std::fs::read(&db).expect("the file");
    bytes[16..80].fill(0xff);
    bytes[4096 + 16..4096 + 80].fill(0xff);
    std::fs::write(&db, bytes).expect("the file");
    let error = Server::start(config(dir.path())).await.expect_err("damaged").to_string();
    assert!(error.contains(&db.display().to_string()) && error.contains("both meta pages are damaged"), "{error}");
    assert!(error.contains("at byte 0") && error.contains("snapshot"), "{error}");
}
