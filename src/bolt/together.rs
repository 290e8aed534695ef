//! Looking several keys up together.
//!
//! A look-up alone waits for memory, page by page: for a page's head, then for one key after another, then for the
//! value. Here all look-ups take each step together, so that their waits overlap; the answers are those of as many
//! single look-ups.

use std::hint::black_box;

use super::{
    directory::{Directory, Place},
    error::BoltError,
    page::{LeafElement, Page, Pages},
    read::{Root, find},
    search::{Head, Search},
};

/// How far into a page its first touch goes: the head and the elements of a leaf of usual size.
const TOUCHED_PAGE_BYTES: u64 = 256;
/// How far into a pair: key and value of usual size.
const TOUCHED_PAIR_BYTES: usize = 512;
/// What memory comes in.
const LINE_BYTES: usize = 64;

/// The values of keys of a bucket, in the order of the keys; none for a key that is not there or is a bucket.
pub(super) fn find_each<'tx>(
    pages: &Pages<'tx>,
    root: Root<'tx>,
    directory: Option<&Directory>,
    keys: &[&[u8]],
) -> Result<Vec<Option<&'tx [u8]>>, BoltError> {
    let by_directory = directory.map_or_else(Vec::new, |directory| find_by(directory, pages, keys));
    let mut found = by_directory.into_iter();
    let each = keys.iter().map(|key| {
        let element = match found.next().flatten() {
            Some(element) => Some(element),
            None => find(pages, root, key)?.map(|(_, element)| element),
        };
        Ok(element.filter(|element| !element.is_bucket()).map(|element| element.value()))
    });
    each.collect()
}

/// A look-up that has come to its leaf.
struct InLeaf<'tx> {
    leaf: Page<'tx>,
    search: Search,
}

/// What the directory helps to find, in the order of the keys.
fn find_by<'tx>(directory: &Directory, pages: &Pages<'tx>, keys: &[&[u8]]) -> Vec<Option<LeafElement<'tx>>> {
    let place_of = |key: &&[u8]| {
        let head = Head::of(key)?;
        Some((head, directory.leaf_of(pages, head)?))
    };
    let places: Vec<Option<(Head, Place)>> = keys.iter().map(place_of).collect();
    for (_, place) in places.iter().flatten() {
        touch_page(pages, place.page);
    }
    let begun: Vec<Option<InLeaf<'tx>>> = places.iter().map(|place| begin_in_leaf(pages, place.as_ref()?)).collect();
    for InLeaf { leaf, search } in begun.iter().flatten() {
        if let Some(Ok(element)) = search.probe().map(|probe| leaf.leaf(probe)) {
            touch(&element.pair[..element.pair.len().min(TOUCHED_PAIR_BYTES)]);
        }
    }
    begun.iter().zip(keys).map(|(begun, key)| end_in_leaf(begun.as_ref()?, key)).collect()
}

/// Makes sure that a page is the leaf it is said to be, and guesses where in it the key is.
fn begin_in_leaf<'tx>(pages: &Pages<'tx>, (head, place): &(Head, Place)) -> Option<InLeaf<'tx>> {
    let leaf = pages.page(place.page).ok().filter(|page| page.is_leaf && page.count() > 0)?;
    if Head::of(leaf.key(0).ok()?) != Some(place.low) {
        return None;
    }
    let guess = head.guess_dense(place.low, place.high, leaf.count());
    Some(InLeaf { leaf, search: Search::at(guess, leaf.count()) })
}

fn end_in_leaf<'tx>(InLeaf { leaf, search }: &InLeaf<'tx>, key: &[u8]) -> Option<LeafElement<'tx>> {
    let mut search = *search;
    while let Some(probe) = search.probe() {
        let element = leaf.leaf(probe).ok()?;
        match element.key().cmp(key) {
            std::cmp::Ordering::Equal => return Some(element),
            unequal => search.goes_on(unequal.is_lt()),
        }
    }
    None
}

/// Has the beginning of a page brought into the caches. What is wrong with it is found when it is read.
fn touch_page(pages: &Pages<'_>, id: u64) {
    if let Some(beginning) = pages.beginning(id, TOUCHED_PAGE_BYTES) {
        touch(beginning);
    }
}

fn touch(bytes: &[u8]) {
    black_box(bytes.iter().step_by(LINE_BYTES).fold(0, |all, byte| all ^ byte));
}
