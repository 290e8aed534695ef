//! What the hub asks of the store, as three functions, so that its own tests can hold time still between any two.

use crate::{
    mvcc::{ChangeSet, MvccError, Store},
    proto::mvccpb,
};

type Get = dyn Fn(&[u8], i64) -> Result<Option<mvccpb::KeyValue>, MvccError> + Send + Sync;
type ChangesSince = dyn Fn(i64, usize, usize) -> Result<Vec<ChangeSet>, MvccError> + Send + Sync;

/// The store as the hub sees it. None of the functions may wait for the hub.
pub(super) struct History {
    /// The newest visible revision.
    pub(super) revision: Box<dyn Fn() -> i64 + Send + Sync>,
    /// A key's state at a revision.
    pub(super) get: Box<Get>,
    /// Change sets from a revision on, up to a number of revisions and bytes, at least one if there is any.
    pub(super) changes_since: Box<ChangesSince>,
}

impl History {
    pub(super) fn of(store: Store) -> History {
        let (getter, reader) = (store.clone(), store.clone());
        History {
            revision: Box::new(move || store.revision()),
            get: Box::new(move |key, revision| getter.get(key, revision)),
            changes_since: Box::new(move |from, revisions_max, bytes_max| {
                reader.changes_since(from, revisions_max, bytes_max)
            }),
        }
    }

    /// What a change replaced: nothing for a creation and where that revision is compacted.
    pub(super) fn previous(&self, key: &[u8], revision: i64) -> Result<Option<mvccpb::KeyValue>, MvccError> {
        // Revision 0 would be "now".
        if revision <= 1 {
            return Ok(None);
        }
        match (self.get)(key, revision - 1) {
            Err(MvccError::Compacted { .. }) => Ok(None),
            answer => answer,
        }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").finish_non_exhaustive()
    }
}
