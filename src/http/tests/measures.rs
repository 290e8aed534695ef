//! What is counted of streams and of bodies.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::{client_async, tungstenite::Message};

use super::harness::Member;

fn open_streams(member: &Member, kind: &str) -> i64 {
    member.metrics.http_streams.with_label_values(&[kind]).get()
}

/// Bytes of bodies so far, from clients and to them.
fn bytes(member: &Member) -> (u64, u64) {
    (member.metrics.client_received_bytes.get(), member.metrics.client_sent_bytes.get())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_lines_count_while_they_are_open_and_their_bytes_as_they_come() {
    let member = Member::start().await;
    let create = r#"{"create_request":{"key":"YQ=="}}"#;
    let head = format!("POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{create}", create.len());
    let mut client = member.connect().await;
    client.send(head.as_bytes()).await;
    client.head().await;
    let created = client.chunk().await.unwrap();
    assert_eq!((open_streams(&member, "ndjson"), open_streams(&member, "websocket")), (1, 0));
    assert_eq!(bytes(&member), (create.len() as u64, created.len() as u64));
    drop(client);
    member.until(|metrics| metrics.http_streams.with_label_values(&["ndjson"]).get() == 0).await;
    // What is beside the API does not count.
    member.get("/version").await;
    assert_eq!(bytes(&member), (create.len() as u64, created.len() as u64));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_count_while_they_are_open_and_their_messages_bytes() {
    let member = Member::start().await;
    let stream = TcpStream::connect(member.address).await.unwrap();
    let (mut socket, _) = client_async(format!("ws://{}/v3/watch", member.address), stream).await.unwrap();
    let create = r#"{"create_request":{"key":"YQ=="}}"#;
    socket.send(Message::text(create)).await.unwrap();
    let created = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert_eq!((open_streams(&member, "ndjson"), open_streams(&member, "websocket")), (0, 1));
    assert_eq!(bytes(&member), (create.len() as u64, created.len() as u64));
    drop(socket);
    member.until(|metrics| metrics.http_streams.with_label_values(&["websocket"]).get() == 0).await;
    member.stop().await;
}
