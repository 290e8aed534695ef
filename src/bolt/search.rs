//! Where a key is in a page.
//!
//! Keys that count up lie where their number says: the search begins there and widens from there, so that it looks at
//! few keys. Of keys that do not it looks at no more than about twice as many as halving would.

use super::{error::BoltError, page::Page};

/// Of fewer elements the middle is a good guess.
const GUESSED_ELEMENTS_MIN: usize = 4;

/// A search in progress: the key is not before `low`, and before `high` if it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    low: usize,
    high: usize,
    probe: usize,
    step: usize,
    /// Whether the last probe was below the key.
    was_below: Option<bool>,
    /// The key lies between two probes: from here on the rest is halved.
    is_between: bool,
}

impl Search {
    pub(super) fn begin(page: &Page<'_>, key: &[u8]) -> Result<Search, BoltError> {
        let probe = guess(page, key)?;
        Ok(Search { low: 0, high: page.count(), probe, step: 1, was_below: None, is_between: false })
    }

    /// The element to compare with next; `None`: the key is not there.
    pub(super) fn probe(&self) -> Option<usize> {
        (self.low < self.high).then_some(self.probe)
    }

    /// The first element that is not below the key, once the search is through.
    pub(super) fn end(&self) -> usize {
        self.low
    }

    /// The probe was not it, but below the key or above.
    pub(super) fn goes_on(&mut self, is_below: bool) {
        if is_below {
            self.low = self.probe + 1;
        } else {
            self.high = self.probe;
        }
        self.is_between |= self.was_below.is_some_and(|before| before != is_below);
        self.was_below = Some(is_below);
        let last = self.high.saturating_sub(1).max(self.low);
        self.probe = if self.is_between {
            self.low + (self.high - self.low.min(self.high)) / 2
        } else if is_below {
            self.probe.saturating_add(self.step).clamp(self.low, last)
        } else {
            self.probe.saturating_sub(self.step).clamp(self.low, last)
        };
        self.step = self.step.saturating_mul(2);
    }
}

/// Where a key would lie if the keys were spread evenly between the first and the last.
fn guess(page: &Page<'_>, key: &[u8]) -> Result<usize, BoltError> {
    let count = page.count();
    if count < GUESSED_ELEMENTS_MIN {
        return Ok(count / 2);
    }
    let (first, last) = (page.key(0)?, page.key(count - 1)?);
    let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    if !key.starts_with(&first[..shared]) {
        return Ok(if key < first { 0 } else { count - 1 });
    }
    let (start, end, at) = (number(first, shared), number(last, shared), number(key, shared));
    let span = u128::from(end.saturating_sub(start)).max(1);
    let share = u128::from(at.saturating_sub(start)) * (count as u128 - 1) / span;
    Ok(usize::try_from(share).unwrap_or(usize::MAX).min(count - 1))
}

/// Eight bytes of a key from a place on, as a number that is not less for a greater key.
fn number(key: &[u8], from: usize) -> u64 {
    let mut head = [0; 8];
    let part = &key[from.min(key.len())..];
    let length = part.len().min(head.len());
    head[..length].copy_from_slice(&part[..length]);
    u64::from_be_bytes(head)
}
