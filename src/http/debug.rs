//! What an operator looks at when watches are slow: every stream of this member, those that lag most first.
//!
//! `GET /debug/watchers` is text, with `?format=json` JSON. It tells who is connected, so with authentication on it is for
//! those with the role `root`; on a port for metrics alone it is for whoever reaches that.

use std::fmt::Write as _;

use hyper::StatusCode;

use super::{
    front::Front,
    json::write,
    reply::{self, Reply},
    side,
};
use crate::{
    error::ApiError,
    service::Caller,
    watch::{HubReport, StreamReport},
};

pub(super) const WATCHERS_PATH: &str = "/debug/watchers";

/// Streams listed unless the query says `limit=`, and the most it may say.
const STREAMS_DEFAULT: usize = 100;
const STREAMS_MAX: usize = 10_000;

/// Answers a GET of [`WATCHERS_PATH`].
pub(super) async fn watchers(front: &Front, query: &str, caller: &Caller) -> Reply {
    let limit = side::values(query, "limit").first().map_or(Ok(STREAMS_DEFAULT), |limit| limit.parse());
    let Ok(limit) = limit else {
        return reply::error(&ApiError::Malformed("limit is not a number".into()));
    };
    match front.services.watch.report(caller, limit.min(STREAMS_MAX)).await {
        Err(error) => reply::error(&error),
        Ok(report) if side::values(query, "format").iter().any(|format| format == "json") => {
            reply::json(StatusCode::OK, json(&report))
        }
        Ok(report) => reply::text(StatusCode::OK, text(&report)),
    }
}

fn text(report: &HubReport) -> String {
    let mut text = format!(
        "revision {}, {} of {} watch streams, those that lag most first\n\n\
         {:>10} {:<24} {:<16} {:>8} {:>8} {:>8} {:>12} {:>10} {:>12}\n",
        report.revision,
        report.streams.len(),
        report.streams_total,
        "stream",
        "peer",
        "user",
        "age s",
        "watches",
        "lagging",
        "lag revs",
        "queued",
        "queued bytes"
    );
    for stream in &report.streams {
        let written = writeln!(
            text,
            "{:>10} {:<24} {:<16} {:>8} {:>8} {:>8} {:>12} {:>10} {:>12}",
            stream.number,
            peer(stream),
            stream.client.user.escape_debug().to_string(),
            stream.age.as_secs(),
            stream.watches,
            stream.lagging,
            stream.lag_revisions,
            stream.queued_deliveries,
            stream.queued_bytes
        );
        written.expect("a string takes everything");
    }
    text
}

fn json(report: &HubReport) -> Vec<u8> {
    let mut body = Vec::new();
    let mut object = write::Object::begin(&mut body);
    object.int64("revision", report.revision);
    write::number(object.name("streams_total"), report.streams_total);
    let mut streams = write::Array::begin(object.name("streams"));
    for stream in &report.streams {
        let mut object = write::Object::begin(streams.item());
        write::number(object.name("stream"), stream.number);
        write::string(object.name("peer"), &peer(stream));
        write::string(object.name("user"), &stream.client.user);
        write::number(object.name("age_seconds"), stream.age.as_secs());
        write::number(object.name("watches"), stream.watches);
        write::number(object.name("lagging"), stream.lagging);
        write::number(object.name("lag_revisions"), stream.lag_revisions);
        write::number(object.name("queued_deliveries"), stream.queued_deliveries);
        write::number(object.name("queued_bytes"), stream.queued_bytes);
        object.end();
    }
    streams.end();
    object.end();
    body
}

/// Streams without one are the member's own, for locks and elections.
fn peer(stream: &StreamReport) -> String {
    stream.client.peer.map_or_else(|| "member".to_owned(), |peer| peer.to_string())
}
