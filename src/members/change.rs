//! Changes of the membership: what is allowed, and what is to be stored. Every member decides alike.

use super::{Member, Members, bucket_key, leading_u64};
use crate::mvcc::{BucketWrite, buckets};

use bytes::Bytes;
use sha1::{Digest, Sha1};
use thiserror::Error;

/// Learners a cluster may have.
pub const LEARNERS_MAX: usize = 1;
/// What bucket `members_removed` holds under each id; etcd's word.
const REMOVED: &[u8] = b"removed";

/// Why a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// There is no such member, or it was removed.
    #[error("there is no such member")]
    NotFound,
    /// Another member has the id.
    #[error("the id is taken")]
    IdExists,
    /// Another member has one of the addresses.
    #[error("a peer URL is taken")]
    PeerUrlExists,
    /// There are [`LEARNERS_MAX`] learners.
    #[error("there are enough learners")]
    TooManyLearners,
    /// Too few voters that have ever started would be left.
    #[error("too few started voters would be left")]
    NotEnoughStarted,
}

/// The id of a member that is added to a running cluster: as [`member_id`](super::member_id), with the time of the
/// addition (seconds since 1970, in decimal) behind the rest, so that an address can be used again.
pub fn added_member_id(peer_urls: &[String], cluster_token: &str, unix_seconds: u64) -> u64 {
    let mut sorted: Vec<&String> = peer_urls.iter().collect();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for url in sorted {
        hash.update(url);
    }
    hash.update(cluster_token);
    hash.update(unix_seconds.to_string());
    leading_u64(hash)
}

impl Members {
    /// Adds a member.
    pub fn add(&self, member: Member) -> Result<BucketWrite, ChangeError> {
        if self.removed.read().contains(&member.id) {
            return Err(ChangeError::NotFound);
        }
        if self.get(member.id).is_some() {
            return Err(ChangeError::IdExists);
        }
        self.check_urls_free(member.id, &member.peer_urls)?;
        let learners = self.by_id.read().values().filter(|other| other.is_learner).count();
        if member.is_learner && learners >= LEARNERS_MAX {
            return Err(ChangeError::TooManyLearners);
        }
        Ok(self.set(member))
    }

    /// Gives a member other addresses.
    pub fn update(&self, id: u64, peer_urls: Vec<String>) -> Result<BucketWrite, ChangeError> {
        let member = self.get(id).ok_or(ChangeError::NotFound)?;
        self.check_urls_free(id, &peer_urls)?;
        Ok(self.set(Member { peer_urls, ..member }))
    }

    /// Removes a member for good: its id never comes back.
    pub fn remove(&self, id: u64) -> Result<Vec<BucketWrite>, ChangeError> {
        self.check_removable(id)?;
        self.by_id.write().remove(&id).ok_or(ChangeError::NotFound)?;
        self.removed.write().insert(id);
        let key = Bytes::from(bucket_key(id));
        Ok(vec![
            BucketWrite { bucket: buckets::MEMBERS, key: key.clone(), value: None },
            BucketWrite { bucket: buckets::MEMBERS_REMOVED, key, value: Some(Bytes::from_static(REMOVED)) },
        ])
    }

    /// Whether the voters that are left without this one can decide anything: a majority of them must have started
    /// once, which is when a member has a name.
    pub fn check_removable(&self, id: u64) -> Result<(), ChangeError> {
        let members = self.by_id.read();
        if members.get(&id).is_some_and(|member| member.is_learner) {
            return Ok(());
        }
        let left = || members.values().filter(|member| !member.is_learner && member.id != id);
        let started = left().filter(|member| !member.name.is_empty()).count();
        if started <= left().count() / 2 { Err(ChangeError::NotEnoughStarted) } else { Ok(()) }
    }

    fn check_urls_free(&self, id: u64, peer_urls: &[String]) -> Result<(), ChangeError> {
        let members = self.by_id.read();
        let mut others = members.values().filter(|member| member.id != id);
        if others.any(|member| member.peer_urls.iter().any(|url| peer_urls.contains(url))) {
            return Err(ChangeError::PeerUrlExists);
        }
        Ok(())
    }
}
