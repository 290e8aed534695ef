//! Who belongs to the cluster: ids, names and addresses of its members, as the `members` bucket stores them.
//!
//! Ids are made as etcd makes them, so that a data dir keeps its identity whichever program opens it. Must never know:
//! who leads, who asks for a change, the network.

mod change;
mod downgrade;
mod page_key;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use parking_lot::RwLock;
use serde::{Deserialize, Deserializer, Serialize};
use sha1::{Digest, Sha1};

use crate::mvcc::{BucketWrite, buckets};

pub use self::{
    change::{ChangeError, LEARNERS_MAX, added_member_id},
    downgrade::Downgrade,
    page_key::PAGE_KEY_BYTES,
};

/// A member as the `members` bucket stores it (JSON with etcd's field names: id, peerURLs, isLearner, name, clientURLs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Identity; see [`member_id`].
    pub id: u64,
    /// Where its peers reach it.
    #[serde(rename = "peerURLs", default, deserialize_with = "null_as_default")]
    pub peer_urls: Vec<String>,
    /// Whether it only follows and does not vote.
    #[serde(rename = "isLearner", default, deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub is_learner: bool,
    /// The name it was given; empty until it has started once.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where clients reach it.
    #[serde(
        rename = "clientURLs",
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub client_urls: Vec<String>,
}

/// First 8 bytes (BE) of SHA-1(sorted peer URLs concatenated + cluster token).
pub fn member_id(peer_urls: &[String], cluster_token: &str) -> u64 {
    let mut sorted: Vec<&String> = peer_urls.iter().collect();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for url in sorted {
        hash.update(url);
    }
    hash.update(cluster_token);
    leading_u64(hash)
}

/// First 8 bytes (BE) of SHA-1(the initial member ids, sorted, 8 bytes BE each).
pub fn cluster_id(member_ids: &[u64]) -> u64 {
    let mut sorted = member_ids.to_vec();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for id in sorted {
        hash.update(id.to_be_bytes());
    }
    leading_u64(hash)
}

/// The members of this cluster. Thread-safe.
#[derive(Debug)]
pub struct Members {
    cluster_id: u64,
    local_id: u64,
    by_id: RwLock<BTreeMap<u64, Member>>,
    removed: RwLock<BTreeSet<u64>>,
    downgrade: RwLock<Downgrade>,
    page_key: RwLock<Option<[u8; PAGE_KEY_BYTES]>>,
}

impl Members {
    /// The members the configuration names.
    pub fn new(cluster_id: u64, local_id: u64, initial: Vec<Member>) -> Members {
        let by_id = RwLock::new(initial.into_iter().map(|m| (m.id, m)).collect());
        Members {
            cluster_id,
            local_id,
            by_id,
            removed: RwLock::default(),
            downgrade: RwLock::default(),
            page_key: RwLock::default(),
        }
    }

    /// Replaces what is known by what the `members` bucket holds, if it holds any. An error names the record that cannot
    /// be read, and then nothing has changed.
    pub fn restore(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        let members = stored.iter().map(|(key, value)| decode(key, value)).collect::<Result<Vec<_>, _>>()?;
        if !members.is_empty() {
            *self.by_id.write() = members.into_iter().map(|m| (m.id, m)).collect();
        }
        Ok(())
    }

    /// Takes the ids of members that were removed from what bucket `members_removed` holds.
    pub fn restore_removed(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        let id = |key: &Bytes| std::str::from_utf8(key).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let ids = stored.iter().map(|(key, _)| {
            id(key).ok_or_else(|| format!("members_removed bucket: {} is not an id", key.escape_ascii()))
        });
        *self.removed.write() = ids.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The cluster's identity.
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// This member's identity.
    pub fn local_id(&self) -> u64 {
        self.local_id
    }

    /// Sorted by id.
    pub fn list(&self) -> Vec<Member> {
        self.by_id.read().values().cloned().collect()
    }

    /// A member.
    pub fn get(&self, id: u64) -> Option<Member> {
        self.by_id.read().get(&id).cloned()
    }

    /// Adds or replaces a member; what to store.
    pub fn set(&self, member: Member) -> BucketWrite {
        let json = serde_json::to_vec(&member).expect("numbers, strings and lists of them always have a JSON form");
        let key = bucket_key(member.id);
        self.by_id.write().insert(member.id, member);
        BucketWrite { bucket: buckets::MEMBERS, key: key.into(), value: Some(json.into()) }
    }
}

/// What is wrong with a pair of a bucket of this room's, if something is. Pairs of other buckets are not looked at.
pub fn check_record(bucket: &[u8], key: &[u8], value: &[u8]) -> Result<(), String> {
    match bucket {
        buckets::MEMBERS => decode(key, value).map(drop),
        buckets::MEMBERS_REMOVED => {
            let stored = [(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))];
            Members::new(0, 0, Vec::new()).restore_removed(&stored)
        }
        _ => Ok(()),
    }
}

/// etcd writes ids as hexadecimal text, lower-case, without leading zeros.
fn bucket_key(id: u64) -> String {
    format!("{id:x}")
}

fn decode(key: &[u8], value: &[u8]) -> Result<Member, String> {
    let shown = key.escape_ascii();
    let member: Member =
        serde_json::from_slice(value).map_err(|e| format!("members bucket: record of member {shown}: {e}"))?;
    if bucket_key(member.id).as_bytes() != key {
        return Err(format!("members bucket: record of member {shown} is about member {:x}", member.id));
    }
    Ok(member)
}

fn leading_u64(hash: Sha1) -> u64 {
    let digest: [u8; 20] = hash.finalize().into();
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(head)
}

/// Go's encoder writes `null` for a list that was never filled.
fn null_as_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
