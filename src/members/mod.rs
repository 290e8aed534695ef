//! Who belongs to the cluster. SKELETON: the signatures below are the contract.
#![allow(missing_docs, unused, clippy::all)]

use bytes::Bytes;

use crate::mvcc::BucketWrite;

/// A member as the `members` bucket stores it (JSON with etcd's field names: id, peerURLs, isLearner, name, clientURLs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub is_learner: bool,
}

/// First 8 bytes (BE) of SHA-1(sorted peer URLs concatenated + cluster token).
pub fn member_id(peer_urls: &[String], cluster_token: &str) -> u64 {
    todo!()
}
/// First 8 bytes (BE) of SHA-1(the initial member ids, sorted, 8 bytes BE each).
pub fn cluster_id(member_ids: &[u64]) -> u64 {
    todo!()
}

/// The members of this cluster. Thread-safe.
#[derive(Debug)]
pub struct Members {
    _p: (),
}

impl Members {
    pub fn new(cluster_id: u64, local_id: u64, initial: Vec<Member>) -> Members {
        todo!()
    }
    /// Replaces what is known by what the `members` bucket holds, if it holds any.
    pub fn restore(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        todo!()
    }
    pub fn cluster_id(&self) -> u64 {
        todo!()
    }
    pub fn local_id(&self) -> u64 {
        todo!()
    }
    /// Sorted by id.
    pub fn list(&self) -> Vec<Member> {
        todo!()
    }
    /// Adds or replaces a member; what to store.
    pub fn set(&self, member: Member) -> BucketWrite {
        todo!()
    }
}
