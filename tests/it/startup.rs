//! Starting and stopping: what a member does with a data directory that is in use, torn, or damaged, and how it ends.
//!
//! Most of these promises go beyond etcd's, and are not asked of another program.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{ANSWER_MAX, Client, Server, is_foreign, wait_until};

/// Keys `key-0`, `key-1`, … as base64.
fn key(number: usize) -> String {
    base64(format!("key-{number}").as_bytes())
}

fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

fn put_keys(client: &mut Client, count: usize, value_bytes: usize) {
    let value = base64(&vec![b'v'; value_bytes]);
    for number in 0..count {
        client.call("/v3/kv/put", &json!({"key": key(number), "value": value}));
    }
}

fn assert_keys(client: &mut Client, count: usize) {
    for number in 0..count {
        let answer = client.call("/v3/kv/range", &json!({"key": key(number)}));
        assert_eq!(answer["count"], json!("1"), "key-{number}: {answer}");
    }
}

fn newest_segment(data_dir: &Path) -> PathBuf {
    let mut segments: Vec<PathBuf> = fs::read_dir(data_dir.join("member/wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wal"))
        .collect();
    segments.sort();
    segments.pop().expect("a log has a segment")
}

/// Where the records of a segment end: no record ends in a zero byte before its padding to eight bytes.
fn records_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1).next_multiple_of(8)
}

#[test]
fn first_words_say_where_everything_is() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let data_dir = data.path().join("data");
    let server = Server::start(&data_dir);
    let said = server.output();
    assert!(said.contains(&format!("http://{}", server.address())), "where it listens: {said}");
    assert!(said.contains(&data_dir.display().to_string()), "where the data is: {said}");
    assert!(said.contains("curl "), "one line to try: {said}");
}

#[test]
fn second_process_is_refused() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    put_keys(&mut server.client(), 3, 10);
    let (status, said) = Server::refused(data.path());
    assert!(!status.success(), "{said}");
    assert!(said.contains("in use by another process"), "{said}");
    // The first is not disturbed.
    assert_keys(&mut server.client(), 3);
}

#[test]
fn taken_port_is_refused_and_named() {
    if is_foreign() {
        return;
    }
    let first = tempfile::tempdir().unwrap();
    let server = Server::start(first.path());
    let second = tempfile::tempdir().unwrap();
    let address = server.address();
    let (status, said) = Server::refused_with(second.path(), &["--listen-client-urls", &format!("http://{address}")]);
    assert!(!status.success(), "{said}");
    assert!(said.contains(&address.to_string()), "{said}");
}

#[test]
fn unacknowledged_half_record_at_the_end_of_the_log_is_cut_off() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    put_keys(&mut server.client(), 10, 100);
    server.kill();

    let segment = newest_segment(data.path());
    let bytes = fs::read(&segment).unwrap();
    let end = records_end(&bytes);
    // The head and the first bytes of a record, as a crash in the middle of a write leaves them.
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&bytes[..11], end as u64).unwrap();
    drop(file);

    let server = Server::start(data.path());
    let said = server.output();
    assert!(said.contains(&*segment.to_string_lossy()), "says which file it repaired: {said}");
    assert!(said.contains(&end.to_string()), "says at which offset: {said}");
    let mut client = server.client();
    assert_keys(&mut client, 10);
    put_keys(&mut client, 1, 5);
    server.kill();
    // Repaired for good.
    assert_keys(&mut Server::start(data.path()).client(), 10);
}

#[test]
fn damage_in_the_middle_of_the_log_is_refused() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    put_keys(&mut server.client(), 50, 1000);
    server.kill();

    let segment = newest_segment(data.path());
    let bytes = fs::read(&segment).unwrap();
    let middle = records_end(&bytes) / 2;
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[bytes[middle] ^ 0x10], middle as u64).unwrap();
    drop(file);

    let (status, said) = Server::refused(data.path());
    assert!(!status.success(), "{said}");
    assert!(said.contains(&*segment.to_string_lossy()), "says which file: {said}");
    assert!(said.contains("offset"), "says where: {said}");
    // Nothing was touched: the same damage is still there to be looked at.
    assert_eq!(fs::read(&segment).unwrap()[middle], bytes[middle] ^ 0x10);
    let (status, _) = Server::refused(data.path());
    assert!(!status.success());
}

#[test]
fn file_without_a_good_meta_page_is_refused() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    put_keys(&mut server.client(), 3, 10);
    server.terminate();
    assert!(server.wait().success());

    let db = data.path().join("member/snap/db");
    let file = OpenOptions::new().read(true).write(true).open(&db).unwrap();
    for page in 0..2 {
        // The transaction's number, which the page's checksum covers.
        let offset = page * 4096 + 64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }
    drop(file);

    let (status, said) = Server::refused(data.path());
    assert!(!status.success(), "{said}");
    assert!(said.contains(&*db.to_string_lossy()), "says which file: {said}");
    assert!(said.contains("meta"), "says what is wrong: {said}");
}

#[test]
fn one_bad_meta_page_is_survived() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    put_keys(&mut server.client(), 20, 10);
    // Answers when everything is in the file: a commit that is cut off may have begun to use the pages of the one before
    // the last, and then there is none to fall back to.
    server.client().call("/v3/maintenance/hash", &json!({}));
    server.kill();
    let db = data.path().join("member/snap/db");
    let file = OpenOptions::new().read(true).write(true).open(&db).unwrap();
    let txid = |page: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, page * 4096 + 64).unwrap();
        u64::from_le_bytes(bytes)
    };
    // A torn write of the newest: the one before it and the log still hold everything.
    let newest = if txid(0) > txid(1) { 0 } else { 1 };
    file.write_all_at(&[0xff; 8], newest * 4096 + 64).unwrap();
    drop(file);
    assert_keys(&mut Server::start(data.path()).client(), 20);
}

#[test]
fn sigterm_ends_streams_cleanly_keeps_everything_and_exits_0() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let mut client = server.client();
    let mut watch = server.client().open_lines("/v3/watch", r#"{"create_request":{"key":"AA==","range_end":"AA=="}}"#);
    assert_eq!(watch.next_json()["result"]["created"], Value::from(true));
    put_keys(&mut client, 5, 10);
    server.terminate();
    // What was acknowledged is told, whenever the signal came; then `Ok(None)` is the body's last chunk: the stream was
    // ended, not torn.
    let mut events = 0;
    while let Some(line) = watch.next_line().unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        events += line["result"]["events"].as_array().map_or(0, Vec::len);
    }
    assert_eq!(events, 5, "everything that was acknowledged is told, and nothing else");
    let address = server.address();
    let status = server.wait();
    assert_eq!(status.code(), Some(0));
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing listens any more");
    assert_keys(&mut Server::start(data.path()).client(), 5);
}

/// The page of the list of free pages, as the meta page that counts names it; none if the next start has to search.
fn free_list_page(data_dir: &Path) -> Option<u64> {
    let bytes = fs::read(data_dir.join("member/snap/db")).unwrap();
    let field = |meta: usize, at: usize| {
        let at = meta * 4096 + 16 + at;
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let newest = (0..2).max_by_key(|meta| field(*meta, 48)).unwrap();
    Some(field(newest, 32)).filter(|page| *page != u64::MAX)
}

#[test]
fn a_clean_stop_leaves_the_list_of_free_pages_for_a_quick_start() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let data_dir = data.path().join("data");
    let server = Server::start(&data_dir);
    put_keys(&mut server.client(), 50, 300);
    // As a crash at this point would leave it, once the first keys are in the file.
    wait_until("a commit of the file", ANSWER_MAX, || free_list_page(&data_dir).is_none().then_some(()));
    server.terminate();
    assert!(server.wait().success());
    assert!(free_list_page(&data_dir).is_some());
    let server = Server::start(&data_dir);
    assert_keys(&mut server.client(), 50);
}

/// What a member shows of its state, apart from what each start changes.
fn state_of(client: &mut Client) -> Vec<Value> {
    let mut answers = vec![
        client.call("/v3/kv/range", &json!({"key": "AA==", "range_end": "AA=="})),
        client.call("/v3/kv/range", &json!({"key": "AA==", "range_end": "AA==", "revision": "4"})),
        client.call("/v3/lease/leases", &json!({})),
        client.call("/v3/cluster/member/list", &json!({})),
    ];
    for answer in &mut answers {
        answer["header"].as_object_mut().unwrap().remove("raft_term");
        // Ports change from start to start.
        if let Some(members) = answer.get_mut("members") {
            members[0].as_object_mut().unwrap().remove("clientURLs");
        }
    }
    let left = client.call("/v3/lease/timetolive", &json!({"ID": "77", "keys": true}));
    let compacted = client.post("/v3/kv/range", r#"{"key":"a2V5","revision":"3"}"#).unwrap();
    answers.extend([left["grantedTTL"].clone(), left["keys"].clone(), compacted.json()["message"].clone()]);
    answers
}

#[test]
fn state_is_the_same_after_a_kill_and_after_a_stop() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let mut client = server.client();
    client.call("/v3/lease/grant", &json!({"TTL": "600", "ID": "77"}));
    put_keys(&mut client, 4, 20);
    client.call("/v3/kv/put", &json!({"key": key(0), "value": "bmV3", "lease": "77"}));
    client.call("/v3/kv/deleterange", &json!({"key": key(1)}));
    client.call("/v3/kv/compaction", &json!({"revision": "4", "physical": true}));
    let before = state_of(&mut client);
    assert_eq!(before[0]["header"]["revision"], json!("7"));
    server.kill();

    let server = Server::start(data.path());
    assert_eq!(state_of(&mut server.client()), before, "after a kill");
    server.terminate();
    server.wait();

    let server = Server::start(data.path());
    let mut client = server.client();
    assert_eq!(state_of(&mut client), before, "after a stop");
    let put = client.call("/v3/kv/put", &json!({"key": key(9), "value": "bmV3"}));
    assert_eq!(put["header"]["revision"], json!("8"), "revisions go on where they were");
    client.call("/v3/lease/revoke", &json!({"ID": "77"}));
    let gone = client.call("/v3/kv/range", &json!({"key": key(0)}));
    assert_eq!(gone.get("kvs"), None, "the lease still holds its key: {gone}");
}
