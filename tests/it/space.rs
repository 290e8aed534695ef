//! Room that runs out and comes back: the quota. A fill to the quota, and back by deletes and compactions alone.

use std::time::Duration;

use base64_simd::STANDARD;
use serde_json::{Value, json};

use crate::support::{Client, Server, is_foreign, wait_until};

const QUOTA_BYTES: u64 = 4 << 20;
const QUOTA: &str = "--quota-backend-bytes=4194304";
/// Longest time until an alarm goes that has no cause any more.
const CLEARED_MAX: Duration = Duration::from_secs(30);

fn key(number: usize) -> String {
    STANDARD.encode_to_string(format!("key{number:06}"))
}

/// Puts values of some bytes to one key after another, of so many, until one is refused; how many were not.
fn fill(client: &mut Client, keys: usize, value_bytes: usize) -> usize {
    let value = STANDARD.encode_to_string(vec![b'v'; value_bytes]);
    for number in 0.. {
        let answer = client.post("/v3/kv/put", json!({"key": key(number % keys), "value": value}).to_string()).unwrap();
        if answer.status != 200 {
            expect_refusal(answer.status, &answer.json());
            return number;
        }
        let most = 4 * QUOTA_BYTES as usize / value_bytes;
        assert!(number < most, "{number} values of {value_bytes} bytes and no refusal");
    }
    unreachable!("the loop ends by a return")
}

fn expect_refusal(status: u16, answer: &Value) {
    assert_eq!((status, &answer["code"]), (429, &json!(8)), "{answer}");
    assert_eq!(answer["message"], "etcdserver: mvcc: database space exceeded");
}

fn alarms(client: &mut Client) -> Value {
    client.call("/v3/maintenance/alarm", &json!({"action": "GET"}))["alarms"].take()
}

fn status(client: &mut Client, field: &str) -> u64 {
    let status = client.call("/v3/maintenance/status", &json!({}));
    status[field].as_str().unwrap_or_else(|| panic!("no {field} in {status}")).parse().unwrap()
}

fn delete_everything(client: &mut Client) {
    client.call("/v3/kv/deleterange", &json!({"key": "AA==", "range_end": "AA=="}));
}

fn compact(client: &mut Client) {
    let answer = client.call("/v3/kv/range", &json!({"key": key(0), "count_only": true}));
    client.call("/v3/kv/compaction", &json!({"revision": answer["header"]["revision"], "physical": true}));
}

fn wait_cleared(client: &mut Client) {
    wait_until("the end of the alarm", CLEARED_MAX, || alarms(client).is_null().then_some(()));
}

#[test]
fn a_full_member_comes_back_by_deletes_and_compactions_alone() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), &[QUOTA]);
    let mut client = server.client();
    let member = client.call("/v3/cluster/member/list", &json!({}))["members"][0]["ID"].take();
    let lease = client.call("/v3/lease/grant", &json!({"TTL": 3600}))["ID"].take();
    // Large values and small ones, keys that are deleted and keys that are put again and again.
    for (round, (keys, value_bytes)) in
        [(usize::MAX, 16 << 10), (40, 16 << 10), (usize::MAX, 3000), (usize::MAX, 16 << 10)].into_iter().enumerate()
    {
        let accepted = fill(&mut client, keys, value_bytes);
        // As many as fit: neither the history before nor the pages it was in count.
        let bytes = (accepted * value_bytes) as u64;
        assert!(bytes > QUOTA_BYTES / 2 && bytes < QUOTA_BYTES, "round {round}: {accepted} values were accepted");
        assert_eq!(alarms(&mut client), json!([{"memberID": member, "alarm": "NOSPACE"}]), "round {round}");
        assert_eq!(client.get("/health").unwrap().status, 503);
        assert_eq!(client.get("/livez").unwrap().status, 200);

        // What only reads or shrinks passes, what grows does not, however small it is.
        let delete = json!({"request_delete_range": {"key": key(0)}});
        client.call("/v3/kv/txn", &json!({"success": [{"request_range": {"key": key(0)}}, delete]}));
        let put = json!({"request_put": {"key": key(0)}});
        for (path, body) in [
            ("/v3/kv/put", json!({"key": key(0)})),
            ("/v3/kv/txn", json!({"success": [delete], "failure": [put]})),
            ("/v3/lease/grant", json!({"TTL": 60})),
        ] {
            let answer = client.post(path, body.to_string()).unwrap();
            expect_refusal(answer.status, &answer.json());
        }
        if round == 3 {
            client.call("/v3/lease/revoke", &json!({"ID": lease}));
        }

        if keys == usize::MAX {
            delete_everything(&mut client);
        }
        compact(&mut client);
        wait_cleared(&mut client);
        client.call("/v3/kv/put", &json!({"key": key(0), "value": "dg=="}));
        let size = status(&mut client, "dbSize");
        assert!(size < 2 * QUOTA_BYTES, "round {round}: the file has {size} bytes");
    }
    let metrics = client.get("/metrics").unwrap().text();
    for line in ["revgate_nospace_raised_total 4", "revgate_nospace_cleared_total 4"] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let said = server.output();
    assert!(said.contains("the NOSPACE alarm is raised") && said.contains("the NOSPACE alarm is disarmed"), "{said}");
}

#[test]
fn an_alarm_stays_until_it_is_disarmed_where_the_flag_says_so() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), &[QUOTA, "--nospace-disarm=manual"]);
    let mut client = server.client();
    fill(&mut client, usize::MAX, 16 << 10);
    delete_everything(&mut client);
    compact(&mut client);
    assert!(status(&mut client, "dbSizeInUse") < QUOTA_BYTES / 2);
    let raised = alarms(&mut client);
    // Restarted by a member that would clear it at its first look: it is what that one finds that is cleared.
    drop(server);
    let server = Server::start_with(dir.path(), &[QUOTA, "--nospace-disarm=manual"]);
    let mut client = server.client();
    assert_eq!(alarms(&mut client), raised);
    let refused = client.post("/v3/kv/put", json!({"key": key(0)}).to_string()).unwrap();
    expect_refusal(refused.status, &refused.json());
    client.call(
        "/v3/maintenance/alarm",
        &json!({"action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": raised[0]["memberID"]}),
    );
    client.call("/v3/kv/put", &json!({"key": key(0), "value": "dg=="}));
    assert!(alarms(&mut client).is_null());
}

#[test]
fn an_alarm_raised_by_hand_stays_and_an_inherited_one_goes() {
    if is_foreign() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let manual = Server::start_with(dir.path(), &[QUOTA, "--nospace-disarm=manual"]);
    let mut client = manual.client();
    fill(&mut client, usize::MAX, 16 << 10);
    delete_everything(&mut client);
    compact(&mut client);
    let member = alarms(&mut client)[0]["memberID"].take();
    drop(manual);

    let server = Server::start_with(dir.path(), &[QUOTA]);
    let mut client = server.client();
    wait_cleared(&mut client);
    let by_hand = json!({"action": "ACTIVATE", "alarm": "NOSPACE", "memberID": member});
    client.call("/v3/maintenance/alarm", &by_hand);
    // The member looks at itself on a clock of its own: it has looked once the figures it writes are there again.
    drop(server);
    let server = Server::start_with(dir.path(), &[QUOTA]);
    let mut client = server.client();
    wait_until("a look at the size", CLEARED_MAX, || {
        let metrics = client.get("/metrics").unwrap().text();
        let used = metrics.lines().find_map(|line| line.strip_prefix("revgate_quota_used_bytes "))?.to_owned();
        (used != "0").then_some(())
    });
    assert_eq!(alarms(&mut client), json!([{"memberID": member, "alarm": "NOSPACE"}]));
}
