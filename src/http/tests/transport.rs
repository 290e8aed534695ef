//! What surrounds calls: origins, names, headers, deadlines, leaders.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest as _, protocol::frame::coding::CloseCode},
};

use super::harness::{Member, MemberOptions, header, status};
use crate::{
    config::{Allowed, Transport},
    disk::sim::Call,
};

fn only(entry: &str) -> Allowed {
    Allowed::Only(vec![entry.to_owned()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origins_and_names() {
    let transport = Transport { cors: only("http://a.example"), hosts: only("good.example"), ..Default::default() };
    let member = Member::with(MemberOptions { transport, ..Default::default() }).await;
    let ask = async |method: &str, path: &str, host: &str, origin: &str| {
        let mut client = member.connect().await;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Length: 0\r\n\r\n");
        client.send(head.as_bytes()).await;
        let answer = client.answer().await;
        let allowed = header(&answer.head, "access-control-allow-origin").map(str::to_owned);
        (answer.status, allowed, answer.body)
    };
    let a = Some("http://a.example".to_owned());
    assert_eq!(ask("POST", "/v3/lease/leases", "good.example:1", "http://a.example").await.0, 200);
    assert_eq!(ask("OPTIONS", "/v3/kv/range", "good.example", "http://a.example").await, (200, a, String::new()));
    assert_eq!(ask("OPTIONS", "/v3/kv/range", "good.example", "http://b.example").await, (200, None, String::new()));
    for (method, path) in [("POST", "/v3/kv/range"), ("OPTIONS", "/v3/kv/range"), ("GET", "/health"), ("GET", "/x")] {
        let (status, allowed, text) = ask(method, path, "evil.example", "http://a.example").await;
        assert_eq!((status, allowed), (421, None), "{method} {path}");
        assert!(text.contains("DNS rebinding") && text.contains("--host-whitelist \"evil.example\""), "{text}");
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gateway_there_are_health_and_metrics() {
    let transport = Transport { gateway: false, ..Default::default() };
    let member = Member::with(MemberOptions { transport, ..Default::default() }).await;
    for path in ["/v3/kv/range", "/v3/none", "/v3beta/kv/range"] {
        let answer = member.post(path, "{}").await;
        assert_eq!((answer.status, answer.body.as_str()), (404, "404 page not found\n"), "{path}");
        assert_eq!(header(&answer.head, "content-type"), Some("text/plain; charset=utf-8"));
    }
    assert_eq!(member.get("/health").await.status, 200);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_calls_show_the_header_behind_them() {
    let member = Member::start().await;
    let table = [
        ("/v3/kv/range", r#"{"key":"YQ=="}"#, Some("application/grpc")),
        ("/v3/kv/range", "{}", None),
        ("/v3/none", "{}", None),
        ("/v3/lease/keepalive", r#"{"ID":5}"#, Some("application/grpc")),
        ("/v3/watch", r#"{"create_request":{"key":"YQ=="}}"#, Some("application/grpc")),
        ("/v3/watch", "[]", None),
        ("/v3/lock/lock", r#"{"name":"bA=="}"#, Some("application/grpc")),
        ("/v3/election/observe", r#"{"name":"bA=="}"#, Some("application/grpc")),
        ("/v3/election/leader", r#"{"name":"bm9uZQ=="}"#, None),
    ];
    for (path, body, expected) in table {
        let mut client = member.connect().await;
        let length = body.len();
        client
            .send(format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
            .await;
        let head = client.head().await;
        assert_eq!(header(&head, "grpc-metadata-content-type"), expected, "{path} {body}: {head}");
        assert_eq!(header(&head, "content-type"), Some("application/json"), "{path} {body}");
    }
    assert_eq!(header(&member.get("/version").await.head, "grpc-metadata-content-type"), None);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_keeps_its_deadline() {
    let member = Member::start().await;
    for path in ["/v3/watch", "/v3/election/observe", "/v3/kv/range"] {
        let mut request = format!("ws://{}{path}", member.address).into_client_request().unwrap();
        request.headers_mut().insert("grpc-timeout", "20m".parse().unwrap());
        let stream = tokio::net::TcpStream::connect(member.address).await.unwrap();
        let (mut socket, _) = client_async(request, stream).await.unwrap();
        if path == "/v3/election/observe" {
            socket.send(Message::text(r#"{"name":"bm9uZQ=="}"#)).await.unwrap();
        }
        let Message::Text(error) = socket.next().await.unwrap().unwrap() else { panic!("{path}: no text") };
        assert!(error.contains(r#""message":"context deadline exceeded""#), "{path}: {error}");
        let Message::Close(Some(frame)) = socket.next().await.unwrap().unwrap() else { panic!("{path}: no close") };
        assert_eq!(frame.code, CloseCode::Policy, "{path}");
    }
    let refused = member.connect().await.request("POST", "/v3/kv/range", "Grpc-Timeout: soon\r\n", "{}").await;
    assert_eq!(refused.status, 400);
    member.stop().await;
}

/// What a call of a client has left behind is taken back before the member is down, however long the disk takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_leaves_the_line_before_the_member_is_down() {
    let member = Member::start().await;
    for lease in [17, 18] {
        assert_eq!(member.post("/v3/lease/grant", &format!(r#"{{"ID":{lease},"TTL":600}}"#)).await.status, 200);
    }
    let lock = |lease| format!(r#"{{"name":"bA==","lease":{lease}}}"#);
    assert_eq!(member.post("/v3/lock/lock", &lock(17)).await.status, 200);
    let mut waiter = member.connect().await;
    let body = lock(18);
    let length = body.len();
    waiter
        .send(format!("POST /v3/lock/lock HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
        .await;
    let (store, metrics, disk) = (member.store(), member.metrics.clone(), member.log_disk.clone());
    while store.get(b"l/12", 0).unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    disk.hold(Call::SyncData);
    let stopping = tokio::spawn(member.drain_and_end_tasks());
    assert_eq!(waiter.answer().await.status, 503);
    while metrics.proposals_pending.get() == 0 && !stopping.is_finished() {
        tokio::task::yield_now().await;
    }
    disk.release();
    let member = stopping.await.unwrap();
    assert!(store.get(b"l/12", 0).unwrap().is_none(), "the waiter's key is gone");
    assert!(store.get(b"l/11", 0).unwrap().is_some(), "the lock is kept");
    drop(store);
    member.end().await;
}

#[tokio::test]
async fn a_watch_that_requires_a_leader_ends_without_one() {
    let member = Member::start().await;
    let mut client = member.connect().await;
    let body = r#"{"create_request":{"key":"YQ=="}}"#;
    let length = body.len();
    let head = format!(
        "POST /v3/watch HTTP/1.1\r\nHost: x\r\nGrpc-Metadata-Hasleader: true\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    client.send(head.as_bytes()).await;
    assert_eq!(status(&client.head().await), 200);
    assert!(client.chunk().await.unwrap().contains("\"created\":true"));
    let began = std::time::Instant::now();
    member.consensus.shutdown().await.unwrap();
    let last = client.chunk().await.unwrap();
    assert!(last.contains(r#""grpc_code":14"#) && last.contains("etcdserver: no leader"), "{last}");
    assert!(began.elapsed() >= Duration::from_secs(3), "three election timeouts: {:?}", began.elapsed());
    assert_eq!(client.chunk().await, None);
    member.stop().await;
}
