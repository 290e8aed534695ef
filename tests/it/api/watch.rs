//! Watches, as lines and over a WebSocket.

use std::net::TcpStream;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::{Member, assert_same_json};
use crate::support::{ANSWER_MAX, Lines};

const PUT: &str = "/v3/kv/put";

impl Member {
    fn watch(&self, body: &str) -> Lines {
        self.server.client().open_lines("/v3/watch", body)
    }

    fn expect_line(&self, lines: &mut Lines, expected: &str) {
        let line = lines.next_line().unwrap().expect("one more line");
        assert_same_json("watch", &line, &self.with_headers(expected));
    }
}

#[test]
fn lines_follow_one_key() {
    let mut member = Member::start();
    let mut watch = member.watch(r#"{"create_request":{"key":"Zm9v","prev_kv":true}}"#);
    member.expect_line(&mut watch, r#"{"result":{"header":@1,"created":true}}"#);
    member.call(PUT, r#"{"key":"Zm9v","value":"YmFy"}"#);
    member.expect_line(
        &mut watch,
        r#"{"result":{"header":@2,"events":[{"kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}]}}"#,
    );
    member.call("/v3/kv/deleterange", r#"{"key":"Zm9v"}"#);
    member.expect_line(
        &mut watch,
        r#"{"result":{"header":@3,"events":[{"type":"DELETE","kv":{"key":"Zm9v","mod_revision":"3"},"prev_kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}]}}"#,
    );
}

#[test]
fn events_of_one_revision_come_in_one_line() {
    let mut member = Member::start();
    let mut watch = member.watch(r#"{"create_request":{"key":"AA==","range_end":"AA=="}}"#);
    watch.next_json();
    member.call("/v3/kv/txn", r#"{"success":[{"request_put":{"key":"Yg=="}},{"request_put":{"key":"YQ=="}}]}"#);
    member.expect_line(
        &mut watch,
        r#"{"result":{"header":@2,"events":[{"kv":{"key":"Yg==","create_revision":"2","mod_revision":"2","version":"1"}},{"kv":{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1"}}]}}"#,
    );
}

#[test]
fn past_is_replayed_from_the_start_revision() {
    let mut member = Member::start();
    for _ in 0..4 {
        member.call(PUT, r#"{"key":"Zm9v","value":"YmFy"}"#);
    }
    let mut watch = member.watch(r#"{"create_request":{"key":"Zm9v","start_revision":"3"}}"#);
    watch.next_json();
    let mut revisions = Vec::new();
    while revisions.len() < 3 {
        for event in watch.next_json()["result"]["events"].as_array().unwrap() {
            revisions.push(event["kv"]["mod_revision"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(revisions, ["3", "4", "5"]);
}

#[test]
fn filters_drop_their_kind() {
    let mut member = Member::start();
    let mut watch = member.watch(r#"{"create_request":{"key":"Zm9v","filters":["NOPUT"]}}"#);
    watch.next_json();
    member.call(PUT, r#"{"key":"Zm9v"}"#);
    member.call("/v3/kv/deleterange", r#"{"key":"Zm9v"}"#);
    assert_eq!(watch.next_json()["result"]["events"][0]["type"], Value::from("DELETE"));
}

#[test]
fn compacted_start_is_created_and_canceled() {
    let mut member = Member::start();
    for _ in 0..4 {
        member.call(PUT, r#"{"key":"Zm9v"}"#);
    }
    member.call("/v3/kv/compaction", r#"{"revision":"4"}"#);
    let mut watch = member.watch(r#"{"create_request":{"key":"Zm9v","start_revision":"2"}}"#);
    assert_eq!(watch.next_json()["result"]["created"], Value::from(true));
    let canceled = watch.next_json();
    let result = &canceled["result"];
    assert_eq!((&result["canceled"], &result["compact_revision"]), (&json!(true), &json!("4")), "{canceled}");
}

#[test]
fn empty_range_is_created_and_canceled_at_once() {
    let member = Member::start();
    let mut watch = member.watch(r#"{"create_request":{"key":"Yg==","range_end":"YQ=="}}"#);
    let refused = watch.next_json();
    let result = &refused["result"];
    assert_eq!(
        (&result["created"], &result["canceled"], &result["watch_id"], &result["cancel_reason"]),
        (&json!(true), &json!(true), &json!("-1"), &json!("mvcc: watcher range is empty")),
        "{refused}"
    );
}

struct Socket(WebSocket<TcpStream>);

impl Socket {
    fn open(member: &Member) -> Socket {
        let stream = TcpStream::connect(member.server.address()).unwrap();
        stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        let (socket, _) = tungstenite::client(format!("ws://{}/v3/watch", member.server.address()), stream).unwrap();
        Socket(socket)
    }

    fn send(&mut self, request: &Value) {
        self.0.send(Message::text(request.to_string())).unwrap();
    }

    /// What the next text frame carries under `result`.
    fn next_result(&mut self) -> Value {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return serde_json::from_str::<Value>(text.as_str()).unwrap()["result"].take(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not a text frame: {other:?}"),
            }
        }
    }
}

#[test]
fn one_socket_carries_two_watches() {
    let mut member = Member::start();
    let mut socket = Socket::open(&member);
    socket.send(&json!({"create_request": {"key": "YQ==", "watch_id": "11"}}));
    let created = socket.next_result();
    assert_eq!((&created["created"], &created["watch_id"]), (&json!(true), &json!("11")), "{created}");
    socket.send(&json!({"create_request": {"key": "Yg==", "watch_id": "12"}}));
    let created = socket.next_result();
    assert_eq!((&created["created"], &created["watch_id"]), (&json!(true), &json!("12")), "{created}");

    member.call(PUT, r#"{"key":"YQ==","value":"MQ=="}"#);
    let event = socket.next_result();
    assert_eq!((&event["watch_id"], &event["events"][0]["kv"]["key"]), (&json!("11"), &json!("YQ==")), "{event}");
    member.call(PUT, r#"{"key":"Yg==","value":"MQ=="}"#);
    let event = socket.next_result();
    assert_eq!((&event["watch_id"], &event["events"][0]["kv"]["key"]), (&json!("12"), &json!("Yg==")), "{event}");

    socket.send(&json!({"cancel_request": {"watch_id": "11"}}));
    let canceled = socket.next_result();
    assert_eq!((&canceled["watch_id"], &canceled["canceled"]), (&json!("11"), &json!(true)), "{canceled}");
    member.call(PUT, r#"{"key":"YQ==","value":"Mg=="}"#);
    member.call(PUT, r#"{"key":"Yg==","value":"Mg=="}"#);
    let event = socket.next_result();
    assert_eq!((&event["watch_id"], &event["events"][0]["kv"]["value"]), (&json!("12"), &json!("Mg==")), "{event}");

    socket.send(&json!({"progress_request": {}}));
    let progress = socket.next_result();
    assert_eq!((&progress["watch_id"], &progress["header"]["revision"]), (&json!("-1"), &json!("5")), "{progress}");
    assert_eq!(progress.get("events"), None, "{progress}");
    socket.0.close(None).unwrap();
}

#[test]
fn duplicate_watch_id_is_refused() {
    let member = Member::start();
    let mut socket = Socket::open(&member);
    socket.send(&json!({"create_request": {"key": "YQ==", "watch_id": 3}}));
    assert_eq!(socket.next_result()["created"], json!(true));
    socket.send(&json!({"create_request": {"key": "Yg==", "watch_id": 3}}));
    let refused = socket.next_result();
    assert_eq!(
        (&refused["canceled"], &refused["watch_id"], &refused["cancel_reason"]),
        (&json!(true), &json!("-1"), &json!("mvcc: duplicate watch ID provided on the WatchStream")),
        "{refused}"
    );
}
