//! Commands in somebody's name: what is permitted, what is refused, and what of it survives.

use super::super::{
    Applied,
    fixture::{Fixture, put, put_leased},
};
use crate::{
    error::ApiError,
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::{self as pb, request_op},
        revgatepb::{InternalAuthenticateRequest, internal_raft_request::Request},
    },
};

const DENIED: Result<(), ApiError> = Err(ApiError::PermissionDenied);

fn user_add(name: &str) -> Request {
    Request::AuthUserAdd(pb::AuthUserAddRequest { name: name.into(), ..Default::default() })
}

fn grant_role(user: &str, role: &str) -> Request {
    Request::AuthUserGrantRole(pb::AuthUserGrantRoleRequest { user: user.into(), role: role.into() })
}

fn grant(kind: Type, key: &str, end: &str) -> Request {
    let perm = Permission { perm_type: kind as i32, key: key.to_owned().into(), range_end: end.to_owned().into() };
    Request::AuthRoleGrantPermission(pb::AuthRoleGrantPermissionRequest { name: "some".into(), perm: Some(perm) })
}

/// Ann may read `r` and write `w`, and both with all from `b` up to `c`; authentication is on.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    for change in [
        user_add("root"),
        grant_role("root", "root"),
        user_add("ann"),
        Request::AuthRoleAdd(pb::AuthRoleAddRequest { name: "some".into() }),
        grant(Type::Read, "r", ""),
        grant(Type::Write, "w", ""),
        grant(Type::Readwrite, "b", "c"),
        grant_role("ann", "some"),
        Request::AuthEnable(pb::AuthEnableRequest {}),
    ] {
        fixture.apply(change).unwrap();
    }
    fixture
}

fn as_ann(fixture: &mut Fixture, request: Request) -> Result<(), ApiError> {
    let revision = fixture.state.auth.revision();
    fixture.apply_as("ann", revision, request).map(drop)
}

fn put_op(key: &str) -> pb::RequestOp {
    let put = pb::PutRequest { key: key.to_owned().into(), ..Default::default() };
    pb::RequestOp { request: Some(request_op::Request::RequestPut(put)) }
}

fn range_op(key: &str, end: &str) -> pb::RequestOp {
    let range = pb::RangeRequest { key: key.to_owned().into(), range_end: end.to_owned().into(), ..Default::default() };
    pb::RequestOp { request: Some(request_op::Request::RequestRange(range)) }
}

fn delete_op(key: &str, end: &str) -> pb::RequestOp {
    let delete =
        pb::DeleteRangeRequest { key: key.to_owned().into(), range_end: end.to_owned().into(), prev_kv: false };
    pb::RequestOp { request: Some(request_op::Request::RequestDeleteRange(delete)) }
}

fn txn_op(txn: pb::TxnRequest) -> pb::RequestOp {
    pb::RequestOp { request: Some(request_op::Request::RequestTxn(txn)) }
}

fn success(ops: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success: ops, ..Default::default() }
}

fn failure(ops: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { failure: ops, ..Default::default() }
}

fn compare(key: &str, end: &str) -> pb::TxnRequest {
    let compare = pb::Compare { key: key.to_owned().into(), range_end: end.to_owned().into(), ..Default::default() };
    pb::TxnRequest { compare: vec![compare], ..Default::default() }
}

#[test]
fn puts_and_deletes_need_write_and_read_for_what_they_tell() {
    let mut fixture = fixture();
    for (key, prev_kv, permitted) in
        [("w", false, true), ("w", true, false), ("b", true, true), ("r", false, false), ("x", false, false)]
    {
        let put = pb::PutRequest { key: key.into(), prev_kv, ..Default::default() };
        let outcome = as_ann(&mut fixture, Request::Put(put));
        assert_eq!(outcome, if permitted { Ok(()) } else { DENIED }, "put {key} {prev_kv}");
        let delete = pb::DeleteRangeRequest { key: key.into(), prev_kv, ..Default::default() };
        let outcome = as_ann(&mut fixture, Request::DeleteRange(delete));
        assert_eq!(outcome, if permitted { Ok(()) } else { DENIED }, "delete {key} {prev_kv}");
    }
    for (key, end, permitted) in [("b", "c", true), ("bb", "bc", true), ("b", "d", false), ("b", "\0", false)] {
        let delete = pb::DeleteRangeRequest { key: key.into(), range_end: end.into(), prev_kv: true };
        let outcome = as_ann(&mut fixture, Request::DeleteRange(delete));
        assert_eq!(outcome, if permitted { Ok(()) } else { DENIED }, "delete {key} {end}");
    }
    assert_eq!(fixture.contents(), "", "what was refused left nothing");
}

/// CVE-2026-33343: what is nested in a txn was not looked at.
#[test]
fn cve_2026_33343_nested_txns_need_every_permission_of_their_parts() {
    let nest = |txn: pb::TxnRequest| -> Vec<pb::TxnRequest> {
        // At the top; one down in either branch; two down in mixed ones.
        let (down, aside) = (success(vec![txn_op(txn.clone())]), failure(vec![txn_op(txn.clone())]));
        vec![txn, success(vec![put_op("b"), txn_op(aside.clone())]), failure(vec![txn_op(down.clone())]), down, aside]
    };
    let mut fixture = fixture();
    for (txn, permitted) in [
        (success(vec![put_op("w"), range_op("r", "")]), true),
        (failure(vec![put_op("w"), range_op("b", "c"), delete_op("b", "c")]), true),
        (compare("b", "c"), true),
        (compare("r", ""), true),
        (success(vec![put_op("r")]), false),
        (failure(vec![put_op("r")]), false),
        (success(vec![range_op("w", "")]), false),
        (failure(vec![range_op("r", "s")]), false),
        (success(vec![delete_op("w", "\0")]), false),
        (compare("w", ""), false),
        (compare("b", "d"), false),
        (compare("b", "\0"), false),
    ] {
        for txn in nest(txn) {
            let outcome = as_ann(&mut fixture, Request::Txn(txn.clone()));
            assert_eq!(outcome, if permitted { Ok(()) } else { DENIED }, "{txn:?}");
        }
    }
}

#[test]
fn who_hangs_keys_on_a_lease_or_revokes_it_needs_all_its_keys() {
    let mut fixture = fixture();
    for id in [1, 2, 3] {
        as_ann(&mut fixture, Request::LeaseGrant(pb::LeaseGrantRequest { id, ttl: 60 })).unwrap();
    }
    let revoke = |id| Request::LeaseRevoke(pb::LeaseRevokeRequest { id });
    fixture.apply(put_leased("x", 1)).unwrap();
    as_ann(&mut fixture, put_leased("w", 2)).unwrap();
    as_ann(&mut fixture, put_leased("b", 2)).unwrap();
    let leased = pb::PutRequest { key: "b".into(), lease: 1, ..Default::default() };
    let in_txn = pb::RequestOp { request: Some(request_op::Request::RequestPut(leased)) };
    for denied in [put_leased("b", 1), Request::Txn(success(vec![in_txn])), revoke(1)] {
        assert_eq!(as_ann(&mut fixture, denied), DENIED);
    }
    as_ann(&mut fixture, revoke(2)).unwrap();
    as_ann(&mut fixture, revoke(3)).unwrap();
    assert_eq!(as_ann(&mut fixture, revoke(9)), Err(ApiError::LeaseNotFound));
    assert_eq!(as_ann(&mut fixture, put_leased("b", 9)), Err(ApiError::LeaseNotFound));
    assert_eq!(fixture.contents(), "x=");
}

#[test]
fn who_was_looked_at_before_a_change_is_refused_when_the_command_arrives() {
    let mut fixture = fixture();
    let before = fixture.state.auth.revision();
    fixture.apply(user_add("bob")).unwrap();
    assert_eq!(fixture.apply_as("ann", before, put("b", "1")).unwrap_err(), ApiError::AuthOldRevision);
    assert!(fixture.apply_as("ann", before + 1, put("b", "1")).is_ok());
}

#[test]
fn nobody_and_strangers_are_refused_and_the_member_itself_is_not() {
    let mut fixture = fixture();
    let revision = fixture.state.auth.revision();
    assert_eq!(fixture.apply_as("", 0, put("b", "1")).unwrap_err(), ApiError::UserEmpty);
    assert_eq!(fixture.apply_as("eve", revision, put("b", "1")).unwrap_err(), ApiError::PermissionDenied);
    let grant = Request::LeaseGrant(pb::LeaseGrantRequest { id: 1, ttl: 60 });
    assert_eq!(fixture.apply_as("", 0, grant.clone()).unwrap_err(), ApiError::UserEmpty);
    assert_eq!(fixture.apply_as("eve", revision, grant).unwrap_err(), ApiError::PermissionDenied);
    fixture.apply(put("x", "1")).unwrap();
}

#[test]
fn what_concerns_everybody_is_for_admins() {
    let mut fixture = fixture();
    let alarm = |action| {
        Request::Alarm(pb::AlarmRequest { action: action as i32, member_id: 1, alarm: pb::AlarmType::Nospace as i32 })
    };
    for request in [
        user_add("bob"),
        grant_role("ann", "root"),
        grant(Type::Readwrite, "\0", "\0"),
        Request::AuthDisable(pb::AuthDisableRequest {}),
        Request::AuthEnable(pb::AuthEnableRequest {}),
        Request::Compaction(pb::CompactionRequest { revision: 1, physical: false }),
        alarm(pb::alarm_request::AlarmAction::Activate),
        alarm(pb::alarm_request::AlarmAction::Deactivate),
    ] {
        assert_eq!(as_ann(&mut fixture, request.clone()), DENIED, "{request:?}");
        assert_eq!(fixture.apply_as("", 0, request).unwrap_err(), ApiError::UserEmpty);
    }
    as_ann(&mut fixture, alarm(pb::alarm_request::AlarmAction::Get)).unwrap();
    // An admin's command needs no newest revision, so that changes can follow each other.
    fixture.apply_as("root", 1, user_add("bob")).unwrap();
    fixture.apply_as("root", 1, user_add("carl")).unwrap();
}

#[test]
fn a_token_is_letters_and_the_entry_it_was_given_in() {
    let mut fixture = fixture();
    let ask = |name: &str| {
        Request::Authenticate(InternalAuthenticateRequest {
            name: name.into(),
            password: String::new(),
            simple_token: "letters".into(),
        })
    };
    let revision = fixture.state.auth.revision();
    let Ok(Applied::Authenticated(answer)) = fixture.apply_as("ann", revision, ask("ann")) else { panic!("a token") };
    assert_eq!(answer.token, format!("letters.{}", fixture.position().index));
    assert_eq!(fixture.state.auth.identify(Some(&answer.token), None).unwrap().user, "ann");
    assert_eq!(fixture.apply_as("ann", revision - 1, ask("ann")).unwrap_err(), ApiError::AuthOldRevision);
    assert_eq!(fixture.apply_as("eve", revision, ask("eve")).unwrap_err(), ApiError::AuthFailed);
}

#[test]
fn users_and_roles_survive_and_tokens_do_not() {
    let fixture = fixture();
    let revision = fixture.state.auth.revision();
    fixture.state.auth.assign_token("ann", "t.1", revision).unwrap();
    let mut fixture = fixture.reopen();
    assert_eq!((fixture.state.auth.is_enabled(), fixture.state.auth.revision()), (true, revision));
    assert_eq!(fixture.state.auth.identify(Some("t.1"), None), Err(ApiError::InvalidAuthToken));
    assert_eq!(as_ann(&mut fixture, put("r", "1")), DENIED);
    as_ann(&mut fixture, put("w", "1")).unwrap();
}
