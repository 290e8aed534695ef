//! Room kept for the commits to come, so that a full disk is found out before a commit is, and the way back is open.

use super::{Db, commit, error::BoltError};

impl Db {
    /// Makes sure that there are so many bytes that commits can take: free pages, and pages the file has behind the last
    /// one that was ever used. If there are not, the file grows, durably.
    ///
    /// [`BoltError::NoRoom`] and [`BoltError::Full`] leave everything as it was. What is free may be too scattered, or
    /// still be seen by a reader: a commit that needs more than this grows the file by itself.
    pub fn ensure_room(&self, bytes: u64) -> Result<(), BoltError> {
        let inner = &*self.inner;
        let mut writer = inner.writer.lock();
        if writer.poisoned {
            return Err(BoltError::Poisoned { path: inner.path.clone() });
        }
        let meta = inner.view.lock().meta;
        let page_bytes = u64::from(meta.page_bytes);
        let behind = writer.file_bytes.saturating_sub(meta.used_bytes());
        let there = behind.saturating_add(writer.freelist.pages().saturating_mul(page_bytes));
        let missing = bytes.saturating_sub(there).next_multiple_of(page_bytes);
        let mut file_bytes = writer.file_bytes;
        match commit::grow_to(inner, file_bytes.saturating_add(missing), &mut file_bytes) {
            Ok(()) => {
                writer.file_bytes = file_bytes;
                inner.view.lock().file_bytes = file_bytes;
                Ok(())
            }
            Err(commit::Failure::RolledBack(error)) => Err(error),
            Err(commit::Failure::Poisoned(error)) => {
                writer.poisoned = true;
                Err(error)
            }
        }
    }
}
