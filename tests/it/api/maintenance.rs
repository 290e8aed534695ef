//! What operators do: hashes, snapshots, defragmentation, leadership, downgrades, members. Bodies are etcd 3.7.3's.

use std::sync::atomic::{AtomicBool, Ordering};

use base64_simd::STANDARD;
use serde_json::{Value, json};

use super::Member;
use crate::support::{Server, is_foreign, refusal};

const HASH_KV: &str = "/v3/maintenance/hashkv";
const DOWNGRADE: &str = "/v3/maintenance/downgrade";
const TRANSFER: &str = "/v3/maintenance/transfer-leadership";
const ADD: &str = "/v3/cluster/member/add";
const UPDATE: &str = "/v3/cluster/member/update";
const REMOVE: &str = "/v3/cluster/member/remove";
const PROMOTE: &str = "/v3/cluster/member/promote";

#[test]
fn hashes_of_keys_are_etcds() {
    let mut member = Member::start();
    member.call("/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    let one = r#"{"header":@2,"hash":3305255506,"compact_revision":"-1","hash_revision":"2"}"#;
    member.expect(HASH_KV, "{}", one);
    member.expect(HASH_KV, r#"{"revision":"2"}"#, one);
    let none = r#"{"header":@2,"hash":1084519789,"compact_revision":"-1","hash_revision":"-9"}"#;
    member.expect(HASH_KV, r#"{"revision":"-9"}"#, none);
    let future = (400, 11, "etcdserver: mvcc: required revision is a future revision");
    member.expect_error(HASH_KV, r#"{"revision":"3"}"#, future);
    member.call("/v3/kv/put", r#"{"key":"Zm9v","value":"YmF6"}"#);
    member.call("/v3/kv/compaction", r#"{"revision":"3","physical":true}"#);
    member.expect_error(
        HASH_KV,
        r#"{"revision":"2"}"#,
        (400, 11, "etcdserver: mvcc: required revision has been compacted"),
    );
    let hash = member.call("/v3/maintenance/hash", "{}");
    assert_eq!(hash["header"]["revision"], json!("3"));
    assert!(hash["hash"].is_u64(), "{hash}");
    assert_eq!(member.call("/v3/maintenance/hash", "{}")["hash"], hash["hash"]);
}

#[test]
fn leadership_can_only_go_to_who_has_it() {
    let mut member = Member::start();
    let own = format!(r#"{{"targetID":"{}"}}"#, member.member_id);
    member.expect(TRANSFER, &own, "{}");
    for body in [r#"{"targetID":"77"}"#, "{}"] {
        member.expect_error(TRANSFER, body, (400, 9, "etcdserver: bad leader transferee"));
    }
}

#[test]
fn downgrades_are_checked_begun_and_called_off() {
    let mut member = Member::start();
    let accepted = r#"{"header":@1,"version":"3.7"}"#;
    for version in ["3.6", "3.6.0", "3.6.1", "3.6.0-rc.1", "03.6.1"] {
        member.expect(DOWNGRADE, &format!(r#"{{"action":"VALIDATE","version":"{version}"}}"#), accepted);
    }
    for version in ["3.7.0", "3.5.0", "3.8.0"] {
        let body = format!(r#"{{"action":"ENABLE","version":"{version}"}}"#);
        member.expect_error(DOWNGRADE, &body, (400, 3, "etcdserver: invalid downgrade target version"));
    }
    for body in ["{}", r#"{"version":"abc"}"#] {
        member.expect_error(DOWNGRADE, body, (400, 3, "etcdserver: wrong downgrade target version format"));
    }
    let (status, code) = refusal(400, 3);
    member.expect_error(DOWNGRADE, r#"{"action":7}"#, (status, code, "etcdserver: unknown method"));
    member.expect(DOWNGRADE, r#"{"action":"CANCEL"}"#, accepted);
    member.expect(DOWNGRADE, r#"{"action":"ENABLE","version":"3.6"}"#, accepted);
    let status = member.call("/v3/maintenance/status", "{}");
    assert_eq!(status["downgradeInfo"], json!({"enabled": true, "targetVersion": "3.6.0"}));
    let busy = (400, 9, "etcdserver: cluster has a downgrade job in progress");
    member.expect_error(DOWNGRADE, r#"{"action":"VALIDATE","version":"3.6"}"#, busy);
    member.expect(DOWNGRADE, r#"{"action":"CANCEL"}"#, accepted);
    assert_eq!(member.call("/v3/maintenance/status", "{}")["downgradeInfo"], json!({}));
}

#[test]
fn a_learner_can_be_added_changed_and_removed() {
    let mut member = Member::start();
    let own = member.member_id.clone();
    let learner = r#"{"peerURLs":["http://127.0.0.1:3333"],"isLearner":true}"#;
    let invalid = (400, 3, "etcdserver: given member URLs are invalid");
    for urls in [r#"[]"#, r#"["abc"]"#, r#"["http://127.0.0.1:1/a"]"#] {
        member.expect_error(ADD, &format!(r#"{{"peerURLs":{urls},"isLearner":true}}"#), invalid);
    }
    let taken = r#"{"peerURLs":["http://localhost:2380"],"isLearner":true}"#;
    member.expect_error(ADD, taken, (400, 9, "etcdserver: Peer URLs already exists"));

    let added = member.call(ADD, learner);
    let id = added["member"]["ID"].as_str().unwrap().to_owned();
    assert_eq!(added["member"], json!({"ID": id, "peerURLs": ["http://127.0.0.1:3333"], "isLearner": true}));
    assert_eq!(added["members"].as_array().unwrap().len(), 2, "{added}");
    assert_eq!(added["header"].get("revision"), None, "{added}");
    let another = r#"{"peerURLs":["http://127.0.0.1:4444"],"isLearner":true}"#;
    member.expect_error(ADD, another, (400, 9, "etcdserver: too many learner members in cluster"));

    let of = |id: &str| format!(r#"{{"ID":"{id}"}}"#);
    let unready = "etcdserver: can only promote a learner member which is in sync with leader";
    member.expect_error(PROMOTE, &of(&id), (400, 9, unready));
    member.expect_error(PROMOTE, &of(&own), (400, 9, "etcdserver: can only promote a learner member"));
    let unknown = (404, 5, "etcdserver: member not found");
    for path in [PROMOTE, REMOVE] {
        member.expect_error(path, &of("77"), unknown);
    }
    member.expect_error(TRANSFER, &format!(r#"{{"targetID":"{id}"}}"#), (400, 9, "etcdserver: bad leader transferee"));

    let update = |id: &str, url: &str| format!(r#"{{"ID":"{id}","peerURLs":["{url}"]}}"#);
    let updated = member.call(UPDATE, &update(&id, "http://127.0.0.1:5555"));
    let changed =
        |members: &Value| members.as_array().unwrap().iter().any(|m| m["peerURLs"] == json!(["http://127.0.0.1:5555"]));
    assert!(changed(&updated["members"]), "{updated}");
    member.expect_error(UPDATE, &update("77", "http://127.0.0.1:6666"), unknown);
    let taken = update(&own, "http://127.0.0.1:5555");
    member.expect_error(UPDATE, &taken, (400, 9, "etcdserver: Peer URLs already exists"));

    let too_few = "etcdserver: re-configuration failed due to not enough started members";
    let (status, code) = refusal(400, 9);
    member.expect_error(REMOVE, &of(&own), (status, code, too_few));
    let left = member.call(REMOVE, &of(&id));
    assert_eq!(left["members"].as_array().unwrap().len(), 1, "{left}");
    member.expect_error(REMOVE, &of(&id), unknown);
    member.expect_error(UPDATE, &update(&id, "http://127.0.0.1:7777"), unknown);
}

#[test]
fn members_and_downgrades_survive_a_restart() {
    if is_foreign() {
        // Without the others an etcd does not start again where its peer URLs were changed.
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("data");
    let server = Server::start(&dir);
    let mut client = server.client();
    let list = client.call("/v3/cluster/member/list", &json!({}));
    let own = list["members"][0]["ID"].clone();
    client.call(UPDATE, &json!({"ID": own, "peerURLs": ["http://127.0.0.1:2399"]}));
    client.call(ADD, &json!({"peerURLs": ["http://127.0.0.1:3333"], "isLearner": true}));
    client.call(DOWNGRADE, &json!({"action": "ENABLE", "version": "3.6"}));
    let before = client.call("/v3/cluster/member/list", &json!({}))["members"].clone();
    server.kill();

    let server = Server::start(&dir);
    let mut client = server.client();
    let mut after = client.call("/v3/cluster/member/list", &json!({}))["members"].clone();
    // The port is another one.
    for (old, new) in before.as_array().unwrap().iter().zip(after.as_array_mut().unwrap()) {
        if let Some(urls) = old.get("clientURLs") {
            new["clientURLs"] = urls.clone();
        }
    }
    assert_eq!(after, before);
    let status = client.call("/v3/maintenance/status", &json!({}));
    assert_eq!(status["downgradeInfo"], json!({"enabled": true, "targetVersion": "3.6.0"}));
}

#[test]
fn a_snapshot_is_sent_in_parts_with_their_hash_behind() {
    let mut member = Member::start();
    for n in 0..40 {
        let value = STANDARD.encode_to_string(vec![b'x'; 4_000]);
        member.call(
            "/v3/kv/put",
            &json!({"key": STANDARD.encode_to_string(format!("k{n}")), "value": value}).to_string(),
        );
    }
    let answer = member.client.post("/v3/maintenance/snapshot", "{}").unwrap();
    assert_eq!(answer.status, 200);
    let text = answer.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut file = Vec::new();
    let total: u64 = lines[..lines.len() - 1].iter().map(|line| blob(line).len() as u64).sum();
    for (at, line) in lines.iter().enumerate() {
        let result = &line["result"];
        assert_eq!(result["version"], json!("3.7.0"));
        let part = blob(line);
        if at + 1 == lines.len() {
            assert_eq!((part.len(), result.get("remaining_bytes")), (32, None));
            assert_eq!(part, sha256(&file), "the hash of all bytes before");
        } else {
            file.extend_from_slice(&part);
            let left = total - file.len() as u64;
            let said = result.get("remaining_bytes").map_or("0", |left| left.as_str().unwrap());
            assert_eq!(said, left.to_string());
            assert!(part.len() == 32_768 || left == 0, "{} bytes, {left} left", part.len());
        }
    }
    assert_eq!(file.len() % 4_096, 0);
    assert_eq!(&file[16..20], [0xED, 0xDA, 0x0C, 0xED]);
}

fn blob(line: &Value) -> Vec<u8> {
    STANDARD.decode_to_vec(line["result"]["blob"].as_str().unwrap()).unwrap()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).to_vec()
}

#[test]
fn defragmenting_shrinks_the_file_while_requests_go_on() {
    let mut member = Member::start();
    let value = STANDARD.encode_to_string(vec![b'x'; 20_000]);
    for _ in 0..300 {
        member.call("/v3/kv/put", &json!({"key": "Zm9v", "value": value}).to_string());
    }
    member.call("/v3/kv/compaction", r#"{"revision":"301","physical":true}"#);
    let size = |member: &mut Member| {
        let status = member.call("/v3/maintenance/status", "{}");
        status["dbSize"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let before = size(&mut member);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut client = member.server.client();
        let over = &over;
        scope.spawn(move || {
            for n in 0_u32.. {
                let key = STANDARD.encode_to_string("n");
                let value = STANDARD.encode_to_string(n.to_string());
                client.call("/v3/kv/put", &json!({"key": key, "value": value}));
                let read = client.call("/v3/kv/range", &json!({"key": key}));
                assert_eq!(read["kvs"][0]["value"], json!(value));
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for _ in 0..3 {
            member.expect("/v3/maintenance/defragment", "{}", "{}");
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(size(&mut member) < before / 2, "{before} before, {} after", size(&mut member));
    let metrics = member.client.get("/metrics").unwrap().text();
    assert!(metrics.contains("etcd_disk_backend_defrag_duration_seconds_count 3\n"), "{metrics}");
    assert!(metrics.contains("etcd_disk_defrag_inflight 0\n"), "{metrics}");
}
