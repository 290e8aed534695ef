//! The members of the cluster.
//!
//! Until members can reach each other a cluster has one member that votes. Learners can be added, changed and removed:
//! they are known, but nothing is sent to them, so none of them is ever ready to be promoted.

mod peer_urls;

use crate::{
    apply::Applied,
    clock::{Clock, SystemClock},
    error::ApiError,
    members::{self, Member},
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

use super::{Caller, Core, wrong_outcome};

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
        self.core.require_user(caller)?;
        if request.linearizable {
            self.core.consensus.read_barrier().await?;
        }
        let members = self.core.state.members.list().into_iter().map(wire_member).collect();
        Ok(pb::MemberListResponse { header: self.header(), members })
    }

    /// Adds a learner. Its id follows from its addresses and the time.
    pub async fn member_add(
        &self,
        caller: &Caller,
        request: pb::MemberAddRequest,
    ) -> Result<pb::MemberAddResponse, ApiError> {
        self.core.require_admin(caller)?;
        let mut peer_urls = peer_urls::checked(&request.peer_ur_ls)?;
        // Here etcd puts them in order, and on a change of them it does not.
        peer_urls.sort_unstable();
        if !request.is_learner {
            return Err(ApiError::SeveralVotersUnsupported);
        }
        let id = members::added_member_id(&peer_urls, "", SystemClock::new().unix_time().as_secs());
        let member = pb::Member { id, peer_ur_ls: peer_urls, is_learner: true, ..Default::default() };
        let members = self.change(caller, Request::MemberAdd(member.clone())).await?;
        Ok(pb::MemberAddResponse { header: self.header(), member: Some(member), members })
    }

    /// Gives a member other addresses.
    pub async fn member_update(
        &self,
        caller: &Caller,
        mut request: pb::MemberUpdateRequest,
    ) -> Result<pb::MemberUpdateResponse, ApiError> {
        self.core.require_admin(caller)?;
        // etcd takes whatever it is given here, and cannot start again with some of it.
        request.peer_ur_ls = peer_urls::checked(&request.peer_ur_ls)?;
        let members = self.change(caller, Request::MemberUpdate(request)).await?;
        Ok(pb::MemberUpdateResponse { header: self.header(), members })
    }

    /// Removes a member for good.
    pub async fn member_remove(
        &self,
        caller: &Caller,
        request: pb::MemberRemoveRequest,
    ) -> Result<pb::MemberRemoveResponse, ApiError> {
        self.core.require_admin(caller)?;
        self.core.state.members.check_removable(request.id)?;
        let members = self.change(caller, Request::MemberRemove(request)).await?;
        Ok(pb::MemberRemoveResponse { header: self.header(), members })
    }

    /// Makes a learner vote: refused, since no learner here can be in sync with the leader.
    pub async fn member_promote(
        &self,
        caller: &Caller,
        request: pb::MemberPromoteRequest,
    ) -> Result<pb::MemberPromoteResponse, ApiError> {
        self.core.require_admin(caller)?;
        self.core.consensus.read_barrier().await?;
        Err(match self.core.state.members.get(request.id) {
            None => ApiError::MemberNotFound,
            Some(member) if member.is_learner => ApiError::LearnerNotReady,
            Some(_) => ApiError::MemberNotLearner,
        })
    }

    /// Commits a change; all members after it.
    async fn change(&self, caller: &Caller, change: Request) -> Result<Vec<pb::Member>, ApiError> {
        match self.core.propose(caller, change).await? {
            Applied::Members(members) => Ok(members.into_iter().map(wire_member).collect()),
            other => Err(wrong_outcome("a change of the members", &other)),
        }
    }

    /// Membership has no revision of its own: etcd leaves it out of these headers.
    fn header(&self) -> Option<pb::ResponseHeader> {
        Some(self.core.headers.at(0))
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
