//! Where the time of a write goes, on a clock and a disk that the test holds.

use std::{sync::Arc, time::Duration};

use super::fixture::Member;
use crate::{
    apply::fixture::{command, put},
    clock::{Clock, ManualClock},
    disk::sim::Call,
    metrics::{Detail, Metrics, Stage, StageTimes, Time},
};

const SECOND: Duration = Duration::from_secs(1);

async fn start() -> (Member, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let now = Arc::clone(&clock);
    let metrics = Metrics::with(Time::new(move || now.monotonic()), Detail::default());
    (Member::start_measured(metrics).await, clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_in_a_sync_is_the_syncs_and_time_before_it_the_queues() {
    let (member, clock) = start().await;
    let syncs = member.disk.calls(Call::SyncData);
    member.disk.hold(Call::SyncData);
    let propose = |key: &'static str| {
        let consensus = member.consensus.clone();
        tokio::spawn(async move { consensus.propose_timed(command(put(key, "1"))).await })
    };
    let first = propose("a");
    let disk = member.disk.clone();
    tokio::task::spawn_blocking(move || disk.wait_for_calls(Call::SyncData, syncs + 1)).await.unwrap();
    let stages = member.metrics.stages.clone();
    assert_eq!(stages.of(Stage::Fsync).recent().running, Some(Duration::ZERO));
    clock.advance(3 * SECOND);
    assert_eq!(stages.of(Stage::Fsync).recent().running, Some(3 * SECOND));
    assert_eq!(member.consensus.oldest_write_age(), Some(3 * SECOND));

    let second = propose("b");
    // It is handed in: what it waits for is the first one's sync.
    while member.metrics.proposals_pending.get() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(4 * SECOND);
    member.disk.release();
    let (outcome, times) = first.await.unwrap();
    outcome.unwrap();
    let applied_at = 7 * SECOND;
    assert_eq!(times.as_deref(), Some(&StageTimes { fsync: 7 * SECOND, applied_at, ..StageTimes::default() }));
    let (outcome, times) = second.await.unwrap();
    outcome.unwrap();
    assert_eq!(times.as_deref(), Some(&StageTimes { queue: 4 * SECOND, applied_at, ..StageTimes::default() }));

    let recent = |stage| stages.of(stage).recent();
    assert_eq!((recent(Stage::Fsync).max, recent(Stage::Fsync).running), (7 * SECOND, None));
    assert_eq!((recent(Stage::Queue).count, recent(Stage::Queue).max), (2, 4 * SECOND));
    assert_eq!((recent(Stage::Replicate).count, recent(Stage::CommitToApply).count), (2, 2));
    // The entries of its start are applied too.
    assert_eq!(recent(Stage::Apply).count, 4);
    // The proposer hears of it a moment after the client.
    while member.consensus.oldest_write_age().is_some() {
        tokio::task::yield_now().await;
    }
    clock.advance(70 * SECOND);
    assert_eq!(recent(Stage::Fsync), Default::default(), "the last minute only");
    member.crash().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_that_hangs_is_seen_while_it_hangs() {
    let (member, clock) = start().await;
    let consensus = member.consensus.clone();
    let (begun, let_go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let apply = member.metrics.stages.of(Stage::Apply).clone();
    let proposal = std::thread::scope(|scope| {
        // Whoever holds the write transaction holds the apply loop.
        scope.spawn(|| {
            let write = member.state.store.write();
            begun.wait();
            let_go.wait();
            drop(write);
        });
        begun.wait();
        let proposal = tokio::spawn(async move { consensus.propose_timed(command(put("a", "1"))).await });
        while apply.recent().running.is_none() {
            std::thread::yield_now();
        }
        clock.advance(5 * SECOND);
        assert_eq!(apply.recent().running, Some(5 * SECOND));
        let status = member.consensus.status();
        assert_eq!((status.last_log_index, status.committed, status.applied), (3, 3, 2));
        assert_eq!(member.metrics.apply_lag_entries.get(), 1, "told while it lasts");
        let_go.wait();
        proposal
    });
    let (outcome, times) = proposal.await.unwrap();
    outcome.unwrap();
    assert_eq!(times.map(|times| times.apply), Some(5 * SECOND));
    // Told a moment after the answer.
    while member.metrics.apply_lag_entries.get() != 0 {
        tokio::task::yield_now().await;
    }
    member.crash().await;
}
