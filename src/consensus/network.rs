//! Peers, of which there are none yet: every call says that its target cannot be reached.
//!
//! The peer transport comes with the issue on clusters. Until then a membership with a second voter cannot be made, so
//! nothing here is called; were it called, an unreachable peer is what Raft copes with.

use std::future::Future;

use openraft::{
    EmptyNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2, Snapshot,
    errors::{RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
        VoteRequest, VoteResponse,
    },
};

use super::types::{CommittedLeaderId, TypeConfig, Vote};

/// Makes connections that do not connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoPeers;

/// A peer that cannot be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreachablePeer {
    target: u64,
}

impl UnreachablePeer {
    fn error(self) -> Unreachable<TypeConfig> {
        Unreachable::from_string(format!("member {:x} cannot be reached: there is no peer transport", self.target))
    }
}

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = UnreachablePeer;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> UnreachablePeer {
        UnreachablePeer { target }
    }
}

impl RaftNetworkV2<TypeConfig> for UnreachablePeer {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.error().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.error().into())
    }

    // The library's default grants.
    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.error().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot<CommittedLeaderId, u64, EmptyNode, ()>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(self.error().into())
    }

    async fn transfer_leader(
        &mut self,
        _request: TransferLeaderRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(self.error().into())
    }
}
