//! Who this member is. Decided once, by the flags of its first start, and kept with the data from then on.
//!
//! Member and cluster id lie in the bucket `cluster`, under names of our own that etcd does not look at; the member
//! itself lies in `members`, as etcd stores it. Both are written before the store opens, in one commit.

use bytes::Bytes;

use crate::{
    bolt::{BoltError, Db, ReadTx},
    config::Config,
    members::{self, Member, Members},
    mvcc::{BucketWrite, buckets},
};

use super::error::ServerError;

const MEMBER_ID_KEY: &[u8] = b"revgateMemberID";
const CLUSTER_ID_KEY: &[u8] = b"revgateClusterID";

/// The members as stored, with this one brought up to date; stored, if there was none or something changed.
pub(super) fn establish(db: &Db, config: &Config, advertised_urls: &[String]) -> Result<Members, ServerError> {
    let read = db.read()?;
    let stored_pairs = pairs(&read, buckets::MEMBERS)?;
    let removed_pairs = pairs(&read, buckets::MEMBERS_REMOVED)?;
    let cluster_pairs = pairs(&read, buckets::CLUSTER)?;
    let stored_ids = Some((stored_id(&read, MEMBER_ID_KEY)?, stored_id(&read, CLUSTER_ID_KEY)?));
    drop(read);

    let stored = Members::new(0, 0, Vec::new());
    stored.restore(&stored_pairs).map_err(|what| ServerError::damaged_bucket(buckets::MEMBERS, what))?;
    let (local_id, cluster_id, known) = match (stored_ids, &stored.list()[..]) {
        (Some((Some(local_id), Some(cluster_id))), _) => (local_id, cluster_id, true),
        (_, []) => {
            let local_id = members::member_id(&config.initial_advertise_peer_urls, &config.initial_cluster_token);
            (local_id, members::cluster_id(&[local_id]), false)
        }
        // A file that another etcd wrote: of a member alone the ids can be told.
        (_, [only]) => (only.id, members::cluster_id(&[only.id]), false),
        (_, several) => return Err(ServerError::SeveralMembers { count: several.len() }),
    };

    let all = Members::new(cluster_id, local_id, stored.list());
    let damaged = |bucket: &'static [u8]| move |what| ServerError::damaged_bucket(bucket, what);
    all.restore_removed(&removed_pairs).map_err(damaged(buckets::MEMBERS_REMOVED))?;
    all.restore_downgrade(&cluster_pairs).map_err(damaged(buckets::CLUSTER))?;
    all.restore_page_key(&cluster_pairs).map_err(damaged(buckets::CLUSTER))?;
    let before = all.list().into_iter().find(|member| member.id == local_id);
    let now = Member {
        id: local_id,
        name: config.name.clone(),
        // The flag is for the first start: later the cluster knows better, a client may have changed them.
        peer_urls: match &before {
            Some(member) => member.peer_urls.clone(),
            None => config.initial_advertise_peer_urls.clone(),
        },
        client_urls: advertised_urls.to_vec(),
        is_learner: before.as_ref().is_some_and(|member| member.is_learner),
    };
    if !known || before.as_ref() != Some(&now) {
        let member = all.set(now);
        write(db, local_id, cluster_id, member)?;
    }
    Ok(all)
}

/// Makes the file that of a member alone in a new cluster; its id and the cluster's. Who was there before must be gone.
pub(super) fn found(db: &Db, name: &str, peer_urls: &[String], cluster_token: &str) -> Result<(u64, u64), BoltError> {
    let local_id = members::member_id(peer_urls, cluster_token);
    let cluster_id = members::cluster_id(&[local_id]);
    let member = Member {
        id: local_id,
        name: name.to_owned(),
        peer_urls: peer_urls.to_vec(),
        // Where clients find it is known when it starts.
        client_urls: Vec::new(),
        is_learner: false,
    };
    let write_of_it = Members::new(cluster_id, local_id, Vec::new()).set(member);
    write(db, local_id, cluster_id, write_of_it)?;
    Ok((local_id, cluster_id))
}

fn pairs(read: &ReadTx, bucket: &[u8]) -> Result<Vec<(Bytes, Bytes)>, BoltError> {
    let mut pairs = Vec::new();
    if let Some(bucket) = read.bucket(bucket)? {
        let mut cursor = bucket.cursor();
        let mut next = cursor.first()?;
        while let Some((key, value)) = next {
            pairs.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            next = cursor.next()?;
        }
    }
    Ok(pairs)
}

fn stored_id(read: &ReadTx, key: &[u8]) -> Result<Option<u64>, ServerError> {
    let Some(bucket) = read.bucket(buckets::CLUSTER)? else { return Ok(None) };
    let Some(value) = bucket.get(key)? else { return Ok(None) };
    let id = std::str::from_utf8(value).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
    match id {
        Some(id) => Ok(Some(id)),
        None => {
            let what = format!("{} is not an id", String::from_utf8_lossy(key));
            Err(ServerError::damaged_bucket(buckets::CLUSTER, what))
        }
    }
}

fn write(db: &Db, local_id: u64, cluster_id: u64, member: BucketWrite) -> Result<(), BoltError> {
    let mut txn = db.write()?;
    txn.create_bucket_if_missing(buckets::CLUSTER)?;
    txn.put(buckets::CLUSTER, MEMBER_ID_KEY, format!("{local_id:x}").as_bytes())?;
    txn.put(buckets::CLUSTER, CLUSTER_ID_KEY, format!("{cluster_id:x}").as_bytes())?;
    txn.create_bucket_if_missing(member.bucket)?;
    if let Some(value) = &member.value {
        txn.put(member.bucket, &member.key, value)?;
    }
    txn.commit().map(drop)
}
