//! Streams over plain HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{Client, Member, header, status};

const WATCH_HEAD: &[u8] = b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn open_chunked(member: &Member) -> Client {
    let mut client = member.connect().await;
    client.send(WATCH_HEAD).await;
    client
}

async fn send_chunk(client: &mut Client, text: &str) {
    client.send(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_come_before_anything_is_said() {
    let member = Member::start().await;
    let mut client = open_chunked(&member).await;
    let head = client.head().await;
    assert_eq!(status(&head), 200);
    assert_eq!(header(&head, "content-type"), Some("application/json"));
    drop(client);
    member.no_watch_streams().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_outlives_its_requests_and_dies_with_its_client() {
    let member = Member::start().await;
    let mut client = member.connect().await;
    let body = r#"{"create_request":{"key":"Zm9v","prev_kv":true}}"#;
    let head = format!("POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.send(head.as_bytes()).await;
    client.head().await;
    let created = client.chunk().await.unwrap();
    assert!(created.starts_with(r#"{"result":{"header":{"#) && created.ends_with("\"created\":true}}\n"), "{created}");
    member.post("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#).await;
    let put = client.chunk().await.unwrap();
    let events =
        r#""events":[{"kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}]}}"#;
    assert!(put.ends_with(&format!("{events}\n")), "{put}");
    member.post("/v3/kv/deleterange", r#"{"key":"Zm9v"}"#).await;
    let deleted = client.chunk().await.unwrap();
    assert!(
        deleted.contains(r#""events":[{"type":"DELETE","kv":{"key":"Zm9v","mod_revision":"3"},"prev_kv":{"#),
        "{deleted}"
    );
    drop(client);
    member.no_watch_streams().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_requests_in_one_body_however_they_are_cut() {
    let member = Member::start().await;
    let mut client = open_chunked(&member).await;
    send_chunk(&mut client, r#"{"create_request":{"key":"YQ==","watch_id":"7"}}{"create_req"#).await;
    send_chunk(&mut client, r#"uest":{"key":"Yg==","watch_id":8}} {"cancel_request":{"watch_id":7}}"#).await;
    client.head().await;
    let mut text = String::new();
    while text.matches('\n').count() < 3 {
        text += &client.chunk().await.unwrap();
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        lines.iter().map(|line| (&line["result"]["watch_id"], line["result"]["canceled"] == true)).collect();
    assert_eq!(told, [(&"7".into(), false), (&"8".into(), false), (&"7".into(), true)]);
    drop(client);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_chunk_is_one_line_however_many_are_ready() {
    let member = Member::start().await;
    let mut client = open_chunked(&member).await;
    for id in 1..=20 {
        send_chunk(&mut client, &json!({"create_request": {"key": "YQ==", "watch_id": id}}).to_string()).await;
    }
    client.head().await;
    for expected in ["created", "events"] {
        for _ in 0..20 {
            let chunk = client.chunk().await.unwrap();
            let line = chunk.strip_suffix('\n').unwrap();
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(!value["result"][expected].is_null(), "{chunk}");
        }
        member.post("/v3/kv/put", r#"{"key":"YQ==","value":"MQ=="}"#).await;
    }
    drop(client);
    member.no_watch_streams().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_request_ends_the_stream_with_an_error_line() {
    let member = Member::start().await;
    let mut client = open_chunked(&member).await;
    send_chunk(&mut client, r#"{"create_request":{"key":"YQ=="}}"#).await;
    client.head().await;
    client.chunk().await.unwrap();
    send_chunk(&mut client, r#"{"create_request":{"key":7}}"#).await;
    let error = client.chunk().await.unwrap();
    assert!(error.starts_with(r#"{"error":{"grpc_code":3,"http_code":400,"message":"malformed request: "#), "{error}");
    assert!(error.ends_with("\"http_status\":\"Bad Request\",\"code\":3}}\n"), "{error}");
    assert_eq!(client.chunk().await, None);
    member.no_watch_streams().await;
    // Known before anything is sent, it is the answer's status.
    let refused = member.post("/v3/watch", r#"{"create_request":[]}"#).await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.starts_with(r#"{"error":{"grpc_code":3"#), "{}", refused.body);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_answer_each_value_and_end_with_the_body() {
    let member = Member::start().await;
    let granted = member.post("/v3/lease/grant", r#"{"ID":"5","TTL":20}"#).await;
    assert!(granted.body.ends_with(r#","ID":"5","TTL":"20"}"#), "{}", granted.body);
    let renewed = member.post("/v3/lease/keepalive", "{\"ID\":5}\n{\"ID\":\"6\"}").await;
    let lines: Vec<&str> = renewed.body.lines().collect();
    assert_eq!(lines.len(), 2, "{}", renewed.body);
    assert!(
        lines[0].starts_with(r#"{"result":{"header":{"#) && lines[0].ends_with(r#","ID":"5","TTL":"20"}}"#),
        "{}",
        lines[0]
    );
    assert!(lines[1].ends_with(r#","ID":"6"}}"#), "{}", lines[1]);
    assert_eq!(member.post("/v3/lease/keepalive", "").await.body, "");
    let malformed = member.post("/v3/lease/keepalive", "{\"ID\":5}{\"ID\":[]}").await;
    assert_eq!(malformed.status, 200);
    assert!(malformed.body.lines().nth(1).unwrap().starts_with(r#"{"error":{"grpc_code":3"#), "{}", malformed.body);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_ends_streams_with_their_last_chunk() {
    let member = Member::start().await;
    let mut client = open_chunked(&member).await;
    send_chunk(&mut client, r#"{"create_request":{"key":"YQ=="}}"#).await;
    client.head().await;
    client.chunk().await.unwrap();
    let mut idle = member.connect().await;
    assert_eq!(idle.request("GET", "/version", "", "").await.status, 200);
    let Member { server, address, .. } = member;
    let draining = tokio::spawn(server.drain(Duration::from_secs(20)));
    assert_eq!(client.chunk().await, None);
    assert!(client.is_closed().await);
    assert!(idle.is_closed().await);
    draining.await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_gets_everything_later() {
    const PUTS: i64 = 200;
    let member = Member::start().await;
    let mut slow = open_chunked(&member).await;
    send_chunk(&mut slow, r#"{"create_request":{"key":"YQ=="}}"#).await;
    slow.head().await;
    slow.chunk().await.unwrap();
    // More than the kernel's buffers and the stream's budget together hold; nobody waits for the slow one.
    let put = format!(r#"{{"key":"YQ==","value":"{}"}}"#, "eHh4".repeat(16_000));
    let mut writer = member.connect().await;
    for _ in 0..PUTS {
        assert_eq!(writer.request("POST", "/v3/kv/put", "", &put).await.status, 200);
    }
    let mut seen = 1;
    let mut text = String::new();
    while seen < 1 + PUTS {
        text += &slow.chunk().await.unwrap();
        while let Some((line, rest)) = text.split_once('\n') {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            for event in line["result"]["events"].as_array().unwrap() {
                seen += 1;
                assert_eq!(event["kv"]["mod_revision"], seen.to_string());
            }
            text = rest.to_owned();
        }
    }
    drop((slow, writer));
    member.no_watch_streams().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_dies_in_its_request_leaves_nothing() {
    let member = Member::start().await;
    for head in [
        "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"key\":",
        "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"create_request\":{}} {",
        "POST /v3/lease/keepalive HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"ID\r\n",
        "POST /v3/kv/put HT",
    ] {
        let mut client = member.connect().await;
        client.send(head.as_bytes()).await;
        member.until(|metrics| metrics.http_connections.get() == 1).await;
        drop(client);
        member.until(|metrics| metrics.http_connections.get() == 0).await;
    }
    member.no_watch_streams().await;
    assert_eq!(member.post("/v3/kv/put", r#"{"key":"YQ=="}"#).await.status, 200);
    member.stop().await;
}
