//! `GET /debug/pipeline`: where writes are on their way, what is wrong, and what to do about it.
//!
//! JSON; text with `?format=text`, or for who prefers `text/plain`. It tells who is connected, so with authentication on it
//! is for those with the role `root`. What the figures mean is decided in `service`; here they are only spelled.

use std::{fmt::Write as _, io::Write as _, time::Duration};

use hyper::{HeaderMap, StatusCode, header::ACCEPT};

use super::{
    front::Front,
    json::write,
    reply::{self, Reply},
    side,
};
use crate::{
    metrics::Recent,
    mvcc::{CompactionPhase, CompactionProgress, ReadKind, ReclaimProgress},
    service::{Caller, Finding, PipelineReport, Room, short, size, verdict},
    watch::StreamReport,
};

pub(super) const PIPELINE_PATH: &str = "/debug/pipeline";

/// Answers a GET of [`PIPELINE_PATH`].
pub(super) async fn pipeline(front: &Front, query: &str, headers: &HeaderMap, caller: &Caller) -> Reply {
    let (report, findings) = match front.services.pipeline.report(caller).await {
        Ok(told) => told,
        Err(error) => return reply::error(&error),
    };
    if wants_text(query, headers) {
        return reply::text(StatusCode::OK, text(&report, &findings));
    }
    reply::json(StatusCode::OK, json(&report, &findings))
}

/// What the query says counts more than what the client accepts.
fn wants_text(query: &str, headers: &HeaderMap) -> bool {
    match side::values(query, "format").first() {
        Some(format) => format == "text",
        None => headers.get(ACCEPT).is_some_and(|accepted| accepted.as_bytes().starts_with(b"text/plain")),
    }
}

fn json(report: &PipelineReport, findings: &[Finding]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut object = write::Object::begin(&mut body);
    write::string(object.name("verdict"), &verdict(findings));
    let mut list = write::Array::begin(object.name("findings"));
    findings.iter().for_each(|finding| finding_json(list.item(), finding));
    list.end();
    // Ids are strings, as in the API: they need all 64 bits.
    write::quoted_number(object.name("leader"), report.leader);
    write::bool(object.name("is_leader"), report.is_leader);
    write::number(object.name("term"), report.term);
    write::number(object.name("proposed_index"), report.indexes.proposed);
    write::number(object.name("committed_index"), report.indexes.committed);
    write::number(object.name("applied_index"), report.indexes.applied);
    write::number(object.name("written_index"), report.indexes.written);
    let [uncommitted, unapplied, unwritten] = lags(report);
    write::number(object.name("uncommitted_entries"), uncommitted);
    write::number(object.name("unapplied_entries"), unapplied);
    write::number(object.name("unwritten_entries"), unwritten);
    write::number(object.name("pending_writes"), report.pending);
    optional_seconds(object.name("oldest_write_seconds"), report.oldest_write);
    write::number(object.name("revision"), report.revision);
    write::number(object.name("compact_revision"), report.compact_revision);
    let mut durations = write::Object::begin(object.name("last_minute"));
    for (name, recent) in named_durations(report) {
        recent_json(durations.name(name), recent);
    }
    durations.end();
    room_json(object.name("room"), &report.room);
    watches_json(object.name("watches"), report);
    let mut reads = write::Object::begin(object.name("open_reads"));
    write::number(reads.name("total"), report.open_reads.total);
    let mut oldest = write::Array::begin(reads.name("oldest"));
    for read in &report.open_reads.oldest {
        let mut object = write::Object::begin(oldest.item());
        write::string(object.name("kind"), read_kind(read.kind));
        write::number(object.name("revision"), read.revision);
        seconds(object.name("age_seconds"), read.age);
        object.end();
    }
    oldest.end();
    reads.end();
    compaction_json(object.name("compaction"), report.compaction);
    reclaim_json(object.name("reclaim"), report.reclaim);
    object.end();
    body.push(b'\n');
    body
}

fn finding_json(out: &mut Vec<u8>, finding: &Finding) {
    let mut object = write::Object::begin(out);
    write::string(object.name("severity"), finding.severity.name());
    write::string(object.name("code"), finding.code);
    write::string(object.name("sentence"), &finding.sentence);
    let mut evidence = write::Array::begin(object.name("evidence"));
    finding.evidence.iter().for_each(|line| write::string(evidence.item(), line));
    evidence.end();
    write::string(object.name("advice"), finding.advice);
    object.end();
}

fn recent_json(out: &mut Vec<u8>, recent: Recent) {
    let Recent { count, p50, p90, p99, max, running } = recent;
    let mut object = write::Object::begin(out);
    write::number(object.name("count"), count);
    seconds(object.name("p50_seconds"), p50);
    seconds(object.name("p90_seconds"), p90);
    seconds(object.name("p99_seconds"), p99);
    seconds(object.name("max_seconds"), max);
    optional_seconds(object.name("running_seconds"), running);
    object.end();
}

fn room_json(out: &mut Vec<u8>, room: &Room) {
    let mut object = write::Object::begin(out);
    write::number(object.name("used_bytes"), room.used_bytes);
    match room.quota_bytes {
        Some(quota) => write::number(object.name("quota_bytes"), quota),
        None => null(object.name("quota_bytes")),
    }
    write::number(object.name("unwritten_bytes"), room.unwritten_bytes);
    write::bool(object.name("nospace"), room.nospace);
    match &room.shortage {
        Some(shortage) => write::string(object.name("shortage"), shortage),
        None => null(object.name("shortage")),
    }
    object.end();
}

fn watches_json(out: &mut Vec<u8>, report: &PipelineReport) {
    let Some(watches) = &report.watches else { return null(out) };
    let mut object = write::Object::begin(out);
    write::number(object.name("streams_total"), watches.streams_total);
    let mut list = write::Array::begin(object.name("streams"));
    for stream in &watches.streams {
        let mut object = write::Object::begin(list.item());
        write::number(object.name("stream"), stream.number);
        write::string(object.name("peer"), &peer(stream));
        write::number(object.name("watches"), stream.watches);
        write::number(object.name("lagging"), stream.lagging);
        write::number(object.name("lag_revisions"), stream.lag_revisions);
        write::number(object.name("queued_bytes"), stream.queued_bytes);
        object.end();
    }
    list.end();
    object.end();
}

fn compaction_json(out: &mut Vec<u8>, compaction: Option<CompactionProgress>) {
    let Some(compaction) = compaction else { return null(out) };
    let mut object = write::Object::begin(out);
    write::string(object.name("phase"), phase(compaction.phase));
    write::number(object.name("done_revision"), compaction.done_revision);
    write::number(object.name("target_revision"), compaction.target_revision);
    write::number(object.name("waiting"), compaction.waiting);
    seconds(object.name("age_seconds"), compaction.age);
    object.end();
}

fn reclaim_json(out: &mut Vec<u8>, reclaim: Option<ReclaimProgress>) {
    let Some(reclaim) = reclaim else { return null(out) };
    let mut object = write::Object::begin(out);
    write::bool(object.name("is_asked"), reclaim.is_asked);
    write::bool(object.name("is_held"), reclaim.is_held);
    write::number(object.name("pages_moved"), reclaim.pages_moved);
    write::number(object.name("given_back_bytes"), reclaim.bytes_given_back);
    seconds(object.name("age_seconds"), reclaim.age);
    object.end();
}

fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"null");
}

fn seconds(out: &mut Vec<u8>, duration: Duration) {
    write!(out, "{}", duration.as_secs_f64()).expect("a vector takes everything");
}

fn optional_seconds(out: &mut Vec<u8>, duration: Option<Duration>) {
    match duration {
        Some(duration) => seconds(out, duration),
        None => null(out),
    }
}

/// Entries that are not committed, not applied, not in the file.
fn lags(report: &PipelineReport) -> [u64; 3] {
    let at = report.indexes;
    [(at.proposed, at.committed), (at.committed, at.applied), (at.applied, at.written)]
        .map(|(ahead, behind)| ahead.saturating_sub(behind))
}

fn named_durations(report: &PipelineReport) -> Vec<(&'static str, Recent)> {
    let stages = report.durations.stages.iter().map(|(stage, recent)| (stage.name(), *recent));
    stages.chain([("backend_commit", report.durations.backend_commit)]).collect()
}

fn peer(stream: &StreamReport) -> String {
    stream.client.peer.map_or_else(|| "member".to_owned(), |peer| peer.to_string())
}

fn read_kind(kind: ReadKind) -> &'static str {
    match kind {
        ReadKind::Range => "range",
        ReadKind::File => "file",
    }
}

fn phase(phase: CompactionPhase) -> &'static str {
    match phase {
        CompactionPhase::Reads => "waits for reads",
        CompactionPhase::Index => "index",
        CompactionPhase::File => "file",
    }
}

fn text(report: &PipelineReport, findings: &[Finding]) -> String {
    let mut text = format!("{}\n", verdict(findings));
    for finding in findings {
        text += &format!("\n{}: {}\n", finding.severity.name(), finding.sentence);
        finding.evidence.iter().for_each(|line| text += &format!("    {line}\n"));
        text += &format!("    What to do: {}\n", finding.advice);
    }
    let at = report.indexes;
    let [uncommitted, unapplied, unwritten] = lags(report);
    let leader = match report.leader {
        0 => "none".to_owned(),
        _ if report.is_leader => "this member".to_owned(),
        other => format!("{other:x}"),
    };
    let oldest = report.oldest_write.map_or_else(|| "none".to_owned(), short);
    let facts = [
        ("leader", format!("{leader}, in term {}", report.term)),
        ("log", format!("proposed {}, committed {} ({uncommitted} behind)", at.proposed, at.committed)),
        ("applied", format!("{} ({unapplied} behind), in the file {} ({unwritten} behind)", at.applied, at.written)),
        ("writes waiting", format!("{}, the oldest in the log for: {oldest}", report.pending)),
        ("revision", format!("{}, compacted to {}", report.revision, report.compact_revision)),
        ("room", room_text(&report.room)),
        ("open reads", reads_text(report)),
        ("compaction", report.compaction.map_or_else(|| "none".into(), compaction_text)),
        ("giving back room", report.reclaim.map_or_else(|| "no".into(), reclaim_text)),
        ("watch streams", watches_text(report)),
    ];
    text.push('\n');
    facts.iter().for_each(|(name, fact)| text += &format!("{name:<17} {fact}\n"));
    text += &format!(
        "\n{:<17} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "last minute", "count", "p50", "p90", "p99", "max", "running"
    );
    for (name, Recent { count, p50, p90, p99, max, running }) in named_durations(report) {
        let [p50, p90, p99, max] = [p50, p90, p99, max].map(short);
        let running = running.map_or_else(|| "-".to_owned(), short);
        let line = writeln!(text, "{name:<17} {count:>8} {p50:>9} {p90:>9} {p99:>9} {max:>9} {running:>9}");
        line.expect("a string takes everything");
    }
    text
}

fn room_text(room: &Room) -> String {
    let quota = room.quota_bytes.map_or_else(|| "no quota".to_owned(), |quota| format!("quota {}", size(quota)));
    let alarm = if room.nospace { ", NOSPACE" } else { "" };
    let shortage = if room.shortage.is_some() { ", the disk is full" } else { "" };
    let (used, unwritten) = (size(room.used_bytes), size(room.unwritten_bytes));
    format!("{used} used, {quota}{alarm}{shortage}; {unwritten} not in the file yet")
}

fn reads_text(report: &PipelineReport) -> String {
    let told = report.open_reads.oldest.iter();
    let told =
        told.map(|read| format!("; {} at revision {} for {}", read_kind(read.kind), read.revision, short(read.age)));
    format!("{}{}", report.open_reads.total, told.collect::<String>())
}

fn compaction_text(compaction: CompactionProgress) -> String {
    let CompactionProgress { done_revision, target_revision, waiting, age, .. } = compaction;
    let (phase, age) = (phase(compaction.phase), short(age));
    format!("to revision {target_revision}, at {done_revision} ({phase}), for {age}; {waiting} waiting")
}

fn reclaim_text(reclaim: ReclaimProgress) -> String {
    let why = if reclaim.is_asked { "asked for" } else { "by itself" };
    let held = if reclaim.is_held { ", held up by open views" } else { "" };
    let given_back = size(reclaim.bytes_given_back);
    format!("{why}, for {}: {} pages moved, {given_back} given back{held}", short(reclaim.age), reclaim.pages_moved)
}

fn watches_text(report: &PipelineReport) -> String {
    let Some(watches) = &report.watches else { return "the thread does not answer".into() };
    let told = watches.streams.iter().filter(|stream| stream.lag_revisions > 0);
    let told = told.map(|stream| {
        let (peer, queued) = (peer(stream), size(stream.queued_bytes as u64));
        format!("; {} of {peer}: {} revisions behind, {queued} waiting", stream.number, stream.lag_revisions)
    });
    format!("{}{}", watches.streams_total, told.collect::<String>())
}
