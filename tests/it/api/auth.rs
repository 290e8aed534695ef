//! Authentication from outside: setting it up, living with it, taking it down; compared with a real etcd 3.7.3.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::Member;
use crate::support::{Client, Server, is_foreign, refusal};

/// The cheapest hash there is.
const CHEAP: [&str; 2] = ["--bcrypt-cost", "4"];

const EMPTY: (u16, u64, &str) = (400, 3, "etcdserver: user name is empty");
const DENIED: (u16, u64, &str) = (403, 7, "etcdserver: permission denied");
const BAD_TOKEN: (u16, u64, &str) = (401, 16, "etcdserver: invalid auth token");
const FAILED: (u16, u64, &str) = (400, 3, "etcdserver: authentication failed, invalid user ID or password");
const INVALID: (u16, u64, &str) = (400, 3, "etcdserver: invalid auth management");
const NO_USER: (u16, u64, &str) = (400, 9, "etcdserver: user name not found");
const NO_ROLE: (u16, u64, &str) = (400, 9, "etcdserver: role name not found");

const PASSWORD: &str = "open-sesame-8317";

fn token(client: &mut Client, name: &str, password: &str) -> String {
    let answer = client.call("/v3/auth/authenticate", &json!({"name": name, "password": password}));
    answer["token"].as_str().unwrap().to_owned()
}

impl Member {
    /// Root, and ann, who may read `k` and read and write from `a` up to `b`; authentication is on, and the client is root.
    fn with_users(flags: &[&str]) -> Member {
        let mut member = Member::start_with(flags);
        for (path, body) in [
            ("/v3/auth/user/add", json!({"name": "root", "password": PASSWORD})),
            ("/v3/auth/user/add", json!({"name": "ann", "password": "ann"})),
            ("/v3/auth/user/grant", json!({"user": "root", "role": "root"})),
            ("/v3/auth/role/add", json!({"name": "some"})),
            ("/v3/auth/role/grant", json!({"name": "some", "perm": {"key": "aw=="}})),
            (
                "/v3/auth/role/grant",
                json!({"name": "some", "perm": {"permType": "READWRITE", "key": "YQ==", "range_end": "Yg=="}}),
            ),
            ("/v3/auth/user/grant", json!({"user": "ann", "role": "some"})),
            ("/v3/auth/enable", json!({})),
        ] {
            member.client.call(path, &body);
        }
        member.become_user("root", PASSWORD);
        member
    }

    fn become_user(&mut self, name: &str, password: &str) {
        self.client.set_token(None);
        let token = token(&mut self.client, name, password);
        self.client.set_token(Some(token));
    }

    /// A client of ann's.
    fn ann(&self) -> Client {
        let mut client = self.server.client();
        let token = token(&mut client, "ann", "ann");
        client.set_token(Some(token));
        client
    }
}

#[test]
fn setting_up_users_and_roles() {
    let mut m = Member::start_with(&CHEAP);
    m.expect("/v3/auth/status", "{}", r#"{"header":@1,"authRevision":"1"}"#);
    m.expect_error("/v3/auth/enable", "{}", (400, 9, "etcdserver: root user does not exist"));
    m.expect("/v3/auth/disable", "{}", r#"{"header":@1}"#);
    m.expect_error(
        "/v3/auth/authenticate",
        r#"{"name":"root","password":"x"}"#,
        (400, 9, "etcdserver: authentication is not enabled"),
    );
    m.expect_error("/v3/auth/user/add", "{}", EMPTY);
    m.expect("/v3/auth/user/add", r#"{"name":"root"}"#, r#"{"header":@1}"#);
    m.expect_error(
        "/v3/auth/user/add",
        r#"{"name":"root","password":"pw"}"#,
        (400, 9, "etcdserver: user name already exists"),
    );
    m.expect("/v3/auth/user/add", r#"{"name":"cert","options":{"no_password":true}}"#, r#"{"header":@1}"#);
    let password = |length| format!(r#"{{"name":"long","password":"{}"}}"#, "p".repeat(length));
    let (status, code) = refusal(400, 3);
    m.expect_error("/v3/auth/user/add", &password(73), (status, code, "bcrypt: password length exceeds 72 bytes"));
    m.expect("/v3/auth/user/add", &password(72), r#"{"header":@1}"#);
    m.expect("/v3/auth/user/get", r#"{"name":"root"}"#, r#"{"header":@1}"#);
    m.expect_error("/v3/auth/user/get", r#"{"name":"zz"}"#, NO_USER);
    m.expect_error("/v3/auth/user/get", "{}", NO_USER);
    m.expect("/v3/auth/user/list", "{}", r#"{"header":@1,"users":["cert","long","root"]}"#);
    m.expect_error("/v3/auth/enable", "{}", (400, 9, "etcdserver: root user does not have root role"));
    m.expect("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#, r#"{"header":@1}"#);
    m.expect_error("/v3/auth/user/grant", r#"{"user":"root","role":"zz"}"#, NO_ROLE);
    m.expect_error("/v3/auth/user/grant", r#"{"user":"zz","role":"zz"}"#, NO_USER);
    m.expect_error("/v3/auth/role/get", r#"{"role":"root"}"#, NO_ROLE);
    m.expect("/v3/auth/role/list", "{}", r#"{"header":@1}"#);
    m.expect("/v3/auth/role/add", r#"{"name":"root"}"#, r#"{"header":@1}"#);
    let everything = r#"{"header":@1,"perm":[{"permType":"READWRITE","range_end":"AA=="}]}"#;
    m.expect("/v3/auth/role/get", r#"{"role":"root"}"#, everything);
    m.expect_error("/v3/auth/role/add", "{}", (400, 3, "etcdserver: role name is empty"));
    m.expect("/v3/auth/role/add", r#"{"name":"r"}"#, r#"{"header":@1}"#);
    m.expect_error("/v3/auth/role/add", r#"{"name":"r"}"#, (400, 9, "etcdserver: role name already exists"));
    m.expect_error("/v3/auth/role/grant", r#"{"name":"r"}"#, (400, 3, "etcdserver: permission not given"));
    m.expect_error("/v3/auth/role/grant", r#"{"name":"zz","perm":{"key":"YQ=="}}"#, NO_ROLE);
    for perm in [r#"{"key":""}"#, r#"{"key":"Yg==","range_end":"YQ=="}"#, r#"{"key":"YQ==","range_end":"YQ=="}"#] {
        m.expect_error("/v3/auth/role/grant", &format!(r#"{{"name":"r","perm":{perm}}}"#), INVALID);
    }
    for perm in [
        r#"{"key":"YQ=="}"#,
        r#"{"permType":"WRITE","key":"YQ=="}"#,
        r#"{"permType":2,"key":"YQ==","range_end":"AA=="}"#,
        r#"{"permType":"READ","key":"AA==","range_end":"AA=="}"#,
    ] {
        m.expect("/v3/auth/role/grant", &format!(r#"{{"name":"r","perm":{perm}}}"#), r#"{"header":@1}"#);
    }
    m.expect(
        "/v3/auth/role/get",
        r#"{"role":"r"}"#,
        r#"{"header":@1,"perm":[{"key":"AA==","range_end":"AA=="},{"permType":"WRITE","key":"YQ=="},{"permType":"READWRITE","key":"YQ==","range_end":"AA=="}]}"#,
    );
    m.expect("/v3/auth/role/revoke", r#"{"role":"r","key":"YQ==","range_end":"AA=="}"#, r#"{"header":@1}"#);
    m.expect_error(
        "/v3/auth/role/revoke",
        r#"{"role":"r","key":"YQ==","range_end":"eg=="}"#,
        (400, 9, "etcdserver: permission is not granted to the role"),
    );
    m.expect_error("/v3/auth/role/revoke", r#"{"role":"zz","key":"YQ=="}"#, NO_ROLE);
    m.expect_error(
        "/v3/auth/user/revoke",
        r#"{"name":"root","role":"r"}"#,
        (400, 9, "etcdserver: role is not granted to the user"),
    );
    m.expect_error("/v3/auth/user/revoke", r#"{"name":"zz","role":"r"}"#, NO_USER);
    m.expect("/v3/auth/user/grant", r#"{"user":"cert","role":"r"}"#, r#"{"header":@1}"#);
    m.expect("/v3/auth/user/get", r#"{"name":"cert"}"#, r#"{"header":@1,"roles":["r"]}"#);
    m.expect_error("/v3/auth/user/changepw", r#"{"name":"zz","password":"x"}"#, NO_USER);
    m.expect("/v3/auth/user/changepw", r#"{"name":"root","password":"pw"}"#, r#"{"header":@1}"#);
    m.expect_error("/v3/auth/user/delete", r#"{"name":"zz"}"#, NO_USER);
    m.expect_error("/v3/auth/role/delete", r#"{"role":"zz"}"#, NO_ROLE);
    // Users 3, roles 2, role grants 2, permissions 4 and 1 revoked, a password: fourteen changes, from 1.
    m.expect("/v3/auth/status", "{}", r#"{"header":@1,"authRevision":"14"}"#);
    m.expect("/v3/auth/enable", "{}", r#"{"header":@1}"#);
    m.expect("/v3/auth/status", "{}", r#"{"header":@1,"enabled":true,"authRevision":"14"}"#);
}

#[test]
fn living_with_it_and_taking_it_down() {
    let mut m = Member::with_users(&CHEAP);
    let revision = m.call("/v3/auth/status", "{}")["authRevision"].as_str().unwrap().to_owned();
    m.expect_error("/v3/auth/user/delete", r#"{"name":"root"}"#, INVALID);
    m.expect_error("/v3/auth/user/revoke", r#"{"name":"root","role":"root"}"#, INVALID);
    m.expect_error("/v3/auth/role/delete", r#"{"role":"root"}"#, INVALID);
    m.expect("/v3/auth/user/add", r#"{"name":"cert","options":{"no_password":true}}"#, r#"{"header":@1}"#);
    m.expect("/v3/auth/enable", "{}", r#"{"header":@1}"#);

    m.client.set_token(None);
    m.expect_error("/v3/auth/enable", "{}", EMPTY);
    m.expect_error("/v3/auth/authenticate", r#"{"name":"root","password":"no"}"#, FAILED);
    m.expect_error("/v3/auth/authenticate", r#"{"name":"zz","password":"no"}"#, FAILED);
    m.expect_error("/v3/auth/authenticate", "{}", FAILED);
    let (status, code) = refusal(400, 3);
    m.expect_error(
        "/v3/auth/authenticate",
        r#"{"name":"cert","password":"no"}"#,
        (status, code, "auth: authentication failed, password was given for no password user"),
    );
    let next: u64 = revision.parse::<u64>().unwrap() + 1;
    m.expect("/v3/auth/status", "{}", &format!(r#"{{"header":@1,"enabled":true,"authRevision":"{next}"}}"#));
    m.client.set_token(Some("bad.1".into()));
    m.expect_error("/v3/auth/status", "{}", BAD_TOKEN);
    m.expect_error("/v3/kv/range", r#"{"key":"aw=="}"#, BAD_TOKEN);
    let answer = m.client.post("/v3/kv/range", r#"{"key":"aw=="}"#).unwrap();
    assert_eq!(answer.header("www-authenticate"), Some("etcdserver: invalid auth token"));

    // What ann may see of users and roles: herself and hers.
    m.become_user("ann", "ann");
    m.expect("/v3/auth/user/get", r#"{"name":"ann"}"#, r#"{"header":@1,"roles":["some"]}"#);
    m.expect(
        "/v3/auth/role/get",
        r#"{"role":"some"}"#,
        r#"{"header":@1,"perm":[{"permType":"READWRITE","key":"YQ==","range_end":"Yg=="},{"key":"aw=="}]}"#,
    );
    for (path, body) in [
        ("/v3/auth/user/get", r#"{"name":"root"}"#),
        ("/v3/auth/user/get", r#"{"name":"zz"}"#),
        ("/v3/auth/role/get", r#"{"role":"zz"}"#),
        ("/v3/auth/user/list", "{}"),
        ("/v3/auth/role/list", "{}"),
        ("/v3/auth/user/add", r#"{"name":"q"}"#),
        ("/v3/auth/user/changepw", r#"{"name":"ann","password":"other"}"#),
        ("/v3/auth/disable", "{}"),
        ("/v3/auth/enable", "{}"),
        ("/v3/kv/compaction", r#"{"revision":"1"}"#),
        ("/v3/maintenance/alarm", r#"{"action":"DEACTIVATE"}"#),
    ] {
        m.expect_error(path, body, DENIED);
    }
    for path in ["/v3/maintenance/status", "/v3/maintenance/alarm", "/v3/cluster/member/list", "/v3/lease/leases"] {
        m.call(path, "{}");
    }

    // A new password ends the tokens of the old one; no authentication ends them all.
    let mut ann = m.ann();
    m.become_user("root", PASSWORD);
    m.call("/v3/auth/user/changepw", r#"{"name":"ann","password":"other"}"#);
    assert_eq!(ann.post("/v3/kv/range", r#"{"key":"aw=="}"#).unwrap().status, 401);
    m.call("/v3/auth/disable", "{}");
    m.call("/v3/kv/range", r#"{"key":"eg=="}"#);
    m.client.set_token(None);
    m.expect("/v3/auth/status", "{}", &format!(r#"{{"header":@1,"authRevision":"{}"}}"#, next + 2));
    m.call("/v3/auth/enable", "{}");
    m.expect_error("/v3/kv/range", r#"{"key":"eg=="}"#, EMPTY);
}

#[test]
fn keys_are_open_as_far_as_roles_say() {
    let mut m = Member::with_users(&CHEAP);
    m.call("/v3/lease/grant", r#"{"TTL":"1000","ID":"99"}"#);
    m.call("/v3/kv/put", r#"{"key":"eg==","lease":"99"}"#);
    for (lease, key) in [("97", ""), ("96", "aw=="), ("95", "YQ==")] {
        m.call("/v3/lease/grant", &json!({"TTL": "1000", "ID": lease}).to_string());
        if !key.is_empty() {
            m.call("/v3/kv/put", &json!({"key": key, "lease": lease}).to_string());
        }
    }
    m.become_user("ann", "ann");
    for (path, body) in [
        ("/v3/kv/range", r#"{"key":"aw=="}"#),
        ("/v3/kv/put", r#"{"key":"YQ==","value":"MQ==","prev_kv":true}"#),
        ("/v3/kv/txn", r#"{"success":[{"request_range":{"key":"aw=="}}]}"#),
        ("/v3/kv/txn", r#"{"compare":[{"key":"aw==","target":"VERSION"}]}"#),
        ("/v3/kv/txn", "{}"),
        ("/v3/lease/timetolive", r#"{"ID":"99"}"#),
        ("/v3/lease/timetolive", r#"{"ID":"990","keys":true}"#),
        ("/v3/lease/timetolive", r#"{"ID":"96","keys":true}"#),
        ("/v3/lease/keepalive", r#"{"ID":"97"}"#),
        ("/v3/lease/keepalive", r#"{"ID":"95"}"#),
        ("/v3/lease/keepalive", r#"{"ID":"990"}"#),
    ] {
        m.call(path, body);
    }
    for lease in [99, 96] {
        let answer = m.client.post("/v3/lease/keepalive", json!({ "ID": lease }).to_string()).unwrap();
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (403, &Value::from(DENIED.2)), "{lease}");
    }
    for (path, body) in [
        ("/v3/kv/range", r#"{"key":"eg=="}"#),
        ("/v3/kv/range", r#"{"key":"aw==","range_end":"AA=="}"#),
        ("/v3/kv/range", r#"{"key":"Yg==","range_end":"YQ=="}"#),
        ("/v3/kv/range", r#"{"key":"eg==","serializable":true}"#),
        ("/v3/kv/put", r#"{"key":"aw=="}"#),
        ("/v3/kv/put", r#"{"key":"YQ==","lease":"99"}"#),
        ("/v3/kv/deleterange", r#"{"key":"aw=="}"#),
        ("/v3/kv/txn", r#"{"success":[{"request_range":{"key":"eg=="}}]}"#),
        ("/v3/kv/txn", r#"{"failure":[{"request_range":{"key":"eg==","serializable":true}}]}"#),
        ("/v3/kv/txn", r#"{"failure":[{"request_put":{"key":"aw=="}}]}"#),
        ("/v3/kv/txn", r#"{"compare":[{"key":"aw==","range_end":"eg==","target":"VERSION"}]}"#),
        ("/v3/kv/txn", r#"{"success":[{"request_txn":{"failure":[{"request_put":{"key":"aw=="}}]}}]}"#),
        ("/v3/lease/revoke", r#"{"ID":"99"}"#),
        ("/v3/lease/timetolive", r#"{"ID":"99","keys":true}"#),
        ("/v3/lease/leases", "{}"),
    ] {
        m.expect_error(path, body, DENIED);
    }
    m.expect_error("/v3/kv/range", "{}", (400, 3, "etcdserver: key is not provided"));
    m.expect_error("/v3/kv/put", r#"{"key":"YQ==","lease":"98"}"#, (404, 5, "etcdserver: requested lease not found"));
    m.become_user("root", PASSWORD);
    m.call("/v3/lease/revoke", r#"{"ID":"99"}"#);
    m.become_user("ann", "ann");
    let leases = m.call("/v3/lease/leases", "{}")["leases"].as_array().unwrap().len();
    assert_eq!(leases, 3, "whose keys may all be read");
}

fn watch(client: Client, create: &Value) -> crate::support::Lines {
    client.open_lines("/v3/watch", &json!({ "create_request": create }).to_string())
}

/// GHSA-xg4h-6gfc-h4m8: who may read one key could watch all from it on.
#[test]
fn ghsa_xg4h_6gfc_h4m8_a_watch_without_an_end_needs_all_it_could_see() {
    let m = Member::with_users(&CHEAP);
    let denied = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    for create in [
        json!({"key": "aw==", "range_end": "AA=="}),
        json!({"key": "aw==", "range_end": "bA=="}),
        json!({"key": "eg=="}),
        json!({"key": "YQ==", "range_end": "AA=="}),
        json!({"key": "Yg==", "range_end": "YQ=="}),
        json!({}),
        json!({"range_end": "AA=="}),
    ] {
        let refused = &watch(m.ann(), &create).next_json()["result"];
        let expected = json!({
            "header": refused["header"], "watch_id": "-1", "created": true, "canceled": true, "cancel_reason": denied,
        });
        assert_eq!(*refused, expected, "{create}");
    }
    for create in [json!({"key": "aw=="}), json!({"key": "YQ==", "range_end": "Yg=="})] {
        let created = &watch(m.ann(), &create).next_json()["result"];
        assert_eq!(*created, json!({"header": created["header"], "created": true}), "{create}");
    }
    let old = &watch(m.ann(), &json!({"key": "eg==", "start_revision": "-5"})).next_json()["result"];
    assert_eq!(old["cancel_reason"], "etcdserver: mvcc: required revision has been compacted");
}

#[test]
fn a_watch_ends_when_its_permission_does() {
    if is_foreign() {
        return; // etcd goes on delivering.
    }
    let mut m = Member::with_users(&CHEAP);
    let mut ann = watch(m.ann(), &json!({"key": "aw=="}));
    let mut other = watch(m.ann(), &json!({"key": "YQ=="}));
    assert_eq!(ann.next_json()["result"]["created"], Value::from(true));
    assert_eq!(other.next_json()["result"]["created"], Value::from(true));
    m.call("/v3/kv/put", r#"{"key":"aw==","value":"MQ=="}"#);
    assert_eq!(ann.next_json()["result"]["events"][0]["kv"]["value"], Value::from("MQ=="));
    m.call("/v3/auth/role/revoke", r#"{"role":"some","key":"aw=="}"#);
    m.call("/v3/kv/put", r#"{"key":"aw==","value":"Mg=="}"#);
    m.call("/v3/kv/put", r#"{"key":"YQ==","value":"Mw=="}"#);
    let end = &ann.next_json()["result"];
    assert_eq!((&end["canceled"], &end["events"]), (&Value::from(true), &Value::Null), "{end}");
    assert_eq!(end["cancel_reason"], "rpc error: code = PermissionDenied desc = etcdserver: permission denied");
    assert_eq!(other.next_json()["result"]["events"][0]["kv"]["value"], Value::from("Mw=="), "the other goes on");
}

#[test]
fn signed_tokens_are_of_their_revision() {
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("secret");
    fs::write(&key, "a secret of some length").unwrap();
    let flag = format!("jwt,pub-key={0},priv-key={0},sign-method=HS256,ttl=10m", key.display());
    let mut m = Member::with_users(&["--bcrypt-cost", "4", "--auth-token", &flag]);
    let mut ann = m.ann();
    ann.call("/v3/kv/range", &json!({"key": "aw=="}));
    m.call("/v3/auth/role/add", r#"{"name":"one"}"#);
    m.call("/v3/auth/role/add", r#"{"name":"two"}"#);
    for (path, body) in [("/v3/kv/range", r#"{"key":"aw=="}"#), ("/v3/kv/put", r#"{"key":"YQ=="}"#)] {
        let answer = ann.post(path, body).unwrap();
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["message"], "etcdserver: revision of auth store is old");
    }
    m.ann().call("/v3/kv/range", &json!({"key": "aw=="}));
}

#[test]
fn keys_that_are_none_are_told_at_the_start() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    for (flag, told) in [
        ("jwt,sign-method=RS256,priv-key=/nowhere/key.pem", "/nowhere/key.pem"),
        ("jwt,sign-method=ROT13,priv-key=Cargo.toml", "ROT13"),
        ("jwt", "sign-method"),
        ("magic", "magic"),
    ] {
        let (status, said) = Server::refused_with(&data.path().join("data"), &["--auth-token", flag]);
        assert!(!status.success() && said.contains(told) && said.contains("--auth-token"), "{flag}: {said}");
    }
}

#[test]
fn a_restart_keeps_who_is_who() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("data");
    let server = Server::start_with(&dir, &CHEAP);
    let mut client = server.client();
    for (path, body) in [
        ("/v3/auth/user/add", json!({"name": "root", "password": PASSWORD})),
        ("/v3/auth/user/grant", json!({"user": "root", "role": "root"})),
        ("/v3/auth/role/add", json!({"name": "some"})),
        ("/v3/auth/enable", json!({})),
    ] {
        client.call(path, &body);
    }
    let before = client.call("/v3/auth/status", &json!({}));
    server.kill();

    let server = Server::start_with(&dir, &CHEAP);
    let mut client = server.client();
    let after = client.call("/v3/auth/status", &json!({}));
    assert_eq!((&after["enabled"], &after["authRevision"]), (&before["enabled"], &before["authRevision"]));
    assert_eq!(client.post("/v3/kv/range", r#"{"key":"aw=="}"#).unwrap().status, 400);
    let root = token(&mut client, "root", PASSWORD);
    client.set_token(Some(root));
    assert_eq!(client.call("/v3/auth/user/list", &json!({}))["users"], json!(["root"]));
    assert_eq!(client.call("/v3/auth/role/list", &json!({}))["roles"], json!(["some"]));
}

/// CVE-2021-28235: a password in clear text was kept after its user had authenticated.
#[test]
fn cve_2021_28235_a_password_is_kept_nowhere() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("data");
    let flags: &[&str] = if is_foreign() { &CHEAP } else { &["--bcrypt-cost", "4", "--log-level", "debug"] };
    let server = Server::start_with(&dir, flags);
    let mut client = server.client();
    client.call("/v3/auth/user/add", &json!({"name": "root", "password": PASSWORD}));
    client.call("/v3/auth/user/grant", &json!({"user": "root", "role": "root"}));
    client.call("/v3/auth/enable", &json!({}));
    let root = token(&mut client, "root", PASSWORD);
    client.set_token(Some(root));
    client.call("/v3/auth/user/changepw", &json!({"name": "root", "password": PASSWORD}));
    client.set_token(None);
    token(&mut client, "root", PASSWORD);
    assert!(!server.output().contains(PASSWORD));
    server.kill();
    let mut files = Vec::new();
    gather(&dir, &mut files);
    assert!(files.len() >= 2, "the log and the data file at least");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

fn gather(dir: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { gather(&path, files) } else { files.push(path) }
    }
}
