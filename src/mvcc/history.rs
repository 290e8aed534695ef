//! The changes from a revision on: what watchers that are behind live on. Always whole revisions.

use std::sync::{Arc, atomic::Ordering};

use super::{
    ChangeSet, KeyValueRef, MvccError, Record, Revision,
    state::{Shared, State, Values},
};
use crate::{bolt, proto::mvccpb};

/// Reads the changes from main revision `from` on, from the ring if it reaches back that far, else from the file.
pub(super) fn changes_since(
    shared: &Shared,
    mut from: i64,
    revisions_max: usize,
    bytes_max: usize,
) -> Result<Vec<ChangeSet>, MvccError> {
    shared.backend.check_usable()?;
    loop {
        let mut collected = Collected::new(revisions_max, bytes_max);
        {
            let state = shared.state.read();
            check_kept(&state, from)?;
            if from > state.ring.dropped_through() {
                let visible = state.ring.starting_at(from).take_while(|r| r.revision.main <= state.current_revision);
                for record in visible {
                    if !collected.add(record.revision.main, || Ok(Arc::clone(record)))? {
                        break;
                    }
                }
                drop(state);
                return Ok(collected.finish());
            }
        }
        let held_through = shared.flushed_revision.load(Ordering::Acquire);
        let tx = shared.pin()?;
        // Whatever a compaction deletes, it refuses readers first: if `from` is not refused now, the pinned file has
        // everything from there on.
        check_kept(&shared.state.read(), from)?;
        scan(&tx, from, held_through, &mut collected)?;
        let sets = collected.finish();
        if !sets.is_empty() {
            return Ok(sets);
        }
        from = held_through + 1;
    }
}

fn check_kept(state: &State, from: i64) -> Result<(), MvccError> {
    if from < state.compact_revision {
        return Err(MvccError::Compacted { requested: from, compacted: state.compact_revision });
    }
    Ok(())
}

fn scan(tx: &bolt::ReadTx, from: i64, through: i64, collected: &mut Collected) -> Result<(), MvccError> {
    let mut cursor = Values::of(tx)?.cursor();
    let mut pair = cursor.seek(&Revision { main: from.max(0), sub: 0 }.encode())?;
    while let Some((name, encoded)) = pair {
        let (revision, tombstone) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?;
        if revision.main > through || !collected.add(revision.main, || record(revision, tombstone, encoded))? {
            break;
        }
        pair = cursor.next()?;
    }
    Ok(())
}

fn record(revision: Revision, tombstone: bool, encoded: &[u8]) -> Result<Arc<Record>, MvccError> {
    let kv = KeyValueRef::decode_at(revision, encoded)?.to_owned();
    let kv = if tombstone {
        mvccpb::KeyValue { key: kv.key, mod_revision: revision.main, ..Default::default() }
    } else {
        kv
    };
    Ok(Arc::new(Record { revision, tombstone, kv }))
}

/// Change sets in the making, within bounds.
struct Collected {
    sets: Vec<ChangeSet>,
    changes: Vec<Arc<Record>>,
    revision: i64,
    bytes: usize,
    revisions_max: usize,
    bytes_max: usize,
}

impl Collected {
    fn new(revisions_max: usize, bytes_max: usize) -> Collected {
        Collected { sets: Vec::new(), changes: Vec::new(), revision: 0, bytes: 0, revisions_max, bytes_max }
    }

    /// Adds a change of main revision `main`; `false`, and nothing is added, once the bounds are reached.
    fn add(&mut self, main: i64, record: impl FnOnce() -> Result<Arc<Record>, MvccError>) -> Result<bool, MvccError> {
        if main != self.revision {
            self.close();
            if !self.sets.is_empty() && (self.sets.len() >= self.revisions_max || self.bytes >= self.bytes_max) {
                return Ok(false);
            }
            self.revision = main;
        }
        let record = record()?;
        self.bytes = self.bytes.saturating_add(record.cost_bytes());
        self.changes.push(record);
        Ok(true)
    }

    fn close(&mut self) {
        if !self.changes.is_empty() {
            let changes = std::mem::take(&mut self.changes).into();
            self.sets.push(ChangeSet { revision: self.revision, changes });
        }
    }

    fn finish(mut self) -> Vec<ChangeSet> {
        self.close();
        self.sets
    }
}
