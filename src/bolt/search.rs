//! Where a key is among sorted ones.
//!
//! Keys that count up lie where their number says: the search begins there and widens from there, so that it looks at
//! few keys. Of keys that do not it looks at no more than about twice as many as halving would.

use super::{error::BoltError, page::Page};

/// Of fewer elements the middle is a good guess.
const GUESSED_ELEMENTS_MIN: usize = 4;

/// Bytes of a key that its head holds.
const HEAD_BYTES: usize = 24;

/// A short key as numbers, as if zeros followed it. Heads compare as their keys do, and in no time; those of keys that
/// differ in zeros at the end are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head([u64; 3]);

impl Head {
    /// `None`: the key is too long.
    pub(super) fn of(key: &[u8]) -> Option<Head> {
        let number = |bytes: &[u8]| {
            bytes.iter().enumerate().fold(0, |number, (at, byte)| number | u64::from(*byte) << (56 - 8 * at))
        };
        if key.len() > HEAD_BYTES {
            return None;
        }
        if let Some((first, rest)) = key.split_first_chunk::<8>()
            && let Some((second, rest)) = rest.split_first_chunk::<8>()
        {
            return Some(Head([u64::from_be_bytes(*first), u64::from_be_bytes(*second), number(rest)]));
        }
        let (first, second) = key.split_at(key.len().min(8));
        Some(Head([number(first), number(second), 0]))
    }

    /// The key taken for two numbers of eight bytes and a byte between them, as the longest of all buckets has them. Of
    /// other keys they are as good as any to guess by.
    pub(super) fn numbers(self) -> (u64, u64) {
        (self.0[0], self.0[1] << 8 | self.0[2] >> 56)
    }

    /// How many keys are from `low` on up to this one if the second number counts without gaps.
    fn steps_from(self, low: Head) -> Option<u64> {
        let (at, low) = (self.numbers(), low.numbers());
        if at.0 == low.0 { at.1.checked_sub(low.1) } else { None }
    }

    /// Which share of the way from `low` to `high` leads here.
    fn share(self, low: Head, high: Head) -> f64 {
        let (at, low, high) = (self.numbers(), low.numbers(), high.numbers());
        let (at, low, high) = if low.0 == high.0 { (at.1, low.1, high.1) } else { (at.0, low.0, high.0) };
        at.saturating_sub(low) as f64 / high.saturating_sub(low).max(1) as f64
    }

    /// Where this key would be among `count` ones in even distances, the first of which is `low`, and which end before
    /// `high`.
    pub(super) fn guess_spread(self, low: Head, high: Option<Head>, count: usize) -> usize {
        let last = count.saturating_sub(1);
        high.map_or(last, |high| ((self.share(low, high) * count as f64) as usize).min(last))
    }

    /// The same among ones that follow each other closely.
    pub(super) fn guess_dense(self, low: Head, high: Option<Head>, count: usize) -> usize {
        let within = |steps: u64| usize::try_from(steps).ok().filter(|steps| *steps < count);
        let from_start = self.steps_from(low).and_then(within);
        let from_end = || high.and_then(|high| high.steps_from(self)).and_then(within).filter(|steps| *steps > 0);
        from_start
            .or_else(|| from_end().map(|steps| count - steps))
            .unwrap_or_else(|| self.guess_spread(low, high, count))
    }
}

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
    /// In a page, for a key.
    pub(super) fn begin(page: &Page<'_>, key: &[u8]) -> Result<Search, BoltError> {
        Ok(Search::at(guess(page, key)?, page.count()))
    }

    /// Among `count` elements, beginning with a guess.
    pub(super) fn at(guess: usize, count: usize) -> Search {
        Search { low: 0, high: count, probe: guess, step: 1, was_below: None, is_between: false }
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

/// Where a key would lie if the keys were spread evenly between the first and the last, or counted up from the first.
fn guess(page: &Page<'_>, key: &[u8]) -> Result<usize, BoltError> {
    let count = page.count();
    if count < GUESSED_ELEMENTS_MIN {
        return Ok(count / 2);
    }
    let first = page.key(0)?;
    if let (Some(at), Some(low)) = (Head::of(key), Head::of(first)) {
        if at <= low {
            return Ok(0);
        }
        let steps = at.steps_from(low).and_then(|steps| usize::try_from(steps).ok());
        if let Some(steps) = steps.filter(|steps| page.is_leaf && *steps < count) {
            return Ok(steps);
        }
        if let Some(high) = Head::of(page.key(count - 1)?) {
            return Ok(if at < high { at.guess_spread(low, Some(high), count) } else { count - 1 });
        }
    }
    guess_long(first, page.key(count - 1)?, key, count)
}

/// The same for keys that have no head.
fn guess_long(first: &[u8], last: &[u8], key: &[u8], count: usize) -> Result<usize, BoltError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails panics")]

    use proptest::prelude::*;

    use super::*;

    fn short_key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..=HEAD_BYTES)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn heads_compare_as_their_keys(a in short_key(), b in short_key()) {
            let (head_a, head_b) = (Head::of(&a).unwrap(), Head::of(&b).unwrap());
            if head_a != head_b {
                prop_assert_eq!(head_a.cmp(&head_b), a.cmp(&b));
            } else {
                let shorter = a.len().min(b.len());
                prop_assert_eq!(&a[..shorter], &b[..shorter]);
                prop_assert!(a[shorter..].iter().chain(&b[shorter..]).all(|byte| *byte == 0));
            }
        }

        #[test]
        fn a_search_finds_its_place_from_any_guess(mut numbers in prop::collection::vec(0..200u32, 1..60), key in 0..200u32, guess in 0..60usize) {
            numbers.sort_unstable();
            numbers.dedup();
            let mut search = Search::at(guess.min(numbers.len() - 1), numbers.len());
            while let Some(probe) = search.probe() {
                search.goes_on(numbers[probe] < key);
            }
            prop_assert_eq!(search.end(), numbers.partition_point(|number| *number < key));
        }
    }

    #[test]
    fn keys_that_count_up_are_guessed_exactly() {
        let key = |main: u64, sub: u64| [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat();
        let head = |main, sub| Head::of(&key(main, sub)).unwrap();
        // Changes of one transaction, the last of one and the first of the next, transactions of one change.
        assert_eq!(head(7, 300).guess_dense(head(7, 250), Some(head(7, 350)), 100), 50);
        assert_eq!(head(8, 3).guess_dense(head(7, 120), Some(head(8, 5)), 13), 11);
        assert_eq!(head(57, 0).guess_dense(head(50, 0), Some(head(70, 0)), 20), 7);
        assert_eq!(Head::of(&[0; HEAD_BYTES + 1]), None);
    }
}
