//! Is everything where it should be? Every page is reachable once or free, all keys are in order, all elements lie
//! within their pages, one behind the other, and both meta pages can be believed.
//!
//! Two ways in: an open file is checked as of its last commit, with the writer's own list of free pages; a file that is
//! only looked at with the list it holds itself, and whoever knows what keys mean is handed every pair on the way.

use std::fmt;

use super::{
    Db,
    error::BoltError,
    meta::{self, Meta, NO_FREELIST},
    open::{read_freelist, read_meta_at},
    page::{self, FIRST_DATA_PAGE, HEADER_BYTES, Page, Pages, Run},
    read::ReadTx,
    walk::{PageSet, Task, check_order, walk},
};

/// Problems reported at most: one bad branch can make a problem of every page.
const PROBLEMS_MAX: usize = 100;

/// Something that is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The page.
    pub page: u64,
    /// What is wrong with it.
    pub what: String,
    /// What was to be found there, if that is known.
    pub place: Option<DamagedPlace>,
}

/// The part of a bucket that a page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPlace {
    /// The bucket; empty for the list of all buckets.
    pub bucket: Vec<u8>,
    /// Its keys from this one on (empty: from its first),
    pub low: Vec<u8>,
    /// up to and without this one (`None`: to its last).
    pub high: Option<Vec<u8>>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.what)
    }
}

/// A pair and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct PlacedPair<'a> {
    /// The page.
    pub page: u64,
    /// The bucket.
    pub bucket: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

pub(super) fn check(db: &Db) -> Result<Vec<BoltError>, BoltError> {
    // Held to the end: the freelist belongs to the commit that is looked at.
    let writer = db.inner.writer.lock();
    let read = db.read()?;
    let (meta, pages) = (read.meta(), read.pages());
    let mut problems = Vec::new();
    let mut note = |problem: Damage| {
        if problems.len() < PROBLEMS_MAX {
            problems.push(pages.damaged(problem.page, problem.what));
        }
    };
    let mut used = check_tree(&pages, &meta, &mut |_| {}, &mut note)?;
    if let Some(run) = writer.freelist_run {
        if let Err(problem) = read_freelist(&pages, run.first) {
            note_error(problem, None, &mut note)?;
        }
        check_freelist_run(run, &mut used, &mut note);
    }
    check_free(&meta, writer.freelist.runs().into_iter().flat_map(|run| run.first..run.end()), &mut used, &mut note);
    check_gaps(&meta, &used, &mut note);
    Ok(problems)
}

impl ReadTx {
    /// Looks at every page of a file that [`open_read_only`](super::Db::open_read_only) opened. Pairs come bucket by
    /// bucket in order of their keys, as far as they can be read; nested buckets' are not told from those of others.
    ///
    /// An error is the system's. A branch that cannot be read hides what is below it.
    pub fn check_file(
        &self,
        on_pair: &mut dyn FnMut(PlacedPair<'_>),
        on_damage: &mut dyn FnMut(Damage),
    ) -> Result<(), BoltError> {
        let (meta, pages) = (self.meta(), self.pages());
        self.check_metas(on_damage)?;
        let mut is_damaged = false;
        let mut note = |damage| {
            is_damaged = true;
            on_damage(damage);
        };
        let mut used = check_tree(&pages, &meta, on_pair, &mut note)?;
        if meta.freelist == NO_FREELIST {
            return Ok(());
        }
        match read_freelist(&pages, meta.freelist) {
            Err(problem) => note_error(problem, None, &mut note)?,
            Ok((ids, run)) => {
                check_freelist_run(run, &mut used, &mut note);
                check_free(&meta, ids, &mut used, &mut note);
            }
        }
        // What cannot be reached since a page above it is damaged is no finding of its own.
        if !is_damaged {
            check_gaps(&meta, &used, on_damage);
        }
        Ok(())
    }

    /// Both meta pages: a reader is content with one, but then something happened to the other.
    fn check_metas(&self, on_damage: &mut dyn FnMut(Damage)) -> Result<(), BoltError> {
        let ruling = self.meta();
        for slot in 0..FIRST_DATA_PAGE {
            let offset = slot * u64::from(ruling.page_bytes);
            let mut header = [0; HEADER_BYTES];
            let what = match read_meta_at(self.file(), self.path(), offset)? {
                Err(what) => Some(format!("is no meta page ({what}); the file is read by the other one")),
                Ok(meta) if meta.page_bytes != ruling.page_bytes => Some("names another page size".to_owned()),
                Ok(_) => {
                    let failed = |source| BoltError::io(self.path(), "reading a meta page", source);
                    self.file().read_exact_at(&mut header, offset).map_err(failed)?;
                    let (id, flags) = (page::u64_at(&header, 0), page::u16_at(&header, 8));
                    let is_right = (id, flags) == (slot, meta::PAGE_FLAGS);
                    (!is_right).then(|| format!("says it is page {id} with flags {flags:#x}, not a meta page"))
                }
            };
            if let Some(what) = what {
                on_damage(Damage { page: slot, what, place: None });
            }
        }
        Ok(())
    }
}

fn check_tree(
    pages: &Pages<'_>,
    meta: &Meta,
    on_pair: &mut dyn FnMut(PlacedPair<'_>),
    on_damage: &mut dyn FnMut(Damage),
) -> Result<PageSet, BoltError> {
    let mut last = None;
    let mut on_page = |page: &Page<'_>, task: &Task<'_>| {
        check_order(page, task)?;
        for index in (0..page.count()).filter(|_| page.is_leaf) {
            let element = page.leaf(index)?;
            if !element.is_bucket() {
                on_pair(PlacedPair { page: page.id, bucket: task.bucket, key: element.key(), value: element.value() });
            }
        }
        Ok(())
    };
    walk(pages, meta.root, &mut on_page, &mut |error, task| {
        let place =
            DamagedPlace { bucket: task.bucket.to_vec(), low: task.low.to_vec(), high: task.high.map(<[u8]>::to_vec) };
        note_error(error, Some(place), &mut |damage| {
            // One thing that is wrong can be met twice: on looking at a page, and on looking for what is below it.
            if last.as_ref() != Some(&damage) {
                on_damage(damage.clone());
                last = Some(damage);
            }
        })
    })
}

/// Hands on what is wrong with a page; any other error is one.
fn note_error(
    error: BoltError,
    place: Option<DamagedPlace>,
    on_damage: &mut dyn FnMut(Damage),
) -> Result<(), BoltError> {
    match error {
        BoltError::DamagedPage { page, what, .. } => {
            on_damage(Damage { page, what, place });
            Ok(())
        }
        other => Err(other),
    }
}

fn check_freelist_run(run: Run, used: &mut PageSet, on_damage: &mut dyn FnMut(Damage)) {
    for id in run.first..run.end() {
        if !used.insert(id) {
            on_damage(plain(id, "is part of the freelist and of the tree"));
        }
    }
}

fn check_free(meta: &Meta, free: impl Iterator<Item = u64>, used: &mut PageSet, on_damage: &mut dyn FnMut(Damage)) {
    let mut listed = PageSet::new(meta.high_water);
    for id in free {
        if !(FIRST_DATA_PAGE..meta.high_water).contains(&id) {
            on_damage(plain(id, "is free but lies outside of the tree's pages"));
        } else if !listed.insert(id) {
            on_damage(plain(id, "is listed as free twice"));
        } else if !used.insert(id) {
            on_damage(plain(id, "is free and in use"));
        }
    }
}

fn check_gaps(meta: &Meta, used: &PageSet, on_damage: &mut dyn FnMut(Damage)) {
    for gap in used.gaps(FIRST_DATA_PAGE, meta.high_water) {
        on_damage(plain(gap.first, format!("and {} after it are neither free nor in use", gap.count - 1)));
    }
}

fn plain(page: u64, what: impl Into<String>) -> Damage {
    Damage { page, what: what.into(), place: None }
}
