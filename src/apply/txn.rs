//! Transactions: decide the path, check what lies on it, then execute it in order; one that fails leaves nothing.

use std::collections::HashSet;

use bytes::Bytes;

use super::{
    Failure,
    compare::{Decisions, Path, branch},
    header,
};
use crate::{
    error::ApiError,
    lease::Lessor,
    mvcc::{KeyRange, KeyValueRef, MvccError, RangeQuery, SortOrder, SortTarget, Store, WriteTxn},
    proto::etcdserverpb::{
        self as pb, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
        RequestOp, ResponseOp, TxnRequest, TxnResponse, range_request, request_op, response_op,
    },
};

/// Pairs one step of a read outside a write transaction takes.
const CHUNK_KEYS_MAX: usize = 1_000;
/// How often a read-only txn begins anew because a compaction overtook it.
const OVERTAKEN_MAX: usize = 16;

/// What a txn reads from: the write transaction it is, or the store at one revision.
pub(super) enum View<'v, 's> {
    Write(&'v WriteTxn<'s>),
    Read { store: &'v Store, revision: i64 },
}

impl View<'_, '_> {
    /// Visits the pairs of a query; whether there were more, and how many keys the range holds.
    pub(super) fn range(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(KeyValueRef<'_>),
    ) -> Result<(bool, i64), MvccError> {
        match self {
            View::Write(txn) => txn.range(query, visit),
            View::Read { store, revision } => {
                let pinned = if query.revision > 0 { query.revision } else { *revision };
                let mut cursor = store.range(&RangeQuery { revision: pinned, ..query.clone() })?;
                while cursor.next_chunk(CHUNK_KEYS_MAX, visit)? {}
                Ok(cursor.more_and_count())
            }
        }
    }

    /// Visits a key, if it is there. With `numbers_only` the value and the lease may be missing.
    pub(super) fn visit_key(
        &self,
        key: &Bytes,
        numbers_only: bool,
        visit: &mut dyn FnMut(KeyValueRef<'_>),
    ) -> Result<(), MvccError> {
        if let (View::Write(txn), true) = (self, numbers_only) {
            if let Some(meta) = txn.key_meta(key) {
                visit(KeyValueRef {
                    key,
                    create_revision: meta.create_revision,
                    mod_revision: meta.mod_revision,
                    version: meta.version,
                    ..KeyValueRef::default()
                });
            }
            return Ok(());
        }
        let found = match self {
            View::Write(txn) => txn.get(key)?,
            View::Read { store, revision } => store.get(key, *revision)?,
        };
        if let Some(kv) = &found {
            visit(KeyValueRef {
                key: &kv.key,
                create_revision: kv.create_revision,
                mod_revision: kv.mod_revision,
                version: kv.version,
                value: &kv.value,
                lease: kv.lease,
            });
        }
        Ok(())
    }
}

/// What a range request asks the store for. Sort options outside their enums are the defaults: `service` refuses them.
pub fn range_query(request: &RangeRequest) -> RangeQuery {
    RangeQuery {
        range: KeyRange::new(request.key.clone(), request.range_end.clone()),
        revision: request.revision,
        limit: request.limit,
        order: match range_request::SortOrder::try_from(request.sort_order) {
            Ok(range_request::SortOrder::Ascend) => SortOrder::Ascend,
            Ok(range_request::SortOrder::Descend) => SortOrder::Descend,
            Ok(range_request::SortOrder::None) | Err(_) => SortOrder::None,
        },
        target: match range_request::SortTarget::try_from(request.sort_target) {
            Ok(range_request::SortTarget::Version) => SortTarget::Version,
            Ok(range_request::SortTarget::Create) => SortTarget::CreateRevision,
            Ok(range_request::SortTarget::Mod) => SortTarget::ModRevision,
            Ok(range_request::SortTarget::Value) => SortTarget::Value,
            Ok(range_request::SortTarget::Key) | Err(_) => SortTarget::Key,
        },
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
        after: None,
        known_count: None,
    }
}

/// Evaluates a txn that only reads, at one revision, without the log. A txn with a write in a branch that is taken is an
/// internal error: those go through the log.
pub fn evaluate_read_only(store: &Store, txn: &TxnRequest) -> Result<TxnResponse, ApiError> {
    for _ in 0..OVERTAKEN_MAX {
        let revision = store.revision();
        match read_at(store, revision, txn) {
            Ok(response) => return Ok(response),
            // The revision was the newest when this began: begin anew with what is the newest now.
            Err(Failure::Refused(ApiError::Compacted)) if store.compact_revision() > revision => {}
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Fatal(error)) => return Err(ApiError::DataLoss(error.to_string())),
        }
    }
    Err(ApiError::TooManyRequests)
}

fn read_at(store: &Store, revision: i64, txn: &TxnRequest) -> Result<TxnResponse, Failure> {
    let view = View::Read { store, revision };
    let path = Path::decide(&view, txn)?;
    check_ranges(&mut path.decisions(), txn, revision, store.compact_revision())?;
    let mut response = read_branch(&view, revision, &mut path.decisions(), txn)?;
    response.header = header(revision);
    Ok(response)
}

fn read_branch(
    view: &View<'_, '_>,
    revision: i64,
    decisions: &mut Decisions<'_>,
    txn: &TxnRequest,
) -> Result<TxnResponse, Failure> {
    let succeeded = decisions.next();
    let mut responses = Vec::with_capacity(branch(txn, succeeded).len());
    for op in branch(txn, succeeded) {
        responses.push(match &op.request {
            Some(request_op::Request::RequestRange(request)) => {
                response_op::Response::ResponseRange(range(view, revision, request)?)
            }
            Some(request_op::Request::RequestTxn(nested)) => {
                response_op::Response::ResponseTxn(read_branch(view, revision, decisions, nested)?)
            }
            Some(request_op::Request::RequestPut(_) | request_op::Request::RequestDeleteRange(_)) => {
                return Err(ApiError::Internal("a txn that writes was taken for one that only reads".into()).into());
            }
            None => return Err(ApiError::KeyNotFound.into()),
        });
    }
    Ok(nested_response(succeeded, responses))
}

/// A nested txn's answer has an empty header; the outermost one's is filled in by its caller.
fn nested_response(succeeded: bool, responses: Vec<response_op::Response>) -> TxnResponse {
    let responses = responses.into_iter().map(|response| ResponseOp { response: Some(response) }).collect();
    TxnResponse { header: Some(pb::ResponseHeader::default()), succeeded, responses }
}

fn range(view: &View<'_, '_>, revision: i64, request: &RangeRequest) -> Result<RangeResponse, MvccError> {
    let mut kvs = Vec::new();
    let (more, count) = view.range(&range_query(request), &mut |kv| kvs.push(kv.to_owned()))?;
    Ok(RangeResponse { header: header(revision), kvs, more, count, ..Default::default() })
}

/// Executes a txn in a write transaction. Returns the answer, and how many operations were executed. On an error the
/// caller drops the write transaction, and nothing has happened.
pub(super) fn execute(
    write: &mut WriteTxn<'_>,
    lessor: &Lessor,
    compact_revision: i64,
    txn: &TxnRequest,
) -> Result<(TxnResponse, usize), Failure> {
    let path = Path::decide(&View::Write(write), txn)?;
    check_puts(&mut path.decisions(), txn, &mut PutCheck { write, lessor, put: HashSet::new() })?;
    check_ranges(&mut path.decisions(), txn, write.base_revision(), compact_revision)?;
    let mut operations = 0;
    let mut response = execute_branch(write, lessor, &mut path.decisions(), txn, &mut operations)?;
    response.header = header(write.revision());
    Ok((response, operations))
}

fn execute_branch(
    write: &mut WriteTxn<'_>,
    lessor: &Lessor,
    decisions: &mut Decisions<'_>,
    txn: &TxnRequest,
    operations: &mut usize,
) -> Result<TxnResponse, Failure> {
    let succeeded = decisions.next();
    let mut responses = Vec::with_capacity(branch(txn, succeeded).len());
    for op in branch(txn, succeeded) {
        *operations += usize::from(!matches!(op.request, Some(request_op::Request::RequestTxn(_))));
        responses.push(match &op.request {
            Some(request_op::Request::RequestRange(request)) => {
                response_op::Response::ResponseRange(range(&View::Write(write), write.revision(), request)?)
            }
            Some(request_op::Request::RequestPut(request)) => {
                response_op::Response::ResponsePut(put(write, lessor, request)?)
            }
            Some(request_op::Request::RequestDeleteRange(request)) => {
                response_op::Response::ResponseDeleteRange(delete_range(write, request)?)
            }
            Some(request_op::Request::RequestTxn(nested)) => {
                response_op::Response::ResponseTxn(execute_branch(write, lessor, decisions, nested, operations)?)
            }
            None => return Err(ApiError::KeyNotFound.into()),
        });
    }
    Ok(nested_response(succeeded, responses))
}

/// Puts a key; shared by the single put and the txn.
pub(super) fn put(write: &mut WriteTxn<'_>, lessor: &Lessor, request: &PutRequest) -> Result<PutResponse, Failure> {
    let (mut value, mut lease) = (request.value.clone(), request.lease);
    if !request.ignore_lease {
        check_lease(lessor, lease)?;
    }
    if request.ignore_value || request.ignore_lease {
        let kept = write.get(&request.key)?.ok_or(ApiError::KeyNotFound)?;
        if request.ignore_value {
            value = kept.value;
        }
        if request.ignore_lease {
            lease = kept.lease;
        }
    }
    let outcome = write.put(request.key.clone(), value, lease, request.prev_kv)?;
    Ok(PutResponse { header: header(write.revision()), prev_kv: outcome.previous })
}

/// Deletes keys; shared by the single delete and the txn.
pub(super) fn delete_range(
    write: &mut WriteTxn<'_>,
    request: &DeleteRangeRequest,
) -> Result<DeleteRangeResponse, Failure> {
    let keys = KeyRange::new(request.key.clone(), request.range_end.clone());
    let outcome = write.delete_range(&keys, request.prev_kv)?;
    Ok(DeleteRangeResponse { header: header(write.revision()), deleted: outcome.deleted, prev_kvs: outcome.previous })
}

fn check_lease(lessor: &Lessor, lease: i64) -> Result<(), ApiError> {
    if lease != 0 && !lessor.contains(lease) {
        return Err(ApiError::LeaseNotFound);
    }
    Ok(())
}

/// What the puts on a path are checked against.
struct PutCheck<'c, 's> {
    write: &'c WriteTxn<'s>,
    lessor: &'c Lessor,
    /// Keys that are there because the txn has put them by then.
    put: HashSet<Bytes>,
}

fn check_puts(decisions: &mut Decisions<'_>, txn: &TxnRequest, check: &mut PutCheck<'_, '_>) -> Result<(), ApiError> {
    let succeeded = decisions.next();
    for RequestOp { request } in branch(txn, succeeded) {
        match request {
            Some(request_op::Request::RequestPut(put)) => {
                let keeps = put.ignore_value || put.ignore_lease;
                if keeps && !check.put.contains(&put.key) && check.write.key_meta(&put.key).is_none() {
                    return Err(ApiError::KeyNotFound);
                }
                if !put.ignore_lease {
                    check_lease(check.lessor, put.lease)?;
                }
                check.put.insert(put.key.clone());
            }
            Some(request_op::Request::RequestTxn(nested)) => check_puts(decisions, nested, check)?,
            Some(request_op::Request::RequestRange(_) | request_op::Request::RequestDeleteRange(_)) => {}
            None => return Err(ApiError::KeyNotFound),
        }
    }
    Ok(())
}

fn check_ranges(
    decisions: &mut Decisions<'_>,
    txn: &TxnRequest,
    revision: i64,
    compact_revision: i64,
) -> Result<(), ApiError> {
    let succeeded = decisions.next();
    for RequestOp { request } in branch(txn, succeeded) {
        match request {
            Some(request_op::Request::RequestRange(range)) if range.revision > revision => {
                return Err(ApiError::FutureRevision);
            }
            Some(request_op::Request::RequestRange(range))
                if range.revision > 0 && range.revision < compact_revision =>
            {
                return Err(ApiError::Compacted);
            }
            Some(request_op::Request::RequestTxn(nested)) => {
                check_ranges(decisions, nested, revision, compact_revision)?;
            }
            _ => {}
        }
    }
    Ok(())
}
