//! Pages: at random places, and the whole range by clients that each walk a part of it at one revision.

use std::{
    net::SocketAddr,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use super::{
    BUFFER_BYTES, Filled,
    client::{Connection, first_field, last_field},
    keys::{self, key},
};
use crate::{load::Load, table::Table};

pub(super) const PAGE_KEYS: usize = 500;
pub(super) const WALKERS: usize = 10;
/// Puts between the revision of a walk and its beginning.
const LATER_PUTS: usize = 100;
/// What follows the last pair of an answer fits in here.
const ANSWER_END_BYTES: usize = 512;
/// The range end that stands for no end.
const NO_END: &str = "AA==";

/// How a walk goes on from page to page.
#[derive(Clone, Copy, PartialEq)]
enum Pages {
    /// From the key that follows, at the same revision: every client of etcd's API can.
    ByKey,
    /// With the token of the page before.
    ByToken,
}

/// A page, checked.
struct Page {
    count: usize,
    token: Option<String>,
}

/// One client asks for pages that begin at random keys.
pub(crate) fn random(filled: &Filled<'_>, duration: Duration, seed: u64) -> Load {
    let mut client = Client::new(filled.server.address);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut latencies_nanos = Vec::new();
    let started = Instant::now();
    while started.elapsed() < duration {
        let from = random.usize(..=filled.keys - PAGE_KEYS);
        let asked = Instant::now();
        client.ask(&page_of(&key(from), NO_END, ""));
        latencies_nanos.push(asked.elapsed().as_nanos() as u64);
        assert_eq!(client.check(from..from + PAGE_KEYS).count, filled.keys - from, "keys from {from} on");
    }
    Load::new(started.elapsed(), latencies_nanos)
}

/// Ten clients walk a tenth each, at a revision that is not the last.
pub(super) fn walks(filled: &Filled<'_>, server: usize, table: &mut Table) {
    let mut client = Client::new(filled.server.address);
    client.ask(&page_of(&key(0), NO_END, ""));
    let revision = first_field(&client.answer, "revision").unwrap().to_owned();
    for number in (0..filled.keys).step_by(filled.keys.div_ceil(LATER_PUTS)) {
        let value = keys::value(number, filled.value_bytes);
        client.post("/v3/kv/put", &format!(r#"{{"key":"{}","value":"{value}"}}"#, key(number)));
    }
    let mut kinds = vec![("whole walk by key and revision s", Pages::ByKey)];
    if client.has_tokens(filled.keys) {
        kinds.push(("whole walk by continue token s", Pages::ByToken));
    }
    for (title, pages) in kinds {
        let started = Instant::now();
        thread::scope(|scope| {
            for walker in 0..WALKERS {
                let part = filled.keys * walker / WALKERS..filled.keys * (walker + 1) / WALKERS;
                let (address, revision) = (filled.server.address, &revision);
                scope.spawn(move || walk(address, part, revision, pages));
            }
        });
        table.add(title, server, started.elapsed().as_secs_f64());
    }
}

fn walk(address: SocketAddr, part: Range<usize>, revision: &str, pages: Pages) {
    let mut client = Client::new(address);
    let (mut from, mut token, end) = (part.start, None, key(part.end));
    while from < part.end {
        let more = match &token {
            Some(token) => format!(r#","revision":"{revision}","continue":"{token}""#),
            None => format!(r#","revision":"{revision}""#),
        };
        let first = if pages == Pages::ByToken { part.start } else { from };
        client.ask(&page_of(&key(first), &end, &more));
        let to = part.end.min(from + PAGE_KEYS);
        let page = client.check(from..to);
        assert_eq!(page.count, part.end - first, "keys from {first} on");
        assert!(pages == Pages::ByKey || page.token.is_some() == (to < part.end), "a token where there is more");
        token = page.token.filter(|_| pages == Pages::ByToken);
        from = to;
    }
}

fn page_of(key: &str, end: &str, more: &str) -> String {
    format!(r#"{{"key":"{key}","range_end":"{end}","limit":"{PAGE_KEYS}"{more}}}"#)
}

/// A connection, and the last answer it got.
struct Client {
    connection: Connection,
    answer: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr) -> Client {
        Client { connection: Connection::open(address, BUFFER_BYTES), answer: Vec::new() }
    }

    fn post(&mut self, path: &str, body: &str) {
        self.answer.clear();
        let answer = &mut self.answer;
        self.connection.ask(path, body, &mut |piece| answer.extend_from_slice(piece)).unwrap();
    }

    fn ask(&mut self, body: &str) {
        self.post("/v3/kv/range", body);
    }

    /// Checks that the last answer has the keys of these numbers, as far as its ends tell.
    fn check(&self, numbers: Range<usize>) -> Page {
        let end = &self.answer[self.answer.len().saturating_sub(ANSWER_END_BYTES)..];
        assert_eq!(first_field(&self.answer, "key"), Some(key(numbers.start).as_str()));
        assert_eq!(last_field(&self.answer, "key"), Some(key(numbers.end - 1).as_str()));
        Page {
            count: last_field(end, "count").and_then(|count| count.parse().ok()).unwrap(),
            token: last_field(end, "continue").map(str::to_owned),
        }
    }

    /// Whether the server answers with tokens.
    fn has_tokens(&mut self, keys: usize) -> bool {
        self.ask(&page_of(&key(0), &key(keys), ""));
        self.check(0..PAGE_KEYS).token.is_some()
    }
}
