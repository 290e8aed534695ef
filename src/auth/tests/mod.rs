//! The room as a whole: changes and what they forbid, rights, tokens, and what the file keeps.
#![allow(clippy::unwrap_used, reason = "tests")]

mod changes;
mod rights;
mod tokens;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{AuthStore, SimpleTokens, Tokens};
use crate::{
    clock::ManualClock,
    error::ApiError,
    mvcc::{BucketWrite, KeyRange, buckets},
    proto::{authpb::Permission, etcdserverpb as pb},
};

const TTL: Duration = Duration::from_secs(300);

type Outcome = Result<Vec<BucketWrite>, ApiError>;

/// A store, and the buckets as its writes leave them.
struct Rig {
    store: AuthStore,
    clock: Arc<ManualClock>,
    buckets: BTreeMap<(&'static [u8], Bytes), Bytes>,
}

impl Rig {
    fn new() -> Rig {
        let clock = Arc::new(ManualClock::default());
        Rig::with(Tokens::Simple(SimpleTokens::new(clock.clone(), TTL)), clock)
    }

    fn with(tokens: Tokens, clock: Arc<ManualClock>) -> Rig {
        Rig { store: AuthStore::new(tokens), clock, buckets: BTreeMap::new() }
    }

    /// `root` with its role, two users, two roles, authentication on.
    fn enabled() -> Rig {
        let mut rig = Rig::new();
        rig.set_up();
        rig
    }

    fn set_up(&mut self) {
        for user in ["root", "ann", "bob"] {
            self.add_user(user).unwrap();
        }
        self.grant_role("root", "root").unwrap();
        self.add_role("reader").unwrap();
        self.grant("reader", 0, "k", "").unwrap();
        self.grant_role("ann", "reader").unwrap();
        self.keep(|store| store.enable()).unwrap();
    }

    fn keep(&mut self, change: impl FnOnce(&AuthStore) -> Outcome) -> Result<(), ApiError> {
        for BucketWrite { bucket, key, value } in change(&self.store)? {
            match value {
                Some(value) => drop(self.buckets.insert((bucket, key), value)),
                None => drop(self.buckets.remove(&(bucket, key))),
            }
        }
        Ok(())
    }

    fn add_user(&mut self, name: &str) -> Result<(), ApiError> {
        let hashed_password = base64_simd::STANDARD.encode_to_string("hash");
        let request = pb::AuthUserAddRequest { name: name.into(), hashed_password, ..Default::default() };
        self.keep(|store| store.user_add(&request))
    }

    fn delete_user(&mut self, name: &str) -> Result<(), ApiError> {
        self.keep(|store| store.user_delete(&pb::AuthUserDeleteRequest { name: name.into() }))
    }

    fn change_password(&mut self, name: &str) -> Result<(), ApiError> {
        let hashed_password = base64_simd::STANDARD.encode_to_string("other");
        let request = pb::AuthUserChangePasswordRequest { name: name.into(), password: String::new(), hashed_password };
        self.keep(|store| store.user_change_password(&request))
    }

    fn grant_role(&mut self, user: &str, role: &str) -> Result<(), ApiError> {
        let request = pb::AuthUserGrantRoleRequest { user: user.into(), role: role.into() };
        self.keep(|store| store.user_grant_role(&request))
    }

    fn revoke_role(&mut self, user: &str, role: &str) -> Result<(), ApiError> {
        let request = pb::AuthUserRevokeRoleRequest { name: user.into(), role: role.into() };
        self.keep(|store| store.user_revoke_role(&request))
    }

    fn add_role(&mut self, name: &str) -> Result<(), ApiError> {
        self.keep(|store| store.role_add(&pb::AuthRoleAddRequest { name: name.into() }))
    }

    fn delete_role(&mut self, role: &str) -> Result<(), ApiError> {
        self.keep(|store| store.role_delete(&pb::AuthRoleDeleteRequest { role: role.into() }))
    }

    fn grant(&mut self, role: &str, kind: i32, key: &str, end: &str) -> Result<(), ApiError> {
        let perm = Permission { perm_type: kind, key: key.to_owned().into(), range_end: end.to_owned().into() };
        let request = pb::AuthRoleGrantPermissionRequest { name: role.into(), perm: Some(perm) };
        self.keep(|store| store.role_grant_permission(&request))
    }

    fn revoke(&mut self, role: &str, key: &str, end: &str) -> Result<(), ApiError> {
        let request = pb::AuthRoleRevokePermissionRequest {
            role: role.into(),
            key: key.to_owned().into(),
            range_end: end.to_owned().into(),
        };
        self.keep(|store| store.role_revoke_permission(&request))
    }

    fn pairs(&self, bucket: &[u8]) -> Vec<(Bytes, Bytes)> {
        let inside = self.buckets.iter().filter(|((name, _), _)| *name == bucket);
        inside.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    /// Another store from what is stored.
    fn restored(self) -> Rig {
        let mut other = Rig::new();
        let (auth, users, roles) =
            (self.pairs(buckets::AUTH), self.pairs(buckets::AUTH_USERS), self.pairs(buckets::AUTH_ROLES));
        other.store.restore(&auth, &users, &roles).unwrap();
        other.buckets = self.buckets;
        other
    }
}

fn key(key: &str) -> KeyRange {
    KeyRange::Single(Bytes::copy_from_slice(key.as_bytes()))
}

fn range(key: &str, end: &str) -> KeyRange {
    KeyRange::new(Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(end.as_bytes()))
}
