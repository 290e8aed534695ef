//! The outermost layer: whether the user in a command's header may do it, and the commands that change users and roles.
//!
//! Permissions are judged here, in log order, so that a command is held against the users and roles it finds. A command
//! without a header is a member's own (a lease that ran out, compaction without being asked) and may do everything. It
//! stands before the quota: what is not permitted is told so, whatever the size.

use std::{sync::Arc, time::Duration};

use prometheus::IntGauge;

use super::{Applied, Failure, State, alarms::Origin, header, permissions, quota::QuotaLayer};
use crate::{
    auth::{AuthStore, Identity},
    error::ApiError,
    lease::Lessor,
    metrics::Metrics,
    mvcc::{BucketWrite, LogPosition, Store},
    proto::{
        etcdserverpb::AuthenticateResponse,
        revgatepb::{InternalAuthenticateRequest, InternalRaftRequest, RequestHeader, internal_raft_request::Request},
    },
};

/// The layer that knows users and roles.
#[derive(Debug)]
pub(super) struct AuthLayer {
    next: QuotaLayer,
    auth: Arc<AuthStore>,
    lessor: Arc<Lessor>,
    store: Store,
    revision: IntGauge,
    /// Part of the tokens that are given out.
    index: u64,
}

impl AuthLayer {
    pub(super) fn new(next: QuotaLayer, state: &State, metrics: &Metrics) -> AuthLayer {
        let layer = AuthLayer {
            next,
            auth: Arc::clone(&state.auth),
            lessor: Arc::clone(&state.lessor),
            store: state.store.clone(),
            revision: metrics.auth_revision.clone(),
            index: 0,
        };
        layer.publish_revision();
        layer
    }

    fn publish_revision(&self) {
        self.revision.set(i64::try_from(self.auth.revision()).unwrap_or(i64::MAX));
    }

    pub(super) fn take_notify_time(&mut self) -> Duration {
        self.next.take_notify_time()
    }

    pub(super) fn begin_entry(&mut self, position: LogPosition) {
        self.index = position.index;
    }

    pub(super) fn apply(&mut self, command: &InternalRaftRequest, request: &Request) -> Result<Applied, Failure> {
        if let Request::Authenticate(asked) = request {
            return Ok(self.authenticate(command.header.as_ref(), asked)?);
        }
        if let Some(header) = &command.header {
            self.check(header, request)?;
        }
        match self.change(request) {
            Some(writes) => {
                self.store.stage(writes?);
                self.publish_revision();
                Ok(Applied::AuthChanged(header(self.store.revision())))
            }
            None => self.next.apply(request, if command.header.is_some() { Origin::Hand } else { Origin::Member }),
        }
    }

    fn check(&self, header: &RequestHeader, request: &Request) -> Result<(), ApiError> {
        let who = || Identity { user: header.username.clone(), revision: header.auth_revision };
        match permissions::kind(request) {
            permissions::Kind::Admin => self.auth.check_admin(&header.username),
            permissions::Kind::User => self.auth.check_user(&header.username),
            permissions::Kind::Keys => permissions::check_command(&self.auth.rights(&who())?, &self.lessor, request),
        }
    }

    fn authenticate(
        &self,
        checked: Option<&RequestHeader>,
        asked: &InternalAuthenticateRequest,
    ) -> Result<Applied, ApiError> {
        let checked_at = checked.map_or(0, |header| header.auth_revision);
        let token = format!("{}.{}", asked.simple_token, self.index);
        self.auth.assign_token(&asked.name, &token, checked_at)?;
        Ok(Applied::Authenticated(AuthenticateResponse { header: header(self.store.revision()), token }))
    }

    /// What a change of users or roles has to store; `None` for every other command.
    fn change(&self, request: &Request) -> Option<Result<Vec<BucketWrite>, ApiError>> {
        let auth = &self.auth;
        Some(match request {
            Request::AuthEnable(_) => auth.enable(),
            Request::AuthDisable(_) => Ok(auth.disable()),
            Request::AuthUserAdd(request) => auth.user_add(request),
            Request::AuthUserDelete(request) => auth.user_delete(request),
            Request::AuthUserChangePassword(request) => auth.user_change_password(request),
            Request::AuthUserGrantRole(request) => auth.user_grant_role(request),
            Request::AuthUserRevokeRole(request) => auth.user_revoke_role(request),
            Request::AuthRoleAdd(request) => auth.role_add(request),
            Request::AuthRoleDelete(request) => auth.role_delete(request),
            Request::AuthRoleGrantPermission(request) => auth.role_grant_permission(request),
            Request::AuthRoleRevokePermission(request) => auth.role_revoke_permission(request),
            _ => return None,
        })
    }
}
