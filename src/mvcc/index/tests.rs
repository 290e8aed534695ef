#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;
use proptest::prelude::*;

use super::{Direction, Entry, Garbage, Index, Node, Part, VERSION_MAX, key_index::KeyIndex, tree};
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
            let entry = if tombstone { Entry::tombstone(revision) } else { Entry::after_put(revision, live, false) };
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
fn a_key_costs_thirty_two_bytes() {
    assert_eq!(size_of::<KeyIndex>(), 32);
}

#[test]
fn numbers_of_any_size_are_kept_whole() {
    let subs = [0, i64::from(u32::MAX) - 1, i64::from(u32::MAX), i64::from(u32::MAX) + 1, i64::MAX];
    let versions = [0, 1, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, VERSION_MAX];
    let entry = |main, sub, version: i64, leased| Entry {
        revision: Revision { main, sub },
        created: if version == 0 { 0 } else { main },
        version,
        leased,
    };
    let mut all: Vec<Entry> = Vec::new();
    for (sub, version) in subs.into_iter().flat_map(|sub| versions.map(|version| (sub, version))) {
        for leased in [false, true] {
            all.push(entry(all.len() as i64 + 2, sub, version, leased && version > 0));
        }
    }
    let mut index = KeyIndex::new(all[0]);
    for (number, pushed) in all.iter().enumerate().skip(1) {
        index.push(*pushed);
        assert_eq!(index.entries(), all[..=number]);
        assert_eq!((index.revisions(), index.newest_main()), (number + 1, pushed.revision.main));
        assert_eq!(index.is_live(), pushed.version > 0);
        assert!(all[..=number].iter().all(|entry| index.contains(entry.revision)));
        let seen: Vec<_> = all[..=number].iter().map(|entry| index.at(entry.revision.main)).collect();
        let expected: Vec<_> = all[..=number].iter().map(|entry| Some(*entry).filter(|e| e.version > 0)).collect();
        assert_eq!(seen, expected);
        // Behind the newest one only that is left; at it, too.
        for revision in [pushed.revision.main, pushed.revision.main + 1] {
            let mut compacted = index.clone();
            let is_kept = compacted.compact(revision, &mut Garbage::default());
            assert_eq!(is_kept, pushed.version > 0 || revision == pushed.revision.main);
            assert_eq!(compacted.entries(), [*pushed]);
            assert_eq!(compacted, KeyIndex::new(*pushed));
        }
    }
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
            let entry = if delete { Entry::tombstone(revision) } else { Entry::after_put(revision, before, main % 3 == 0) };
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
        after = index.visit(range, Direction::Ascending, after.as_deref(), at, keys_max, &mut |key, entry| {
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

/// A tree of several levels against sorted maps: every key's history, walks both ways, counts, compaction.
mod against_a_model {
    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Model {
        history: BTreeMap<Vec<u8>, Vec<Entry>>,
    }

    impl Model {
        fn live(&self, key: &[u8]) -> Option<Entry> {
            self.history.get(key)?.last().copied().filter(|entry| !entry.is_tombstone())
        }

        fn at(&self, range: &KeyRange, at: i64) -> Vec<(Vec<u8>, Entry)> {
            let found = self.history.iter().filter(|(key, _)| range.contains(key)).filter_map(|(key, entries)| {
                let entry = entries.iter().rev().find(|entry| entry.revision.main <= at)?;
                (!entry.is_tombstone()).then(|| (key.clone(), *entry))
            });
            found.collect()
        }
    }

    impl Model {
        /// The index of all this, made of two parts that meet at a key.
        fn build(&self, middle: &[u8]) -> Index {
            let part = |is_right: bool| {
                let keys = self.history.iter().filter(move |(key, _)| (key.as_slice() >= middle) == is_right);
                Part::from_sorted(keys.flat_map(|(key, entries)| entries.iter().map(|e| (key.as_slice(), *e))))
            };
            Index::of_parts(vec![part(false), part(true)])
        }
    }

    /// Keys that come in runs, as those of files and jobs do, and at random.
    fn key(seed: u32) -> Vec<u8> {
        match seed % 4 {
            0 => format!("/registry/pods/{:08}", seed / 4 % 1_500).into_bytes(),
            1 => format!("/{}", seed / 4 % 700).into_bytes(),
            2 => vec![(seed >> 8) as u8; (seed >> 16) as usize % 40 + 1],
            _ => vec![b'l'; 300 + (seed >> 8) as usize % 9_000],
        }
    }

    fn all() -> KeyRange {
        range(b"\0", b"\0")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_tree_tells_what_sorted_maps_tell(
            changes in prop::collection::vec((any::<u32>(), 0u8..4), 1..4_000),
            compactions in prop::collection::vec(0.0f64..1.0, 0..3),
            ranges in prop::collection::vec((any::<u32>(), any::<u32>(), 0.0f64..1.0), 8),
            keys_max in 1usize..300,
            parted_at in any::<u32>(),
        ) {
            let (mut index, mut model) = (Index::default(), Model::default());
            let mut main = 1;
            for (seed, kind) in changes {
                let key = key(seed);
                let live = model.live(&key);
                if kind == 0 && live.is_none() { continue }
                main += 1;
                let revision = Revision { main, sub: i64::from(seed % 3) };
                let entry =
                    if kind == 0 { Entry::tombstone(revision) } else { Entry::after_put(revision, live, kind == 1) };
                index.record(&key, entry);
                model.history.entry(key).or_default().push(entry);
            }
            check_sums(&index.root);
            let built = model.build(&key(parted_at));
            check_sums(&built.root);
            let mut compacted = 0;
            compare(&index, &model, &ranges, compacted, main, keys_max);
            compare(&built, &model, &ranges, compacted, main, keys_max);
            for share in compactions {
                compacted = ((main as f64 * share) as i64).max(compacted);
                let mut after = None;
                loop {
                    after = index.compact_step(after.as_deref(), compacted, keys_max, &mut Garbage::default());
                    if after.is_none() { break }
                }
                check_sums(&index.root);
                compare(&index, &model, &ranges, compacted, main, keys_max);
            }
        }
    }

    fn compare(index: &Index, model: &Model, ranges: &[(u32, u32, f64)], compacted: i64, newest: i64, keys_max: usize) {
        for (start, end, share) in ranges {
            let range = if start % 5 == 0 { all() } else { range(&key(*start), &key(*end)) };
            let share = if start % 3 == 0 { 1.0 } else { *share };
            let at = compacted + ((newest - compacted) as f64 * share) as i64;
            let expected = model.at(&range, at);
            for direction in [Direction::Ascending, Direction::Descending] {
                let mut found = visited(index, &range, direction, at, keys_max);
                if direction == Direction::Descending {
                    found.reverse();
                }
                assert_eq!(found, expected, "{direction:?} at {at}, compacted at {compacted}");
            }
            let (mut total, mut after) = (0, None);
            loop {
                let (counted, next) = index.count(&range, after.as_deref(), at, keys_max);
                total += counted;
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(total, expected.len() as i64);
            for (key, entry) in expected {
                assert_eq!(index.get(&key, at), Some(entry));
                assert!(index.contains(&key, entry.revision));
            }
        }
    }

    fn visited(
        index: &Index,
        range: &KeyRange,
        direction: Direction,
        at: i64,
        keys_max: usize,
    ) -> Vec<(Vec<u8>, Entry)> {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            after = index.visit(range, direction, after.as_deref(), at, keys_max, &mut |key, entry| {
                seen.push((key.to_vec(), entry));
                ControlFlow::Continue(())
            });
            if after.is_none() {
                return seen;
            }
        }
    }

    /// Every branch knows what is below it, keys are where the bounds say, and all leaves are equally deep.
    fn check_sums(root: &Node) {
        fn check(node: &Node, low: Option<&[u8]>, high: Option<&[u8]>) -> usize {
            match node {
                Node::Leaf(leaf) => {
                    assert_eq!(leaf.keys.len(), leaf.values.len());
                    for at in 0..leaf.keys.len() {
                        let key = leaf.keys.get(at);
                        assert!(low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high));
                        assert!(at == 0 || leaf.keys.get(at - 1) < key);
                    }
                    0
                }
                Node::Branch(branch) => {
                    assert_eq!(branch.bounds.len() + 1, branch.children.len());
                    let depths = branch.children.iter().enumerate().map(|(at, child)| {
                        assert_eq!(child.sums, child.node.sums());
                        assert!(child.sums.keys > 0);
                        let low = if at == 0 { low } else { Some(branch.bounds.get(at - 1)) };
                        let high = if at + 1 == branch.children.len() { high } else { Some(branch.bounds.get(at)) };
                        check(&child.node, low, high)
                    });
                    let depths: Vec<_> = depths.collect();
                    assert!(depths.iter().all(|depth| *depth == depths[0]));
                    depths[0] + 1
                }
            }
        }
        check(root, None, None);
    }

    #[test]
    fn a_count_of_what_has_not_changed_looks_at_few_keys() {
        let mut index = Index::default();
        for number in 0..20_000i64 {
            let entry = Entry::after_put(Revision { main: number + 2, sub: 0 }, None, false);
            index.record(format!("/{number:06}").as_bytes(), entry);
        }
        let part = range(b"/000777", b"/019001");
        // Two leaves at the ends are looked into, and no more.
        assert_eq!(index.count(&part, None, 20_001, 2 * tree::NODE_ITEMS_MAX), (18_224, None));
        let deleted = Entry::tombstone(Revision { main: 20_002, sub: 0 });
        index.record(b"/010000", deleted);
        assert_eq!(index.count(&part, None, 20_002, 2 * tree::NODE_ITEMS_MAX), (18_223, None));
        // At a revision before, the leaf that has changed since is looked into as well.
        assert_eq!(index.count(&part, None, 20_001, 3 * tree::NODE_ITEMS_MAX), (18_224, None));
    }

    #[test]
    fn a_compaction_passes_by_what_it_cannot_change() {
        let mut index = Index::default();
        for number in 0..20_000i64 {
            let entry = Entry::after_put(Revision { main: number + 2, sub: 0 }, None, false);
            index.record(format!("/{number:06}").as_bytes(), entry);
        }
        assert_eq!(index.compact_step(None, 20_001, 1, &mut Garbage::default()), None);
        index.record(b"/010000", Entry::tombstone(Revision { main: 20_002, sub: 0 }));
        assert_eq!(index.compact_step(None, 20_003, tree::NODE_ITEMS_MAX + 1, &mut Garbage::default()), None);
        assert_eq!(index.known_and_live(&all()), (19_999, 19_999));
    }
}
