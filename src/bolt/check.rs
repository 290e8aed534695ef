//! Is everything where it should be? Every page is reachable once or free, all keys are in order, all elements lie
//! within their pages.

use super::{Db, error::BoltError, open::read_freelist, page::FIRST_DATA_PAGE, walk::walk};

/// Problems reported at most: one bad branch can make a problem of every page.
const PROBLEMS_MAX: usize = 100;

pub(super) fn check(db: &Db) -> Result<Vec<BoltError>, BoltError> {
    // Held to the end: the freelist belongs to the commit that is looked at.
    let writer = db.inner.writer.lock();
    let read = db.read()?;
    let (meta, pages) = (read.meta(), read.pages());
    let mut problems = Vec::new();
    let mut note = |problem| {
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem);
        }
    };
    let mut used = walk(&pages, meta.root, true, &mut |problem| {
        note(problem);
        Ok(())
    })?;
    if let Some(run) = writer.freelist_run {
        if let Err(problem) = read_freelist(&pages, run.first) {
            note(problem);
        }
        for id in run.first..run.end() {
            if !used.insert(id) {
                note(pages.damaged(id, "is part of the freelist and of the tree"));
            }
        }
    }
    for id in writer.freelist.runs().into_iter().flat_map(|run| run.first..run.end()) {
        if !(FIRST_DATA_PAGE..meta.high_water).contains(&id) {
            note(pages.damaged(id, "is free but lies outside of the tree's pages"));
        } else if !used.insert(id) {
            note(pages.damaged(id, "is free and in use"));
        }
    }
    for gap in used.gaps(FIRST_DATA_PAGE, meta.high_water) {
        note(pages.damaged(gap.first, format!("and {} after it are neither free nor in use", gap.count - 1)));
    }
    Ok(problems)
}
