//! The guarantees of watches, held against recorded streams of the real binary: ordered, unique, complete, atomic,
//! resumable, with bookmarks that hold; with every filter and form, over lines and WebSockets, under eight writers, across
//! compaction, disconnects and kills.
//!
//! What a stream should have told is read from the store, revision by revision; `checker` compares, and `forged` shows that
//! it finds what is wrong.

mod checker;
mod forged;
mod recorder;
mod truth;
mod writers;

use std::{path::Path, thread};

use serde_json::{Value, json};

use self::{
    checker::{Recording, Spec, violations},
    recorder::{Recorder, Transport},
    truth::Truth,
    writers::Writers,
};
use crate::support::{Client, Server};

const WRITERS: usize = 8;
/// Responses of more than this are split for who allows it; progress is told often.
const FLAGS: [&str; 4] = ["--max-request-bytes", "1024", "--watch-progress-notify-interval", "100ms"];

const TRANSPORTS: [Transport; 2] = [Transport::Lines, Transport::Socket];

fn everything() -> Spec {
    Spec { key: "\0".into(), range_end: "\0".into(), ..Spec::default() }
}

fn prefix() -> Spec {
    Spec { key: "k/".into(), range_end: "k0".into(), ..Spec::default() }
}

/// What is watched, of each kind.
fn specs() -> Vec<Spec> {
    vec![
        everything(),
        Spec { prev_kv: true, progress_notify: true, ..prefix() },
        Spec { key: "k/1".into(), prev_kv: true, ..Spec::default() },
        Spec { no_put: true, prev_kv: true, ..prefix() },
        Spec { no_delete: true, ..everything() },
        Spec { fragment: true, prev_kv: true, ..everything() },
    ]
}

fn revision(client: &mut Client) -> i64 {
    let answer = client.call("/v3/kv/range", &json!({"key": "AA=="}));
    number(&answer["header"]["revision"]).unwrap()
}

/// A number as JSON carries it.
fn number(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| text.parse().ok())
}

fn assert_faultless(recording: &Recording, truth: &Truth) {
    let found = violations(recording, truth);
    assert!(found.is_empty(), "{:?}: {} violations, the first: {:#?}", recording.spec, found.len(), &found[..1]);
}

#[test]
fn guarantees_hold_live_in_replays_and_across_compaction() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &FLAGS);
    let mut client = server.client();
    let start_all = |start_revision| -> Vec<thread::JoinHandle<Recording>> {
        let specs = specs().into_iter().flat_map(|spec| TRANSPORTS.map(|transport| (spec.clone(), transport)));
        let start = |(spec, transport)| {
            Recorder::open(&server, transport, Spec { start_revision, ..spec }).unwrap().run_to_end()
        };
        specs.map(start).collect()
    };
    let live = start_all(0);
    Writers::start(&server, WRITERS, 1).finish(40);
    let mut truth = Truth::default();
    let middle = revision(&mut client);
    truth.extend(&mut client, middle);
    // These are behind when the second half of the writing begins.
    let replays = start_all(2);
    let writers = Writers::start(&server, WRITERS, 2);
    client.call("/v3/kv/compaction", &json!({"revision": (middle - 20).to_string()}));
    let late = Recorder::open(&server, Transport::Socket, Spec { start_revision: 2, ..everything() }).unwrap();
    writers.finish(40);
    writers::write_the_end(&mut client);
    let end = revision(&mut client);
    truth.extend(&mut client, end);
    for recorder in live {
        let recording = recorder.join().unwrap();
        assert!(recording.tells_the_end(), "{:?} ended early", recording.spec);
        assert_faultless(&Recording { compacted: middle - 20, ..recording }, &truth);
    }
    for recorder in replays {
        // Where the compaction overtook one, it was told so; all it got until then is right.
        let recording = recorder.join().unwrap();
        assert_faultless(&Recording { compacted: middle - 20, ..recording }, &truth);
    }
    let late = late.run_to_end().join().unwrap();
    assert_eq!(late.responses.last().unwrap()["compact_revision"], (middle - 20).to_string());
    assert_faultless(&Recording { compacted: middle - 20, ..late }, &truth);
}

/// Follows to the end over connections that each break off after some responses.
fn follow_in_pieces(server: &Server, transport: Transport, spec: &Spec, mut random: fastrand::Rng) -> Vec<Recording> {
    let mut pieces = Vec::new();
    let mut next = 2;
    loop {
        let spec = Spec { start_revision: next, ..spec.clone() };
        let mut recorder = Recorder::open(server, transport, spec).unwrap();
        let ended = recorder.take(random.usize(2..12));
        let recording = recorder.close();
        next = recording.last_event_revision().map_or(next, |revision| revision + 1);
        pieces.push(recording);
        if ended {
            return pieces;
        }
    }
}

#[test]
fn streams_are_resumed_where_they_broke_off() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path());
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(5);
    let mut truth = Truth::default();
    let pieces: Vec<Vec<Recording>> = thread::scope(|scope| {
        let specs = specs().into_iter().filter(|spec| !spec.fragment);
        let following: Vec<_> = specs
            .flat_map(|spec| TRANSPORTS.map(|transport| (spec.clone(), transport)))
            .map(|(spec, transport)| {
                let (random, server) = (random.fork(), &server);
                scope.spawn(move || follow_in_pieces(server, transport, &spec, random))
            })
            .collect();
        Writers::start(&server, WRITERS, 3).finish(40);
        writers::write_the_end(&mut client);
        following.into_iter().map(|following| following.join().unwrap()).collect()
    });
    let end = revision(&mut client);
    truth.extend(&mut client, end);
    for pieces in pieces {
        // Each piece is whole up to its last event, and the next begins behind that.
        pieces.iter().for_each(|piece| assert_faultless(piece, &truth));
        assert!(pieces.last().unwrap().tells_the_end());
    }
}

/// One life of the server: records under writers until the kill, from where the recordings before ended.
fn live_and_die(data: &Path, next: &mut [i64], round: u64) -> Vec<Recording> {
    let server = Server::start(data);
    let recorders: Vec<_> = TRANSPORTS
        .iter()
        .zip(&*next)
        .map(|(transport, next)| Recorder::open(&server, *transport, Spec { start_revision: *next, ..everything() }))
        .map(|recorder| recorder.unwrap().run_to_end())
        .collect();
    let writers = Writers::start(&server, WRITERS, 10 + round);
    writers.wait_for(150);
    server.kill();
    writers.abandon();
    let recordings: Vec<Recording> = recorders.into_iter().map(|recorder| recorder.join().unwrap()).collect();
    for (next, recording) in next.iter_mut().zip(&recordings) {
        *next = recording.last_event_revision().map_or(*next, |revision| revision + 1);
    }
    recordings
}

#[test]
fn what_was_told_before_a_kill_is_true_after_it() {
    let data = tempfile::tempdir().unwrap();
    let mut next = [2, 2];
    let mut recordings = Vec::new();
    for round in 0..5 {
        recordings.extend(live_and_die(data.path(), &mut next, round));
    }
    let server = Server::start(data.path());
    let mut client = server.client();
    let rest = next.map(|start_revision| {
        Recorder::open(&server, Transport::Socket, Spec { start_revision, ..everything() }).unwrap().run_to_end()
    });
    writers::write_the_end(&mut client);
    recordings.extend(rest.map(|recorder| recorder.join().unwrap()));
    let mut truth = Truth::default();
    let end = revision(&mut client);
    truth.extend(&mut client, end);
    recordings.iter().for_each(|recording| assert_faultless(recording, &truth));
    assert!(recordings[recordings.len() - 2..].iter().all(Recording::tells_the_end));
}
