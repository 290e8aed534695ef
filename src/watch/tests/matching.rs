//! The indexes against a scan.

use bytes::Bytes;
use proptest::prelude::*;

use crate::watch::intervals::{Interval, Intervals};

fn key() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(0..4u8, 0..3).prop_map(Bytes::from)
}

fn interval() -> impl Strategy<Value = Interval> {
    (key(), prop::option::of(key())).prop_map(|(start, end)| Interval { start, end })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Inserts and removes in any order; after each, every key finds what a scan finds.
    #[test]
    fn a_key_finds_the_intervals_around_it(
        ops in prop::collection::vec((any::<bool>(), interval(), 0..3usize, any::<prop::sample::Index>()), 1..60),
        keys in prop::collection::vec(key(), 1..12),
    ) {
        let mut intervals = Intervals::new();
        let mut model: Vec<(Interval, usize)> = Vec::new();
        for (insert, interval, value, which) in ops {
            if insert || model.is_empty() {
                if !model.contains(&(interval.clone(), value)) {
                    intervals.insert(interval.clone(), value);
                    model.push((interval, value));
                }
            } else {
                let (interval, value) = model.swap_remove(which.index(model.len()));
                intervals.remove(&interval, value);
            }
            for key in &keys {
                let mut found = Vec::new();
                intervals.stab(key, &mut |value| found.push(value));
                let mut expected: Vec<usize> = model
                    .iter()
                    .filter(|(i, _)| i.start <= *key && i.end.as_ref().is_none_or(|end| end > key))
                    .map(|(_, value)| *value)
                    .collect();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
