//! Txn semantics, as data.

use super::{
    super::{
        Applied, evaluate_read_only,
        fixture::{Fixture, put, put_leased},
    },
    script::{parse, render},
};
use crate::{
    error::ApiError,
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

/// Revision 2 puts a=1, 3 b=2, 4 b=3 (version 2), 5 c with lease 7.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.apply(Request::LeaseGrant(pb::LeaseGrantRequest { id: 7, ttl: 100 })).unwrap();
    for request in [put("a", "1"), put("b", "2"), put("b", "3"), put_leased("c", 7)] {
        fixture.apply(request).unwrap();
    }
    assert_eq!(fixture.state.store.revision(), 5);
    fixture
}

fn run(fixture: &mut Fixture, script: &str) -> Result<String, ApiError> {
    match fixture.apply(Request::Txn(parse(script)))? {
        Applied::Txn(response) => {
            assert_eq!(response.header.as_ref().unwrap().revision, fixture.state.store.revision());
            Ok(render(&response))
        }
        other => panic!("a txn came to {other:?}"),
    }
}

#[test]
fn compares() {
    let mut fixture = fixture();
    for (compare, holds) in [
        ("", true),
        ("ver a = 1", true),
        ("ver a != 1", false),
        ("ver b = 2", true),
        ("ver b > 1", true),
        ("ver b > 2", false),
        ("ver b < 3", true),
        ("ver b < 2", false),
        ("create b = 3", true),
        ("mod b = 4", true),
        ("mod b > 4", false),
        ("val b = 3", true),
        ("val b != 2", true),
        ("val b > 2", true),
        ("val b < 30", true),
        ("lease c = 7", true),
        ("lease a = 0", true),
        ("lease c > 7", false),
        // A missing key: numbers are 0, a value is not there to compare.
        ("ver x = 0", true),
        ("ver x > 0", false),
        ("create x = 0", true),
        ("mod x < 1", true),
        ("lease x = 0", true),
        ("val x = _", false),
        ("val x != 1", false),
        // No operand is 0, or empty.
        ("ver a = _", false),
        ("ver a > _", true),
        ("lease a = _", true),
        ("val c = _", true),
        ("val a > _", true),
        // A range: every key in it; an empty one is like a missing key.
        ("ver a..c > 0", true),
        ("ver a..c = 1", false),
        ("create a..z > 1", true),
        ("lease a..z = 0", false),
        ("val a..c > 0", true),
        ("val a..c < 3", false),
        ("ver x..z = 0", true),
        ("val x..z != 1", false),
        ("ver c..a = 0", true),
        // All must hold.
        ("ver a = 1 & val b = 3 & ver x = 0", true),
        ("ver a = 1 & val b = 2", false),
    ] {
        let script = format!("{compare} ? : ");
        let expected = if holds { "T()" } else { "F()" };
        assert_eq!(run(&mut fixture, &script).as_deref(), Ok(expected), "{compare}");
        let read = evaluate_read_only(&fixture.state.store, &parse(&script)).unwrap();
        assert_eq!(render(&read), expected, "{compare}, read only");
        assert_eq!(read.header.unwrap().revision, 5);
    }
}

#[test]
fn operands_of_another_target_and_unknown_enums() {
    let mut fixture = fixture();
    let mut txn = parse("ver a = 1 ? : ");
    txn.compare[0].target_union = Some(pb::compare::TargetUnion::ModRevision(1));
    for (target, result, succeeded) in [(0, 0, false), (0, 1, true), (99, 0, true), (99, 1, false), (0, 99, true)] {
        txn.compare[0].target = target;
        txn.compare[0].result = result;
        match fixture.apply(Request::Txn(txn.clone())).unwrap() {
            Applied::Txn(response) => assert_eq!(response.succeeded, succeeded, "target {target}, result {result}"),
            other => panic!("a txn came to {other:?}"),
        }
    }
}

#[test]
fn executions() {
    for (script, answer, contents) in [
        ("ver a = 1 ? put a x : put b y", "T(put@6)", "a=x b=3 c="),
        ("ver a = 2 ? put a x : put b y", "F(put@6)", "a=1 b=y c="),
        ("? get a@0 ; put a x ; get a@0 ; get a@5 : ", "T(get@5[a=1] put@6 get@6[a=x] get@6[a=1])", "a=x b=3 c="),
        ("? get b@3 ; get b@4 : ", "T(get@5[b=2] get@5[b=3])", "a=1 b=3 c="),
        ("? del a..z ; get a..z@0 ; put d 4 ; get a..z@0 : ", "T(del@6:3 get@6[] put@6 get@6[d=4])", "d=4"),
        ("? del x ; get a@0 : ", "T(del@5:0 get@5[a=1])", "a=1 b=3 c="),
        ("? del a ; del a : ", "T(del@6:1 del@6:0)", "b=3 c="),
        ("? put a x ; del x : ", "T(put@6 del@6:0)", "a=x b=3 c="),
        // Every branch is decided before anything executes.
        ("? put x 1 ; (ver x = 0 ? put y T : put y F) : ", "T(put@6 T(put@6))", "a=1 b=3 c= x=1 y=T"),
        ("? del a ; (ver a = 1 ? (ver a = 1 ? put z 1 : ) : put z 2) : ", "T(del@6:1 T(T(put@6)))", "b=3 c= z=1"),
        (
            "? (ver x = 1 ? put p 1 : put p 2) ; (ver a = 1 ? put q 1 : put q 2) : ",
            "T(F(put@6) T(put@6))",
            "a=1 b=3 c= p=2 q=1",
        ),
        // The path skips what lies on the branches that are not taken.
        (
            "ver a = 2 ? (ver a = 1 ? : ) : (ver x = 1 ? put p 1 : (ver a = 1 ? put p 3 : put p 4))",
            "F(F(T(put@6)))",
            "a=1 b=3 c= p=3",
        ),
        ("? (? : ) : ", "T(T())", "a=1 b=3 c="),
        // Keeping what is there.
        ("? keep-value b : ", "T(put@6)", "a=1 b=3 c="),
        ("? put x 9 ; (? keep-value x : ) : ", "T(put@6 T(put@6))", "a=1 b=3 c= x=9"),
    ] {
        let mut fixture = fixture();
        assert_eq!(run(&mut fixture, script).as_deref(), Ok(answer), "{script}");
        assert_eq!(fixture.contents(), contents, "{script}");
    }
}

#[test]
fn failures_leave_nothing() {
    let mut fixture = fixture();
    fixture.apply(Request::Compaction(pb::CompactionRequest { revision: 4, physical: false })).unwrap();
    for (script, error) in [
        ("? put a x ; get a@6 : ", ApiError::FutureRevision),
        ("? put a x ; get a@3 : ", ApiError::Compacted),
        ("? put a x ; (? get a@99 : ) : ", ApiError::FutureRevision),
        ("? put a x ; put-leased b 8 : ", ApiError::LeaseNotFound),
        ("? put a x ; (? put-leased b 8 : ) : ", ApiError::LeaseNotFound),
        ("? put a x ; keep-value x : ", ApiError::KeyNotFound),
        ("? put a x ; keep-lease x 1 : ", ApiError::KeyNotFound),
        ("? put a x ; del b ; keep-value b : ", ApiError::KeyNotFound),
        // Puts are checked before ranges.
        ("? get a@99 ; put-leased b 8 : ", ApiError::LeaseNotFound),
    ] {
        assert_eq!(run(&mut fixture, script), Err(error), "{script}");
        assert_eq!((fixture.contents().as_str(), fixture.state.store.revision()), ("a=1 b=3 c=", 5), "{script}");
        assert_eq!(fixture.state.lessor.lease_of(b"c"), 7, "{script}");
    }
    // What lies on the branch that is not taken is not looked at.
    assert_eq!(run(&mut fixture, "? : put-leased b 8 ; get a@99").as_deref(), Ok("T()"));
    let unset = pb::TxnRequest { success: vec![pb::RequestOp::default()], ..Default::default() };
    assert_eq!(fixture.apply(Request::Txn(unset)).unwrap_err(), ApiError::KeyNotFound);
}

#[test]
fn leases_move_with_their_keys() {
    let mut fixture = fixture();
    let lease_of = |fixture: &Fixture, key: &str| fixture.state.lessor.lease_of(key.as_bytes());
    run(&mut fixture, "? put-leased a 7 ; keep-lease c 5 : ").unwrap();
    assert_eq!((lease_of(&fixture, "a"), lease_of(&fixture, "c")), (7, 7));
    run(&mut fixture, "? put a 1 ; del c : ").unwrap();
    assert_eq!((lease_of(&fixture, "a"), lease_of(&fixture, "c")), (0, 0));
    assert_eq!(fixture.state.lessor.keys(7).unwrap().len(), 0);
}

#[test]
fn read_only_evaluation_is_the_same_and_refuses_writes() {
    let mut fixture = fixture();
    for script in [
        "ver a = 1 ? get a..z@0 ; get b@3 : ",
        "ver a = 2 ? : get a@0 ; get x@0",
        "? (val b = 3 ? get b@0 : ) : ",
        "? get a@6 : ",
    ] {
        let read = evaluate_read_only(&fixture.state.store, &parse(script)).map(|response| render(&response));
        assert_eq!(read, run(&mut fixture, script), "{script}");
    }
    let write = evaluate_read_only(&fixture.state.store, &parse("? put a x : "));
    assert!(matches!(write, Err(ApiError::Internal(_))));
    assert_eq!(fixture.contents(), "a=1 b=3 c=");
}

#[test]
fn counters_are_etcds() {
    let mut fixture = fixture();
    let before = (fixture.metrics.put_total.get(), fixture.metrics.txn_total.get());
    run(&mut fixture, "? put a 1 : ").unwrap();
    run(&mut fixture, "? put a 1 ; get a@0 : ").unwrap();
    run(&mut fixture, "? (? put a 1 : ) : ").unwrap();
    let after = (fixture.metrics.put_total.get(), fixture.metrics.txn_total.get());
    assert_eq!((after.0 - before.0, after.1 - before.1), (3, 1));
}
