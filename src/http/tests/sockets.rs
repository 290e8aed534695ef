//! WebSockets.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        Message,
        client::IntoClientRequest as _,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::harness::Member;

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(member: &Member, path: &str) -> Socket {
        let stream = TcpStream::connect(member.address).await.unwrap();
        Socket(client_async(format!("ws://{}{path}", member.address), stream).await.unwrap().0)
    }

    async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    async fn message(&mut self) -> Message {
        tokio::time::timeout(Duration::from_secs(20), self.0.next()).await.unwrap().unwrap().unwrap()
    }

    async fn text(&mut self) -> String {
        match self.message().await {
            Message::Text(text) => text.as_str().to_owned(),
            other => panic!("not a text message: {other:?}"),
        }
    }

    async fn result(&mut self) -> Value {
        let text = self.text().await;
        assert!(!text.ends_with('\n'));
        serde_json::from_str::<Value>(&text).unwrap()["result"].take()
    }

    async fn closed(&mut self) -> (CloseCode, String) {
        match self.message().await {
            Message::Close(Some(frame)) => (frame.code, frame.reason.as_str().to_owned()),
            other => panic!("not a close frame: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_share_a_socket() {
    let member = Member::start().await;
    let mut socket = Socket::open(&member, "/v3/watch").await;
    socket
        .send(r#"{"create_request":{"key":"YQ==","watch_id":1}}{"create_request":{"key":"Yg==","watch_id":"2"}}"#)
        .await;
    assert_eq!(socket.result().await["watch_id"], "1");
    assert_eq!(socket.result().await["watch_id"], "2");
    member.post("/v3/kv/put", r#"{"key":"Yg==","value":"MQ=="}"#).await;
    let event = socket.result().await;
    assert_eq!((&event["watch_id"], &event["events"][0]["kv"]["value"]), (&json!("2"), &json!("MQ==")));
    // Binary messages are as good as text.
    socket.0.send(Message::binary(&br#"{"cancel_request":{"watch_id":2}}"#[..])).await.unwrap();
    let canceled = socket.result().await;
    assert_eq!((&canceled["watch_id"], &canceled["canceled"]), (&json!("2"), &json!(true)));
    socket.send(r#"{"progress_request":{}}"#).await;
    let progress = socket.result().await;
    assert_eq!((&progress["watch_id"], &progress["header"]["revision"]), (&json!("-1"), &json!("2")));
    // A refusal is a response, not the end.
    socket.send(r#"{"create_request":{"key":"Yg==","range_end":"YQ=="}}"#).await;
    assert_eq!(socket.result().await["cancel_reason"], "mvcc: watcher range is empty");
    socket.0.close(None).await.unwrap();
    member.no_watch_streams().await;
    member.until(|metrics| metrics.http_connections.get() == 0).await;
    member.stop().await;
}

/// However many requests a message holds, its client gets each answer and may take its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_many_requests_is_answered_in_pieces() {
    const REQUESTS: usize = 5_000;
    let member = Member::start().await;
    let mut socket = Socket::open(&member, "/v3/watch").await;
    socket.send(&r#"{"create_request":{"key":"Yg==","range_end":"YQ=="}}"#.repeat(REQUESTS)).await;
    for _ in 0..REQUESTS {
        assert_eq!(socket.result().await["cancel_reason"], "mvcc: watcher range is empty");
    }
    let pair = r#"{"create_request":{"key":"YQ==","watch_id":7}}{"cancel_request":{"watch_id":7}}"#;
    socket.send(&pair.repeat(REQUESTS)).await;
    let (mut created, mut canceled) = (0, 0);
    while canceled < REQUESTS {
        let result = socket.result().await;
        created += usize::from(result["created"] == true);
        canceled += usize::from(result["canceled"] == true);
    }
    assert_eq!(created, REQUESTS);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_of_the_client_is_answered_by_a_close_on_every_path() {
    let member = Member::start().await;
    for path in ["/v3/watch", "/v3/lease/keepalive", "/v3/kv/range"] {
        let mut socket = Socket::open(&member, path).await;
        let frame = CloseFrame { code: CloseCode::Normal, reason: "done".into() };
        socket.0.close(Some(frame)).await.unwrap();
        assert_eq!(socket.closed().await.0, CloseCode::Normal, "{path}");
        assert!(socket.0.next().await.is_none(), "{path}: the connection ends well");
    }
    member.no_watch_streams().await;
    member.until(|metrics| metrics.http_connections.get() == 0).await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_message_is_answered_and_the_socket_closed() {
    let member = Member::start().await;
    for malformed in ["{\"create_request\":", "}", "{\"create_request\":7}", "[]"] {
        let mut socket = Socket::open(&member, "/v3/watch").await;
        socket.send(r#"{"create_request":{"key":"YQ=="}}"#).await;
        assert_eq!(socket.result().await["created"], true);
        socket.send(malformed).await;
        let error: Value = serde_json::from_str(&socket.text().await).unwrap();
        assert_eq!((&error["error"]["code"], &error["error"]["http_code"]), (&json!(3), &json!(400)), "{error}");
        let (code, reason) = socket.closed().await;
        assert_eq!(code, CloseCode::Invalid);
        assert!(reason.starts_with("malformed request: "), "{reason}");
    }
    member.no_watch_streams().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_big_is_refused_with_a_reason() {
    let member = Member::start().await;
    let limit = super::super::limits::Limits::new(super::harness::REQUEST_BYTES_MAX).text_bytes_max;
    let mut socket = Socket::open(&member, "/v3/watch").await;
    socket.send(&format!("\"{}\"", "x".repeat(limit))).await;
    assert!(socket.text().await.contains("received message larger than max"));
    assert_eq!(socket.closed().await.0, CloseCode::Size);
    let mut socket = Socket::open(&member, "/v3/watch").await;
    // The server may close before it has taken all of this.
    let _ = socket.0.send(Message::text("x".repeat(3 * limit))).await;
    while let Some(Ok(message)) = socket.0.next().await {
        assert!(message.is_close(), "{message:?}");
    }
    member.no_watch_streams().await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_leaves_nothing() {
    let member = Member::start().await;
    let mut socket = Socket::open(&member, "/v3/watch").await;
    socket.send(r#"{"create_request":{"key":"YQ=="}}"#).await;
    socket.result().await;
    drop(socket);
    member.no_watch_streams().await;
    member.until(|metrics| metrics.http_connections.get() == 0).await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_says_going_away() {
    let member = Member::start().await;
    let mut socket = Socket::open(&member, "/v3/watch").await;
    socket.send(r#"{"create_request":{"key":"YQ=="}}"#).await;
    socket.result().await;
    let draining = tokio::spawn(member.server.drain(Duration::from_secs(20)));
    assert_eq!(socket.closed().await, (CloseCode::Away, "going away".into()));
    assert!(socket.0.next().await.is_none_or(|last| last.is_err()));
    draining.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_calls_work_over_a_socket_too() {
    let member = Member::start().await;
    let mut put = Socket::open(&member, "/v3/kv/put").await;
    put.send(r#"{"key":"YQ=="}"#).await;
    assert!(put.text().await.starts_with(r#"{"header":{"cluster_id":"22""#));
    assert_eq!(put.closed().await.0, CloseCode::Normal);
    let mut refused = Socket::open(&member, "/v3/kv/put").await;
    refused.send("{}").await;
    assert!(refused.text().await.contains("key is not provided"));
    let mut nowhere = Socket::open(&member, "/v3/nowhere").await;
    assert_eq!(nowhere.text().await, r#"{"error":"Not Found","code":5,"message":"Not Found"}"#);
    let mut renewals = Socket::open(&member, "/v3/lease/keepalive").await;
    for id in ["8", "9"] {
        renewals.send(&format!("{{\"ID\":{id}}}")).await;
        assert_eq!(renewals.result().await["ID"], id);
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_protocol_is_echoed() {
    let member = Member::start().await;
    let mut request = format!("ws://{}/v3/watch", member.address).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "Bearer, token".parse().unwrap());
    let stream = TcpStream::connect(member.address).await.unwrap();
    let (_, response) = client_async(request, stream).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "Bearer");
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_upgrade_is_refused() {
    let member = Member::start().await;
    let headers = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let answer = member.connect().await.request("GET", "/v3/watch", headers, "").await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_is_answered_with_its_own_code() {
    let member = Member::start().await;
    for path in ["/v3/watch", "/v3/lease/keepalive", "/v3/kv/range"] {
        let mut socket = Socket::open(&member, path).await;
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        socket.0.send(Message::Close(Some(frame))).await.unwrap();
        assert_eq!(socket.closed().await.0, CloseCode::Normal, "{path}");
    }
    member.stop().await;
}
