//! One member, from outside: what is acknowledged, what survives, what a failure looks like.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use openraft::async_runtime::watch::WatchReceiver;

use super::fixture::Member;
use crate::{
    apply::{
        Applied,
        fixture::{CLUSTER_ID, MEMBER_ID, put},
    },
    consensus::{ConsensusError, ConsensusOptions, Status},
    disk::sim::{Call, EIO, Failure, Fault},
    error::ApiError,
    mvcc::LogPosition,
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

fn revision(outcome: Result<Applied, ApiError>) -> i64 {
    match outcome.unwrap() {
        Applied::Put(response) => response.header.unwrap().revision,
        other => panic!("a put came to {other:?}"),
    }
}

#[tokio::test]
async fn a_new_member_leads_at_once_and_serves() {
    let member = Member::start().await;
    // Its membership, and the first entry of its term.
    let first = Status { leader: MEMBER_ID, term: 1, last_log_index: 2, committed: 2, applied: 2, is_leader: true };
    assert!(*member.consensus.leadership().borrow());
    assert_eq!(member.consensus.status(), first);
    member.consensus.read_barrier().await.unwrap();
    assert_eq!(revision(member.propose(put("a", "1")).await), 2);
    assert_eq!(member.value("a").as_deref(), Some("1"));
    assert_eq!(member.consensus.status(), Status { last_log_index: 3, committed: 3, applied: 3, ..first });
    assert_eq!((member.metrics.has_leader.get(), member.metrics.is_leader.get()), (1, 1));
    assert_eq!(member.metrics.leader_changes_seen.get(), 1);
    assert_eq!(member.metrics.proposals_pending.get(), 0);
    member.crash().await;
}

// It leads well before it is ready then. A start that waited for both with one of them borrowed hung here.
#[tokio::test]
async fn a_slow_disk_only_slows_the_start() {
    let member = Member::start_on_slow_disk(std::time::Duration::from_millis(5)).await;
    assert_eq!(revision(member.propose(put("a", "1")).await), 2);
    member.crash().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_proposals_share_entries_and_get_their_own_outcomes() {
    const PROPOSALS: usize = 2_000;
    let member = Member::start().await;
    let proposals = (0..PROPOSALS).map(|n| {
        let (consensus, state) = (member.consensus.clone(), member.state.clone());
        tokio::spawn(async move {
            let key = format!("k{n}");
            let outcome = consensus.propose(crate::apply::fixture::command(put(&key, &n.to_string()))).await;
            consensus.read_barrier().await.unwrap();
            let revision = revision(outcome);
            let kv = state.store.get(key.as_bytes(), 0).unwrap().unwrap();
            assert_eq!((kv.mod_revision, kv.value.as_ref()), (revision, n.to_string().as_bytes()));
            revision
        })
    });
    let revisions: BTreeSet<i64> = join_all(proposals).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(revisions, (2..2 + PROPOSALS as i64).collect());
    let entries = member.consensus.status().last_log_index - 2;
    assert!(entries < PROPOSALS as u64 / 4, "{PROPOSALS} proposals took {entries} entries");
    assert_eq!(member.metrics.proposal_batch_requests.get_sample_count(), entries);
    member.crash().await;
}

#[tokio::test]
async fn what_is_acknowledged_survives_a_crash_and_is_applied_once() {
    let mut member = Member::start().await;
    let mut revision_before = 1;
    for round in 0..4 {
        for n in 0..5 {
            revision(member.propose(put("k", &format!("{round}.{n}"))).await);
            if round % 2 == 1 && n == 2 {
                member.flush().await;
            }
        }
        revision_before += 5;
        let status = member.consensus.status();
        let dir = member.crash().await;
        member = Member::start_in(dir, |_| {}).await.unwrap();
        let now = member.consensus.status();
        assert_eq!(now.term, status.term + 1, "each start is a term of its own");
        assert_eq!((now.applied, now.committed), (status.applied + 1, status.applied + 1));
        assert_eq!(member.state.store.revision(), revision_before);
        assert_eq!(member.value("k"), Some(format!("{round}.4")));
        let kv = member.state.store.get(b"k", 0).unwrap().unwrap();
        assert_eq!(kv.version, revision_before - 1, "no put is applied twice");
    }
    member.crash().await;
}

#[tokio::test]
async fn refused_commands_are_outcomes_also_on_replay() {
    let member = Member::start().await;
    let leased = crate::apply::fixture::put_leased("a", 9);
    assert_eq!(member.propose(leased).await.unwrap_err(), ApiError::LeaseNotFound);
    assert_eq!(revision(member.propose(put("b", "1")).await), 2);
    let member = Member::start_in(member.crash().await, |_| {}).await.unwrap();
    assert_eq!((member.value("a"), member.value("b").as_deref(), member.state.store.revision()), (None, Some("1"), 2));
    member.crash().await;
}

#[tokio::test]
async fn the_log_is_released_up_to_what_the_file_holds() {
    let few = |options: &mut crate::consensus::ConsensusOptions| {
        options.snapshot_count = 20;
        options.snapshot_catchup_entries = 5;
    };
    let member = Member::start_in(tempfile::tempdir().unwrap(), few).await.unwrap();
    for n in 0..200 {
        member.propose(put("k", &n.to_string())).await.unwrap();
    }
    let raft = member.consensus.inner.raft.clone();
    let purged = raft
        .wait(None)
        .metrics(|metrics| metrics.purged.is_some_and(|purged| purged.index >= 64), "entries are purged")
        .await
        .unwrap()
        .purged
        .unwrap();
    let durable = member.state.store.durable_position();
    assert!(purged.index < durable.index, "{purged} is released, {} is in the file", durable.index);
    let member = Member::start_in(member.crash().await, few).await.unwrap();
    assert_eq!((member.value("k").as_deref(), member.state.store.revision()), (Some("199"), 201));
    assert_eq!(revision(member.propose(put("k", "more")).await), 202);
    member.crash().await;
}

#[tokio::test]
async fn the_tail_in_memory_is_bounded_in_bytes() {
    let member = Member::start().await;
    let large = "x".repeat(1024 * 1024);
    // As encoded and as decoded, 40 of them take 80 MiB.
    for n in 0..40 {
        member.propose(put(&format!("k{n}"), &large)).await.unwrap();
    }
    let raft = member.consensus.inner.raft.clone();
    let oldest_gone = |metrics: &openraft::RaftMetrics<_>| metrics.purged.is_some_and(|purged| purged.index >= 5);
    raft.wait(None).metrics(oldest_gone, "the oldest entries are purged").await.unwrap();
    let member = Member::start_in(member.crash().await, |_| {}).await.unwrap();
    assert_eq!(member.value("k0").map(|value| value.len()), Some(large.len()));
    assert_eq!(member.state.store.revision(), 41);
    member.crash().await;
}

#[tokio::test]
async fn a_backend_file_without_its_log_goes_on_from_what_it_holds() {
    let member = Member::start().await;
    member.propose(put("a", "1")).await.unwrap();
    member.flush().await;
    let before = member.consensus.status();
    let dir = member.crash().await;
    std::fs::remove_dir_all(dir.path().join("wal")).unwrap();
    let member = Member::start_in(dir, |_| {}).await.unwrap();
    let now = member.consensus.status();
    assert_eq!((now.term, now.applied), (before.term + 1, before.applied + 1));
    assert_eq!(revision(member.propose(put("b", "2")).await), 3);
    let member = Member::start_in(member.crash().await, |_| {}).await.unwrap();
    assert_eq!((member.value("a").as_deref(), member.value("b").as_deref()), (Some("1"), Some("2")));
    member.crash().await;
}

#[tokio::test]
async fn a_log_without_its_backend_file_is_replayed_while_it_is_whole() {
    let member = Member::start().await;
    member.propose(put("a", "1")).await.unwrap();
    member.flush().await;
    let dir = member.crash().await;
    std::fs::remove_file(dir.path().join("db")).unwrap();
    let member = Member::start_in(dir, |_| {}).await.unwrap();
    assert_eq!(member.value("a").as_deref(), Some("1"));
    member.crash().await;
}

#[tokio::test]
async fn a_log_that_does_not_belong_is_refused() {
    let dir = Member::start().await.crash().await;
    let error = Member::start_in(dir, |options| options.cluster_id = CLUSTER_ID + 1).await.err().unwrap();
    assert!(error.to_string().contains("belongs to another member or cluster"), "{error}");

    // A file that is ahead of its log.
    let member = Member::start().await;
    for _ in 0..3 {
        member.propose(put("a", "1")).await.unwrap();
    }
    member.flush().await;
    let ahead = member.crash().await;
    let behind = Member::start().await.crash().await;
    std::fs::copy(ahead.path().join("db"), behind.path().join("db")).unwrap();
    let error = Member::start_in(behind, |_| {}).await.err().unwrap();
    assert!(matches!(error, ConsensusError::Apart(_)), "{error}");
}

#[tokio::test]
async fn a_file_older_than_what_the_log_has_released_is_refused() {
    let releasing = |options: &mut ConsensusOptions| {
        options.snapshot_count = 20;
        options.snapshot_catchup_entries = 5;
    };
    let member = Member::start_in(tempfile::tempdir().unwrap(), releasing).await.unwrap();
    member.propose(put("a", "1")).await.unwrap();
    member.flush().await;
    let dir = member.crash().await;
    let old = std::fs::read(dir.path().join("db")).unwrap();

    // Until the log has released entries that the old file does not hold.
    let member = Member::start_in(dir, releasing).await.unwrap();
    let raft = member.consensus.inner.raft.metrics();
    while raft.borrow_watched().purged.is_none_or(|purged| purged.index < 60) {
        member.propose(put("a", "2")).await.unwrap();
    }
    member.flush().await;
    let dir = member.crash().await;
    let path = dir.path().join("db");
    let newest = std::fs::read(&path).unwrap();

    // An old file, and none at all.
    std::fs::write(&path, &old).unwrap();
    let error = Member::refused_in(&dir, releasing).await;
    assert!(matches!(error, ConsensusError::Apart(_)), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = Member::refused_in(&dir, releasing).await;
    assert!(matches!(error, ConsensusError::Apart(_)), "{error}");

    // Nothing was changed: with its own file it goes on.
    std::fs::write(&path, &newest).unwrap();
    let member = Member::start_in(dir, releasing).await.unwrap();
    assert_eq!(member.value("a").as_deref(), Some("2"));
    member.crash().await;
}

#[tokio::test]
async fn a_failed_sync_stops_the_member_and_acknowledges_nothing() {
    let member = Member::start().await;
    member.propose(put("a", "1")).await.unwrap();
    member.disk.fail(Fault::every(&[Call::SyncData], Failure::Errno(EIO)));
    let outcomes = join_all((0..10).map(|n| member.propose(put("b", if n % 2 == 0 { "1" } else { "2" })))).await;
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err(), ApiError::Stopped);
    }
    let reason = member.consensus.failed().await;
    assert!(reason.contains("syncing"), "{reason}");
    assert_eq!(member.value("b"), None);
    assert_eq!(member.propose(put("c", "1")).await.unwrap_err(), ApiError::Stopped);
    assert_eq!(member.consensus.read_barrier().await.unwrap_err(), ApiError::Stopped);
    assert!(!*member.consensus.leadership().wait_for(|leads| !*leads).await.unwrap());
    assert!(member.consensus.shutdown().await.is_err());
    member.state.hub.close();
}

// The thread that proposes waits for the disk itself.
#[tokio::test]
async fn a_request_ends_in_time_while_the_disk_hangs_and_goes_on_after_it() {
    let adjust = |options: &mut ConsensusOptions| options.request_timeout = Duration::from_millis(50);
    let member = Member::start_in(tempfile::tempdir().unwrap(), adjust).await.unwrap();
    // Until the log's thread has nothing to do any more.
    while !member.disk.was_called_by(Call::SyncData, "revgate-raft") {
        let _either = member.propose(put("before", "1")).await;
    }
    let (syncs, failed_before) = (member.disk.calls(Call::SyncData), member.metrics.proposals_failed.get());
    member.disk.hold(Call::SyncData);
    let mut failed = 0;
    // A busy machine may have the first ones end before they are taken up.
    while member.disk.calls(Call::SyncData) == syncs {
        assert_eq!(member.propose(put("a", "1")).await.unwrap_err(), ApiError::Timeout);
        failed += 1;
    }
    assert_eq!(member.propose(put("b", "1")).await.unwrap_err(), ApiError::Timeout);
    assert_eq!(member.metrics.proposals_failed.get(), failed_before + failed + 1);
    assert_eq!(member.metrics.proposals_pending.get(), 0);
    assert_eq!(member.value("a"), None, "nothing is applied that is not durable");
    member.disk.release();
    while let Err(error) = member.propose(put("c", "1")).await {
        assert_eq!(error, ApiError::Timeout);
    }
    assert_eq!(member.value("a").as_deref(), Some("1"), "it was in the log, and nobody knew");
    assert_eq!(member.value("b"), None, "it was in no entry yet, and nobody waits for it");
    member.crash().await;
}

#[tokio::test]
async fn a_failing_backend_file_stops_the_member() {
    let member = Member::start().await;
    member.propose(put("a", "1")).await.unwrap();
    member.file_disk.fail(Fault::every(&[Call::SyncData], Failure::Errno(EIO)));
    let (sender, refused) = tokio::sync::oneshot::channel();
    member.state.store.flush(Box::new(move |result| drop(sender.send(result))));
    assert!(refused.await.unwrap().is_err());
    let reason = member.consensus.failed().await;
    assert!(reason.contains("syncing"), "{reason}");
    // The next command finds the file broken: the member stops without an outcome for it.
    assert_eq!(member.propose(put("b", "1")).await.unwrap_err(), ApiError::Stopped);
    member.consensus.shutdown().await.unwrap();
    member.state.hub.close();
}

#[tokio::test]
async fn a_client_that_goes_away_harms_nobody() {
    let member = Member::start().await;
    for n in 0..20 {
        let mut abandoned = Box::pin(member.propose(put("abandoned", &n.to_string())));
        // Polled once: it is on its way.
        assert!(futures_util::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        member.propose(put("k", &n.to_string())).await.unwrap();
    }
    assert_eq!(member.value("k").as_deref(), Some("19"));
    assert_eq!(member.metrics.proposals_pending.get(), 0);
    member.crash().await;
}

#[tokio::test]
async fn shutdown_answers_everyone_and_refuses_from_then_on() {
    let member = Member::start().await;
    let consensus = member.consensus.clone();
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    let proposals = keys.iter().map(|key| member.propose(put(key, "1")));
    let (outcomes, stopped) = tokio::join!(join_all(proposals), consensus.shutdown());
    stopped.unwrap();
    let mut acknowledged = Vec::new();
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(_) => acknowledged.push(format!("k{n}")),
            Err(error) => assert_eq!(error, ApiError::Stopped),
        }
    }
    assert_eq!(member.propose(put("late", "1")).await.unwrap_err(), ApiError::Stopped);
    assert_eq!(consensus.read_barrier().await.unwrap_err(), ApiError::Stopped);
    consensus.shutdown().await.unwrap();
    drop(consensus);
    let member = Member::start_in(member.crash().await, |_| {}).await.unwrap();
    assert_eq!(member.value("late"), None);
    for key in acknowledged {
        assert!(member.value(&key).is_some(), "{key} was acknowledged");
    }
    member.crash().await;
}

#[tokio::test]
async fn what_is_too_large_or_too_deep_is_not_proposed() {
    let small = |options: &mut crate::consensus::ConsensusOptions| options.request_bytes_max = 1_000;
    let member = Member::start_in(tempfile::tempdir().unwrap(), small).await.unwrap();
    assert_eq!(member.propose(put("a", &"x".repeat(1_000))).await.unwrap_err(), ApiError::RequestTooLarge);
    member.propose(put("a", &"x".repeat(900))).await.unwrap();

    let nested = |levels: usize| {
        let leaf = pb::PutRequest { key: "deep".into(), ..Default::default() };
        let op = |request| vec![pb::RequestOp { request: Some(request) }];
        let innermost = pb::TxnRequest { success: op(pb::request_op::Request::RequestPut(leaf)), ..Default::default() };
        let wrap =
            |inner, _| pb::TxnRequest { success: op(pb::request_op::Request::RequestTxn(inner)), ..Default::default() };
        Request::Txn((0..levels).fold(innermost, wrap))
    };
    assert_eq!(member.propose(nested(33)).await.unwrap_err(), ApiError::TooManyOps);
    member.propose(nested(32)).await.unwrap();
    // What was taken can be read back.
    let member = Member::start_in(member.crash().await, |_| {}).await.unwrap();
    assert!(member.value("deep").is_some());
    member.crash().await;
}

#[tokio::test]
async fn pressure_refuses_and_lets_revocations_through_longer() {
    let member = Member::start().await;
    let standing = &member.consensus.inner.standing;
    let revoke = || Request::LeaseRevoke(pb::LeaseRevokeRequest { id: 9 });
    let applied = standing.applied();
    standing.set_committed(applied + 5_001);
    assert_eq!(member.propose(put("a", "1")).await.unwrap_err(), ApiError::TooManyRequests);
    assert_eq!(member.propose(revoke()).await.unwrap_err(), ApiError::LeaseNotFound);
    standing.set_committed(standing.applied() + 10_001);
    assert_eq!(member.propose(revoke()).await.unwrap_err(), ApiError::TooManyRequests);
    standing.set_committed(standing.applied());
    member.propose(put("a", "1")).await.unwrap();
    member.crash().await;
}

#[tokio::test]
async fn the_position_in_the_file_is_the_logs() {
    let member = Member::start().await;
    member.propose(put("a", "1")).await.unwrap();
    member.flush().await;
    assert_eq!(member.state.store.durable_position(), LogPosition { term: 1, index: 3 });
    let meta = member.state.store.bucket_pairs(crate::mvcc::buckets::META).unwrap();
    let conf_state = meta.iter().find(|(key, _)| key.as_ref() == b"confState").unwrap();
    let expected = format!(r#"{{"voters":[{MEMBER_ID}],"auto_leave":false,"revgate_position":[0,1]}}"#);
    assert_eq!(std::str::from_utf8(&conf_state.1).unwrap(), expected);
    member.crash().await;
}

#[tokio::test]
async fn barriers_by_the_library_pass_too() {
    let member = Member::start().await;
    member.propose(put("a", "1")).await.unwrap();
    let barriers = &member.consensus.inner.barriers;
    for passed in join_all((0..100).map(|_| barriers.wait())).await {
        passed.unwrap();
    }
    member.crash().await;
}
