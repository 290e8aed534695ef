//! Stored revisions on their way into the key index: sorted run by run, then merged range by range.
//!
//! The keys lie in the file, each somewhere else, and to compare two of them is to wait for both. So what is sorted is
//! words that were copied out of the keys; the keys are looked at again only to copy the next word of those that are
//! alike so far.

use std::{ops::Range, slice, vec};

use super::index::Entry;

/// Bytes of a key in a word; the last byte of the word says how many there were.
const WORD_KEY_BYTES: usize = 7;
/// Words after which keys that are still alike are compared as they are.
const WORDS_MAX: usize = 24;
/// Stored revisions that a merge looks at ahead, of each run.
const AHEAD_MAX: usize = 128;

/// One stored revision of a key, without its value. The key lies in the file: a copy of each would leave memory behind
/// that is used no more and hardly given back.
#[derive(Debug)]
pub(super) struct Stored<'tx> {
    pub(super) key: &'tx [u8],
    pub(super) entry: Entry,
    pub(super) lease: i64,
}

impl Stored<'_> {
    fn order(&self, other: &Stored<'_>) -> std::cmp::Ordering {
        self.key.cmp(other.key).then(self.entry.revision.cmp(&other.entry.revision))
    }
}

/// Stored revisions, and their order: by key, then by revision.
#[derive(Debug)]
pub(super) struct Run<'tx> {
    stored: Vec<Stored<'tx>>,
    order: Vec<Place>,
}

/// One of a run's stored revisions, with the word of its key it is sorted by.
#[derive(Clone, Copy, Debug)]
struct Place {
    word: u64,
    at: usize,
}

impl<'tx> Run<'tx> {
    /// Sorts what comes ascending by revision.
    pub(super) fn sort(stored: Vec<Stored<'tx>>) -> Run<'tx> {
        let mut order: Vec<Place> = (0..stored.len()).map(|at| Place { word: 0, at }).collect();
        sort(&mut order, &stored, 0);
        Run { stored, order }
    }

    fn key(&self, place: usize) -> &'tx [u8] {
        self.stored[self.order[place].at].key
    }

    /// The first place whose key is not below `key`.
    fn place_of(&self, key: &[u8]) -> usize {
        self.order.partition_point(|place| self.stored[place.at].key < key)
    }
}

/// Sorts places whose keys have the first `depth` words in common.
fn sort(places: &mut [Place], stored: &[Stored<'_>], depth: usize) {
    let skipped = depth * WORD_KEY_BYTES;
    if depth == WORDS_MAX {
        // All these keys are at least so long.
        places.sort_unstable_by(|a, b| {
            stored[a.at].key[skipped..].cmp(&stored[b.at].key[skipped..]).then(a.at.cmp(&b.at))
        });
        return;
    }
    for place in &mut *places {
        place.word = word(&stored[place.at].key[skipped..]);
    }
    places.sort_unstable_by_key(|place| (place.word, place.at));
    for alike in places.chunk_by_mut(|a, b| a.word == b.word) {
        // Where the keys end here they are the same, and in order: by revision.
        if alike.len() > 1 && goes_on(alike[0].word) {
            sort(alike, stored, depth + 1);
        }
    }
}

/// The first bytes of what is left of a key, and behind them how many there are: ordered as the keys are, as far as it
/// goes.
fn word(rest: &[u8]) -> u64 {
    let mut bytes = [0; WORD_KEY_BYTES + 1];
    if let Some(first) = rest.first_chunk::<{ WORD_KEY_BYTES + 1 }>() {
        bytes = *first;
        bytes[WORD_KEY_BYTES] = WORD_KEY_BYTES as u8 + 1;
    } else {
        let length = rest.len().min(WORD_KEY_BYTES);
        bytes[..length].copy_from_slice(&rest[..length]);
        bytes[WORD_KEY_BYTES] = rest.len() as u8;
    }
    u64::from_be_bytes(bytes)
}

/// Whether a word's key does not end with it.
fn goes_on(word: u64) -> bool {
    word & 0xff > WORD_KEY_BYTES as u64
}

/// What of several runs lies in one range of keys, as one: ascending by key, then by revision.
#[derive(Clone, Debug)]
pub(super) struct Merged<'r, 'tx> {
    heads: Vec<Head<'r, 'tx>>,
}

/// What is left of one run. Some of it is looked at ahead, all at once: the memory it lies in is then waited for once,
/// not once for each.
#[derive(Clone, Debug)]
struct Head<'r, 'tx> {
    ahead: vec::IntoIter<(u64, &'r Stored<'tx>)>,
    /// The first of all, with the first word of its key.
    next: (u64, &'r Stored<'tx>),
    rest: slice::Iter<'r, Place>,
    stored: &'r [Stored<'tx>],
}

impl<'r, 'tx> Head<'r, 'tx> {
    fn new(run: &'r Run<'tx>, places: Range<usize>) -> Option<Self> {
        let mut rest = run.order[places].iter();
        let mut ahead = look_ahead(&mut rest, &run.stored);
        Some(Head { next: ahead.next()?, ahead, rest, stored: &run.stored })
    }

    /// Goes on to the next one; `false` if there is none.
    fn advance(&mut self) -> bool {
        let next = self.ahead.next().or_else(|| {
            self.ahead = look_ahead(&mut self.rest, self.stored);
            self.ahead.next()
        });
        next.map(|next| self.next = next).is_some()
    }

    fn order(&self, other: &Head<'_, '_>) -> std::cmp::Ordering {
        self.next.0.cmp(&other.next.0).then_with(|| self.next.1.order(other.next.1))
    }
}

fn look_ahead<'r, 'tx>(
    rest: &mut slice::Iter<'r, Place>,
    stored: &'r [Stored<'tx>],
) -> vec::IntoIter<(u64, &'r Stored<'tx>)> {
    let ahead = rest.take(AHEAD_MAX).map(|place| &stored[place.at]).map(|stored| (word(stored.key), stored));
    ahead.collect::<Vec<_>>().into_iter()
}

/// Cuts the keys into so many ranges, of about the same size if the runs are alike, and merges the runs in each.
pub(super) fn merge<'r, 'tx>(runs: &'r [Run<'tx>], ranges: usize) -> Vec<Merged<'r, 'tx>> {
    let Some(longest) = runs.iter().max_by_key(|run| run.order.len()) else { return Vec::new() };
    let length = longest.order.len();
    let cuts = (1..ranges).map(|number| length * number / ranges).filter(|place| *place < length);
    let mut starts = vec![0; runs.len()];
    let mut merged = Vec::new();
    for cut in cuts {
        let ends: Vec<usize> = runs.iter().map(|run| run.place_of(longest.key(cut))).collect();
        merged.push(Merged::new(runs, starts.iter().zip(&ends).map(|(start, end)| *start..*end)));
        starts = ends;
    }
    merged.push(Merged::new(runs, starts.iter().zip(runs).map(|(start, run)| *start..run.order.len())));
    merged
}

impl<'r, 'tx> Merged<'r, 'tx> {
    fn new(runs: &'r [Run<'tx>], ranges: impl Iterator<Item = Range<usize>>) -> Self {
        Merged { heads: runs.iter().zip(ranges).filter_map(|(run, range)| Head::new(run, range)).collect() }
    }
}

impl<'r, 'tx> Iterator for Merged<'r, 'tx> {
    type Item = &'r Stored<'tx>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, _) = self.heads.iter().enumerate().min_by(|(_, a), (_, b)| a.order(b))?;
        let head = &mut self.heads[at];
        let (_, next) = head.next;
        if !head.advance() {
            self.heads.swap_remove(at);
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mvcc::Revision;

    /// Keys that are beginnings of each other, end in zeros, are the same, and are alike for longer than words go.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let long = WORDS_MAX * WORD_KEY_BYTES;
        let alike = prop_oneof![Just(0), Just(6), Just(7), Just(8), Just(21), long - 1..long + 9];
        (alike, prop::collection::vec(prop_oneof![Just(0), Just(1), Just(b'a'), Just(0xff)], 0..12)).prop_map(
            |(alike, end)| {
                let mut key = vec![b'a'; alike];
                key.extend(end);
                key
            },
        )
    }

    proptest! {
        #[test]
        fn merged_runs_are_what_one_sort_makes(
            keys in prop::collection::vec((key(), 0usize..4), 0..200),
            ranges in 1usize..6,
        ) {
            let mut parts: Vec<Vec<Stored<'_>>> = (0..4).map(|_| Vec::new()).collect();
            let mut expected = Vec::new();
            for (main, (key, part)) in (1..).zip(&keys) {
                let revision = Revision { main, sub: 0 };
                parts[*part].push(Stored { key, entry: Entry::after_put(revision, None, false), lease: 0 });
                expected.push((key.as_slice(), revision));
            }
            expected.sort();
            let runs: Vec<Run<'_>> = parts.into_iter().map(Run::sort).collect();
            let merged: Vec<Vec<_>> = merge(&runs, ranges)
                .into_iter()
                .map(|range| range.map(|stored| (stored.key, stored.entry.revision)).collect())
                .collect();
            for pair in merged.windows(2) {
                if let (Some((low, _)), Some((high, _))) = (pair[0].last(), pair[1].first()) {
                    prop_assert!(low < high, "a key lies in two ranges, or they are out of order");
                }
            }
            prop_assert_eq!(merged.concat(), expected);
        }
    }
}
