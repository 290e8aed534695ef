//! Which pages are free, and which will be once the last reader that sees them is gone.
//!
//! A page freed by commit N is still part of the views before N. It waits under N until no view older than N is open
//! (and N itself is durable), then it may be written again. Free pages are kept as runs, by place to join neighbours
//! and by length to find room for pages that overflow: both in logarithmic time, however many there are.

use std::collections::{BTreeMap, BTreeSet};

use super::page::Run;

#[derive(Debug, Default)]
pub(super) struct Freelist {
    /// First page → length of every free run; no two touch.
    by_place: BTreeMap<u64, u64>,
    /// (length, first page) of the same runs.
    by_length: BTreeSet<(u64, u64)>,
    free_pages: u64,
    /// Runs freed by a commit, waiting for readers.
    pending: BTreeMap<u64, Vec<Run>>,
    pending_pages: u64,
}

/// A page was freed that was free already: the tree refers to it twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FreedTwice(pub(super) u64);

impl Freelist {
    /// Pages free or waiting to be.
    pub(super) fn pages(&self) -> u64 {
        self.free_pages + self.pending_pages
    }

    /// Takes `count` neighbouring pages, from the shortest run that has them.
    pub(super) fn allocate(&mut self, count: u64) -> Option<u64> {
        let &(length, first) = self.by_length.range((count, 0)..).next()?;
        self.remove(Run { first, count: length });
        if length > count {
            self.insert(Run { first: first + count, count: length - count });
        }
        Some(first)
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
        self.free_pages += run.count;
    }

    fn remove(&mut self, run: Run) {
        self.by_place.remove(&run.first);
        self.by_length.remove(&(run.count, run.first));
        self.free_pages -= run.count;
    }
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
    fn the_shortest_run_that_fits_is_used_first() {
        let mut list = with(&[run(10, 8), run(30, 2), run(40, 3)]);
        assert_eq!(list.allocate(2), Some(30));
        assert_eq!(list.allocate(2), Some(40));
        assert_eq!(list.allocate(1), Some(42));
        assert_eq!(list.allocate(9), None);
        assert_eq!(list.allocate(8), Some(10));
        assert_eq!(list.allocate(1), None);
        assert_eq!(list.pages(), 0);
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
