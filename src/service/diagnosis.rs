//! What a member's state means: from a report to findings, each with its evidence and what to do.
//!
//! Plain functions over plain data. Each finding has one cause; where one explains another, only the first is told. The
//! limits are those from which clients feel it, and say why they are what they are.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    metrics::{Recent, Stage},
    mvcc::{CompactionPhase, ReadKind},
};

use super::pipeline::PipelineReport;

/// From which on a step counts as stuck: the part of a request's time that is the disk's. After it, and two elections,
/// clients are told of a timeout.
const STUCK_MIN: Duration = Duration::from_secs(5);
/// A log sync as long as the usual time between heartbeats: each write waits for one, and a leader that syncs so slowly
/// misses its own heartbeats.
const FSYNC_SLOW_MIN: Duration = Duration::from_millis(100);
/// A log sync as long as the usual election timeout.
const FSYNC_VERY_SLOW_MIN: Duration = Duration::from_secs(1);
/// Where etcd's alerts, and ours, begin for commits of the backend file.
const COMMIT_SLOW_MIN: Duration = Duration::from_millis(250);
/// Above which applies are logged by default: everything else waits for one.
const APPLY_SLOW_MIN: Duration = Duration::from_millis(100);
/// What needs neither disk nor peers takes less than a millisecond on a processor that is free.
const PROCESSOR_SLOW_MIN: Duration = Duration::from_millis(500);
/// Entries committed and not applied at which requests are refused.
const APPLY_LAG_ENTRIES_MAX: u64 = 5_000;
/// A fifth of that: more than is ever on its way where applies keep up.
const APPLY_LAG_ENTRIES_MIN: u64 = 1_000;
/// Applied bytes that are not in the file at which requests are refused.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 20;
/// Half of that: the file has been behind for a while.
const UNWRITTEN_BYTES_MIN: u64 = 128 << 20;
/// Share of the quota, in percent, from which on there is little time left.
const QUOTA_LOW_PERCENT: u64 = 80;
/// Share of the quota, in percent, from which on there is hardly any.
const QUOTA_VERY_LOW_PERCENT: u64 = 95;
/// Revisions behind at which a watch is far behind: a compaction may soon pass it.
const WATCH_LAG_REVISIONS_MIN: i64 = 10_000;
/// How long a list may be open: twice as long as compactions wait for one by default.
const RANGE_OLD_MIN: Duration = Duration::from_secs(60);
/// How long a snapshot or a hash may be open: a backup of a few gigabytes takes minutes and harms nobody.
const FILE_READ_OLD_MIN: Duration = Duration::from_secs(600);

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Clients are refused, or wait in vain.
    Critical,
    /// It is slow, or will be critical.
    Warning,
}

impl Severity {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Its name, for programs.
    pub code: &'static str,
    /// What is wrong, in a sentence.
    pub sentence: String,
    /// The figures from which that follows.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: &'static str,
}

/// What is wrong, the worst first.
pub fn diagnose(report: &PipelineReport) -> Vec<Finding> {
    let stuck = stuck(report);
    let is_stuck = !stuck.is_empty();
    let mut findings: Vec<Finding> =
        [corrupt(report), disk_full(report), no_leader(report)].into_iter().flatten().collect();
    findings.extend(stuck);
    // What is stuck is slow too.
    let slow = [log_slow(report), apply_slow(report), processor_short(report)];
    findings.extend(slow.into_iter().flatten().filter(|_| !is_stuck));
    findings.extend(
        [
            commit_slow(report),
            apply_behind(report),
            file_behind(report),
            quota(report),
            watches(report),
            read_held(report),
        ]
        .into_iter()
        .flatten(),
    );
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// All findings in a sentence.
pub fn verdict(findings: &[Finding]) -> String {
    match findings {
        [] => "All is well: nothing is stuck, slow or short of room.".into(),
        [only] => only.sentence.clone(),
        [first, rest @ ..] => format!("{} There is more: {} in all.", first.sentence, rest.len() + 1),
    }
}

fn corrupt(report: &PipelineReport) -> Option<Finding> {
    report.corrupt.then(|| Finding {
        severity: Severity::Critical,
        code: "corrupt",
        sentence: "The CORRUPT alarm is raised: members do not hold the same data, and every request is refused.".into(),
        evidence: vec!["alarm CORRUPT".into()],
        advice: "Compare the members by /v3/maintenance/hashkv, replace the one that differs from a snapshot of another, \
                 then disarm the alarm.",
    })
}

fn disk_full(report: &PipelineReport) -> Option<Finding> {
    let shortage = report.room.shortage.as_ref()?;
    Some(Finding {
        severity: Severity::Critical,
        code: "disk_full",
        sentence: "The disk is full: what grows is refused, reads and deletes go on.".into(),
        evidence: vec![shortage.clone()],
        advice: "Enlarge the volume, remove from it what is not revgate's, or delete keys, compact and defragment. It ends \
                 by itself once there is room.",
    })
}

fn no_leader(report: &PipelineReport) -> Option<Finding> {
    (report.leader == 0).then(|| Finding {
        severity: Severity::Critical,
        code: "no_leader",
        sentence: "This member knows no leader: nothing is written, and linearizable reads fail.".into(),
        evidence: vec![format!("leader 0 in term {}", report.term), indexes(report)],
        advice: "See whether the other members are up and can be reached, and whether this one still replays its log.",
    })
}

/// What has not moved for too long. Disk, agreement and apply are told apart by what is running and by the indexes.
fn stuck(report: &PipelineReport) -> Vec<Finding> {
    let mut found = hanging(report);
    // A call that hangs explains why writes wait, and so does the want of a leader, or of room.
    if found.is_empty() && report.leader != 0 && report.room.shortage.is_none() {
        found.extend(report.oldest_write.filter(|age| *age >= STUCK_MIN).map(|age| waiting_write(report, age)));
    }
    found
}

/// Calls that have not come back.
fn hanging(report: &PipelineReport) -> Vec<Finding> {
    let durations = &report.durations;
    let hangs = |recent: Recent| recent.running.filter(|running| *running >= STUCK_MIN).map(short);
    let log = [(Stage::WalWrite, "write"), (Stage::Fsync, "sync")].map(|(stage, what)| {
        let running = hangs(durations.of(stage))?;
        Some(critical(
            "log_stuck",
            format!("Writes are stuck in the disk: a {what} of the log has been running for {running}."),
            vec![format!("{} running for {running}", stage.name()), indexes(report), waiting(report)],
            "Look at the disk under the data directory: latency, queue, throttling, a volume that has gone away. Every \
             write waits for this call; it is neither given up nor repeated.",
        ))
    });
    let commit = hangs(durations.backend_commit).map(|running| {
        critical(
            "backend_commit_stuck",
            format!("A commit of the backend file has been running for {running}: what is applied piles up in memory."),
            vec![format!("backend commit running for {running}"), indexes(report), unwritten(report)],
            "Look at the disk under the data directory. Writes are still answered, until 256 MiB are not written.",
        )
    });
    let apply = hangs(durations.of(Stage::Apply)).map(|running| {
        critical(
            "apply_stuck",
            format!("Writes are stuck in apply: one log entry has been applied for {running}."),
            vec![format!("apply running for {running}"), indexes(report), waiting(report)],
            "They are agreed on and durable: the disk and the network are not to blame. Look for a huge txn or a delete \
             of a huge range, and for a processor without time to spare.",
        )
    });
    log.into_iter().chain([commit, apply]).flatten().collect()
}

/// A write that waits while nothing runs that it could wait for: the indexes tell where it is.
fn waiting_write(report: &PipelineReport, age: Duration) -> Finding {
    let (at, age) = (report.indexes, short(age));
    let (code, sentence, advice) = if at.committed > at.applied {
        (
            "apply_stuck",
            format!("Writes are stuck in apply: what is committed has not been applied for {age}."),
            "They are agreed on and durable: the disk and the network are not to blame. Look for a processor without time \
             to spare.",
        )
    } else if at.proposed > at.committed {
        (
            "replication_stuck",
            format!("Writes are stuck before apply: the log has not been agreed on for {age}."),
            "No quorum has them in its log. With other members, look at those and at the network between them; without, at \
             the disk under the data directory: the log may wait for room or for its next segment. Apply is not to blame.",
        )
    } else {
        (
            "proposals_stuck",
            format!("Writes wait to be proposed: the oldest has been waiting for {age}."),
            "They are in no log. Look at whether leadership moves, and for a processor without time to spare.",
        )
    };
    let evidence = vec![indexes(report), waiting(report), "no sync and no apply is running".into()];
    critical(code, sentence, evidence, advice)
}

fn critical(code: &'static str, sentence: String, evidence: Vec<String>, advice: &'static str) -> Finding {
    Finding { severity: Severity::Critical, code, sentence, evidence, advice }
}

fn log_slow(report: &PipelineReport) -> Option<Finding> {
    let recent = report.durations.of(Stage::Fsync);
    (recent.p99 >= FSYNC_SLOW_MIN).then(|| Finding {
        severity: if recent.p99 >= FSYNC_VERY_SLOW_MIN { Severity::Critical } else { Severity::Warning },
        code: "log_slow",
        sentence: format!("The disk is slow: log syncs took up to {} in the last minute.", short(recent.max)),
        evidence: vec![last_minute("log sync", recent)],
        advice: "Give the log a disk of its own with guaranteed writes. Good ones need less than 10 ms, and every write waits \
                 for one sync.",
    })
}

fn commit_slow(report: &PipelineReport) -> Option<Finding> {
    let recent = report.durations.backend_commit;
    let is_stuck = recent.running.is_some_and(|running| running >= STUCK_MIN);
    (recent.p99 >= COMMIT_SLOW_MIN && !is_stuck).then(|| Finding {
        severity: Severity::Warning,
        code: "backend_commit_slow",
        sentence: format!("Commits of the backend file are slow: up to {} in the last minute.", short(recent.max)),
        evidence: vec![last_minute("backend commit", recent), unwritten(report)],
        advice: "No request waits for them, but memory grows and a start after a crash takes longer. A faster disk, or less \
                 written beside it.",
    })
}

fn apply_slow(report: &PipelineReport) -> Option<Finding> {
    let recent = report.durations.of(Stage::Apply);
    (recent.p99 >= APPLY_SLOW_MIN).then(|| Finding {
        severity: Severity::Warning,
        code: "apply_slow",
        sentence: format!("Applying is slow: a log entry took up to {} in the last minute.", short(recent.max)),
        evidence: vec![last_minute("apply", recent), indexes(report)],
        advice: "Smaller txns, and deletes of smaller ranges: everything else waits for each. Apply time by operation is on \
                 the dashboard.",
    })
}

/// What waits neither for the disk nor for peers waits for a processor.
fn processor_short(report: &PipelineReport) -> Option<Finding> {
    let slow = |stage: &Stage| report.durations.of(*stage).p99 >= PROCESSOR_SLOW_MIN;
    // An entry waits for the one before it to be applied: where that is slow, it says all.
    let waits_for_apply = report.durations.of(Stage::Apply).p99 >= APPLY_SLOW_MIN;
    let stages: Vec<Stage> = [Stage::CommitToApply, Stage::Notify, Stage::Respond]
        .into_iter()
        .filter(|stage| *stage != Stage::CommitToApply || !waits_for_apply)
        .filter(slow)
        .collect();
    (!stages.is_empty()).then(|| Finding {
        severity: Severity::Warning,
        code: "processor_short",
        sentence: "The processor is short: steps of a write that need no disk took long in the last minute.".into(),
        evidence: stages.iter().map(|stage| last_minute(stage.name(), report.durations.of(*stage))).collect(),
        advice: "Give the member more processor, or take load from it: large ranges, compression, many watches of the same \
                 keys.",
    })
}

fn apply_behind(report: &PipelineReport) -> Option<Finding> {
    let lag = report.indexes.committed.saturating_sub(report.indexes.applied);
    (lag >= APPLY_LAG_ENTRIES_MIN).then(|| Finding {
        severity: if lag >= APPLY_LAG_ENTRIES_MAX { Severity::Critical } else { Severity::Warning },
        code: "apply_behind",
        sentence: format!("Applying is behind: {lag} log entries are committed and not applied."),
        evidence: vec![indexes(report), last_minute("apply", report.durations.of(Stage::Apply))],
        advice: "After a restart, wait until the log is replayed. Otherwise smaller txns, or more processor.",
    })
}

fn file_behind(report: &PipelineReport) -> Option<Finding> {
    let bytes = report.room.unwritten_bytes;
    (bytes >= UNWRITTEN_BYTES_MIN).then(|| Finding {
        severity: if bytes >= UNWRITTEN_BYTES_MAX { Severity::Critical } else { Severity::Warning },
        code: "backend_behind",
        sentence: format!("The backend file is behind: {} are applied and not in it.", size(bytes)),
        evidence: vec![unwritten(report), last_minute("backend commit", report.durations.backend_commit)],
        advice: "At 256 MiB requests are refused. A faster disk, or fewer and smaller writes.",
    })
}

fn quota(report: &PipelineReport) -> Option<Finding> {
    let room = &report.room;
    let percent = room.quota_bytes.map(|quota| u128::from(room.used_bytes) * 100 / u128::from(quota.max(1)));
    let used = match room.quota_bytes {
        Some(quota) => format!("{} of {} used", size(room.used_bytes), size(quota)),
        None => format!("{} used, no quota", size(room.used_bytes)),
    };
    let advice = "Delete what is not needed and compact to a recent revision: below 90 % of the quota the alarm goes by \
                  itself. `revgate inspect` on a snapshot names the biggest keys and prefixes. If all of it is needed, raise \
                  --quota-backend-bytes.";
    if room.nospace {
        return Some(Finding {
            severity: Severity::Critical,
            code: "quota_full",
            sentence: "The quota is full: the NOSPACE alarm is raised, and what grows is refused.".into(),
            evidence: vec!["alarm NOSPACE".into(), used],
            advice,
        });
    }
    let percent = percent.filter(|percent| *percent >= u128::from(QUOTA_LOW_PERCENT))?;
    let is_very_low = percent >= u128::from(QUOTA_VERY_LOW_PERCENT);
    Some(Finding {
        severity: if is_very_low { Severity::Critical } else { Severity::Warning },
        code: "quota_low",
        sentence: format!("The quota is nearly full: {percent} % are used."),
        evidence: vec![used],
        advice,
    })
}

fn watches(report: &PipelineReport) -> Option<Finding> {
    let Some(watches) = &report.watches else {
        return Some(Finding {
            severity: Severity::Critical,
            code: "watches_stuck",
            sentence: "The watches' thread does not answer: no watch is told of anything.".into(),
            evidence: vec!["no report of the watch streams".into()],
            advice: "Take a stack trace of the process, then start it again; watches go on where they were.",
        });
    };
    let behind = watches.streams.iter().filter(|stream| stream.lag_revisions >= WATCH_LAG_REVISIONS_MIN);
    let evidence: Vec<String> = behind
        .map(|stream| {
            let peer = stream.client.peer.map_or_else(|| "the member itself".into(), |peer| peer.to_string());
            format!(
                "stream {} of {peer}: {} revisions behind, {} waiting",
                stream.number,
                stream.lag_revisions,
                size(stream.queued_bytes as u64)
            )
        })
        .collect();
    (!evidence.is_empty()).then(|| Finding {
        severity: Severity::Warning,
        code: "watches_behind",
        sentence:
            "Watches are far behind: their clients read too slowly, or not at all, or have just begun far back; a compaction \
             cancels those it passes."
                .into(),
        evidence,
        advice: "Mend or end those clients; /debug/watchers lists all streams. Nobody else is slowed down by them.",
    })
}

fn read_held(report: &PipelineReport) -> Option<Finding> {
    let is_old = |kind: &ReadKind| match kind {
        ReadKind::Range => RANGE_OLD_MIN,
        ReadKind::File => FILE_READ_OLD_MIN,
    };
    let oldest = report.open_reads.oldest.iter().find(|read| read.age >= is_old(&read.kind))?;
    let (kept, what) = match oldest.kind {
        ReadKind::Range => ("history", "a list that its client does not read to the end"),
        ReadKind::File => ("pages of the file", "a snapshot or a hash that has not ended"),
    };
    let mut evidence = vec![
        format!("{what}, open for {}, at revision {}", short(oldest.age), oldest.revision),
        format!("{} reads are open, the store is at revision {}", report.open_reads.total, report.revision),
    ];
    if let Some(compaction) = report.compaction.filter(|compaction| compaction.phase == CompactionPhase::Reads) {
        let (target, age) = (compaction.target_revision, short(compaction.age));
        evidence.push(format!("the compaction to revision {target} has been waiting for reads for {age}"));
    }
    if report.reclaim.is_some_and(|reclaim| reclaim.is_held) {
        evidence.push("giving room back is held up by open views of the file".into());
    }
    Some(Finding {
        severity: Severity::Warning,
        code: "read_held",
        sentence: format!("A read has been open for {}: it keeps {kept}.", short(oldest.age)),
        evidence,
        advice: "Find the client and let it read on, or end it. Compactions break lists off after --compaction-reads-wait; \
                 what a snapshot keeps is free when it ends.",
    })
}

fn indexes(report: &PipelineReport) -> String {
    let at = report.indexes;
    format!(
        "proposed {}, committed {} ({} behind), applied {} ({} behind)",
        at.proposed,
        at.committed,
        at.proposed.saturating_sub(at.committed),
        at.applied,
        at.committed.saturating_sub(at.applied)
    )
}

fn waiting(report: &PipelineReport) -> String {
    let oldest = report.oldest_write.map_or_else(String::new, |age| format!(", the oldest for {}", short(age)));
    format!("{} writes wait{oldest}", report.pending)
}

fn unwritten(report: &PipelineReport) -> String {
    let at = report.indexes;
    format!(
        "{} applied and not in the file, {} entries",
        size(report.room.unwritten_bytes),
        at.applied.saturating_sub(at.written)
    )
}

fn last_minute(what: &str, recent: Recent) -> String {
    let Recent { count, p50, p99, max, .. } = recent;
    format!(
        "{what} in the last minute: {count}, half within {}, 99 % within {}, at most {}",
        short(p50),
        short(p99),
        short(max)
    )
}

/// A duration for people: three digits are enough.
pub fn short(duration: Duration) -> String {
    let secs = duration.as_secs_f64();
    match secs {
        _ if secs >= 100.0 => format!("{secs:.0} s"),
        _ if secs >= 1.0 => format!("{secs:.1} s"),
        _ if secs >= 0.001 => format!("{:.1} ms", secs * 1e3),
        _ => format!("{:.0} us", secs * 1e6),
    }
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    const MIB: f64 = 1_048_576.0;
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / MIB),
    }
}
