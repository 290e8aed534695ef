#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;
use proptest::prelude::*;

use super::{Entry, Garbage, Index, key_index::KeyIndex};
use crate::mvcc::{KeyRange, Revision};

/// "2 3 5t 7" is: put at 2, put at 3, deleted at 5, put at 7. "7.1" is change 1 of revision 7.
fn entries(script: &str) -> Vec<Entry> {
    let mut live: Option<Entry> = None;
    script
        .split_whitespace()
        .map(|word| {
            let (number, tombstone) = word.strip_suffix('t').map_or((word, false), |number| (number, true));
            let (main, sub) = number.split_once('.').unwrap_or((number, "0"));
            let revision = Revision { main: main.parse().unwrap(), sub: sub.parse().unwrap() };
            let entry = if tombstone { Entry::tombstone(revision) } else { Entry::after_put(revision, live) };
            live = (!tombstone).then_some(entry);
            entry
        })
        .collect()
}

fn key_index(script: &str) -> KeyIndex {
    let mut all = entries(script).into_iter();
    let mut index = KeyIndex::new(all.next().unwrap());
    all.for_each(|entry| index.push(entry));
    index
}

fn text(index: &KeyIndex) -> String {
    let words = index.entries().into_iter().map(|entry| {
        let sub = if entry.revision.sub > 0 { format!(".{}", entry.revision.sub) } else { String::new() };
        format!("{}{sub}{}", entry.revision.main, if entry.is_tombstone() { "t" } else { "" })
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_key_costs_forty_bytes() {
    assert_eq!(size_of::<KeyIndex>(), 40);
}

#[test]
fn generations_start_anew_behind_a_tombstone() {
    let index = key_index("2 3 5t 7 9");
    // (at, modified, created, version)
    let cases = [
        (1, None),
        (2, Some((2, 2, 1))),
        (3, Some((3, 2, 2))),
        (4, Some((3, 2, 2))),
        (5, None),
        (6, None),
        (7, Some((7, 7, 1))),
        (8, Some((7, 7, 1))),
        (9, Some((9, 7, 2))),
        (99, Some((9, 7, 2))),
    ];
    for (at, expected) in cases {
        let found = index.at(at).map(|entry| (entry.revision.main, entry.created, entry.version));
        assert_eq!(found, expected, "at {at}");
    }
}

#[test]
fn of_two_changes_in_one_revision_the_later_is_read() {
    let index = key_index("2.0 2.1 3.0 3.1t");
    assert_eq!(index.at(2).unwrap().revision, Revision { main: 2, sub: 1 });
    assert_eq!(index.at(3), None);
}

#[test]
fn compaction_keeps_what_reads_at_its_revision_need() {
    // (history, compacted at, what is left)
    let cases = [
        ("2 3 5 7", 1, "2 3 5 7"),
        ("2 3 5 7", 2, "2 3 5 7"),
        ("2 3 5 7", 3, "3 5 7"),
        ("2 3 5 7", 4, "3 5 7"),
        ("2 3 5 7", 6, "5 7"),
        ("2 3 5 7", 7, "7"),
        ("2 3 5 7", 8, "7"),
        ("2 3t", 2, "2 3t"),
        // A tombstone at the very revision is kept, one below is not.
        ("2 3t", 3, "3t"),
        ("2 3t", 4, ""),
        ("2 3t 5", 3, "3t 5"),
        ("2 3t 5", 4, "5"),
        ("2 3t 5", 5, "5"),
        ("2 3t 5t 7", 6, "7"),
        // The changes of the revision itself stay whole.
        ("2 5.0 5.1 7", 5, "5 5.1 7"),
        ("2 5.0 5.1t", 5, "5 5.1t"),
        ("2 5.0 5.1t", 6, ""),
    ];
    for (history, revision, left) in cases {
        let mut index = key_index(history);
        let remains = index.compact(revision, &mut Garbage::default());
        assert_eq!(if remains { text(&index) } else { String::new() }, left, "{history} compacted at {revision}");
    }
}

#[test]
fn contains_knows_exact_revisions() {
    let index = key_index("2 3.1 5t");
    for (main, sub, expected) in [(2, 0, true), (3, 0, false), (3, 1, true), (5, 0, true), (4, 0, false)] {
        assert_eq!(index.contains(Revision { main, sub }), expected);
    }
}

fn range(start: &[u8], end: &[u8]) -> KeyRange {
    KeyRange::new(Bytes::copy_from_slice(start), Bytes::copy_from_slice(end))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Steps of any size see what one look sees, before and after a compaction by steps.
    #[test]
    fn walks_agree_with_a_list_of_changes(
        changes in prop::collection::vec((0u8..12, any::<bool>()), 1..60),
        start in 0u8..12,
        end in 0u8..14,
        at in 0i64..62,
        compacted in 0i64..62,
        keys_max in 1usize..5,
    ) {
        let mut index = Index::default();
        let mut live: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        let mut at_revision = BTreeMap::new();
        for (main, (key, delete)) in (2..).zip(changes) {
            let (key, revision) = (vec![key], Revision { main, sub: 0 });
            let before = live.remove(&key);
            let entry = if delete { Entry::tombstone(revision) } else { Entry::after_put(revision, before) };
            if delete && before.is_none() { continue }
            index.record(&key, entry);
            if !delete { live.insert(key, entry); }
            if main <= at { at_revision = live.clone() }
        }
        let range = if end == 13 { range(&[start], &[0]) } else { range(&[start], &[end + 1]) };
        let expected: Vec<_> = at_revision.into_iter().filter(|(key, _)| range.contains(key)).collect();
        prop_assert_eq!(walk(&index, &range, at, keys_max), expected.clone());
        let mut after = None;
        loop {
            after = index.compact_step(after.as_deref(), compacted, keys_max, &mut Garbage::default());
            if after.is_none() { break }
        }
        if compacted <= at {
            prop_assert_eq!(walk(&index, &range, at, keys_max), expected);
        }
    }
}

fn walk(index: &Index, range: &KeyRange, at: i64, keys_max: usize) -> Vec<(Vec<u8>, Entry)> {
    let (mut seen, mut counted) = (Vec::new(), 0);
    let mut after = None;
    loop {
        counted += index.count(range, after.as_deref(), at, keys_max).0;
        after = index.visit(range, after.as_deref(), at, keys_max, &mut |key, entry| {
            seen.push((key.to_vec(), entry));
            ControlFlow::Continue(())
        });
        if after.is_none() {
            break;
        }
    }
    assert_eq!(counted, seen.len() as i64);
    seen
}
