//! Random messages and random texts.

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};

use crate::proto::{
    etcdserverpb::{
        self as pb, compare::TargetUnion, request_op::Request, response_op::Response, watch_request::RequestUnion,
    },
    mvccpb,
};

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

/// Zero often enough to see it left out; the extremes often enough to see them survive.
fn int64() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(i64::MAX), Just(i64::MIN), -3_i64..1000, any::<i64>()]
}

fn enumeration() -> impl Strategy<Value = i32> {
    prop_oneof![0..6, any::<i32>()]
}

prop_compose! {
    pub(super) fn header()(cluster_id: u64, member_id: u64, revision in int64(), raft_term: u64) -> pb::ResponseHeader {
        pb::ResponseHeader { cluster_id, member_id, revision, raft_term }
    }
}

prop_compose! {
    pub(super) fn key_value()(
        key in bytes(), value in bytes(), create_revision in int64(), mod_revision in int64(), version in int64(), lease in int64(),
    ) -> mvccpb::KeyValue {
        mvccpb::KeyValue { key, create_revision, mod_revision, version, value, lease }
    }
}

prop_compose! {
    pub(super) fn range_request()(
        (key, range_end) in (bytes(), bytes()),
        (sort_order, sort_target) in (enumeration(), enumeration()),
        numbers in proptest::array::uniform6(int64()),
        flags in proptest::array::uniform3(any::<bool>()),
        r#continue in prop_oneof![Just(String::new()), any::<String>()],
    ) -> pb::RangeRequest {
        let [limit, revision, min_mod_revision, max_mod_revision, min_create_revision, max_create_revision] = numbers;
        let [serializable, keys_only, count_only] = flags;
        pb::RangeRequest {
            key, range_end, limit, revision, sort_order, sort_target, serializable, keys_only, count_only,
            min_mod_revision, max_mod_revision, min_create_revision, max_create_revision, r#continue,
        }
    }
}

prop_compose! {
    pub(super) fn put_request()(
        key in bytes(), value in bytes(), lease in int64(), prev_kv: bool, ignore_value: bool, ignore_lease: bool,
    ) -> pb::PutRequest {
        pb::PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

prop_compose! {
    pub(super) fn delete_request()(key in bytes(), range_end in bytes(), prev_kv: bool) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest { key, range_end, prev_kv }
    }
}

prop_compose! {
    fn compare()(
        result in enumeration(), target in enumeration(), key in bytes(), range_end in bytes(),
        target_union in option::of(prop_oneof![
            int64().prop_map(TargetUnion::Version),
            int64().prop_map(TargetUnion::CreateRevision),
            int64().prop_map(TargetUnion::ModRevision),
            bytes().prop_map(TargetUnion::Value),
            int64().prop_map(TargetUnion::Lease),
        ]),
    ) -> pb::Compare {
        pb::Compare { result, target, key, range_end, target_union }
    }
}

pub(super) fn txn_request() -> BoxedStrategy<pb::TxnRequest> {
    let leaf = vec(compare(), 0..3).prop_map(|compare| pb::TxnRequest { compare, ..Default::default() });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let request = prop_oneof![
            range_request().prop_map(Request::RequestRange).boxed(),
            put_request().prop_map(Request::RequestPut).boxed(),
            delete_request().prop_map(Request::RequestDeleteRange).boxed(),
            inner.prop_map(Request::RequestTxn).boxed(),
        ];
        let ops = vec(option::weighted(0.9, request).prop_map(|request| pb::RequestOp { request }), 0..3).boxed();
        (vec(compare(), 0..2), ops.clone(), ops).prop_map(|(compare, success, failure)| pb::TxnRequest {
            compare,
            success,
            failure,
        })
    })
    .boxed()
}

prop_compose! {
    fn watch_create()(
        key in bytes(), range_end in bytes(), start_revision in int64(), progress_notify: bool,
        filters in vec(enumeration(), 0..3), prev_kv: bool, watch_id in int64(), fragment: bool,
    ) -> pb::WatchCreateRequest {
        pb::WatchCreateRequest { key, range_end, start_revision, progress_notify, filters, prev_kv, watch_id, fragment }
    }
}

pub(super) fn watch_request() -> impl Strategy<Value = pb::WatchRequest> {
    let cancel = int64().prop_map(|watch_id| RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id }));
    option::of(prop_oneof![
        watch_create().prop_map(RequestUnion::CreateRequest),
        cancel,
        Just(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})),
    ])
    .prop_map(|request_union| pb::WatchRequest { request_union })
}

prop_compose! {
    pub(super) fn range_response()(
        header in option::of(header()), kvs in vec(key_value(), 0..4), more: bool, count in int64(),
        r#continue in prop_oneof![Just(String::new()), any::<String>()],
    ) -> pb::RangeResponse {
        pb::RangeResponse { header, kvs, more, count, r#continue }
    }
}

prop_compose! {
    pub(super) fn put_response()(header in option::of(header()), prev_kv in option::of(key_value())) -> pb::PutResponse {
        pb::PutResponse { header, prev_kv }
    }
}

prop_compose! {
    pub(super) fn delete_response()(
        header in option::of(header()), deleted in int64(), prev_kvs in vec(key_value(), 0..3),
    ) -> pb::DeleteRangeResponse {
        pb::DeleteRangeResponse { header, deleted, prev_kvs }
    }
}

pub(super) fn txn_response() -> BoxedStrategy<pb::TxnResponse> {
    let leaf = option::of(header()).prop_map(|header| pb::TxnResponse { header, ..Default::default() });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let response = prop_oneof![
            range_response().prop_map(Response::ResponseRange).boxed(),
            put_response().prop_map(Response::ResponsePut).boxed(),
            delete_response().prop_map(Response::ResponseDeleteRange).boxed(),
            inner.prop_map(Response::ResponseTxn).boxed(),
        ];
        let responses = vec(option::weighted(0.9, response).prop_map(|response| pb::ResponseOp { response }), 0..4);
        (option::of(header()), any::<bool>(), responses).prop_map(|(header, succeeded, responses)| pb::TxnResponse {
            header,
            succeeded,
            responses,
        })
    })
    .boxed()
}

prop_compose! {
    fn event()(
        r#type in 0..2, kv in option::of(key_value()), prev_kv in option::of(key_value()),
    ) -> mvccpb::Event {
        mvccpb::Event { r#type, kv, prev_kv }
    }
}

prop_compose! {
    pub(super) fn watch_response()(
        header in option::of(header()), watch_id in int64(), created: bool, canceled: bool, compact_revision in int64(),
        cancel_reason in prop_oneof![Just(String::new()), any::<String>()], fragment: bool, events in vec(event(), 0..4),
    ) -> pb::WatchResponse {
        pb::WatchResponse { header, watch_id, created, canceled, compact_revision, cancel_reason, fragment, events }
    }
}

/// Texts that look like requests: known names in both spellings, values that often do not fit them.
pub(super) fn request_text() -> impl Strategy<Value = String> {
    let names = [
        "key",
        "range_end",
        "rangeEnd",
        "limit",
        "sort_order",
        "sortTarget",
        "keys_only",
        "value",
        "lease",
        "prevKv",
        "compare",
        "success",
        "failure",
        "result",
        "target",
        "version",
        "mod_revision",
        "request_range",
        "requestPut",
        "request_delete_range",
        "request_txn",
        "create_request",
        "cancelRequest",
        "progress_request",
        "filters",
        "watch_id",
        "watchId",
        "fragment",
        "ID",
        "id",
        "unknown",
    ];
    let scalar = prop::sample::select(vec![
        "0",
        "1",
        "-1",
        "1.0",
        "1e0",
        "1.5",
        "\"7\"",
        "\"x\"",
        "\"\"",
        "\"Zm9v\"",
        "\"-_8\"",
        "true",
        "false",
        "null",
        "{}",
        "[]",
        "[null]",
        "9223372036854775807",
        "9223372036854775808",
        "\"NONE\"",
        "\"VALUE\"",
        "\"NOPUT\"",
        "tru",
        "\"\\u0041\"",
    ])
    .prop_map(String::from);
    scalar.prop_recursive(5, 40, 4, move |inner| {
        let field = (prop::sample::select(names.to_vec()), inner.clone());
        let object = vec(field, 0..4).prop_map(|fields| {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
            format!("{{{}}}", fields.join(","))
        });
        let array = vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(" , ")));
        prop_oneof![3 => object, 1 => array]
    })
}

/// One random edit of a text: a byte removed, replaced or doubled.
pub(super) fn edit(text: &[u8], at: usize, byte: u8, how: u8) -> Vec<u8> {
    let mut edited = text.to_vec();
    if edited.is_empty() {
        return edited;
    }
    let at = at % edited.len();
    match how % 4 {
        0 => drop(edited.remove(at)),
        1 => edited[at] = byte,
        2 => edited.insert(at, byte),
        _ => edited.truncate(at),
    }
    edited
}
