//! Paths, methods, headers, and the bodies etcd answers with.

use super::harness::{Member, header};

const HEADER: &str = r#"{"cluster_id":"22","member_id":"11","revision":"#;

fn with_header(revision: i64, term: &str, rest: &str) -> String {
    format!(r#"{{"header":{HEADER}"{revision}","raft_term":"{term}"}}{rest}}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_those_of_etcd() {
    let member = Member::start().await;
    let put = member.post("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#).await;
    let term = put.body.split("\"raft_term\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!((put.status, put.body), (200, with_header(2, &term, "")));
    let kv = r#"{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}"#;
    let cases = [
        ("/v3/kv/range", r#"{"key":"Zm9v"}"#, format!(r#","kvs":[{kv}],"count":"1""#)),
        ("/v3/kv/range", r#"{"key":"bm9uZQ=="}"#, String::new()),
        ("/v3beta/kv/range", r#"{"key":"Zm9v","countOnly":true}"#, r#","count":"1""#.into()),
        (
            "/v3/kv/txn",
            r#"{"compare":[{"key":"Zm9v","target":"VERSION","version":"1"}],"success":[{"request_range":{"key":"Zm9v"}}]}"#,
            format!(
                r#","succeeded":true,"responses":[{{"response_range":{{"header":{{"revision":"2"}},"kvs":[{kv}],"count":"1"}}}}]"#
            ),
        ),
        ("/v3/lease/timetolive", r#"{"ID":"1"}"#, r#","ID":"1","TTL":"-1""#.into()),
        ("/v3/kv/lease/timetolive", r#"{"ID":1}"#, r#","ID":"1","TTL":"-1""#.into()),
        ("/v3/lease/leases", "{}", String::new()),
    ];
    for (path, body, rest) in cases {
        let answer = member.post(path, body).await;
        assert_eq!((answer.status, answer.body), (200, with_header(2, &term, &rest)), "{path} {body}");
        assert_eq!(header(&answer.head, "content-type"), Some("application/json"));
    }
    let delete = member.post("/v3/kv/deleterange", r#"{"key":"Zm9v"}"#).await;
    assert_eq!(delete.body, with_header(3, &term, r#","deleted":"1""#));
    member.stop().await;
}

/// LavinMQ's client knows no other spelling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_headers_begin_with_capitals() {
    let member = Member::start().await;
    let answer = member.post("/v3/kv/put", r#"{"key":"Zm9v"}"#).await;
    let length = format!("\r\nContent-Length: {}\r\n", answer.body.len());
    assert!(answer.head.contains(&length), "{}", answer.head);
    assert!(answer.head.contains("\r\nContent-Type: application/json\r\n"), "{}", answer.head);
    let mut client = member.connect().await;
    client
        .send(
            b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 34\r\n\r\n{\"create_request\":{\"key\":\"Zm9v\"}} ",
        )
        .await;
    let head = client.head().await;
    assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
    drop(client);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_those_of_etcd() {
    let member = Member::start().await;
    let future = "etcdserver: mvcc: required revision is a future revision";
    let cases = [
        ("/v3/kv/compaction", r#"{"revision":10000}"#, 400, 11, future),
        ("/v3/kv/range", "{}", 400, 3, "etcdserver: key is not provided"),
        ("/v3/kv/range", "", 400, 3, "etcdserver: key is not provided"),
        ("/v3/lease/revoke", r#"{"ID":"1"}"#, 404, 5, "etcdserver: requested lease not found"),
        ("/v3/nowhere", "{}", 404, 5, "Not Found"),
        ("/v3/kv/lease/grant", "{}", 404, 5, "Not Found"),
        ("/v3/kv/put", "{", 400, 3, "malformed request: unexpected end of input at byte 1"),
    ];
    for (path, body, status, code, message) in cases {
        let answer = member.post(path, body).await;
        let expected = format!(r#"{{"error":"{message}","code":{code},"message":"{message}"}}"#);
        assert_eq!((answer.status, answer.body), (status, expected), "{path} {body}");
    }
    let wrong_method = member.get("/v3/kv/range").await;
    let expected = r#"{"error":"Method Not Allowed","code":12,"message":"Method Not Allowed"}"#;
    assert_eq!((wrong_method.status, wrong_method.body.as_str()), (501, expected));
    let elsewhere = member.post("/v2/keys", "").await;
    assert_eq!((elsewhere.status, elsewhere.body.as_str()), (404, "404 page not found\n"));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_bodies_are_never_a_fault_of_the_server() {
    let member = Member::start().await;
    let malformed = ["[", "{]", "{\"key\":", "\u{0}", "{\"key\":\"\\", "nul", "1", "\"x\""];
    // Well-formed where there is no such field: a lock would be taken, and then waited for.
    let malformed_by_schema = ["{\"key\":{}}", "{\"ID\":{}}", "{\"success\":{}}"];
    for route in super::super::routes::ROUTES {
        for path in route.paths {
            let by_schema = if route.service.starts_with("etcdserverpb.") { &malformed_by_schema[..] } else { &[] };
            for body in malformed.iter().chain(by_schema) {
                let status = member.status_of(path, body).await;
                assert!(status < 500, "{path} {body}: {status}");
            }
            let answer = member.post(path, "{\"key\":\"\u{1}\"}").await;
            assert_eq!(answer.status, 400, "{path}: {}", answer.body);
            assert!(answer.body.contains("\"code\":3"), "{path}: {}", answer.body);
        }
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_any_origin_may_ask() {
    let member = Member::start().await;
    let options = member.connect().await.request("OPTIONS", "/v3/kv/range", "Origin: http://a\r\n", "").await;
    assert_eq!((options.status, options.body.as_str()), (200, ""));
    for head in [options.head, member.get("/version").await.head] {
        assert_eq!(header(&head, "access-control-allow-origin"), Some("*"));
        assert_eq!(header(&head, "access-control-allow-methods"), Some("POST, GET, OPTIONS, PUT, DELETE"));
        assert_eq!(header(&head, "access-control-allow-headers"), Some("accept, content-type, authorization"));
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn side_endpoints() {
    let member = Member::start().await;
    let version = member.get("/version").await;
    assert_eq!(version.body, r#"{"etcdserver":"3.7.1","etcdcluster":"3.7.0","storage":"3.7.0"}"#);
    let health = member.get("/health").await;
    assert_eq!((health.status, health.body.as_str()), (200, "{\"health\":\"true\",\"reason\":\"\"}\n"));
    for path in ["/livez", "/readyz", "/livez/serializable_read", "/readyz/linearizable_read"] {
        let answer = member.get(path).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"), "{path}");
    }
    let verbose = member.get("/livez?verbose").await;
    assert_eq!(verbose.body, "[+]serializable_read ok\nok\n");
    assert_eq!(member.get("/livez/nothing").await.status, 404);
    assert_eq!(member.post("/health", "").await.status, 405);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_counted_under_etcds_names() {
    let member = Member::start().await;
    let mut answers = 0;
    for (path, body) in [("/v3/kv/put", r#"{"key":"Zm9v"}"#), ("/v3/kv/put", "{}"), ("/v3/kv/lease/leases", "{}")] {
        answers += member.post(path, body).await.body.len();
    }
    let text = member.get("/metrics").await.body;
    let put = r#"grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
    for line in [
        format!("grpc_server_started_total{{{put}}} 2"),
        format!("grpc_server_handled_total{{grpc_code=\"OK\",{put}}} 1"),
        format!("grpc_server_handled_total{{grpc_code=\"InvalidArgument\",{put}}} 1"),
        r#"revgate_http_requests_total{method="POST",route="/v3/kv/put",status="200"} 1"#.into(),
        r#"revgate_http_requests_total{method="POST",route="/v3/kv/put",status="400"} 1"#.into(),
        r#"revgate_http_requests_total{method="POST",route="/v3/lease/leases",status="200"} 1"#.into(),
        format!("grpc_server_handling_seconds_count{{{put}}} 2"),
        r#"revgate_http_request_duration_seconds_count{class="2xx",method="POST",route="/v3/kv/put"} 1"#.into(),
        r#"revgate_http_request_duration_seconds_count{class="4xx",method="POST",route="/v3/kv/put"} 1"#.into(),
        // A write that was refused before it was proposed has no stages.
        r#"revgate_write_stage_duration_seconds_count{stage="respond"} 1"#.into(),
        format!("etcd_network_client_grpc_received_bytes_total {}", r#"{"key":"Zm9v"}{}{}"#.len()),
        format!("etcd_network_client_grpc_sent_bytes_total {answers}"),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_many_requests() {
    let member = Member::start().await;
    let mut client = member.connect().await;
    for revision in 2..10 {
        let answer = client.request("POST", "/v3/kv/put", "", r#"{"key":"Zm9v"}"#).await;
        assert!(answer.body.contains(&format!(r#""revision":"{revision}""#)), "{}", answer.body);
    }
    // A big range is built in steps, and finished elsewhere.
    for index in 0..1200 {
        let key = base64_simd::STANDARD.encode_to_string(format!("k{index:04}"));
        client.request("POST", "/v3/kv/put", "", &format!(r#"{{"key":"{key}"}}"#)).await;
    }
    let all = client.request("POST", "/v3/kv/range", "", r#"{"key":"aw==","range_end":"bA=="}"#).await;
    let all: serde_json::Value = serde_json::from_str(&all.body).unwrap();
    assert_eq!((all["kvs"].as_array().unwrap().len(), &all["count"]), (1200, &serde_json::json!("1200")));
    drop(client);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_are_decoded_and_those_that_are_not_clean_lead_to_those_that_are() {
    let member = Member::start().await;
    assert_eq!(member.post("/v3/kv/%72ange", r#"{"key":"YQ=="}"#).await.status, 200);
    let elsewhere = member.post("//v3/kv/range?x", r#"{"key":"YQ=="}"#).await;
    assert_eq!((elsewhere.status, header(&elsewhere.head, "location")), (307, Some("/v3/kv/range?x")));
    let broken = member.post("/v3/kv/%zz", "{}").await;
    assert_eq!((broken.status, broken.body.as_str()), (400, "400 Bad Request"));
    assert_eq!(member.get("/livez/").await.status, 404);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_names_its_host() {
    let member = Member::start().await;
    let mut client = member.connect().await;
    client.send(b"GET /version HTTP/1.1\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "400 Bad Request: missing required Host header"));
    member.stop().await;
}
