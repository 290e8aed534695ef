//! Writers on a few shared keys, so that each key's life has many turns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use crate::support::{ANSWER_MAX, Client, Server, wait_until};

const KEYS: usize = 12;
/// "END" in base64.
const END_VALUE: &str = "RU5E";
const END_KEY: &str = "k/~end";

/// Running writers.
pub(crate) struct Writers {
    running: Vec<thread::JoinHandle<()>>,
    written: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Writers {
    pub(crate) fn start(server: &Server, writers: usize, seed: u64) -> Writers {
        let (written, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut random = fastrand::Rng::with_seed(seed);
        let running = (0..writers).map(|_| {
            let (mut client, mut random) = (server.client(), random.fork());
            let (written, stop) = (written.clone(), stop.clone());
            thread::spawn(move || {
                // A write without an answer is the end of a server that was killed.
                while !stop.load(Ordering::Relaxed) && write(&mut client, &mut random) {
                    written.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Writers { running: running.collect(), written, stop }
    }

    /// Waits for so many writes of all together.
    pub(crate) fn wait_for(&self, writes: usize) {
        wait_until("enough writes", ANSWER_MAX, || (self.written.load(Ordering::Relaxed) >= writes).then_some(()));
    }

    /// Ends after so many writes for each writer.
    pub(crate) fn finish(self, writes_each: usize) {
        self.wait_for(writes_each * self.running.len());
        self.abandon();
    }

    /// Ends at once.
    pub(crate) fn abandon(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.running.into_iter().for_each(|writer| writer.join().unwrap());
    }
}

/// One random write; whether it was answered.
fn write(client: &mut Client, random: &mut fastrand::Rng) -> bool {
    let mut key = || encode(&format!("k/{}", random.usize(..KEYS)));
    let (one, other) = (key(), key());
    let value = encode(&"v".repeat(random.usize(1..60)));
    let (path, body) = match random.u8(..10) {
        0..5 => ("/v3/kv/put", json!({"key": one, "value": value})),
        5..7 => ("/v3/kv/deleterange", json!({"key": one})),
        7 => ("/v3/kv/deleterange", json!({"key": encode("k/1"), "range_end": encode("k/2")})),
        _ if one == other => ("/v3/kv/put", json!({"key": one})),
        _ => {
            let put = json!({"request_put": {"key": one, "value": value}});
            ("/v3/kv/txn", json!({"success": [put, {"request_delete_range": {"key": other}}]}))
        }
    };
    client.post(path, body.to_string()).is_ok_and(|answer| answer.status == 200)
}

/// Writes what every watch is told last: a put, then a delete for those that are told of no puts.
pub(crate) fn write_the_end(client: &mut Client) {
    let put = |key: &str| json!({"request_put": {"key": encode(key), "value": END_VALUE}});
    client.call("/v3/kv/txn", &json!({"success": [put("k/1"), put(END_KEY)]}));
    client.call("/v3/kv/deleterange", &json!({"key": encode(END_KEY)}));
}

/// Whether an event is the end.
pub(crate) fn is_the_end(event: &Value) -> bool {
    event["kv"]["value"] == END_VALUE || event["kv"]["key"] == encode(END_KEY)
}

fn encode(text: &str) -> String {
    base64_simd::STANDARD.encode_to_string(text)
}
