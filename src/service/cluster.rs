//! The members of the cluster.

use crate::{error::ApiError, members::Member, proto::etcdserverpb as pb};

use super::{Caller, Core};

/// Answers who belongs to the cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClusterService {
    core: Core,
}

impl ClusterService {
    pub(super) fn new(core: Core) -> ClusterService {
        ClusterService { core }
    }

    /// All members, by id. As known here, unless the client asks for a linearizable answer.
    pub async fn member_list(
        &self,
        caller: &Caller,
        request: pb::MemberListRequest,
    ) -> Result<pb::MemberListResponse, ApiError> {
        if request.linearizable {
            self.core.consensus.read_barrier().await?;
        }
        self.core.require_user(caller)?;
        let members = self.core.state.members.list().into_iter().map(wire_member).collect();
        // Membership has no revision of its own: etcd leaves it out of these headers.
        Ok(pb::MemberListResponse { header: Some(self.core.headers.at(0)), members })
    }
}

fn wire_member(member: Member) -> pb::Member {
    pb::Member {
        id: member.id,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.is_learner,
    }
}
