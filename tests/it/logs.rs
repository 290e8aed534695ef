//! What a member's log tells of requests, and what it never tells: every kind of request is made, with every request taken
//! for a slow one and everything there is to log logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::TcpStream,
    path::Path,
};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::support::{Client, Server, is_foreign};

/// Nothing of these may be told. The key has a beginning that may.
const KEY: &str = "kkkkkkkkkkkkkkkk-key-that-is-secret";
const KEY_TOLD: &str = "kkkkkkkkkkkkkkkk";
const VALUE: &str = "value-that-is-secret";
const PASSWORD: &str = "password-that-is-secret";

/// Calls that are answered by more than one message, and calls that wait for others: how long they take says nothing.
const NEVER_SLOW: [&str; 6] = [
    "/v3/watch",
    "/v3/lease/keepalive",
    "/v3/maintenance/snapshot",
    "/v3/election/observe",
    "/v3/lock/lock",
    "/v3/election/campaign",
];

fn base64(text: &str) -> String {
    base64_simd::STANDARD.encode_to_string(text)
}

/// Paths with their bodies, in an order in which most succeed.
fn calls() -> Vec<(&'static str, Value)> {
    let (key, value) = (base64(KEY), base64(VALUE));
    let put = json!({"request_put": {"key": key, "value": value}});
    let compare = json!({"key": key, "target": "VALUE", "value": value});
    let permission = json!({"permType": "READWRITE", "key": key});
    vec![
        ("/v3/kv/put", json!({"key": key, "value": value})),
        ("/v3/kv/range", json!({"key": key, "limit": 5})),
        ("/v3/kv/range", json!({"key": "AA==", "range_end": "AA==", "revision": 1})),
        ("/v3/kv/txn", json!({"compare": [compare], "success": [put, put.clone()], "failure": [put]})),
        ("/v3/kv/txn", json!({"compare": [compare], "success": [put]})),
        ("/v3/lease/grant", json!({"TTL": 600, "ID": 77})),
        ("/v3/lease/timetolive", json!({"ID": 77, "keys": true})),
        ("/v3/kv/lease/timetolive", json!({"ID": 77})),
        ("/v3/lease/leases", json!({})),
        ("/v3/kv/lease/leases", json!({})),
        ("/v3/lease/keepalive", json!({"ID": 77})),
        ("/v3/lock/lock", json!({"name": key, "lease": 77})),
        ("/v3/lock/unlock", json!({"key": key})),
        ("/v3/election/campaign", json!({"name": key, "lease": 77, "value": value})),
        ("/v3/election/leader", json!({"name": key})),
        ("/v3/election/proclaim", json!({"leader": {"name": key, "key": key, "lease": 77}, "value": value})),
        ("/v3/election/resign", json!({"leader": {"name": key, "key": key, "lease": 77}})),
        ("/v3/lease/revoke", json!({"ID": 77})),
        ("/v3/kv/lease/revoke", json!({"ID": 78})),
        ("/v3/cluster/member/list", json!({})),
        ("/v3/cluster/member/add", json!({"peerURLs": ["http://peer:1"], "isLearner": true})),
        ("/v3/cluster/member/update", json!({"ID": 1, "peerURLs": ["http://peer:2"]})),
        ("/v3/cluster/member/remove", json!({"ID": 1})),
        ("/v3/cluster/member/promote", json!({"ID": 1})),
        ("/v3/maintenance/status", json!({})),
        ("/v3/maintenance/alarm", json!({})),
        ("/v3/maintenance/defragment", json!({})),
        ("/v3/maintenance/hash", json!({})),
        ("/v3/maintenance/hashkv", json!({})),
        ("/v3/maintenance/snapshot", json!({})),
        ("/v3/maintenance/transfer-leadership", json!({"targetID": 1})),
        ("/v3/maintenance/downgrade", json!({"action": "VALIDATE", "version": "3.6.0"})),
        ("/v3/auth/user/add", json!({"name": "root", "password": PASSWORD})),
        ("/v3/auth/user/grant", json!({"user": "root", "role": "root"})),
        ("/v3/auth/user/add", json!({"name": "other", "password": PASSWORD})),
        ("/v3/auth/user/changepw", json!({"name": "other", "password": PASSWORD})),
        ("/v3/auth/user/get", json!({"name": "other"})),
        ("/v3/auth/user/list", json!({})),
        ("/v3/auth/role/add", json!({"name": "r"})),
        ("/v3/auth/role/get", json!({"role": "r"})),
        ("/v3/auth/role/list", json!({})),
        ("/v3/auth/role/grant", json!({"name": "r", "perm": permission})),
        ("/v3/auth/role/revoke", json!({"role": "r", "key": key})),
        ("/v3/auth/user/grant", json!({"user": "other", "role": "r"})),
        ("/v3/auth/user/revoke", json!({"name": "other", "role": "r"})),
        ("/v3/auth/role/delete", json!({"role": "r"})),
        ("/v3/auth/user/delete", json!({"name": "other"})),
        ("/v3/auth/status", json!({})),
        ("/v3/auth/authenticate", json!({"name": "root", "password": PASSWORD})),
        ("/v3/kv/deleterange", json!({"key": key, "prev_kv": true})),
        ("/v3/kv/compaction", json!({"revision": 2})),
        // What is wrong is not told either.
        ("/v3/kv/put", json!({"key": key, "value": VALUE})),
        ("/v3/kv/put", json!(VALUE)),
        ("/v3/auth/authenticate", json!({"name": "root", "password": format!("not-{PASSWORD}")})),
        ("/v3/auth/enable", json!({})),
    ]
}

/// A stream of responses is opened, and its first line read.
fn open_stream(server: &Server, token: Option<String>, path: &str, body: &Value) {
    let mut client = server.client();
    client.set_token(token);
    client.open_lines(path, &body.to_string()).next_line().unwrap().expect("a response");
}

/// One message by WebSocket, and its answer.
fn by_socket(server: &Server, path: &str, token: &str, body: &Value) -> String {
    let stream = TcpStream::connect(server.address()).unwrap();
    let mut request =
        tungstenite::client::IntoClientRequest::into_client_request(format!("ws://{}{path}", server.address()))
            .unwrap();
    let protocols = format!("Bearer, {token}").parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocols);
    let (mut socket, _) = tungstenite::client(request, stream).unwrap();
    socket.send(Message::text(body.to_string())).unwrap();
    socket.read().unwrap().into_text().unwrap().to_string()
}

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn slow_lines(log: &Path) -> Vec<Value> {
    let is_slow = |line: &Value| line["message"] == "a request took longer than expected";
    lines(log).into_iter().filter(is_slow).collect()
}

/// Every path that the interface has.
fn documented_paths() -> BTreeSet<String> {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/revgate.json")).unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    let paths = document["paths"].as_object().unwrap().keys();
    paths.filter(|path| path.starts_with("/v3/")).cloned().collect()
}

#[test]
fn a_slow_request_makes_one_line_and_nothing_secret_is_ever_told() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let flags = [
        "--log-level",
        "debug",
        "--log-outputs",
        &format!("stderr,{}", log.display()),
        "--log-format",
        "json",
        "--warning-unary-request-duration",
        "1ns",
        "--warning-apply-duration",
        "1ns",
        "--bcrypt-cost",
        "4",
    ];
    let server = Server::start_with(&dir.path().join("data"), &flags);
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    let mut client = server.client();
    for (path, body) in calls() {
        if path != "/v3/lease/keepalive" {
            let answer = client.post(path, body.to_string()).unwrap();
            assert!(answer.status < 500, "{path} {body}: {}", answer.text());
        } else {
            open_stream(&server, None, path, &body);
        }
        let template = match path {
            "/v3/kv/lease/timetolive" => "/v3/lease/timetolive",
            "/v3/kv/lease/leases" => "/v3/lease/leases",
            "/v3/kv/lease/revoke" => "/v3/lease/revoke",
            path => path,
        };
        *made.entry(template).or_default() += 1;
        asked.insert(path.to_owned());
    }

    // Authentication is on: with tokens, right and wrong, from here on.
    let credentials = json!({"name": "root", "password": PASSWORD});
    let token = client.call("/v3/auth/authenticate", &credentials)["token"].as_str().expect("a token").to_owned();
    let bad = "token-that-is-secret";
    for token in [token.as_str(), bad] {
        client.set_token(Some(token.to_owned()));
        client.post("/v3/kv/range", json!({"key": base64(KEY)}).to_string()).unwrap();
        by_socket(&server, "/v3/kv/put", token, &json!({"key": base64(KEY), "value": base64(VALUE)}));
        open_stream(&server, Some(token.to_owned()), "/v3/watch", &json!({"create_request": {"key": base64(KEY)}}));
    }
    by_socket(&server, "/v3/election/observe", bad, &json!({"name": base64(KEY)}));
    client.set_token(Some(token.clone()));
    client.call("/v3/auth/disable", &json!({}));
    asked.extend(["/v3/watch", "/v3/election/observe", "/v3/auth/disable"].map(str::to_owned));
    for (path, times) in [("/v3/auth/authenticate", 1), ("/v3/kv/range", 2), ("/v3/kv/put", 2), ("/v3/auth/disable", 1)]
    {
        *made.entry(path).or_default() += times;
    }
    assert_eq!(asked, documented_paths(), "every kind of request is made");

    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    let slow = slow_lines(&log);
    for line in &slow {
        *told.entry(line["route"].as_str().unwrap()).or_default() += 1;
    }
    made.retain(|path, _| !NEVER_SLOW.contains(path));
    assert_eq!(told, made, "one line for each");

    let all = fs::read_to_string(&log).unwrap();
    assert!(all.contains(KEY_TOLD), "at this level a line tells how a key begins");
    assert!(all.contains("applying a request took too long"), "the state machine tells of its part");
    let encoded = |text: &str| base64(text).trim_end_matches('=').to_owned();
    let secrets = [KEY, VALUE, PASSWORD, &token, bad, &encoded(KEY), &encoded(VALUE), &KEY[..KEY_TOLD.len() + 1]];
    for secret in secrets {
        let line = all.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    // The same lines go to the other output, and the greeting has no secrets either.
    let said = server.output();
    assert!(said.contains("a request took longer than expected"));
    assert!(secrets.iter().all(|secret| !said.contains(*secret)));
}

#[test]
fn a_line_tells_sizes_times_and_revisions() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let outputs = log.display().to_string();
    let flags = ["--log-outputs", &outputs, "--warning-unary-request-duration", "1ns"];
    let server = Server::start_with(&dir.path().join("data"), &flags);
    let mut client: Client = server.client();
    let put = json!({"key": base64(KEY), "value": base64(VALUE)}).to_string();
    let answer = client.post("/v3/kv/put", &put).unwrap();
    client.call("/v3/kv/range", &json!({"key": base64("k"), "range_end": base64("l"), "revision": 2, "limit": 7}));
    let refused = client.post("/v3/kv/range", "{}").unwrap();
    assert_eq!(refused.status, 400);
    let slow = slow_lines(&log);
    let [put_line, range_line, refused_line] = &slow[..] else { panic!("three lines, not {slow:?}") };
    for line in &slow {
        for name in ["took", "expected", "read", "parse", "execute"] {
            assert!(line[name].is_string(), "{name}: {line}");
        }
        // Not at this level.
        assert_eq!(line.get("key_prefix"), None, "{line}");
    }
    let told = |line: &Value, names: &[&str]| names.iter().map(|name| line[*name].clone()).collect::<Vec<_>>();
    let names =
        ["level", "route", "code", "request_bytes", "answer_bytes", "key_bytes", "value_bytes", "is_range", "revision"];
    let expected = [
        json!("WARN"),
        json!("/v3/kv/put"),
        json!("OK"),
        json!(put.len()),
        json!(answer.body.len()),
        json!(KEY.len()),
        json!(VALUE.len()),
        json!(false),
        json!(2),
    ];
    assert_eq!(told(put_line, &names), expected);
    let names = ["route", "is_range", "limit", "at_revision", "count", "revision", "key_bytes"];
    let expected = [json!("/v3/kv/range"), json!(true), json!(7), json!(2), json!(1), json!(2), json!(1)];
    assert_eq!(told(range_line, &names), expected);
    assert_eq!(
        told(refused_line, &["code", "count", "answer_bytes"]),
        [json!("InvalidArgument"), Value::Null, json!(0)]
    );
}

#[test]
fn requests_in_time_make_no_line() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let outputs = log.display().to_string();
    for limit in ["1h", "0"] {
        let flags = ["--log-outputs", &outputs, "--log-level", "debug", "--warning-unary-request-duration", limit];
        let server = Server::start_with(&dir.path().join("data"), &flags);
        server.client().call("/v3/kv/put", &json!({"key": base64(KEY), "value": base64(VALUE)}));
        server.kill();
    }
    assert_eq!(slow_lines(&log), Vec::<Value>::new());
    assert!(lines(&log).iter().filter(|line| line["message"] == "ready to serve").count() == 2);
}
