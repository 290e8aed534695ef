//! Waiting for a turn: what locks and elections have in common.
//!
//! Who wants a turn puts a key `<name>/<lease in hex>`, which lives with its lease; the oldest key has the turn. Everybody
//! else waits, by a watch, for the deletion of the next older key, so that the end of a turn wakes one waiter and not all.
//! Better than the original: a waiter whose own key goes (its lease ran out) is told at once, and a lease that was granted
//! for a client that went away is taken back.
//!
//! A wait has no limit but its client: it ends when the client goes, when its deadline passes, or when the member does.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
};

use bytes::Bytes;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    error::ApiError,
    proto::{
        etcdserverpb::{
            self as pb, Compare,
            compare::{CompareResult, CompareTarget, TargetUnion},
            range_request::{SortOrder, SortTarget},
            request_op::Request as Op,
            response_op::Response as Outcome,
            watch_create_request::FilterType,
            watch_request::RequestUnion,
        },
        mvccpb::KeyValue,
        revgatepb::internal_raft_request::Request,
    },
    watch::Event,
};

use super::{Caller, Core, KvService, LeaseService, WatchOutput, WatchService, WatchSession, kv::read_error};

/// TTL of the lease a client gets that brings none, in seconds. Nobody renews it: the turn ends with it.
const SESSION_TTL_SECS: i64 = 60;

/// Gives and takes turns. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    core: Core,
    kv: KvService,
    lease: LeaseService,
    watch: WatchService,
    /// Waits that go on, or give back what their clients left.
    waits: TaskTracker,
}

/// A lease under which a key is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) lease: i64,
    /// Whether it was granted here, for a client that brought none.
    granted: bool,
}

/// A place in the line.
#[derive(Debug)]
pub(super) struct Turn {
    caller: Caller,
    prefix: Bytes,
    pub(super) key: Bytes,
    pub(super) session: Session,
    pub(super) create_revision: i64,
    /// Of the txn that took the place.
    pub(super) header: Option<pb::ResponseHeader>,
    /// The place was there already, with this value: the client asks again.
    pub(super) found: Option<Bytes>,
}

impl Turns {
    pub(super) fn new(
        core: Core,
        kv: KvService,
        lease: LeaseService,
        watch: WatchService,
        waits: TaskTracker,
    ) -> Turns {
        Turns { core, kv, lease, watch, waits }
    }

    /// Runs a request that may wait, on a task of its own: when the client goes, the token tells the request, which then
    /// gives back what it has taken.
    pub(super) async fn attended<Answer, Work>(
        &self,
        work: impl FnOnce(CancellationToken) -> Work,
    ) -> Result<Answer, ApiError>
    where
        Answer: Send + 'static,
        Work: Future<Output = Result<Answer, ApiError>> + Send + 'static,
    {
        let gone = CancellationToken::new();
        let task = self.waits.spawn(work(gone.clone()));
        let _attending = gone.drop_guard();
        task.await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
    }

    /// The client's lease, or one of [`SESSION_TTL_SECS`] for a client that brings none.
    pub(super) async fn session(&self, caller: &Caller, lease: i64) -> Result<Session, ApiError> {
        if lease != 0 {
            return Ok(Session { lease, granted: false });
        }
        let request = pb::LeaseGrantRequest { id: 0, ttl: SESSION_TTL_SECS };
        let granted = self.lease.grant(caller, request).await?;
        Ok(Session { lease: granted.id, granted: true })
    }

    /// Takes back a lease that was granted here.
    pub(super) async fn end_session(&self, session: Session) {
        if session.granted {
            let revoke = Request::LeaseRevoke(pb::LeaseRevokeRequest { id: session.lease });
            log_left_behind(session, self.core.propose_own(revoke).await.err());
        }
    }

    /// Takes a place in the line of `name`, or finds the one that is there under the same lease.
    pub(super) async fn join(&self, caller: &Caller, name: &[u8], lease: i64, value: Bytes) -> Result<Turn, ApiError> {
        let session = self.session(caller, lease).await?;
        let joined = self.take_place(caller, name, session, value).await;
        if joined.is_err() {
            self.end_session(session).await;
        }
        joined
    }

    async fn take_place(&self, caller: &Caller, name: &[u8], session: Session, value: Bytes) -> Result<Turn, ApiError> {
        let prefix = prefix_of(name);
        let key = Bytes::from([&prefix, hex(session.lease).as_bytes()].concat());
        let put = pb::PutRequest { key: key.clone(), value, lease: session.lease, ..Default::default() };
        let get = pb::RangeRequest { key: key.clone(), ..Default::default() };
        let txn = pb::TxnRequest {
            compare: vec![created_at(&key, 0)],
            success: vec![op(Op::RequestPut(put))],
            failure: vec![op(Op::RequestRange(get))],
        };
        let answer = self.kv.txn(caller, txn).await?;
        let found = answer.responses.into_iter().next().and_then(|outcome| match outcome.response {
            Some(Outcome::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        Ok(Turn {
            caller: caller.clone(),
            prefix,
            key,
            session,
            create_revision: found.as_ref().map_or(revision, |pair| pair.create_revision),
            header: answer.header,
            found: found.map(|pair| pair.value),
        })
    }

    /// Waits until the turn has come. The header tells when that was seen; `None`: it had come before there was a wait.
    /// Fails with `expired` when the key goes first.
    pub(super) async fn wait(
        &self,
        turn: &Turn,
        gone: &CancellationToken,
        expired: ApiError,
    ) -> Result<Option<pb::ResponseHeader>, ApiError> {
        let mut has_waited = false;
        loop {
            let own = pb::RangeRequest { key: turn.key.clone(), serializable: true, ..Default::default() };
            let (header, pair) = self.first(&turn.caller, own).await?;
            if pair.is_none_or(|pair| pair.create_revision != turn.create_revision) {
                return Err(expired);
            }
            let Some(older) = self.next_older(turn).await? else {
                // A turn that comes to nobody would be nobody's to end.
                return if gone.is_cancelled() { Err(ApiError::Canceled) } else { Ok(has_waited.then_some(header)) };
            };
            let deletions = [&turn.key, &older.key].map(|key| deletion_of(key, header.revision + 1));
            let mut deletions = self.watch(&turn.caller, deletions);
            tokio::select! {
                // Deletions, or a gap in which there may have been one: both are worth another look.
                deleted = deletions.next() => drop(deleted?),
                () = gone.cancelled() => return Err(ApiError::Canceled),
            }
            has_waited = true;
        }
    }

    /// Gives a place back that has not become a turn. One that was found is another request's to give back. This is the
    /// member's own doing: a client's token may have run out while it waited.
    pub(super) async fn leave(&self, turn: Turn) {
        if turn.session.granted {
            self.end_session(turn.session).await;
        } else if turn.found.is_none() {
            let delete = Request::Txn(deletion(turn.key, turn.create_revision));
            log_left_behind(turn.session, self.core.propose_own(delete).await.err());
        }
    }

    /// Deletes a key if it is still the one that was created at a revision.
    pub(super) async fn delete_created_at(
        &self,
        caller: &Caller,
        key: Bytes,
        create_revision: i64,
    ) -> Result<pb::TxnResponse, ApiError> {
        self.kv.txn(caller, deletion(key, create_revision)).await
    }

    /// Puts a value to a key if it is still the one that was created at a revision.
    pub(super) async fn put_created_at(
        &self,
        caller: &Caller,
        put: pb::PutRequest,
        create_revision: i64,
    ) -> Result<pb::TxnResponse, ApiError> {
        let compare = vec![created_at(&put.key, create_revision)];
        let success = vec![op(Op::RequestPut(put))];
        self.kv.txn(caller, pb::TxnRequest { compare, success, failure: Vec::new() }).await
    }

    /// Watches in a client's name.
    pub(super) fn watch(&self, caller: &Caller, requests: impl IntoIterator<Item = pb::WatchCreateRequest>) -> Changes {
        let mut session = self.watch.open(caller.clone(), false, None);
        for create in requests {
            session.handle(pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        }
        Changes { session }
    }

    async fn next_older(&self, turn: &Turn) -> Result<Option<KeyValue>, ApiError> {
        let request = pb::RangeRequest {
            sort_order: SortOrder::Descend.into(),
            max_create_revision: turn.create_revision - 1,
            // This member has applied the txn that took the place: what is older is here too.
            serializable: true,
            ..by_age(&turn.prefix)
        };
        // The oldest revision is 1: nobody can be before it, and 0 would mean that there is no limit.
        if request.max_create_revision <= 0 {
            return Ok(None);
        }
        self.first(&turn.caller, request).await.map(|(_, pair)| pair)
    }

    /// Whose turn it is in the line with `prefix`.
    pub(super) async fn oldest(
        &self,
        caller: &Caller,
        prefix: &[u8],
    ) -> Result<(pb::ResponseHeader, Option<KeyValue>), ApiError> {
        self.first(caller, pb::RangeRequest { sort_order: SortOrder::Ascend.into(), ..by_age(prefix) }).await
    }

    async fn first(
        &self,
        caller: &Caller,
        request: pb::RangeRequest,
    ) -> Result<(pb::ResponseHeader, Option<KeyValue>), ApiError> {
        let mut answer = self.kv.range(caller, request).await?;
        let mut first = None;
        answer
            .cursor
            .next_chunk(1, &mut |pair| first = first.take().or_else(|| Some(pair.to_owned())))
            .map_err(read_error)?;
        Ok((answer.header, first))
    }
}

/// The keys of a line.
pub(super) fn prefix_of(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// The end of the range of a prefix that ends with `/`.
fn end_of(prefix: &[u8]) -> Bytes {
    // The byte after `/` is `0`: no carry.
    [prefix.strip_suffix(b"/").unwrap_or(prefix), b"0"].concat().into()
}

fn by_age(prefix: &[u8]) -> pb::RangeRequest {
    pb::RangeRequest {
        key: Bytes::copy_from_slice(prefix),
        range_end: end_of(prefix),
        limit: 1,
        sort_target: SortTarget::Create.into(),
        ..Default::default()
    }
}

/// Deletes a key if it is still the one that was created at a revision.
fn deletion(key: Bytes, create_revision: i64) -> pb::TxnRequest {
    let compare = vec![created_at(&key, create_revision)];
    let delete = pb::DeleteRangeRequest { key, ..Default::default() };
    pb::TxnRequest { compare, success: vec![op(Op::RequestDeleteRange(delete))], failure: Vec::new() }
}

fn created_at(key: &Bytes, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
    }
}

fn op(request: Op) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

/// A lease's number as it stands in keys: a sign and digits.
fn hex(lease: i64) -> String {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{sign}{:x}", lease.unsigned_abs())
}

fn log_left_behind(session: Session, error: Option<ApiError>) {
    match error {
        // It ran out, or its client was faster.
        None | Some(ApiError::LeaseNotFound) => {}
        Some(error) => {
            tracing::warn!(lease = session.lease, %error, "a key waits for its lease's end: its client is gone")
        }
    }
}

/// Changes of keys, watched in a client's name: what it may not see, it is not told.
pub(super) struct Changes {
    session: WatchSession,
}

impl Changes {
    /// The next changes; `None`: some are lost, history no longer tells of them. [`ApiError::Stopped`] when the member is
    /// going down.
    pub(super) async fn next(&mut self) -> Result<Option<(pb::ResponseHeader, Vec<Arc<Event>>)>, ApiError> {
        loop {
            match poll_fn(|context| self.session.poll_next(context)).await {
                None => return Err(self.session.failure().unwrap_or(ApiError::Stopped)),
                Some(WatchOutput::Events { header, events, .. }) => return Ok(Some((header, events.to_vec()))),
                Some(WatchOutput::Control(told)) if told.canceled && told.compact_revision != 0 => return Ok(None),
                Some(WatchOutput::Control(told)) if told.canceled => {
                    return Err(ApiError::WatchRefused(told.cancel_reason));
                }
                Some(WatchOutput::Control(_)) => {}
            }
        }
    }
}

/// A watch for the deletion of a key.
fn deletion_of(key: &Bytes, start_revision: i64) -> pb::WatchCreateRequest {
    let filters = vec![FilterType::Noput.into()];
    pb::WatchCreateRequest { key: key.clone(), start_revision, filters, ..Default::default() }
}

/// A watch for every change of a key.
pub(super) fn changes_of(key: Bytes, start_revision: i64) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key, start_revision, ..Default::default() }
}

/// A watch for whoever joins a line.
pub(super) fn comers_to(prefix: &Bytes, start_revision: i64) -> pb::WatchCreateRequest {
    let filters = vec![FilterType::Nodelete.into()];
    pb::WatchCreateRequest {
        key: prefix.clone(),
        range_end: end_of(prefix),
        start_revision,
        filters,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_with_the_lease_as_go_writes_it() {
        assert_eq!(hex(0x1b4a_22c7_0798_9003), "1b4a22c707989003");
        assert_eq!(hex(17), "11");
        assert_eq!(hex(-5), "-5");
        assert_eq!(hex(i64::MIN), "-8000000000000000");
    }

    #[test]
    fn a_line_is_everything_below_its_name() {
        assert_eq!(prefix_of(b"a"), "a/");
        assert_eq!(prefix_of(b""), "/");
        assert_eq!(end_of(b"a/"), "a0");
    }
}
