//! Compaction on the real binary: killed in its middle, and without being asked.

use std::{path::Path, time::Duration};

use base64_simd::STANDARD;
use serde_json::{Value, json};

use crate::support::{Client, Server, is_foreign, wait_until};

const KEYS: usize = 20;
const REVISIONS: usize = 1_500;
const FINISHED_MAX: Duration = Duration::from_secs(60);
/// Small steps with long pauses between them: there is time to kill it in the middle.
const SLOWLY: [&str; 2] = ["--compaction-batch-limit=5", "--compaction-sleep-interval=100ms"];

/// Puts and deletes that come out the same everywhere.
fn fill(client: &mut Client) {
    for number in 0..REVISIONS {
        let key = STANDARD.encode_to_string(format!("key{:03}", number * 7 % KEYS));
        let body = json!({"key": key, "value": STANDARD.encode_to_string(format!("{number:0500}"))});
        if number % 10 == 9 {
            client.call("/v3/kv/deleterange", &json!({"key": key}));
        } else {
            client.call("/v3/kv/put", &body);
        }
    }
}

fn revision(client: &mut Client) -> i64 {
    let answer = client.call("/v3/kv/range", &json!({"key": "Zm9v"}));
    answer["header"]["revision"].as_str().unwrap().parse().unwrap()
}

fn metric(client: &mut Client, name: &str) -> f64 {
    let text = client.get("/metrics").unwrap().text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Hashes of what is kept, and the bytes in use.
fn hashes(client: &mut Client, revisions: &[i64]) -> (Vec<Value>, u64) {
    let hash = |revision: &i64| {
        let answer = client.call("/v3/maintenance/hashkv", &json!({"revision": revision}));
        json!([answer["hash"], answer["compact_revision"]])
    };
    let hashes = revisions.iter().map(hash).collect();
    let status = client.call("/v3/maintenance/status", &json!({}));
    (hashes, status["dbSizeInUse"].as_str().unwrap().parse().unwrap())
}

/// Fills a member and compacts it without a break.
fn never_killed(data_dir: &Path) -> (i64, Vec<i64>, (Vec<Value>, u64)) {
    let server = Server::start(data_dir);
    let mut client = server.client();
    fill(&mut client);
    let last = revision(&mut client);
    let compacted = last - 50;
    client.call("/v3/kv/compaction", &json!({"revision": compacted, "physical": true}));
    let looked_at = vec![compacted, compacted + 17, last];
    let found = hashes(&mut client, &looked_at);
    (compacted, looked_at, found)
}

#[test]
fn a_compaction_that_was_killed_is_finished_after_the_restart() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (compacted, looked_at, (expected, expected_bytes)) = never_killed(&dir.path().join("whole"));

    const DELETED: &str = "etcd_debugging_mvcc_db_compaction_keys_total";
    const DURATION_COUNT: &str = "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds_count";
    let data_dir = dir.path().join("killed");
    let server = Server::start_with(&data_dir, &SLOWLY);
    let mut client = server.client();
    fill(&mut client);
    client.call("/v3/kv/compaction", &json!({"revision": compacted}));
    let deleted = wait_until("the middle of a compaction", FINISHED_MAX, || {
        let deleted = metric(&mut client, DELETED);
        (deleted > 0.0).then_some(deleted)
    });
    assert_eq!(metric(&mut client, DURATION_COUNT), 0.0, "it is not finished");
    server.kill();

    let server = Server::start(&data_dir);
    let mut client = server.client();
    // Refused at once, whatever is left of it.
    let answer = client.post("/v3/kv/range", json!({"key": "Zm9v", "revision": compacted - 1}).to_string()).unwrap();
    assert_eq!(answer.status, 400, "{}", answer.text());
    wait_until("the rest of the compaction", FINISHED_MAX, || {
        (metric(&mut client, DURATION_COUNT) == 1.0).then_some(())
    });
    assert!(metric(&mut client, DELETED) > 0.0, "{deleted} of {compacted} were deleted before");
    let (found, bytes) = hashes(&mut client, &looked_at);
    assert_eq!(found, expected);
    // Not to the page: where leaves were cut depends on how the steps fell.
    assert!(bytes < expected_bytes * 3 / 2, "{bytes} bytes are in use, {expected_bytes} without a crash");
}

#[test]
fn history_older_than_the_retention_goes_by_itself() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), &["--auto-compaction-retention=500ms"]);
    let mut client = server.client();
    for _ in 0..10 {
        client.call("/v3/kv/put", &json!({"key": "Zm9v"}));
    }
    // Ten samples in a retention: one of them lies behind the puts.
    wait_until("a compaction", FINISHED_MAX, || {
        (metric(&mut client, "etcd_debugging_mvcc_compact_revision") >= 11.0).then_some(())
    });
    assert_eq!(revision(&mut client), 11, "and what lives is kept");
    assert_eq!(client.call("/v3/kv/range", &json!({"key": "Zm9v"}))["count"], "1");
}
