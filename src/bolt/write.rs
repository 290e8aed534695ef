//! The write transaction: changes to top-level buckets, gathered in memory until the commit.

use std::{collections::BTreeMap, mem, time::Instant};

use parking_lot::MutexGuard;

use super::{
    CommitStats, Db, KEY_BYTES_MAX, VALUE_BYTES_MAX, Writer,
    commit::{self, Failure},
    error::BoltError,
    freelist::Freelist,
    meta::{Meta, NO_FREELIST},
    node::{Child, Entry, Node},
    page::{self, BUCKET_FLAG, Pages, Run},
    read::{self, BUCKET_HEADER_BYTES, Root, text},
    spill::{Reserved, Spill, give_back},
};

const FILL_DEFAULT: f64 = 0.5;
const FILL_MIN: f64 = 0.1;
const FILL_MAX: f64 = 1.0;

/// The one write transaction. Dropped without a commit it leaves no trace.
#[derive(Debug)]
pub struct WriteTx<'db> {
    db: &'db Db,
    writer: MutexGuard<'db, Writer>,
    /// The commit this one builds on.
    meta: Meta,
    pages: Pages<'db>,
    /// The buckets looked at so far.
    buckets: Buckets<'db>,
}

type Buckets<'db> = BTreeMap<Vec<u8>, OpenBucket<'db>>;

/// What goes into a commit.
struct Changed<'db> {
    /// Of the tree of buckets.
    root: Child<'db>,
    buckets: Buckets<'db>,
    /// Pages of nodes that are no longer in any tree.
    freed: Vec<Run>,
    /// Free pages to be used first.
    reserved: Reserved,
}

#[derive(Debug)]
struct OpenBucket<'db> {
    root: Child<'db>,
    sequence: u64,
    fill: f64,
    changed: bool,
}

impl<'db> WriteTx<'db> {
    pub(super) fn begin(db: &'db Db) -> Result<WriteTx<'db>, BoltError> {
        let inner = &*db.inner;
        let mut writer = inner.writer.lock();
        if writer.poisoned {
            return Err(BoltError::Poisoned { path: inner.path.clone() });
        }
        let view = inner.view.lock();
        let meta = view.meta;
        // Views opened from now on see this commit or a later one.
        let oldest = view.readers.keys().next().map_or(meta.txid, |&reader| reader.min(meta.txid));
        drop(view);
        let pages = inner.pages(&meta);
        if let Err(twice) = writer.freelist.release(oldest) {
            writer.poisoned = true;
            return Err(pages.damaged(twice.0, "was freed twice"));
        }
        Ok(WriteTx { db, writer, meta, pages, buckets: BTreeMap::new() })
    }

    /// Creates a top-level bucket if there is none by this name.
    pub fn create_bucket_if_missing(&mut self, name: &[u8]) -> Result<(), BoltError> {
        check_key(name)?;
        match self.open_bucket(name) {
            Err(BoltError::BucketMissing { .. }) => {
                let root = Child::Node(Box::new(Node::empty_leaf()));
                let bucket = OpenBucket { root, sequence: 0, fill: FILL_DEFAULT, changed: true };
                self.buckets.insert(name.to_vec(), bucket);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Fill of the bucket's pages on splitting in this transaction, 0.1 to 1.0 (what is outside is moved to the
    /// nearer end; the default is 0.5). etcd uses 0.9 for the bucket that only grows at its end.
    pub fn set_fill_percent(&mut self, bucket: &[u8], fill: f64) -> Result<(), BoltError> {
        self.open_bucket(bucket)?.fill = if fill.is_nan() { FILL_DEFAULT } else { fill.clamp(FILL_MIN, FILL_MAX) };
        Ok(())
    }

    /// The value of a key, with this transaction's own changes. A missing bucket is an error, as for every call here.
    pub fn get(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>, BoltError> {
        let found = match self.buckets.get(bucket) {
            Some(bucket) => bucket.find(&self.pages, key)?.map(|(flags, value)| (flags, value.to_vec())),
            None => self.load_bucket(bucket)?.find(&self.pages, key)?.map(|(flags, value)| (flags, value.to_vec())),
        };
        Ok(found.filter(|(flags, _)| flags & BUCKET_FLAG == 0).map(|(_, value)| value))
    }

    /// Sets a key. A key that is a nested bucket is an error.
    pub fn put(&mut self, bucket: &[u8], key: &[u8], value: &[u8]) -> Result<(), BoltError> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(BoltError::ValueTooLarge { bytes: value.len() });
        }
        let pages = self.pages;
        let bucket = self.open_bucket(bucket)?;
        bucket.changed = true;
        bucket.root.node(&pages)?.put(&pages, Entry::new(0, key, value))
    }

    /// Removes a key; absent is fine. A key that is a nested bucket is an error.
    pub fn delete(&mut self, bucket: &[u8], key: &[u8]) -> Result<(), BoltError> {
        let pages = self.pages;
        let bucket = self.open_bucket(bucket)?;
        match bucket.find(&pages, key)? {
            None => Ok(()),
            Some((flags, _)) if flags & BUCKET_FLAG != 0 => Err(BoltError::IncompatibleValue { key: text(key) }),
            Some(_) => {
                bucket.changed = true;
                bucket.root.node(&pages)?.remove(&pages, key)
            }
        }
    }

    /// Makes the changes durable and visible: data pages, fdatasync, meta page, fdatasync.
    ///
    /// Without changes nothing is written. When the file cannot be made larger the transaction is rolled back and the
    /// file stays usable; after any other failure of the system every later write is refused as
    /// [`BoltError::Poisoned`], while the last commit can still be read.
    pub fn commit(self) -> Result<CommitStats, BoltError> {
        if self.buckets.values().any(|bucket| bucket.changed) {
            self.commit_with(false)
        } else {
            Ok(CommitStats::default())
        }
    }

    /// Commits, with the freelist in the file for a quick start or without.
    pub(super) fn commit_with(mut self, keep_freelist: bool) -> Result<CommitStats, BoltError> {
        let root = Child::Page(self.meta.root);
        let buckets = mem::take(&mut self.buckets);
        self.commit_trees(Changed { root, buckets, freed: Vec::new(), reserved: Reserved::new() }, keep_freelist)
    }

    /// What this transaction builds on, and the free pages.
    pub(super) fn parts(&mut self) -> (Pages<'db>, u64, &mut Freelist) {
        (self.pages, self.meta.root, &mut self.writer.freelist)
    }

    /// Whether a commit would lower the high-water mark in one of the meta pages.
    pub(super) fn can_trim(&self) -> bool {
        let end = self.writer.freelist.occupied_end(self.meta.high_water);
        self.writer.slot_high_water.iter().any(|&mark| mark > end)
    }

    /// Whether the last pages are free but for views that are open.
    pub(super) fn is_end_pending(&self) -> bool {
        self.writer.freelist.is_pending(self.meta.high_water - 1)
    }

    /// Commits a tree changed as a whole, that of a bucket or that of the buckets, and nothing else. `change` returns the
    /// pages of nodes that it took out of the tree.
    pub(super) fn rewrite(
        mut self,
        bucket: Option<&[u8]>,
        fill: f64,
        reserved: Reserved,
        change: impl FnOnce(&mut Child<'db>, &Pages<'db>) -> Result<Vec<Run>, BoltError>,
    ) -> Result<CommitStats, BoltError> {
        let pages = self.pages;
        let mut root = Child::Page(self.meta.root);
        let changed = match bucket {
            None => change(&mut root, &pages),
            Some(name) => self.open_bucket(name).and_then(|bucket| {
                bucket.fill = fill.clamp(FILL_MIN, FILL_MAX);
                bucket.changed = true;
                change(&mut bucket.root, &pages)
            }),
        };
        match changed {
            Ok(freed) => {
                let buckets = mem::take(&mut self.buckets);
                self.commit_trees(Changed { root, buckets, freed, reserved }, false)
            }
            Err(error) => {
                give_back(&mut self.writer.freelist, reserved);
                Err(error)
            }
        }
    }

    /// Commits changed buckets, and the tree of buckets above them.
    fn commit_trees(mut self, changed: Changed<'db>, keep_freelist: bool) -> Result<CommitStats, BoltError> {
        let Changed { root, buckets, freed, reserved } = changed;
        let mut stats = CommitStats::default();
        let Writer { freelist, file_bytes, freelist_run, poisoned, slot_high_water } = &mut *self.writer;
        let mut spill = Spill::new(self.pages, freelist, reserved);
        let laid_out = lay_out(&self.pages, root, buckets, &mut spill, &mut stats);
        spill.freed.extend(freed);
        spill.freed.extend(*freelist_run);
        let root = match laid_out.and_then(|root| spill.check_freed().map(|()| root)) {
            Ok(root) => root,
            Err(error) => {
                spill.undo();
                return Err(error);
            }
        };
        let kept = keep_freelist.then(|| spill.spill_freelist());
        spill.trim();
        let meta = Meta {
            root,
            freelist: kept.map_or(NO_FREELIST, |run| run.first),
            high_water: spill.high_water,
            txid: self.meta.txid + 1,
            ..self.meta
        };
        let start = Instant::now();
        match commit::write(&self.db.inner, &meta, &spill, file_bytes) {
            Ok(bytes) => stats.bytes_written = bytes,
            Err(Failure::RolledBack(error)) => {
                spill.undo();
                return Err(error);
            }
            Err(Failure::Poisoned(error)) => {
                *poisoned = true;
                return Err(error);
            }
        }
        stats.write = start.elapsed();
        let freed = mem::take(&mut spill.freed);
        drop(spill);
        freelist.free_after(meta.txid, freed);
        *freelist_run = kept;
        slot_high_water[meta.slot() as usize] = meta.high_water;
        self.db.inner.publish(meta, *file_bytes, freelist.pages());
        Ok(stats)
    }

    /// The bucket as this transaction sees it.
    fn open_bucket(&mut self, name: &[u8]) -> Result<&mut OpenBucket<'db>, BoltError> {
        if !self.buckets.contains_key(name) {
            let bucket = self.load_bucket(name)?;
            self.buckets.insert(name.to_vec(), bucket);
        }
        Ok(self.buckets.get_mut(name).expect("is there or was put there above"))
    }

    /// The bucket as the last commit left it.
    fn load_bucket(&self, name: &[u8]) -> Result<OpenBucket<'db>, BoltError> {
        let Some((home, element)) = read::find(&self.pages, Root::Page(self.meta.root), name)? else {
            return Err(BoltError::BucketMissing { bucket: text(name) });
        };
        if !element.is_bucket() {
            return Err(BoltError::IncompatibleValue { key: text(name) });
        }
        let header = read::bucket_header(&self.pages, home, &element)?;
        let root = match header.root {
            Root::Page(id) => Child::Page(id),
            Root::Inline(page) => Child::Node(Box::new(Node::from_page(&page, None)?)),
        };
        Ok(OpenBucket { root, sequence: header.sequence, fill: FILL_DEFAULT, changed: false })
    }
}

impl<'db> OpenBucket<'db> {
    fn find<'a>(&'a self, pages: &Pages<'db>, key: &[u8]) -> Result<Option<(u32, &'a [u8])>, BoltError> {
        match &self.root {
            Child::Node(root) => root.find(pages, key),
            Child::Page(id) => {
                let found = read::find(pages, Root::Page(*id), key)?;
                Ok(found.map(|(_, element)| (element.flags, element.value())))
            }
        }
    }

    /// Lays the bucket out; returns the value that goes with its name.
    fn spill(mut self, spill: &mut Spill<'_, 'db>) -> Vec<u8> {
        let inline = match &mut self.root {
            Child::Node(node) if spill.fits_inline(node) => {
                spill.freed.extend(node.old);
                Some(node)
            }
            _ => None,
        };
        let mut value = vec![0; BUCKET_HEADER_BYTES + inline.as_ref().map_or(0, |node| node.page_bytes())];
        page::put_u64(&mut value, 8, self.sequence);
        match inline {
            Some(node) => node.encode_inline(&mut value[BUCKET_HEADER_BYTES..]),
            None => page::put_u64(&mut value, 0, spill.spill_root(self.root, self.fill)),
        }
        value
    }
}

/// Turns the changed buckets, and the tree of buckets above them, into pages; returns its root.
fn lay_out<'db>(
    pages: &Pages<'db>,
    mut root: Child<'db>,
    mut buckets: Buckets<'db>,
    spill: &mut Spill<'_, 'db>,
    stats: &mut CommitStats,
) -> Result<u64, BoltError> {
    let start = Instant::now();
    buckets.retain(|_, bucket| bucket.changed);
    for bucket in buckets.values_mut() {
        spill.rebalance_root(&mut bucket.root)?;
    }
    spill.rebalance_root(&mut root)?;
    let rebalanced = Instant::now();
    stats.rebalance = rebalanced - start;
    for (name, bucket) in buckets {
        let value = bucket.spill(spill);
        root.node(pages)?.put(pages, Entry::new(BUCKET_FLAG, &name, &value))?;
    }
    let root = spill.spill_root(root, FILL_DEFAULT);
    stats.spill = rebalanced.elapsed();
    Ok(root)
}

fn check_key(key: &[u8]) -> Result<(), BoltError> {
    match key.len() {
        0 => Err(BoltError::EmptyKey),
        bytes if bytes > KEY_BYTES_MAX => Err(BoltError::KeyTooLarge { bytes }),
        _ => Ok(()),
    }
}
