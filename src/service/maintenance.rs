//! Status, alarms and versions.

use crate::{
    apply::Applied,
    error::ApiError,
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

use super::{Caller, Core, wrong_outcome};

/// The etcd version this member behaves as. Clients choose what they may use by it.
pub(super) const SERVER_VERSION: &str = "3.7.1";
/// The lowest version among the members, as etcd reports it: without the patch level.
const CLUSTER_VERSION: &str = "3.7.0";
/// The version of what is in the file.
const STORAGE_VERSION: &str = "3.7.0";

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
}

impl MaintenanceService {
    pub(super) fn new(core: Core, quota_backend_bytes: i64) -> MaintenanceService {
        MaintenanceService { core, quota_backend_bytes }
    }

    /// How this member is: of its own knowledge, without asking the cluster.
    pub async fn status(&self, caller: &Caller, _request: pb::StatusRequest) -> Result<pb::StatusResponse, ApiError> {
        self.core.require_user(caller)?;
        let Core { state, consensus, headers } = &self.core;
        let raft = consensus.status();
        let mut errors = Vec::new();
        if raft.leader == 0 {
            errors.push(ApiError::NoLeader.to_string());
        }
        errors.extend(state.alarms.list().iter().map(alarm_text));
        let local = state.members.local_id();
        let is_learner = state.members.list().iter().any(|member| member.id == local && member.is_learner);
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
            downgrade_info: Some(pb::DowngradeInfo::default()),
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

    /// The versions this member goes by.
    pub fn versions(&self) -> Versions {
        Versions { server: SERVER_VERSION.into(), cluster: CLUSTER_VERSION.into(), storage: STORAGE_VERSION.into() }
    }
}

/// An alarm as etcd's status spells it, with the blank at the end: tools match on it.
fn alarm_text(alarm: &pb::AlarmMember) -> String {
    let kind = match alarm.alarm() {
        pb::AlarmType::None => return format!("memberID:{} ", alarm.member_id),
        kind => kind.as_str_name(),
    };
    format!("memberID:{} alarm:{kind} ", alarm.member_id)
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
        assert_eq!(alarm_text(&nospace), "memberID:5 alarm:NOSPACE ");
        let corrupt = pb::AlarmMember { member_id: 7, alarm: pb::AlarmType::Corrupt as i32 };
        assert_eq!(alarm_text(&corrupt), "memberID:7 alarm:CORRUPT ");
    }
}
