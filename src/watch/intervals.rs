//! Key intervals that contain a key: a treap ordered by (start, end) in which each subtree knows its farthest end.
//!
//! A look-up costs O(log n + what it finds) of n distinct intervals; so do insert and remove, without the last term.

use std::cmp::Ordering;

use bytes::Bytes;

const NIL: usize = usize::MAX;

/// `[start, end)`; `None` is no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: Bytes,
    pub(super) end: Option<Bytes>,
}

impl Interval {
    fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| end > key)
    }

    fn cmp_ends(&self, other: &Interval) -> Ordering {
        match (&self.end, &other.end) {
            (Some(one), Some(two)) => one.cmp(two),
            (one, two) => one.is_none().cmp(&two.is_none()),
        }
    }

    fn cmp_places(&self, other: &Interval) -> Ordering {
        self.start.cmp(&other.start).then_with(|| self.cmp_ends(other))
    }
}

#[derive(Debug)]
struct Node {
    interval: Interval,
    values: Vec<usize>,
    priority: u64,
    left: usize,
    right: usize,
    /// The node of this subtree whose interval ends last.
    farthest: usize,
}

/// Values under intervals.
#[derive(Debug)]
pub(super) struct Intervals {
    nodes: Vec<Node>,
    free: Vec<usize>,
    root: usize,
    random: fastrand::Rng,
}

impl Intervals {
    pub(super) fn new() -> Intervals {
        // Any seed does: intervals come from clients, who do not see priorities.
        Intervals { nodes: Vec::new(), free: Vec::new(), root: NIL, random: fastrand::Rng::with_seed(1) }
    }

    pub(super) fn insert(&mut self, interval: Interval, value: usize) {
        if let Some(at) = self.find(&interval) {
            self.nodes[at].values.push(value);
            return;
        }
        let (left, right) = self.split(self.root, &interval);
        let node = self.allocate(interval, value);
        let left = self.merge(left, node);
        self.root = self.merge(left, right);
    }

    /// Takes one value away; the interval goes with its last.
    pub(super) fn remove(&mut self, interval: &Interval, value: usize) {
        let Some(at) = self.find(interval) else { return };
        let values = &mut self.nodes[at].values;
        values.retain(|v| *v != value);
        if values.is_empty() {
            self.root = self.unlink(self.root, interval);
            let node = &mut self.nodes[at];
            node.interval = Interval { start: Bytes::new(), end: None };
            node.values = Vec::new();
            self.free.push(at);
        }
    }

    /// Calls `visit` with every value whose interval contains the key.
    pub(super) fn stab(&self, key: &[u8], visit: &mut dyn FnMut(usize)) {
        self.stab_at(self.root, key, visit);
    }

    fn stab_at(&self, at: usize, key: &[u8], visit: &mut dyn FnMut(usize)) {
        if at == NIL {
            return;
        }
        let node = &self.nodes[at];
        if !self.nodes[node.farthest].interval.ends_after(key) {
            return;
        }
        self.stab_at(node.left, key, visit);
        if node.interval.start <= key {
            if node.interval.ends_after(key) {
                node.values.iter().for_each(|value| visit(*value));
            }
            self.stab_at(node.right, key, visit);
        }
    }

    fn find(&self, interval: &Interval) -> Option<usize> {
        let mut at = self.root;
        while at != NIL {
            let node = &self.nodes[at];
            match interval.cmp_places(&node.interval) {
                Ordering::Less => at = node.left,
                Ordering::Greater => at = node.right,
                Ordering::Equal => return Some(at),
            }
        }
        None
    }

    fn allocate(&mut self, interval: Interval, value: usize) -> usize {
        let at = self.free.pop().unwrap_or(self.nodes.len());
        let node =
            Node { interval, values: vec![value], priority: self.random.u64(..), left: NIL, right: NIL, farthest: at };
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        at
    }

    /// Brings a node's `farthest` up to date with its children's.
    fn refresh(&mut self, at: usize) {
        let mut farthest = at;
        for child in [self.nodes[at].left, self.nodes[at].right] {
            if child != NIL {
                let candidate = self.nodes[child].farthest;
                if self.nodes[candidate].interval.cmp_ends(&self.nodes[farthest].interval).is_gt() {
                    farthest = candidate;
                }
            }
        }
        self.nodes[at].farthest = farthest;
    }

    /// Parts a subtree into what lies before `interval` and what lies after it.
    fn split(&mut self, at: usize, interval: &Interval) -> (usize, usize) {
        if at == NIL {
            return (NIL, NIL);
        }
        if self.nodes[at].interval.cmp_places(interval).is_lt() {
            let (left, right) = self.split(self.nodes[at].right, interval);
            self.nodes[at].right = left;
            self.refresh(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.nodes[at].left, interval);
            self.nodes[at].left = right;
            self.refresh(at);
            (left, at)
        }
    }

    /// Joins two subtrees, all of `left` lying before all of `right`.
    fn merge(&mut self, left: usize, right: usize) -> usize {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.nodes[left].priority > self.nodes[right].priority {
            self.nodes[left].right = self.merge(self.nodes[left].right, right);
            self.refresh(left);
            left
        } else {
            self.nodes[right].left = self.merge(left, self.nodes[right].left);
            self.refresh(right);
            right
        }
    }

    /// The subtree without the node of an interval that is in it.
    fn unlink(&mut self, at: usize, interval: &Interval) -> usize {
        if at == NIL {
            return NIL;
        }
        match interval.cmp_places(&self.nodes[at].interval) {
            Ordering::Less => self.nodes[at].left = self.unlink(self.nodes[at].left, interval),
            Ordering::Greater => self.nodes[at].right = self.unlink(self.nodes[at].right, interval),
            Ordering::Equal => return self.merge(self.nodes[at].left, self.nodes[at].right),
        }
        self.refresh(at);
        at
    }
}
