//! Every command but the txn: what it answers, what it changes, what of it survives.

use super::super::{
    Applied,
    fixture::{Fixture, MEMBER_ID, put, put_leased},
};
use crate::{
    error::ApiError,
    mvcc::LogPosition,
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

fn grant(id: i64) -> Request {
    Request::LeaseGrant(pb::LeaseGrantRequest { id, ttl: 60 })
}

fn alarm(action: pb::alarm_request::AlarmAction, member_id: u64, alarm: pb::AlarmType) -> Request {
    Request::Alarm(pb::AlarmRequest { action: action as i32, member_id, alarm: alarm as i32 })
}

fn alarms(outcome: Result<Applied, ApiError>) -> Vec<(u64, i32)> {
    match outcome.unwrap() {
        Applied::Alarm(response) => response.alarms.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect(),
        other => panic!("an alarm came to {other:?}"),
    }
}

#[test]
fn entries_are_applied_once_and_in_order() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.position(), LogPosition::default());
    assert_eq!(fixture.apply_at(1, vec![put("a", "1"), put("b", "2")]).len(), 2);
    assert_eq!(fixture.apply_at(1, vec![put("a", "again")]).len(), 0);
    assert_eq!(fixture.apply_at(2, vec![]).len(), 0);
    assert_eq!((fixture.contents().as_str(), fixture.position().index), ("a=1 b=2", 2));

    let mut fixture = fixture.reopen();
    assert_eq!(fixture.position(), LogPosition { term: 1, index: 2 });
    assert_eq!(fixture.apply_at(2, vec![put("a", "again")]).len(), 0);
    fixture.apply(put("a", "3")).unwrap();
    assert_eq!((fixture.contents().as_str(), fixture.state.store.revision()), ("a=3 b=2", 4));
}

#[test]
fn puts() {
    let mut fixture = Fixture::new();
    fixture.apply(grant(7)).unwrap();
    fixture.apply(put_leased("a", 7)).unwrap();
    let request = pb::PutRequest { key: "a".into(), value: "2".into(), prev_kv: true, ..Default::default() };
    match fixture.apply(Request::Put(request.clone())).unwrap() {
        Applied::Put(response) => {
            let header = response.header.unwrap();
            assert_eq!((header.revision, header.cluster_id, header.member_id, header.raft_term), (3, 0, 0, 0));
            assert_eq!(response.prev_kv.unwrap().lease, 7);
        }
        other => panic!("a put came to {other:?}"),
    }
    assert_eq!(fixture.state.lessor.lease_of(b"a"), 0);

    let missing = |ignore_value, ignore_lease| {
        Request::Put(pb::PutRequest { key: "x".into(), ignore_value, ignore_lease, ..Default::default() })
    };
    assert_eq!(fixture.apply(missing(true, false)).unwrap_err(), ApiError::KeyNotFound);
    assert_eq!(fixture.apply(missing(false, true)).unwrap_err(), ApiError::KeyNotFound);
    assert_eq!(fixture.apply(put_leased("a", 8)).unwrap_err(), ApiError::LeaseNotFound);
    assert_eq!(fixture.state.store.revision(), 3);

    let keep = pb::PutRequest { ignore_value: true, value: "".into(), lease: 7, prev_kv: false, ..request };
    fixture.apply(Request::Put(keep)).unwrap();
    let kv = fixture.state.store.get(b"a", 0).unwrap().unwrap();
    assert_eq!((kv.value.as_ref(), kv.lease, kv.version), (&b"2"[..], 7, 3));
}

#[test]
fn leases() {
    let mut fixture = Fixture::new();
    match fixture.apply(grant(7)).unwrap() {
        Applied::LeaseGrant(response) => assert_eq!((response.id, response.ttl), (7, 60)),
        other => panic!("a grant came to {other:?}"),
    }
    assert_eq!(fixture.apply(grant(7)).unwrap_err(), ApiError::LeaseExists);
    assert!(matches!(fixture.apply(grant(0)), Err(ApiError::Internal(_))));
    for key in ["c", "a", "b"] {
        fixture.apply(put_leased(key, 7)).unwrap();
    }
    fixture.apply(put("b", "free")).unwrap();

    let mut fixture = fixture.reopen();
    let revision = fixture.state.store.revision();
    let revoke = Request::LeaseRevoke(pb::LeaseRevokeRequest { id: 7 });
    fixture.apply(revoke.clone()).unwrap();
    assert_eq!((fixture.contents().as_str(), fixture.state.store.revision()), ("b=free", revision + 1));
    let changes = fixture.state.store.changes_since(revision + 1, 1, 1).unwrap().remove(0);
    let deleted: Vec<_> = changes.changes.iter().map(|change| (change.revision.sub, change.kv.key.clone())).collect();
    assert_eq!(deleted, [(0, "a".into()), (1, "c".into())]);
    assert_eq!(fixture.apply(revoke).unwrap_err(), ApiError::LeaseNotFound);

    let fixture = fixture.reopen();
    assert!(!fixture.state.lessor.contains(7));
}

#[test]
fn compactions() {
    let mut fixture = Fixture::new();
    for value in ["1", "2", "3"] {
        fixture.apply(put("a", value)).unwrap();
    }
    let compact = |revision, physical| Request::Compaction(pb::CompactionRequest { revision, physical });
    assert_eq!(fixture.apply(compact(5, false)).unwrap_err(), ApiError::FutureRevision);
    match fixture.apply(compact(3, true)).unwrap() {
        Applied::Compaction { response, finished } => {
            assert_eq!(response.header.unwrap().revision, 4);
            let (sender, receiver) = std::sync::mpsc::channel();
            finished.unwrap().on_done(Box::new(move |result| sender.send(result).unwrap()));
            assert_eq!(receiver.recv().unwrap(), Ok(()));
        }
        other => panic!("a compaction came to {other:?}"),
    }
    assert_eq!(fixture.apply(compact(3, false)).unwrap_err(), ApiError::Compacted);
    assert!(matches!(fixture.apply(compact(4, false)).unwrap(), Applied::Compaction { finished: None, .. }));
}

#[test]
fn what_grows_is_refused_while_the_alarm_is_raised() {
    let mut fixture = Fixture::new();
    fixture.apply(grant(7)).unwrap();
    fixture.apply(put_leased("a", 7)).unwrap();
    fixture.apply(alarm(pb::alarm_request::AlarmAction::Activate, MEMBER_ID, pb::AlarmType::Nospace)).unwrap();

    // The alarm outlives a restart, and holds for whatever grows.
    let mut fixture = fixture.reopen();
    assert!(fixture.state.alarms.is_own(MEMBER_ID, pb::AlarmType::Nospace));
    assert_eq!(fixture.apply(put("a", "")).unwrap_err(), ApiError::NoSpace);
    assert_eq!(fixture.apply(grant(8)).unwrap_err(), ApiError::NoSpace);
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    let put_op = || op(pb::request_op::Request::RequestPut(pb::PutRequest { key: "a".into(), ..Default::default() }));
    let delete = pb::DeleteRangeRequest { key: "x".into(), ..Default::default() };
    let delete_op = || op(pb::request_op::Request::RequestDeleteRange(delete.clone()));
    let txn = |success, failure| Request::Txn(pb::TxnRequest { success, failure, ..Default::default() });
    assert_eq!(fixture.apply(txn(put_op(), vec![])).unwrap_err(), ApiError::NoSpace);
    // The branch that puts is not the one that would be taken: refused all the same, as in etcd.
    assert_eq!(fixture.apply(txn(delete_op(), put_op())).unwrap_err(), ApiError::NoSpace);
    fixture.apply(txn(delete_op(), vec![])).unwrap();
    fixture.apply(Request::DeleteRange(delete.clone())).unwrap();
    fixture.apply(Request::Compaction(pb::CompactionRequest { revision: 2, physical: false })).unwrap();
    fixture.apply(Request::LeaseRevoke(pb::LeaseRevokeRequest { id: 7 })).unwrap();

    let disarm = alarm(pb::alarm_request::AlarmAction::Deactivate, 0, pb::AlarmType::Nospace);
    assert_eq!(alarms(fixture.apply(disarm)), [(MEMBER_ID, 1)]);
    fixture.apply(put("a", "")).unwrap();
}

#[test]
fn alarm_requests() {
    use pb::{
        AlarmType::{Corrupt, None as All, Nospace},
        alarm_request::AlarmAction::{Activate, Deactivate, Get},
    };
    let mut fixture = Fixture::new();
    assert_eq!(alarms(fixture.apply(alarm(Get, 0, All))), []);
    assert_eq!(alarms(fixture.apply(alarm(Activate, 5, Nospace))), [(5, 1)]);
    assert_eq!(alarms(fixture.apply(alarm(Activate, 5, Nospace))), [(5, 1)]);
    assert_eq!(alarms(fixture.apply(alarm(Activate, 6, Corrupt))), [(6, 2)]);
    assert_eq!(alarms(fixture.apply(alarm(Activate, 6, All))), []);
    assert_eq!(alarms(fixture.apply(alarm(Get, 0, All))), [(5, 1), (6, 2)]);
    assert_eq!(alarms(fixture.apply(alarm(Get, 0, Corrupt))), [(6, 2)]);

    let mut fixture = fixture.reopen();
    assert_eq!(fixture.apply(put("a", "")).unwrap_err(), ApiError::Corrupt);
    assert_eq!(fixture.apply(grant(7)).unwrap_err(), ApiError::Corrupt);
    assert_eq!(alarms(fixture.apply(alarm(Deactivate, 0, All))), [(5, 1), (6, 2)]);
    fixture.apply(put("a", "")).unwrap();
    let mut fixture = fixture.reopen();
    assert!(fixture.state.alarms.list().is_empty());

    // A client's command has a header: its alarm is one raised by hand.
    fixture.apply_as("", 0, alarm(Activate, 5, Nospace)).unwrap();
    let fixture = fixture.reopen();
    assert!(fixture.state.alarms.is_raised_by(5, Nospace) && !fixture.state.alarms.is_own(5, Nospace));
}

#[test]
fn what_is_not_executed_is_refused_and_harmless() {
    let mut fixture = Fixture::new();
    for request in [Request::Range(pb::RangeRequest::default()), Request::LeaseCheckpoint(Default::default())] {
        assert!(matches!(fixture.apply(request), Err(ApiError::Unimplemented(_))));
    }
    assert_eq!(fixture.state.store.revision(), 1);
}
