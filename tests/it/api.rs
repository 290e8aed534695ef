//! The interface from outside, body by body: what a client of etcd's gateway gets is what a client of ours gets.
//!
//! Bodies are compared as text, since ours are compact and in declaration order; against a real etcd
//! (`REVGATE_TEST_BINARY`) as values, because its spacing depends on its build.

mod auth;
mod errors;
mod kv;
mod lease;
mod maintenance;
mod operations;
mod watch;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Client, Server, is_foreign};

/// A fresh member of its own, and what its headers say.
struct Member {
    server: Server,
    client: Client,
    cluster_id: String,
    member_id: String,
    raft_term: String,
    _data: TempDir,
}

impl Member {
    fn start() -> Member {
        Member::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Member {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start_with(&data.path().join("data"), flags);
        let mut client = server.client();
        let answer = client.call("/v3/kv/range", &serde_json::json!({"key": "Zm9v"}));
        let of_header = |name: &str| answer["header"][name].as_str().unwrap().to_owned();
        let (cluster_id, member_id, raft_term) =
            (of_header("cluster_id"), of_header("member_id"), of_header("raft_term"));
        assert_eq!(of_header("revision"), "1", "a fresh store is at revision 1");
        Member { server, client, cluster_id, member_id, raft_term, _data: data }
    }

    /// A complete header at a revision, as JSON.
    fn header(&self, revision: i64) -> String {
        let Member { cluster_id, member_id, raft_term, .. } = self;
        format!(
            r#"{{"cluster_id":"{cluster_id}","member_id":"{member_id}","revision":"{revision}","raft_term":"{raft_term}"}}"#
        )
    }

    /// `@7` stands for a complete header at revision 7.
    fn with_headers(&self, expected: &str) -> String {
        let mut parts = expected.split('@');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            text.push_str(&self.header(part[..digits].parse().unwrap()));
            text.push_str(&part[digits..]);
        }
        text
    }

    /// A call, and the exact body it is answered with.
    fn expect(&mut self, path: &str, body: &str, expected: &str) {
        let answer = self.client.post(path, body).unwrap();
        let expected = self.with_headers(expected);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        assert_same_json(&format!("{path} {body}"), answer.text().trim_end(), &expected);
    }

    /// A call, and the error it is answered with: HTTP status, gRPC code, text.
    fn expect_error(&mut self, path: &str, body: &str, (status, code, text): (u16, u64, &str)) {
        let answer = self.client.post(path, body).unwrap();
        let shown = answer.text();
        assert_eq!(answer.status, status, "{path} {body:.200}: {shown}");
        let json = answer.json();
        assert_eq!(json["code"], Value::from(code), "{path} {body:.200}: {shown}");
        let message = json["message"].as_str().unwrap();
        // `…` stands for what depends on the decoder's words, or on sizes.
        let fits = match text.split_once('…') {
            Some((start, end)) => message.starts_with(start) && message.ends_with(end) && !message.is_empty(),
            None => message == text,
        };
        assert!(fits, "{path} {body:.200}: {shown}, expected {text}");
        if !is_foreign() {
            // Older gateways sent `error`, newer ones do not; clients of both read ours.
            assert_eq!(json["error"], json["message"], "{shown}");
        }
    }

    /// A call that must succeed, with its answer.
    fn call(&mut self, path: &str, body: &str) -> Value {
        let answer = self.client.post(path, body).unwrap();
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }
}

fn assert_same_json(what: &str, found: &str, expected: &str) {
    if is_foreign() {
        let parsed =
            |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| panic!("{what}: not JSON: {text}"));
        assert_eq!(parsed(found), parsed(expected), "{what}");
    } else {
        assert_eq!(without_token(found), expected, "{what}");
    }
}

/// An answer without the token for its next page, which etcd's answers have not.
fn without_token(answer: &str) -> String {
    match answer.split_once(r#","continue":""#) {
        Some((before, rest)) => {
            let (token, after) = rest.split_once('"').unwrap();
            assert!(!token.is_empty());
            format!("{before}{after}")
        }
        None => answer.to_owned(),
    }
}
