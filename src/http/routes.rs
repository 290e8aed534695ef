//! The table of the API's paths: which gRPC method each stands for, and how it is called.
//!
//! All are POST with the request as JSON body. The table is data, so that documents and tests can be checked against it.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use super::meter::Meter;
use crate::metrics::Metrics;

/// What a route calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Range,
    Put,
    DeleteRange,
    Txn,
    Compact,
    Watch,
    LeaseGrant,
    LeaseRevoke,
    LeaseKeepAlive,
    LeaseTimeToLive,
    LeaseLeases,
    MemberList,
    MemberAdd,
    MemberUpdate,
    MemberRemove,
    MemberPromote,
    Status,
    Alarm,
    AuthEnable,
    AuthDisable,
    AuthStatus,
    Authenticate,
    UserAdd,
    UserGet,
    UserList,
    UserDelete,
    UserChangePassword,
    UserGrantRole,
    UserRevokeRole,
    RoleAdd,
    RoleGet,
    RoleList,
    RoleDelete,
    RoleGrantPermission,
    RoleRevokePermission,
    Defragment,
    Hash,
    HashKv,
    Snapshot,
    MoveLeader,
    Downgrade,
    Lock,
    Unlock,
    Campaign,
    Proclaim,
    Leader,
    Observe,
    Resign,
}

/// One method with its paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// What it calls.
    pub(super) method: Method,
    /// Its paths; the first is the one metrics name.
    pub(super) paths: &'static [&'static str],
    /// The gRPC service.
    pub(super) service: &'static str,
    /// The gRPC method.
    pub(super) name: &'static str,
}

/// Every route.
pub(super) const ROUTES: &[Route] = &[
    kv(Method::Range, &["/v3/kv/range"], "Range"),
    kv(Method::Put, &["/v3/kv/put"], "Put"),
    kv(Method::DeleteRange, &["/v3/kv/deleterange"], "DeleteRange"),
    kv(Method::Txn, &["/v3/kv/txn"], "Txn"),
    kv(Method::Compact, &["/v3/kv/compaction"], "Compact"),
    Route { method: Method::Watch, paths: &["/v3/watch"], service: "etcdserverpb.Watch", name: "Watch" },
    lease(Method::LeaseGrant, &["/v3/lease/grant"], "LeaseGrant"),
    lease(Method::LeaseRevoke, &["/v3/lease/revoke", "/v3/kv/lease/revoke"], "LeaseRevoke"),
    lease(Method::LeaseKeepAlive, &["/v3/lease/keepalive"], "LeaseKeepAlive"),
    lease(Method::LeaseTimeToLive, &["/v3/lease/timetolive", "/v3/kv/lease/timetolive"], "LeaseTimeToLive"),
    lease(Method::LeaseLeases, &["/v3/lease/leases", "/v3/kv/lease/leases"], "LeaseLeases"),
    cluster(Method::MemberList, &["/v3/cluster/member/list"], "MemberList"),
    cluster(Method::MemberAdd, &["/v3/cluster/member/add"], "MemberAdd"),
    cluster(Method::MemberUpdate, &["/v3/cluster/member/update"], "MemberUpdate"),
    cluster(Method::MemberRemove, &["/v3/cluster/member/remove"], "MemberRemove"),
    cluster(Method::MemberPromote, &["/v3/cluster/member/promote"], "MemberPromote"),
    maintenance(Method::Status, &["/v3/maintenance/status"], "Status"),
    maintenance(Method::Alarm, &["/v3/maintenance/alarm"], "Alarm"),
    auth(Method::AuthEnable, &["/v3/auth/enable"], "AuthEnable"),
    auth(Method::AuthDisable, &["/v3/auth/disable"], "AuthDisable"),
    auth(Method::AuthStatus, &["/v3/auth/status"], "AuthStatus"),
    auth(Method::Authenticate, &["/v3/auth/authenticate"], "Authenticate"),
    auth(Method::UserAdd, &["/v3/auth/user/add"], "UserAdd"),
    auth(Method::UserGet, &["/v3/auth/user/get"], "UserGet"),
    auth(Method::UserList, &["/v3/auth/user/list"], "UserList"),
    auth(Method::UserDelete, &["/v3/auth/user/delete"], "UserDelete"),
    auth(Method::UserChangePassword, &["/v3/auth/user/changepw"], "UserChangePassword"),
    auth(Method::UserGrantRole, &["/v3/auth/user/grant"], "UserGrantRole"),
    auth(Method::UserRevokeRole, &["/v3/auth/user/revoke"], "UserRevokeRole"),
    auth(Method::RoleAdd, &["/v3/auth/role/add"], "RoleAdd"),
    auth(Method::RoleGet, &["/v3/auth/role/get"], "RoleGet"),
    auth(Method::RoleList, &["/v3/auth/role/list"], "RoleList"),
    auth(Method::RoleDelete, &["/v3/auth/role/delete"], "RoleDelete"),
    auth(Method::RoleGrantPermission, &["/v3/auth/role/grant"], "RoleGrantPermission"),
    auth(Method::RoleRevokePermission, &["/v3/auth/role/revoke"], "RoleRevokePermission"),
    maintenance(Method::Defragment, &["/v3/maintenance/defragment"], "Defragment"),
    maintenance(Method::Hash, &["/v3/maintenance/hash"], "Hash"),
    maintenance(Method::HashKv, &["/v3/maintenance/hashkv"], "HashKV"),
    maintenance(Method::Snapshot, &["/v3/maintenance/snapshot"], "Snapshot"),
    maintenance(Method::MoveLeader, &["/v3/maintenance/transfer-leadership"], "MoveLeader"),
    maintenance(Method::Downgrade, &["/v3/maintenance/downgrade"], "Downgrade"),
    lock(Method::Lock, &["/v3/lock/lock"], "Lock"),
    lock(Method::Unlock, &["/v3/lock/unlock"], "Unlock"),
    election(Method::Campaign, &["/v3/election/campaign"], "Campaign"),
    election(Method::Proclaim, &["/v3/election/proclaim"], "Proclaim"),
    election(Method::Leader, &["/v3/election/leader"], "Leader"),
    election(Method::Observe, &["/v3/election/observe"], "Observe"),
    election(Method::Resign, &["/v3/election/resign"], "Resign"),
];

const fn kv(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "etcdserverpb.KV", name }
}

const fn lease(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "etcdserverpb.Lease", name }
}

const fn cluster(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "etcdserverpb.Cluster", name }
}

const fn maintenance(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "etcdserverpb.Maintenance", name }
}

const fn auth(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "etcdserverpb.Auth", name }
}

const fn lock(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "v3lockpb.Lock", name }
}

const fn election(method: Method, paths: &'static [&'static str], name: &'static str) -> Route {
    Route { method, paths, service: "v3electionpb.Election", name }
}

impl Method {
    /// Whether one request is answered with a stream of messages.
    pub(super) fn is_server_stream(self) -> bool {
        matches!(self, Method::Observe | Method::Snapshot)
    }

    /// Whether a call waits for other clients, for as long as its own is there.
    pub(super) fn may_wait(self) -> bool {
        matches!(self, Method::Lock | Method::Campaign)
    }

    /// The gRPC kind of call, as metrics name it.
    fn kind(self) -> &'static str {
        match self {
            Method::Watch | Method::LeaseKeepAlive => "bidi_stream",
            _ if self.is_server_stream() => "server_stream",
            _ => "unary",
        }
    }
}

/// The routes by path, each with its meter.
#[derive(Debug)]
pub(super) struct Router {
    by_path: HashMap<&'static str, (Method, Arc<Meter>)>,
}

impl Router {
    /// Resolves every route's metrics.
    pub(super) fn new(metrics: &Metrics) -> Router {
        let mut by_path = HashMap::new();
        for route in ROUTES {
            let template = route.paths.first().copied().unwrap_or_default();
            let meter = Arc::new(Meter::of_rpc(template, route.method.kind(), route.service, route.name, metrics));
            by_path.extend(route.paths.iter().map(|path| (*path, (route.method, Arc::clone(&meter)))));
        }
        Router { by_path }
    }

    /// What `path` calls.
    pub(super) fn find(&self, path: &str) -> Option<(Method, &Arc<Meter>)> {
        self.by_path.get(path).map(|(method, meter)| (*method, meter))
    }
}

/// Old clients say `/v3beta/`.
pub(super) fn current_path(path: &str) -> Cow<'_, str> {
    if path.contains("/v3beta/") { path.replacen("/v3beta/", "/v3/", 1).into() } else { path.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn paths_are_unique_and_aliases_call_the_same() {
        let router = Router::new(&Metrics::new());
        assert_eq!(router.by_path.len(), ROUTES.iter().map(|route| route.paths.len()).sum::<usize>());
        for (alias, path) in [
            ("/v3/kv/lease/revoke", "/v3/lease/revoke"),
            ("/v3/kv/lease/timetolive", "/v3/lease/timetolive"),
            ("/v3/kv/lease/leases", "/v3/lease/leases"),
        ] {
            assert_eq!(router.find(alias).unwrap().0, router.find(path).unwrap().0);
        }
        assert!(router.find("/v3/kv/lease/grant").is_none());
        assert!(router.find("/v3/kv/range/").is_none());
    }

    #[test]
    fn the_beta_prefix_is_rewritten_once() {
        assert_eq!(current_path("/v3beta/kv/put"), "/v3/kv/put");
        assert_eq!(current_path("/v3beta/v3beta/kv/put"), "/v3/v3beta/kv/put");
        assert_eq!(current_path("/v3/kv/put"), "/v3/kv/put");
        assert_eq!(current_path("/v3alpha/kv/put"), "/v3alpha/kv/put");
    }
    #[test]
    fn kinds_are_those_of_the_schema() {
        for route in ROUTES {
            let rpc = crate::http::openapi::document::rpc(route);
            let kind = match (rpc.is_client_streaming(), rpc.is_server_streaming()) {
                (false, false) => "unary",
                (false, true) => "server_stream",
                (true, false) => "client_stream",
                (true, true) => "bidi_stream",
            };
            assert_eq!(route.method.kind(), kind, "{}/{}", route.service, route.name);
        }
    }
}
