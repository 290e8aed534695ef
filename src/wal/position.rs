//! Where the log stands: its last index, and up to where it was released. The writer and the reader follow the records
//! with the same rules, so what the writer takes the reader finds without a hole.

/// The end and the beginning of the live part of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Index of the last entry; 0 if there was none. Never below what is released.
    pub(super) last: u64,
    /// The newest released index and its term; it only moves forward.
    pub(super) released: Option<(u64, u64)>,
}

/// An entry that would leave a hole before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) last: u64,
    pub(super) index: u64,
}

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {} does not follow entry {}", self.index, self.last)
    }
}

impl Position {
    /// Index up to which entries are not needed any more; 0 if none were released.
    pub(super) fn floor(&self) -> u64 {
        self.released.map_or(0, |(index, _)| index)
    }

    /// An entry was added, perhaps over an earlier one.
    pub(super) fn enter(&mut self, index: u64) -> Result<(), Hole> {
        if index == 0 || index - 1 > self.last {
            return Err(Hole { last: self.last, index });
        }
        self.last = index.max(self.floor());
        Ok(())
    }

    /// Everything above `last_index` is void.
    pub(super) fn truncate(&mut self, last_index: u64) {
        self.last = self.last.min(last_index).max(self.floor());
    }

    /// Everything up to `index` is not needed any more; the log may go on after it even if it never got there (a
    /// snapshot was installed).
    pub(super) fn release(&mut self, index: u64, term: u64) {
        if index >= self.floor() {
            self.released = Some((index, term));
            self.last = self.last.max(index);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn entries_follow_replace_and_leave_no_hole() {
        let mut position = Position::default();
        assert_eq!(position.enter(0), Err(Hole { last: 0, index: 0 }));
        assert_eq!(position.enter(2), Err(Hole { last: 0, index: 2 }));
        (1..=5).for_each(|index| position.enter(index).unwrap());
        position.enter(3).unwrap();
        assert_eq!(position.last, 3);
        assert_eq!(position.enter(5), Err(Hole { last: 3, index: 5 }));
        position.truncate(9);
        assert_eq!(position.last, 3);
        position.truncate(1);
        assert_eq!(position.last, 1);
    }

    #[test]
    fn released_is_a_floor_and_moves_forward_only() {
        let mut position = Position { last: 4, released: None };
        position.release(10, 2);
        assert_eq!(position, Position { last: 10, released: Some((10, 2)) });
        position.release(9, 3);
        assert_eq!(position.released, Some((10, 2)));
        position.truncate(3);
        position.enter(2).unwrap();
        assert_eq!(position.last, 10);
        position.enter(11).unwrap();
    }
}
