//! Unary calls: JSON text in, JSON text or an error out, whatever carried the text. Only a range's answer may be so big
//! that its text is made as it is sent.

use prost_reflect::prost::{Message, Name};
use tokio::task::spawn_blocking;

use super::{
    json::{generic, read, write},
    limits::Limits,
    range::{Answer, RangeBody},
    record::Record,
    routes::Method,
};
use crate::{
    error::ApiError,
    service::{Caller, Services},
};

/// An answer that is bigger than this is finished on a thread where it keeps nobody waiting.
const INLINE_BYTES_MAX: usize = 256 * 1024;
/// Room for an answer without pairs or values.
const SMALL_ANSWER_BYTES: usize = 256;

/// Calls `method` with the request in `body`, in `caller`'s name, and returns the answer's JSON.
pub(super) async fn call(
    services: &Services,
    limits: &Limits,
    method: Method,
    caller: &Caller,
    body: &[u8],
    record: &mut Record<'_>,
) -> Result<Answer, ApiError> {
    if method == Method::Range {
        let request = read::range(body)?;
        limits.check_message(body, &request)?;
        record.parsed();
        record.range(&request);
        let answer = services.kv.range(caller, request).await?;
        record.executed();
        record.answered_at(Some(&answer.header));
        return RangeBody::begin(answer, record).await;
    }
    whole(services, limits, method, caller, body, record).await.map(Answer::Whole)
}

async fn whole(
    services: &Services,
    limits: &Limits,
    method: Method,
    caller: &Caller,
    body: &[u8],
    record: &mut Record<'_>,
) -> Result<Vec<u8>, ApiError> {
    let Services { kv, lease, cluster, maintenance, auth, lock, election, .. } = services;
    match method {
        Method::Put => {
            let request = read::put(body)?;
            limits.check_message(body, &request)?;
            record.parsed();
            record.put(&request);
            let answer = kv.put(caller, request).await?;
            record.executed();
            record.answered_at(answer.header.as_ref());
            written(answer, write::put).await
        }
        Method::DeleteRange => {
            let request = read::delete_range(body)?;
            limits.check_message(body, &request)?;
            record.parsed();
            record.delete_range(&request);
            let answer = kv.delete_range(caller, request).await?;
            record.executed();
            record.answered_at(answer.header.as_ref());
            written(answer, write::delete_range).await
        }
        Method::Txn => {
            let request = read::txn(body)?;
            limits.check_message(body, &request)?;
            record.parsed();
            record.txn(&request);
            let answer = kv.txn(caller, request).await?;
            record.executed();
            record.answered_at(answer.header.as_ref());
            written(answer, write::txn).await
        }
        Method::LeaseKeepAlive => {
            let request = read::keep_alive(body)?;
            record.parsed();
            let answer = lease.keep_alive(caller, request).await?;
            record.executed();
            written(answer, write::keep_alive).await
        }
        Method::Compact => by_schema(body, record, async |request| kv.compact(caller, request).await).await,
        Method::LeaseGrant => by_schema(body, record, async |request| lease.grant(caller, request).await).await,
        Method::LeaseRevoke => by_schema(body, record, async |request| lease.revoke(caller, request).await).await,
        Method::LeaseTimeToLive => {
            by_schema(body, record, async |request| lease.time_to_live(caller, request).await).await
        }
        Method::LeaseLeases => by_schema(body, record, async |request| lease.leases(caller, request).await).await,
        Method::MemberList => by_schema(body, record, async |request| cluster.member_list(caller, request).await).await,
        Method::MemberAdd => by_schema(body, record, async |request| cluster.member_add(caller, request).await).await,
        Method::MemberUpdate => {
            by_schema(body, record, async |request| cluster.member_update(caller, request).await).await
        }
        Method::MemberRemove => {
            by_schema(body, record, async |request| cluster.member_remove(caller, request).await).await
        }
        Method::MemberPromote => {
            by_schema(body, record, async |request| cluster.member_promote(caller, request).await).await
        }
        Method::Status => by_schema(body, record, async |request| maintenance.status(caller, request).await).await,
        Method::Alarm => by_schema(body, record, async |request| maintenance.alarm(caller, request).await).await,
        Method::AuthEnable => by_schema(body, record, async |request| auth.enable(caller, request).await).await,
        Method::AuthDisable => by_schema(body, record, async |request| auth.disable(caller, request).await).await,
        Method::AuthStatus => by_schema(body, record, async |request| auth.status(caller, request).await).await,
        Method::Authenticate => by_schema(body, record, async |request| auth.authenticate(request).await).await,
        Method::UserAdd => by_schema(body, record, async |request| auth.user_add(caller, request).await).await,
        Method::UserGet => by_schema(body, record, async |request| auth.user_get(caller, request).await).await,
        Method::UserList => by_schema(body, record, async |request| auth.user_list(caller, request).await).await,
        Method::UserDelete => by_schema(body, record, async |request| auth.user_delete(caller, request).await).await,
        Method::UserChangePassword => {
            by_schema(body, record, async |request| auth.user_change_password(caller, request).await).await
        }
        Method::UserGrantRole => {
            by_schema(body, record, async |request| auth.user_grant_role(caller, request).await).await
        }
        Method::UserRevokeRole => {
            by_schema(body, record, async |request| auth.user_revoke_role(caller, request).await).await
        }
        Method::RoleAdd => by_schema(body, record, async |request| auth.role_add(caller, request).await).await,
        Method::RoleGet => by_schema(body, record, async |request| auth.role_get(caller, request).await).await,
        Method::RoleList => by_schema(body, record, async |request| auth.role_list(caller, request).await).await,
        Method::RoleDelete => by_schema(body, record, async |request| auth.role_delete(caller, request).await).await,
        Method::RoleGrantPermission => {
            by_schema(body, record, async |request| auth.role_grant_permission(caller, request).await).await
        }
        Method::RoleRevokePermission => {
            by_schema(body, record, async |request| auth.role_revoke_permission(caller, request).await).await
        }
        Method::Defragment => {
            by_schema(body, record, async |request| maintenance.defragment(caller, request).await).await
        }
        Method::Hash => by_schema(body, record, async |request| maintenance.hash(caller, request).await).await,
        Method::HashKv => by_schema(body, record, async |request| maintenance.hash_kv(caller, request).await).await,
        Method::MoveLeader => {
            by_schema(body, record, async |request| maintenance.move_leader(caller, request).await).await
        }
        Method::Downgrade => {
            by_schema(body, record, async |request| maintenance.downgrade(caller, request).await).await
        }
        Method::Lock => by_schema(body, record, async |request| lock.lock(caller, request).await).await,
        Method::Unlock => by_schema(body, record, async |request| lock.unlock(caller, request).await).await,
        Method::Campaign => by_schema(body, record, async |request| election.campaign(caller, request).await).await,
        Method::Proclaim => by_schema(body, record, async |request| election.proclaim(caller, request).await).await,
        Method::Leader => by_schema(body, record, async |request| election.leader(caller, request).await).await,
        Method::Resign => by_schema(body, record, async |request| election.resign(caller, request).await).await,
        Method::Range | Method::Watch | Method::Observe | Method::Snapshot => {
            Err(ApiError::Internal("a stream is no unary call".into()))
        }
    }
}

/// A call whose messages have no reader and writer of their own.
async fn by_schema<Asked, Answer>(
    body: &[u8],
    record: &mut Record<'_>,
    call: impl AsyncFnOnce(Asked) -> Result<Answer, ApiError>,
) -> Result<Vec<u8>, ApiError>
where
    Asked: Message + Name + Default,
    Answer: Message + Name,
{
    let request = generic::read(body)?;
    record.parsed();
    // In a box: the future of a call is moved with each request, and these are seldom made.
    let answer = Box::pin(call(request)).await?;
    record.executed();
    let mut out = Vec::with_capacity(SMALL_ANSWER_BYTES);
    generic::write(&answer, &mut out)?;
    Ok(out)
}

/// The JSON of an answer that may be big.
async fn written<Answer: Message + 'static>(
    answer: Answer,
    write: fn(&mut Vec<u8>, &Answer),
) -> Result<Vec<u8>, ApiError> {
    let is_big = answer.encoded_len() > INLINE_BYTES_MAX;
    let write = move || {
        let mut out = Vec::with_capacity(SMALL_ANSWER_BYTES);
        write(&mut out, &answer);
        Ok(out)
    };
    if is_big { elsewhere(write).await } else { write() }
}

/// Writes an answer on a thread where it keeps nobody waiting.
async fn elsewhere(write: impl FnOnce() -> Result<Vec<u8>, ApiError> + Send + 'static) -> Result<Vec<u8>, ApiError> {
    spawn_blocking(write).await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
}
