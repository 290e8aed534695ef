//! A walk over every page a commit can reach, each of which must be met once.
//!
//! Finds what is free when the file does not say, and tells check.rs what is wrong with a tree. Works from a list of
//! what is still to be seen instead of recursion, so that no file, however twisted, can exhaust the stack.

use super::{
    error::BoltError,
    page::{DEPTH_LEVELS_MAX, Page, Pages, Run, shown},
    read::{Root, bucket_header, too_deep},
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
    walk(pages, root, &mut |_, _| Ok(()), &mut |error, _| Err(error))
}

/// Something to be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) what: Root<'a>,
    /// Levels below the root of its bucket.
    pub(super) depth: usize,
    /// The bucket it belongs to; empty for the one of all buckets' names.
    pub(super) bucket: &'a [u8],
    /// All keys are at or above this one.
    pub(super) low: &'a [u8],
    /// All keys are below this one.
    pub(super) high: Option<&'a [u8]>,
}

impl Task<'_> {
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.what, Root::Inline(_))
    }
}

/// Walks a tree in order of its keys. Every page is handed to `on_page`; what is wrong, also with what `on_page` sees, is
/// told to `on_damage`, which decides whether to go on. What lies below a page that cannot be read is not seen.
pub(super) fn walk<'a>(
    pages: &Pages<'a>,
    root: u64,
    on_page: &mut dyn FnMut(&Page<'a>, &Task<'a>) -> Result<(), BoltError>,
    on_damage: &mut dyn FnMut(BoltError, &Task<'a>) -> Result<(), BoltError>,
) -> Result<PageSet, BoltError> {
    let mut seen = PageSet::new(pages.high_water);
    let mut tasks = vec![Task { what: Root::Page(root), depth: 0, bucket: &[], low: &[], high: None }];
    while let Some(task) = tasks.pop() {
        match open(pages, &task, &mut seen) {
            Err(error) => on_damage(error, &task)?,
            Ok(page) => {
                if let Err(error) = on_page(&page, &task) {
                    on_damage(error, &task)?;
                }
                let before = tasks.len();
                let added = if page.is_leaf {
                    add_buckets(pages, &page, &mut tasks)
                } else {
                    add_children(&page, &task, &mut tasks)
                };
                tasks[before..].reverse();
                if let Err(error) = added {
                    on_damage(error, &task)?;
                }
            }
        }
    }
    Ok(seen)
}

fn open<'a>(pages: &Pages<'a>, task: &Task<'a>, seen: &mut PageSet) -> Result<Page<'a>, BoltError> {
    let page = match task.what {
        Root::Inline(page) => page,
        Root::Page(id) => {
            let page = pages.page(id)?;
            enter(&page, seen)?;
            page
        }
    };
    if task.depth >= DEPTH_LEVELS_MAX { Err(too_deep(pages, page.id)) } else { Ok(page) }
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

/// Adds what can be read of a branch's children, first to last.
fn add_children<'a>(page: &Page<'a>, task: &Task<'a>, tasks: &mut Vec<Task<'a>>) -> Result<(), BoltError> {
    let mut wrong = Ok(());
    for index in 0..page.count() {
        let low = page.branch_key(index).unwrap_or_else(|error| {
            wrong = Err(error);
            task.low
        });
        let high = if index + 1 < page.count() { page.branch_key(index + 1).ok() } else { task.high };
        tasks.push(Task { what: Root::Page(page.child(index)), depth: task.depth + 1, bucket: task.bucket, low, high });
    }
    wrong
}

fn add_buckets<'a>(pages: &Pages<'a>, page: &Page<'a>, tasks: &mut Vec<Task<'a>>) -> Result<(), BoltError> {
    let mut wrong = Ok(());
    for index in 0..page.count() {
        let added = page.leaf(index).and_then(|element| {
            if element.is_bucket() {
                let what = bucket_header(pages, page.id, &element)?.root;
                tasks.push(Task { what, depth: 0, bucket: element.key(), low: &[], high: None });
            }
            Ok(())
        });
        wrong = wrong.and(added);
    }
    wrong
}

/// Every key is above the one before and within what the pages above promise.
pub(super) fn check_order(page: &Page<'_>, task: &Task<'_>) -> Result<(), BoltError> {
    if task.depth > 0 {
        page.check_name(task.low)?;
    }
    let mut before: Option<&[u8]> = None;
    for index in 0..page.count() {
        let key = if page.is_leaf { page.leaf(index)?.key() } else { page.branch_key(index)? };
        if before.is_some_and(|before| before >= key) {
            return Err(page.damaged(format!("element {index} ({}) is not above the one before", shown(key))));
        }
        if key < task.low || task.high.is_some_and(|high| key >= high) {
            return Err(page.damaged(format!("element {index} ({}) is outside of its branch's range", shown(key))));
        }
        before = Some(key);
    }
    Ok(())
}
