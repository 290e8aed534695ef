//! Sizes, deadlines, numbers of connections.

use super::harness::{Member, REQUEST_BYTES_MAX};

fn put_of(value_bytes: usize) -> String {
    format!(r#"{{"key":"Zm9v","value":"{}"}}"#, base64_simd::STANDARD.encode_to_string(vec![b'x'; value_bytes]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn big_requests_are_refused_by_size() {
    let member = Member::start().await;
    let fits = member.post("/v3/kv/put", &put_of(REQUEST_BYTES_MAX / 2)).await;
    assert_eq!(fits.status, 200, "{}", fits.body);
    let too_large = member.post("/v3/kv/put", &put_of(REQUEST_BYTES_MAX + 1)).await;
    assert_eq!(too_large.status, 400);
    assert!(too_large.body.contains("etcdserver: request is too large"), "{}", too_large.body);
    let message_bytes_max = REQUEST_BYTES_MAX + 512 * 1024;
    for value_bytes in [message_bytes_max, 2 * message_bytes_max] {
        let answer = member.post("/v3/kv/put", &put_of(value_bytes)).await;
        assert_eq!(answer.status, 429, "{}", answer.body);
        assert!(answer.body.contains("grpc: received message larger than max ("), "{}", answer.body);
        assert!(answer.body.contains(&format!(" vs. {message_bytes_max})")), "{}", answer.body);
    }
    // One that asks first need not send it.
    let mut asking = member.connect().await;
    asking
        .send(b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(asking.answer().await.status, 429);
    // Without an announced length as well.
    let mut client = member.connect().await;
    client.send(b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for _ in 0..40 {
        client.send(format!("8000\r\n{}\r\n", "x".repeat(0x8000)).as_bytes()).await;
    }
    client.send(b"0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 429);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_deadline_counts() {
    let member = Member::start().await;
    let mut client = member.connect().await;
    let past = client.request("POST", "/v3/kv/put", "Grpc-Timeout: 1n\r\n", r#"{"key":"Zm9v"}"#).await;
    let expected = r#"{"error":"context deadline exceeded","code":4,"message":"context deadline exceeded"}"#;
    assert_eq!((past.status, past.body.as_str()), (504, expected));
    let ample = client.request("POST", "/v3/kv/put", "Grpc-Timeout: 1H\r\n", r#"{"key":"Zm9v"}"#).await;
    assert_eq!(ample.status, 200);
    for none in ["0n", ""] {
        let headers = format!("Grpc-Timeout: {none}\r\n");
        assert_eq!(client.request("POST", "/v3/kv/put", &headers, r#"{"key":"Zm9v"}"#).await.status, 200, "{none}");
    }
    let unclear = client.request("POST", "/v3/kv/put", "Grpc-Timeout: soon\r\n", r#"{"key":"Zm9v"}"#).await;
    assert_eq!(unclear.status, 400);
    assert!(unclear.body.contains("invalid grpc-timeout: soon"), "{}", unclear.body);
    drop(client);
    let mut watching = member.connect().await;
    let watch = watching.request("POST", "/v3/watch", "Grpc-Timeout: 10m\r\n", "").await;
    assert_eq!(watch.status, 200);
    assert!(watch.body.starts_with(r#"{"error":{"grpc_code":4,"http_code":504"#), "{}", watch.body);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_the_limit_wait_for_their_turn() {
    let member = Member::with_connections_max(2).await;
    let mut first = member.connect().await;
    let second = member.connect().await;
    assert_eq!(first.request("GET", "/version", "", "").await.status, 200);
    member.until(|metrics| metrics.http_connections.get() == 2).await;
    let mut third = member.connect().await;
    third.send(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(first.request("GET", "/version", "", "").await.status, 200);
    assert_eq!(member.metrics.http_connections.get(), 2);
    drop(second);
    assert_eq!(third.answer().await.status, 200);
    drop((first, third));
    member.until(|metrics| metrics.http_connections.get() == 0).await;
    member.stop().await;
}
