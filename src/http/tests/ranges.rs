//! Ranges that are bigger than a piece: whole, encoded, or visibly broken.

use std::{future::poll_fn, io::Read as _, sync::Arc, time::Instant};

use hyper::Method;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

use super::harness::{Client, Member, header, status};
use crate::{
    http::{
        meter::{Arrival, Meter},
        range::{Answer, RangeBody, RangePieces},
    },
    proto::etcdserverpb as pb,
    service::Caller,
};

/// Larger together than what a connection holds in its buffers.
const KEYS: usize = 640;
const VALUE_BYTES: usize = 32 * 1024;
const ALL: &str = r#"{"key":"AA==","range_end":"AA=="}"#;
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

async fn filled() -> Member {
    let member = Member::start().await;
    let value = "YWJj".repeat(VALUE_BYTES / 3);
    let mut client = member.connect().await;
    for key in 0..KEYS {
        let put = format!(r#"{{"key":"{key:08}","value":"{value}"}}"#);
        assert_eq!(client.request("POST", "/v3/kv/put", "", &put).await.status, 200);
    }
    member
}

async fn ask(client: &mut Client, headers: &str, body: &str) -> String {
    let length = body.len();
    let head = format!(
        "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    client.send(head.as_bytes()).await;
    client.head().await
}

/// What the chunks hold; `None` if the last is missing.
fn joined(mut chunked: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = chunked.windows(2).position(|bytes| bytes == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&chunked[..end]).ok()?, 16).ok()?;
        let chunk = chunked.get(end + 2..end + 2 + size)?;
        chunked = chunked.get(end + 4 + size..)?;
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(chunk);
    }
}

fn check_whole(text: &[u8]) {
    assert!(text.starts_with(br#"{"header":{"cluster_id":"#));
    assert!(text.ends_with(format!(r#","count":"{KEYS}"}}"#).as_bytes()));
    let answer: Value = serde_json::from_slice(text).unwrap();
    let kvs = answer["kvs"].as_array().unwrap();
    assert_eq!(kvs.len(), KEYS);
    for (key, kv) in kvs.iter().enumerate() {
        assert_eq!(kv["key"], format!("{key:08}"));
        assert_eq!(kv["value"].as_str().unwrap().len(), VALUE_BYTES / 3 * 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_big_range_comes_in_pieces_and_whole_in_every_coding() {
    let member = filled().await;
    let mut streamed_before = 0;
    for coding in ["identity", "gzip", "zstd"] {
        let mut client = member.connect().await;
        let head = ask(&mut client, &format!("Accept-Encoding: {coding}\r\n"), ALL).await;
        assert_eq!((status(&head), header(&head, "transfer-encoding")), (200, Some("chunked")));
        assert_eq!(header(&head, "vary"), Some("accept-encoding"));
        let body = joined(&client.rest().await).unwrap();
        let sent = body.len() as u64;
        let mut plain = Vec::new();
        match coding {
            "gzip" => _ = flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap(),
            "zstd" => plain = zstd::stream::decode_all(&body[..]).unwrap(),
            _ => plain = body,
        }
        let named = header(&head, "content-encoding");
        assert_eq!(named, Some(coding).filter(|coding| *coding != "identity"));
        check_whole(&plain);
        let streamed = member.metrics.range_streamed_bytes.get();
        assert_eq!(streamed - streamed_before, sent, "{coding}");
        streamed_before = streamed;
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_answers_come_with_their_length_and_tiny_ones_as_they_are() {
    let member = filled().await;
    let one = r#"{"key":"00000001"}"#;
    let mut client = member.connect().await;
    let head = ask(&mut client, "Accept-Encoding: gzip\r\n", one).await;
    let body = client.rest().await;
    assert_eq!(header(&head, "content-encoding"), Some("gzip"));
    assert_eq!(header(&head, "content-length"), Some(body.len().to_string().as_str()));
    let mut plain = String::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut plain).unwrap();
    assert!(plain.ends_with(r#"}],"count":"1"}"#));

    let mut client = member.connect().await;
    let head = ask(&mut client, "Accept-Encoding: gzip\r\n", r#"{"key":"AA=="}"#).await;
    assert_eq!((header(&head, "content-encoding"), header(&head, "vary")), (None, None));
    assert_eq!(header(&head, "content-length"), Some(client.rest().await.len().to_string().as_str()));
    member.stop().await;
}

/// The harness' compactions wait for no read.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_whose_history_is_compacted_away_is_broken_off() {
    let member = filled().await;
    let mut client = member.connect().await;
    let head = ask(&mut client, "", ALL).await;
    assert_eq!(status(&head), 200);
    let revision = KEYS + 2;
    assert_eq!(member.post("/v3/kv/put", r#"{"key":"YQ=="}"#).await.status, 200);
    let compaction = format!(r#"{{"revision":{revision},"physical":true}}"#);
    assert_eq!(member.post("/v3/kv/compaction", &compaction).await.status, 200);
    let rest = client.rest().await;
    assert!(joined(&rest).is_none() && !rest.ends_with(LAST_CHUNK), "{} bytes", rest.len());
    // Counted as what it is.
    member.until(|metrics| handled(metrics, "OutOfRange") == 1).await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_is_not_read_in_time_is_broken_off() {
    let member = filled().await;
    let mut client = member.connect().await;
    let head = ask(&mut client, "Grpc-Timeout: 400m\r\n", ALL).await;
    assert_eq!(status(&head), 200);
    // However slow the machine is, the deadline is over then. What waits to be read holds a few pieces and no turn.
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    assert!(joined(&client.rest().await).is_none());
    member.until(|metrics| handled(metrics, "DeadlineExceeded") == 1).await;
    member.stop().await;
}

fn handled(metrics: &crate::metrics::Metrics, code: &str) -> u64 {
    metrics.rpc_handled.with_label_values(&["unary", "etcdserverpb.KV", "Range", code]).get()
}

async fn range(member: &Member, body: &str) -> (u16, Value) {
    let answer = member.post("/v3/kv/range", body).await;
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_of_one_revision_and_end_when_it_is_compacted() {
    let member = Member::start().await;
    for key in 0..10 {
        assert_eq!(member.post("/v3/kv/put", &format!(r#"{{"key":"key{key}"}}"#)).await.status, 200);
    }
    for order in ["ASCEND", "DESCEND"] {
        let request = |more: &str| format!(r#"{{"key":"AA==","range_end":"AA==","sort_order":"{order}"{more}}}"#);
        let (_, whole) = range(&member, &request("")).await;
        let (mut kvs, mut page) = (Vec::new(), String::from(r#","limit":3"#));
        loop {
            let (status, answer) = range(&member, &request(&page)).await;
            assert_eq!((status, &answer["count"]), (200, &whole["count"]));
            kvs.extend(answer["kvs"].as_array().unwrap().iter().cloned());
            assert_eq!(answer["continue"].is_string(), answer["more"] == true);
            let Some(token) = answer["continue"].as_str() else { break };
            page = format!(r#","limit":4,"continue":"{token}""#);
            // What happens between the pages is not seen in them.
            for put in [r#"{"key":"AAAA"}"#, r#"{"key":"key5"}"#, r#"{"key":"zzzz"}"#] {
                assert_eq!(member.post("/v3/kv/put", put).await.status, 200);
            }
        }
        assert_eq!(Value::from(kvs), whole["kvs"]);
    }

    let first = r#"{"key":"AA==","range_end":"AA==","limit":2}"#;
    let (_, answer) = range(&member, first).await;
    let going_on = |range: &str| format!(r#"{{{range},"continue":"{}"}}"#, answer["continue"].as_str().unwrap());
    let (status, error) = range(&member, &going_on(r#""key":"AA==","range_end":"AQ==""#)).await;
    assert_eq!((status, &error["code"]), (400, &Value::from(3)));
    let in_txn = format!(r#"{{"success":[{{"request_range":{}}}]}}"#, going_on(r#""key":"AA==","range_end":"AA==""#));
    assert_eq!(member.post("/v3/kv/txn", &in_txn).await.status, 400);

    let now = member.post("/v3/kv/put", r#"{"key":"key0"}"#).await;
    let now: Value = serde_json::from_str(&now.body).unwrap();
    let revision = now["header"]["revision"].as_str().unwrap();
    let compaction = format!(r#"{{"revision":{revision}}}"#);
    assert_eq!(member.post("/v3/kv/compaction", &compaction).await.status, 200);
    let (status, error) = range(&member, &going_on(r#""key":"AA==","range_end":"AA==""#)).await;
    assert_eq!((status, &error["code"], &error["compact_revision"]), (410, &Value::from(11), &Value::from(revision)));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_next_page_where_there_are_no_pages() {
    let member = Member::start().await;
    for key in 0..4 {
        assert_eq!(member.post("/v3/kv/put", &format!(r#"{{"key":"key{key}"}}"#)).await.status, 200);
    }
    for more in [r#""limit":4"#, r#""limit":2,"sort_target":"MOD""#, r#""limit":2,"count_only":true"#] {
        let (status, answer) = range(&member, &format!(r#"{{"key":"AA==","range_end":"AA==",{more}}}"#)).await;
        assert_eq!((status, &answer["continue"]), (200, &Value::Null), "{more}");
    }
    member.stop().await;
}

/// Somebody else has the only turn while a client takes the last piece but one of those that were made ahead, and reads no
/// more. Whoever is next must get the turn, and not it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_on_is_not_in_line_for_a_turn() {
    let member = filled().await;
    let front = &member.server.front;
    let all = pb::RangeRequest { key: [0][..].into(), range_end: [0][..].into(), ..Default::default() };
    let answer = front.services.kv.range(&Caller::default(), all).await.unwrap();
    let begun = RangeBody::begin(answer, &mut front.observer.begin("/r", Instant::now())).await.unwrap();
    let Answer::Begun(first, rest) = begun else { panic!("a small answer") };
    let turns = Arc::new(Semaphore::new(1));
    let call = Arc::new(Meter::new("/r", &member.metrics)).start(Arrival::of(&Method::POST));
    let streamed = member.metrics.range_streamed_bytes.clone();
    let mut pieces = RangePieces::new(first, rest, PollSemaphore::new(Arc::clone(&turns)), None, call, streamed);
    assert!(poll_fn(|context| pieces.poll_next(context)).await.is_some());
    // Four are made in a turn: then it is over.
    let others = Arc::clone(&turns).acquire_owned().await.unwrap();
    for _ in 0..2 {
        assert!(poll_fn(|context| pieces.poll_next(context)).await.is_some());
    }
    drop(others);
    assert!(turns.try_acquire().is_ok(), "nobody is in line");
    // And it goes on where it was.
    let mut rest = 0;
    while let Some(piece) = poll_fn(|context| pieces.poll_next(context)).await {
        rest += piece.unwrap().len();
    }
    assert!(rest > KEYS * VALUE_BYTES / 2);
    member.stop().await;
}
