//! Users, roles, and tokens for passwords.
//!
//! A password never gets into the log: it is hashed, or checked, before anything is proposed, on threads that keep nobody
//! else waiting, a few at a time. Questions about users and roles are answered here after a read barrier.

mod passwords;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use zeroize::Zeroizing;

use self::passwords::Passwords;
use super::{Caller, Core, caller, wrong_outcome};
use crate::{
    apply::Applied,
    auth::{self, Identity, Tokens},
    error::ApiError,
    proto::{
        etcdserverpb as pb,
        revgatepb::{InternalAuthenticateRequest, internal_raft_request::Request},
    },
};

/// How often a token is asked for again because users or roles changed between the look at the password and the token.
const TOKEN_ATTEMPTS_MAX: usize = 16;

/// Answers requests about users, roles and tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthService {
    core: Core,
    passwords: Passwords,
}

impl AuthService {
    pub(super) fn new(core: Core, bcrypt_cost: u32, request_timeout: Duration) -> AuthService {
        AuthService { core, passwords: Passwords::new(bcrypt_cost, request_timeout) }
    }

    /// Turns authentication on.
    pub async fn enable(
        &self,
        caller: &Caller,
        request: pb::AuthEnableRequest,
    ) -> Result<pb::AuthEnableResponse, ApiError> {
        let header = self.change(caller, Request::AuthEnable(request)).await?;
        Ok(pb::AuthEnableResponse { header })
    }

    /// Turns authentication off.
    pub async fn disable(
        &self,
        caller: &Caller,
        request: pb::AuthDisableRequest,
    ) -> Result<pb::AuthDisableResponse, ApiError> {
        let header = self.change(caller, Request::AuthDisable(request)).await?;
        Ok(pb::AuthDisableResponse { header })
    }

    /// Whether authentication is on. Everybody may ask; but a token that comes along must be good, as in etcd.
    pub async fn status(
        &self,
        caller: &Caller,
        _request: pb::AuthStatusRequest,
    ) -> Result<pb::AuthStatusResponse, ApiError> {
        self.core.consensus.read_barrier().await?;
        self.core.identify(caller)?;
        Ok(pb::AuthStatusResponse { header: self.header(), ..self.core.state.auth.status() })
    }

    /// Gives a token for a password. The password is cleared from memory as soon as it was looked at; copies the transport
    /// made while reading are the transport's.
    pub async fn authenticate(
        &self,
        mut request: pb::AuthenticateRequest,
    ) -> Result<pb::AuthenticateResponse, ApiError> {
        let password = Arc::new(Zeroizing::new(std::mem::take(&mut request.password)));
        self.core.consensus.read_barrier().await?;
        let mut fitting = None;
        for _ in 0..TOKEN_ATTEMPTS_MAX {
            let Some(found) = self.core.state.auth.credentials(&request.name)? else {
                self.passwords.waste_time(Arc::clone(&password)).await?;
                return Err(ApiError::AuthFailed);
            };
            if fitting.as_ref() != Some(&found.hash) {
                if !self.passwords.check(Arc::clone(&password), found.hash.clone()).await? {
                    return Err(ApiError::AuthFailed);
                }
                fitting = Some(found.hash);
            }
            match self.token(Identity { user: request.name.clone(), revision: found.revision }).await {
                // Somebody changed users or roles meanwhile: perhaps this password.
                Err(ApiError::AuthOldRevision) => {}
                outcome => return outcome,
            }
        }
        Err(ApiError::AuthOldRevision)
    }

    async fn token(&self, who: Identity) -> Result<pb::AuthenticateResponse, ApiError> {
        if let Tokens::Jwt(_) = self.core.state.auth.tokens() {
            let store = Arc::clone(&self.core.state.auth);
            let token = self.passwords.run(move || match store.tokens() {
                Tokens::Jwt(tokens) => tokens.sign(&who.user, who.revision),
                Tokens::Simple(_) => Err(ApiError::VerifyOnlyKey),
            });
            return Ok(pb::AuthenticateResponse { header: self.header(), token: token.await?? });
        }
        let simple_token = auth::new_token_prefix()?;
        let asked = InternalAuthenticateRequest { name: who.user.clone(), password: String::new(), simple_token };
        match self.core.propose_as(Some(caller::header(who)), Request::Authenticate(asked)).await? {
            Applied::Authenticated(mut response) => {
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("authenticate", &other)),
        }
    }

    /// Adds a user, with its password hashed; a hash that comes with the request is not taken, as in etcd.
    pub async fn user_add(
        &self,
        caller: &Caller,
        mut request: pb::AuthUserAddRequest,
    ) -> Result<pb::AuthUserAddResponse, ApiError> {
        self.core.require_admin(caller)?;
        let password = Zeroizing::new(std::mem::take(&mut request.password));
        request.hashed_password.clear();
        if !request.options.as_ref().is_some_and(|options| options.no_password) {
            request.hashed_password = self.passwords.hash(password).await?;
        }
        let header = self.change(caller, Request::AuthUserAdd(request)).await?;
        Ok(pb::AuthUserAddResponse { header })
    }

    /// A user's roles. Everybody may ask about themselves.
    pub async fn user_get(
        &self,
        caller: &Caller,
        request: pb::AuthUserGetRequest,
    ) -> Result<pb::AuthUserGetResponse, ApiError> {
        let store = &self.core.state.auth;
        self.ask(caller, |user| user == request.name).await?;
        Ok(pb::AuthUserGetResponse { header: self.header(), roles: store.roles_of(&request.name)? })
    }

    /// All users.
    pub async fn user_list(
        &self,
        caller: &Caller,
        _request: pb::AuthUserListRequest,
    ) -> Result<pb::AuthUserListResponse, ApiError> {
        self.ask(caller, |_| false).await?;
        Ok(pb::AuthUserListResponse { header: self.header(), users: self.core.state.auth.user_names() })
    }

    /// Removes a user.
    pub async fn user_delete(
        &self,
        caller: &Caller,
        request: pb::AuthUserDeleteRequest,
    ) -> Result<pb::AuthUserDeleteResponse, ApiError> {
        let header = self.change(caller, Request::AuthUserDelete(request)).await?;
        Ok(pb::AuthUserDeleteResponse { header })
    }

    /// Sets a user's password.
    pub async fn user_change_password(
        &self,
        caller: &Caller,
        mut request: pb::AuthUserChangePasswordRequest,
    ) -> Result<pb::AuthUserChangePasswordResponse, ApiError> {
        self.core.require_admin(caller)?;
        let password = Zeroizing::new(std::mem::take(&mut request.password));
        request.hashed_password = self.passwords.hash(password).await?;
        let header = self.change(caller, Request::AuthUserChangePassword(request)).await?;
        Ok(pb::AuthUserChangePasswordResponse { header })
    }

    /// Gives a user a role.
    pub async fn user_grant_role(
        &self,
        caller: &Caller,
        request: pb::AuthUserGrantRoleRequest,
    ) -> Result<pb::AuthUserGrantRoleResponse, ApiError> {
        let header = self.change(caller, Request::AuthUserGrantRole(request)).await?;
        Ok(pb::AuthUserGrantRoleResponse { header })
    }

    /// Takes a role from a user.
    pub async fn user_revoke_role(
        &self,
        caller: &Caller,
        request: pb::AuthUserRevokeRoleRequest,
    ) -> Result<pb::AuthUserRevokeRoleResponse, ApiError> {
        let header = self.change(caller, Request::AuthUserRevokeRole(request)).await?;
        Ok(pb::AuthUserRevokeRoleResponse { header })
    }

    /// Adds a role.
    pub async fn role_add(
        &self,
        caller: &Caller,
        request: pb::AuthRoleAddRequest,
    ) -> Result<pb::AuthRoleAddResponse, ApiError> {
        let header = self.change(caller, Request::AuthRoleAdd(request)).await?;
        Ok(pb::AuthRoleAddResponse { header })
    }

    /// A role's permissions. Everybody may ask about their own roles.
    pub async fn role_get(
        &self,
        caller: &Caller,
        request: pb::AuthRoleGetRequest,
    ) -> Result<pb::AuthRoleGetResponse, ApiError> {
        let store = &self.core.state.auth;
        self.ask(caller, |user| store.has_role(user, &request.role)).await?;
        Ok(pb::AuthRoleGetResponse { header: self.header(), perm: store.permissions_of(&request.role)? })
    }

    /// All roles.
    pub async fn role_list(
        &self,
        caller: &Caller,
        _request: pb::AuthRoleListRequest,
    ) -> Result<pb::AuthRoleListResponse, ApiError> {
        self.ask(caller, |_| false).await?;
        Ok(pb::AuthRoleListResponse { header: self.header(), roles: self.core.state.auth.role_names() })
    }

    /// Removes a role.
    pub async fn role_delete(
        &self,
        caller: &Caller,
        request: pb::AuthRoleDeleteRequest,
    ) -> Result<pb::AuthRoleDeleteResponse, ApiError> {
        let header = self.change(caller, Request::AuthRoleDelete(request)).await?;
        Ok(pb::AuthRoleDeleteResponse { header })
    }

    /// Gives a role a permission.
    pub async fn role_grant_permission(
        &self,
        caller: &Caller,
        request: pb::AuthRoleGrantPermissionRequest,
    ) -> Result<pb::AuthRoleGrantPermissionResponse, ApiError> {
        let header = self.change(caller, Request::AuthRoleGrantPermission(request)).await?;
        Ok(pb::AuthRoleGrantPermissionResponse { header })
    }

    /// Takes a permission from a role.
    pub async fn role_revoke_permission(
        &self,
        caller: &Caller,
        request: pb::AuthRoleRevokePermissionRequest,
    ) -> Result<pb::AuthRoleRevokePermissionResponse, ApiError> {
        let header = self.change(caller, Request::AuthRoleRevokePermission(request)).await?;
        Ok(pb::AuthRoleRevokePermissionResponse { header })
    }

    /// Commits a change of users or roles; the header of its answer.
    async fn change(&self, caller: &Caller, request: Request) -> Result<Option<pb::ResponseHeader>, ApiError> {
        match self.core.propose(caller, request).await? {
            Applied::AuthChanged(mut header) => {
                self.core.headers.complete(&mut header);
                Ok(header)
            }
            other => Err(wrong_outcome("a change of users or roles", &other)),
        }
    }

    /// Waits until an answer from here is up to date, and refuses who may not have it: only admins, and those `may_too`
    /// names.
    async fn ask(&self, caller: &Caller, may_too: impl FnOnce(&str) -> bool) -> Result<(), ApiError> {
        self.core.consensus.read_barrier().await?;
        let Identity { user, .. } = self.core.identify(caller)?;
        match self.core.state.auth.check_admin(&user) {
            Err(ApiError::PermissionDenied) if may_too(&user) => self.core.state.auth.check_user(&user),
            outcome => outcome,
        }
    }

    fn header(&self) -> Option<pb::ResponseHeader> {
        Some(self.core.headers.at(self.core.state.store.revision()))
    }
}
