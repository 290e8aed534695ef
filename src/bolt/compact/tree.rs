//! Copies trees element by element, from the leaves up. What is copied stays in the map until its page is laid out.

use std::{borrow::Cow, mem};

use super::{BoltError, Output};
use crate::bolt::{
    Cursor,
    node::{Child, Entry, Link, encode_branch, encode_leaf},
    page::{self, BUCKET_FLAG, DEPTH_LEVELS_MAX, ELEMENTS_MAX, HEADER_BYTES, LeafElement, Pages},
    read::{BUCKET_HEADER_BYTES, Root, bucket_header},
    spill::INLINE_DIVISOR,
};

/// Elements a page has at least, if there are so many.
const PAGE_ELEMENTS_MIN: usize = 2;

/// Copies the tree of buckets; the new root's page.
pub(super) fn copy(pages: &Pages<'_>, root: u64, fill: f64, out: &mut Output<'_>) -> Result<u64, BoltError> {
    let mut tree = copy_bucket(pages, Root::Page(root), fill, DEPTH_LEVELS_MAX, out)?;
    tree.finish(out)
}

/// Copies one bucket with those inside it, all but what goes with the finishing.
fn copy_bucket<'tx>(
    pages: &Pages<'tx>,
    root: Root<'tx>,
    fill: f64,
    levels_left: usize,
    out: &mut Output<'_>,
) -> Result<Tree<'tx>, BoltError> {
    let mut tree = Tree::new(fill, out.page_bytes);
    let mut cursor = Cursor::new(*pages, root);
    let mut pair = cursor.first()?;
    while pair.is_some() {
        let Some((home, found)) = cursor.here()? else { break };
        let entry = if found.is_bucket() {
            let Some(levels_left) = levels_left.checked_sub(1) else {
                return Err(pages.damaged(home, "holds buckets inside each other without an end"));
            };
            let value = copy_nested(pages, home, &found, fill, levels_left, out)?;
            tree.has_buckets = true;
            Entry::new(BUCKET_FLAG, found.key(), &value)
        } else {
            let key_bytes = u32::try_from(found.key_bytes).expect("is a u32 in the page");
            Entry { flags: found.flags, key_bytes, pair: Cow::Borrowed(found.pair) }
        };
        tree.push(entry, out)?;
        pair = cursor.next()?;
    }
    Ok(tree)
}

/// Copies a bucket that is an element of another; the value that goes with its name.
fn copy_nested<'tx>(
    pages: &Pages<'tx>,
    home: u64,
    element: &LeafElement<'tx>,
    fill: f64,
    levels_left: usize,
    out: &mut Output<'_>,
) -> Result<Vec<u8>, BoltError> {
    let header = bucket_header(pages, home, element)?;
    let mut tree = copy_bucket(pages, header.root, fill, levels_left, out)?;
    let mut value = vec![0; BUCKET_HEADER_BYTES];
    page::put_u64(&mut value, 8, header.sequence);
    if tree.fits_inline(out.page_bytes) {
        let entries = tree.leaf.take_all();
        value.resize(BUCKET_HEADER_BYTES + HEADER_BYTES + entries.iter().map(Entry::page_bytes).sum::<usize>(), 0);
        encode_leaf(&mut value[BUCKET_HEADER_BYTES..], 0, 0, &entries);
        return Ok(value);
    }
    page::put_u64(&mut value, 0, tree.finish(out)?);
    Ok(value)
}

/// A tree in the making: the rightmost page of each level.
struct Tree<'tx> {
    leaf: Pending<Entry<'tx>>,
    /// From the lowest up.
    branches: Vec<Pending<Link<'tx>>>,
    has_buckets: bool,
    page_bytes: usize,
    /// Bytes of elements a page gets.
    wanted_bytes: usize,
}

impl<'tx> Tree<'tx> {
    fn new(fill: f64, page_bytes: usize) -> Tree<'tx> {
        // The cast is of a number between nothing and a page.
        let wanted_bytes = (page_bytes as f64 * fill.clamp(0.1, 1.0)) as usize - HEADER_BYTES;
        Tree { leaf: Pending::default(), branches: Vec::new(), has_buckets: false, page_bytes, wanted_bytes }
    }

    fn fits_inline(&self, page_bytes: usize) -> bool {
        self.branches.is_empty() && !self.has_buckets && self.leaf.bytes + HEADER_BYTES <= page_bytes / INLINE_DIVISOR
    }

    fn push(&mut self, entry: Entry<'tx>, out: &mut Output<'_>) -> Result<(), BoltError> {
        let bytes = entry.page_bytes();
        self.leaf.push(entry, bytes);
        match self.leaf.take_full(self.wanted_bytes) {
            Some(page) => self.write_leaf(&page, out),
            None => Ok(()),
        }
    }

    fn write_leaf(&mut self, entries: &[Entry<'tx>], out: &mut Output<'_>) -> Result<(), BoltError> {
        let bytes = HEADER_BYTES + entries.iter().map(Entry::page_bytes).sum::<usize>();
        let id = out.page(bytes, |page, id, overflow| encode_leaf(page, id, overflow, entries))?;
        let key = entries.first().map(Entry::key_cow).unwrap_or_default();
        self.link(0, Link { key, child: Child::Page(id) }, out)
    }

    fn link(&mut self, level: usize, link: Link<'tx>, out: &mut Output<'_>) -> Result<(), BoltError> {
        if level == self.branches.len() {
            self.branches.push(Pending::default());
        }
        let bytes = link.page_bytes();
        self.branches[level].push(link, bytes);
        match self.branches[level].take_full(self.wanted_bytes) {
            Some(page) => self.write_branch(level, &page, out),
            None => Ok(()),
        }
    }

    fn write_branch(&mut self, level: usize, links: &[Link<'tx>], out: &mut Output<'_>) -> Result<(), BoltError> {
        let bytes = HEADER_BYTES + links.iter().map(Link::page_bytes).sum::<usize>();
        let id = out.page(bytes, |page, id, overflow| encode_branch(page, id, overflow, links))?;
        self.link(level + 1, Link { key: links[0].key.clone(), child: Child::Page(id) }, out)
    }

    /// Writes what is left of each level; the root's page.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<u64, BoltError> {
        let room = self.page_bytes - HEADER_BYTES;
        for page in self.leaf.take_rest(room) {
            self.write_leaf(&page, out)?;
        }
        let mut level = 0;
        loop {
            let is_top = level + 1 == self.branches.len();
            match &self.branches[level].elements[..] {
                [(Link { child: Child::Page(root), .. }, _)] if is_top => return Ok(*root),
                _ => {
                    for page in self.branches[level].take_rest(room) {
                        self.write_branch(level, &page, out)?;
                    }
                }
            }
            level += 1;
        }
    }
}

/// Elements of a level that are not in a page yet, with their sizes.
struct Pending<T> {
    elements: Vec<(T, usize)>,
    bytes: usize,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending { elements: Vec::new(), bytes: 0 }
    }
}

impl<T> Pending<T> {
    fn push(&mut self, element: T, bytes: usize) {
        self.elements.push((element, bytes));
        self.bytes += bytes;
    }

    /// The elements of a page, once there are enough for it. Two are always kept, so that the last page has two.
    fn take_full(&mut self, wanted_bytes: usize) -> Option<Vec<T>> {
        let ready = self.elements.len().checked_sub(PAGE_ELEMENTS_MIN).filter(|ready| *ready >= PAGE_ELEMENTS_MIN)?;
        let last_bytes = self.elements[ready + 1].1;
        // All but the last two fill the page, and the first of those would be too much.
        (self.bytes - last_bytes > wanted_bytes || ready == ELEMENTS_MAX / 2).then(|| self.take(ready))
    }

    /// What is left, as one page if it fits into `room_bytes`, or else as two.
    fn take_rest(&mut self, room_bytes: usize) -> Vec<Vec<T>> {
        let first = self.elements.len().saturating_sub(PAGE_ELEMENTS_MIN);
        if self.bytes > room_bytes && first >= PAGE_ELEMENTS_MIN {
            vec![self.take(first), self.take_all()]
        } else {
            vec![self.take_all()]
        }
    }

    fn take_all(&mut self) -> Vec<T> {
        self.take(self.elements.len())
    }

    fn take(&mut self, count: usize) -> Vec<T> {
        let rest = self.elements.split_off(count);
        let taken = mem::replace(&mut self.elements, rest);
        self.bytes = self.elements.iter().map(|(_, bytes)| bytes).sum();
        taken.into_iter().map(|(element, _)| element).collect()
    }
}
