//! Looking several keys up together.
//!
//! A look-up alone waits for memory, page by page: for a page's head, then for one key after another. Here all look-ups
//! take each step together, so that their waits overlap; the answers are those of as many single look-ups.

use std::hint::black_box;

use super::{
    error::BoltError,
    page::{DEPTH_LEVELS_MAX, Page, Pages},
    read::{Root, too_deep},
    search::Search,
};

/// How far into a page its first touch goes: the head and the elements of a leaf of usual size.
const TOUCHED_BYTES: u64 = 256;
/// What memory comes in.
const LINE_BYTES: usize = 64;

/// The values of keys below a page, in the order of the keys; none for a key that is not there or is a bucket.
pub(super) fn find_each<'tx>(
    pages: &Pages<'tx>,
    root: Root<'tx>,
    keys: &[&[u8]],
) -> Result<Vec<Option<&'tx [u8]>>, BoltError> {
    let root = match root {
        Root::Page(id) => pages.page(id)?,
        Root::Inline(page) => page,
    };
    let mut at = vec![root; keys.len()];
    let mut children = vec![0; keys.len()];
    for _ in 0..DEPTH_LEVELS_MAX {
        if at.iter().all(|page| page.is_leaf) {
            return search_each(&at, keys);
        }
        for ((page, key), child) in at.iter().zip(keys).zip(&mut children) {
            if !page.is_leaf {
                *child = page.child_for(key)?;
            }
        }
        let below = at.iter().zip(&children).filter(|(page, _)| !page.is_leaf);
        below.for_each(|(page, child)| touch(pages, page.child(*child)));
        for (page, child) in at.iter_mut().zip(&children) {
            if !page.is_leaf {
                *page = pages.child(page, *child)?;
            }
        }
    }
    Err(too_deep(pages, root.id))
}

/// Has the beginning of a page brought into the caches. What is wrong with it is found when it is read.
fn touch(pages: &Pages<'_>, id: u64) {
    let start = id.saturating_mul(u64::from(pages.page_bytes));
    if let Some(head) = pages.map.bytes(start, TOUCHED_BYTES) {
        black_box(head.iter().step_by(LINE_BYTES).fold(0, |all, byte| all ^ byte));
    }
}

/// Searches each key in its leaf, step by step together.
fn search_each<'tx>(leaves: &[Page<'tx>], keys: &[&[u8]]) -> Result<Vec<Option<&'tx [u8]>>, BoltError> {
    let begun = leaves.iter().zip(keys).map(|(leaf, key)| Search::begin(leaf, key));
    let mut searches = begun.collect::<Result<Vec<_>, _>>()?;
    let mut found = vec![None; keys.len()];
    let mut under_way: Vec<usize> = (0..keys.len()).collect();
    while !under_way.is_empty() {
        let mut failure = None;
        under_way.retain(|&at| {
            let Some(probe) = searches[at].probe() else { return false };
            match leaves[at].leaf(probe) {
                Ok(element) if element.key() == keys[at] => {
                    found[at] = (!element.is_bucket()).then(|| element.value());
                    false
                }
                Ok(element) => {
                    searches[at].goes_on(element.key() < keys[at]);
                    true
                }
                Err(error) => {
                    failure = Some(error);
                    false
                }
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
    }
    Ok(found)
}
