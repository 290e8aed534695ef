//! What is distributed live while history is being read: whoever comes to the end of the read goes on from here. Without
//! it a cursor would be behind again whenever its read comes back, and never become live beside a busy writer.

use super::inbox::changes_bytes;
use crate::mvcc::ChangeSet;

/// Most bytes kept; the records are the store's, which holds the newest anyway.
const TAIL_BYTES_MAX: usize = 1024 * 1024;

/// Change sets in revision order, in pieces of the size in which they are distributed.
#[derive(Debug)]
pub(super) struct Tail {
    /// Everything distributed from here on is kept; `None`: it is not.
    first: Option<i64>,
    pieces: Vec<Vec<ChangeSet>>,
    /// Bytes in all pieces, and in the last.
    bytes: usize,
    piece_bytes: usize,
}

impl Tail {
    /// Keeps what is distributed above a revision.
    pub(super) fn after(distributed: i64) -> Tail {
        Tail { first: Some(distributed + 1), pieces: Vec::new(), bytes: 0, piece_bytes: 0 }
    }

    /// Adds what was distributed. `revisions_max` and `bytes_max`: a piece's size.
    pub(super) fn extend(&mut self, changes: &[ChangeSet], revisions_max: usize, bytes_max: usize) {
        for set in changes {
            let bytes = changes_bytes(set);
            self.bytes += bytes;
            if self.first.is_none() || self.bytes > TAIL_BYTES_MAX {
                return self.forget();
            }
            match self.pieces.last_mut() {
                Some(piece) if piece.len() < revisions_max && self.piece_bytes + bytes <= bytes_max => {
                    piece.push(set.clone());
                    self.piece_bytes += bytes;
                }
                _ => {
                    self.pieces.push(vec![set.clone()]);
                    self.piece_bytes = bytes;
                }
            }
        }
    }

    /// Some of what came is not here.
    pub(super) fn forget(&mut self) {
        *self = Tail { first: None, pieces: Vec::new(), bytes: 0, piece_bytes: 0 };
    }

    /// Whether everything distributed from a revision on is here.
    pub(super) fn covers(&self, from: i64) -> bool {
        self.first.is_some_and(|first| first <= from)
    }

    pub(super) fn pieces(&self) -> &[Vec<ChangeSet>] {
        &self.pieces
    }
}
