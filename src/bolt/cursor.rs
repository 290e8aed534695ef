//! A walk through one bucket in key order, in both directions.
//!
//! The cursor keeps the pages from the root down to where it stands. Each step checks that keys go on in order, so that
//! a damaged tree that leads in circles ends in an error. After an error the cursor keeps erring.

use super::{
    error::BoltError,
    page::{DEPTH_LEVELS_MAX, LeafElement, Page, Pages},
    read::{Root, too_deep},
};

/// A key and its value.
pub type Pair<'tx> = (&'tx [u8], &'tx [u8]);

/// Walks a bucket in key order. A nested bucket shows as its name with an empty value; see [`Cursor::is_bucket`].
///
/// Before the first and after the last key there is a place each to stand: `next` from the former is the first key,
/// `prev` from the latter the last.
#[derive(Debug)]
pub struct Cursor<'tx> {
    pages: Pages<'tx>,
    root: Root<'tx>,
    /// From the root to a leaf; empty unless the cursor stands on a key.
    stack: Vec<Frame<'tx>>,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
struct Frame<'tx> {
    page: Page<'tx>,
    index: usize,
}

#[derive(Clone, Debug)]
enum Place {
    Start,
    Key {
        is_bucket: bool,
    },
    End,
    /// Page and what is wrong with it.
    Damaged(u64, String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
}

impl Way {
    fn end(self) -> Place {
        match self {
            Way::Forward => Place::End,
            Way::Back => Place::Start,
        }
    }
}

impl<'tx> Cursor<'tx> {
    pub(super) fn new(pages: Pages<'tx>, root: Root<'tx>) -> Cursor<'tx> {
        Cursor { pages, root, stack: Vec::new(), place: Place::Start }
    }

    /// To the first key.
    pub fn first(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        self.move_by(|cursor| cursor.edge(Way::Forward))
    }

    /// To the last key.
    pub fn last(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        self.move_by(|cursor| cursor.edge(Way::Back))
    }

    /// To the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<Option<Pair<'tx>>, BoltError> {
        self.move_by(|cursor| {
            cursor.stack.clear();
            let mut page = cursor.root_page()?;
            while !page.is_leaf {
                let index = page.child_for(key)?;
                page = cursor.push(page, index)?;
            }
            let (index, _) = page.search(key)?;
            cursor.stack.push(Frame { page, index });
            if index < page.count() { cursor.stand() } else { cursor.next_leaf(Way::Forward) }
        })
    }

    /// To the first key of the leaf in which `key` is, if it is anywhere: a key in between that is damaged cannot lead past
    /// others of that leaf, since none is compared with. Empty leaves are passed over.
    pub fn seek_leaf(&mut self, key: &[u8]) -> Result<Option<Pair<'tx>>, BoltError> {
        self.move_by(|cursor| {
            cursor.stack.clear();
            let mut page = cursor.root_page()?;
            while !page.is_leaf {
                let is_named_so = page.count() > 0 && page.branch_key(0)? == key;
                let index = if is_named_so { 0 } else { page.child_for(key)? };
                page = cursor.push(page, index)?;
            }
            cursor.stack.push(Frame { page, index: 0 });
            if page.count() > 0 { cursor.stand() } else { cursor.next_leaf(Way::Forward) }
        })
    }

    /// To the next key.
    #[allow(clippy::should_implement_trait, reason = "borrows like an iterator, but goes both ways and can fail")]
    pub fn next(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        self.step(Way::Forward)
    }

    /// To the key before.
    pub fn prev(&mut self) -> Result<Option<Pair<'tx>>, BoltError> {
        self.step(Way::Back)
    }

    /// Whether the key the cursor stands on is a nested bucket.
    pub fn is_bucket(&self) -> bool {
        matches!(self.place, Place::Key { is_bucket: true })
    }

    /// The page the cursor stands in, for messages; `None` unless it stands on a key.
    pub fn page(&self) -> Option<u64> {
        let leaf = self.stack.last()?;
        matches!(self.place, Place::Key { .. }).then_some(leaf.page.id)
    }

    /// The element the cursor stands on, if it stands on one, and the page it lies in.
    pub(super) fn here(&self) -> Result<Option<(u64, LeafElement<'tx>)>, BoltError> {
        match (&self.place, self.stack.last()) {
            (Place::Key { .. }, Some(leaf)) => Ok(Some((leaf.page.id, leaf.page.leaf(leaf.index)?))),
            _ => Ok(None),
        }
    }

    fn step(&mut self, way: Way) -> Result<Option<Pair<'tx>>, BoltError> {
        match (&self.place, way) {
            (Place::Start, Way::Back) | (Place::End, Way::Forward) => Ok(None),
            (Place::Start, Way::Forward) | (Place::End, Way::Back) => self.move_by(|cursor| cursor.edge(way)),
            (Place::Key { .. } | Place::Damaged(..), _) => self.move_by(|cursor| {
                let Some(leaf) = cursor.stack.last_mut() else { return Ok(None) };
                match way {
                    Way::Forward if leaf.index + 1 < leaf.page.count() => {
                        check_neighbours(leaf.page, leaf.index)?;
                        leaf.index += 1;
                    }
                    Way::Back if leaf.index > 0 => {
                        check_neighbours(leaf.page, leaf.index - 1)?;
                        leaf.index -= 1;
                    }
                    _ => return cursor.next_leaf(way),
                }
                cursor.stand()
            }),
        }
    }

    /// Makes a move, and remembers where it ended.
    fn move_by(
        &mut self,
        to: impl FnOnce(&mut Self) -> Result<Option<LeafElement<'tx>>, BoltError>,
    ) -> Result<Option<Pair<'tx>>, BoltError> {
        if let Place::Damaged(page, what) = &self.place {
            return Err(self.pages.damaged(*page, what.clone()));
        }
        match to(self) {
            Ok(Some(element)) => {
                let is_bucket = element.is_bucket();
                self.place = Place::Key { is_bucket };
                Ok(Some((element.key(), if is_bucket { &[] } else { element.value() })))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                if let BoltError::DamagedPage { page, what, .. } = &error {
                    self.place = Place::Damaged(*page, what.clone());
                }
                Err(error)
            }
        }
    }

    fn edge(&mut self, way: Way) -> Result<Option<LeafElement<'tx>>, BoltError> {
        self.stack.clear();
        let root = self.root_page()?;
        self.descend(root, way)?;
        let leaf = self.stack[self.stack.len() - 1];
        if leaf.page.count() > 0 { self.stand() } else { self.next_leaf(way) }
    }

    /// The element the stack points to.
    fn stand(&mut self) -> Result<Option<LeafElement<'tx>>, BoltError> {
        let Some(leaf) = self.stack.last() else { return Ok(None) };
        leaf.page.leaf(leaf.index).map(Some)
    }

    /// To the nearest element of the leaves after (or before) the one on top of the stack.
    fn next_leaf(&mut self, way: Way) -> Result<Option<LeafElement<'tx>>, BoltError> {
        let left = self.stack.pop().map(|frame| frame.page);
        while let Some(frame) = self.stack.pop() {
            let index = match way {
                Way::Forward => Some(frame.index + 1).filter(|&index| index < frame.page.count()),
                Way::Back => frame.index.checked_sub(1),
            };
            let Some(index) = index else { continue };
            let child = self.push(frame.page, index)?;
            self.descend(child, way)?;
            let leaf = self.stack[self.stack.len() - 1].page;
            if leaf.count() > 0 {
                check_order(left, leaf, way)?;
                return self.stand();
            }
            // Writers leave no empty leaf below a branch, but one does no harm.
            self.stack.pop();
        }
        self.place = way.end();
        Ok(None)
    }

    /// Down from `page` along its first (or last) children to a leaf.
    fn descend(&mut self, mut page: Page<'tx>, way: Way) -> Result<(), BoltError> {
        loop {
            let index = if way == Way::Forward { 0 } else { page.count().saturating_sub(1) };
            if page.is_leaf {
                self.stack.push(Frame { page, index });
                return Ok(());
            }
            page = self.push(page, index)?;
        }
    }

    /// Puts a branch on the stack; returns its child.
    fn push(&mut self, branch: Page<'tx>, index: usize) -> Result<Page<'tx>, BoltError> {
        if self.stack.len() >= DEPTH_LEVELS_MAX {
            return Err(too_deep(&self.pages, branch.id));
        }
        self.stack.push(Frame { page: branch, index });
        self.pages.child(&branch, index)
    }

    fn root_page(&self) -> Result<Page<'tx>, BoltError> {
        match self.root {
            Root::Page(id) => self.pages.page(id),
            Root::Inline(page) => Ok(page),
        }
    }
}

/// An element's key is below that of the one behind it.
fn check_neighbours(page: Page<'_>, index: usize) -> Result<(), BoltError> {
    if page.leaf(index)?.key() < page.leaf(index + 1)?.key() {
        return Ok(());
    }
    Err(page.damaged(format!("element {} is not above the one before", index + 1)))
}

fn check_order(left: Option<Page<'_>>, right: Page<'_>, way: Way) -> Result<(), BoltError> {
    let Some(left) = left.filter(|left| left.count() > 0) else { return Ok(()) };
    let (low, high) = if way == Way::Forward { (left, right) } else { (right, left) };
    if low.leaf(low.count() - 1)?.key() < high.leaf(0)?.key() {
        return Ok(());
    }
    Err(right.damaged(format!("holds keys out of order with those of its neighbour, page {}", left.id)))
}
