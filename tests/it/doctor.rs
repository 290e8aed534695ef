//! `revgate doctor`, with the real binary and real members: what it says, and with which code it ends.

use std::{net::TcpListener, path::PathBuf, time::Duration};

use base64_simd::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    files::revgate,
    support::{Server, is_foreign, wait_until},
};

/// Longest time until what was slow at the start is forgotten: a minute, and some.
const WELL_MAX: Duration = Duration::from_secs(150);

/// In memory where the machine has such a place: a slow disk would be a finding of its own.
fn data_dir() -> TempDir {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

/// A URL where nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Puts until the quota is reached.
fn fill(server: &Server) {
    let mut client = server.client();
    let value = STANDARD.encode_to_string(vec![b'v'; 64 << 10]);
    for number in 0..1_000 {
        let body = json!({"key": STANDARD.encode_to_string(format!("k{number}")), "value": value});
        if client.post("/v3/kv/put", body.to_string()).unwrap().status == 429 {
            return;
        }
    }
    panic!("no refusal");
}

#[test]
fn a_member_that_is_well_a_full_one_and_one_that_is_not_there() {
    if is_foreign() {
        return;
    }
    let (well_dir, full_dir) = (data_dir(), data_dir());
    let well = Server::start(well_dir.path());
    well.client().call("/v3/kv/put", &json!({"key": "Zm9v", "value": "YmFy"}));
    let said = wait_until("a member that is well", WELL_MAX, || {
        let (code, said, error) = revgate(&["doctor", "--endpoint", &url(&well)]);
        assert!(code == 0 || code == 1, "{said}{error}");
        (code == 0).then_some(said)
    });
    assert!(said.starts_with(&format!("{}: All is well", url(&well))), "{said}");

    let full = Server::start_with(full_dir.path(), &["--quota-backend-bytes=1048576"]);
    fill(&full);
    let (code, said, error) = revgate(&["doctor", "--endpoint", &url(&full)]);
    assert_eq!((code, &error[..]), (1, ""), "{said}");
    for expected in
        ["critical: The quota is full: the NOSPACE alarm is raised", "of 1.0 MiB used", "What to do: Delete"]
    {
        assert!(said.contains(expected), "{expected:?} is not in {said}");
    }

    let gone = nobody();
    let (code, said, _) = revgate(&["doctor", "--endpoint", &gone]);
    assert!(code == 2 && said.starts_with(&format!("{gone}: The member cannot be reached.")), "{code} {said}");

    // All three at once: the worst makes the code, and each is told.
    let all = [url(&well), url(&full), gone.clone()].join(",");
    let (code, said, _) = revgate(&["doctor", "--endpoints", &all, "--json"]);
    assert_eq!(code, 2);
    let said: Value = serde_json::from_str(&said).unwrap();
    let members = said["members"].as_array().unwrap();
    assert_eq!(members.iter().map(|member| &member["is_reachable"]).collect::<Vec<_>>(), [true, true, false]);
    let codes = |member: &Value| {
        let findings = member["findings"].as_array().unwrap();
        findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(codes(&members[1]).contains(&"quota_full".to_owned()), "{said}");
    assert_eq!(codes(&members[2]), ["unreachable"]);
    let report = &members[1]["report"];
    assert_eq!(report["room"]["nospace"], true);
    assert_eq!(report["proposed_index"], report["applied_index"]);
    assert_eq!(report["last_minute"]["fsync"]["running_seconds"], Value::Null);
}

#[test]
fn what_it_needs_is_told() {
    if is_foreign() {
        return;
    }
    let dir = data_dir();
    let server = Server::start(dir.path());
    let mut client = server.client();
    client.call("/v3/auth/user/add", &json!({"name": "root", "password": "sesame"}));
    client.call("/v3/auth/user/grant", &json!({"user": "root", "role": "root"}));
    client.call("/v3/auth/enable", &json!({}));
    let (code, said, _) = revgate(&["doctor", "--endpoint", &url(&server)]);
    assert!(code == 2 && said.contains("give --user a user with the role root"), "{code} {said}");
    let (code, said, _) = revgate(&["doctor", "--endpoint", &url(&server), "--user", "root:sesame"]);
    assert!((code == 0 || code == 1) && !said.contains("cannot be reached"), "{code} {said}");
    // One address that cannot be keeps nobody from hearing about the others.
    let both = format!("nonsense,{}", url(&server));
    let (code, said, _) = revgate(&["doctor", "--endpoints", &both, "--user", "root:sesame"]);
    assert!(code == 2 && said.contains("expected a URL"), "{said}");
    assert!(said.lines().any(|line| line.starts_with(&url(&server))), "{said}");
}
