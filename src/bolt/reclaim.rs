//! Giving room back while the file is in use: live pages move from its end into free pages lower down, a few at a time,
//! each time in a write transaction of its own; then the end, of which nothing is left, is cut off.
//!
//! Moving is what every commit does: a page that is written anew goes to a free place, and so do those above it. A crash
//! at any point leaves the commit before or the one after. What is cut off is above the high-water mark of the last
//! commit, of the commit before it, whose meta page still counts if the last one's is damaged, and of every view that is
//! open; so neither a crash nor a reader can miss it. Neighbouring leaves that have become sparse are joined on the way.
//!
//! A walk remembers where it is by bucket and key, never by page, so that others may write between two steps, and its
//! memory is that of one step. Pages of buckets inside of buckets stay where they are: etcd's files have none.

mod plan;

use super::{
    Db,
    cursor::Cursor,
    error::BoltError,
    page::Pages,
    read::{Root, bucket_header},
    write::WriteTx,
};

use plan::{Aim, Plan};

/// Walks through the file at most: each may make room for what found none in the one before.
const ROUNDS_MAX: u32 = 8;
/// Free pages that are left whatever the share: those above a moved page need places too.
const KEPT_PAGES_MIN: u64 = 16;

/// How far reclaiming goes, and how much it does at once.
#[derive(Clone, Debug)]
pub struct ReclaimLimits {
    /// Free pages that may be left in the file, in percent of the pages in use.
    pub kept_free_percent: u64,
    /// How full joined leaves are made, 0.1 to 1.0.
    pub fill: f64,
    /// Leaves written for one that joining saves, at most: the smaller, the less is written and the more stays sparse.
    pub joined_per_saved_max: usize,
    /// Pages one step moves, not counting those above them; at least one is moved, whatever its size.
    pub step_pages_max: u64,
    /// The same in bytes.
    pub step_bytes_max: u64,
    /// Pages one step looks at in search of such.
    pub step_visits_max: u64,
    /// Bytes one step cuts off.
    pub step_cut_bytes_max: u64,
}

impl Default for ReclaimLimits {
    fn default() -> Self {
        ReclaimLimits {
            kept_free_percent: 1,
            fill: 0.9,
            joined_per_saved_max: 24,
            step_pages_max: 256,
            step_bytes_max: 1 << 20,
            step_visits_max: 2_048,
            step_cut_bytes_max: 16 << 20,
        }
    }
}

/// What is left to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimProgress {
    /// The next step.
    More,
    /// The next step, once read transactions that are open now have ended: they may still see what is to be overwritten
    /// or cut off.
    Held,
    /// Nothing.
    Done,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimStep {
    /// Whether there is more to be done.
    pub progress: ReclaimProgress,
    /// Pages that were written elsewhere, not counting those above them.
    pub pages_moved: u64,
    /// Bytes by which the file became shorter.
    pub bytes_given_back: u64,
}

impl ReclaimStep {
    fn new(progress: ReclaimProgress) -> ReclaimStep {
        ReclaimStep { progress, pages_moved: 0, bytes_given_back: 0 }
    }
}

/// One run of reclaiming: what is to be done, and how far it is. Survives any commit between two steps.
#[derive(Clone, Debug)]
pub struct Reclaim {
    limits: ReclaimLimits,
    phase: Phase,
    place: Place,
    round: u32,
    round_moved: u64,
    /// Pages that overflow which this round's walk found no room for, in pages of the file.
    homeless: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Joins sparse leaves, wherever they are.
    Join,
    /// Moves pages that overflow, as long as there are free runs for them.
    MoveRuns,
    /// Moves all that is left; and, where pages that overflow found no room, single pages out of their way, so that the
    /// next round finds it.
    Move,
    /// Cuts the end off.
    Cut,
}

/// Where a walk goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the first bucket after this one.
    After(Vec<u8>),
    /// In this bucket, from this key on.
    Bucket(Vec<u8>, Vec<u8>),
    /// In the tree of buckets, from this name on.
    Root(Vec<u8>),
    End,
}

impl Reclaim {
    /// Joins sparse leaves, moves pages down and cuts the end off.
    pub fn new(limits: ReclaimLimits) -> Reclaim {
        Reclaim { limits, phase: Phase::Join, place: Place::After(Vec::new()), round: 0, round_moved: 0, homeless: 0 }
    }

    /// Cuts off what is free at the end as it is, moving nothing.
    pub fn only_cut(limits: ReclaimLimits) -> Reclaim {
        Reclaim { phase: Phase::Cut, ..Reclaim::new(limits) }
    }

    pub(super) fn step(&mut self, db: &Db) -> Result<ReclaimStep, BoltError> {
        if self.phase == Phase::Cut { self.cut_step(db) } else { self.walk_step(db) }
    }

    fn walk_step(&mut self, db: &Db) -> Result<ReclaimStep, BoltError> {
        let mut tx = WriteTx::begin(db)?;
        let (pages, root, freelist) = tx.parts();
        let live = pages.high_water.saturating_sub(freelist.pages());
        let kept = (live * self.limits.kept_free_percent / 100).max(KEPT_PAGES_MIN);
        let target = live + kept;
        if self.phase != Phase::Join && freelist.occupied_end(pages.high_water) <= target {
            self.phase = Phase::Cut;
            return Ok(ReclaimStep::new(ReclaimProgress::More));
        }
        let Some(tree) = self.locate(&pages, root)? else {
            self.end_walk();
            return Ok(ReclaimStep::new(ReclaimProgress::More));
        };
        let aim = match self.phase {
            Phase::Join => Aim::Join { fill: self.limits.fill, joined_per_saved_max: self.limits.joined_per_saved_max },
            Phase::MoveRuns => Aim::MoveRuns { target },
            Phase::Move | Phase::Cut => Aim::Move { target: target.saturating_sub(self.homeless) },
        };
        let plan = Plan::make(&pages, freelist, aim, &self.limits, tree.root, &tree.from)?;
        let may_wait = plan.is_stuck && freelist.pending_pages() > 0;
        let Plan { changes, reserved, pages: pages_moved, next, is_stuck, homeless } = plan;
        if self.phase == Phase::MoveRuns {
            self.homeless += homeless;
        }
        if !changes.is_empty() {
            tx.rewrite(tree.bucket.as_deref(), self.limits.fill, reserved, |root, pages| {
                plan::apply(&changes, root, pages)
            })?;
        }
        self.round_moved += pages_moved;
        if !changes.is_empty() || !is_stuck {
            self.advance(tree.bucket, next);
        } else if may_wait {
            return Ok(ReclaimStep::new(ReclaimProgress::Held));
        } else {
            // There is no free page below the target: what is left above it has to stay.
            self.end_walk();
        }
        Ok(ReclaimStep { progress: ReclaimProgress::More, pages_moved, bytes_given_back: 0 })
    }

    /// The tree the walk is in; the next one if it is between two.
    fn locate(&mut self, pages: &Pages<'_>, root: u64) -> Result<Option<Tree>, BoltError> {
        match &self.place {
            Place::End => Ok(None),
            Place::Root(from) => Ok(Some(Tree { bucket: None, root, from: from.clone() })),
            Place::Bucket(name, from) => match bucket_from(pages, root, name)? {
                Some((found, root)) if found == *name => {
                    Ok(Some(Tree { bucket: Some(found), root, from: from.clone() }))
                }
                // It became inline meanwhile.
                _ => {
                    self.place = Place::After(name.clone());
                    self.locate(pages, root)
                }
            },
            Place::After(name) => match bucket_from(pages, root, &[name, &[0][..]].concat())? {
                Some((found, root)) => {
                    self.place = Place::Bucket(found.clone(), Vec::new());
                    Ok(Some(Tree { bucket: Some(found), root, from: Vec::new() }))
                }
                None => {
                    self.place = Place::Root(Vec::new());
                    Ok(Some(Tree { bucket: None, root, from: Vec::new() }))
                }
            },
        }
    }

    /// Past what a step looked at in a tree.
    fn advance(&mut self, bucket: Option<Vec<u8>>, next: Option<Vec<u8>>) {
        self.place = match (bucket, next) {
            (Some(name), Some(next)) => Place::Bucket(name, next),
            (Some(name), None) => Place::After(name),
            (None, Some(next)) => Place::Root(next),
            (None, None) => Place::End,
        };
    }

    /// The whole file was walked through, as far as it pays.
    fn end_walk(&mut self) {
        self.place = Place::After(Vec::new());
        self.phase = match self.phase {
            Phase::Join => Phase::MoveRuns,
            Phase::MoveRuns => Phase::Move,
            Phase::Move if self.round_moved > 0 && self.round < ROUNDS_MAX => {
                self.round += 1;
                self.round_moved = 0;
                self.homeless = 0;
                Phase::MoveRuns
            }
            Phase::Move | Phase::Cut => Phase::Cut,
        };
    }

    fn cut_step(&mut self, db: &Db) -> Result<ReclaimStep, BoltError> {
        let tx = WriteTx::begin(db)?;
        if tx.can_trim() {
            // A commit that changes nothing takes the free end out of its account, or the meta page of a larger one
            // out of the file.
            tx.commit_with(false)?;
            return Ok(ReclaimStep::new(ReclaimProgress::More));
        }
        let is_held = tx.is_end_pending();
        drop(tx);
        let cut = cut(db, self.limits.step_cut_bytes_max)?;
        let progress = match cut {
            Cut { bytes: 1.., .. } => ReclaimProgress::More,
            Cut { is_held: true, .. } => ReclaimProgress::Held,
            _ if is_held => ReclaimProgress::Held,
            _ => ReclaimProgress::Done,
        };
        Ok(ReclaimStep { progress, pages_moved: 0, bytes_given_back: cut.bytes })
    }
}

/// A tree that is walked through.
struct Tree {
    /// `None`: that of the buckets.
    bucket: Option<Vec<u8>>,
    root: u64,
    from: Vec<u8>,
}

/// The first top-level bucket at or after a name that has pages of its own, and its root page.
fn bucket_from(pages: &Pages<'_>, root: u64, name: &[u8]) -> Result<Option<(Vec<u8>, u64)>, BoltError> {
    let mut buckets = Cursor::new(*pages, Root::Page(root));
    buckets.seek(name)?;
    while let Some((home, element)) = buckets.here()? {
        if element.key() < name {
            return Err(pages.damaged(home, "holds names of buckets out of order"));
        }
        if element.is_bucket()
            && let Root::Page(root) = bucket_header(pages, home, &element)?.root
        {
            return Ok(Some((element.key().to_vec(), root)));
        }
        if buckets.next()?.is_none() {
            break;
        }
    }
    Ok(None)
}

struct Cut {
    bytes: u64,
    /// More could be cut off, but for views that are open.
    is_held: bool,
}

/// Makes the file shorter, as far as neither meta page nor any view needs it, and by `bytes_max` at most.
fn cut(db: &Db, bytes_max: u64) -> Result<Cut, BoltError> {
    let inner = &*db.inner;
    let mut writer = inner.writer.lock();
    if writer.poisoned {
        return Err(BoltError::Poisoned { path: inner.path.clone() });
    }
    let mut view = inner.view.lock();
    let page_bytes = u64::from(view.meta.page_bytes);
    let by_metas = writer.slot_high_water.into_iter().fold(view.meta.high_water, u64::max);
    let by_views = view.readers.values().map(|readers| readers.high_water).fold(by_metas, u64::max);
    let is_held = by_metas < by_views && by_metas * page_bytes < writer.file_bytes;
    let keep_bytes = (by_views * page_bytes).max(writer.file_bytes.saturating_sub(bytes_max.max(page_bytes)));
    if keep_bytes >= writer.file_bytes {
        return Ok(Cut { bytes: 0, is_held });
    }
    // From here on no view can be opened that asks for what is behind: its mark is the last commit's.
    inner.map.cut(keep_bytes);
    view.file_bytes = keep_bytes;
    drop(view);
    let cut = inner.file.set_len(keep_bytes).and_then(|()| inner.file.sync_all());
    if let Err(source) = cut {
        // How long the file is now, nobody knows.
        writer.poisoned = true;
        return Err(BoltError::io(&inner.path, "cutting off its free end", source));
    }
    let bytes = writer.file_bytes - keep_bytes;
    writer.file_bytes = keep_bytes;
    Ok(Cut { bytes, is_held })
}
