//! Unary calls: JSON text in, JSON text or an error out, whatever carried the text.

use prost::Message;
use tokio::task::spawn_blocking;

use super::{
    json::{
        generic, read,
        write::{self, RangeWriter},
    },
    limits::Limits,
    routes::Method,
};
use crate::{
    error::ApiError,
    mvcc::RangeCursor,
    proto::etcdserverpb as pb,
    service::{RangeAnswer, Services, read_error},
};

/// Pairs asked of a cursor at a time, so that the size of the answer so far is looked at often enough.
const RANGE_STEP_KEYS: usize = 64;
/// An answer that is bigger than this is finished on a thread where it keeps nobody waiting.
const INLINE_BYTES_MAX: usize = 256 * 1024;
/// Room for an answer without pairs or values.
const SMALL_ANSWER_BYTES: usize = 256;

/// Calls `method` with the request in `body` and returns the answer's JSON.
pub(super) async fn call(
    services: &Services,
    limits: &Limits,
    method: Method,
    body: &[u8],
) -> Result<Vec<u8>, ApiError> {
    let mut out = Vec::new();
    match method {
        Method::Range => {
            let request = read::range(body)?;
            limits.check_message(body, &request)?;
            return range(services, request).await;
        }
        Method::Put => {
            let request = read::put(body)?;
            limits.check_message(body, &request)?;
            let response = services.kv.put(request).await?;
            out.reserve(SMALL_ANSWER_BYTES);
            write::put(&mut out, &response);
        }
        Method::DeleteRange => {
            let request = read::delete_range(body)?;
            limits.check_message(body, &request)?;
            let response = services.kv.delete_range(request).await?;
            return written(response, write::delete_range).await;
        }
        Method::Txn => {
            let request = read::txn(body)?;
            limits.check_message(body, &request)?;
            let response = services.kv.txn(request).await?;
            return written(response, write::txn).await;
        }
        Method::Compact => {
            let request: pb::CompactionRequest = generic::read("etcdserverpb.CompactionRequest", body)?;
            let response = services.kv.compact(request).await?;
            generic::write("etcdserverpb.CompactionResponse", &response, &mut out)?;
        }
        Method::LeaseGrant => {
            let request: pb::LeaseGrantRequest = generic::read("etcdserverpb.LeaseGrantRequest", body)?;
            let response = services.lease.grant(request).await?;
            generic::write("etcdserverpb.LeaseGrantResponse", &response, &mut out)?;
        }
        Method::LeaseRevoke => {
            let request: pb::LeaseRevokeRequest = generic::read("etcdserverpb.LeaseRevokeRequest", body)?;
            let response = services.lease.revoke(request).await?;
            generic::write("etcdserverpb.LeaseRevokeResponse", &response, &mut out)?;
        }
        Method::LeaseTimeToLive => {
            let request: pb::LeaseTimeToLiveRequest = generic::read("etcdserverpb.LeaseTimeToLiveRequest", body)?;
            let response = services.lease.time_to_live(request).await?;
            generic::write("etcdserverpb.LeaseTimeToLiveResponse", &response, &mut out)?;
        }
        Method::LeaseLeases => {
            let request: pb::LeaseLeasesRequest = generic::read("etcdserverpb.LeaseLeasesRequest", body)?;
            let response = services.lease.leases(request).await?;
            generic::write("etcdserverpb.LeaseLeasesResponse", &response, &mut out)?;
        }
        Method::MemberList => {
            let request: pb::MemberListRequest = generic::read("etcdserverpb.MemberListRequest", body)?;
            let response = services.cluster.member_list(request).await?;
            generic::write("etcdserverpb.MemberListResponse", &response, &mut out)?;
        }
        Method::Status => {
            let request: pb::StatusRequest = generic::read("etcdserverpb.StatusRequest", body)?;
            let response = services.maintenance.status(request).await?;
            generic::write("etcdserverpb.StatusResponse", &response, &mut out)?;
        }
        Method::Alarm => {
            let request: pb::AlarmRequest = generic::read("etcdserverpb.AlarmRequest", body)?;
            let response = services.maintenance.alarm(request).await?;
            generic::write("etcdserverpb.AlarmResponse", &response, &mut out)?;
        }
        Method::LeaseKeepAlive => {
            let response = services.lease.keep_alive(read::keep_alive(body)?).await?;
            out.reserve(SMALL_ANSWER_BYTES);
            write::keep_alive(&mut out, &response);
        }
        Method::Watch => return Err(ApiError::Internal("a watch is no unary call".into())),
    }
    Ok(out)
}

/// The JSON of an answer that may be big.
async fn written<T: Message + 'static>(response: T, write: fn(&mut Vec<u8>, &T)) -> Result<Vec<u8>, ApiError> {
    let is_big = response.encoded_len() > INLINE_BYTES_MAX;
    let write = move || {
        let mut out = Vec::with_capacity(SMALL_ANSWER_BYTES);
        write(&mut out, &response);
        Ok(out)
    };
    if is_big { elsewhere(write).await } else { write() }
}

async fn range(services: &Services, request: pb::RangeRequest) -> Result<Vec<u8>, ApiError> {
    let RangeAnswer { header, mut cursor, is_long } = services.kv.range(request).await?;
    let mut writer = RangeWriter::begin(Some(&header), SMALL_ANSWER_BYTES);
    while !is_long && writer.len() < INLINE_BYTES_MAX {
        if !range_step(&mut cursor, &mut writer)? {
            let (more, count) = cursor.more_and_count();
            return Ok(writer.end(more, count));
        }
    }
    elsewhere(move || {
        while range_step(&mut cursor, &mut writer)? {}
        let (more, count) = cursor.more_and_count();
        Ok(writer.end(more, count))
    })
    .await
}

/// Writes an answer on a thread where it keeps nobody waiting.
async fn elsewhere(write: impl FnOnce() -> Result<Vec<u8>, ApiError> + Send + 'static) -> Result<Vec<u8>, ApiError> {
    spawn_blocking(write).await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
}

fn range_step(cursor: &mut RangeCursor, writer: &mut RangeWriter) -> Result<bool, ApiError> {
    cursor.next_chunk(RANGE_STEP_KEYS, &mut |kv| writer.pair(kv)).map_err(read_error)
}
