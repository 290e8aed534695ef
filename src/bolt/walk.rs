//! A walk over every page a commit can reach, each of which must be met once.
//!
//! Finds what is free when the file does not say, and tells check.rs what is wrong with a tree. Works from a list of
//! what is still to be seen instead of recursion, so that no file, however twisted, can exhaust the stack.

use super::{
    error::BoltError,
    page::{DEPTH_LEVELS_MAX, Page, Pages, Run},
    read::{Root, bucket_header, text, too_deep},
};

/// A set of page numbers.
#[derive(Debug)]
pub(super) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    pub(super) fn new(pages: u64) -> PageSet {
        PageSet { words: vec![0; usize::try_from(pages.div_ceil(64)).expect("the file was mapped, so this fits")] }
    }

    /// Adds a page; whether it was new.
    pub(super) fn insert(&mut self, page: u64) -> bool {
        let (word, bit) = (&mut self.words[(page / 64) as usize], 1 << (page % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        self.words[(page / 64) as usize] & (1 << (page % 64)) != 0
    }

    /// The pages of `first..end` that are not in the set.
    pub(super) fn gaps(&self, first: u64, end: u64) -> Vec<Run> {
        let mut gaps: Vec<Run> = Vec::new();
        for page in (first..end).filter(|&page| !self.contains(page)) {
            match gaps.last_mut() {
                Some(gap) if gap.end() == page => gap.count += 1,
                _ => gaps.push(Run { first: page, count: 1 }),
            }
        }
        gaps
    }
}

/// The pages of a tree and of all buckets in it. Any damage on the way is an error.
pub(super) fn reachable(pages: &Pages<'_>, root: u64) -> Result<PageSet, BoltError> {
    walk(pages, root, false, &mut Err)
}

/// Something still to be seen.
struct Task<'a> {
    what: Root<'a>,
    depth: usize,
    /// All keys are at or above this one.
    low: &'a [u8],
    /// All keys are below this one.
    high: Option<&'a [u8]>,
}

/// Walks a tree; tells `on_damage` what is wrong, which decides whether to go on. With `with_order` the order of keys
/// is looked at too.
pub(super) fn walk(
    pages: &Pages<'_>,
    root: u64,
    with_order: bool,
    on_damage: &mut dyn FnMut(BoltError) -> Result<(), BoltError>,
) -> Result<PageSet, BoltError> {
    let mut seen = PageSet::new(pages.high_water);
    let mut tasks = vec![Task { what: Root::Page(root), depth: 0, low: &[], high: None }];
    while let Some(task) = tasks.pop() {
        let seen = &mut seen;
        let mut visit = || {
            let page = match task.what {
                Root::Inline(page) => page,
                Root::Page(id) => {
                    let page = pages.page(id)?;
                    enter(&page, seen)?;
                    page
                }
            };
            if task.depth >= DEPTH_LEVELS_MAX {
                return Err(too_deep(pages, page.id));
            }
            if with_order {
                check_order(&page, &task)?;
            }
            if page.is_leaf { add_buckets(pages, &page, &mut tasks) } else { add_children(&page, &task, &mut tasks) }
        };
        if let Err(error) = visit() {
            on_damage(error)?;
        }
    }
    Ok(seen)
}

fn enter(page: &Page<'_>, seen: &mut PageSet) -> Result<(), BoltError> {
    let run = page.run();
    for id in run.first..run.end() {
        if !seen.insert(id) {
            return Err(page.damaged(format!("page {id} is part of the tree twice")));
        }
    }
    Ok(())
}

fn add_children<'a>(page: &Page<'a>, task: &Task<'a>, tasks: &mut Vec<Task<'a>>) -> Result<(), BoltError> {
    for index in (0..page.count()).rev() {
        let high = if index + 1 < page.count() { Some(page.branch_key(index + 1)?) } else { task.high };
        let what = Root::Page(page.child(index));
        tasks.push(Task { what, depth: task.depth + 1, low: page.branch_key(index)?, high });
    }
    Ok(())
}

fn add_buckets<'a>(pages: &Pages<'a>, page: &Page<'a>, tasks: &mut Vec<Task<'a>>) -> Result<(), BoltError> {
    for index in 0..page.count() {
        let element = page.leaf(index)?;
        if element.is_bucket() {
            let what = bucket_header(pages, page.id, &element)?.root;
            tasks.push(Task { what, depth: 0, low: &[], high: None });
        }
    }
    Ok(())
}

/// Every key is above the one before and within what the pages above promise.
fn check_order(page: &Page<'_>, task: &Task<'_>) -> Result<(), BoltError> {
    let mut before: Option<&[u8]> = None;
    for index in 0..page.count() {
        let key = if page.is_leaf { page.leaf(index)?.key() } else { page.branch_key(index)? };
        if before.is_some_and(|before| before >= key) {
            return Err(page.damaged(format!("element {index} ({:?}) is not above the one before", text(key))));
        }
        if key < task.low || task.high.is_some_and(|high| key >= high) {
            return Err(page.damaged(format!("element {index} ({:?}) is outside of its branch's range", text(key))));
        }
        before = Some(key);
    }
    Ok(())
}
