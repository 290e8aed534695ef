//! What an engine said it holds: read off the marks of a recording.

use super::recording::{Mark, Op};

/// The steps a workload asked for, in order, as far as the engine may hold them, and how many of them it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) steps: Vec<u64>,
    pub(crate) done: usize,
}

impl Promise {
    pub(super) fn of(ops: &[Op]) -> Promise {
        let mut promise = Promise::default();
        for op in ops {
            match op {
                Op::Mark(Mark::Begun(step)) => promise.steps.push(*step),
                Op::Mark(Mark::Done(step)) => promise.done = promise.count_through(*step).unwrap(),
                // What was begun and is not there was never promised, and will not come back.
                Op::Mark(Mark::Restarted(steps)) => {
                    promise.steps.truncate(*steps);
                    promise.done = *steps;
                }
                _ => {}
            }
        }
        promise
    }

    /// How many steps there are up to this one.
    pub(crate) fn count_through(&self, step: u64) -> Option<usize> {
        self.steps.iter().rposition(|begun| *begun == step).map(|at| at + 1)
    }

    /// Whether an engine may hold so many steps.
    pub(crate) fn check(&self, held: usize) -> Result<(), String> {
        if (self.done..=self.steps.len()).contains(&held) {
            return Ok(());
        }
        Err(format!("holds {held} steps, of which {} were promised and {} begun", self.done, self.steps.len()))
    }

    /// A number no step had that is still there.
    pub(crate) fn next_step(&self) -> u64 {
        self.steps.last().map_or(1, |step| step + 1)
    }
}
