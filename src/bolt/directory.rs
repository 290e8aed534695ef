//! Where the pages of a bucket are, at one commit: a flat list of the keys that leaves begin with, or of a bucket with
//! more leaves than the list may have, the lowest branches that fit.
//!
//! A descent from the root costs a search in each branch. Who looks up many keys makes this list once, of the branches
//! above alone, and finds the page of each key by arithmetic.
//! It is a short cut, not the truth: whatever is not found by it, or odd in it, is left to a descent, which says what
//! is wrong.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    page::{DEPTH_LEVELS_MAX, Page, Pages},
    search::{Head, Search},
};

/// Most pages that are listed, 36 bytes each: as many as stay in a processor's caches, and are no burden to list anew for
/// every commit. In tests few, so that both kinds of lists are met.
const LISTED_PAGES_MAX: usize = if cfg!(test) { 256 } else { 16 * 1024 };

/// The list that was made last. It holds no page of the file back.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// `None` where there is none to be had. The lock is held while a list is made: others would make the same.
    last: Mutex<Option<(Key, Option<Arc<Directory>>)>>,
}

/// What tells a bucket's tree at a commit from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) txid: u64,
    pub(super) root: u64,
}

impl Directories {
    /// The list of a bucket's pages; `None` if there is nothing to list, or something is wrong with the branches.
    pub(super) fn of(&self, pages: &Pages<'_>, key: Key) -> Option<Arc<Directory>> {
        let mut last = self.last.lock();
        match &*last {
            Some((made_for, directory)) if *made_for == key => directory.clone(),
            _ => {
                let directory = Directory::build(pages, key.root).map(Arc::new);
                *last = Some((key, directory.clone()));
                directory
            }
        }
    }
}

/// Pages of one level, in the order of their keys.
#[derive(Debug)]
pub(super) struct Directory {
    starts: Vec<Head>,
    pages: Vec<u64>,
    /// Branches between a listed page and a leaf, the listed page included.
    branches_below: usize,
    spread: Spread,
}

/// A page, and what lies in it: keys from `low` on, below `high` if anything is behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) page: u64,
    pub(super) low: Head,
    pub(super) high: Option<Head>,
}

/// Pages in the making of a list, each with the key by which the branch above calls it.
type Level<'tx> = Vec<(&'tx [u8], u64)>;

impl Directory {
    fn build(pages: &Pages<'_>, root: u64) -> Option<Directory> {
        let root = pages.page(root).ok().filter(|root| !root.is_leaf)?;
        let mut level = Level::with_capacity(root.count());
        list_children(&root, &mut level)?;
        let mut branches_below = branches_on_the_left(pages, &level)?;
        while branches_below > 0 {
            let Some(next) = level_below(pages, &level)? else { break };
            level = next;
            branches_below -= 1;
        }
        let mut starts = Vec::with_capacity(level.len());
        for (name, _) in &level {
            starts.push(Head::of(name)?);
        }
        let spread = starts.is_sorted_by(|a, b| a < b).then(|| Spread::of(&starts))?;
        Some(Directory { starts, pages: level.iter().map(|(_, id)| *id).collect(), branches_below, spread })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The listed page below which a key is, if it is anywhere. No page is looked at.
    pub(super) fn listed(&self, key: Head) -> Option<Place> {
        let near = self.spread.near(key);
        let at = (near.start + self.starts.get(near)?.partition_point(|start| *start <= key)).checked_sub(1)?;
        Some(Place { page: self.pages[at], low: self.starts[at], high: self.starts.get(at + 1).copied() })
    }

    /// The leaf a key is in, given the page it is [`listed`](Self::listed) under. Leaves are not looked at.
    pub(super) fn leaf_below(&self, pages: &Pages<'_>, key: Head, mut place: Place) -> Option<Place> {
        for _ in 0..self.branches_below {
            place = below(&pages.page(place.page).ok()?, key, place)?;
        }
        Some(place)
    }
}

/// Which of sorted keys are near a key, told by arithmetic: keys are numbered, and the numbers cut into stretches of the
/// same length, about one for each key.
#[derive(Debug)]
struct Spread {
    low: Head,
    /// More than any second number of a key, so that the keys of one first number come before those of the next.
    seconds: u64,
    shift: u32,
    /// How many keys are in the stretches before each one, and in all.
    before: Vec<u32>,
}

impl Spread {
    /// Of at most 2^32 keys, at least one.
    fn of(keys: &[Head]) -> Spread {
        let seconds = keys.iter().map(|key| key.numbers().1).max().unwrap_or(0).saturating_add(1);
        let mut spread = Spread { low: keys[0], seconds, shift: 0, before: Vec::new() };
        let last = spread.number(keys[keys.len() - 1]);
        while last >> spread.shift > keys.len() as u64 {
            spread.shift += 1;
        }
        let stretches = spread.stretch(last) + 1;
        let mut stretch_ends = keys.iter().map(|key| spread.stretch(spread.number(*key))).peekable();
        let mut before = Vec::with_capacity(stretches + 1);
        let mut passed = 0;
        for stretch in 0..=stretches {
            before.push(passed);
            while stretch_ends.next_if(|of_key| *of_key == stretch).is_some() {
                passed += 1;
            }
        }
        Spread { before, ..spread }
    }

    /// The keys among which those next to a key are, on both sides.
    fn near(&self, key: Head) -> std::ops::Range<usize> {
        let stretch = self.stretch(self.number(key)).min(self.before.len() - 2);
        (self.before[stretch] as usize).saturating_sub(1)..self.before[stretch + 1] as usize
    }

    /// Not less for a greater key.
    fn number(&self, key: Head) -> u64 {
        let (first, second) = key.numbers();
        let Some(firsts) = first.checked_sub(self.low.numbers().0) else { return 0 };
        firsts.saturating_mul(self.seconds).saturating_add(second.min(self.seconds - 1))
    }

    fn stretch(&self, number: u64) -> usize {
        usize::try_from(number >> self.shift).unwrap_or(usize::MAX)
    }
}

/// The page below a branch in whose range a key lies.
fn below(branch: &Page<'_>, key: Head, mut place: Place) -> Option<Place> {
    if branch.is_leaf {
        return None;
    }
    let mut search = Search::at(key.guess_spread(place.low, place.high, branch.count()), branch.count());
    while let Some(probe) = search.probe() {
        let head = Head::of(branch.branch_key(probe).ok()?)?;
        let is_below = head <= key;
        // The last probe on each side is the nearest.
        if is_below {
            place.low = head;
        } else {
            place.high = Some(head);
        }
        search.goes_on(is_below);
    }
    place.page = branch.child(search.end().checked_sub(1)?);
    Some(place)
}

/// How many branches there are from the first page of a level down to the leaves.
fn branches_on_the_left(pages: &Pages<'_>, level: &Level<'_>) -> Option<usize> {
    let (_, mut id) = *level.first()?;
    for branches in 0..DEPTH_LEVELS_MAX {
        let page = pages.page(id).ok()?;
        if page.is_leaf {
            return Some(branches);
        }
        id = page.child(0);
    }
    None
}

/// What is below all pages of a level; inner `None`: too many to list.
fn level_below<'tx>(pages: &Pages<'tx>, level: &Level<'tx>) -> Option<Option<Level<'tx>>> {
    let mut count = 0;
    for (name, id) in level {
        let page = pages.below(*id, name).ok().filter(|page| !page.is_leaf)?;
        count += page.count();
        if count > LISTED_PAGES_MAX {
            return Some(None);
        }
    }
    let mut next = Level::with_capacity(count);
    for (_, id) in level {
        list_children(&pages.page(*id).ok()?, &mut next)?;
    }
    Some(Some(next))
}

fn list_children<'tx>(branch: &Page<'tx>, level: &mut Level<'tx>) -> Option<()> {
    for index in 0..branch.count() {
        level.push((branch.branch_key(index).ok()?, branch.child(index)));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails panics")]

    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let number = || prop_oneof![4 => 0..50u64, 1 => 0..100_000u64, 1 => any::<u64>()];
        let counted = (number(), number())
            .prop_map(|(first, second)| [&first.to_be_bytes()[..], b"_", &second.to_be_bytes()].concat());
        prop_oneof![8 => counted, 1 => prop::collection::vec(any::<u8>(), 0..24)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

        #[test]
        fn the_keys_near_one_are_those_next_to_it(keys in prop::collection::vec(key(), 1..200), asked in prop::collection::vec(key(), 1..50)) {
            let mut heads: Vec<Head> = keys.iter().map(|key| Head::of(key).unwrap()).collect();
            heads.sort_unstable();
            heads.dedup();
            // Of keys that are no two numbers, the numbers may be in another order: then nothing is promised.
            prop_assume!(heads.is_sorted_by_key(|head| head.numbers()));
            let spread = Spread::of(&heads);
            for asked in asked.iter().map(|key| Head::of(key).unwrap()).chain(heads.iter().copied()) {
                let near = spread.near(asked);
                let at = near.start + heads[near].partition_point(|head| *head <= asked);
                let is_in_order = heads.iter().all(|head| (*head <= asked) == (head.numbers() <= asked.numbers()));
                if is_in_order {
                    prop_assert_eq!(at, heads.partition_point(|head| *head <= asked));
                }
            }
        }
    }
}
