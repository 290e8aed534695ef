//! What one step of reclaiming changes in one tree: found by a walk along its branch pages, from a key on, until the
//! step is full. Leaves are looked at only where their length or content matters.

use crate::bolt::{
    error::BoltError,
    freelist::Freelist,
    node::{Child, Node},
    page::{DEPTH_LEVELS_MAX, ELEMENT_BYTES, HEADER_BYTES, Page, Pages, Run},
    read::too_deep,
    spill::{Reserved, give_back},
};

use super::ReclaimLimits;

/// A page that begins so close below the target may reach beyond it.
const OVERFLOW_PAGES_LIKELY_MAX: u64 = 1_024;
/// Neighbouring leaves that are joined at once.
const JOINED_LEAVES_MAX: usize = 64;
/// A leaf filled but for this share of a page is no beginning of something sparse.
const SPARSE_DIVISOR: usize = 8;
/// Steps look at this many pages at least: they come past as many on their way down.
const VISITS_MIN: u64 = 4 * DEPTH_LEVELS_MAX as u64;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    /// Neighbouring leaves that fit into fewer when filled up to a share.
    Join { fill: f64, joined_per_saved_max: usize },
    /// Leaves of several pages that reach beyond page `target`.
    MoveRuns { target: u64 },
    /// Everything that does.
    Move { target: u64 },
}

/// A change to a tree. Levels are counted from its root, which is 0.
#[derive(Debug)]
pub(super) enum Change<'db> {
    /// The node at this level in whose range the key lies gets another place.
    Move { key: &'db [u8], level: usize },
    /// So many children of the node at this level, from that on in whose range the key lies, become one, which is then
    /// cut into full pages.
    Join { key: &'db [u8], level: usize, count: usize },
}

#[derive(Debug, Default)]
pub(super) struct Plan<'db> {
    pub(super) changes: Vec<Change<'db>>,
    /// Places for what is moved, taken from the freelist.
    pub(super) reserved: Reserved,
    /// Pages that get another place.
    pub(super) pages: u64,
    /// Pages that were left where they are, because there is no run of their length below the target.
    pub(super) homeless: u64,
    /// There was no free page below the target.
    pub(super) is_stuck: bool,
    /// Where the next step goes on, if there is more of the tree.
    pub(super) next: Option<Vec<u8>>,
}

impl<'db> Plan<'db> {
    /// Walks through the tree from a key on. After an error nothing has changed.
    pub(super) fn make(
        pages: &Pages<'db>,
        freelist: &mut Freelist,
        aim: Aim,
        limits: &ReclaimLimits,
        root: u64,
        from: &[u8],
    ) -> Result<Plan<'db>, BoltError> {
        let plan = Plan::default();
        let visits_left = limits.step_visits_max.max(VISITS_MIN);
        let pages_max = (limits.step_bytes_max / u64::from(pages.page_bytes)).min(limits.step_pages_max).max(1);
        let mut walk = Walk { pages, freelist, aim, pages_max, visits_left, plan };
        if let Err(error) = walk.tree(root, from) {
            give_back(walk.freelist, walk.plan.reserved);
            return Err(error);
        }
        Ok(walk.plan)
    }
}

struct Walk<'w, 'db> {
    pages: &'w Pages<'db>,
    freelist: &'w mut Freelist,
    aim: Aim,
    pages_max: u64,
    visits_left: u64,
    plan: Plan<'db>,
}

/// Whether the walk goes on.
type GoOn = bool;

impl<'db> Walk<'_, 'db> {
    fn tree(&mut self, root: u64, from: &[u8]) -> Result<(), BoltError> {
        let page = self.pages.page(root)?;
        self.consider_branch(&page, &[], 0);
        if !page.is_leaf {
            self.branch(&page, 0, from)?;
        }
        let Some(next) = &mut self.plan.next else { return Ok(()) };
        if &**next <= from {
            // A tree that leads in circles would be walked through for ever.
            if self.plan.pages == 0 && !self.plan.is_stuck {
                return Err(page.damaged("the tree below it is out of order"));
            }
            // The first leaf's range begins before, if others have joined it with its neighbour meanwhile.
            *next = from.to_vec();
        }
        Ok(())
    }

    /// Looks at what is below a branch at `level`.
    fn branch(&mut self, page: &Page<'db>, level: usize, from: &[u8]) -> Result<GoOn, BoltError> {
        if level >= DEPTH_LEVELS_MAX {
            return Err(too_deep(self.pages, page.id));
        }
        let start = page.child_for(from)?;
        // The children of a branch are all of one kind.
        if self.visit(page.child(start))?.is_leaf {
            return match self.aim {
                Aim::Join { fill, joined_per_saved_max } => {
                    self.join_leaves(page, level, start, (fill, joined_per_saved_max))
                }
                Aim::MoveRuns { target } | Aim::Move { target } => self.move_leaves(page, level, start, target),
            };
        }
        for index in start..page.count() {
            let key = page.branch_key(index)?;
            if self.is_full() {
                return Ok(self.stop(key));
            }
            let child = self.visit(page.child(index))?;
            self.consider_branch(&child, key, level + 1);
            if !child.is_leaf && !self.branch(&child, level + 1, from)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn visit(&mut self, id: u64) -> Result<Page<'db>, BoltError> {
        self.visits_left = self.visits_left.saturating_sub(1);
        self.pages.page(id)
    }

    fn is_full(&self) -> bool {
        self.visits_left == 0 || self.plan.pages >= self.pages_max
    }

    fn stop(&mut self, next: &[u8]) -> GoOn {
        self.plan.next = Some(next.to_vec());
        false
    }

    /// A branch, or a root, which moves with what is below it or by itself.
    fn consider_branch(&mut self, page: &Page<'db>, key: &'db [u8], level: usize) {
        if let Aim::Move { target } = self.aim
            && page.run().end() > target
        {
            self.plan_move(page.run(), target, Change::Move { key, level });
        }
    }

    fn move_leaves(&mut self, page: &Page<'db>, level: usize, start: usize, target: u64) -> Result<GoOn, BoltError> {
        for index in start..page.count() {
            let id = page.child(index);
            if id.saturating_add(OVERFLOW_PAGES_LIKELY_MAX) <= target {
                continue;
            }
            let key = page.branch_key(index)?;
            if self.is_full() {
                return Ok(self.stop(key));
            }
            let run = self.visit(id)?.run();
            let is_meant = run.count > 1 || matches!(self.aim, Aim::Move { .. });
            if run.end() > target && is_meant {
                self.plan_move(run, target, Change::Move { key, level: level + 1 });
                if self.plan.is_stuck {
                    return Ok(self.stop(key));
                }
            }
        }
        Ok(true)
    }

    /// Finds a place for a page. A long one for which there is none is left where it is.
    fn plan_move(&mut self, run: Run, target: u64, change: Change<'db>) {
        match self.freelist.allocate_below(run.count, target) {
            Some(first) => {
                self.plan.reserved.entry(run.count).or_default().push(first);
                self.plan.changes.push(change);
                self.plan.pages += run.count;
            }
            None if run.count > 1 => self.plan.homeless += run.count,
            None => self.plan.is_stuck = true,
        }
    }

    fn join_leaves(
        &mut self,
        page: &Page<'db>,
        level: usize,
        start: usize,
        how: (f64, usize),
    ) -> Result<GoOn, BoltError> {
        let mut index = start;
        while index < page.count() {
            let key = page.branch_key(index)?;
            if self.is_full() {
                return Ok(self.stop(key));
            }
            let group = self.group(page, index, how)?;
            if group.is_sparse {
                self.plan.pages += group.leaves as u64;
                self.plan.changes.push(Change::Join { key, level, count: group.leaves });
            }
            index += group.leaves;
        }
        Ok(true)
    }

    /// The leaves from `start` on that should be joined; if these should not, some that should not.
    fn group(
        &mut self,
        page: &Page<'db>,
        start: usize,
        (fill, joined_per_saved_max): (f64, usize),
    ) -> Result<Group, BoltError> {
        // The cast is of a number between nothing and a page.
        let full_bytes = (f64::from(self.pages.page_bytes) * fill.clamp(0.1, 1.0)) as usize;
        let mut packing = Packing::new(full_bytes);
        let end = page.count().min(start + JOINED_LEAVES_MAX);
        let (mut sparse, mut seen) = (0, 0);
        for index in start..end {
            let leaf = self.visit(page.child(index))?;
            seen += 1;
            if !leaf.is_leaf || leaf.run().count > 1 {
                break;
            }
            let bytes_before = packing.bytes;
            for element in 0..leaf.count() {
                packing.add(ELEMENT_BYTES + leaf.leaf(element)?.pair.len());
            }
            let saved = seen - packing.pages.min(seen);
            if saved > 0 && saved * joined_per_saved_max >= seen {
                sparse = seen;
            }
            // A full leaf is no beginning, and what is joined ends where it would become too long for what it saves.
            let is_full = packing.bytes - bytes_before > full_bytes - full_bytes / SPARSE_DIVISOR;
            if (is_full && seen == 1) || (sparse > 0 && seen - sparse >= joined_per_saved_max) {
                break;
            }
        }
        Ok(Group { leaves: if sparse > 1 { sparse } else { seen }, is_sparse: sparse > 1 })
    }
}

/// Neighbouring leaves, at least one.
struct Group {
    leaves: usize,
    is_sparse: bool,
}

/// How many pages elements take.
struct Packing {
    page_bytes: usize,
    pages: usize,
    /// Elements in the last page, and their bytes.
    last_elements: usize,
    last_bytes: usize,
    bytes: usize,
}

impl Packing {
    fn new(page_bytes: usize) -> Packing {
        Packing { page_bytes, pages: 0, last_elements: 0, last_bytes: 0, bytes: 0 }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.pages == 0 || (self.last_elements >= 2 && self.last_bytes + bytes > self.page_bytes) {
            self.pages += 1;
            self.last_elements = 0;
            self.last_bytes = HEADER_BYTES;
        }
        self.last_elements += 1;
        self.last_bytes += bytes;
    }
}

/// Makes the changes in a tree; returns the pages of nodes that are no more.
pub(super) fn apply<'db>(
    changes: &[Change<'db>],
    root: &mut Child<'db>,
    pages: &Pages<'db>,
) -> Result<Vec<Run>, BoltError> {
    let mut freed = Vec::new();
    for change in changes {
        match *change {
            Change::Move { key, level } => {
                node_at(root, pages, key, level)?;
            }
            Change::Join { key, level, count } => {
                freed.extend(node_at(root, pages, key, level)?.join_children(pages, key, count)?);
            }
        }
    }
    Ok(freed)
}

/// The node at a level in whose range a key lies, with those above it made nodes.
fn node_at<'n, 'db>(
    root: &'n mut Child<'db>,
    pages: &Pages<'db>,
    key: &[u8],
    level: usize,
) -> Result<&'n mut Node<'db>, BoltError> {
    let mut node = root.node(pages)?;
    for _ in 0..level {
        node = node.child_for(pages, key)?;
    }
    Ok(node)
}
