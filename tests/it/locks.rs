//! Locks and elections from outside: who waits, for whom, and what is left of a client that went away.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc::{self, Receiver},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{ANSWER_MAX, Client, Server, is_foreign, refusal, wait_until};

const LOCK: &str = "/v3/lock/lock";
const UNLOCK: &str = "/v3/lock/unlock";
const CAMPAIGN: &str = "/v3/election/campaign";
const OBSERVE: &str = "/v3/election/observe";

/// Status, code and text of a request that is its client's mistake; etcd forgets the code.
fn refused(status: u16, code: u64, text: &str) -> (u16, Value, Value) {
    let (status, code) = refusal(status, code);
    (status, json!(code), json!(text))
}

struct Member {
    server: Server,
    client: Client,
    _data: TempDir,
}

/// A call that is under way on a thread of its own.
struct Pending(Receiver<(u16, Value)>);

impl Pending {
    fn answer(&self) -> (u16, Value) {
        self.0.recv_timeout(ANSWER_MAX).unwrap()
    }

    fn is_pending(&self) -> bool {
        self.0.try_recv().is_err()
    }
}

impl Member {
    fn start() -> Member {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(&data.path().join("data"));
        let client = server.client();
        Member { server, client, _data: data }
    }

    fn call(&mut self, path: &str, body: Value) -> Value {
        self.client.call(path, &body)
    }

    fn grant(&mut self, lease: i64) {
        self.call("/v3/lease/grant", json!({"ID": lease, "TTL": 600}));
    }

    fn error(&mut self, path: &str, body: Value) -> (u16, Value, Value) {
        let answer = self.client.post(path, body.to_string()).unwrap();
        let json = answer.json();
        (answer.status, json["code"].clone(), json["message"].clone())
    }

    /// A call that waits, sent once and answered later.
    fn begin(&self, path: &'static str, body: Value) -> Pending {
        let (sender, receiver) = mpsc::channel();
        let mut client = self.server.client();
        thread::spawn(move || {
            if let Ok(answer) = client.post(path, body.to_string()) {
                // Nobody may be interested any more.
                let _ = sender.send((answer.status, answer.json()));
            }
        });
        Pending(receiver)
    }

    fn keys(&mut self) -> Vec<String> {
        let answer = self.call("/v3/kv/range", json!({"key": "AA==", "range_end": "AA==", "keys_only": true}));
        let kvs = answer["kvs"].as_array().cloned().unwrap_or_default();
        kvs.iter().map(|kv| kv["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the store holds exactly so many keys.
    fn until_keys(&mut self, count: usize) {
        wait_until("the keys of the waiters", ANSWER_MAX, || (self.keys().len() == count).then_some(()));
    }
}

fn b64(text: &str) -> String {
    base64_simd::STANDARD.encode_to_string(text)
}

fn leader_key(name: &str, lease: i64, rev: &str) -> Value {
    json!({"name": b64(name), "key": b64(&format!("{name}/{lease:x}")), "rev": rev, "lease": lease})
}

#[test]
fn the_second_locker_waits_for_the_first() {
    let mut member = Member::start();
    member.grant(17);
    member.grant(18);
    let first = member.call(LOCK, json!({"name": b64("w"), "lease": 17}));
    assert_eq!((&first["key"], &first["header"]["revision"]), (&json!(b64("w/11")), &json!("2")), "{first}");
    // The same lease asks again, and has the lock.
    let again = member.call(LOCK, json!({"name": b64("w"), "lease": 17}));
    assert_eq!((&again["key"], &again["header"]["revision"]), (&json!(b64("w/11")), &json!("2")), "{again}");

    let second = member.begin(LOCK, json!({"name": b64("w"), "lease": 18}));
    member.until_keys(2);
    member.call("/v3/kv/put", json!({"key": b64("x")}));
    assert!(second.is_pending());
    let unlocked = member.call(UNLOCK, json!({"key": b64("w/11")}));
    assert_eq!(unlocked["header"]["revision"], "5");
    let (status, second) = second.answer();
    assert_eq!((status, &second["key"], &second["header"]["revision"]), (200, &json!(b64("w/12")), &json!("5")));

    // The end of a lease is the end of its lock.
    let third = member.begin(LOCK, json!({"name": b64("w"), "lease": 17}));
    member.until_keys(3);
    assert!(third.is_pending());
    member.call("/v3/lease/revoke", json!({"ID": 18}));
    assert_eq!(third.answer().0, 200);
}

#[test]
fn a_line_moves_by_one() {
    let mut member = Member::start();
    let leases = [21, 22, 23, 24];
    let mut waiting = Vec::new();
    for (count, lease) in leases.into_iter().enumerate() {
        member.grant(lease);
        waiting.push(member.begin(LOCK, json!({"name": b64("q"), "lease": lease})));
        member.until_keys(count + 1);
    }
    // One in the middle gives up its place: nobody's turn comes by that.
    member.call(UNLOCK, json!({"key": b64("q/16")}));
    let left = waiting.remove(1);
    if !is_foreign() {
        // etcd tells it when its turn would have come.
        let (status, body) = left.answer();
        assert_eq!((status, &body["message"]), (400, &json!("mutex: session is expired")), "{body}");
    }
    let [first, third, fourth] = &waiting[..] else { panic!("three are left") };
    assert_eq!(first.answer().0, 200);
    assert!(third.is_pending() && fourth.is_pending());
    member.call(UNLOCK, json!({"key": b64("q/15")}));
    assert_eq!(third.answer().1["key"], b64("q/17"));
    assert!(fourth.is_pending());
    member.call(UNLOCK, json!({"key": b64("q/17")}));
    assert_eq!(fourth.answer().1["key"], b64("q/18"));
}

#[test]
fn without_a_lease_there_is_one_of_a_minute() {
    let mut member = Member::start();
    let locked = member.call(LOCK, json!({"name": b64("l")}));
    let leases = member.call("/v3/lease/leases", json!({}));
    let lease: i64 = leases["leases"][0]["ID"].as_str().unwrap().parse().unwrap();
    assert_eq!(locked["key"], b64(&format!("l/{lease:x}")));
    let life = member.call("/v3/lease/timetolive", json!({"ID": lease, "keys": true}));
    assert_eq!((&life["grantedTTL"], &life["keys"]), (&json!("60"), &json!([locked["key"]])), "{life}");
    // No name is a name.
    member.call(LOCK, json!({}));
    let unnamed = member.call("/v3/election/leader", json!({}));
    assert_eq!(unnamed["kv"]["version"], "1", "{unnamed}");
}

#[test]
fn refusals() {
    let mut member = Member::start();
    member.grant(17);
    let no_key = refused(400, 3, "etcdserver: key is not provided");
    let no_lease = refused(404, 5, "etcdserver: requested lease not found");
    let no_leader_key = refused(400, 3, "\"leader\" field must be provided");
    assert_eq!(member.error(UNLOCK, json!({})), no_key);
    assert_eq!(member.error(LOCK, json!({"name": b64("m"), "lease": 99})), no_lease);
    assert_eq!(member.error(CAMPAIGN, json!({"name": b64("m"), "lease": -5})), no_lease);
    assert_eq!(member.error("/v3/election/proclaim", json!({"value": "dg=="})), no_leader_key);
    assert_eq!(member.error("/v3/election/resign", json!({})), no_leader_key);
    assert_eq!(member.error("/v3/election/resign", json!({"leader": {}})), no_key);
    assert_eq!(member.error("/v3/election/proclaim", json!({"leader": {}, "value": "dg=="})), no_key);
    let no_leader = refused(404, 5, "election: no leader");
    assert_eq!(member.error("/v3/election/leader", json!({"name": b64("none")})), no_leader);
    assert_eq!(member.keys(), Vec::<String>::new());
    // A key that is not there is unlocked, and is not created by it.
    member.call(UNLOCK, json!({"key": b64("nokey")}));
    assert_eq!(member.keys(), Vec::<String>::new());
    let leases = member.call("/v3/lease/leases", json!({}));
    if !is_foreign() {
        assert_eq!(leases["leases"], json!([{"ID": "17"}]), "what was granted for a refused request is taken back");
    }
}

#[test]
fn an_election_from_campaign_to_resignation() {
    let mut member = Member::start();
    member.grant(17);
    member.grant(18);
    // It begins before there is a leader: its head comes with the first one.
    let (sender, receiver) = mpsc::channel();
    let observer = member.server.client();
    thread::spawn(move || {
        let lines = observer.open_lines(OBSERVE, &json!({"name": b64("c")}).to_string());
        sender.send(lines).ok();
    });
    let elected = member.call(CAMPAIGN, json!({"name": b64("c"), "lease": 17, "value": b64("v")}));
    assert_eq!(
        elected["leader"],
        json!({"name": b64("c"), "key": b64("c/11"), "rev": "2", "lease": "17"}),
        "{elected}"
    );
    assert_eq!(elected["header"]["revision"], "2");
    let mut seen = receiver.recv_timeout(ANSWER_MAX).unwrap();
    let told = |line: &Value| {
        let kv = &line["result"]["kv"];
        (kv["value"].as_str().unwrap().to_owned(), kv["mod_revision"].as_str().unwrap().to_owned())
    };
    assert_eq!(told(&seen.next_json()), (b64("v"), "2".into()));

    let second = member.begin(CAMPAIGN, json!({"name": b64("c"), "lease": 18, "value": b64("v18")}));
    member.until_keys(2);
    let leader = leader_key("c", 17, "2");
    let proclaimed = member.call("/v3/election/proclaim", json!({"leader": leader, "value": b64("v2")}));
    assert_eq!(proclaimed["header"]["revision"], "4");
    assert_eq!(told(&seen.next_json()), (b64("v2"), "4".into()));
    let asked = member.call("/v3/election/leader", json!({"name": b64("c")}));
    assert_eq!(
        asked["kv"],
        json!({"key": b64("c/11"), "create_revision": "2", "mod_revision": "4", "version": "2", "value": b64("v2"), "lease": "17"})
    );
    // Another value in another campaign of the leader's is a proclamation, told with the header from before it.
    let again = member.call(CAMPAIGN, json!({"name": b64("c"), "lease": 17, "value": b64("v3")}));
    assert_eq!((&again["header"]["revision"], &again["leader"]["rev"]), (&json!("4"), &json!("2")), "{again}");
    assert_eq!(told(&seen.next_json()), (b64("v3"), "5".into()));

    let stale = leader_key("c", 17, "1");
    assert_eq!(
        member.error("/v3/election/proclaim", json!({"leader": stale, "value": b64("no")})),
        refused(400, 9, "election: not leader")
    );
    let unchanged = member.call("/v3/election/resign", json!({"leader": stale}));
    assert_eq!(unchanged["header"]["revision"], "5");
    assert!(second.is_pending());

    member.call("/v3/election/resign", json!({"leader": leader}));
    let (status, second) = second.answer();
    assert_eq!((status, &second["leader"]["rev"]), (200, &json!("3")), "{second}");
    assert_eq!(second["header"]["revision"], "3", "the candidacy's, not the election's");
    let line = seen.next_json();
    assert_eq!(told(&line), (b64("v18"), "3".into()));
    assert_eq!(line["result"]["header"]["revision"], "6", "{line}");
    // Over is over: no error.
    member.call("/v3/election/resign", json!({"leader": leader}));
}

#[test]
fn whoever_goes_away_leaves_no_key() {
    let mut member = Member::start();
    member.grant(17);
    member.grant(18);
    member.call(LOCK, json!({"name": b64("w"), "lease": 17}));
    for (path, lease) in [(LOCK, 18), (CAMPAIGN, 18), (LOCK, 0), (CAMPAIGN, 0)] {
        let body = json!({"name": b64("w"), "lease": lease}).to_string();
        let mut stream = TcpStream::connect(member.server.address()).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        member.until_keys(2);
        drop(stream);
        member.until_keys(1);
    }
    // A deadline is a way of going, too.
    let body = json!({"name": b64("w"), "lease": 18}).to_string();
    let mut stream = TcpStream::connect(member.server.address()).unwrap();
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    let length = body.len();
    let head =
        format!("POST {LOCK} HTTP/1.1\r\nHost: x\r\nGrpc-Timeout: 50m\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 504");
    member.until_keys(1);
    if !is_foreign() {
        let leases = member.call("/v3/lease/leases", json!({}));
        assert_eq!(leases["leases"].as_array().map(Vec::len), Some(2), "{leases}");
    }
}

#[test]
fn a_waiter_whose_lease_ends_is_told() {
    if is_foreign() {
        // etcd's waiter hangs until its turn comes, and its candidate is then elected without a key.
        return;
    }
    let mut member = Member::start();
    member.grant(17);
    for (path, message) in [(LOCK, "mutex: session is expired"), (CAMPAIGN, "election: session is expired")] {
        member.call(LOCK, json!({"name": b64("w"), "lease": 17}));
        member.grant(18);
        let waiter = member.begin(path, json!({"name": b64("w"), "lease": 18}));
        member.until_keys(2);
        member.call("/v3/lease/revoke", json!({"ID": 18}));
        let (status, body) = waiter.answer();
        assert_eq!((status, &body["code"], &body["message"]), (400, &json!(9), &json!(message)));
    }
}

#[test]
fn waiters_do_not_hold_up_a_member_that_goes_down() {
    if is_foreign() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("data");
    let server = Server::start_with(&path, &["--drain-timeout", "1h"]);
    let mut member = Member { client: server.client(), server, _data: data };
    member.grant(17);
    member.grant(18);
    member.call(LOCK, json!({"name": b64("w"), "lease": 17}));
    let waiter = member.begin(LOCK, json!({"name": b64("w"), "lease": 18}));
    let mut seen = member.server.client().open_lines(OBSERVE, &json!({"name": b64("w")}).to_string());
    seen.next_json();
    member.until_keys(2);
    member.server.terminate();
    let (status, body) = waiter.answer();
    assert_eq!((status, &body["message"]), (503, &json!("etcdserver: server stopped")), "{body}");
    assert_eq!(seen.next_json()["error"]["message"], "etcdserver: server stopped");
    assert_eq!(seen.next_line().unwrap(), None);
    assert!(member.server.wait().success());
    let server = Server::start(&path);
    let kept = server.client().call("/v3/kv/range", &json!({"key": b64("w/"), "range_end": b64("w0")}));
    assert_eq!(kept["count"], "1", "the waiter's key is gone, the lock is kept: {kept}");
}

#[test]
fn an_observation_over_a_socket() {
    use tokio_tungstenite::tungstenite::{self, Message};
    if is_foreign() {
        // etcd waits for the end of a socket's requests before it looks at the first.
        return;
    }
    let mut member = Member::start();
    member.grant(17);
    let stream = TcpStream::connect(member.server.address()).unwrap();
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    let url = format!("ws://{}{OBSERVE}", member.server.address());
    let (mut socket, _) = tungstenite::client(url, stream).unwrap();
    socket.send(Message::text(json!({"name": b64("c")}).to_string())).unwrap();
    let mut rev = String::new();
    for value in ["v", "v2"] {
        let elected = member.call(CAMPAIGN, json!({"name": b64("c"), "lease": 17, "value": b64(value)}));
        rev = elected["leader"]["rev"].as_str().unwrap().to_owned();
        let Message::Text(text) = socket.read().unwrap() else { panic!("not a text frame") };
        let told: Value = serde_json::from_str(text.as_str()).unwrap();
        assert_eq!(told["result"]["kv"]["value"], b64(value), "{told}");
    }
    member.call("/v3/election/resign", json!({"leader": leader_key("c", 17, &rev)}));
    socket.close(None).unwrap();
}
