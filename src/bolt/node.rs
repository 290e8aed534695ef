//! Pages in the making: the part of a tree a write transaction has touched, as nodes in memory.
//!
//! A node is made from its page when a change needs it, and only then. Elements that were not changed stay slices of
//! the map. Nodes own the nodes below them; what was not touched stays a page number. Nothing here allocates pages or
//! writes: that is spill.rs.

use std::{borrow::Cow, mem};

use super::{
    error::BoltError,
    page::{self, BUCKET_FLAG, DEPTH_LEVELS_MAX, ELEMENT_BYTES, HEADER_BYTES, LeafElement, Page, Pages, Run},
    read::{self, too_deep},
};

#[derive(Debug)]
pub(super) struct Node<'db> {
    /// The pages it was made from, which are free once it is written anew.
    pub(super) old: Option<Run>,
    pub(super) body: Body<'db>,
    /// Lost an element, so it may have to be merged with a neighbour.
    pub(super) shrunk: bool,
}

#[derive(Debug)]
pub(super) enum Body<'db> {
    Leaf(Vec<Entry<'db>>),
    Branch(Vec<Link<'db>>),
}

/// An element of a leaf.
#[derive(Debug)]
pub(super) struct Entry<'db> {
    pub(super) flags: u32,
    pub(super) key_bytes: u32,
    /// Key and value, one after the other as in the page.
    pub(super) pair: Cow<'db, [u8]>,
}

/// An element of a branch.
#[derive(Debug)]
pub(super) struct Link<'db> {
    /// The first key below, when it was read or is written; more than all keys below the link before.
    pub(super) key: Cow<'db, [u8]>,
    pub(super) child: Child<'db>,
}

#[derive(Debug)]
pub(super) enum Child<'db> {
    /// Not touched.
    Page(u64),
    Node(Box<Node<'db>>),
}

impl<'db> Entry<'db> {
    pub(super) fn new(flags: u32, key: &[u8], value: &[u8]) -> Entry<'db> {
        let key_bytes = u32::try_from(key.len()).expect("checked against the limit of keys");
        // Not `concat`, which is made for any number of pieces: where the compiler does not see through it, it shows.
        let mut pair = Vec::with_capacity(key.len() + value.len());
        pair.extend_from_slice(key);
        pair.extend_from_slice(value);
        Entry { flags, key_bytes, pair: Cow::Owned(pair) }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.pair[..self.key_bytes as usize]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.pair[self.key_bytes as usize..]
    }

    pub(super) fn is_bucket(&self) -> bool {
        self.flags & BUCKET_FLAG != 0
    }

    /// The key, borrowed from the map if it lies there.
    pub(super) fn key_cow(&self) -> Cow<'db, [u8]> {
        match &self.pair {
            Cow::Borrowed(pair) => Cow::Borrowed(&pair[..self.key_bytes as usize]),
            Cow::Owned(pair) => Cow::Owned(pair[..self.key_bytes as usize].to_vec()),
        }
    }

    fn from_page(element: LeafElement<'db>) -> Entry<'db> {
        let key_bytes = u32::try_from(element.key_bytes).expect("is a u32 in the page");
        Entry { flags: element.flags, key_bytes, pair: Cow::Borrowed(element.pair) }
    }
}

impl<'db> Child<'db> {
    /// The node, made from its page if need be.
    pub(super) fn node(&mut self, pages: &Pages<'db>) -> Result<&mut Node<'db>, BoltError> {
        if let Child::Page(id) = *self {
            let page = pages.page(id)?;
            *self = Child::Node(Box::new(Node::from_page(&page, Some(page.run()))?));
        }
        match self {
            Child::Node(node) => Ok(node),
            Child::Page(_) => unreachable!("was made a node above"),
        }
    }
}

impl<'db> Node<'db> {
    pub(super) fn empty_leaf() -> Node<'db> {
        Node { old: None, body: Body::Leaf(Vec::new()), shrunk: false }
    }

    pub(super) fn from_page(page: &Page<'db>, old: Option<Run>) -> Result<Node<'db>, BoltError> {
        let body = if page.is_leaf {
            Body::Leaf((0..page.count()).map(|i| page.leaf(i).map(Entry::from_page)).collect::<Result<_, _>>()?)
        } else {
            let link = |i| Ok(Link { key: Cow::Borrowed(page.branch_key(i)?), child: Child::Page(page.child(i)) });
            Body::Branch((0..page.count()).map(link).collect::<Result<_, BoltError>>()?)
        };
        Ok(Node { old, body, shrunk: false })
    }

    pub(super) fn len(&self) -> usize {
        match &self.body {
            Body::Leaf(entries) => entries.len(),
            Body::Branch(links) => links.len(),
        }
    }

    /// Bytes of the node as one page.
    pub(super) fn page_bytes(&self) -> usize {
        HEADER_BYTES
            + match &self.body {
                Body::Leaf(entries) => entries.iter().map(Entry::page_bytes).sum::<usize>(),
                Body::Branch(links) => links.iter().map(Link::page_bytes).sum(),
            }
    }

    /// Sets a key, making nodes of the pages on the way to it.
    pub(super) fn put(&mut self, pages: &Pages<'db>, entry: Entry<'db>) -> Result<(), BoltError> {
        let (leaf, place) = self.leaf_for(pages, entry.key())?;
        let entries = leaf.leaf();
        match place {
            Ok(index) if entries[index].is_bucket() != entry.is_bucket() => {
                return Err(BoltError::IncompatibleValue { key: read::text(entry.key()) });
            }
            Ok(index) => entries[index] = entry,
            Err(index) => entries.insert(index, entry),
        }
        Ok(())
    }

    /// Removes a key that is there, making nodes of the pages on the way to it.
    pub(super) fn remove(&mut self, pages: &Pages<'db>, key: &[u8]) -> Result<(), BoltError> {
        let (node, place) = self.leaf_for(pages, key)?;
        if let Ok(index) = place {
            node.leaf().remove(index);
            node.shrunk = true;
        }
        Ok(())
    }

    /// The leaf a key belongs to, and the index where it is, or would be.
    fn leaf_for(
        &mut self,
        pages: &Pages<'db>,
        key: &[u8],
    ) -> Result<(&mut Node<'db>, Result<usize, usize>), BoltError> {
        let mut node = self;
        for _ in 0..DEPTH_LEVELS_MAX {
            if let Body::Leaf(entries) = &node.body {
                let place = search_leaf(entries, key);
                return Ok((node, place));
            }
            let Body::Branch(links) = &mut node.body else { unreachable!("is no leaf") };
            let index = search_branch(links, key);
            node = links[index].node(pages)?;
        }
        Err(too_deep(pages, node.old.map_or(0, |run| run.first)))
    }

    /// The child in whose range a key lies, made from its page if need be; the node itself if it is a leaf.
    pub(super) fn child_for(&mut self, pages: &Pages<'db>, key: &[u8]) -> Result<&mut Node<'db>, BoltError> {
        if matches!(self.body, Body::Leaf(_)) {
            return Ok(self);
        }
        let Body::Branch(links) = &mut self.body else { unreachable!("is no leaf") };
        let index = search_branch(links, key);
        links[index].child.node(pages)
    }

    /// Puts the elements of `count` children, from that on in whose range a key lies, into the first of them; returns the
    /// pages of the others.
    pub(super) fn join_children(
        &mut self,
        pages: &Pages<'db>,
        key: &[u8],
        count: usize,
    ) -> Result<Vec<Run>, BoltError> {
        let Body::Branch(links) = &mut self.body else { return Ok(Vec::new()) };
        let first = search_branch(links, key);
        let end = (first + count).min(links.len());
        let others: Vec<Link<'db>> = links.drain((first + 1).min(end)..end).collect();
        let left = links[first].child.node(pages)?;
        let mut freed = Vec::with_capacity(others.len());
        for mut other in others {
            let right = mem::replace(other.child.node(pages)?, Node::empty_leaf());
            freed.extend(right.old);
            left.absorb(pages, right)?;
        }
        self.shrunk = true;
        Ok(freed)
    }

    /// Adds the elements of the next node at the end.
    pub(super) fn absorb(&mut self, pages: &Pages<'db>, right: Node<'db>) -> Result<(), BoltError> {
        self.shrunk = true;
        match (&mut self.body, right.body) {
            (Body::Leaf(left), Body::Leaf(right)) => left.extend(right),
            (Body::Branch(left), Body::Branch(right)) => left.extend(right),
            _ => {
                let page = self.old.or(right.old).map_or(0, |run| run.first);
                return Err(pages.damaged(page, "is a leaf beside a branch, or a branch beside a leaf"));
            }
        }
        Ok(())
    }

    fn leaf(&mut self) -> &mut Vec<Entry<'db>> {
        match &mut self.body {
            Body::Leaf(entries) => entries,
            Body::Branch(_) => unreachable!("the search for a leaf ends at one"),
        }
    }

    /// Finds a key: its flags and value.
    pub(super) fn find<'a>(&'a self, pages: &Pages<'db>, key: &[u8]) -> Result<Option<(u32, &'a [u8])>, BoltError> {
        let mut node = self;
        loop {
            match &node.body {
                Body::Leaf(entries) => {
                    let found = search_leaf(entries, key).ok();
                    return Ok(found.map(|index| (entries[index].flags, entries[index].value())));
                }
                Body::Branch(links) => {
                    let link = &links[search_branch(links, key)];
                    match &link.child {
                        Child::Node(below) => node = below,
                        Child::Page(id) => {
                            let found = read::find_below(pages, pages.below(*id, &link.key)?, key)?;
                            return Ok(found.map(|(_, element)| (element.flags, element.value())));
                        }
                    }
                }
            }
        }
    }

    /// Writes the node as the page of an inline bucket.
    pub(super) fn encode_inline(&self, out: &mut [u8]) {
        if let Body::Leaf(entries) = &self.body {
            encode_leaf(out, 0, 0, entries);
        }
    }
}

impl Entry<'_> {
    pub(super) fn page_bytes(&self) -> usize {
        ELEMENT_BYTES + self.pair.len()
    }
}

impl<'db> Link<'db> {
    /// The node below, made from its page if need be.
    fn node(&mut self, pages: &Pages<'db>) -> Result<&mut Node<'db>, BoltError> {
        if let Child::Page(id) = self.child {
            pages.below(id, &self.key)?;
        }
        self.child.node(pages)
    }

    pub(super) fn page_bytes(&self) -> usize {
        ELEMENT_BYTES + self.key.len()
    }
}

fn search_leaf(entries: &[Entry<'_>], key: &[u8]) -> Result<usize, usize> {
    // Keys that only grow, as revisions do, go to the end.
    match entries.last() {
        Some(last) if last.key() < key => Err(entries.len()),
        _ => entries.binary_search_by(|entry| entry.key().cmp(key)),
    }
}

/// The link below which a key belongs.
fn search_branch(links: &[Link<'_>], key: &[u8]) -> usize {
    match links.last() {
        Some(last) if &*last.key <= key => links.len() - 1,
        _ => links.partition_point(|link| &*link.key <= key).saturating_sub(1),
    }
}

/// Writes a leaf page into `out`, which is as long as the page and zero.
pub(super) fn encode_leaf(out: &mut [u8], id: u64, overflow: u32, entries: &[Entry<'_>]) {
    page::put_header(out, id, page::LEAF, count_of(entries.len()), overflow);
    let mut data = HEADER_BYTES + entries.len() * ELEMENT_BYTES;
    for (index, entry) in entries.iter().enumerate() {
        let at = HEADER_BYTES + index * ELEMENT_BYTES;
        page::put_u32(out, at, entry.flags);
        page::put_u32(out, at + 4, offset_of(data - at));
        page::put_u32(out, at + 8, entry.key_bytes);
        page::put_u32(out, at + 12, offset_of(entry.value().len()));
        out[data..data + entry.pair.len()].copy_from_slice(&entry.pair);
        data += entry.pair.len();
    }
}

/// Writes a branch page into `out`, which is as long as the page and zero. All children must be pages.
pub(super) fn encode_branch(out: &mut [u8], id: u64, overflow: u32, links: &[Link<'_>]) {
    page::put_header(out, id, page::BRANCH, count_of(links.len()), overflow);
    let mut data = HEADER_BYTES + links.len() * ELEMENT_BYTES;
    for (index, link) in links.iter().enumerate() {
        let Child::Page(child) = link.child else { unreachable!("children are written before their parent") };
        let at = HEADER_BYTES + index * ELEMENT_BYTES;
        page::put_u32(out, at, offset_of(data - at));
        page::put_u32(out, at + 4, offset_of(link.key.len()));
        page::put_u64(out, at + 8, child);
        out[data..data + link.key.len()].copy_from_slice(&link.key);
        data += link.key.len();
    }
}

fn count_of(elements: usize) -> u16 {
    u16::try_from(elements).expect("splitting keeps pages below the limit of elements")
}

fn offset_of(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("splitting keeps pages below four gigabytes")
}
