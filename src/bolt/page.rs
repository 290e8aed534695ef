//! How a page and its elements lie in the file (bbolt's format, version 2, little-endian).
//!
//! A page is a 16-byte header {id u64, flags u16, count u16, overflow u32}, an array of 16-byte elements, and the keys
//! and values they point to. A page of `overflow` n spans n + 1 pages of the file. Everything read here is checked
//! against the page's own bytes: a damaged page is an error, never a panic and never a look beyond its end.

use std::path::Path;

use super::{error::BoltError, map::Map, search::Search};

/// The first page that is not a meta page.
pub(super) const FIRST_DATA_PAGE: u64 = 2;

pub(super) const HEADER_BYTES: usize = 16;
/// Of a branch element {pos u32, ksize u32, child u64} as of a leaf element {flags, pos, ksize, vsize}, each u32.
pub(super) const ELEMENT_BYTES: usize = 16;
pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;
/// A leaf element's flag: its value is a bucket.
pub(super) const BUCKET_FLAG: u32 = 0x01;
/// Elements of a page: the header's count is a u16, whose last value means something else in a freelist.
pub(super) const ELEMENTS_MAX: usize = 0xFFFE;
/// Levels of one tree. Two children to a branch make 2^64 leaves; more levels than that are a cycle.
pub(super) const DEPTH_LEVELS_MAX: usize = 64;

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Run {
    pub(super) fn end(self) -> u64 {
        self.first + self.count
    }
}

/// The pages a transaction can see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages<'a> {
    pub(super) map: &'a Map,
    pub(super) path: &'a Path,
    pub(super) page_bytes: u32,
    /// Pages from here on are not this transaction's: nothing may be asked of the map there, see [`Map::bytes`].
    pub(super) high_water: u64,
}

impl<'a> Pages<'a> {
    /// The bytes of a page with those it overflows into; the header's id and extent are right.
    pub(super) fn raw(&self, id: u64) -> Result<&'a [u8], BoltError> {
        if id < FIRST_DATA_PAGE || id >= self.high_water {
            return Err(self.damaged(id, "is referred to but lies outside of the tree's pages"));
        }
        let page_bytes = u64::from(self.page_bytes);
        let missing = || self.damaged(id, "lies beyond the end of the file");
        let head = self.map.bytes(id * page_bytes, page_bytes).ok_or_else(missing)?;
        let found = u64_at(head, 0);
        if found != id {
            return Err(self.damaged(id, format!("says it is page {found}")));
        }
        match u64::from(overflow_of(head)) {
            0 => Ok(head),
            overflow if overflow >= self.high_water - id => {
                Err(self.damaged(id, format!("overflows into {overflow} pages, beyond the last page")))
            }
            overflow => self.map.bytes(id * page_bytes, (overflow + 1) * page_bytes).ok_or_else(missing),
        }
    }

    /// The beginning of a page, whatever is in it; `None` if there is no such page.
    pub(super) fn beginning(&self, id: u64, bytes: u64) -> Option<&'a [u8]> {
        if id < FIRST_DATA_PAGE || id >= self.high_water {
            return None;
        }
        let page_bytes = u64::from(self.page_bytes);
        self.map.bytes(id * page_bytes, bytes.min(page_bytes))
    }

    /// A branch or leaf page.
    pub(super) fn page(&self, id: u64) -> Result<Page<'a>, BoltError> {
        Page::decode(self.path, id, self.raw(id)?)
    }

    /// The page below an element of a branch.
    pub(super) fn child(&self, branch: &Page<'a>, index: usize) -> Result<Page<'a>, BoltError> {
        self.below(branch.child(index), branch.branch_key(index)?)
    }

    /// A page below a branch, which calls it by its first key: every writer of the format sees to that. Whoever searches
    /// goes where the branch says, and would not find what is elsewhere.
    pub(super) fn below(&self, id: u64, named: &[u8]) -> Result<Page<'a>, BoltError> {
        let page = self.page(id)?;
        page.check_name(named)?;
        Ok(page)
    }

    pub(super) fn damaged(&self, page: u64, what: impl Into<String>) -> BoltError {
        BoltError::damaged(self.path, page, what)
    }
}

/// A branch or leaf page; or the page inside the value of an inline bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a> {
    path: &'a Path,
    /// The page's number; of an inline bucket's, the number of the page it lies in.
    pub(super) id: u64,
    bytes: &'a [u8],
    count: u16,
    pub(super) is_leaf: bool,
}

/// An element of a leaf page.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafElement<'a> {
    pub(super) flags: u32,
    /// Key and value, which follow each other.
    pub(super) pair: &'a [u8],
    pub(super) key_bytes: usize,
}

impl<'a> LeafElement<'a> {
    pub(super) fn key(&self) -> &'a [u8] {
        &self.pair[..self.key_bytes]
    }

    pub(super) fn value(&self) -> &'a [u8] {
        &self.pair[self.key_bytes..]
    }

    pub(super) fn is_bucket(&self) -> bool {
        self.flags & BUCKET_FLAG != 0
    }
}

impl<'a> Page<'a> {
    /// Takes `bytes` for a branch or leaf page; `id` is for messages.
    pub(super) fn decode(path: &'a Path, id: u64, bytes: &'a [u8]) -> Result<Page<'a>, BoltError> {
        if bytes.len() < HEADER_BYTES {
            return Err(BoltError::damaged(path, id, "inline bucket is too short for a page header"));
        }
        let count = u16_at(bytes, 10);
        if HEADER_BYTES + usize::from(count) * ELEMENT_BYTES > bytes.len() {
            return Err(BoltError::damaged(path, id, format!("claims {count} elements, more than it has room for")));
        }
        let is_leaf = match u16_at(bytes, 8) {
            LEAF => true,
            BRANCH if count > 0 => false,
            BRANCH => return Err(BoltError::damaged(path, id, "is a branch without children")),
            flags => {
                return Err(BoltError::damaged(path, id, format!("has flags {flags:#x}, neither branch nor leaf")));
            }
        };
        Ok(Page { path, id, bytes, count, is_leaf })
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Bytes from the page's beginning to the end of its last element.
    pub(super) fn used_bytes(&self) -> u64 {
        self.end_before(self.count())
    }

    /// The pages of the file this one takes up. Not for inline pages.
    pub(super) fn run(&self) -> Run {
        Run { first: self.id, count: 1 + u64::from(overflow_of(self.bytes)) }
    }

    pub(super) fn leaf(&self, index: usize) -> Result<LeafElement<'a>, BoltError> {
        let at = HEADER_BYTES + index * ELEMENT_BYTES;
        let (flags, pos) = (u32_at(self.bytes, at), u32_at(self.bytes, at + 4));
        let key_bytes = u32_at(self.bytes, at + 8) as usize;
        let pair = self.slice(index, pos, key_bytes as u64 + u64::from(u32_at(self.bytes, at + 12)))?;
        Ok(LeafElement { flags, pair, key_bytes })
    }

    pub(super) fn branch_key(&self, index: usize) -> Result<&'a [u8], BoltError> {
        let at = HEADER_BYTES + index * ELEMENT_BYTES;
        self.slice(index, u32_at(self.bytes, at), u64::from(u32_at(self.bytes, at + 4)))
    }

    pub(super) fn child(&self, index: usize) -> u64 {
        u64_at(self.bytes, HEADER_BYTES + index * ELEMENT_BYTES + 8)
    }

    /// Refuses a page that does not begin with the key by which the branch above calls it.
    pub(super) fn check_name(&self, named: &[u8]) -> Result<(), BoltError> {
        let first = match self.count() {
            // Writers leave no empty leaf below a branch, but one does no harm.
            0 => return Ok(()),
            _ if self.is_leaf => self.leaf(0)?.key(),
            _ => self.branch_key(0)?,
        };
        if first == named {
            return Ok(());
        }
        Err(self.damaged(format!("begins with {}, the branch above says {}", shown(first), shown(named))))
    }

    /// The first element whose key is not below `key`, and whether it is equal.
    pub(super) fn search(&self, key: &[u8]) -> Result<(usize, bool), BoltError> {
        let mut search = Search::begin(self, key)?;
        while let Some(probe) = search.probe() {
            match self.key(probe)?.cmp(key) {
                std::cmp::Ordering::Equal => return Ok((probe, true)),
                unequal => search.goes_on(unequal.is_lt()),
            }
        }
        Ok((search.end(), false))
    }

    /// The key of an element, whatever the page.
    pub(super) fn key(&self, index: usize) -> Result<&'a [u8], BoltError> {
        if self.is_leaf { Ok(self.leaf(index)?.key()) } else { self.branch_key(index) }
    }

    /// Of a branch: the child in whose range `key` lies.
    pub(super) fn child_for(&self, key: &[u8]) -> Result<usize, BoltError> {
        let (index, exact) = self.search(key)?;
        Ok(if exact { index } else { index.saturating_sub(1) })
    }

    fn slice(&self, index: usize, pos: u32, len: u64) -> Result<&'a [u8], BoltError> {
        // `pos` counts from the element itself. Every writer of the format lays elements out without gaps, in order:
        // a length or a place that was changed shows in the neighbour.
        let start = (HEADER_BYTES + index * ELEMENT_BYTES) as u64 + u64::from(pos);
        let end = start + len;
        if end > self.bytes.len() as u64 {
            return Err(self.damaged(format!("element {index} points to bytes {start}..{end}, outside of the page")));
        }
        let expected = self.end_before(index);
        if start != expected {
            return Err(
                self.damaged(format!("element {index} begins at byte {start}, the one before ends at {expected}"))
            );
        }
        Ok(&self.bytes[start as usize..end as usize])
    }

    /// Where what lies before an element ends: the element before it, or the array of all elements.
    fn end_before(&self, index: usize) -> u64 {
        let Some(before) = index.checked_sub(1) else {
            return (HEADER_BYTES + self.count() * ELEMENT_BYTES) as u64;
        };
        let at = HEADER_BYTES + before * ELEMENT_BYTES;
        let number = |offset| u64::from(u32_at(self.bytes, at + offset));
        let (pos, len) = if self.is_leaf { (number(4), number(8) + number(12)) } else { (number(0), number(4)) };
        at as u64 + pos + len
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> BoltError {
        BoltError::damaged(self.path, self.id, what)
    }
}

/// A key for messages, cut if it is long.
pub(super) fn shown(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    key[..key.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
}

pub(super) fn overflow_of(page: &[u8]) -> u32 {
    u32_at(page, 12)
}

pub(super) fn put_header(page: &mut [u8], id: u64, flags: u16, count: u16, overflow: u32) {
    put_u64(page, 0, id);
    page[8..10].copy_from_slice(&flags.to_le_bytes());
    page[10..12].copy_from_slice(&count.to_le_bytes());
    put_u32(page, 12, overflow);
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
