//! Which requests are refused, and with what.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::{overlap::Spans, *};
use crate::proto::{etcdserverpb::Compare, revgatepb};

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn put(key: &'static str) -> RequestOp {
    op(Request::RequestPut(PutRequest { key: key.into(), ..Default::default() }))
}

fn range(key: &'static str) -> RequestOp {
    op(Request::RequestRange(RangeRequest { key: key.into(), ..Default::default() }))
}

fn delete(key: &'static str) -> RequestOp {
    op(Request::RequestDeleteRange(DeleteRangeRequest { key: key.into(), ..Default::default() }))
}

fn delete_to(key: &'static str, range_end: &'static str) -> RequestOp {
    let request = DeleteRangeRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
    op(Request::RequestDeleteRange(request))
}

fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
    op(Request::RequestTxn(TxnRequest { compare: vec![], success, failure }))
}

fn then(success: Vec<RequestOp>) -> RequestOp {
    nested(success, vec![])
}

fn check_success(success: Vec<RequestOp>) -> Result<(), ApiError> {
    check_txn(&TxnRequest { success, ..Default::default() }, 128)
}

/// A put inside `levels` txns, the outermost included.
fn deep(levels: usize) -> TxnRequest {
    let mut txn = TxnRequest { success: vec![put("k")], ..Default::default() };
    for _ in 1..levels {
        txn = TxnRequest { success: vec![op(Request::RequestTxn(txn))], ..Default::default() };
    }
    txn
}

#[test]
fn single_requests() {
    let k = Bytes::from_static(b"k");
    let range = |sort_order, sort_target| {
        check_range(&RangeRequest { key: k.clone(), sort_order, sort_target, ..Default::default() })
    };
    assert_eq!(check_range(&RangeRequest::default()), Err(ApiError::KeyNotProvided));
    assert_eq!(range(0, 0), Ok(()));
    assert_eq!(range(2, 4), Ok(()));
    assert_eq!(range(3, 0), Err(ApiError::InvalidSortOption));
    assert_eq!(range(0, 5), Err(ApiError::InvalidSortOption));
    assert_eq!(range(-1, 0), Err(ApiError::InvalidSortOption));

    let put = PutRequest { key: k.clone(), ..Default::default() };
    assert_eq!(check_put(&PutRequest::default()), Err(ApiError::KeyNotProvided));
    assert_eq!(check_put(&put), Ok(()));
    assert_eq!(check_put(&PutRequest { ignore_value: true, ignore_lease: true, ..put.clone() }), Ok(()));
    let with_value = PutRequest { value: "v".into(), ignore_value: true, ..put.clone() };
    assert_eq!(check_put(&with_value), Err(ApiError::ValueProvided));
    assert_eq!(check_put(&PutRequest { lease: 3, ignore_lease: true, ..put }), Err(ApiError::LeaseProvided));

    assert_eq!(check_delete_range(&DeleteRangeRequest::default()), Err(ApiError::KeyNotProvided));
    assert_eq!(check_delete_range(&DeleteRangeRequest { key: k, ..Default::default() }), Ok(()));
}

#[test]
fn ops_of_a_txn_are_checked_in_both_branches() {
    assert_eq!(check_success(vec![RequestOp { request: None }]), Err(ApiError::KeyNotFound));
    assert_eq!(check_success(vec![then(vec![RequestOp { request: None }])]), Err(ApiError::KeyNotFound));
    assert_eq!(check_success(vec![put("")]), Err(ApiError::KeyNotProvided));
    assert_eq!(check_success(vec![range("")]), Err(ApiError::KeyNotProvided));
    assert_eq!(check_success(vec![delete("")]), Err(ApiError::KeyNotProvided));
    let failure = TxnRequest { failure: vec![put("")], ..Default::default() };
    assert_eq!(check_txn(&failure, 128), Err(ApiError::KeyNotProvided));
    let compare = TxnRequest { compare: vec![Compare::default()], ..Default::default() };
    assert_eq!(check_txn(&compare, 128), Err(ApiError::KeyNotProvided));
    // A missing key is told before a doubled one.
    assert_eq!(check_success(vec![put("k"), put("k"), put("")]), Err(ApiError::KeyNotProvided));
    assert_eq!(check_txn(&TxnRequest::default(), 128), Ok(()));
}

#[test]
fn each_level_takes_its_ops_from_the_budget() {
    let ranges = |n: usize| vec![range("k"); n];
    let txn = |success| TxnRequest { success, ..Default::default() };
    assert_eq!(check_txn(&txn(ranges(4)), 4), Ok(()));
    assert_eq!(check_txn(&txn(ranges(5)), 4), Err(ApiError::TooManyOps));
    let compare = Compare { key: "k".into(), ..Default::default() };
    let compares = TxnRequest { compare: vec![compare; 5], ..Default::default() };
    assert_eq!(check_txn(&compares, 4), Err(ApiError::TooManyOps));
    assert_eq!(check_txn(&txn(vec![then(ranges(3))]), 4), Ok(()));
    assert_eq!(check_txn(&txn(vec![then(ranges(4))]), 4), Err(ApiError::TooManyOps));
    // Side by side, nested txns do not share a budget.
    assert_eq!(check_txn(&txn(vec![then(ranges(2)), then(ranges(2))]), 4), Ok(()));
    assert_eq!(check_txn(&deep(4), 4), Ok(()));
    assert_eq!(check_txn(&deep(5), 4), Err(ApiError::TooManyOps));
}

#[test]
fn the_deepest_txn_can_be_read_back_from_the_log() {
    let deepest = deep(TXN_DEPTH_MAX);
    assert_eq!(check_txn(&deepest, usize::MAX), Ok(()));
    assert_eq!(check_txn(&deep(TXN_DEPTH_MAX + 1), usize::MAX), Err(ApiError::TooManyOps));

    let command = revgatepb::InternalRaftRequest {
        request: Some(revgatepb::internal_raft_request::Request::Txn(deepest)),
        ..Default::default()
    };
    let batch = revgatepb::CommandBatch { commands: vec![command] };
    assert_eq!(revgatepb::CommandBatch::decode(&batch.encode_to_vec()[..]), Ok(batch));
}

/// Every line was asked of an etcd 3.5.1.
#[test]
fn keys_changed_twice_are_refused_where_etcd_refuses_them() {
    let refused: Vec<(&str, Vec<RequestOp>)> = vec![
        ("put twice", vec![put("k"), put("k")]),
        ("put and delete", vec![put("k"), delete("k")]),
        ("put inside a deleted range", vec![put("k"), delete_to("a", "z")]),
        ("delete in one child, put in a later one", vec![then(vec![delete("k")]), then(vec![put("k")])]),
        ("put in two children", vec![then(vec![put("k")]), then(vec![put("k")])]),
        ("both branches of a child, then another", vec![nested(vec![put("k")], vec![put("k")]), then(vec![put("k")])]),
        ("put, child deletes", vec![put("k"), then(vec![delete("k")])]),
        ("child deletes, put", vec![then(vec![delete("k")]), put("k")]),
        ("delete, child puts", vec![delete("k"), then(vec![put("k")])]),
        ("child puts, delete", vec![then(vec![put("k")]), delete("k")]),
        ("put, child puts", vec![put("k"), then(vec![put("k")])]),
        ("put, grandchild puts", vec![put("k"), then(vec![then(vec![put("k")])])]),
        ("put, failure branch of a child puts", vec![put("k"), nested(vec![], vec![put("k")])]),
    ];
    for (name, ops) in refused {
        assert_eq!(check_success(ops.clone()), Err(ApiError::DuplicateKey), "{name}");
        let failure = TxnRequest { failure: ops, ..Default::default() };
        assert_eq!(check_txn(&failure, 128), Err(ApiError::DuplicateKey), "{name}, in the failure branch");
    }
    let accepted: Vec<(&str, Vec<RequestOp>)> = vec![
        ("different keys", vec![put("a"), put("b"), delete("c"), range("a")]),
        ("put in one child, delete in a later one", vec![then(vec![put("k")]), then(vec![delete("k")])]),
        (
            "put in a grandchild, delete in a later child",
            vec![then(vec![then(vec![put("k")])]), then(vec![delete("k")])],
        ),
        ("branches: put or delete", vec![nested(vec![put("k")], vec![delete("k")])]),
        ("branches: delete or put", vec![nested(vec![delete("k")], vec![put("k")])]),
        ("branches: put or put", vec![nested(vec![put("k")], vec![put("k")])]),
        ("deletes overlap", vec![delete("k"), delete_to("a", "z"), delete_to("k", "zz"), then(vec![delete("k")])]),
        ("the deleted range ends before", vec![put("k"), delete_to("a", "k")]),
        ("the deleted range is empty", vec![put("k"), delete_to("z", "a")]),
        ("from a key on", vec![put("k"), delete_to("a", "\0")]),
        ("everything", vec![put("k"), delete_to("\0", "\0")]),
    ];
    for (name, ops) in accepted {
        assert_eq!(check_success(ops), Ok(()), "{name}");
    }
    let branches = TxnRequest { success: vec![put("k")], failure: vec![put("k")], ..Default::default() };
    assert_eq!(check_txn(&branches, 128), Ok(()), "the branches of the txn itself");
}

#[test]
fn read_only_and_serializable() {
    let serializable =
        || op(Request::RequestRange(RangeRequest { key: "k".into(), serializable: true, ..Default::default() }));
    let txn = |success, failure| TxnRequest { success, failure, ..Default::default() };
    let table = [
        (txn(vec![], vec![]), true, false),
        (txn(vec![range("k")], vec![]), true, false),
        (txn(vec![serializable()], vec![]), true, true),
        (txn(vec![serializable()], vec![range("k")]), true, false),
        (txn(vec![range("k")], vec![put("k")]), false, false),
        (txn(vec![delete("k")], vec![]), false, false),
        (txn(vec![then(vec![range("k")])], vec![]), false, false),
    ];
    for (txn, read_only, local) in table {
        assert_eq!((is_read_only(&txn), is_serializable(&txn)), (read_only, local), "{txn:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Spans hold exactly the keys of the ranges that were put in, in whatever order they came.
    #[test]
    fn spans_hold_what_their_ranges_hold(ranges in prop::collection::vec((0u8..24, 0u8..24), 0..12)) {
        let mut spans = Spans::default();
        for (start, end) in &ranges {
            spans.insert(Bytes::copy_from_slice(&[*start]), Bytes::copy_from_slice(&[*end]));
        }
        for key in 0u8..25 {
            let expected = ranges.iter().any(|(start, end)| (*start..*end).contains(&key));
            prop_assert_eq!(spans.contains(&[key]), expected, "key {}", key);
        }
    }
}
