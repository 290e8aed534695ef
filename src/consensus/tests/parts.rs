//! The parts alone: standing, encodings, queues.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{
    proposer::proposal_queue,
    standing::Standing,
    types::{
        Batch, Entry, LeaderId, Membership, Payload, StoredMembership, Vote, decode_entry, decode_stored_membership,
        decode_vote, encode_entry, encode_stored_membership, encode_vote, log_id_of, position_of,
    },
};
use crate::{
    apply::fixture::{command, put},
    error::ApiError,
    metrics::Metrics,
    mvcc::LogPosition,
};

const ME: u64 = 7;

fn membership(configs: &[&[u64]], learners: &[u64]) -> Membership {
    let configs = configs.iter().map(|voters| voters.iter().copied().collect::<BTreeSet<u64>>()).collect();
    Membership::new_with_defaults(configs, learners.iter().copied())
}

fn leader_of_one() -> Standing {
    let standing = Standing::new(ME);
    standing.membership_appended(1, &membership(&[&[ME]], &[]));
    standing.membership_applied(1, &membership(&[&[ME]], &[]));
    standing.voted(&Vote::new(3, ME));
    standing.voted(&Vote::new_committed(3, ME));
    standing
}

#[test]
fn a_sole_voter_is_ready_once_an_entry_of_its_term_is_applied() {
    let standing = leader_of_one();
    standing.entry_applied(2, 5);
    assert!(!standing.is_ready(), "an entry of an earlier term says nothing");
    standing.entry_applied(3, 6);
    assert!(standing.is_ready());
    assert_eq!(standing.applied(), 6);
}

#[test]
fn readiness_ends_before_anyone_else_can_lead() {
    type Change = fn(&Standing);
    let changes: [(&str, Change); 4] = [
        ("a second voter is appended", |standing| standing.membership_appended(7, &membership(&[&[ME, 8]], &[]))),
        ("a joint membership is appended", |standing| {
            standing.membership_appended(7, &membership(&[&[ME], &[ME, 8]], &[]));
        }),
        ("a vote for another", |standing| standing.voted(&Vote::new(4, 8))),
        ("a failure", |standing| standing.fail("broken".into())),
    ];
    for (what, change) in changes {
        let standing = leader_of_one();
        standing.entry_applied(3, 6);
        change(&standing);
        assert!(!standing.is_ready(), "{what}");
        standing.entry_applied(3, 7);
        assert!(!standing.is_ready(), "{what}, and an entry applied after it");
    }
}

#[test]
fn learners_and_applied_memberships() {
    let standing = leader_of_one();
    standing.entry_applied(3, 6);
    standing.membership_appended(7, &membership(&[&[ME]], &[8]));
    assert!(standing.is_ready(), "a learner does not vote");
    // An older membership that is applied late does not undo a newer one in the log.
    standing.membership_appended(8, &membership(&[&[ME, 8]], &[]));
    standing.membership_applied(7, &membership(&[&[ME]], &[8]));
    standing.entry_applied(3, 7);
    assert!(!standing.is_ready());
}

#[test]
fn the_first_failure_stays() {
    let standing = Standing::new(ME);
    standing.fail("first".into());
    standing.fail("second".into());
    assert_eq!(standing.failure().borrow().as_deref(), Some("first"));
}

#[test]
fn positions_begin_at_one() {
    assert_eq!(log_id_of(LogPosition::default()), None);
    let first = log_id_of(LogPosition { term: 0, index: 1 }).unwrap();
    assert_eq!((first.leader_id.term, first.index), (0, 0));
    assert_eq!(position_of(&first), LogPosition { term: 0, index: 1 });
}

#[test]
fn entries_survive_the_log() {
    let batch = Batch::new(vec![command(put("a", "1")), command(put("b", "2"))], Vec::new());
    let memberships = [membership(&[&[1]], &[]), membership(&[&[1, 2], &[2, 3]], &[4])];
    let mut payloads = vec![Payload::Blank, Payload::Normal(batch)];
    payloads.extend(memberships.into_iter().map(Payload::Membership));
    for (index, payload) in payloads.into_iter().enumerate() {
        let log_id = log_id_of(LogPosition { term: 3, index: index as u64 + 1 }).unwrap();
        let entry = Entry { log_id, payload };
        let encoded = encode_entry(&entry);
        assert_eq!((encoded.term, encoded.index), (3, index as u64 + 1));
        assert_eq!(decode_entry(encoded.clone()).unwrap(), entry);
        let unknown = crate::wal::Entry { kind: 9, ..encoded };
        assert!(decode_entry(unknown).unwrap_err().to_string().contains("unknown kind 9"));
    }
}

#[test]
fn damaged_entries_are_errors() {
    for kind in [0, 1] {
        let entry = crate::wal::Entry { index: 5, term: 1, kind, data: Bytes::from_static(b"\xff\xff") };
        assert!(decode_entry(entry).unwrap_err().to_string().starts_with("log entry 5: "));
    }
    assert!(decode_entry(crate::wal::Entry { index: 0, term: 1, kind: 2, data: Bytes::new() }).is_err());
}

#[test]
fn a_membership_etcd_wrote_is_read() {
    let applied = LogPosition { term: 4, index: 90 };
    let stored = decode_stored_membership(br#"{"voters":[10501334649042878790],"auto_leave":false}"#, applied).unwrap();
    assert_eq!(stored.membership(), &membership(&[&[10_501_334_649_042_878_790]], &[]));
    assert_eq!(stored.log_id().map(|id| position_of(&id)), Some(applied));
    assert!(decode_stored_membership(b"{", applied).is_err());
}

#[test]
fn a_stored_membership_comes_back() {
    let position = LogPosition { term: 2, index: 7 };
    for members in [membership(&[&[1]], &[]), membership(&[&[1], &[1, 2]], &[3])] {
        let stored = StoredMembership::new(log_id_of(position), members);
        let decoded = decode_stored_membership(&encode_stored_membership(&stored), LogPosition::default()).unwrap();
        assert_eq!(decoded, stored);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn votes_come_back_and_damaged_ones_do_not(term: u64, voted_for: u64, committed: bool, cut in 0usize..18) {
        let vote = Vote { leader_id: LeaderId { term, voted_for }, committed };
        let encoded = encode_vote(&vote);
        prop_assert_eq!(decode_vote(&encoded).unwrap(), vote);
        prop_assert!(decode_vote(&encoded[..cut]).is_err());
    }
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let metrics = Metrics::new();
    let (queue, proposer) = proposal_queue(Duration::from_secs(7), &metrics);
    let quarter = 64 * 1024 * 1024;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut proposal = Box::pin(queue.propose(command(put("a", "1")), quarter));
        assert!(futures_util::poll!(&mut proposal).is_pending());
        waiting.push(proposal);
    }
    assert_eq!(metrics.proposals_pending.get(), 4);
    assert_eq!(queue.propose(command(put("a", "1")), 1).await.0.unwrap_err(), ApiError::TooManyRequests);
    drop(proposer);
    for proposal in waiting {
        assert_eq!(proposal.await.0.unwrap_err(), ApiError::Stopped);
    }
    assert_eq!(queue.propose(command(put("a", "1")), 1).await.0.unwrap_err(), ApiError::Stopped);
    assert_eq!(metrics.proposals_pending.get(), 0);
}
