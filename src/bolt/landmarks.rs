//! Keys that cut a bucket into parts of about the same size, for those who read all of it on several threads.

use super::{
    error::BoltError,
    page::{DEPTH_LEVELS_MAX, Page, Pages},
    read::{Root, too_deep},
};

/// The keys by which one level of branches calls its children, ascending: of the uppermost level that has `least` of
/// them, or else of the one above the leaves. None if the tree is a single leaf. Pages below that level are not looked at.
pub(super) fn landmarks<'tx>(pages: &Pages<'tx>, root: Root<'tx>, least: usize) -> Result<Vec<&'tx [u8]>, BoltError> {
    let Root::Page(root) = root else { return Ok(Vec::new()) };
    let mut level = vec![pages.page(root)?];
    let mut names = Vec::new();
    for _ in 0..DEPTH_LEVELS_MAX {
        // The branches of a tree all end at the same depth; of one where they do not, less is known.
        if level.iter().any(|page| page.is_leaf) {
            return Ok(names);
        }
        names = names_of(&level)?;
        if names.len() >= least {
            return Ok(names);
        }
        level = children_of(pages, &level)?;
    }
    Err(too_deep(pages, root))
}

fn names_of<'tx>(level: &[Page<'tx>]) -> Result<Vec<&'tx [u8]>, BoltError> {
    let mut names: Vec<&[u8]> = Vec::new();
    for page in level {
        for index in 0..page.count() {
            let name = page.branch_key(index)?;
            if names.last().is_some_and(|last| *last >= name) {
                return Err(page.damaged(format!("element {index} is not above the one before")));
            }
            names.push(name);
        }
    }
    Ok(names)
}

fn children_of<'tx>(pages: &Pages<'tx>, level: &[Page<'tx>]) -> Result<Vec<Page<'tx>>, BoltError> {
    let places = level.iter().flat_map(|page| (0..page.count()).map(move |index| (page, index)));
    places.map(|(page, index)| pages.child(page, index)).collect()
}
