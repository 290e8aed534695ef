//! Which keys and which prefixes of keys take up the most room. Fed pair by pair; remembers a bounded number of each.
//!
//! Where there are more keys or prefixes than are remembered, those that looked smallest are forgotten on the way: a
//! figure then is at least what is told, and what is told to be left out may hide something as big as the largest
//! that was forgotten.

use std::collections::HashMap;

use super::super::{KeyValueRef, MvccError, Revision};

/// What is remembered while looking, per entry that is told in the end.
const REMEMBERED_PER_TOLD: usize = 64;
/// What is remembered at least.
const REMEMBERED_MIN: usize = 100_000;
/// Most bytes of a key that are remembered to tell it by.
const NAME_BYTES_MAX: usize = 1_024;

/// A key and the room it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySize {
    /// The key, cut after 1,024 bytes.
    pub key: Vec<u8>,
    /// Bytes of all its revisions in the file, keys and values as stored.
    pub bytes: u64,
    /// How many revisions those are.
    pub revisions: u64,
    /// Bytes of its newest value; 0 if it is deleted.
    pub newest_value_bytes: u64,
}

/// The keys below a prefix and the room they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixSize {
    /// The prefix, ending in `/` unless no key below it goes on.
    pub prefix: Vec<u8>,
    /// Bytes of all revisions of its keys.
    pub bytes: u64,
    /// How many revisions those are.
    pub revisions: u64,
}

/// Adds up what keys and prefixes take.
#[derive(Debug)]
pub struct Biggest {
    told_max: usize,
    prefix_depth: usize,
    keys: HashMap<Vec<u8>, KeySize>,
    prefixes: HashMap<Vec<u8>, PrefixSize>,
    /// Bytes of the largest key that was forgotten.
    forgotten_bytes: u64,
}

impl Biggest {
    /// Tells `told_max` keys and prefixes in the end; a prefix goes to the `prefix_depth`th `/` behind a first one.
    pub fn new(told_max: usize, prefix_depth: usize) -> Biggest {
        Biggest { told_max, prefix_depth, keys: HashMap::new(), prefixes: HashMap::new(), forgotten_bytes: 0 }
    }

    /// Counts a pair of bucket `key`.
    pub fn see(&mut self, name: &[u8], encoded: &[u8]) -> Result<(), MvccError> {
        let (revision, tombstone) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name))?;
        let kv = KeyValueRef::decode_at(revision, encoded)?;
        let bytes = (name.len() + encoded.len()) as u64;
        let shown = &kv.key[..kv.key.len().min(NAME_BYTES_MAX)];
        let remembered_max = (self.told_max * REMEMBERED_PER_TOLD).max(REMEMBERED_MIN);
        if !self.keys.contains_key(shown) {
            if self.keys.len() >= remembered_max {
                self.forgotten_bytes = self.forgotten_bytes.max(halve(&mut self.keys, |size| size.bytes));
            }
            self.keys.insert(shown.to_vec(), KeySize { key: shown.to_vec(), ..KeySize::default() });
        }
        if let Some(size) = self.keys.get_mut(shown) {
            size.bytes += bytes;
            size.revisions += 1;
            size.newest_value_bytes = if tombstone { 0 } else { kv.value.len() as u64 };
        }
        let prefix = prefix_of(shown, self.prefix_depth);
        if !self.prefixes.contains_key(prefix) {
            if self.prefixes.len() >= remembered_max {
                self.forgotten_bytes = self.forgotten_bytes.max(halve(&mut self.prefixes, |size| size.bytes));
            }
            self.prefixes.insert(prefix.to_vec(), PrefixSize { prefix: prefix.to_vec(), ..PrefixSize::default() });
        }
        if let Some(size) = self.prefixes.get_mut(prefix) {
            size.bytes += bytes;
            size.revisions += 1;
        }
        Ok(())
    }

    /// The biggest keys by all their revisions.
    pub fn keys(&self) -> Vec<KeySize> {
        top(self.keys.values(), self.told_max, |size| (size.bytes, size.key.clone()))
    }

    /// The keys with the biggest newest values.
    pub fn newest(&self) -> Vec<KeySize> {
        let existing = self.keys.values().filter(|size| size.newest_value_bytes > 0);
        top(existing, self.told_max, |size| (size.newest_value_bytes, size.key.clone()))
    }

    /// The biggest prefixes.
    pub fn prefixes(&self) -> Vec<PrefixSize> {
        top(self.prefixes.values(), self.told_max, |size| (size.bytes, size.prefix.clone()))
    }

    /// Up to how many bytes a key or prefix may have that was forgotten on the way; 0 if nothing was forgotten.
    pub fn forgotten_bytes(&self) -> u64 {
        self.forgotten_bytes
    }
}

/// Up to the `depth`th `/`, one at the very beginning not counted.
fn prefix_of(key: &[u8], depth: usize) -> &[u8] {
    let first = usize::from(key.first() == Some(&b'/'));
    let slashes = key.iter().enumerate().skip(first).filter(|(_, byte)| **byte == b'/');
    let ends: Vec<usize> = slashes.map(|(at, _)| at + 1).take(depth).collect();
    match ends.last() {
        Some(end) => &key[..*end],
        // Keys without a path are counted together.
        None => &key[..first],
    }
}

/// Forgets the smaller half; the size of the largest forgotten.
fn halve<T>(sizes: &mut HashMap<Vec<u8>, T>, bytes: impl Fn(&T) -> u64) -> u64 {
    let mut all: Vec<u64> = sizes.values().map(&bytes).collect();
    let middle = all.len() / 2;
    let (_, limit, _) = all.select_nth_unstable(middle);
    let limit = *limit;
    let mut to_forget = middle;
    sizes.retain(|_, size| {
        let forget = to_forget > 0 && bytes(size) <= limit;
        to_forget -= usize::from(forget);
        !forget
    });
    limit
}

fn top<'a, T: Clone + 'a, K: Ord>(sizes: impl Iterator<Item = &'a T>, max: usize, by: impl Fn(&T) -> K) -> Vec<T> {
    let mut sizes: Vec<T> = sizes.cloned().collect();
    sizes.sort_by_cached_key(|size| std::cmp::Reverse(by(size)));
    sizes.truncate(max);
    sizes
}
