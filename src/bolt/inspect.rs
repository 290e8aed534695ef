//! What a file's pages are used for: by which bucket, how full, what is free and where.

use super::{
    error::BoltError,
    meta::NO_FREELIST,
    open::read_freelist,
    page::{FIRST_DATA_PAGE, Page},
    read::ReadTx,
    walk::{Task, walk},
};

/// Buckets that are told one by one; those behind them, and any nested ones, count for the pages only.
const BUCKETS_MAX: usize = 1_000;

/// What a file's pages are used for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageUse {
    /// Bytes to a page.
    pub page_bytes: u64,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Pages that were ever used: those the tree may refer to, and the two meta pages.
    pub pages: u64,
    /// Meta pages.
    pub meta_pages: u64,
    /// Branch pages, those they overflow into not counted.
    pub branch_pages: u64,
    /// Leaf pages, those they overflow into not counted.
    pub leaf_pages: u64,
    /// Pages that branches and leaves overflow into.
    pub overflow_pages: u64,
    /// Pages of the list of free pages, where the file holds it.
    pub freelist_pages: u64,
    /// Free pages.
    pub free_pages: u64,
    /// Free pages behind the last one that is used: what cutting the file would give back at once.
    pub free_tail_pages: u64,
    /// Stretches of free pages.
    pub free_runs: u64,
    /// Pages of the longest of them.
    pub longest_free_run_pages: u64,
    /// The buckets by name.
    pub buckets: Vec<BucketUse>,
}

/// What a bucket takes up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketUse {
    /// Its name.
    pub name: Vec<u8>,
    /// How many keys it holds.
    pub keys: u64,
    /// Bytes of the keys.
    pub key_bytes: u64,
    /// Bytes of the values.
    pub value_bytes: u64,
    /// Branch pages.
    pub branch_pages: u64,
    /// Leaf pages; none if it is so small that it lies in its parent's page.
    pub leaf_pages: u64,
    /// Pages that branches and leaves overflow into.
    pub overflow_pages: u64,
    /// Levels from root to leaves; 0 for a bucket in its parent's page.
    pub depth_levels: u64,
    /// Bytes of its pages that hold something.
    pub used_bytes: u64,
}

impl BucketUse {
    /// All its pages.
    pub fn pages(&self) -> u64 {
        self.branch_pages + self.leaf_pages + self.overflow_pages
    }

    fn add(&mut self, page: &Page<'_>, task: &Task<'_>) -> Result<(), BoltError> {
        if !task.is_inline() {
            if page.is_leaf {
                self.leaf_pages += 1;
            } else {
                self.branch_pages += 1;
            }
            self.overflow_pages += page.run().count - 1;
            self.depth_levels = self.depth_levels.max(task.depth as u64 + 1);
            self.used_bytes += page.used_bytes();
        }
        for index in (0..page.count()).filter(|_| page.is_leaf) {
            let element = page.leaf(index)?;
            self.keys += 1;
            self.key_bytes += element.key().len() as u64;
            self.value_bytes += element.value().len() as u64;
        }
        Ok(())
    }
}

impl ReadTx {
    /// Tells what the file's pages are used for. The first damage that is met is the error.
    pub fn page_use(&self) -> Result<PageUse, BoltError> {
        let (meta, pages) = (self.meta(), self.pages());
        let mut found = PageUse {
            page_bytes: u64::from(meta.page_bytes),
            file_bytes: self
                .file()
                .len()
                .map_err(|source| BoltError::io(self.path(), "asking for the length", source))?,
            pages: meta.high_water,
            meta_pages: FIRST_DATA_PAGE,
            ..PageUse::default()
        };
        let mut rest = BucketUse::default();
        let mut on_page = |page: &Page<'_>, task: &Task<'_>| {
            let buckets = &mut found.buckets;
            // A bucket's pages come one behind the other, but for those of buckets nested in it.
            let at = buckets.iter().rposition(|bucket| bucket.name == task.bucket);
            match at {
                Some(at) => buckets[at].add(page, task),
                None if buckets.len() < BUCKETS_MAX && !task.bucket.is_empty() => {
                    buckets.push(BucketUse { name: task.bucket.to_vec(), ..BucketUse::default() });
                    let last = buckets.len() - 1;
                    buckets[last].add(page, task)
                }
                None => rest.add(page, task),
            }
        };
        let mut used = walk(&pages, meta.root, &mut on_page, &mut |error, _| Err(error))?;
        for bucket in found.buckets.iter().chain([&rest]) {
            found.branch_pages += bucket.branch_pages;
            found.leaf_pages += bucket.leaf_pages;
            found.overflow_pages += bucket.overflow_pages;
        }
        if meta.freelist != NO_FREELIST {
            let (_, run) = read_freelist(&pages, meta.freelist)?;
            found.freelist_pages = run.count;
            for id in run.first..run.end() {
                used.insert(id);
            }
        }
        for gap in used.gaps(FIRST_DATA_PAGE, meta.high_water) {
            found.free_runs += 1;
            found.free_pages += gap.count;
            found.longest_free_run_pages = found.longest_free_run_pages.max(gap.count);
            found.free_tail_pages = if gap.end() == meta.high_water { gap.count } else { 0 };
        }
        Ok(found)
    }
}
