//! Clients that are there and do nothing, and who asks how watches stand.

use std::time::Duration;

use tokio::{io::AsyncReadExt as _, net::TcpSocket};

use super::harness::{Member, MemberOptions};
use crate::{config::Transport, metrics::Metrics};

const UPGRADE: &str = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
/// A text frame, with a mask of zeros.
const CREATE: &[u8] = b"\x81\xa1\0\0\0\0{\"create_request\":{\"key\":\"Zm9v\"}}";

async fn impatient() -> Member {
    let transport = Transport {
        ping_interval: Duration::from_millis(100),
        stall_timeout: Duration::from_secs(1),
        ..Transport::default()
    };
    Member::with(MemberOptions { transport, ..MemberOptions::default() }).await
}

fn disconnects(member: &Member, reason: &str) -> u64 {
    member.metrics.watch_disconnects.with_label_values(&[reason]).get()
}

/// A connection whose system takes little on behalf of its client.
async fn narrow(member: &Member) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(member.address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_whose_client_answers_no_ping_is_closed() {
    let member = impatient().await;
    let mut client = member.connect().await;
    client.send(format!("GET /v3/watch HTTP/1.1\r\nHost: x\r\n{UPGRADE}\r\n").as_bytes()).await;
    assert!(client.head().await.starts_with("HTTP/1.1 101"));
    client.send(CREATE).await;
    member.until(|metrics| metrics.watcher_total.get() == 1).await;
    member.no_watch_streams().await;
    member.until(|metrics| metrics.http_connections.get() == 0).await;
    assert_eq!(disconnects(&member, "silent"), 1);
    assert_eq!(member.metrics.watcher_total.get(), 0);
    member.stop().await;
}

/// A client that does not read answers no pings either: which is found out first is a matter of how much is sent.
fn given_up(metrics: &Metrics) -> u64 {
    ["stalled", "silent"].iter().map(|reason| metrics.watch_disconnects.with_label_values(&[*reason]).get()).sum()
}

/// Puts until the member has given a client up that does not read.
async fn put_until_given_up(member: &Member) {
    let value = "QUFB".repeat(12_000);
    let body = format!(r#"{{"key":"Zm9v","value":"{value}"}}"#);
    for _ in 0..1000 {
        if given_up(&member.metrics) > 0 {
            break;
        }
        assert_eq!(member.post("/v3/kv/put", &body).await.status, 200);
    }
    member.until(|metrics| given_up(metrics) == 1).await;
    member.no_watch_streams().await;
    member.until(|metrics| metrics.http_connections.get() == 0).await;
    assert_eq!((member.metrics.pending_events_total.get(), member.metrics.watch_buffered_bytes.get()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_whose_client_does_not_read_is_closed_and_freed() {
    use tokio::io::AsyncWriteExt as _;
    let member = impatient().await;
    let mut client = narrow(&member).await;
    client.write_all(format!("GET /v3/watch HTTP/1.1\r\nHost: x\r\n{UPGRADE}\r\n").as_bytes()).await.unwrap();
    client.write_all(CREATE).await.unwrap();
    member.until(|metrics| metrics.watcher_total.get() == 1).await;
    put_until_given_up(&member).await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_lines_whose_client_does_not_read_is_closed_and_freed() {
    use tokio::io::AsyncWriteExt as _;
    let member = impatient().await;
    let mut client = narrow(&member).await;
    let body = r#"{"create_request":{"key":"Zm9v"}}"#;
    let head = format!("POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    member.until(|metrics| metrics.watcher_total.get() == 1).await;
    put_until_given_up(&member).await;
    assert_eq!(disconnects(&member, "stalled"), 1);
    // What is left is what was on its way, and then the connection's end.
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
    assert!(!rest.is_empty());
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_are_listed() {
    let member = Member::start().await;
    let mut client = member.connect().await;
    let body = r#"{"create_request":{"key":"Zm9v"}}"#;
    let head = format!("POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.send(head.as_bytes()).await;
    client.head().await;
    client.chunk().await.unwrap();
    let answer = member.get("/debug/watchers?format=json").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let report: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let stream = &report["streams"][0];
    assert_eq!(
        (&report["streams_total"], &stream["watches"], &stream["lag_revisions"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert!(stream["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{stream}");
    let text = member.get("/debug/watchers").await;
    assert!(text.body.starts_with("revision 1, 1 of 1 watch streams"), "{}", text.body);
    assert_eq!(text.body.lines().count(), 4, "{}", text.body);
    let none = member.get("/debug/watchers?limit=0").await;
    assert!(none.body.starts_with("revision 1, 0 of 1 watch streams"), "{}", none.body);
    assert_eq!(member.get("/debug/watchers?limit=x").await.status, 400);
    member.stop().await;
}
