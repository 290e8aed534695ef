//! The map behind the index: a B+tree from key to revisions that knows, for every branch, what lies below it.
//!
//! Those sums make counting cost what the height costs, and let a compaction pass by what it cannot change. Keys are
//! packed (see [`PackedKeys`]), so that a key costs its own bytes, its revisions and a few bytes more.

use super::{
    Entry,
    key_index::{Garbage, KeyIndex},
    packed::{PackedKeys, reserve},
};

/// Most keys in a leaf, and most children of a branch.
pub(super) const NODE_ITEMS_MAX: usize = 64;
/// A node whose keys take more is split, unless it has too few to split.
const NODE_KEYS_BYTES_MAX: usize = 16 * 1024;
/// Neighbours are merged when both fit into this share of a node.
const MERGED_ITEMS_MAX: usize = NODE_ITEMS_MAX / 2;
/// Room for values or children added at once.
const GROWTH_ITEMS: usize = 8;

/// What a part of the tree holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) keys: u64,
    /// Keys whose newest revision is not a tombstone.
    pub(super) live: u64,
    /// Revisions of all keys together.
    pub(super) revisions: u64,
    /// The newest main revision.
    pub(super) newest: i64,
}

impl Sums {
    const NOTHING: Sums = Sums { keys: 0, live: 0, revisions: 0, newest: i64::MIN };

    fn of_key(key: &KeyIndex) -> Sums {
        let live = u64::from(key.is_live());
        Sums { keys: 1, live, revisions: key.revisions() as u64, newest: key.newest_main() }
    }

    fn plus(self, other: Sums) -> Sums {
        Sums {
            keys: self.keys + other.keys,
            live: self.live + other.live,
            revisions: self.revisions + other.revisions,
            newest: self.newest.max(other.newest),
        }
    }

    /// Takes into account that a key that was `before` has become `after`.
    fn changed(&mut self, before: Sums, after: Sums) {
        self.keys = self.keys + after.keys - before.keys;
        self.live = self.live + after.live - before.live;
        self.revisions = self.revisions + after.revisions - before.revisions;
        self.newest = self.newest.max(after.newest);
    }

    /// Whether every key has one revision, which is not a tombstone: no compaction takes anything from it.
    fn is_compact(&self) -> bool {
        self.keys == self.live && self.keys == self.revisions
    }
}

/// A compaction on its way through the tree.
pub(super) struct Compaction<'g> {
    pub(super) revision: i64,
    /// Keys that may still be looked at; at least one.
    pub(super) budget: usize,
    pub(super) garbage: &'g mut Garbage,
}

#[derive(Debug)]
pub(super) enum Node {
    Leaf(Leaf),
    Branch(Branch),
}

#[derive(Debug, Default)]
pub(super) struct Leaf {
    pub(super) keys: PackedKeys,
    pub(super) values: Vec<KeyIndex>,
}

#[derive(Debug, Default)]
pub(super) struct Branch {
    /// The first key of each child but the first, when it was made: what is before it is not in the child.
    pub(super) bounds: PackedKeys,
    pub(super) children: Vec<Child>,
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) sums: Sums,
    pub(super) node: Box<Node>,
}

/// What became of a node that took a key: the right half, if it was split, and the first key of that.
type Split = Option<(Box<[u8]>, Child)>;

impl Default for Node {
    fn default() -> Self {
        Node::Leaf(Leaf::default())
    }
}

impl Node {
    pub(super) fn sums(&self) -> Sums {
        match self {
            Node::Leaf(leaf) => leaf.values.iter().map(Sums::of_key).fold(Sums::NOTHING, Sums::plus),
            Node::Branch(branch) => branch.children.iter().map(|child| child.sums).fold(Sums::NOTHING, Sums::plus),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&KeyIndex> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.keys.search(key).ok().map(|at| &leaf.values[at]),
                Node::Branch(branch) => node = &branch.children[branch.child_of(key)].node,
            }
        }
    }

    /// Adds a key's newest revision. Returns what the key was and has become.
    fn record(&mut self, key: &[u8], entry: Entry) -> (Sums, Sums, Split) {
        match self {
            Node::Leaf(leaf) => leaf.record(key, entry),
            Node::Branch(branch) => branch.record(key, entry),
        }
    }

    /// Compacts keys behind `after` until the budget is used up; returns the last of them if there may be more.
    fn compact(&mut self, after: Option<&[u8]>, compaction: &mut Compaction<'_>) -> Option<Box<[u8]>> {
        match self {
            Node::Leaf(leaf) => leaf.compact(after, compaction),
            Node::Branch(branch) => branch.compact(after, compaction),
        }
    }

    /// Takes in a right neighbour, of the same height, if both together stay small.
    fn merge(&mut self, bound: &[u8], right: Node) -> Result<(), Node> {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right))
                if left.values.len() + right.values.len() <= MERGED_ITEMS_MAX
                    && left.keys.bytes() + right.keys.bytes() <= NODE_KEYS_BYTES_MAX =>
            {
                left.keys.append(&right.keys);
                reserve(&mut left.values, right.values.len(), 0);
                left.values.extend(right.values);
                Ok(())
            }
            (Node::Branch(left), Node::Branch(right))
                if left.children.len() + right.children.len() <= MERGED_ITEMS_MAX
                    && left.bounds.bytes() + right.bounds.bytes() + bound.len() <= NODE_KEYS_BYTES_MAX =>
            {
                left.bounds.push(bound);
                left.bounds.append(&right.bounds);
                reserve(&mut left.children, right.children.len(), 0);
                left.children.extend(right.children);
                Ok(())
            }
            (_, right) => Err(right),
        }
    }
}

impl Leaf {
    fn record(&mut self, key: &[u8], entry: Entry) -> (Sums, Sums, Split) {
        match self.keys.search(key) {
            Ok(at) => {
                let value = &mut self.values[at];
                let before = Sums::of_key(value);
                value.push(entry);
                (before, Sums::of_key(value), None)
            }
            Err(at) => {
                let value = KeyIndex::new(entry);
                let after = Sums::of_key(&value);
                self.keys.insert(at, key);
                reserve(&mut self.values, 1, GROWTH_ITEMS);
                self.values.insert(at, value);
                (Sums::NOTHING, after, self.split(at))
            }
        }
    }

    /// Splits the leaf if it has become too big. `at` is where it grew: one that grows at its end keeps all but that.
    fn split(&mut self, at: usize) -> Split {
        let items = self.values.len();
        if !is_too_big(items, &self.keys) {
            return None;
        }
        let at = if at + 1 == items { at } else { items / 2 };
        let right = Leaf { keys: self.keys.split_off(at), values: self.values.split_off(at) };
        self.keys.shrink_to_fit();
        self.values.shrink_to_fit();
        let bound = right.keys.get(0).into();
        Some((bound, Child::new(Node::Leaf(right))))
    }

    fn compact(&mut self, after: Option<&[u8]>, compaction: &mut Compaction<'_>) -> Option<Box<[u8]>> {
        let mut at = after.map_or(0, |after| self.keys.partition_point(|key| key <= after));
        while at < self.values.len() {
            compaction.budget -= 1;
            let resume = (compaction.budget == 0).then(|| self.keys.get(at).into());
            if self.values[at].compact(compaction.revision, compaction.garbage) {
                at += 1;
            } else {
                self.keys.remove(at);
                self.values.remove(at);
            }
            if resume.is_some() {
                return resume;
            }
        }
        None
    }
}

impl Branch {
    /// Where the child is that has the key if any has.
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| bound <= key)
    }

    fn record(&mut self, key: &[u8], entry: Entry) -> (Sums, Sums, Split) {
        let at = self.child_of(key);
        let child = &mut self.children[at];
        let (before, after, split) = child.node.record(key, entry);
        let Some((bound, right)) = split else {
            child.sums.changed(before, after);
            return (before, after, None);
        };
        child.sums = child.node.sums();
        self.bounds.insert(at, &bound);
        reserve(&mut self.children, 1, GROWTH_ITEMS);
        self.children.insert(at + 1, right);
        (before, after, self.split(at + 1))
    }

    fn split(&mut self, at: usize) -> Split {
        let items = self.children.len();
        if !is_too_big(items, &self.bounds) {
            return None;
        }
        let at = if at + 1 == items { at } else { items / 2 };
        let mut bounds = self.bounds.split_off(at - 1);
        let bound = bounds.get(0).into();
        bounds.remove(0);
        let right = Branch { bounds, children: self.children.split_off(at) };
        self.bounds.shrink_to_fit();
        self.children.shrink_to_fit();
        Some((bound, Child::new(Node::Branch(right))))
    }

    fn compact(&mut self, mut after: Option<&[u8]>, compaction: &mut Compaction<'_>) -> Option<Box<[u8]>> {
        let mut at = after.map_or(0, |after| self.child_of(after));
        let mut resume = None;
        while at < self.children.len() && resume.is_none() {
            let child = &mut self.children[at];
            let after = after.take();
            if !child.sums.is_compact() {
                resume = child.node.compact(after, compaction);
                child.sums = child.node.sums();
            }
            if child.sums.keys == 0 {
                self.remove(at);
            } else if !(at > 0 && self.merge_with_right(at - 1)) {
                at += 1;
            }
        }
        resume
    }

    fn remove(&mut self, at: usize) {
        self.children.remove(at);
        if self.bounds.len() > 0 {
            self.bounds.remove(at.saturating_sub(1));
        }
    }

    /// Makes a child and its right neighbour one, if they are small.
    fn merge_with_right(&mut self, at: usize) -> bool {
        let right = std::mem::take(&mut *self.children[at + 1].node);
        match self.children[at].node.merge(self.bounds.get(at), right) {
            Ok(()) => {
                self.children[at].sums = self.children[at].sums.plus(self.children[at + 1].sums);
                self.children.remove(at + 1);
                self.bounds.remove(at);
                true
            }
            Err(right) => {
                *self.children[at + 1].node = right;
                false
            }
        }
    }
}

impl Child {
    fn new(node: Node) -> Child {
        Child { sums: node.sums(), node: Box::new(node) }
    }
}

fn is_too_big(items: usize, keys: &PackedKeys) -> bool {
    items > NODE_ITEMS_MAX || (keys.bytes() > NODE_KEYS_BYTES_MAX && items > 2)
}

/// Adds a key's newest revision to the tree below `root`.
pub(super) fn record(root: &mut Node, key: &[u8], entry: Entry) {
    let (_, _, split) = root.record(key, entry);
    if let Some((bound, right)) = split {
        let left = Child::new(std::mem::take(root));
        let mut bounds = PackedKeys::default();
        bounds.push(&bound);
        *root = Node::Branch(Branch { bounds, children: vec![left, right] });
    }
}

/// Compacts keys behind `after` until the budget is used up; returns the last one looked at if there may be more.
pub(super) fn compact(root: &mut Node, after: Option<&[u8]>, compaction: &mut Compaction<'_>) -> Option<Box<[u8]>> {
    let resume = root.compact(after, compaction);
    loop {
        match root {
            Node::Branch(branch) if branch.children.is_empty() => *root = Node::default(),
            Node::Branch(branch) if branch.children.len() == 1 => {
                let only = branch.children.remove(0);
                *root = *only.node;
            }
            _ => return resume,
        }
    }
}

/// Makes full leaves. The keys come in order, each once.
pub(super) fn leaves<'k>(keys: impl Iterator<Item = (&'k [u8], KeyIndex)>) -> Level {
    let (mut level, mut leaf) = (Level::default(), Leaf::default());
    for (key, value) in keys {
        let is_full = leaf.values.len() == NODE_ITEMS_MAX || leaf.keys.bytes() + key.len() > NODE_KEYS_BYTES_MAX;
        if is_full && !leaf.values.is_empty() {
            level.push(Node::Leaf(std::mem::take(&mut leaf)));
        }
        if leaf.values.is_empty() {
            level.bounds.push(key.into());
            leaf.values.reserve_exact(NODE_ITEMS_MAX);
        }
        leaf.keys.push(key);
        leaf.values.push(value);
    }
    if !leaf.values.is_empty() {
        level.push(Node::Leaf(leaf));
    }
    level
}

/// Builds a tree of full branches over leaves that come in order.
pub(super) fn build(leaves: impl Iterator<Item = Level>) -> Node {
    let mut level = Level::default();
    for mut more in leaves {
        level.bounds.append(&mut more.bounds);
        level.nodes.append(&mut more.nodes);
    }
    while level.nodes.len() > 1 {
        level = level.above();
    }
    level.nodes.pop().map_or_else(Node::default, |child| *child.node)
}

/// Finished nodes of one height, each with its first key.
#[derive(Debug, Default)]
pub(super) struct Level {
    bounds: Vec<Box<[u8]>>,
    nodes: Vec<Child>,
}

impl Level {
    fn push(&mut self, mut node: Node) {
        match &mut node {
            Node::Leaf(leaf) => {
                leaf.keys.shrink_to_fit();
                leaf.values.shrink_to_fit();
            }
            Node::Branch(branch) => branch.bounds.shrink_to_fit(),
        }
        self.nodes.push(Child::new(node));
    }

    fn above(self) -> Level {
        let mut above = Level::default();
        let mut branch = Branch::default();
        for (bound, child) in self.bounds.into_iter().zip(self.nodes) {
            let is_full = branch.children.len() == NODE_ITEMS_MAX
                || (branch.children.len() > 1 && branch.bounds.bytes() + bound.len() > NODE_KEYS_BYTES_MAX);
            if is_full {
                above.push(Node::Branch(std::mem::take(&mut branch)));
            }
            if branch.children.is_empty() {
                above.bounds.push(bound);
                branch.children.reserve_exact(NODE_ITEMS_MAX);
            } else {
                branch.bounds.push(&bound);
            }
            branch.children.push(child);
        }
        above.push(Node::Branch(branch));
        above
    }
}
