//! Making a file ready for a member that begins anew with it: its keys, history, leases and users stay; what tied it to
//! its old log and cluster goes. Optionally revisions jump ahead, so that clients that saw more than the file holds
//! never see a revision twice; the way of etcd's `etcdutl snapshot restore`.

use super::super::{MvccError, Revision, buckets, restore};
use crate::bolt;

/// In bucket `meta`: the voters of the cluster the file comes from.
const CONF_STATE: &[u8] = b"confState";

/// By how much revisions jump ahead. All revisions up to there count as compacted: watches that want to go on from one
/// of them are told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bump {
    /// Revisions; more than 0.
    pub revisions: i64,
}

/// What the file holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reborn {
    /// The newest revision before.
    pub revision: i64,
    /// The newest revision now.
    pub revision_now: i64,
}

/// Rewrites the marks, in one commit. The alarms stay, as with etcd: why they were raised may still hold.
pub fn rebirth(db: &bolt::Db, bump: Option<Bump>) -> Result<Reborn, MvccError> {
    restore::prepare(db)?;
    let tx = db.read()?;
    let revision = newest(&tx)?;
    let mut stale: Vec<(&'static [u8], Vec<u8>)> = Vec::new();
    for bucket in [buckets::MEMBERS, buckets::MEMBERS_REMOVED] {
        stale.extend(names(&tx, bucket)?.into_iter().map(|name| (bucket, name)));
    }
    drop(tx);
    let mut tx = db.write()?;
    for name in [buckets::CONSISTENT_INDEX, buckets::TERM, CONF_STATE] {
        tx.delete(buckets::META, name)?;
    }
    for (bucket, name) in &stale {
        tx.delete(bucket, name)?;
    }
    let mut revision_now = revision;
    if let Some(bump) = bump {
        revision_now = revision.checked_add(bump.revisions).filter(|_| bump.revisions > 0).ok_or_else(|| {
            let what = format!("{revision} cannot jump ahead by {}", bump.revisions);
            MvccError::damaged(Revision { main: revision, sub: 0 }, what)
        })?;
        // A revision without a change, and the mark of a compaction that is still to be done: both as etcdutl writes
        // them, so that the same bump gives the same hash of the keys.
        let at = Revision { main: revision_now, sub: 0 }.encode();
        tx.put(buckets::KEY, &at, &[])?;
        tx.put(buckets::META, buckets::SCHEDULED_COMPACTION, &at)?;
    }
    tx.commit()?;
    Ok(Reborn { revision, revision_now })
}

/// The newest revision, as a member that opens the file finds it.
fn newest(tx: &bolt::ReadTx) -> Result<i64, MvccError> {
    let mut newest = 1;
    if let Some(bucket) = tx.bucket(buckets::KEY)?
        && let Some((name, _)) = bucket.cursor().last()?
    {
        newest = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?.0.main.max(newest);
    }
    for mark in [buckets::SCHEDULED_COMPACTION, buckets::FINISHED_COMPACTION] {
        newest = restore::mark(tx, mark)?.unwrap_or(1).max(newest);
    }
    Ok(newest)
}

fn names(tx: &bolt::ReadTx, bucket: &[u8]) -> Result<Vec<Vec<u8>>, MvccError> {
    let mut names = Vec::new();
    let Some(bucket) = tx.bucket(bucket)? else { return Ok(names) };
    let mut cursor = bucket.cursor();
    let mut pair = cursor.first()?;
    while let Some((name, _)) = pair {
        names.push(name.to_vec());
        pair = cursor.next()?;
    }
    Ok(names)
}
