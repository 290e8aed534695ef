//! Doors for the program that counts instructions, and only for it: the readers and writers of hot messages.

use super::json::{
    read,
    write::{self, RangeWriter},
};
use crate::{
    error::ApiError,
    mvcc::KeyValueRef,
    proto::{etcdserverpb as pb, mvccpb},
};

/// Reads a put.
///
/// # Errors
/// Text that is none.
pub fn read_put(text: &[u8]) -> Result<pb::PutRequest, ApiError> {
    read::put(text)
}

/// Reads a range.
///
/// # Errors
/// Text that is none.
pub fn read_range(text: &[u8]) -> Result<pb::RangeRequest, ApiError> {
    read::range(text)
}

/// Reads a txn.
///
/// # Errors
/// Text that is none.
pub fn read_txn(text: &[u8]) -> Result<pb::TxnRequest, ApiError> {
    read::txn(text)
}

/// Writes the answer of a range, pair by pair, as the front does.
pub fn write_range<'a>(header: &pb::ResponseHeader, pairs: impl ExactSizeIterator<Item = KeyValueRef<'a>>) -> Vec<u8> {
    let count = i64::try_from(pairs.len()).unwrap_or(i64::MAX);
    let mut writer = RangeWriter::begin(Some(header), 0);
    pairs.for_each(|pair| writer.pair(pair));
    writer.end(false, count, "")
}

/// Writes a watch's answer with one event in it.
pub fn write_event(response: &pb::WatchResponse, kv: &mvccpb::KeyValue) -> Vec<u8> {
    let (mut event, mut out) = (Vec::new(), Vec::new());
    write::event(&mut event, false, Some(kv), None);
    write::watch_events(&mut out, response, std::iter::once(event.as_slice()));
    out
}
