//! Limits: just below nothing is found, at it something is.

use super::*;
use crate::{
    mvcc::{CompactionProgress, OpenRead, OpenReads, ReclaimProgress},
    service::pipeline::{Durations, Indexes, Room},
    watch::{HubReport, StreamClient, StreamReport},
};

/// A member that is well.
fn well() -> PipelineReport {
    PipelineReport {
        leader: 1,
        is_leader: true,
        term: 2,
        indexes: Indexes { proposed: 9, committed: 9, applied: 9, written: 9 },
        durations: Durations {
            stages: Stage::ALL.map(|stage| (stage, taken(Duration::from_micros(900)))).to_vec(),
            backend_commit: taken(Duration::from_millis(9)),
        },
        watches: Some(HubReport { revision: 9, streams_total: 0, streams: Vec::new() }),
        room: Room { used_bytes: 10, quota_bytes: Some(100), ..Room::default() },
        ..PipelineReport::default()
    }
}

fn taken(took: Duration) -> Recent {
    Recent { count: 7, p50: took, p90: took, p99: took, max: took, running: None }
}

fn running(running: Duration) -> Recent {
    Recent { running: Some(running), ..Recent::default() }
}

fn with(change: impl FnOnce(&mut PipelineReport)) -> PipelineReport {
    let mut report = well();
    change(&mut report);
    report
}

fn with_stage(stage: Stage, recent: Recent) -> PipelineReport {
    with(|report| report.durations.stages[stage as usize].1 = recent)
}

fn found(report: &PipelineReport) -> Vec<(&'static str, Severity)> {
    diagnose(report).iter().map(|finding| (finding.code, finding.severity)).collect()
}

const CRITICAL: Severity = Severity::Critical;
const WARNING: Severity = Severity::Warning;

#[test]
fn a_member_that_is_well_has_no_findings() {
    assert_eq!(diagnose(&well()), []);
    assert!(verdict(&[]).starts_with("All is well"));
}

#[test]
fn what_hangs_is_stuck_after_five_seconds_and_each_in_its_place() {
    for (stage, code) in [(Stage::WalWrite, "log_stuck"), (Stage::Fsync, "log_stuck"), (Stage::Apply, "apply_stuck")] {
        assert_eq!(found(&with_stage(stage, running(Duration::from_millis(4_999)))), []);
        assert_eq!(found(&with_stage(stage, running(STUCK_MIN))), [(code, CRITICAL)]);
    }
    let commit = |running| with(|report| report.durations.backend_commit.running = Some(running));
    assert_eq!(found(&commit(Duration::from_millis(4_999))), []);
    assert_eq!(found(&commit(STUCK_MIN)), [("backend_commit_stuck", CRITICAL)]);
}

#[test]
fn a_write_that_waits_is_told_apart_by_the_indexes() {
    let waits = |proposed, committed, applied| {
        with(|report| {
            report.oldest_write = Some(STUCK_MIN);
            report.indexes = Indexes { proposed, committed, applied, written: 5 };
        })
    };
    for (report, code) in [
        (waits(9, 7, 7), "replication_stuck"),
        (waits(9, 9, 7), "apply_stuck"),
        (waits(9, 8, 7), "apply_stuck"),
        (waits(9, 9, 9), "proposals_stuck"),
    ] {
        assert_eq!(found(&report), [(code, CRITICAL)]);
        let younger = PipelineReport { oldest_write: Some(Duration::from_millis(4_999)), ..report.clone() };
        assert_eq!(found(&younger), []);
        // A sync that hangs explains it.
        let mut explained = report.clone();
        explained.durations.stages[Stage::Fsync as usize].1 = running(STUCK_MIN);
        assert_eq!(found(&explained), [("log_stuck", CRITICAL)]);
        // So does the want of room.
        let mut short_of_room = report.clone();
        short_of_room.room.shortage = Some("wal: no room".into());
        assert_eq!(found(&short_of_room), [("disk_full", CRITICAL)]);
        let leaderless = PipelineReport { leader: 0, ..report };
        assert_eq!(found(&leaderless), [("no_leader", CRITICAL)]);
    }
}

#[test]
fn slow_steps_of_the_last_minute() {
    let millis = Duration::from_millis;
    for (stage, limit, code, severity) in [
        (Stage::Fsync, millis(100), "log_slow", WARNING),
        (Stage::Fsync, millis(1_000), "log_slow", CRITICAL),
        (Stage::Apply, millis(100), "apply_slow", WARNING),
        (Stage::CommitToApply, millis(500), "processor_short", WARNING),
        (Stage::Notify, millis(500), "processor_short", WARNING),
        (Stage::Respond, millis(500), "processor_short", WARNING),
    ] {
        let below = found(&with_stage(stage, taken(limit - Duration::from_nanos(1))));
        assert!(!below.contains(&(code, severity)), "{stage:?}: {below:?}");
        assert_eq!(found(&with_stage(stage, taken(limit))), [(code, severity)]);
    }
    // What waits for a slow apply is no sign of a busy processor.
    let mut both = with_stage(Stage::Apply, taken(millis(600)));
    both.durations.stages[Stage::CommitToApply as usize].1 = taken(millis(600));
    assert_eq!(found(&both), [("apply_slow", WARNING)]);
    // Waiting for agreement is the network's, and waiting in line the disk's: the one has no limit here, the other is told
    // with the disk.
    assert_eq!(found(&with_stage(Stage::Queue, taken(millis(9_000)))), []);
    let commit = |took| with(|report| report.durations.backend_commit = taken(took));
    assert_eq!(found(&commit(millis(249))), []);
    assert_eq!(found(&commit(millis(250))), [("backend_commit_slow", WARNING)]);
}

#[test]
fn what_is_stuck_is_not_also_slow() {
    let mut recent = taken(Duration::from_secs(9));
    recent.running = Some(STUCK_MIN);
    assert_eq!(found(&with_stage(Stage::Fsync, recent)), [("log_stuck", CRITICAL)]);
    let report = with(|report| report.durations.backend_commit = recent);
    assert_eq!(found(&report), [("backend_commit_stuck", CRITICAL)]);
}

#[test]
fn what_is_behind() {
    let lag = |lag: u64| with(|report| report.indexes.applied = 100_000 - lag).with_committed(100_000);
    assert_eq!(found(&lag(999)), []);
    assert_eq!(found(&lag(1_000)), [("apply_behind", WARNING)]);
    assert_eq!(found(&lag(4_999)), [("apply_behind", WARNING)]);
    assert_eq!(found(&lag(5_000)), [("apply_behind", CRITICAL)]);
    let unwritten = |bytes| with(|report| report.room.unwritten_bytes = bytes);
    assert_eq!(found(&unwritten((128 << 20) - 1)), []);
    assert_eq!(found(&unwritten(128 << 20)), [("backend_behind", WARNING)]);
    assert_eq!(found(&unwritten(256 << 20)), [("backend_behind", CRITICAL)]);
}

impl PipelineReport {
    fn with_committed(mut self, committed: u64) -> PipelineReport {
        self.indexes.committed = committed;
        self.indexes.proposed = committed;
        self
    }
}

#[test]
fn room_that_runs_out() {
    let used = |used_bytes| with(|report| report.room.used_bytes = used_bytes);
    assert_eq!(found(&used(79)), []);
    assert_eq!(found(&used(80)), [("quota_low", WARNING)]);
    assert_eq!(found(&used(94)), [("quota_low", WARNING)]);
    assert_eq!(found(&used(95)), [("quota_low", CRITICAL)]);
    assert_eq!(found(&with(|report| report.room.nospace = true)), [("quota_full", CRITICAL)]);
    let unlimited = Room { used_bytes: u64::MAX, quota_bytes: None, ..Room::default() };
    assert_eq!(found(&PipelineReport { room: unlimited, ..well() }), []);
    let full = diagnose(&with(|report| report.room.shortage = Some("db: no room".into())));
    assert_eq!((full[0].code, full[0].severity, full[0].evidence[0].as_str()), ("disk_full", CRITICAL, "db: no room"));
    assert_eq!(found(&with(|report| report.corrupt = true)), [("corrupt", CRITICAL)]);
}

#[test]
fn watches_that_are_far_behind() {
    let stream = |lag_revisions| StreamReport {
        number: 3,
        client: StreamClient { peer: None, user: "ann".into() },
        age: Duration::ZERO,
        watches: 1,
        lagging: 1,
        lag_revisions,
        queued_deliveries: 0,
        queued_bytes: 2048,
    };
    let behind = |lags: &[i64]| {
        let streams: Vec<StreamReport> = lags.iter().map(|lag| stream(*lag)).collect();
        with(|report| report.watches = Some(HubReport { revision: 9, streams_total: streams.len(), streams }))
    };
    assert_eq!(found(&behind(&[9_999, 1])), []);
    let findings = diagnose(&behind(&[10_000, 9_999]));
    assert_eq!((findings.len(), findings[0].code, findings[0].severity), (1, "watches_behind", WARNING));
    assert_eq!(findings[0].evidence, ["stream 3 of the member itself: 10000 revisions behind, 2.0 KiB waiting"]);
    assert!(!findings[0].evidence[0].contains("ann"));
    assert_eq!(found(&with(|report| report.watches = None)), [("watches_stuck", CRITICAL)]);
}

#[test]
fn reads_that_are_held_open_and_what_waits_for_them() {
    let held_by = |kind, age| {
        with(|report| {
            let read = OpenRead { kind, revision: 4, age };
            report.open_reads = OpenReads { total: 3, oldest: vec![read] };
        })
    };
    let held = |age| held_by(ReadKind::Range, age);
    assert_eq!(found(&held_by(ReadKind::File, Duration::from_millis(599_999))), []);
    assert_eq!(found(&held_by(ReadKind::File, FILE_READ_OLD_MIN)), [("read_held", WARNING)]);
    assert_eq!(found(&held(Duration::from_millis(59_999))), []);
    assert_eq!(found(&held(RANGE_OLD_MIN)), [("read_held", WARNING)]);

    let mut report = held(RANGE_OLD_MIN);
    assert_eq!(diagnose(&report)[0].evidence.len(), 2);
    let phase = CompactionPhase::Reads;
    let age = Duration::from_secs(2);
    report.compaction = Some(CompactionProgress { phase, done_revision: 0, target_revision: 8, waiting: 0, age });
    report.reclaim = Some(ReclaimProgress { is_asked: true, is_held: true, pages_moved: 0, bytes_given_back: 0, age });
    let evidence = &diagnose(&report)[0].evidence;
    assert_eq!(
        evidence[2..],
        [
            "the compaction to revision 8 has been waiting for reads for 2.0 s",
            "giving room back is held up by open views of the file"
        ]
    );
}

#[test]
fn the_worst_comes_first_and_gives_the_verdict() {
    let report = with(|report| {
        report.durations.backend_commit = taken(Duration::from_secs(1));
        report.room.nospace = true;
    });
    assert_eq!(found(&report), [("quota_full", CRITICAL), ("backend_commit_slow", WARNING)]);
    let findings = diagnose(&report);
    assert!(verdict(&findings).starts_with("The quota is full") && verdict(&findings).ends_with("2 in all."));
    assert_eq!(verdict(&findings[1..]), findings[1].sentence);
}

#[test]
fn every_finding_has_evidence_and_advice_and_sentences_end() {
    let mut report = with(|report| {
        report.corrupt = true;
        report.leader = 0;
        report.room.shortage = Some("db: no room".into());
        report.room.nospace = true;
        report.watches = None;
        report.durations.backend_commit = taken(Duration::from_secs(1));
    });
    report.durations.stages[Stage::Apply as usize].1 = running(STUCK_MIN);
    for finding in diagnose(&report) {
        assert!(finding.sentence.ends_with('.') && finding.advice.ends_with('.'), "{finding:?}");
        assert!(!finding.evidence.is_empty() && !finding.evidence.iter().any(String::is_empty), "{finding:?}");
    }
}

#[test]
fn figures_for_people() {
    let short_of = |nanos| short(Duration::from_nanos(nanos));
    assert_eq!([short_of(0), short_of(1_500), short_of(2_500_000)], ["0 us", "2 us", "2.5 ms"]);
    assert_eq!([short_of(3_040_000_000), short_of(120_000_000_000)], ["3.0 s", "120 s"]);
    assert_eq!([size(0), size(1_536), size(5 << 20)], ["0 B", "1.5 KiB", "5.0 MiB"]);
}
