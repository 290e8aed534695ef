//! Unary calls: JSON text in, JSON text or an error out, whatever carried the text.

use prost_reflect::prost::{Message, Name};

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
    service::{Caller, RangeAnswer, Services, read_error},
};

/// Pairs asked of a cursor at a time, so that the size of the answer so far is looked at often enough.
const RANGE_STEP_KEYS: usize = 64;
/// An answer that is bigger than either of these is finished on a thread where it keeps nobody waiting.
const RANGE_INLINE_KEYS_MAX: usize = 1_000;
const RANGE_INLINE_BYTES_MAX: usize = 256 * 1024;
/// Room for an answer without pairs or values.
const SMALL_ANSWER_BYTES: usize = 256;

/// Calls `method` with the request in `body`, in `caller`'s name, and returns the answer's JSON.
pub(super) async fn call(
    services: &Services,
    limits: &Limits,
    method: Method,
    caller: &Caller,
    body: &[u8],
) -> Result<Vec<u8>, ApiError> {
    let Services { kv, lease, cluster, maintenance, auth, .. } = services;
    match method {
        Method::Range => {
            let request = read::range(body)?;
            limits.check_message(body, &request)?;
            range(services, caller, request).await
        }
        Method::Put => {
            let request = read::put(body)?;
            limits.check_message(body, &request)?;
            Ok(written(write::put, &kv.put(caller, request).await?))
        }
        Method::DeleteRange => {
            let request = read::delete_range(body)?;
            limits.check_message(body, &request)?;
            Ok(written(write::delete_range, &kv.delete_range(caller, request).await?))
        }
        Method::Txn => {
            let request = read::txn(body)?;
            limits.check_message(body, &request)?;
            Ok(written(write::txn, &kv.txn(caller, request).await?))
        }
        Method::LeaseKeepAlive => {
            let request = read::keep_alive(body)?;
            Ok(written(write::keep_alive, &lease.keep_alive(caller, request).await?))
        }
        Method::Compact => by_schema(body, async |request| kv.compact(caller, request).await).await,
        Method::LeaseGrant => by_schema(body, async |request| lease.grant(caller, request).await).await,
        Method::LeaseRevoke => by_schema(body, async |request| lease.revoke(caller, request).await).await,
        Method::LeaseTimeToLive => by_schema(body, async |request| lease.time_to_live(caller, request).await).await,
        Method::LeaseLeases => by_schema(body, async |request| lease.leases(caller, request).await).await,
        Method::MemberList => by_schema(body, async |request| cluster.member_list(caller, request).await).await,
        Method::MemberAdd => by_schema(body, async |request| cluster.member_add(caller, request).await).await,
        Method::MemberUpdate => by_schema(body, async |request| cluster.member_update(caller, request).await).await,
        Method::MemberRemove => by_schema(body, async |request| cluster.member_remove(caller, request).await).await,
        Method::MemberPromote => by_schema(body, async |request| cluster.member_promote(caller, request).await).await,
        Method::Status => by_schema(body, async |request| maintenance.status(caller, request).await).await,
        Method::Alarm => by_schema(body, async |request| maintenance.alarm(caller, request).await).await,
        Method::AuthEnable => by_schema(body, async |request| auth.enable(caller, request).await).await,
        Method::AuthDisable => by_schema(body, async |request| auth.disable(caller, request).await).await,
        Method::AuthStatus => by_schema(body, async |request| auth.status(caller, request).await).await,
        Method::Authenticate => by_schema(body, async |request| auth.authenticate(request).await).await,
        Method::UserAdd => by_schema(body, async |request| auth.user_add(caller, request).await).await,
        Method::UserGet => by_schema(body, async |request| auth.user_get(caller, request).await).await,
        Method::UserList => by_schema(body, async |request| auth.user_list(caller, request).await).await,
        Method::UserDelete => by_schema(body, async |request| auth.user_delete(caller, request).await).await,
        Method::UserChangePassword => {
            by_schema(body, async |request| auth.user_change_password(caller, request).await).await
        }
        Method::UserGrantRole => by_schema(body, async |request| auth.user_grant_role(caller, request).await).await,
        Method::UserRevokeRole => by_schema(body, async |request| auth.user_revoke_role(caller, request).await).await,
        Method::RoleAdd => by_schema(body, async |request| auth.role_add(caller, request).await).await,
        Method::RoleGet => by_schema(body, async |request| auth.role_get(caller, request).await).await,
        Method::RoleList => by_schema(body, async |request| auth.role_list(caller, request).await).await,
        Method::RoleDelete => by_schema(body, async |request| auth.role_delete(caller, request).await).await,
        Method::RoleGrantPermission => {
            by_schema(body, async |request| auth.role_grant_permission(caller, request).await).await
        }
        Method::RoleRevokePermission => {
            by_schema(body, async |request| auth.role_revoke_permission(caller, request).await).await
        }
        Method::Defragment => by_schema(body, async |request| maintenance.defragment(caller, request).await).await,
        Method::Hash => by_schema(body, async |request| maintenance.hash(caller, request).await).await,
        Method::HashKv => by_schema(body, async |request| maintenance.hash_kv(caller, request).await).await,
        Method::MoveLeader => by_schema(body, async |request| maintenance.move_leader(caller, request).await).await,
        Method::Downgrade => by_schema(body, async |request| maintenance.downgrade(caller, request).await).await,
        Method::Watch | Method::Snapshot => Err(ApiError::Internal("a stream is no unary call".into())),
    }
}

/// A call whose messages have no reader and writer of their own.
async fn by_schema<Asked, Answer>(
    body: &[u8],
    call: impl AsyncFnOnce(Asked) -> Result<Answer, ApiError>,
) -> Result<Vec<u8>, ApiError>
where
    Asked: Message + Name + Default,
    Answer: Message + Name,
{
    let answer = call(generic::read(body)?).await?;
    let mut out = Vec::with_capacity(SMALL_ANSWER_BYTES);
    generic::write(&answer, &mut out)?;
    Ok(out)
}

fn written<Answer>(write: fn(&mut Vec<u8>, &Answer), answer: &Answer) -> Vec<u8> {
    let mut out = Vec::with_capacity(SMALL_ANSWER_BYTES);
    write(&mut out, answer);
    out
}

async fn range(services: &Services, caller: &Caller, request: pb::RangeRequest) -> Result<Vec<u8>, ApiError> {
    let RangeAnswer { header, mut cursor } = services.kv.range(caller, request).await?;
    let mut writer = RangeWriter::begin(Some(&header), SMALL_ANSWER_BYTES);
    let mut keys = 0;
    while keys < RANGE_INLINE_KEYS_MAX && writer.len() < RANGE_INLINE_BYTES_MAX {
        if !range_step(&mut cursor, &mut writer)? {
            let (more, count) = cursor.more_and_count();
            return Ok(writer.end(more, count));
        }
        keys += RANGE_STEP_KEYS;
    }
    let rest = tokio::task::spawn_blocking(move || {
        while range_step(&mut cursor, &mut writer)? {}
        let (more, count) = cursor.more_and_count();
        Ok(writer.end(more, count))
    });
    rest.await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
}

fn range_step(cursor: &mut RangeCursor, writer: &mut RangeWriter) -> Result<bool, ApiError> {
    cursor.next_chunk(RANGE_STEP_KEYS, &mut |kv| writer.pair(kv)).map_err(read_error)
}
