//! The slow work on passwords, a few at a time, on threads that wait for nothing else.
//!
//! However many clients authenticate at once, they take at most half of the machine, and the threads that serve readers
//! none of their time. The others wait in line, so many and so long as the limits say.

use std::{num::NonZeroUsize, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use tokio::{sync::Semaphore, task, time::timeout};
use zeroize::Zeroizing;

use crate::{auth, error::ApiError};

/// Most pieces of work that wait for their turn.
const WAITING_MAX: usize = 1024;
/// What of the machine's cores this may take: one in so many, and one at least.
const CORES_SHARE: usize = 2;

/// Hashes and checks passwords. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Passwords {
    cost: u32,
    /// One permit for each piece that may be worked on at once.
    at_work: Arc<Semaphore>,
    /// One permit for each piece that is at work or waits.
    in_line: Arc<Semaphore>,
    wait_max: Duration,
}

impl Passwords {
    pub(super) fn new(cost: u32, wait_max: Duration) -> Passwords {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Passwords::with_at_work_max(cost, wait_max, (cores / CORES_SHARE).max(1))
    }

    pub(super) fn with_at_work_max(cost: u32, wait_max: Duration, at_work_max: usize) -> Passwords {
        Passwords {
            cost,
            at_work: Arc::new(Semaphore::new(at_work_max)),
            in_line: Arc::new(Semaphore::new(at_work_max + WAITING_MAX)),
            wait_max,
        }
    }

    /// A password's hash as commands carry it: base64.
    pub(super) async fn hash(&self, password: Zeroizing<String>) -> Result<String, ApiError> {
        let cost = self.cost;
        let hash = self.run(move || auth::hash_password(&password, cost)).await??;
        Ok(base64_simd::STANDARD.encode_to_string(hash))
    }

    /// Whether a password is the one behind a hash.
    pub(super) async fn check(&self, password: Arc<Zeroizing<String>>, hash: Bytes) -> Result<bool, ApiError> {
        self.run(move || auth::check_password(&password, &hash)).await
    }

    /// Does the work of a check that has nothing to check against.
    pub(super) async fn waste_time(&self, password: Arc<Zeroizing<String>>) -> Result<(), ApiError> {
        let cost = self.cost;
        self.run(move || auth::waste_time(&password, cost)).await
    }

    /// Does slow work when it is its turn.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let _place = self.in_line.try_acquire().map_err(|_| ApiError::TooManyRequests)?;
        let turn = timeout(self.wait_max, Arc::clone(&self.at_work).acquire_owned()).await;
        let turn = turn.map_err(|_| ApiError::Timeout)?.map_err(|_| ApiError::Stopped)?;
        let done = task::spawn_blocking(move || {
            // Held until the work is done, also if nobody waits for it any more.
            let _turn = turn;
            work()
        });
        done.await.map_err(|error| ApiError::Internal(format!("work on a password failed: {error}")))
    }
}
