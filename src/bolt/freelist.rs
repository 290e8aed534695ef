//! Which pages are free, and which will be once the last reader that sees them is gone.
//!
//! A page freed by commit N is still part of the views before N. It waits under N until no view older than N is open
//! (and N itself is durable), then it may be written again. Free pages are kept as runs: by place to join neighbours, by
//! length and by class of length to find room for pages that overflow. All of it takes logarithmic time, however many
//! there are. The lowest pages are used first, so that the end of the file comes free by itself.

use std::collections::{BTreeMap, BTreeSet};

use super::page::Run;

/// Classes of length: a run of class n has at least 2^n pages and fewer than 2^(n + 1).
const CLASSES: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Freelist {
    /// First page → length of every free run; no two touch.
    by_place: BTreeMap<u64, u64>,
    /// (length, first page) of the same runs.
    by_length: BTreeSet<(u64, u64)>,
    /// First pages of the same runs, by class.
    by_class: [BTreeSet<u64>; CLASSES],
    free_pages: u64,
    /// Runs freed by a commit, waiting for readers.
    pending: BTreeMap<u64, Vec<Run>>,
    pending_pages: u64,
}

impl Default for Freelist {
    fn default() -> Freelist {
        Freelist {
            by_place: BTreeMap::new(),
            by_length: BTreeSet::new(),
            by_class: [(); CLASSES].map(|()| BTreeSet::new()),
            free_pages: 0,
            pending: BTreeMap::new(),
            pending_pages: 0,
        }
    }
}

/// A page was freed that was free already: the tree refers to it twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FreedTwice(pub(super) u64);

impl Freelist {
    /// Pages free or waiting to be.
    pub(super) fn pages(&self) -> u64 {
        self.free_pages + self.pending_pages
    }

    /// Pages that are not free yet because a view may still show them.
    pub(super) fn pending_pages(&self) -> u64 {
        self.pending_pages
    }

    /// Takes `count` neighbouring pages, as low as they are found without a search: single pages are the lowest there
    /// are; longer runs are the lowest of the classes whose runs are all long enough, or the shortest of their own.
    pub(super) fn allocate(&mut self, count: u64) -> Option<u64> {
        self.allocate_below(count, u64::MAX)
    }

    /// The same, if all of them lie below page `end`.
    pub(super) fn allocate_below(&mut self, count: u64, end: u64) -> Option<u64> {
        let run = self.low_fit(count).filter(|run| run.first.saturating_add(count) <= end)?;
        self.remove(run);
        if run.count > count {
            self.insert(Run { first: run.first + count, count: run.count - count });
        }
        Some(run.first)
    }

    fn low_fit(&self, count: u64) -> Option<Run> {
        if count <= 1 {
            return self.by_place.first_key_value().map(|(&first, &count)| Run { first, count });
        }
        // From this class on every run is long enough; in the one below, some are.
        let class = count.next_power_of_two().trailing_zeros() as usize;
        let own = (!count.is_power_of_two()).then(|| {
            let mut fitting = self.by_length.range((count, 0)..(count.next_power_of_two(), 0));
            fitting.next().map(|&(_, first)| first)
        });
        let longer = self.by_class.iter().skip(class).filter_map(|runs| runs.first().copied());
        let first = longer.chain(own.flatten()).min()?;
        Some(Run { first, count: self.by_place[&first] })
    }

    /// Takes the free pages right before page `end` out of the list, if there are any.
    pub(super) fn take_tail(&mut self, end: u64) -> Option<Run> {
        let tail = self.last_before(end).filter(|run| run.end() == end)?;
        self.remove(tail);
        Some(tail)
    }

    /// The end of what is not free below page `end`.
    pub(super) fn occupied_end(&self, end: u64) -> u64 {
        self.last_before(end).filter(|run| run.end() == end).map_or(end, |run| run.first)
    }

    /// Makes pages free at once: no view has ever seen them, or none does any more.
    pub(super) fn free(&mut self, mut run: Run) -> Result<(), FreedTwice> {
        if let Some(before) = self.last_before(run.end()) {
            if before.end() > run.first {
                return Err(FreedTwice(run.first.max(before.first)));
            }
            if before.end() == run.first {
                self.remove(before);
                run = Run { first: before.first, count: before.count + run.count };
            }
        }
        if let Some(&count) = self.by_place.get(&run.end()) {
            self.remove(Run { first: run.end(), count });
            run.count += count;
        }
        self.insert(run);
        Ok(())
    }

    /// Makes pages free once no view older than commit `txid` is open.
    pub(super) fn free_after(&mut self, txid: u64, runs: Vec<Run>) {
        self.pending_pages += runs.iter().map(|run| run.count).sum::<u64>();
        self.pending.entry(txid).or_default().extend(runs);
    }

    /// No view older than commit `oldest` is open: frees what commits up to it left behind.
    pub(super) fn release(&mut self, oldest: u64) -> Result<(), FreedTwice> {
        let later = self.pending.split_off(&(oldest + 1));
        for run in std::mem::replace(&mut self.pending, later).into_values().flatten() {
            self.pending_pages -= run.count;
            self.free(run)?;
        }
        Ok(())
    }

    /// Whether a page waits for readers.
    pub(super) fn is_pending(&self, page: u64) -> bool {
        self.pending.values().flatten().any(|run| run.first <= page && page < run.end())
    }

    /// Whether any of these pages is free.
    pub(super) fn is_free(&self, run: Run) -> bool {
        self.last_before(run.end()).is_some_and(|free| free.end() > run.first)
    }

    /// Every run, free or waiting, in order of place. Runs may touch.
    pub(super) fn runs(&self) -> Vec<Run> {
        let free = self.by_place.iter().map(|(&first, &count)| Run { first, count });
        let mut runs: Vec<Run> = free.chain(self.pending.values().flatten().copied()).collect();
        runs.sort_unstable();
        runs
    }

    /// The last free run that begins before `page`.
    fn last_before(&self, page: u64) -> Option<Run> {
        self.by_place.range(..page).next_back().map(|(&first, &count)| Run { first, count })
    }

    fn insert(&mut self, run: Run) {
        self.by_place.insert(run.first, run.count);
        self.by_length.insert((run.count, run.first));
        self.by_class[class_of(run)].insert(run.first);
        self.free_pages += run.count;
    }

    fn remove(&mut self, run: Run) {
        self.by_place.remove(&run.first);
        self.by_length.remove(&(run.count, run.first));
        self.by_class[class_of(run)].remove(&run.first);
        self.free_pages -= run.count;
    }
}

fn class_of(run: Run) -> usize {
    run.count.checked_ilog2().unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, count: u64) -> Run {
        Run { first, count }
    }

    fn with(runs: &[Run]) -> Freelist {
        let mut list = Freelist::default();
        for &run in runs {
            list.free(run).expect("no run twice");
        }
        list
    }

    #[test]
    fn neighbours_join() {
        assert_eq!(with(&[run(5, 1), run(7, 2), run(6, 1), run(20, 1)]).runs(), [run(5, 4), run(20, 1)]);
    }

    #[test]
    fn the_lowest_pages_are_used_first() {
        let mut list = with(&[run(10, 8), run(30, 2), run(40, 3), run(50, 5)]);
        assert_eq!(list.allocate(1), Some(10));
        assert_eq!(list.allocate(2), Some(11));
        // Of its own class the shortest, of the longer ones the lowest, of these the lower.
        assert_eq!(list.allocate(3), Some(13));
        assert_eq!(list.allocate(3), Some(40));
        assert_eq!(list.allocate(9), None);
        assert_eq!(list.allocate(5), Some(50));
        assert_eq!(list.allocate(2), Some(16));
        assert_eq!(list.allocate(2), Some(30));
        assert_eq!(list.allocate(1), None);
        assert_eq!(list.pages(), 0);
    }

    #[test]
    fn a_run_is_found_whatever_its_length() {
        for length in 1..70 {
            for count in 1..=length {
                let mut list = with(&[run(2, 1), run(100, length)]);
                let expected = if count == 1 { 2 } else { 100 };
                assert_eq!(
                    list.allocate_below(count, 100 + count - 1),
                    (count == 1).then_some(2),
                    "{count} of {length}"
                );
                assert_eq!(with(&[run(2, 1), run(100, length)]).allocate(count), Some(expected), "{count} of {length}");
            }
        }
    }

    #[test]
    fn the_tail_is_what_reaches_the_end() {
        let mut list = with(&[run(5, 2), run(10, 4)]);
        assert_eq!([13, 14, 15].map(|end| list.occupied_end(end)), [13, 10, 15]);
        assert_eq!(list.take_tail(15), None);
        assert_eq!(list.take_tail(14), Some(run(10, 4)));
        assert_eq!(list.take_tail(10), None);
        assert_eq!(list.pages(), 2);
    }

    #[test]
    fn pages_wait_for_the_readers_before_their_commit() {
        let mut list = Freelist::default();
        list.free_after(7, vec![run(3, 1)]);
        list.free_after(8, vec![run(4, 1)]);
        assert_eq!(list.pages(), 2);
        list.release(6).expect("nothing twice");
        assert_eq!(list.allocate(1), None);
        list.release(7).expect("nothing twice");
        assert_eq!(list.allocate(1), Some(3));
        assert_eq!(list.allocate(1), None);
        list.release(9).expect("nothing twice");
        assert_eq!(list.allocate(1), Some(4));
    }

    #[test]
    fn freeing_twice_is_noticed() {
        for twice in [run(5, 1), run(4, 2), run(4, 9), run(7, 1), run(7, 4)] {
            assert!(with(&[run(5, 3)]).is_free(twice), "{twice:?}");
            assert!(with(&[run(5, 3)]).free(twice).is_err(), "{twice:?}");
        }
    }

    #[test]
    fn a_hundred_thousand_scattered_pages_are_no_burden() {
        let mut list = Freelist::default();
        for page in 0..100_000 {
            list.free(run(2 * page + 10, 1)).expect("no page twice");
        }
        list.free(run(500_000, 64)).expect("no page twice");
        assert_eq!(list.allocate(64), Some(500_000));
        for page in 0..100_000 {
            assert_eq!(list.allocate(1), Some(2 * page + 10));
        }
    }
}
