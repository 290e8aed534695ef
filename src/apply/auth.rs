//! Permission checks, between quota and mvcc.
//!
//! Passes everything through: its rules come with their own issue. Until then authentication cannot be enabled, so there
//! is no user whose permissions could be checked.

use super::{Applied, Failure, mvcc::MvccLayer};
use crate::proto::revgatepb::internal_raft_request::Request;

/// The layer that will know users and roles.
#[derive(Debug)]
pub(super) struct AuthLayer {
    next: MvccLayer,
}

impl AuthLayer {
    pub(super) fn new(next: MvccLayer) -> AuthLayer {
        AuthLayer { next }
    }

    pub(super) fn apply(&mut self, request: &Request) -> Result<Applied, Failure> {
        self.next.apply(request)
    }
}
