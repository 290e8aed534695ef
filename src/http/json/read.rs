//! Hand-written readers of the hot requests: what [`generic`](super::generic) reads, without going through reflection.
//!
//! Each is a table from field names to fields. The rules for values are the shared ones of [`scalar`](super::scalar).

use bytes::Bytes;

use super::{JsonError, scalar::Seen, scan::Scanner};
use crate::{
    error::ApiError,
    proto::etcdserverpb::{
        self as pb,
        compare::{CompareResult, CompareTarget, TargetUnion},
        range_request::{SortOrder, SortTarget},
        request_op::Request,
        watch_create_request::FilterType,
        watch_request::RequestUnion,
    },
};

/// Reads one message out of an object.
type ReadMessage<T> = fn(&mut Scanner<'_>) -> Result<T, JsonError>;

/// Reads a RangeRequest: the body's first value; no value is the empty message. The others here likewise.
pub(crate) fn range(text: &[u8]) -> Result<pb::RangeRequest, ApiError> {
    first_value(text, range_request)
}

/// Reads a PutRequest.
pub(crate) fn put(text: &[u8]) -> Result<pb::PutRequest, ApiError> {
    first_value(text, put_request)
}

/// Reads a DeleteRangeRequest.
pub(crate) fn delete_range(text: &[u8]) -> Result<pb::DeleteRangeRequest, ApiError> {
    first_value(text, delete_range_request)
}

/// Reads a TxnRequest.
pub(crate) fn txn(text: &[u8]) -> Result<pb::TxnRequest, ApiError> {
    first_value(text, txn_request)
}

/// Reads a WatchRequest.
pub(crate) fn watch(text: &[u8]) -> Result<pb::WatchRequest, ApiError> {
    first_value(text, watch_request)
}

/// Reads a LeaseKeepAliveRequest.
pub(crate) fn keep_alive(text: &[u8]) -> Result<pb::LeaseKeepAliveRequest, ApiError> {
    first_value(text, keep_alive_request)
}

fn first_value<T: Default>(text: &[u8], read: ReadMessage<T>) -> Result<T, ApiError> {
    let mut scanner = Scanner::new(text);
    if scanner.at_end() || scanner.null()? {
        return Ok(T::default());
    }
    Ok(read(&mut scanner)?)
}

fn range_request(scanner: &mut Scanner<'_>) -> Result<pb::RangeRequest, JsonError> {
    let mut request = pb::RangeRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| match name {
        "key" => seen.bytes(1, scanner, &mut request.key),
        "range_end" | "rangeEnd" => seen.bytes(2, scanner, &mut request.range_end),
        "limit" => seen.int64(3, scanner, &mut request.limit),
        "revision" => seen.int64(4, scanner, &mut request.revision),
        "sort_order" | "sortOrder" => {
            seen.enumeration(5, scanner, |name| Some(SortOrder::from_str_name(name)?.into()), &mut request.sort_order)
        }
        "sort_target" | "sortTarget" => {
            seen.enumeration(6, scanner, |name| Some(SortTarget::from_str_name(name)?.into()), &mut request.sort_target)
        }
        "serializable" => seen.bool(7, scanner, &mut request.serializable),
        "keys_only" | "keysOnly" => seen.bool(8, scanner, &mut request.keys_only),
        "count_only" | "countOnly" => seen.bool(9, scanner, &mut request.count_only),
        "min_mod_revision" | "minModRevision" => seen.int64(10, scanner, &mut request.min_mod_revision),
        "max_mod_revision" | "maxModRevision" => seen.int64(11, scanner, &mut request.max_mod_revision),
        "min_create_revision" | "minCreateRevision" => seen.int64(12, scanner, &mut request.min_create_revision),
        "max_create_revision" | "maxCreateRevision" => seen.int64(13, scanner, &mut request.max_create_revision),
        "continue" => seen.string(14, scanner, &mut request.r#continue),
        _ => scanner.skip_value(),
    })?;
    Ok(request)
}

fn put_request(scanner: &mut Scanner<'_>) -> Result<pb::PutRequest, JsonError> {
    let mut request = pb::PutRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| match name {
        "key" => seen.bytes(1, scanner, &mut request.key),
        "value" => seen.bytes(2, scanner, &mut request.value),
        "lease" => seen.int64(3, scanner, &mut request.lease),
        "prev_kv" | "prevKv" => seen.bool(4, scanner, &mut request.prev_kv),
        "ignore_value" | "ignoreValue" => seen.bool(5, scanner, &mut request.ignore_value),
        "ignore_lease" | "ignoreLease" => seen.bool(6, scanner, &mut request.ignore_lease),
        _ => scanner.skip_value(),
    })?;
    Ok(request)
}

fn delete_range_request(scanner: &mut Scanner<'_>) -> Result<pb::DeleteRangeRequest, JsonError> {
    let mut request = pb::DeleteRangeRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| match name {
        "key" => seen.bytes(1, scanner, &mut request.key),
        "range_end" | "rangeEnd" => seen.bytes(2, scanner, &mut request.range_end),
        "prev_kv" | "prevKv" => seen.bool(3, scanner, &mut request.prev_kv),
        _ => scanner.skip_value(),
    })?;
    Ok(request)
}

fn txn_request(scanner: &mut Scanner<'_>) -> Result<pb::TxnRequest, JsonError> {
    let mut request = pb::TxnRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| match name {
        "compare" => seen.list(1, scanner, compare, &mut request.compare),
        "success" => seen.list(2, scanner, request_op, &mut request.success),
        "failure" => seen.list(3, scanner, request_op, &mut request.failure),
        _ => scanner.skip_value(),
    })?;
    Ok(request)
}

fn request_op(scanner: &mut Scanner<'_>) -> Result<pb::RequestOp, JsonError> {
    let mut request = None;
    let mut seen = Seen::default();
    scanner.object(|scanner, name| {
        match name {
            "request_range" | "requestRange" if seen.member(0, 1, scanner)? => {
                request = Some(Request::RequestRange(range_request(scanner)?));
            }
            "request_put" | "requestPut" if seen.member(0, 2, scanner)? => {
                request = Some(Request::RequestPut(put_request(scanner)?));
            }
            "request_delete_range" | "requestDeleteRange" if seen.member(0, 3, scanner)? => {
                request = Some(Request::RequestDeleteRange(delete_range_request(scanner)?));
            }
            "request_txn" | "requestTxn" if seen.member(0, 4, scanner)? => {
                request = Some(Request::RequestTxn(txn_request(scanner)?));
            }
            // Known, and null.
            "request_range"
            | "requestRange"
            | "request_put"
            | "requestPut"
            | "request_delete_range"
            | "requestDeleteRange"
            | "request_txn"
            | "requestTxn" => {}
            _ => scanner.skip_value()?,
        }
        Ok(())
    })?;
    Ok(pb::RequestOp { request })
}

fn compare(scanner: &mut Scanner<'_>) -> Result<pb::Compare, JsonError> {
    let mut compare = pb::Compare::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| {
        match name {
            "result" => {
                let number_of = |name: &str| Some(CompareResult::from_str_name(name)?.into());
                seen.enumeration(1, scanner, number_of, &mut compare.result)?;
            }
            "target" => {
                let number_of = |name: &str| Some(CompareTarget::from_str_name(name)?.into());
                seen.enumeration(2, scanner, number_of, &mut compare.target)?;
            }
            "key" => seen.bytes(3, scanner, &mut compare.key)?,
            "range_end" | "rangeEnd" => seen.bytes(64, scanner, &mut compare.range_end)?,
            "version" if seen.member(0, 4, scanner)? => {
                compare.target_union = Some(TargetUnion::Version(scanner.int64()?));
            }
            "create_revision" | "createRevision" if seen.member(0, 5, scanner)? => {
                compare.target_union = Some(TargetUnion::CreateRevision(scanner.int64()?));
            }
            "mod_revision" | "modRevision" if seen.member(0, 6, scanner)? => {
                compare.target_union = Some(TargetUnion::ModRevision(scanner.int64()?));
            }
            "value" if seen.member(0, 7, scanner)? => {
                compare.target_union = Some(TargetUnion::Value(scanner.bytes()?));
            }
            "lease" if seen.member(0, 8, scanner)? => {
                compare.target_union = Some(TargetUnion::Lease(scanner.int64()?));
            }
            // Known, and null.
            "version" | "create_revision" | "createRevision" | "mod_revision" | "modRevision" | "value" | "lease" => {}
            _ => scanner.skip_value()?,
        }
        Ok(())
    })?;
    Ok(compare)
}

fn watch_request(scanner: &mut Scanner<'_>) -> Result<pb::WatchRequest, JsonError> {
    let mut request_union = None;
    let mut seen = Seen::default();
    scanner.object(|scanner, name| {
        match name {
            "create_request" | "createRequest" if seen.member(0, 1, scanner)? => {
                request_union = Some(RequestUnion::CreateRequest(watch_create_request(scanner)?));
            }
            "cancel_request" | "cancelRequest" if seen.member(0, 2, scanner)? => {
                request_union = Some(RequestUnion::CancelRequest(watch_cancel_request(scanner)?));
            }
            "progress_request" | "progressRequest" if seen.member(0, 3, scanner)? => {
                scanner.object(|scanner, _| scanner.skip_value())?;
                request_union = Some(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
            }
            // Known, and null.
            "create_request" | "createRequest" | "cancel_request" | "cancelRequest" | "progress_request"
            | "progressRequest" => {}
            _ => scanner.skip_value()?,
        }
        Ok(())
    })?;
    Ok(pb::WatchRequest { request_union })
}

fn watch_create_request(scanner: &mut Scanner<'_>) -> Result<pb::WatchCreateRequest, JsonError> {
    let mut request = pb::WatchCreateRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| {
        match name {
            "key" => seen.bytes(1, scanner, &mut request.key)?,
            "range_end" | "rangeEnd" => seen.bytes(2, scanner, &mut request.range_end)?,
            "start_revision" | "startRevision" => seen.int64(3, scanner, &mut request.start_revision)?,
            "progress_notify" | "progressNotify" => seen.bool(4, scanner, &mut request.progress_notify)?,
            "filters" => {
                if seen.field(5, scanner)? {
                    scanner.array(|scanner| {
                        let number_of = |name: &str| Some(FilterType::from_str_name(name)?.into());
                        request.filters.extend(scanner.enumeration(number_of)?);
                        Ok(())
                    })?;
                }
            }
            "prev_kv" | "prevKv" => seen.bool(6, scanner, &mut request.prev_kv)?,
            "watch_id" | "watchId" => seen.int64(7, scanner, &mut request.watch_id)?,
            "fragment" => seen.bool(8, scanner, &mut request.fragment)?,
            _ => scanner.skip_value()?,
        }
        Ok(())
    })?;
    Ok(request)
}

fn watch_cancel_request(scanner: &mut Scanner<'_>) -> Result<pb::WatchCancelRequest, JsonError> {
    let mut request = pb::WatchCancelRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| match name {
        "watch_id" | "watchId" => seen.int64(1, scanner, &mut request.watch_id),
        _ => scanner.skip_value(),
    })?;
    Ok(request)
}

fn keep_alive_request(scanner: &mut Scanner<'_>) -> Result<pb::LeaseKeepAliveRequest, JsonError> {
    let mut request = pb::LeaseKeepAliveRequest::default();
    let mut seen = Seen::default();
    scanner.object(|scanner, name| match name {
        "ID" => seen.int64(1, scanner, &mut request.id),
        _ => scanner.skip_value(),
    })?;
    Ok(request)
}

impl Seen {
    fn bytes(&mut self, number: u32, scanner: &mut Scanner<'_>, target: &mut Bytes) -> Result<(), JsonError> {
        if self.field(number, scanner)? {
            *target = scanner.bytes()?;
        }
        Ok(())
    }

    fn string(&mut self, number: u32, scanner: &mut Scanner<'_>, target: &mut String) -> Result<(), JsonError> {
        if self.field(number, scanner)? {
            *target = scanner.string()?.into_owned();
        }
        Ok(())
    }

    fn int64(&mut self, number: u32, scanner: &mut Scanner<'_>, target: &mut i64) -> Result<(), JsonError> {
        if self.field(number, scanner)? {
            *target = scanner.int64()?;
        }
        Ok(())
    }

    fn bool(&mut self, number: u32, scanner: &mut Scanner<'_>, target: &mut bool) -> Result<(), JsonError> {
        if self.field(number, scanner)? {
            *target = scanner.bool()?;
        }
        Ok(())
    }

    fn enumeration(
        &mut self,
        number: u32,
        scanner: &mut Scanner<'_>,
        number_of: fn(&str) -> Option<i32>,
        target: &mut i32,
    ) -> Result<(), JsonError> {
        if self.field(number, scanner)?
            && let Some(known) = scanner.enumeration(number_of)?
        {
            *target = known;
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        number: u32,
        scanner: &mut Scanner<'_>,
        read: ReadMessage<T>,
        target: &mut Vec<T>,
    ) -> Result<(), JsonError> {
        if self.field(number, scanner)? {
            scanner.array(|scanner| {
                target.push(read(scanner)?);
                Ok(())
            })?;
        }
        Ok(())
    }
}
