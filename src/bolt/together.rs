//! Looking several keys up together.
//!
//! A look-up alone waits for memory, page by page: for a page's head, then for one key after another, then for the
//! value. Here all look-ups take each step together, so that their waits overlap; the answers are those of as many
//! single look-ups.

use std::{array, hint::black_box};

use super::{
    directory::{Directory, Place},
    error::BoltError,
    page::{LeafElement, Page, Pages},
    read::{Root, find},
    search::{Head, Search},
};

/// Keys that are looked up together: enough for their waits to overlap, and few enough for what is brought into the
/// caches to be there still when it is used.
pub(super) const TOGETHER_KEYS: usize = 64;
/// How far into a branch its first touch goes: its head alone.
const HEAD_BYTES: u64 = 16;
/// How far into a leaf: head and elements, if there are as many as usual.
const LEAF_HEAD_BYTES: u64 = 256;
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
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(TOGETHER_KEYS) {
        let by_directory = directory.map_or([None; TOGETHER_KEYS], |directory| find_by(directory, pages, keys));
        for (key, element) in keys.iter().zip(by_directory) {
            let element = match element {
                Some(element) => Some(element),
                None => find(pages, root, key)?.map(|(_, element)| element),
            };
            found.push(element.filter(|element| !element.is_bucket()).map(|element| element.value()));
        }
    }
    Ok(found)
}

/// A look-up that has come to its leaf.
struct InLeaf<'tx> {
    leaf: Page<'tx>,
    guess: usize,
}

/// What the directory helps to find of up to [`TOGETHER_KEYS`] keys, in their order.
fn find_by<'tx>(
    directory: &Directory,
    pages: &Pages<'tx>,
    keys: &[&[u8]],
) -> [Option<LeafElement<'tx>>; TOGETHER_KEYS] {
    let mut places: [Option<(Head, Place)>; TOGETHER_KEYS] = array::from_fn(|at| {
        let head = Head::of(keys.get(at)?)?;
        let place = directory.listed(head)?;
        touch_page(pages, place.page, HEAD_BYTES);
        Some((head, place))
    });
    for place in &mut places {
        *place = place.and_then(|(head, place)| Some((head, directory.leaf_below(pages, head, place)?)));
    }
    for (_, place) in places.iter().flatten() {
        touch_page(pages, place.page, LEAF_HEAD_BYTES);
    }
    let begun: [Option<InLeaf<'tx>>; TOGETHER_KEYS] = array::from_fn(|at| begin_in_leaf(pages, places[at].as_ref()?));
    for InLeaf { leaf, guess } in begun.iter().flatten() {
        if let Ok(element) = leaf.leaf(*guess) {
            touch(&element.pair[..element.pair.len().min(TOUCHED_PAIR_BYTES)]);
        }
    }
    array::from_fn(|at| end_in_leaf(begun[at].as_ref()?, keys[at]))
}

/// Makes sure that a page is the leaf it is said to be, and guesses where in it the key is.
fn begin_in_leaf<'tx>(pages: &Pages<'tx>, (head, place): &(Head, Place)) -> Option<InLeaf<'tx>> {
    let leaf = pages.page(place.page).ok().filter(|page| page.is_leaf && page.count() > 0)?;
    if Head::of(leaf.key(0).ok()?) != Some(place.low) {
        return None;
    }
    Some(InLeaf { leaf, guess: head.guess_dense(place.low, place.high, leaf.count()) })
}

fn end_in_leaf<'tx>(InLeaf { leaf, guess }: &InLeaf<'tx>, key: &[u8]) -> Option<LeafElement<'tx>> {
    let mut search = Search::at(*guess, leaf.count());
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
fn touch_page(pages: &Pages<'_>, id: u64, bytes: u64) {
    if let Some(beginning) = pages.beginning(id, bytes) {
        touch(beginning);
    }
}

fn touch(bytes: &[u8]) {
    black_box(bytes.iter().step_by(LINE_BYTES).fold(0, |all, byte| all ^ byte));
}
