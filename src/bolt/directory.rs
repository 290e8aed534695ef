//! Where the leaves of a bucket are, at one commit: a flat list of the keys they begin with.
//!
//! A descent through the branches costs a search in each. Who looks up many keys makes this list once, and finds the
//! leaf of each key with one search in it; of a bucket with more leaves than the list may have, a branch above the leaf.
//! It is a short cut, not the truth: whatever is not found by it, or odd in it, is left to a descent, which says what
//! is wrong.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    page::{DEPTH_LEVELS_MAX, Page, Pages},
    search::{Head, Search},
};

/// Most pages that are listed: 32 bytes each.
const LISTED_PAGES_MAX: usize = 128 * 1024;

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
        let mut level = Level::new();
        list_children(&root, &mut level)?;
        let mut branches_below = branches_on_the_left(pages, &level)?;
        while branches_below > 0 {
            let Some(next) = level_below(pages, &level)? else { break };
            level = next;
            branches_below -= 1;
        }
        let starts = level.iter().map(|(name, _)| Head::of(name)).collect::<Option<Vec<_>>>()?;
        starts.is_sorted_by(|a, b| a < b).then(|| Directory {
            starts,
            pages: level.iter().map(|(_, id)| *id).collect(),
            branches_below,
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The leaf a key is in, if it is anywhere. Leaves are not looked at.
    pub(super) fn leaf_of(&self, pages: &Pages<'_>, key: Head) -> Option<Place> {
        let (low, high) = (*self.starts.first()?, *self.starts.last()?);
        let mut search = Search::at(key.guess_spread(low, Some(high), self.starts.len()), self.starts.len());
        while let Some(probe) = search.probe() {
            search.goes_on(self.starts[probe] <= key);
        }
        let at = search.end().checked_sub(1)?;
        let mut place = Place { page: self.pages[at], low: self.starts[at], high: self.starts.get(at + 1).copied() };
        for _ in 0..self.branches_below {
            place = below(&pages.page(place.page).ok()?, key, place)?;
        }
        Some(place)
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
    let mut next = Level::new();
    for (name, id) in level {
        let page = pages.below(*id, name).ok().filter(|page| !page.is_leaf)?;
        if next.len() + page.count() > LISTED_PAGES_MAX {
            return Some(None);
        }
        list_children(&page, &mut next)?;
    }
    Some(Some(next))
}

fn list_children<'tx>(branch: &Page<'tx>, level: &mut Level<'tx>) -> Option<()> {
    for index in 0..branch.count() {
        level.push((branch.branch_key(index).ok()?, branch.child(index)));
    }
    Some(())
}
