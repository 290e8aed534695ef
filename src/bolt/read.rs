//! Reading: a view of one commit, its buckets, and look-ups in them without copying or allocating.

use std::{fmt, path::Path, sync::Arc};

use crate::disk::File;

use super::{
    Cursor, Inner, Readers,
    directory::Key,
    error::BoltError,
    landmarks,
    meta::Meta,
    page::{self, DEPTH_LEVELS_MAX, LeafElement, Page, Pages},
    together,
};

/// A bucket's header in its value: root page and sequence.
pub(super) const BUCKET_HEADER_BYTES: usize = 16;

/// Keys looked up at once for which a list of the bucket's leaves is made. Tests make it for every look-up.
const DIRECTORY_KEYS_MIN: usize = if cfg!(test) { 1 } else { 32 };

/// A consistent view of the file at one commit. Pins its pages until dropped.
///
/// Owns what it needs, so it may outlive the `Db` handle and move between threads. While one is open, pages freed by
/// later commits are not reused and the file grows: do not keep it longer than needed.
pub struct ReadTx {
    inner: Arc<Inner>,
    meta: Meta,
}

impl fmt::Debug for ReadTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTx").field("path", &self.inner.path).field("txid", &self.meta.txid).finish()
    }
}

impl ReadTx {
    pub(super) fn open(inner: Arc<Inner>) -> ReadTx {
        let mut view = inner.view.lock();
        let meta = view.meta;
        view.readers.entry(meta.txid).or_insert(Readers { count: 0, high_water: meta.high_water }).count += 1;
        drop(view);
        ReadTx { inner, meta }
    }

    /// The commit this view sees.
    pub fn txid(&self) -> u64 {
        self.meta.txid
    }

    /// A top-level bucket, if there is one by this name.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'_>>, BoltError> {
        self.root().bucket(name)
    }

    /// The bucket whose keys are the names of the top-level buckets.
    pub fn root(&self) -> Bucket<'_> {
        Bucket { tx: self, pages: self.pages(), root: Root::Page(self.meta.root) }
    }

    pub(super) fn pages(&self) -> Pages<'_> {
        self.inner.pages(&self.meta)
    }

    pub(super) fn meta(&self) -> Meta {
        self.meta
    }

    #[cfg(test)]
    pub(super) fn inner_directories(&self) -> &super::directory::Directories {
        &self.inner.directories
    }

    pub(super) fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.inner.file
    }
}

impl Drop for ReadTx {
    fn drop(&mut self) {
        let mut view = self.inner.view.lock();
        if let Some(readers) = view.readers.get_mut(&self.meta.txid) {
            readers.count -= 1;
            if readers.count == 0 {
                view.readers.remove(&self.meta.txid);
            }
        }
    }
}

/// Where a bucket's tree begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Root<'tx> {
    Page(u64),
    /// The whole bucket is one leaf page in its value.
    Inline(Page<'tx>),
}

/// What the value of a bucket's key says.
pub(super) struct BucketHeader<'tx> {
    pub(super) root: Root<'tx>,
    pub(super) sequence: u64,
}

/// Reads the value of an element that is a bucket; `home` is the page it lies in.
pub(super) fn bucket_header<'tx>(
    pages: &Pages<'tx>,
    home: u64,
    element: &LeafElement<'tx>,
) -> Result<BucketHeader<'tx>, BoltError> {
    let value = element.value();
    if value.len() < BUCKET_HEADER_BYTES {
        return Err(pages.damaged(home, format!("bucket {:?} has a cut header", text(element.key()))));
    }
    let wrong = |what: &str| pages.damaged(home, format!("bucket {:?} {what}", text(element.key())));
    let root = match page::u64_at(value, 0) {
        0 => {
            let inline = Page::decode(pages.path, home, &value[BUCKET_HEADER_BYTES..])?;
            if !inline.is_leaf {
                return Err(wrong("lies in its parent's page, but is not a leaf"));
            }
            if inline.used_bytes() != (value.len() - BUCKET_HEADER_BYTES) as u64 {
                return Err(wrong("lies in its parent's page, but is longer or shorter than what it holds"));
            }
            Root::Inline(inline)
        }
        _ if value.len() > BUCKET_HEADER_BYTES => return Err(wrong("has a page of its own, and lies in its parent's")),
        id => Root::Page(id),
    };
    Ok(BucketHeader { root, sequence: page::u64_at(value, 8) })
}

/// Finds a key below a page, and the page it lies in.
pub(super) fn find<'tx>(
    pages: &Pages<'tx>,
    root: Root<'tx>,
    key: &[u8],
) -> Result<Option<(u64, LeafElement<'tx>)>, BoltError> {
    let page = match root {
        Root::Page(id) => pages.page(id)?,
        Root::Inline(page) => page,
    };
    find_below(pages, page, key)
}

/// The same from a page that is at hand.
pub(super) fn find_below<'tx>(
    pages: &Pages<'tx>,
    mut at: Page<'tx>,
    key: &[u8],
) -> Result<Option<(u64, LeafElement<'tx>)>, BoltError> {
    for _ in 0..DEPTH_LEVELS_MAX {
        if at.is_leaf {
            let (index, exact) = at.search(key)?;
            return if exact { Ok(Some((at.id, at.leaf(index)?))) } else { Ok(None) };
        }
        at = pages.child(&at, at.child_for(key)?)?;
    }
    Err(too_deep(pages, at.id))
}

#[cold]
pub(super) fn too_deep(pages: &Pages<'_>, id: u64) -> BoltError {
    pages.damaged(id, format!("lies more than {DEPTH_LEVELS_MAX} levels deep: the tree has a cycle"))
}

/// A bucket seen by a read transaction; slices it returns live as long as the transaction is borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'tx> {
    tx: &'tx ReadTx,
    pages: Pages<'tx>,
    root: Root<'tx>,
}

impl<'tx> Bucket<'tx> {
    /// The value of a key; of a key that is a nested bucket, none.
    pub fn get(&self, key: &[u8]) -> Result<Option<&'tx [u8]>, BoltError> {
        let found = find(&self.pages, self.root, key)?;
        Ok(found.filter(|(_, element)| !element.is_bucket()).map(|(_, element)| element.value()))
    }

    /// The values of several keys, in their order. Faster than one [`get`](Self::get) after another where the keys are far
    /// apart.
    pub fn get_each(&self, keys: &[&[u8]]) -> Result<Vec<Option<&'tx [u8]>>, BoltError> {
        let directory = match self.root {
            Root::Page(root) if keys.len() >= DIRECTORY_KEYS_MIN => {
                self.tx.inner.directories.of(&self.pages, Key { txid: self.tx.meta.txid, root })
            }
            _ => None,
        };
        together::find_each(&self.pages, self.root, directory.as_deref(), keys)
    }

    /// A bucket nested in this one, if there is one by this name.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'tx>>, BoltError> {
        match find(&self.pages, self.root, name)? {
            Some((home, element)) if element.is_bucket() => {
                let header = bucket_header(&self.pages, home, &element)?;
                Ok(Some(Bucket { root: header.root, ..*self }))
            }
            _ => Ok(None),
        }
    }

    /// Keys that cut the bucket into parts of about the same size, ascending: at least so many, if it is large enough.
    pub fn landmarks(&self, least: usize) -> Result<Vec<&'tx [u8]>, BoltError> {
        landmarks::landmarks(&self.pages, self.root, least)
    }

    /// A cursor before the first key.
    pub fn cursor(&self) -> Cursor<'tx> {
        Cursor::new(self.pages, self.root)
    }
}

/// A key as text for messages, as far as it is text.
pub(super) fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
