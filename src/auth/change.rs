//! The changes of users and roles, one for each command. Each is made whole or refused; what it returns is to be stored in
//! the same log entry.
//!
//! Which changes are refused, in which order, and which count as none (granting what is granted, enabling what is enabled)
//! is etcd's, found by asking one.

use super::{AuthStore, ROOT, Tokens, permissions::range_of, state::UserEntry};
use crate::{
    error::ApiError,
    mvcc::BucketWrite,
    proto::{
        authpb::{Permission, Role, User, UserAddOptions},
        etcdserverpb as pb,
    },
};

/// What to store.
type Writes = Vec<BucketWrite>;

impl AuthStore {
    /// Turns authentication on. The user `root` must be there and have the role `root`.
    pub fn enable(&self) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if state.enabled {
            return Ok(Writes::new());
        }
        let root = state.users.get(ROOT).ok_or(ApiError::RootUserNotExist)?;
        if !root.has_role(ROOT) {
            return Err(ApiError::RootRoleNotExist);
        }
        state.enabled = true;
        self.note_change();
        Ok(vec![state.enabled_write()])
    }

    /// Turns authentication off. All tokens end.
    pub fn disable(&self) -> Writes {
        let mut state = self.state.write();
        if !state.enabled {
            return Writes::new();
        }
        state.enabled = false;
        let revision_write = state.next_revision();
        let revision = state.revision;
        state.users.values_mut().for_each(|user| user.credentials_revision = revision);
        if let Tokens::Simple(tokens) = &self.tokens {
            tokens.drop_all();
        }
        self.note_change();
        vec![state.enabled_write(), revision_write]
    }

    /// Gives a user that has proved who it is, at auth revision `checked_at`, a random token.
    pub fn assign_token(&self, user: &str, token: &str, checked_at: u64) -> Result<(), ApiError> {
        let state = self.state.read();
        if !state.enabled {
            return Err(ApiError::AuthNotEnabled);
        }
        // The password may have been changed in between.
        if checked_at != state.revision {
            return Err(ApiError::AuthOldRevision);
        }
        if !state.users.contains_key(user) {
            return Err(ApiError::AuthFailed);
        }
        if let Tokens::Simple(tokens) = &self.tokens {
            tokens.assign(token, user);
        }
        Ok(())
    }

    /// Adds a user with a hashed password, or with none. A password in clear text is not looked at.
    pub fn user_add(&self, request: &pb::AuthUserAddRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if request.name.is_empty() {
            return Err(ApiError::UserEmpty);
        }
        if state.users.contains_key(&request.name) {
            return Err(ApiError::UserExists);
        }
        let no_password = request.options.as_ref().is_some_and(|options| options.no_password);
        let password = if no_password { Vec::new() } else { hash_of(&request.hashed_password)? };
        let record = User {
            name: request.name.clone().into(),
            password: password.into(),
            roles: Vec::new(),
            options: Some(UserAddOptions { no_password }),
        };
        let revision_write = state.next_revision();
        let credentials_revision = state.revision;
        let entry = UserEntry { record, access: Default::default(), credentials_revision };
        state.users.insert(request.name.clone(), entry);
        self.note_change();
        Ok(vec![state.user_write(&request.name), revision_write])
    }

    /// Removes a user; its tokens end. Not `root` while authentication is on.
    pub fn user_delete(&self, request: &pb::AuthUserDeleteRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if state.enabled && request.name == ROOT {
            return Err(ApiError::InvalidAuthManagement);
        }
        state.users.remove(&request.name).ok_or(ApiError::UserNotFound)?;
        self.drop_tokens_of(&request.name);
        self.note_change();
        Ok(vec![state.user_write(&request.name), state.next_revision()])
    }

    /// Sets a user's password, hashed; its tokens end. One that has no password keeps having none, as in etcd.
    pub fn user_change_password(&self, request: &pb::AuthUserChangePasswordRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        let user = state.users.get_mut(&request.name).ok_or(ApiError::UserNotFound)?;
        if !user.has_no_password() {
            user.record.password = hash_of(&request.hashed_password)?.into();
        }
        let revision_write = state.next_revision();
        let revision = state.revision;
        if let Some(user) = state.users.get_mut(&request.name) {
            user.credentials_revision = revision;
        }
        self.drop_tokens_of(&request.name);
        self.note_change();
        Ok(vec![state.user_write(&request.name), revision_write])
    }

    /// Gives a user a role. The role `root` need not have been added.
    pub fn user_grant_role(&self, request: &pb::AuthUserGrantRoleRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if !state.users.contains_key(&request.user) {
            return Err(ApiError::UserNotFound);
        }
        if request.role != ROOT && !state.roles.contains_key(&request.role) {
            return Err(ApiError::RoleNotFound);
        }
        let user = state.users.get_mut(&request.user).ok_or(ApiError::UserNotFound)?;
        let Err(place) = user.record.roles.binary_search(&request.role) else { return Ok(Writes::new()) };
        user.record.roles.insert(place, request.role.clone());
        state.merge_permissions(|user| user.record.name == request.user);
        self.note_change();
        Ok(vec![state.user_write(&request.user), state.next_revision()])
    }

    /// Takes a role from a user. Not `root` from `root` while authentication is on.
    pub fn user_revoke_role(&self, request: &pb::AuthUserRevokeRoleRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if state.enabled && request.name == ROOT && request.role == ROOT {
            return Err(ApiError::InvalidAuthManagement);
        }
        let user = state.users.get_mut(&request.name).ok_or(ApiError::UserNotFound)?;
        if !user.has_role(&request.role) {
            return Err(ApiError::RoleNotGranted);
        }
        user.record.roles.retain(|role| *role != request.role);
        state.merge_permissions(|user| user.record.name == request.name);
        self.note_change();
        Ok(vec![state.user_write(&request.name), state.next_revision()])
    }

    /// Adds a role without permissions.
    pub fn role_add(&self, request: &pb::AuthRoleAddRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if request.name.is_empty() {
            return Err(ApiError::RoleEmpty);
        }
        if state.roles.contains_key(&request.name) {
            return Err(ApiError::RoleExists);
        }
        let role = Role { name: request.name.clone().into(), key_permission: Vec::new() };
        state.roles.insert(request.name.clone(), role);
        self.note_change();
        Ok(vec![state.role_write(&request.name), state.next_revision()])
    }

    /// Removes a role, and takes it from everybody. Not `root` while authentication is on.
    pub fn role_delete(&self, request: &pb::AuthRoleDeleteRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        if state.enabled && request.role == ROOT {
            return Err(ApiError::InvalidAuthManagement);
        }
        state.roles.remove(&request.role).ok_or(ApiError::RoleNotFound)?;
        let mut writes = vec![state.role_write(&request.role)];
        let had_it = |user: &UserEntry| user.has_role(&request.role);
        let names: Vec<String> =
            state.users.iter().filter(|(_, user)| had_it(user)).map(|(name, _)| name.clone()).collect();
        for name in &names {
            if let Some(user) = state.users.get_mut(name) {
                user.record.roles.retain(|role| *role != request.role);
            }
            writes.push(state.user_write(name));
        }
        state.merge_permissions(|user| names.iter().any(|name| user.record.name == *name));
        writes.push(state.next_revision());
        self.note_change();
        Ok(writes)
    }

    /// Gives a role a permission, in place of the one it had for the same range.
    pub fn role_grant_permission(&self, request: &pb::AuthRoleGrantPermissionRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        let permission = request.perm.as_ref().ok_or(ApiError::PermissionNotGiven)?;
        if permission.key.is_empty() || range_of(permission).is_empty() {
            return Err(ApiError::InvalidAuthManagement);
        }
        let role = state.roles.get_mut(&request.name).ok_or(ApiError::RoleNotFound)?;
        let same = |other: &Permission| other.key == permission.key && other.range_end == permission.range_end;
        match role.key_permission.iter_mut().find(|granted| same(granted)) {
            Some(granted) => granted.perm_type = permission.perm_type,
            None => {
                let place = role.key_permission.partition_point(|other| other.key <= permission.key);
                role.key_permission.insert(place, permission.clone());
            }
        }
        state.merge_permissions(|user| user.has_role(&request.name));
        self.note_change();
        Ok(vec![state.role_write(&request.name), state.next_revision()])
    }

    /// Takes a permission from a role: the one for exactly this range.
    pub fn role_revoke_permission(&self, request: &pb::AuthRoleRevokePermissionRequest) -> Result<Writes, ApiError> {
        let mut state = self.state.write();
        let role = state.roles.get_mut(&request.role).ok_or(ApiError::RoleNotFound)?;
        let granted = role.key_permission.len();
        role.key_permission.retain(|other| other.key != request.key || other.range_end != request.range_end);
        if role.key_permission.len() == granted {
            return Err(ApiError::PermissionNotGranted);
        }
        state.merge_permissions(|user| user.has_role(&request.role));
        self.note_change();
        Ok(vec![state.role_write(&request.role), state.next_revision()])
    }

    fn drop_tokens_of(&self, user: &str) {
        if let Tokens::Simple(tokens) = &self.tokens {
            tokens.drop_user(user);
        }
    }
}

/// The hash a command carries: base64, as etcd's commands have it.
fn hash_of(encoded: &str) -> Result<Vec<u8>, ApiError> {
    let hash = base64_simd::STANDARD.decode_to_vec(encoded);
    hash.map_err(|_| ApiError::Internal("a password must be hashed before it is proposed".into()))
}
