//! Looking through a range of the tree: visiting its keys in either direction, and counting them.

use std::ops::{Bound, ControlFlow};

use super::{
    key_index::KeyIndex,
    tree::{Branch, Leaf, Node, Sums},
};

/// A range of keys: its two ends.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Takes a key; says whether to go on.
pub(super) type Visit<'v> = dyn FnMut(&[u8], &KeyIndex) -> ControlFlow<()> + 'v;

/// Visits the keys of a range, ascending.
pub(super) fn ascend(node: &Node, (low, high): Bounds<'_>, visit: &mut Visit<'_>) -> ControlFlow<()> {
    match node {
        Node::Leaf(leaf) => {
            for at in leaf.places((low, high)) {
                visit(leaf.keys.get(at), &leaf.values[at])?;
            }
        }
        Node::Branch(branch) => {
            for (child, bounds) in branch.parts((low, high)) {
                ascend(&branch.children[child].node, bounds, visit)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// Visits the keys of a range, descending.
pub(super) fn descend(node: &Node, (low, high): Bounds<'_>, visit: &mut Visit<'_>) -> ControlFlow<()> {
    match node {
        Node::Leaf(leaf) => {
            for at in leaf.places((low, high)).rev() {
                visit(leaf.keys.get(at), &leaf.values[at])?;
            }
        }
        Node::Branch(branch) => {
            for (child, bounds) in branch.parts((low, high)).rev() {
                descend(&branch.children[child].node, bounds, visit)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// Counts in a range, part by part.
pub(super) struct Count<'c> {
    /// What a part of the tree that is in the range as a whole counts, if its sums tell.
    pub(super) part: &'c dyn Fn(&Sums) -> Option<u64>,
    /// What a key counts.
    pub(super) key: &'c dyn Fn(&KeyIndex) -> u64,
    /// Keys that may still be looked at one by one.
    pub(super) budget: usize,
    /// What was counted so far.
    pub(super) total: u64,
}

impl Count<'_> {
    /// Counts a range; returns the last key looked at if the budget ended before the range did.
    pub(super) fn count(&mut self, node: &Node, bounds: Bounds<'_>) -> Option<Box<[u8]>> {
        match node {
            Node::Leaf(leaf) => {
                for at in leaf.places(bounds) {
                    self.total += (self.key)(&leaf.values[at]);
                    self.budget = self.budget.saturating_sub(1);
                    if self.budget == 0 {
                        return Some(leaf.keys.get(at).into());
                    }
                }
                None
            }
            Node::Branch(branch) => branch.parts(bounds).find_map(|(at, bounds)| {
                let child = &branch.children[at];
                let is_whole = bounds == (Bound::Unbounded, Bound::Unbounded);
                match (self.part)(&child.sums).filter(|_| is_whole) {
                    Some(counted) => {
                        self.total += counted;
                        None
                    }
                    None => self.count(&child.node, bounds),
                }
            }),
        }
    }
}

impl Leaf {
    /// Where the keys of a range are.
    fn places(&self, (low, high): Bounds<'_>) -> std::ops::Range<usize> {
        let from = match low {
            Bound::Unbounded => 0,
            Bound::Included(low) => self.keys.partition_point(|key| key < low),
            Bound::Excluded(low) => self.keys.partition_point(|key| key <= low),
        };
        let to = match high {
            Bound::Unbounded => self.values.len(),
            Bound::Included(high) => self.keys.partition_point(|key| key <= high),
            Bound::Excluded(high) => self.keys.partition_point(|key| key < high),
        };
        from..to.max(from)
    }
}

impl Branch {
    /// The children a range touches, each with the part of the range that is to be looked for in it: without an end
    /// where the child ends before the range does.
    fn parts<'b>(&self, (low, high): Bounds<'b>) -> impl DoubleEndedIterator<Item = (usize, Bounds<'b>)> + use<'b> {
        let from = match low {
            Bound::Unbounded => 0,
            Bound::Included(low) | Bound::Excluded(low) => self.child_of(low),
        };
        let to = match high {
            Bound::Unbounded => self.children.len().saturating_sub(1),
            Bound::Included(high) | Bound::Excluded(high) => self.child_of(high),
        };
        let is_bounded = high != Bound::Unbounded;
        (from..self.children.len().min(to + 1)).map(move |at| {
            let low = if at == from { low } else { Bound::Unbounded };
            let high = if at == to && is_bounded { high } else { Bound::Unbounded };
            (at, (low, high))
        })
    }
}
