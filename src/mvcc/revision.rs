//! Revisions, how they are stored, and the ranges of keys requests speak of.

use std::ops::Bound;

use bytes::Bytes;

/// Length of a revision as the file stores it.
pub const REVISION_BYTES: usize = 17;
/// Length of a stored revision that deletes its key.
pub const TOMBSTONE_BYTES: usize = 18;

const SEPARATOR: u8 = b'_';
const TOMBSTONE_MARK: u8 = b't';

/// A point in the store's history: `main` counts transactions, `sub` the changes inside one. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision {
    /// The transaction.
    pub main: i64,
    /// The change inside the transaction, from 0.
    pub sub: i64,
}

impl Revision {
    /// As bucket `key` and the compaction marks store it (etcd's format): both parts big-endian, `_` between them.
    pub fn encode(self) -> [u8; REVISION_BYTES] {
        let mut out = [SEPARATOR; REVISION_BYTES];
        out[..8].copy_from_slice(&self.main.to_be_bytes());
        out[9..].copy_from_slice(&self.sub.to_be_bytes());
        out
    }

    /// As bucket `key` stores a deletion: [`encode`](Self::encode) with a `t` behind it.
    pub fn encode_tombstone(self) -> [u8; TOMBSTONE_BYTES] {
        let mut out = [TOMBSTONE_MARK; TOMBSTONE_BYTES];
        out[..REVISION_BYTES].copy_from_slice(&self.encode());
        out
    }

    /// Reads what `encode` (`false`) or `encode_tombstone` (`true`) wrote; `None` for anything else.
    pub fn decode(stored: &[u8]) -> Option<(Revision, bool)> {
        let (plain, mark) = stored.split_at_checked(REVISION_BYTES)?;
        let tombstone = match mark {
            [] => false,
            [TOMBSTONE_MARK] => true,
            _ => return None,
        };
        if plain[8] != SEPARATOR {
            return None;
        }
        let main = i64::from_be_bytes(plain[..8].try_into().ok()?);
        let sub = i64::from_be_bytes(plain[9..].try_into().ok()?);
        (main >= 0 && sub >= 0).then_some((Revision { main, sub }, tombstone))
    }
}

/// The keys a request speaks of, by etcd's rules for (key, range_end): empty end = one key, "\0" = from key on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// One key.
    Single(Bytes),
    /// From `start` up to, and without, `end`.
    Bounded {
        /// The first key.
        start: Bytes,
        /// The first key that is out again.
        end: Bytes,
    },
    /// From a key on.
    From(Bytes),
}

impl KeyRange {
    /// (key "\0", end "\0") is everything; end <= key is an empty range.
    pub fn new(key: Bytes, range_end: Bytes) -> KeyRange {
        match range_end.as_ref() {
            [] => KeyRange::Single(key),
            [0] => KeyRange::From(key),
            _ => KeyRange::Bounded { start: key, end: range_end },
        }
    }

    /// Whether the key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::Single(only) => key == only,
            KeyRange::Bounded { start, end } => start <= key && key < end.as_ref(),
            KeyRange::From(start) => start <= key,
        }
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        matches!(self, KeyRange::Bounded { start, end } if end <= start)
    }

    /// The bounds for walking a sorted map, behind the key `after` if there is one. Not to be asked of an empty range.
    pub(super) fn bounds<'a>(&'a self, after: Option<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
        let (start, end) = match self {
            KeyRange::Single(only) => (only, Bound::Included(only.as_ref())),
            KeyRange::Bounded { start, end } => (start, Bound::Excluded(end.as_ref())),
            KeyRange::From(start) => (start, Bound::Unbounded),
        };
        (after.map_or(Bound::Included(start.as_ref()), Bound::Excluded), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_stored_as_etcd_stores_them() {
        let revision = Revision { main: 0x0102, sub: 3 };
        assert_eq!(&revision.encode(), b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03");
        assert_eq!(&revision.encode_tombstone(), b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03t");
        assert_eq!(Revision::decode(&revision.encode()), Some((revision, false)));
        assert_eq!(Revision::decode(&revision.encode_tombstone()), Some((revision, true)));
    }

    #[test]
    fn anything_else_is_no_revision() {
        let good = Revision { main: 7, sub: 0 }.encode();
        for length in 0..good.len() {
            assert_eq!(Revision::decode(&good[..length]), None);
        }
        let mut separator = good;
        separator[8] = b'-';
        assert_eq!(Revision::decode(&separator), None);
        let mut negative = good;
        negative[0] = 0x80;
        assert_eq!(Revision::decode(&negative), None);
        assert_eq!(Revision::decode(&[good.as_slice(), b"x"].concat()), None);
        assert_eq!(Revision::decode(&[good.as_slice(), b"tt"].concat()), None);
    }

    #[test]
    fn ranges_follow_etcds_rules() {
        let range =
            |key: &'static [u8], end: &'static [u8]| KeyRange::new(Bytes::from_static(key), Bytes::from_static(end));
        type Keys = &'static [&'static [u8]];
        let cases: [(KeyRange, Keys, Keys); 5] = [
            (range(b"b", b""), &[b"b"], &[b"a", b"ba", b"c"]),
            (range(b"b", b"d"), &[b"b", b"ba", b"c", b"czz"], &[b"a", b"d", b"da"]),
            (range(b"b", b"\0"), &[b"b", b"c", b"\xff"], &[b"a"]),
            (range(b"\0", b"\0"), &[b"\0", b"a", b"\xff\xff"], &[]),
            (range(b"b", b"b"), &[], &[b"a", b"b", b"c"]),
        ];
        for (range, inside, outside) in cases {
            for key in inside {
                assert!(range.contains(key), "{range:?} {key:?}");
            }
            for key in outside {
                assert!(!range.contains(key), "{range:?} {key:?}");
            }
            assert_eq!(range.is_empty(), inside.is_empty());
        }
    }
}
