//! The listener for metrics alone: what is there, what is not, and for whom.

use hyper::{Method, Request};

use super::{
    auth::with_authentication,
    harness::{Answer, Member, MemberOptions, header},
};
use crate::{
    config::{Allowed, Transport},
    http::METRICS_CONNECTIONS_MAX,
};

async fn get(member: &Member, path: &str) -> Answer {
    member.connect_metrics().await.request("GET", path, "", "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_metrics_versions_and_debug_are_there_and_nothing_else() {
    let member = Member::start().await;
    for path in [
        "/health",
        "/livez",
        "/livez/serializable_read",
        "/readyz",
        "/readyz?verbose",
        "/metrics",
        "/version",
        "/debug/watchers",
        "/debug/pipeline",
    ] {
        let (own, client) = (get(&member, path).await, member.get(path).await);
        assert_eq!((own.status, client.status), (200, 200), "{path}: {own:?}");
    }
    assert_eq!(get(&member, "/version").await.body, member.get("/version").await.body);
    let missing = r#"{"error":"Not Found","code":5,"message":"Not Found"}"#;
    for (method, path) in [
        ("POST", "/v3/kv/range"),
        ("POST", "/v3/kv/put"),
        ("GET", "/v3/watch"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
        ("GET", "/debug/none"),
        ("GET", "/a//b"),
        ("OPTIONS", "/v3/kv/put"),
    ] {
        let answer = member.connect_metrics().await.request(method, path, "", "{}").await;
        assert_eq!((answer.status, &answer.body[..]), (404, missing), "{method} {path}");
        assert_eq!(header(&answer.head, "content-type"), Some("application/json"), "{method} {path}");
        assert_eq!(header(&answer.head, "access-control-allow-origin"), None, "{method} {path}");
    }
    let post = member.connect_metrics().await.request("POST", "/metrics", "", "").await;
    assert_eq!(post.status, 405);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_is_not_to_be_had_there() {
    let member = Member::start().await;
    let mut client = member.connect_metrics().await;
    let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = client.request("GET", "/v3/watch", headers, "").await;
    assert_eq!(answer.status, 404, "{answer:?}");
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_is_open_there_and_for_root_at_the_client_port() {
    let member = with_authentication().await;
    for path in ["/debug/watchers", "/debug/pipeline"] {
        assert_eq!(member.get(path).await.status, 400, "{path}");
        assert_eq!(get(&member, path).await.status, 200, "{path}");
    }
    // A token is of no interest there, not even a bad one.
    let bad = "Authorization: bad.1\r\n";
    let answer = member.connect_metrics().await.request("GET", "/debug/watchers", bad, "").await;
    assert_eq!(answer.status, 200);
    member.stop().await;
}

/// The kubelet calls a pod by its address, whatever names clients may use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_may_call_the_member_by_any_name() {
    let transport = Transport { hosts: Allowed::Only(vec!["kv.example".into()]), ..Transport::default() };
    let member = Member::with(MemberOptions { transport, ..Default::default() }).await;
    assert_eq!(member.get("/livez").await.status, 421);
    assert_eq!(get(&member, "/livez").await.status, 200);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_counted_apart() {
    let member = Member::with_connections_max(1).await;
    let mut only = member.connect().await;
    assert_eq!(only.request("GET", "/livez", "", "").await.status, 200);
    // Clients have all connections there are for them; the connection is kept.
    let mut probes = Vec::new();
    for _ in 0..METRICS_CONNECTIONS_MAX {
        let mut probe = member.connect_metrics().await;
        assert_eq!(probe.request("GET", "/livez", "", "").await.status, 200);
        probes.push(probe);
    }
    // One more than there may be waits until another has gone. It counts as connected only then.
    let connected = METRICS_CONNECTIONS_MAX + 1;
    let mut waiting = member.connect_metrics().await;
    waiting.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(member.metrics.http_connections.get(), i64::try_from(connected).unwrap());
    drop(probes.pop());
    assert!(waiting.head().await.starts_with("HTTP/1.1 200 "));
    drop(waiting);
    drop((only, probes));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_spoken_there_too() {
    let member = Member::start().await;
    let stream = tokio::net::TcpStream::connect(member.server.metrics_addresses()[0]).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
    let driver = tokio::spawn(connection);
    for (path, status) in [("/livez", 200), ("/v3/kv/range", 404)] {
        let request =
            Request::builder().method(Method::GET).uri(format!("http://x{path}")).body(String::new()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), status, "{path}");
    }
    drop(sender);
    driver.await.unwrap().unwrap();
    member.stop().await;
}
