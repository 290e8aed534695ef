//! What a user may do with which keys: intervals, merged, so that a request is covered by one of them or by none.

use bytes::Bytes;

use crate::{
    mvcc::KeyRange,
    proto::authpb::{Permission, permission::Type},
};

/// Sorted intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Intervals {
    merged: Vec<Interval>,
}

/// From `start` up to, and without, `end`; without an end from `start` on. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interval {
    start: Bytes,
    end: Option<Bytes>,
}

impl Intervals {
    fn new(mut intervals: Vec<Interval>) -> Intervals {
        intervals.sort_by(|a, b| a.start.cmp(&b.start));
        let mut merged: Vec<Interval> = Vec::new();
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if last.end.as_ref().is_none_or(|end| *end >= interval.start) => {
                    last.end = farther(last.end.take(), interval.end);
                }
                _ => merged.push(interval),
            }
        }
        Intervals { merged }
    }

    /// Whether every key of a range is in these intervals. A range without keys is in none, as in etcd.
    pub(super) fn cover(&self, range: &KeyRange) -> bool {
        let Some(asked) = interval(range) else { return false };
        let after = self.merged.partition_point(|interval| interval.start <= asked.start);
        let Some(candidate) = after.checked_sub(1).map(|at| &self.merged[at]) else { return false };
        match (&candidate.end, &asked.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(have), Some(need)) => need <= have,
        }
    }
}

fn farther(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    Some(one?.max(other?))
}

/// A single key is the interval up to its successor.
fn interval(range: &KeyRange) -> Option<Interval> {
    match range {
        _ if range.is_empty() => None,
        KeyRange::Single(key) => {
            let successor = [key.as_ref(), &[0]].concat();
            Some(Interval { start: key.clone(), end: Some(successor.into()) })
        }
        KeyRange::Bounded { start, end } => Some(Interval { start: start.clone(), end: Some(end.clone()) }),
        KeyRange::From(start) => Some(Interval { start: start.clone(), end: None }),
    }
}

/// All a user's roles come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// The user has the role `root`: nothing is closed to it.
    pub(super) is_root: bool,
    /// What may be read.
    pub(super) read: Intervals,
    /// What may be written.
    pub(super) write: Intervals,
}

impl Access {
    pub(super) fn new<'a>(is_root: bool, permissions: impl Iterator<Item = &'a Permission>) -> Access {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for permission in permissions {
            let Some(interval) = interval(&range_of(permission)) else { continue };
            // A type outside the enum permits nothing.
            let Ok(kind) = Type::try_from(permission.perm_type) else { continue };
            if kind != Type::Write {
                read.push(interval.clone());
            }
            if kind != Type::Read {
                write.push(interval);
            }
        }
        Access { is_root, read: Intervals::new(read), write: Intervals::new(write) }
    }
}

/// The keys a permission is for.
pub(super) fn range_of(permission: &Permission) -> KeyRange {
    KeyRange::new(permission.key.clone(), permission.range_end.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(key: &str, end: &str) -> KeyRange {
        KeyRange::new(Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(end.as_bytes()))
    }

    fn permission(kind: i32, key: &str, end: &str) -> Permission {
        Permission {
            perm_type: kind,
            key: Bytes::copy_from_slice(key.as_bytes()),
            range_end: Bytes::copy_from_slice(end.as_bytes()),
        }
    }

    fn access(permissions: &[Permission]) -> Access {
        Access::new(false, permissions.iter())
    }

    #[test]
    fn a_request_is_covered_by_what_its_permissions_come_to_together() {
        // (granted, asked, covered)
        type Pair = (&'static str, &'static str);
        let table: [(&[Pair], Pair, bool); 25] = [
            (&[], ("a", ""), false),
            (&[("a", "")], ("a", ""), true),
            (&[("a", "")], ("b", ""), false),
            (&[("a", "")], ("a", "b"), false),
            (&[("a", "")], ("a", "\0"), false),
            (&[("a", "")], ("a", "a\0"), true),
            (&[("a", "")], ("a\0", ""), false),
            (&[("a", "c")], ("a", ""), true),
            (&[("a", "c")], ("bzz", ""), true),
            (&[("a", "c")], ("c", ""), false),
            (&[("a", "c")], ("a", "c"), true),
            (&[("a", "c")], ("a", "c\0"), false),
            (&[("a", "c")], ("A", "b"), false),
            (&[("a", "c"), ("c", "e")], ("a", "e"), true),
            (&[("a", "c"), ("b", "e")], ("a", "e"), true),
            (&[("a", "c"), ("d", "e")], ("a", "e"), false),
            (&[("a", "c"), ("d", "e")], ("d", "e"), true),
            (&[("d", "e"), ("a", "c"), ("b", "d")], ("a", "e"), true),
            (&[("a", "b"), ("b", "")], ("a", "b\0"), true),
            (&[("a", "z"), ("b", "c")], ("a", "z"), true),
            (&[("b", "\0")], ("b", "\0"), true),
            (&[("b", "\0"), ("c", "d")], ("zzz", "\0"), true),
            (&[("b", "\0")], ("a", "\0"), false),
            (&[("\0", "\0")], ("\0", "\0"), true),
            (&[("a", "c")], ("c", "a"), false),
        ];
        for (granted, (key, end), covered) in table {
            let permissions: Vec<_> = granted.iter().map(|(key, end)| permission(0, key, end)).collect();
            assert_eq!(access(&permissions).read.cover(&range(key, end)), covered, "{granted:?} {key} {end}");
        }
    }

    #[test]
    fn types_open_what_they_say() {
        for (kind, reads, writes) in [(0, true, false), (1, false, true), (2, true, true), (7, false, false)] {
            let access = access(&[permission(kind, "a", "")]);
            assert_eq!(access.read.cover(&range("a", "")), reads, "{kind}");
            assert_eq!(access.write.cover(&range("a", "")), writes, "{kind}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Merged or not, the same keys are covered: judged by two-letter keys one by one.
        #[test]
        fn merging_loses_and_adds_nothing(
            granted in proptest::collection::vec(("[a-d]{1,2}", "[a-d]{0,2}"), 0..6),
            asked in ("[a-d]{1,2}", "[a-d]{0,2}"),
        ) {
            let permissions: Vec<_> = granted.iter().map(|(key, end)| permission(0, key, end)).collect();
            let access = access(&permissions);
            let asked = range(&asked.0, &asked.1);
            let keys: Vec<String> = "abcd".chars().flat_map(|one| {
                std::iter::once(one.to_string())
                    .chain("\0abcde".chars().map(move |two| format!("{one}{two}")))
                    .chain("abcd".chars().map(move |two| format!("{one}{two}\0")))
            }).collect();
            let each = keys.iter().filter(|key| asked.contains(key.as_bytes()))
                .all(|key| permissions.iter().any(|p| range_of(p).contains(key.as_bytes())));
            // Every bound is a key above, or its successor: between two of those nothing changes.
            prop_assert_eq!(access.read.cover(&asked), each && !asked.is_empty());
        }
    }
}
