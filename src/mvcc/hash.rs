//! Hashes by which members compare what they hold: of the whole file, and of the keys' history up to a revision.
//!
//! Both are CRC-32C and computed as etcd computes them, so that an etcd with the same history has the same hash of it.
//! A hash of keys must not tell how far the deletions of a compaction have come. What lies at or below the compact
//! revision therefore counts only if it can be read at the hash's revision; etcd asks its index for that, and so do
//! we. (Where nothing can be read at that revision etcd counts what the compaction left; that too is followed.)

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;

use super::{
    KeyRange, KeyValueRef, MvccError, Record, Revision, buckets,
    index::{Direction, Resume},
    key_value::{encode_key_value, encode_tombstone},
    state::{LOCKED_WALK_KEYS_MAX, Shared, Values},
};
use crate::bolt;

/// Revisions the index is asked for while its lock is held.
const LOCKED_LOOKUPS_MAX: usize = 256;
/// How often a hash is begun anew because of a compaction under way.
const ATTEMPTS_MAX: usize = 16;

/// A hash of the keys' history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysHash {
    /// The hash.
    pub hash: u32,
    /// The compact revision it goes with; -1 if there was no compaction.
    pub compact_revision: i64,
    /// The revision up to which history was hashed.
    pub revision: i64,
    /// The store's revision at that time.
    pub store_revision: i64,
}

/// What a hash is made of, seen at one moment.
struct View {
    tx: bolt::ReadTx,
    result: KeysHash,
    /// The file holds every change up to this main revision, `newer` those after it.
    file_through: i64,
    newer: Vec<Arc<Record>>,
}

/// Hashes the history up to `requested`; 0 is the current revision, and below that there is nothing.
pub(super) fn keys(shared: &Shared, requested: i64) -> Result<KeysHash, MvccError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut view = look(shared, requested)?;
        if let Some(hash) = hash_view(shared, &view)? {
            view.result.hash = hash;
            return Ok(view.result);
        }
    }
    Err(MvccError::Busy)
}

fn look(shared: &Shared, requested: i64) -> Result<View, MvccError> {
    let (tx, (result, file_through, newer)) = shared.view(|state| {
        if requested > 0 {
            state.check_readable(requested)?;
        }
        let store_revision = state.current_revision;
        let revision = if requested == 0 { store_revision } else { requested };
        let result = KeysHash { hash: 0, compact_revision: state.compact_revision, revision, store_revision };
        let file_through = state.ring.dropped_through();
        let newer = state.ring.starting_at(file_through + 1);
        let newer = newer.take_while(|record| record.revision.main <= revision).map(Arc::clone).collect();
        Ok((result, file_through, newer))
    })?;
    Ok(View { tx, result, file_through, newer })
}

/// `None` if a compaction began meanwhile.
fn hash_view(shared: &Shared, view: &View) -> Result<Option<u32>, MvccError> {
    let KeysHash { compact_revision, revision, .. } = view.result;
    let Some(kept) = Kept::find(shared, compact_revision, revision) else { return Ok(None) };
    let mut hash = crc32c::crc32c(buckets::KEY);
    let mut cursor = Values::of(&view.tx)?.cursor();
    let mut batch: Vec<(Revision, &[u8], &[u8])> = Vec::with_capacity(LOCKED_LOOKUPS_MAX);
    let mut pair = cursor.first()?;
    while let Some((name, encoded)) = pair {
        let (at, tombstone) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?;
        if at.main > revision.min(view.file_through) {
            break;
        }
        // Older etcds delete a tombstone at the compact revision, newer ones keep it; neither counts it.
        if at.main > compact_revision {
            if !add_counted(shared, &kept, &mut batch, &mut hash)? {
                return Ok(None);
            }
            hash = append(hash, name, encoded);
        } else if !(tombstone && at.main == compact_revision) {
            batch.push((at, name, encoded));
            if batch.len() == LOCKED_LOOKUPS_MAX && !add_counted(shared, &kept, &mut batch, &mut hash)? {
                return Ok(None);
            }
        }
        pair = cursor.next()?;
    }
    if !add_counted(shared, &kept, &mut batch, &mut hash)? {
        return Ok(None);
    }
    hash_newer(shared, &kept, &view.newer, hash)
}

/// Adds what is not in the file yet; `None` if a compaction began.
fn hash_newer(shared: &Shared, kept: &Kept, newer: &[Arc<Record>], mut hash: u32) -> Result<Option<u32>, MvccError> {
    let mut encoded = Vec::new();
    for record in newer {
        if record.revision.main <= kept.at_or_below {
            let counts = kept.count(shared, &[(record.revision, &record.kv.key)]);
            match counts.as_deref() {
                None => return Ok(None),
                Some([true]) if !record.tombstone => {}
                Some(_) => continue,
            }
        }
        encoded.clear();
        hash = if record.tombstone {
            encode_tombstone(&record.kv.key, &mut encoded);
            append(hash, &record.revision.encode_tombstone(), &encoded)
        } else {
            encode_key_value(&record.kv, &mut encoded);
            append(hash, &record.revision.encode(), &encoded)
        };
    }
    Ok(Some(hash))
}

/// Adds those of a batch of the file's that count; `false` if a compaction began.
fn add_counted(
    shared: &Shared,
    kept: &Kept,
    batch: &mut Vec<(Revision, &[u8], &[u8])>,
    hash: &mut u32,
) -> Result<bool, MvccError> {
    let mut changes = Vec::with_capacity(batch.len());
    for (at, _, encoded) in batch.iter() {
        changes.push((*at, KeyValueRef::decode_at(*at, encoded)?.key));
    }
    let Some(counts) = kept.count(shared, &changes) else { return Ok(false) };
    for ((_, name, encoded), counts) in batch.drain(..).zip(counts) {
        if counts {
            *hash = append(*hash, name, encoded);
        }
    }
    Ok(true)
}

/// Which of the changes at or below the compact revision count.
struct Kept {
    /// The compact revision.
    at_or_below: i64,
    /// Those count that a read at this revision gives.
    readable_at: i64,
    /// And all of the compact revision itself.
    with_changes_at: bool,
}

impl Kept {
    /// What a read at `revision` gives; if that is nothing at all, what the compaction leaves. `None` if another
    /// compaction began.
    fn find(shared: &Shared, compact_revision: i64, revision: i64) -> Option<Kept> {
        let kept = |readable_at, with_changes_at| Kept { at_or_below: compact_revision, readable_at, with_changes_at };
        let all = KeyRange::new(Bytes::from_static(b"\0"), Bytes::from_static(b"\0"));
        let mut after: Resume = None;
        loop {
            let state = shared.state.read();
            if state.compact_revision != compact_revision {
                return None;
            }
            let mut is_any = compact_revision < 0;
            let next = state.index.visit(
                &all,
                Direction::Ascending,
                after.as_deref(),
                revision,
                LOCKED_WALK_KEYS_MAX,
                &mut |_, _| {
                    is_any = true;
                    ControlFlow::Break(())
                },
            );
            if is_any {
                return Some(kept(revision, false));
            }
            if next.is_none() {
                return Some(kept(compact_revision, true));
            }
            after = next;
        }
    }

    /// Which of these changes of keys count; `None` if another compaction began, which has the index forget.
    fn count(&self, shared: &Shared, changes: &[(Revision, &[u8])]) -> Option<Vec<bool>> {
        let state = shared.state.read();
        if state.compact_revision != self.at_or_below {
            return None;
        }
        let counts = |(at, key): &(Revision, &[u8])| {
            (self.with_changes_at && at.main == self.at_or_below)
                || state.index.get(key, self.readable_at).is_some_and(|entry| entry.revision == *at)
        };
        Some(changes.iter().map(counts).collect())
    }
}

/// Hashes every bucket of the file, names and pairs, but for what tells how the file came to be: how far the log is
/// in it, and its form.
pub(super) fn file(tx: &bolt::ReadTx) -> Result<u32, MvccError> {
    let mut hash = 0;
    let mut names = tx.root().cursor();
    let mut name = names.first()?;
    while let Some((bucket_name, _)) = name {
        hash = crc32c::crc32c_append(hash, bucket_name);
        if let Some(bucket) = tx.bucket(bucket_name)? {
            let mut cursor = bucket.cursor();
            let mut pair = cursor.first()?;
            while let Some((key, value)) = pair {
                if bucket_name != buckets::META || !is_passing(key) {
                    hash = append(hash, key, value);
                }
                pair = cursor.next()?;
            }
        }
        name = names.next()?;
    }
    Ok(hash)
}

fn is_passing(meta_key: &[u8]) -> bool {
    [buckets::CONSISTENT_INDEX, buckets::TERM, buckets::STORAGE_VERSION].contains(&meta_key)
}

fn append(hash: u32, name: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(hash, name), value)
}
