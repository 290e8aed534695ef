//! Response headers: which cluster and member answered, in which term, at which revision.

use crate::{consensus::Consensus, members::Members, proto::etcdserverpb::ResponseHeader};

/// Makes headers of one member.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    cluster_id: u64,
    member_id: u64,
    consensus: Consensus,
}

impl Headers {
    pub(super) fn new(members: &Members, consensus: Consensus) -> Headers {
        Headers { cluster_id: members.cluster_id(), member_id: members.local_id(), consensus }
    }

    /// A header at a revision; 0 for answers that carry none.
    pub(super) fn at(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision,
            raft_term: self.consensus.status().term,
        }
    }

    /// Completes a header of the state machine's, which knows the revision only.
    pub(super) fn complete(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.as_ref().map_or(0, |header| header.revision);
        *header = Some(self.at(revision));
    }
}
