//! From nodes to pages: merges what has become too small, splits what has become too large, gives every node that was
//! touched a page of its own, and lays the pages out in memory.
//!
//! Copy on write: a touched node never goes back to the pages it came from. Those are collected in `freed`, for the
//! freelist to keep until no reader sees them. Nothing is written to the file here, and everything can be undone.

use std::{collections::BTreeMap, mem};

use super::{
    error::BoltError,
    freelist::Freelist,
    node::{Body, Child, Entry, Link, Node, encode_branch, encode_leaf},
    page::{self, ELEMENTS_MAX, HEADER_BYTES, Pages, Run},
};

/// A node smaller than this share of a page is merged with a neighbour.
const MERGE_DIVISOR: usize = 4;
/// A bucket larger than this share of a page does not live in its own value.
const INLINE_DIVISOR: usize = 4;
/// A page is not cut below this many elements, so that branches always branch.
const SPLIT_ELEMENTS_MIN: usize = 2;
/// A page is cut before this size whatever else holds: element offsets are 32 bits wide.
const SPLIT_BYTES_MAX: usize = 1 << 30;

/// Bytes of pages up to which a commit's memory grows step by step.
const ARENA_SMALL_BYTES: usize = 64 << 10;
/// What is reserved for larger commits at once. So much comes from the system directly, costs nothing where it is not
/// touched, and goes back when the commit is done: what a heap has grown by for the largest commit, it would keep.
const ARENA_RESERVED_BYTES: usize = 40 << 20;

/// A page to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirty {
    pub(super) id: u64,
    /// Where its bytes begin in the arena.
    pub(super) start: usize,
    pub(super) bytes: usize,
}

/// Places that are meant for pages to be: number of pages → where such runs begin.
pub(super) type Reserved = BTreeMap<u64, Vec<u64>>;

#[derive(Debug)]
pub(super) struct Spill<'s, 'db> {
    pages: Pages<'db>,
    page_bytes: usize,
    freelist: &'s mut Freelist,
    /// Pages from here on have never been used, counting those this commit takes.
    pub(super) high_water: u64,
    /// Pages of the commit before that this one does without.
    pub(super) freed: Vec<Run>,
    /// What was taken from the freelist.
    taken: Vec<Run>,
    /// What was taken from the freelist before, for pages of this commit: first pages by length.
    reserved: Reserved,
    pub(super) arena: Vec<u8>,
    pub(super) dirty: Vec<Dirty>,
}

impl<'s, 'db> Spill<'s, 'db> {
    /// What is `reserved` was taken from the list; pages of these lengths get these places.
    pub(super) fn new(pages: Pages<'db>, freelist: &'s mut Freelist, reserved: Reserved) -> Spill<'s, 'db> {
        Spill {
            pages,
            page_bytes: pages.page_bytes as usize,
            freelist,
            high_water: pages.high_water,
            freed: Vec::new(),
            taken: Vec::new(),
            reserved,
            arena: Vec::new(),
            dirty: Vec::new(),
        }
    }

    /// Gives back what was taken from the freelist.
    pub(super) fn undo(mut self) {
        self.release_reserved();
        for run in self.taken {
            self.freelist.free(run).expect("these pages were taken from the list by this commit");
        }
    }

    /// Gives back the places that nothing was put into.
    fn release_reserved(&mut self) {
        give_back(self.freelist, mem::take(&mut self.reserved));
    }

    /// Lowers the high-water mark to the last page that is used, or that a view may still show.
    pub(super) fn trim(&mut self) {
        self.release_reserved();
        if let Some(tail) = self.freelist.take_tail(self.high_water) {
            self.high_water = tail.first;
            self.taken.push(tail);
        }
    }

    /// Merges nodes of a tree that lost elements, and takes off levels that no longer branch.
    pub(super) fn rebalance_root(&mut self, root: &mut Child<'db>) -> Result<(), BoltError> {
        let Child::Node(node) = root else { return Ok(()) };
        self.rebalance(node)?;
        while let Child::Node(node) = root {
            let Body::Branch(links) = &mut node.body else { break };
            match links.len() {
                0 => node.body = Body::Leaf(Vec::new()),
                1 => {
                    self.freed.extend(node.old);
                    let only = links.remove(0).child;
                    *root = only;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn rebalance(&mut self, node: &mut Node<'db>) -> Result<(), BoltError> {
        let Body::Branch(links) = &mut node.body else { return Ok(()) };
        for link in links.iter_mut() {
            if let Child::Node(child) = &mut link.child {
                self.rebalance(child)?;
            }
        }
        self.merge_children(node)
    }

    /// Drops the empty children of a branch, and merges the small ones with their neighbours.
    fn merge_children(&mut self, node: &mut Node<'db>) -> Result<(), BoltError> {
        let Body::Branch(links) = &mut node.body else { return Ok(()) };
        let before = links.len();
        links.retain(|link| match &link.child {
            Child::Node(child) if child.len() == 0 => {
                self.freed.extend(child.old);
                false
            }
            _ => true,
        });
        let mut index = 0;
        while index < links.len() && links.len() > 1 {
            if self.is_too_small(&links[index].child) || self.fits_before(links, index) {
                // Into the left neighbour, or the right one into the first; then what came of it is looked at again.
                index = index.saturating_sub(1);
                let mut right = links.remove(index + 1).child;
                let right = mem::replace(right.node(&self.pages)?, Node::empty_leaf());
                self.freed.extend(right.old);
                let left = links[index].child.node(&self.pages)?;
                left.absorb(&self.pages, right)?;
                // A small child that was alone below `right` has neighbours now.
                self.merge_children(left)?;
            } else {
                index += 1;
            }
        }
        node.shrunk |= links.len() < before;
        Ok(())
    }

    fn is_too_small(&self, child: &Child<'db>) -> bool {
        let Child::Node(node) = child else { return false };
        let elements_min = if matches!(node.body, Body::Leaf(_)) { 1 } else { 2 };
        node.shrunk && (node.len() < elements_min || node.page_bytes() < self.page_bytes / MERGE_DIVISOR)
    }

    /// Whether a leaf that has shrunk and the one before it fit in one page. Where keys only come at the end nobody else
    /// would ever fill pages that are half empty.
    fn fits_before(&self, links: &[Link<'db>], index: usize) -> bool {
        let Some(before) = index.checked_sub(1) else { return false };
        let (Child::Node(left), Child::Node(right)) = (&links[before].child, &links[index].child) else { return false };
        let are_leaves = matches!((&left.body, &right.body), (Body::Leaf(_), Body::Leaf(_)));
        are_leaves && right.shrunk && left.page_bytes() + right.page_bytes() <= self.page_bytes + HEADER_BYTES
    }

    /// Makes sure that no page is freed that is free already, or was until this commit took it: a tree that refers to a
    /// page twice would in the end have two nodes written to it.
    pub(super) fn check_freed(&mut self) -> Result<(), BoltError> {
        self.release_reserved();
        self.freed.sort_unstable();
        let mut both: Vec<Run> = self.freed.iter().chain(&self.taken).copied().collect();
        both.sort_unstable();
        let overlap = both.windows(2).find(|pair| pair[0].end() > pair[1].first).map(|pair| pair[1]);
        match overlap.or_else(|| self.freed.iter().copied().find(|&run| self.freelist.is_free(run))) {
            Some(run) => Err(self.pages.damaged(run.first, "is used twice, or is free and in use")),
            None => Ok(()),
        }
    }

    /// Whether a bucket with this root is small enough to live inside its own value.
    pub(super) fn fits_inline(&self, root: &Node<'db>) -> bool {
        let Body::Leaf(entries) = &root.body else { return false };
        entries.len() <= ELEMENTS_MAX
            && root.page_bytes() <= self.page_bytes / INLINE_DIVISOR
            && !entries.iter().any(Entry::is_bucket)
    }

    /// Lays a tree's touched nodes out as pages; returns the root's.
    pub(super) fn spill_root(&mut self, root: Child<'db>, fill: f64) -> u64 {
        let mut links = match root {
            Child::Page(id) => return id,
            Child::Node(node) => self.spill(*node, fill),
        };
        loop {
            match &links[..] {
                [Link { child: Child::Page(id), .. }] => return *id,
                _ => links = self.spill_branch(&links, fill),
            }
        }
    }

    fn spill(&mut self, node: Node<'db>, fill: f64) -> Vec<Link<'db>> {
        self.freed.extend(node.old);
        match node.body {
            Body::Leaf(entries) => self.spill_leaf(&entries, fill),
            Body::Branch(links) => {
                let mut pages = Vec::with_capacity(links.len());
                for link in links {
                    match link.child {
                        Child::Page(_) => pages.push(link),
                        Child::Node(child) => pages.extend(self.spill(*child, fill)),
                    }
                }
                self.spill_branch(&pages, fill)
            }
        }
    }

    fn spill_leaf(&mut self, entries: &[Entry<'db>], fill: f64) -> Vec<Link<'db>> {
        let sizes: Vec<usize> = entries.iter().map(Entry::page_bytes).collect();
        let mut links = Vec::new();
        for group in split(&sizes, self.page_bytes, fill) {
            let (entries, bytes) = (&entries[group.clone()], HEADER_BYTES + sizes[group].iter().sum::<usize>());
            let id = self.lay_out(bytes, |out, id, overflow| encode_leaf(out, id, overflow, entries));
            links.push(Link { key: entries.first().map(Entry::key_cow).unwrap_or_default(), child: Child::Page(id) });
        }
        links
    }

    fn spill_branch(&mut self, links: &[Link<'db>], fill: f64) -> Vec<Link<'db>> {
        let sizes: Vec<usize> = links.iter().map(Link::page_bytes).collect();
        let mut above = Vec::new();
        for group in split(&sizes, self.page_bytes, fill) {
            let (links, bytes) = (&links[group.clone()], HEADER_BYTES + sizes[group].iter().sum::<usize>());
            let id = self.lay_out(bytes, |out, id, overflow| encode_branch(out, id, overflow, links));
            above.push(Link { key: links[0].key.clone(), child: Child::Page(id) });
        }
        above
    }

    /// Writes the list of all free pages, those this commit frees included, as pages; returns where. Nothing can be
    /// laid out after it.
    pub(super) fn spill_freelist(&mut self) -> Run {
        let count = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<u64>();
        // Taking pages for the list can only make it shorter: what is enough now is enough then.
        let most = count(&self.freelist.runs()) + count(&self.freed);
        let bytes = HEADER_BYTES + 8 * (1 + usize::try_from(most).expect("page numbers of one file fit in memory"));
        let pages = bytes.div_ceil(self.page_bytes) as u64;
        let first = self.allocate(pages);
        self.trim();
        let mut runs = self.freelist.runs();
        runs.extend(&self.freed);
        runs.sort_unstable();
        let ids = count(&runs);
        let start = self.reserve(first, pages);
        let out = &mut self.arena[start..];
        let overflow = u32::try_from(pages - 1).expect("a list of four billion pages exceeds any file");
        let (short_count, mut at) = match u16::try_from(ids) {
            Ok(count) if count < u16::MAX => (count, HEADER_BYTES),
            _ => {
                page::put_u64(out, HEADER_BYTES, ids);
                (u16::MAX, HEADER_BYTES + 8)
            }
        };
        page::put_header(out, first, page::FREELIST, short_count, overflow);
        for id in runs.into_iter().flat_map(|run| run.first..run.end()) {
            page::put_u64(out, at, id);
            at += 8;
        }
        Run { first, count: pages }
    }

    /// Takes pages for `bytes` bytes and has them filled.
    fn lay_out(&mut self, bytes: usize, encode: impl FnOnce(&mut [u8], u64, u32)) -> u64 {
        let pages = bytes.div_ceil(self.page_bytes);
        let overflow = u32::try_from(pages - 1).expect("splitting keeps pages below four gigabytes");
        let id = self.allocate(pages as u64);
        let start = self.reserve(id, pages as u64);
        encode(&mut self.arena[start..], id, overflow);
        id
    }

    /// Room in the arena for pages, all zero.
    fn reserve(&mut self, id: u64, pages: u64) -> usize {
        let (start, bytes) = (self.arena.len(), pages as usize * self.page_bytes);
        if start + bytes > ARENA_SMALL_BYTES && self.arena.capacity() < ARENA_RESERVED_BYTES {
            // Where the system refuses so much at once it grows as it goes.
            let _ = self.arena.try_reserve_exact(ARENA_RESERVED_BYTES - start);
        }
        self.arena.resize(start + bytes, 0);
        self.dirty.push(Dirty { id, start, bytes });
        start
    }

    fn allocate(&mut self, count: u64) -> u64 {
        if let Some(first) = self.reserved.get_mut(&count).and_then(Vec::pop) {
            self.taken.push(Run { first, count });
            return first;
        }
        if let Some(first) = self.freelist.allocate(count) {
            self.taken.push(Run { first, count });
            return first;
        }
        let first = self.high_water;
        self.high_water += count;
        first
    }
}

/// Puts places back into the list they were taken from.
pub(super) fn give_back(freelist: &mut Freelist, reserved: Reserved) {
    for (count, firsts) in reserved {
        for first in firsts {
            freelist.free(Run { first, count }).expect("these pages were taken from the list");
        }
    }
}

/// Cuts elements of the given sizes into pages. Pages but the last are filled up to `fill`, and hold at least
/// [`SPLIT_ELEMENTS_MIN`] elements: a page may be larger than `page_bytes` for that, and then overflows.
fn split(sizes: &[usize], page_bytes: usize, fill: f64) -> Vec<std::ops::Range<usize>> {
    let filled = (page_bytes as f64 * fill) as usize;
    let mut groups = Vec::new();
    let mut start = 0;
    let mut rest = HEADER_BYTES + sizes.iter().sum::<usize>();
    loop {
        let left = sizes.len() - start;
        let few = left <= 2 * SPLIT_ELEMENTS_MIN && rest <= SPLIT_BYTES_MAX;
        if (rest <= page_bytes && left <= ELEMENTS_MAX) || few {
            groups.push(start..sizes.len());
            return groups;
        }
        let mut bytes = HEADER_BYTES;
        let mut taken = 0;
        for &size in &sizes[start..] {
            let full = bytes + size > filled || left - taken == SPLIT_ELEMENTS_MIN;
            let too_large = bytes + size > SPLIT_BYTES_MAX || taken == ELEMENTS_MAX;
            if (taken >= SPLIT_ELEMENTS_MIN && full) || (taken > 0 && too_large) {
                break;
            }
            bytes += size;
            taken += 1;
        }
        groups.push(start..start + taken);
        start += taken;
        rest -= bytes - HEADER_BYTES;
        if start == sizes.len() {
            return groups;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_not_cut() {
        assert_eq!(split(&[100; 40], 4096, 0.5), vec![0..40; 1]);
        assert_eq!(split(&[], 4096, 0.5), vec![0..0; 1]);
    }

    #[test]
    fn pages_are_filled_to_the_share_asked_for() {
        // (4096 * 0.9 - 16) / 100 = 36 and (4096 * 0.5 - 16) / 100 = 20 elements.
        assert_eq!(split(&[100; 100], 4096, 0.9), [0..36, 36..72, 72..100]);
        assert_eq!(split(&[100; 50], 4096, 0.5), [0..20, 20..50]);
    }

    #[test]
    fn every_page_keeps_two_elements() {
        assert_eq!(split(&[5000; 7], 4096, 0.5), [0..2, 2..4, 4..7]);
        assert_eq!(split(&[5000; 4], 4096, 0.5), vec![0..4; 1]);
        assert_eq!(split(&[1000, 1000, 1000, 1000, 4000, 10], 4096, 1.0), [0..4, 4..6]);
    }

    #[test]
    fn no_page_outgrows_its_offsets_or_count() {
        assert_eq!(split(&[SPLIT_BYTES_MAX; 2], 4096, 0.5), [0..1, 1..2]);
        assert_eq!(split(&[17; 100_000], 1 << 24, 1.0), [0..ELEMENTS_MAX, ELEMENTS_MAX..100_000]);
    }
}
