//! Status, alarms, versions, and what operators do to the backend file and to the cluster.

mod downgrade;
mod snapshot;

use prometheus::Histogram;
use tokio::sync::oneshot;

use crate::{
    apply::Applied,
    error::ApiError,
    metrics::Metrics,
    mvcc::{Callback, KeysHash, MvccError, STORAGE_VERSION, Store},
    proto::{
        etcdserverpb::{self as pb, downgrade_request::DowngradeAction},
        revgatepb::{DowngradeInfoSetRequest, internal_raft_request::Request},
    },
};

use self::downgrade::ClusterVersion;
pub use self::snapshot::SnapshotStream;
use super::{Caller, Core, read_error, wrong_outcome};

/// The etcd version this member behaves as. Clients choose what they may use by it.
pub(super) const SERVER_VERSION: &str = "3.7.1";
/// The lowest version among the members, as etcd reports it: without the patch level.
const CLUSTER_VERSION: ClusterVersion = ClusterVersion { major: 3, minor: 7 };

/// What `/version` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// etcd version this member behaves as.
    pub server: String,
    /// Version all members of the cluster have.
    pub cluster: String,
    /// Version of the storage format.
    pub storage: String,
}

/// Answers the operator. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MaintenanceService {
    core: Core,
    quota_backend_bytes: i64,
    snapshot_duration: Histogram,
}

impl MaintenanceService {
    pub(super) fn new(core: Core, quota_backend_bytes: i64, metrics: &Metrics) -> MaintenanceService {
        let snapshot_duration = metrics.backend_snapshot_duration.clone();
        MaintenanceService { core, quota_backend_bytes, snapshot_duration }
    }

    /// How this member is: of its own knowledge, without asking the cluster.
    pub async fn status(&self, caller: &Caller, _request: pb::StatusRequest) -> Result<pb::StatusResponse, ApiError> {
        self.core.require_user(caller)?;
        let Core { state, consensus, headers, .. } = &self.core;
        let raft = consensus.status();
        let mut errors = Vec::new();
        if raft.leader == 0 {
            errors.push(ApiError::NoLeader.to_string());
        }
        errors.extend(state.alarms.list().iter().map(alarm_text));
        let downgrade = state.members.downgrade();
        let local = state.members.local_id();
        let is_learner = state.members.get(local).is_some_and(|member| member.is_learner);
        Ok(pb::StatusResponse {
            header: Some(headers.at(state.store.revision())),
            version: SERVER_VERSION.into(),
            db_size: wire_size(state.store.db_size_bytes()),
            leader: raft.leader,
            raft_index: raft.committed,
            raft_term: raft.term,
            raft_applied_index: raft.applied,
            errors,
            db_size_in_use: wire_size(state.store.db_size_in_use_bytes()),
            is_learner,
            storage_version: STORAGE_VERSION.into(),
            db_size_quota: self.quota_backend_bytes,
            downgrade_info: Some(pb::DowngradeInfo {
                enabled: downgrade.enabled,
                target_version: downgrade.target_version,
            }),
        })
    }

    /// Lists, raises or clears alarms; all three through the log, as etcd does.
    pub async fn alarm(&self, caller: &Caller, request: pb::AlarmRequest) -> Result<pb::AlarmResponse, ApiError> {
        match self.core.propose(caller, Request::Alarm(request)).await? {
            Applied::Alarm(mut response) => {
                self.core.headers.complete(&mut response.header);
                Ok(response)
            }
            other => Err(wrong_outcome("alarm", &other)),
        }
    }

    /// Gives the backend file's unused room back.
    pub async fn defragment(
        &self,
        caller: &Caller,
        _request: pb::DefragmentRequest,
    ) -> Result<pb::DefragmentResponse, ApiError> {
        self.core.require_admin(caller)?;
        done(&self.core.state.store, Store::defragment).await?.map_err(defragment_error)?;
        // etcd leaves the header out.
        Ok(pb::DefragmentResponse::default())
    }

    /// A hash of everything in the backend file.
    pub async fn hash(&self, caller: &Caller, _request: pb::HashRequest) -> Result<pb::HashResponse, ApiError> {
        self.core.require_admin(caller)?;
        self.flush().await?;
        let store = self.core.state.store.clone();
        let hash = blocking(move || store.hash_file()).await?;
        Ok(pb::HashResponse { header: Some(self.core.headers.at(self.core.state.store.revision())), hash })
    }

    /// A hash of the keys' history up to a revision, by which members, and programs, can be compared.
    pub async fn hash_kv(&self, caller: &Caller, request: pb::HashKvRequest) -> Result<pb::HashKvResponse, ApiError> {
        self.core.require_admin(caller)?;
        let store = self.core.state.store.clone();
        let KeysHash { hash, compact_revision, revision, store_revision } =
            blocking(move || store.hash_keys(request.revision)).await?;
        let header = Some(self.core.headers.at(store_revision));
        Ok(pb::HashKvResponse { header, hash, compact_revision, hash_revision: revision })
    }

    /// A copy of the backend file with everything that was acknowledged before.
    pub async fn snapshot(&self, caller: &Caller, _request: pb::SnapshotRequest) -> Result<SnapshotStream, ApiError> {
        self.core.require_admin(caller)?;
        self.flush().await?;
        let tx = self.core.state.store.pin_file().map_err(read_error)?;
        Ok(SnapshotStream::new(tx, self.snapshot_duration.clone()))
    }

    /// Hands leadership to another member: there is none that could take it, so only who leads already is a good target.
    pub async fn move_leader(
        &self,
        caller: &Caller,
        request: pb::MoveLeaderRequest,
    ) -> Result<pb::MoveLeaderResponse, ApiError> {
        self.core.require_admin(caller)?;
        if !self.core.consensus.status().is_leader {
            return Err(ApiError::NotLeader);
        }
        if request.target_id != self.core.state.members.local_id() {
            return Err(ApiError::BadLeaderTransferee);
        }
        // etcd leaves the header out.
        Ok(pb::MoveLeaderResponse::default())
    }

    /// Asks whether the cluster may go down to a version, begins that, or calls it off.
    pub async fn downgrade(
        &self,
        caller: &Caller,
        request: pb::DowngradeRequest,
    ) -> Result<pb::DowngradeResponse, ApiError> {
        self.core.require_admin(caller)?;
        match DowngradeAction::try_from(request.action) {
            Ok(DowngradeAction::Validate) => _ = self.downgrade_target(&request.version).await?,
            Ok(DowngradeAction::Enable) => {
                let target = self.downgrade_target(&request.version).await?;
                self.set_downgrade(caller, true, format!("{target}.0")).await?;
            }
            Ok(DowngradeAction::Cancel) => {
                self.core.consensus.read_barrier().await?;
                // Without one etcd only says so in its log.
                if self.core.state.members.downgrade().enabled {
                    self.set_downgrade(caller, false, String::new()).await?;
                }
            }
            Err(_) => return Err(ApiError::UnknownMethod),
        }
        let header = Some(self.core.headers.at(self.core.state.store.revision()));
        Ok(pb::DowngradeResponse { header, version: CLUSTER_VERSION.to_string() })
    }

    async fn downgrade_target(&self, version: &str) -> Result<ClusterVersion, ApiError> {
        let target = ClusterVersion::parse(version)?;
        self.core.consensus.read_barrier().await?;
        target.check_target_of(CLUSTER_VERSION)?;
        if self.core.state.members.downgrade().enabled {
            return Err(ApiError::DowngradeInProgress);
        }
        Ok(target)
    }

    async fn set_downgrade(&self, caller: &Caller, enabled: bool, ver: String) -> Result<(), ApiError> {
        let request = Request::DowngradeInfoSet(DowngradeInfoSetRequest { enabled, ver });
        match self.core.propose(caller, request).await? {
            Applied::Downgrade => Ok(()),
            other => Err(wrong_outcome("downgrade", &other)),
        }
    }

    /// Everything that is applied is in the file once this returns.
    async fn flush(&self) -> Result<(), ApiError> {
        done(&self.core.state.store, Store::flush).await?.map_err(read_error)
    }

    /// The versions this member goes by.
    pub fn versions(&self) -> Versions {
        Versions {
            server: SERVER_VERSION.into(),
            cluster: format!("{CLUSTER_VERSION}.0"),
            storage: STORAGE_VERSION.into(),
        }
    }
}

/// Asks something of the store's thread, and waits until it is done.
async fn done(store: &Store, ask: fn(&Store, Callback)) -> Result<Result<(), MvccError>, ApiError> {
    let (sender, receiver) = oneshot::channel();
    ask(
        store,
        Box::new(move |result| {
            // A client that has gone away does not wait for it.
            let _ = sender.send(result.map(drop));
        }),
    );
    receiver.await.map_err(|_| ApiError::Stopped)
}

/// Something that takes long, on a thread where it keeps nobody waiting.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MvccError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(read_error),
        Err(error) => Err(ApiError::Internal(error.to_string())),
    }
}

fn defragment_error(error: MvccError) -> ApiError {
    match error {
        MvccError::Closed => ApiError::Stopped,
        MvccError::Busy => ApiError::BackendBusy,
        error => ApiError::DefragmentFailed(error.to_string()),
    }
}

/// An alarm as the status of etcd 3.7 spells it. (Before, there was a blank at the end.)
fn alarm_text(alarm: &pb::AlarmMember) -> String {
    let kind = match alarm.alarm() {
        pb::AlarmType::None => return format!("memberID:{}", alarm.member_id),
        kind => kind.as_str_name(),
    };
    format!("memberID:{} alarm:{kind}", alarm.member_id)
}

fn wire_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_spelled_as_etcd_spells_them() {
        let nospace = pb::AlarmMember { member_id: 5, alarm: pb::AlarmType::Nospace as i32 };
        assert_eq!(alarm_text(&nospace), "memberID:5 alarm:NOSPACE");
        let corrupt = pb::AlarmMember { member_id: 7, alarm: pb::AlarmType::Corrupt as i32 };
        assert_eq!(alarm_text(&corrupt), "memberID:7 alarm:CORRUPT");
    }
}
