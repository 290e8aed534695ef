//! Carries out what concerns the cluster itself: its members, and the version it goes down to.

use super::{Applied, State};
use crate::{
    error::ApiError,
    members::{Downgrade, Member},
    proto::{
        etcdserverpb::{self as pb, MemberRemoveRequest, MemberUpdateRequest},
        revgatepb::{DowngradeInfoSetRequest, PageKeySetRequest},
    },
};

pub(super) fn add_member(state: &State, member: &pb::Member) -> Result<Applied, ApiError> {
    let member = Member {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_ur_ls.clone(),
        client_urls: member.client_ur_ls.clone(),
        is_learner: member.is_learner,
    };
    state.store.stage(vec![state.members.add(member)?]);
    Ok(Applied::Members(state.members.list()))
}

pub(super) fn update_member(state: &State, request: &MemberUpdateRequest) -> Result<Applied, ApiError> {
    state.store.stage(vec![state.members.update(request.id, request.peer_ur_ls.clone())?]);
    Ok(Applied::Members(state.members.list()))
}

pub(super) fn remove_member(state: &State, request: MemberRemoveRequest) -> Result<Applied, ApiError> {
    state.store.stage(state.members.remove(request.id)?);
    Ok(Applied::Members(state.members.list()))
}

pub(super) fn set_page_key(state: &State, request: &PageKeySetRequest) -> Result<Applied, ApiError> {
    let secret = request.key.as_ref().try_into();
    let secret = secret.map_err(|_| ApiError::Malformed("the key of page tokens has the wrong length".into()))?;
    state.store.stage(state.members.set_page_key(secret).into_iter().collect());
    Ok(Applied::PageKey)
}

pub(super) fn set_downgrade(state: &State, request: &DowngradeInfoSetRequest) -> Applied {
    let target_version = if request.enabled { request.ver.clone() } else { String::new() };
    state.store.stage(vec![state.members.set_downgrade(Downgrade { target_version, enabled: request.enabled })]);
    Applied::Downgrade
}
