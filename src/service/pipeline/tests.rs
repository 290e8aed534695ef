//! Each verdict with its cause caused: disks at a gate, an apply loop that is held, clients that do not read. Time is the
//! test's, so that nothing depends on how fast it is.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;

use super::*;
use crate::{
    apply::{
        Applier, State,
        fixture::{CLUSTER_ID, MEMBER_ID, command, config, open_state, put},
    },
    clock::{Clock, ManualClock},
    consensus::{Consensus, ConsensusOptions},
    disk::sim::{Call, SimDisk},
    metrics::{Detail, Time},
    mvcc::{CompactionPhase, ReadKind},
    proto::etcdserverpb as pb,
    service::{Services, Severity, Tasks, verdict},
};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than anything is remembered.
const FORGOTTEN: Duration = Duration::from_secs(70);

struct Rig {
    services: Services,
    consensus: Consensus,
    state: State,
    metrics: Metrics,
    clock: Arc<ManualClock>,
    log_disk: SimDisk,
    file_disk: SimDisk,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

impl Rig {
    async fn start(quota_bytes: i64) -> Rig {
        let clock = Arc::new(ManualClock::default());
        let now = Arc::clone(&clock);
        let metrics = Metrics::with(Time::new(move || now.monotonic()), Detail::default());
        let (log_disk, file_disk) = (SimDisk::default(), SimDisk::default());
        let dir = tempfile::tempdir().unwrap();
        let config = config(quota_bytes);
        let state = open_state(Arc::new(file_disk.clone()), dir.path(), &metrics);
        let applier = Applier::new(state.clone(), &config, &metrics);
        let options = ConsensusOptions {
            member_id: MEMBER_ID,
            cluster_id: CLUSTER_ID,
            wal_dir: dir.path().join("wal"),
            heartbeat_interval: config.heartbeat_interval,
            election_timeout: config.election_timeout,
            request_timeout: config.request_timeout(),
            snapshot_count: config.snapshot_count,
            snapshot_catchup_entries: config.snapshot_catchup_entries,
            wal_segment_bytes: config.wal_segment_bytes,
            wals_max: config.wals_max,
            request_bytes_max: config.request_bytes_max,
        };
        let store = state.store.clone();
        let consensus = Consensus::start(options, Arc::new(log_disk.clone()), store, applier, &metrics).await.unwrap();
        let services = Services::new(&config, state.clone(), consensus.clone(), &metrics);
        let tasks = Tasks::start(&config, &services, &metrics);
        Rig { services, consensus, state, metrics, clock, log_disk, file_disk, tasks, _dir: dir }
    }

    async fn report(&self) -> (PipelineReport, Vec<Finding>) {
        self.services.pipeline.report(&Caller::default()).await.unwrap()
    }

    async fn codes(&self) -> Vec<&'static str> {
        self.report().await.1.iter().map(|finding| finding.code).collect()
    }

    fn propose(&self, key: &str, value: &str) -> tokio::task::JoinHandle<()> {
        let (consensus, command) = (self.consensus.clone(), command(put(key, value)));
        tokio::spawn(async move { consensus.propose(command).await.map(drop).unwrap() })
    }

    /// Has the backend file written, without waiting for it.
    fn flush(&self) -> oneshot::Receiver<()> {
        let (sender, written) = oneshot::channel();
        self.state.store.flush(Box::new(move |result| {
            if result.is_ok() {
                // Nobody waits where the test is about something else.
                let _ = sender.send(());
            }
        }));
        written
    }

    /// Waits for a condition.
    async fn until(&self, reached: impl Fn(&Rig) -> bool) {
        let polling = async {
            while !reached(self) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), polling).await.unwrap();
    }

    /// Waits until no write is under way: the proposer hears of it a moment after the client.
    async fn settled(&self) {
        self.until(|rig| rig.consensus.oldest_write_age().is_none()).await;
    }

    async fn stop(self) {
        self.tasks.stop().await;
        self.consensus.shutdown().await.unwrap();
        self.state.hub.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_found_where_nothing_is_wrong() {
    let rig = Rig::start(1 << 30).await;
    rig.propose("a", "1").await.unwrap();
    rig.flush().await.unwrap();
    let (report, findings) = rig.report().await;
    assert_eq!(findings, []);
    assert!(verdict(&findings).starts_with("All is well"));
    assert_eq!(report.indexes, Indexes { proposed: 3, committed: 3, applied: 3, written: 3 });
    assert_eq!((report.leader, report.is_leader, report.revision), (MEMBER_ID, true, 2));
    assert_eq!((report.durations.of(Stage::Queue).count, report.durations.backend_commit.count), (1, 1));
    assert_eq!(report.room.quota_bytes, Some(1 << 30));
    assert_eq!(report.watches.map(|watches| watches.streams_total), Some(0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_hangs_is_the_disks_and_a_slow_one_too() {
    let rig = Rig::start(-1).await;
    let syncs = rig.log_disk.calls(Call::SyncData);
    rig.log_disk.hold(Call::SyncData);
    let write = rig.propose("a", "1");
    rig.until(|rig| rig.log_disk.calls(Call::SyncData) > syncs).await;
    rig.clock.advance(4 * SECOND);
    assert_eq!(rig.codes().await, [""; 0], "not yet");
    rig.clock.advance(2 * SECOND);
    let (report, findings) = rig.report().await;
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.code, finding.severity), ("log_stuck", Severity::Critical));
    assert_eq!(finding.sentence, "Writes are stuck in the disk: a sync of the log has been running for 6.0 s.");
    assert_eq!((report.indexes.proposed, report.indexes.committed, report.indexes.applied), (3, 2, 2));
    assert!(finding.evidence[1].starts_with("proposed 3, committed 2 (1 behind), applied 2"), "{finding:?}");
    rig.until(|rig| rig.metrics.stage_running.with_label_values(&["fsync"]).get() == 6.0).await;
    rig.until(|rig| rig.metrics.oldest_write_age.get() == 6.0).await;

    rig.log_disk.release();
    write.await.unwrap();
    rig.settled().await;
    let (_, findings) = rig.report().await;
    assert_eq!((findings[0].code, findings[0].severity), ("log_slow", Severity::Critical));
    assert!(findings[0].evidence[0].ends_with("99 % within 6.0 s, at most 6.0 s"), "{findings:?}");
    rig.clock.advance(FORGOTTEN);
    assert_eq!(rig.codes().await, [""; 0]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_hangs_is_told_and_a_slow_one_too() {
    let rig = Rig::start(-1).await;
    let syncs = rig.file_disk.calls(Call::SyncData);
    rig.file_disk.hold(Call::SyncData);
    rig.propose("a", "1").await.unwrap();
    rig.settled().await;
    let written = rig.flush();
    rig.until(|rig| rig.file_disk.calls(Call::SyncData) > syncs).await;
    rig.clock.advance(5 * SECOND);
    let (report, findings) = rig.report().await;
    assert_eq!(findings[0].code, "backend_commit_stuck", "{findings:?}");
    assert_eq!(findings.len(), 1);
    assert!(report.indexes.written < report.indexes.applied, "{:?}", report.indexes);
    rig.file_disk.release();
    written.await.unwrap();
    let (_, findings) = rig.report().await;
    assert_eq!((findings[0].code, findings[0].severity), ("backend_commit_slow", Severity::Warning));
    rig.clock.advance(FORGOTTEN);
    assert_eq!(rig.codes().await, [""; 0]);
    rig.stop().await;
}

/// Applies one write while somebody holds the store's write transaction for so long; what is found meanwhile.
async fn found_during_an_apply_of(rig: &Rig, took: Duration) -> Vec<Finding> {
    let (begun, let_go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let holder = thread::spawn({
        let (begun, let_go, store) = (Arc::clone(&begun), Arc::clone(&let_go), rig.state.store.clone());
        move || {
            let write = store.write();
            begun.wait();
            let_go.wait();
            drop(write);
        }
    });
    begun.wait();
    let write = rig.propose("a", "1");
    rig.until(|rig| rig.metrics.stages.of(Stage::Apply).recent().running.is_some()).await;
    rig.clock.advance(took);
    let (report, findings) = rig.report().await;
    assert_eq!((report.indexes.proposed, report.indexes.committed), (3, 3));
    assert_eq!(report.indexes.applied, 2);
    let_go.wait();
    holder.join().unwrap();
    write.await.unwrap();
    rig.settled().await;
    findings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_that_hangs_is_not_the_disks() {
    let rig = Rig::start(-1).await;
    let findings = found_during_an_apply_of(&rig, 8 * SECOND).await;
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.code, finding.severity), ("apply_stuck", Severity::Critical));
    assert_eq!(finding.evidence[1], "proposed 3, committed 3 (0 behind), applied 2 (1 behind)");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_that_was_slow_is_told_for_a_minute() {
    let rig = Rig::start(-1).await;
    assert_eq!(found_during_an_apply_of(&rig, SECOND / 2).await, []);
    assert_eq!(rig.codes().await, ["apply_slow"]);
    rig.clock.advance(FORGOTTEN);
    assert_eq!(rig.codes().await, [""; 0]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_nobody_reads_is_named() {
    const WRITES: usize = 10_001;
    let rig = Rig::start(-1).await;
    let mut session = rig.services.watch.open(Caller::default(), false, None);
    let everything = Bytes::from_static(b"\0");
    let create = pb::WatchCreateRequest { key: everything.clone(), range_end: everything, ..Default::default() };
    let request = pb::watch_request::RequestUnion::CreateRequest(create);
    session.handle(pb::WatchRequest { request_union: Some(request) });
    rig.until(|rig| rig.metrics.watcher_total.get() == 1).await;
    for part in 0..WRITES.div_ceil(1_000) {
        let writes = (part * 1_000..WRITES.min((part + 1) * 1_000)).map(|n| rig.propose(&format!("k{n}"), "value"));
        join_all(writes).await.into_iter().for_each(Result::unwrap);
    }
    // The watches' thread is told of the last write before its client is, and comes to it in its own time.
    let told = async {
        loop {
            let (report, findings) = rig.report().await;
            if report.watches.as_ref().is_some_and(|watches| watches.revision == report.revision) {
                break (report, findings);
            }
        }
    };
    let (report, findings) = timeout(Duration::from_secs(60), told).await.unwrap();
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.code, finding.severity), ("watches_behind", Severity::Warning));
    let stream = &report.watches.unwrap().streams[0];
    assert_eq!((stream.lag_revisions, stream.lagging), (10_001, 1), "{stream:?}");
    assert!(finding.evidence[0].contains("of the member itself: 10001 revisions behind"), "{finding:?}");
    drop(session);
    rig.until(|rig| rig.metrics.watch_stream_total.get() == 0).await;
    assert_eq!(rig.codes().await, [""; 0]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_is_full_is_told_and_goes() {
    const QUOTA_BYTES: i64 = 1 << 20;
    let rig = Rig::start(QUOTA_BYTES).await;
    let value = Bytes::from(vec![b'v'; 64 << 10]);
    let mut low = None;
    for n in 0.. {
        let request = pb::PutRequest { key: format!("k{n}").into(), value: value.clone(), ..Default::default() };
        match rig.services.kv.put(&Caller::default(), request).await {
            Ok(_) => low = low.or(rig.report().await.1.pop().map(|finding| finding.code)),
            Err(error) => {
                assert_eq!(error, ApiError::NoSpace);
                break;
            }
        }
        assert!(n < 64, "no refusal");
    }
    assert_eq!(low, Some("quota_low"), "told before");
    let (report, findings) = rig.report().await;
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.code, finding.severity), ("quota_full", Severity::Critical));
    assert!(report.room.nospace && report.room.used_bytes > QUOTA_BYTES as u64 / 2);
    rig.until(|rig| rig.metrics.nospace_alarm.get() == 1).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_nobody_reads_to_its_end_is_told_with_what_waits_for_it() {
    let rig = Rig::start(-1).await;
    rig.propose("a", "1").await.unwrap();
    rig.settled().await;
    let request = pb::RangeRequest { key: "a".into(), range_end: "z".into(), ..Default::default() };
    let list = rig.services.kv.range(&Caller::default(), request).await.unwrap();
    rig.clock.advance(59 * SECOND);
    assert_eq!(rig.codes().await, [""; 0], "not yet");
    rig.clock.advance(SECOND);
    let (report, findings) = rig.report().await;
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.code, finding.severity), ("read_held", Severity::Warning));
    assert_eq!(finding.evidence[0], "a list that its client does not read to the end, open for 60.0 s, at revision 2");
    assert_eq!((report.open_reads.total, report.open_reads.oldest[0].kind), (1, ReadKind::Range));
    rig.until(|rig| rig.metrics.oldest_read_age.get() == 60.0).await;

    rig.propose("a", "2").await.unwrap();
    let compaction = pb::CompactionRequest { revision: 3, physical: false };
    rig.services.kv.compact(&Caller::default(), compaction).await.unwrap();
    rig.flush().await.unwrap();
    let (report, findings) = rig.report().await;
    let phase = report.compaction.map(|compaction| (compaction.phase, compaction.target_revision));
    assert_eq!(phase, Some((CompactionPhase::Reads, 3)));
    assert_eq!(findings[0].evidence[2], "the compaction to revision 3 has been waiting for reads for 0 us");
    drop(list);
    rig.settled().await;
    assert_eq!(rig.codes().await, [""; 0]);

    let snapshot = rig.services.maintenance.snapshot(&Caller::default(), pb::SnapshotRequest {}).await.unwrap();
    rig.clock.advance(599 * SECOND);
    assert_eq!(rig.codes().await, [""; 0], "a backup may take its time");
    rig.clock.advance(SECOND);
    let (report, findings) = rig.report().await;
    assert_eq!(findings[0].sentence, "A read has been open for 600 s: it keeps pages of the file.");
    assert_eq!(report.open_reads.oldest[0].kind, ReadKind::File);
    drop(snapshot);
    assert_eq!(rig.codes().await, [""; 0]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told() {
    let rig = Rig::start(-1).await;
    rig.file_disk.set_full(true);
    let value = "v".repeat(1 << 20);
    for n in 0..4 {
        rig.propose(&format!("k{n}"), &value).await.unwrap();
    }
    let written = rig.flush();
    rig.until(|rig| rig.consensus.shortage().is_some()).await;
    let (_, findings) = rig.report().await;
    assert_eq!((findings[0].code, findings[0].severity), ("disk_full", Severity::Critical), "{findings:?}");
    drop(written);
    rig.stop().await;
}
