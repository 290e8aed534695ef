//! Locks: who has the oldest key below a name holds the lock.
//!
//! A lock lives as long as its lease. A client that brings no lease gets one of 60 seconds that nobody renews, as from
//! etcd: its lock falls after that, whatever the client does.

use tokio_util::sync::CancellationToken;

use crate::{
    error::ApiError,
    proto::{
        etcdserverpb::DeleteRangeRequest,
        v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse},
    },
};

use super::{Caller, KvService, turn::Turns};

/// Answers requests for locks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LockService {
    turns: Turns,
    kv: KvService,
}

impl LockService {
    pub(super) fn new(turns: Turns, kv: KvService) -> LockService {
        LockService { turns, kv }
    }

    /// Waits for the lock. Dropping the future gives the place in the line back.
    ///
    /// # Errors
    /// [`ApiError::LeaseNotFound`] when there is no such lease, [`ApiError::LockSessionExpired`] when it runs out during the
    /// wait.
    pub async fn lock(&self, caller: &Caller, request: LockRequest) -> Result<LockResponse, ApiError> {
        let (turns, caller) = (self.turns.clone(), caller.clone());
        self.turns.attended(|gone| async move { lock(&turns, &caller, request, &gone).await }).await
    }

    /// Gives a lock back, or a place in its line. A key that is not there is no error.
    pub async fn unlock(&self, caller: &Caller, request: UnlockRequest) -> Result<UnlockResponse, ApiError> {
        let delete = DeleteRangeRequest { key: request.key, ..Default::default() };
        let deleted = self.kv.delete_range(caller, delete).await?;
        Ok(UnlockResponse { header: deleted.header })
    }
}

async fn lock(
    turns: &Turns,
    caller: &Caller,
    request: LockRequest,
    gone: &CancellationToken,
) -> Result<LockResponse, ApiError> {
    let turn = turns.join(caller, &request.name, request.lease, Default::default()).await?;
    match turns.wait(&turn, gone, ApiError::LockSessionExpired).await {
        Ok(waited) => Ok(LockResponse { header: waited.or(turn.header), key: turn.key }),
        Err(error) => {
            turns.leave(turn).await;
            Err(error)
        }
    }
}
