//! The tables of users and roles, and how the backend file keeps them: records by name in `authUsers` and `authRoles`, the
//! switch and the revision in `auth`.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use prost::Message as _;

use super::{ROOT, permissions::Access};
use crate::{
    mvcc::{BucketWrite, buckets},
    proto::authpb::{Role, User},
};

/// Where the auth revision starts.
const REVISION_FIRST: u64 = 1;

const ENABLED_KEY: &[u8] = b"authEnabled";
const REVISION_KEY: &[u8] = b"authRevision";

/// A user, and what its roles come to.
pub(super) struct UserEntry {
    pub(super) record: User,
    pub(super) access: Arc<Access>,
    /// The auth revision that set its password, or one that is later: signed tokens from before it are void.
    pub(super) credentials_revision: u64,
}

impl UserEntry {
    pub(super) fn has_role(&self, role: &str) -> bool {
        self.record.roles.iter().any(|granted| granted == role)
    }

    pub(super) fn has_no_password(&self) -> bool {
        self.record.options.as_ref().is_some_and(|options| options.no_password)
    }
}

pub(super) struct State {
    pub(super) enabled: bool,
    pub(super) revision: u64,
    pub(super) users: BTreeMap<String, UserEntry>,
    pub(super) roles: BTreeMap<String, Role>,
}

impl Default for State {
    fn default() -> State {
        State { enabled: false, revision: REVISION_FIRST, users: BTreeMap::new(), roles: BTreeMap::new() }
    }
}

impl State {
    pub(super) fn restore(
        auth: &[(Bytes, Bytes)],
        users: &[(Bytes, Bytes)],
        roles: &[(Bytes, Bytes)],
    ) -> Result<State, String> {
        let mut state = State::default();
        for (key, value) in auth {
            match key.as_ref() {
                ENABLED_KEY => state.enabled = value.as_ref() == [1],
                REVISION_KEY => {
                    let revision = <[u8; 8]>::try_from(value.as_ref());
                    state.revision =
                        revision.map(u64::from_be_bytes).map_err(|_| "the auth revision is not 8 bytes long")?;
                }
                _ => {}
            }
        }
        for (key, value) in roles {
            let role = Role::decode(value.clone()).map_err(|error| damaged("role", key, &error.to_string()))?;
            state.roles.insert(name("role", key, &role.name)?, role);
        }
        for (key, value) in users {
            let record = User::decode(value.clone()).map_err(|error| damaged("user", key, &error.to_string()))?;
            // When its password was set is not stored: at the latest by now.
            let entry = UserEntry { access: Arc::default(), credentials_revision: state.revision, record };
            state.users.insert(name("user", key, &entry.record.name)?, entry);
        }
        state.merge_permissions(|_| true);
        Ok(state)
    }

    /// Works out anew what the users that are `meant` may do.
    pub(super) fn merge_permissions(&mut self, meant: impl Fn(&UserEntry) -> bool) {
        let roles = &self.roles;
        for user in self.users.values_mut().filter(|user| meant(user)) {
            let permissions = user.record.roles.iter().filter_map(|role| roles.get(role));
            let permissions = permissions.flat_map(|role| &role.key_permission);
            user.access = Arc::new(Access::new(user.has_role(ROOT), permissions));
        }
    }

    /// Counts a change; what to store of that.
    pub(super) fn next_revision(&mut self) -> BucketWrite {
        self.revision += 1;
        let value = Some(Bytes::copy_from_slice(&self.revision.to_be_bytes()));
        BucketWrite { bucket: buckets::AUTH, key: Bytes::from_static(REVISION_KEY), value }
    }

    /// What to store of the switch.
    pub(super) fn enabled_write(&self) -> BucketWrite {
        let value = Some(Bytes::copy_from_slice(&[u8::from(self.enabled)]));
        BucketWrite { bucket: buckets::AUTH, key: Bytes::from_static(ENABLED_KEY), value }
    }

    /// What to store of a user as it is now.
    pub(super) fn user_write(&self, name: &str) -> BucketWrite {
        let value = self.users.get(name).map(|user| Bytes::from(user.record.encode_to_vec()));
        BucketWrite { bucket: buckets::AUTH_USERS, key: Bytes::copy_from_slice(name.as_bytes()), value }
    }

    /// What to store of a role as it is now.
    pub(super) fn role_write(&self, name: &str) -> BucketWrite {
        let value = self.roles.get(name).map(|role| Bytes::from(role.encode_to_vec()));
        BucketWrite { bucket: buckets::AUTH_ROLES, key: Bytes::copy_from_slice(name.as_bytes()), value }
    }
}

/// What is wrong with a pair of a bucket of this room's, if something is. Pairs of other buckets are not looked at.
pub fn check_record(bucket: &[u8], key: &[u8], value: &[u8]) -> Result<(), String> {
    let (stored, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    match bucket {
        buckets::AUTH if key == ENABLED_KEY && !matches!(value.as_ref(), [0 | 1]) => {
            Err("whether auth is enabled is neither yes nor no".to_owned())
        }
        buckets::AUTH => State::restore(&[(stored, value)], &[], &[]).map(drop),
        buckets::AUTH_USERS => State::restore(&[], &[(stored, value)], &[]).map(drop),
        buckets::AUTH_ROLES => State::restore(&[], &[], &[(stored, value)]).map(drop),
        _ => Ok(()),
    }
}

fn damaged(what: &str, key: &[u8], problem: &str) -> String {
    format!("the record of {what} {:?} is damaged: {problem}", String::from_utf8_lossy(key))
}

/// A record's name, which must be the one it is stored under.
fn name(what: &str, key: &Bytes, recorded: &[u8]) -> Result<String, String> {
    if key != recorded {
        return Err(damaged(what, key, "it names another"));
    }
    String::from_utf8(key.to_vec()).map_err(|_| damaged(what, key, "its name is no text"))
}
