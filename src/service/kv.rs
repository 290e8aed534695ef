//! Range, put, delete, txn, compaction.
//!
//! Reads that may be linearizable wait for a read barrier and then read here; writes go through the log. A txn that only
//! reads is a read.

use std::time::Duration;

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

use crate::{
    apply::{self, Applied, CompactionFinished},
    error::ApiError,
    members::PAGE_KEY_BYTES,
    mvcc::{KeyRange, MvccError, RangeCursor, RangeQuery, Store},
    proto::{
        etcdserverpb::{self as pb, range_request::SortTarget, request_op},
        revgatepb::{PageKeySetRequest, internal_raft_request::Request},
    },
};

use super::{
    Caller, Core,
    pages::{self, NextPage},
    validate, wrong_outcome,
};

/// How long a client of a `physical` compaction is kept waiting for the deletions. They go on after that.
const PHYSICAL_COMPACTION_WAIT_MAX_SECS: u64 = 3600;

/// Keys that a read may look at on the spot. One that looks at more is made on a thread where it keeps nobody waiting.
const SHORT_READ_KEYS_MAX: u64 = 1_000;

/// A range's answer: header first, then pairs from the cursor, then more and count.
#[derive(Debug)]
pub struct RangeAnswer {
    /// Complete; the revision is the store's, not the one that was asked for.
    pub header: pb::ResponseHeader,
    /// The pairs.
    pub cursor: RangeCursor,
    /// What makes the token for the next page, where there are pages.
    pub next_page: Option<NextPage>,
    /// Taking the pairs takes its time: it is to be done where nobody waits for it.
    pub is_long: bool,
}

/// Answers requests for keys. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KvService {
    core: Core,
    txn_ops_max: usize,
}

impl KvService {
    pub(super) fn new(core: Core, txn_ops_max: usize) -> KvService {
        KvService { core, txn_ops_max }
    }

    pub(super) fn core(&self) -> Core {
        self.core.clone()
    }

    /// Opens a read of a range.
    pub async fn range(&self, caller: &Caller, request: pb::RangeRequest) -> Result<RangeAnswer, ApiError> {
        validate::check_range(&request)?;
        let mut query = apply::range_query(&request);
        if !request.serializable {
            self.core.consensus.read_barrier().await?;
        }
        let rights = self.core.rights(caller)?;
        apply::check_range(&rights.rights, &request)?;
        // Only now: the first page there is writes to the log, which not everybody may have done.
        let page_key = self.page_key(&request).await;
        let is_next_page = !request.r#continue.is_empty();
        if is_next_page {
            let page = pages::open(&page_key.ok_or(ApiError::PageTokenInvalid)?, &request)?;
            (query.revision, query.after, query.known_count) = (page.revision, Some(page.after), Some(page.count));
        }
        let store = self.core.state.store.clone();
        let is_long = is_long(&store, std::slice::from_ref(&query));
        // Putting an answer in order is work that is done when it is opened.
        let error = if is_next_page { page_error } else { read_error };
        let cursor = read(is_long, move || store.range(&query).map_err(error)).await?;
        self.core.still_has(&rights)?;
        let next_page = page_key.map(|secret| NextPage::new(&secret, &request, cursor.revision()));
        Ok(RangeAnswer { header: self.core.headers.at(cursor.store_revision()), cursor, next_page, is_long })
    }

    /// The secret of page tokens, for a request that asks for a page. The first such request makes it, unless it is one
    /// that must be answered without the cluster.
    async fn page_key(&self, request: &pb::RangeRequest) -> Option<[u8; PAGE_KEY_BYTES]> {
        let is_cut = request.limit > 0 && !request.count_only && request.sort_target == SortTarget::Key as i32;
        if !is_cut && request.r#continue.is_empty() {
            return None;
        }
        let members = &self.core.state.members;
        if members.page_key().is_none() && !request.serializable {
            let mut secret = [0; PAGE_KEY_BYTES];
            SystemRandom::new().fill(&mut secret).ok()?;
            let key = Bytes::copy_from_slice(&secret);
            if let Err(error) = self.core.propose_own(Request::PageKeySet(PageKeySetRequest { key })).await {
                tracing::warn!(%error, "pages are answered without tokens: their secret could not be agreed upon");
            }
        }
        members.page_key()
    }

    /// Sets a key.
    pub async fn put(&self, caller: &Caller, request: pb::PutRequest) -> Result<pb::PutResponse, ApiError> {
        validate::check_put(&request)?;
        match self.core.propose(caller, Request::Put(request)).await? {
            Applied::Put(mut response) => {
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("put", &other)),
        }
    }

    /// Deletes the keys of a range.
    pub async fn delete_range(
        &self,
        caller: &Caller,
        request: pb::DeleteRangeRequest,
    ) -> Result<pb::DeleteRangeResponse, ApiError> {
        validate::check_delete_range(&request)?;
        match self.core.propose(caller, Request::DeleteRange(request)).await? {
            Applied::DeleteRange(mut response) => {
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("delete range", &other)),
        }
    }

    /// Compares, then runs one of two branches. Headers of nested answers stay as they are: revision only, or empty.
    pub async fn txn(&self, caller: &Caller, request: pb::TxnRequest) -> Result<pb::TxnResponse, ApiError> {
        validate::check_txn(&request, self.txn_ops_max)?;
        let mut response = if validate::is_read_only(&request) {
            if !validate::is_serializable(&request) {
                self.core.consensus.read_barrier().await?;
            }
            let rights = self.core.rights(caller)?;
            apply::check_txn(&rights.rights, &self.core.state.lessor, &request)?;
            let store = self.core.state.store.clone();
            let is_long = is_long(&store, &queries_of(&request));
            let response = read(is_long, move || apply::evaluate_read_only(&store, &request)).await?;
            self.core.still_has(&rights)?;
            response
        } else {
            match self.core.propose(caller, Request::Txn(request)).await? {
                Applied::Txn(response) => response,
                other => return Err(wrong_outcome("txn", &other)),
            }
        };
        self.core.headers.complete(&mut response.header);
        Ok(response)
    }

    /// Compacts the history; a `physical` request is answered once what it deletes is gone from the file.
    pub async fn compact(
        &self,
        caller: &Caller,
        request: pb::CompactionRequest,
    ) -> Result<pb::CompactionResponse, ApiError> {
        match self.core.propose(caller, Request::Compaction(request)).await? {
            Applied::Compaction { mut response, finished } => {
                if let Some(finished) = finished {
                    wait_finished(finished).await?;
                }
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("compaction", &other)),
        }
    }
}

/// Whether these reads together look at more keys than is done on the spot.
fn is_long(store: &Store, queries: &[RangeQuery]) -> bool {
    let keys = queries.iter().map(|query| store.keys_to_look_at(query));
    keys.fold(0, u64::saturating_add) > SHORT_READ_KEYS_MAX
}

/// What a txn that only reads looks at.
fn queries_of(request: &pb::TxnRequest) -> Vec<RangeQuery> {
    let compared = request
        .compare
        .iter()
        .map(|compare| RangeQuery::all(KeyRange::new(compare.key.clone(), compare.range_end.clone())));
    let read = request.success.iter().chain(&request.failure).filter_map(|op| match &op.request {
        Some(request_op::Request::RequestRange(range)) => Some(apply::range_query(range)),
        _ => None,
    });
    compared.chain(read).collect()
}

/// Reads on the spot, or, if it takes long, on a thread that keeps nobody waiting.
async fn read<T: Send + 'static>(
    is_long: bool,
    read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if !is_long {
        return read();
    }
    spawn_blocking(read).await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
}

async fn wait_finished(finished: CompactionFinished) -> Result<(), ApiError> {
    let (sender, receiver) = oneshot::channel();
    finished.on_done(Box::new(move |result| {
        // A client that has gone away does not wait for it.
        let _ = sender.send(result);
    }));
    let limit = Duration::from_secs(PHYSICAL_COMPACTION_WAIT_MAX_SECS);
    timeout(limit, receiver).await.map_err(|_| ApiError::Timeout)?.map_err(|_| ApiError::Stopped)?
}

/// What a client is told of a page that cannot be read.
fn page_error(error: MvccError) -> ApiError {
    match error {
        MvccError::Compacted { compacted, .. } => ApiError::PageExpired { compact_revision: compacted },
        other => read_error(other),
    }
}

/// What a client is told of a read that failed, before or in the middle of its answer.
pub fn read_error(error: MvccError) -> ApiError {
    match error {
        MvccError::Compacted { .. } => ApiError::Compacted,
        MvccError::Future { .. } => ApiError::FutureRevision,
        MvccError::Busy => ApiError::BackendBusy,
        MvccError::Closed => ApiError::Stopped,
        damage => {
            tracing::error!(%damage, "a read failed");
            ApiError::DataLoss(damage.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_errors_carry_the_texts_of_the_contract() {
        assert_eq!(read_error(MvccError::Compacted { requested: 3, compacted: 5 }), ApiError::Compacted);
        assert_eq!(read_error(MvccError::Future { requested: 9, current: 5 }), ApiError::FutureRevision);
        let damaged =
            MvccError::DamagedRecord { revision: crate::mvcc::Revision { main: 4, sub: 1 }, what: "x".into() };
        let told = read_error(damaged);
        assert_eq!(told.to_string(), "etcdserver: damaged record at revision 4.1: x");
        assert_eq!(told.code(), crate::error::Code::DataLoss);
    }
}
