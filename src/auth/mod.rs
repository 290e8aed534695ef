//! Who may do what: users, their roles, the roles' permissions, and the tokens that stand for users.
//!
//! Users, roles and whether authentication is on are replicated: apply makes every change in log order and stores what a
//! change returns. Tokens are not: random ones live in this member's memory, signed ones carry all they need.
//!
//! Promises: a password or its hash is in no `Debug` output; every change of users or roles counts the auth revision up,
//! so that what was checked before it is known to be old; a user's permissions are merged when they change, not when they
//! are asked for. Must never know: keys' contents, leases, requests (which rights a request needs is `apply`'s rule).

mod change;
mod jwt;
mod password;
mod permissions;
mod ring_provider;
mod simple_tokens;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use parking_lot::RwLock;

pub use self::{
    jwt::JwtTokens,
    password::{PASSWORD_BYTES_MAX, check_password, hash_password, waste_time},
    simple_tokens::{SimpleTokens, new_token_prefix},
    state::check_record,
};
use self::{permissions::Access, state::State};
use crate::{
    error::ApiError,
    mvcc::KeyRange,
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::AuthStatusResponse,
    },
};

/// The user and the role without which authentication cannot be on.
pub const ROOT: &str = "root";

/// What stands for a user once its password was right.
#[derive(Debug)]
pub enum Tokens {
    /// Random ones.
    Simple(SimpleTokens),
    /// Signed ones.
    Jwt(Box<JwtTokens>),
}

/// Who asks, and at which auth revision that was found out. Without authentication everybody is the user "".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user's name; empty for nobody.
    pub user: String,
    /// The auth revision.
    pub revision: u64,
}

/// What a password is checked against.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// bcrypt's hash.
    pub hash: Bytes,
    /// The auth revision at which it was read.
    pub revision: u64,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// What somebody may do, as it was when it was looked up.
#[derive(Clone, Debug)]
pub struct Rights {
    /// `None`: everything.
    limits: Option<Arc<Access>>,
}

impl Rights {
    /// The member's own rights.
    pub fn unlimited() -> Rights {
        Rights { limits: None }
    }

    /// Whether nothing is closed.
    pub fn are_unlimited(&self) -> bool {
        self.limits.is_none()
    }

    /// Whether every key of a range may be read.
    pub fn read(&self, range: &KeyRange) -> Result<(), ApiError> {
        self.covered(|access| access.read.cover(range))
    }

    /// Whether every key of a range may be written.
    pub fn write(&self, range: &KeyRange) -> Result<(), ApiError> {
        self.covered(|access| access.write.cover(range))
    }

    fn covered(&self, is_covered: impl FnOnce(&Access) -> bool) -> Result<(), ApiError> {
        match &self.limits {
            Some(access) if !is_covered(access) => Err(ApiError::PermissionDenied),
            _ => Ok(()),
        }
    }
}

/// Users, roles and tokens. Thread-safe (`&self`); apply makes the changes, requests ask.
pub struct AuthStore {
    state: RwLock<State>,
    tokens: Tokens,
    /// Counts everything that may change what somebody may do, enabling and disabling included.
    changes: AtomicU64,
}

impl AuthStore {
    /// No users, no roles, authentication off.
    pub fn new(tokens: Tokens) -> AuthStore {
        AuthStore { state: RwLock::new(State::default()), tokens, changes: AtomicU64::new(0) }
    }

    /// Takes what the buckets `auth`, `authUsers` and `authRoles` hold in place of what is known. An error names the record
    /// that cannot be read, and leaves everything as it was.
    pub fn restore(
        &self,
        auth: &[(Bytes, Bytes)],
        users: &[(Bytes, Bytes)],
        roles: &[(Bytes, Bytes)],
    ) -> Result<(), String> {
        *self.state.write() = State::restore(auth, users, roles)?;
        self.note_change();
        Ok(())
    }

    /// Whether requests must say in whose name they come.
    pub fn is_enabled(&self) -> bool {
        self.state.read().enabled
    }

    /// Counts the changes of users and roles, from 1.
    pub fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// A number that is another one whenever anybody's rights may be others. Cheap.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether authentication is on, and the auth revision; without a header.
    pub fn status(&self) -> AuthStatusResponse {
        let state = self.state.read();
        AuthStatusResponse { header: None, enabled: state.enabled, auth_revision: state.revision }
    }

    /// Whom a token, or else a certificate's name, stands for. Nobody is an [`Identity`] too: whether that is enough is
    /// decided by what is asked for. While authentication is off, tokens are not looked at.
    pub fn identify(&self, token: Option<&str>, certificate_name: Option<&str>) -> Result<Identity, ApiError> {
        let state = self.state.read();
        if !state.enabled {
            return Ok(Identity::default());
        }
        match (token, certificate_name, &self.tokens) {
            (Some(token), _, Tokens::Simple(tokens)) => {
                let user = tokens.user_of(token).ok_or(ApiError::InvalidAuthToken)?;
                Ok(Identity { user, revision: state.revision })
            }
            (Some(token), _, Tokens::Jwt(tokens)) => {
                let identity = tokens.identify(token)?;
                // As random tokens, signed ones end with the password they were given for.
                match state.users.get(&identity.user) {
                    Some(user) if user.credentials_revision <= identity.revision => Ok(identity),
                    _ => Err(ApiError::InvalidAuthToken),
                }
            }
            (None, Some(name), _) => Ok(Identity { user: name.to_owned(), revision: state.revision }),
            (None, None, _) => Ok(Identity::default()),
        }
    }

    /// What somebody may do with keys. Fails for nobody, for who was looked at before the last change of users or roles,
    /// and for users that are not there.
    pub fn rights(&self, who: &Identity) -> Result<Rights, ApiError> {
        let state = self.state.read();
        if !state.enabled {
            return Ok(Rights::unlimited());
        }
        if who.user.is_empty() {
            return Err(ApiError::UserEmpty);
        }
        if who.revision < state.revision {
            return Err(ApiError::AuthOldRevision);
        }
        let user = state.users.get(&who.user).ok_or(ApiError::PermissionDenied)?;
        Ok(Rights { limits: (!user.access.is_root).then(|| Arc::clone(&user.access)) })
    }

    /// What a user may do now, however long ago it proved who it is.
    pub fn rights_now(&self, user: &str) -> Result<Rights, ApiError> {
        self.rights(&Identity { user: user.to_owned(), revision: u64::MAX })
    }

    /// Whether a user may do what concerns everybody. The answer is of now: no revision is needed.
    pub fn check_admin(&self, user: &str) -> Result<(), ApiError> {
        if self.rights_now(user)?.are_unlimited() { Ok(()) } else { Err(ApiError::PermissionDenied) }
    }

    /// Whether that is a user at all.
    pub fn check_user(&self, user: &str) -> Result<(), ApiError> {
        self.rights_now(user).map(drop)
    }

    /// Whether a user has a role.
    pub fn has_role(&self, user: &str, role: &str) -> bool {
        self.state.read().users.get(user).is_some_and(|user| user.has_role(role))
    }

    /// A user's roles, by name.
    pub fn roles_of(&self, user: &str) -> Result<Vec<String>, ApiError> {
        self.state.read().users.get(user).map(|user| user.record.roles.clone()).ok_or(ApiError::UserNotFound)
    }

    /// All users, by name.
    pub fn user_names(&self) -> Vec<String> {
        self.state.read().users.keys().cloned().collect()
    }

    /// All roles, by name.
    pub fn role_names(&self) -> Vec<String> {
        self.state.read().roles.keys().cloned().collect()
    }

    /// A role's permissions. The role `root` may do everything, whatever was granted to it: etcd shows it like this.
    pub fn permissions_of(&self, role: &str) -> Result<Vec<Permission>, ApiError> {
        let state = self.state.read();
        let record = state.roles.get(role).ok_or(ApiError::RoleNotFound)?;
        if role == ROOT {
            let everything = Bytes::from_static(&[0]);
            return Ok(vec![Permission {
                perm_type: Type::Readwrite as i32,
                key: Bytes::new(),
                range_end: everything,
            }]);
        }
        Ok(record.key_permission.clone())
    }

    /// What a user's password is checked against; `None` if there is no such user.
    pub fn credentials(&self, user: &str) -> Result<Option<Credentials>, ApiError> {
        let state = self.state.read();
        if !state.enabled {
            return Err(ApiError::AuthNotEnabled);
        }
        let Some(user) = state.users.get(user) else { return Ok(None) };
        if user.has_no_password() {
            return Err(ApiError::NoPasswordUser);
        }
        Ok(Some(Credentials { hash: user.record.password.clone(), revision: state.revision }))
    }

    /// The tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for AuthStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AuthStatusResponse { enabled, auth_revision, .. } = self.status();
        f.debug_struct("AuthStore").field("enabled", &enabled).field("revision", &auth_revision).finish_non_exhaustive()
    }
}
