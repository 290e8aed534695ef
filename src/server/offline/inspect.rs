//! What takes up the room in a file.

use std::{path::Path, sync::Arc};

use super::{OfflineError, source::Source};
use crate::{
    bolt::PageUse,
    disk::Disk,
    mvcc::{Biggest, KeySize, PrefixSize, buckets},
};

/// What takes up the room in a file.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Its pages and buckets.
    pub pages: PageUse,
    /// The keys that take most, with all their revisions.
    pub keys: Vec<KeySize>,
    /// The keys with the largest values now.
    pub newest: Vec<KeySize>,
    /// The prefixes that take most.
    pub prefixes: Vec<PrefixSize>,
    /// Keys and prefixes that are not told, and were not remembered to the end, may have taken up to so many bytes; 0 if
    /// all were.
    pub forgotten_bytes: u64,
}

/// Looks at everything in a file; tells `told_max` keys and prefixes, these cut at their `prefix_depth`th `/`. The first
/// damage is an error.
pub fn inspect_file(
    disk: &Arc<dyn Disk>,
    path: &Path,
    told_max: usize,
    prefix_depth: usize,
) -> Result<Inspected, OfflineError> {
    let source = Source::open(disk, path)?;
    let pages = source.tx.page_use()?;
    let mut biggest = Biggest::new(told_max, prefix_depth);
    if let Some(bucket) = source.tx.bucket(buckets::KEY)? {
        let mut cursor = bucket.cursor();
        while let Some((name, value)) = cursor.next()? {
            biggest.see(name, value)?;
        }
    }
    Ok(Inspected {
        pages,
        keys: biggest.keys(),
        newest: biggest.newest(),
        prefixes: biggest.prefixes(),
        forgotten_bytes: biggest.forgotten_bytes(),
    })
}
