//! Which watches of a stream may go on. Permissions are looked at when a watch is created, as in etcd, and, unlike there,
//! again before anything is delivered after users, roles or the switch have changed: what was taken away from a user does not
//! go on leaking to the watches it had, and what anonymous clients watched is theirs no more once names are needed.
//!
//! A watch keeps the user it was created for: that a token runs out does not end it.

use std::collections::HashMap;

use crate::{
    error::ApiError,
    mvcc::KeyRange,
    service::{Caller, Core},
};

/// The watches of one stream, by id.
#[derive(Debug, Default)]
pub(super) struct Permits {
    open: HashMap<i64, Permit>,
    /// Canceled for want of permission, and not yet reported so: why.
    revoked: HashMap<i64, String>,
    /// The auth store's count of changes when all that is open was last looked at.
    checked_at: u64,
}

#[derive(Debug)]
pub(super) struct Permit {
    range: KeyRange,
    user: String,
    checked_at: u64,
}

impl Permits {
    /// Whether a caller may watch a range.
    pub(super) fn check(core: &Core, caller: &Caller, range: &KeyRange) -> Result<Permit, ApiError> {
        let checked_at = core.state.auth.changes();
        let who = core.identify(caller)?;
        core.state.auth.rights(&who)?.read(range)?;
        Ok(Permit { range: range.clone(), user: who.user, checked_at })
    }

    /// Notes a watch that was created.
    pub(super) fn add(&mut self, watch_id: i64, permit: Permit) {
        if self.open.is_empty() {
            self.checked_at = permit.checked_at;
        }
        self.checked_at = self.checked_at.min(permit.checked_at);
        self.open.insert(watch_id, permit);
    }

    /// Forgets a watch that is reported as canceled; why, if it was for want of permission.
    pub(super) fn remove(&mut self, watch_id: i64) -> Option<String> {
        self.open.remove(&watch_id);
        self.revoked.remove(&watch_id)
    }

    /// Whether a watch is canceled here and its client does not know yet.
    pub(super) fn is_revoked(&self, watch_id: i64) -> bool {
        self.revoked.contains_key(&watch_id)
    }

    /// The watches that must end, if there was a change since the last look.
    pub(super) fn revoke(&mut self, core: &Core, caller: &Caller) -> Vec<i64> {
        let changes = core.state.auth.changes();
        if changes == self.checked_at {
            return Vec::new();
        }
        self.checked_at = changes;
        let mut revoked = Vec::new();
        for (watch_id, permit) in &mut self.open {
            if let Err(error) = permit.still_holds(core, caller) {
                self.revoked.insert(*watch_id, reason(&error));
                revoked.push(*watch_id);
            }
        }
        revoked.iter().for_each(|watch_id| drop(self.open.remove(watch_id)));
        revoked
    }
}

impl Permit {
    fn still_holds(&mut self, core: &Core, caller: &Caller) -> Result<(), ApiError> {
        if self.user.is_empty() {
            // Created while no names were needed; perhaps the client has said one all the same.
            self.user = core.identify(caller)?.user;
        }
        core.state.auth.rights_now(&self.user)?.read(&self.range)
    }
}

/// A refusal as etcd tells it: as the error of the call inside the server.
pub(super) fn reason(error: &ApiError) -> String {
    format!("rpc error: code = {} desc = {error}", error.code().name())
}
