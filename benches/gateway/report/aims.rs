//! What the project aims at, figure by figure, and whether a run met it.

use crate::{
    figures::{Figures, Side, median_ratio},
    options::Row,
    rows::{
        CPU_PER_THOUSAND, P99_MILLIS, PER_SECOND,
        compaction::{COMPACTION_SECONDS, P99_BY_QUIET, P99_MEANWHILE},
        defragment::LARGEST_MILLIS,
        filled::{RESIDENT_MIB, START_SECONDS},
        steady::SYNCS,
    },
};

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// The same figure of etcd's.
    Etcd,
    /// The same figure of the route that does nothing.
    Axum,
    /// The disk alone.
    Disk,
    /// Nothing: the figure itself is told.
    Nothing,
}

/// How far one is to get.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

pub(crate) struct Aim {
    pub(crate) row: Row,
    pub(crate) figure: &'static str,
    pub(crate) against: Against,
    pub(crate) bound: Bound,
}

const fn aim(row: Row, figure: &'static str, against: Against, bound: Bound) -> Aim {
    Aim { row, figure, against, bound }
}

use Against::{Axum, Disk, Etcd, Nothing};
use Bound::{AtLeast, AtMost};

/// All of them, in the order in which they are told.
pub(crate) const AIMS: &[Aim] = &[
    aim(Row::Put1, PER_SECOND, Etcd, AtLeast(1.8)),
    aim(Row::Put1, PER_SECOND, Disk, AtLeast(0.85)),
    aim(Row::Put1, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Put64, PER_SECOND, Etcd, AtLeast(4.0)),
    aim(Row::Put64, P99_MILLIS, Etcd, AtMost(0.25)),
    aim(Row::Put64, PER_SECOND, Axum, AtLeast(0.75)),
    aim(Row::Put64, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Put512, PER_SECOND, Etcd, AtLeast(4.0)),
    aim(Row::Put512, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::ComparePut, PER_SECOND, Etcd, AtLeast(5.0)),
    aim(Row::ComparePut, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Get, PER_SECOND, Etcd, AtLeast(2.8)),
    aim(Row::Get, PER_SECOND, Axum, AtLeast(0.85)),
    aim(Row::Get, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::GetSerializable, PER_SECOND, Etcd, AtLeast(2.8)),
    aim(Row::GetSerializable, PER_SECOND, Axum, AtLeast(0.85)),
    aim(Row::GetSerializable, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Mixed, PER_SECOND, Etcd, AtLeast(3.0)),
    aim(Row::Mixed, "get p99 ms", Etcd, AtMost(0.2)),
    aim(Row::Mixed, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::FanOut, "deliveries a second", Etcd, AtLeast(6.0)),
    aim(Row::FanOut, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Memory, RESIDENT_MIB, Etcd, AtMost(0.25)),
    aim(Row::Restart, START_SECONDS, Etcd, AtMost(0.25)),
    aim(Row::List, "GB/s", Etcd, AtLeast(15.0)),
    aim(Row::List, "GB/s", Nothing, AtLeast(1.0)),
    aim(Row::List, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Page, PER_SECOND, Etcd, AtLeast(100.0)),
    aim(Row::Page, CPU_PER_THOUSAND, Etcd, AtMost(0.25)),
    aim(Row::Compaction, P99_MEANWHILE, Etcd, AtMost(0.5)),
    aim(Row::Compaction, COMPACTION_SECONDS, Etcd, AtMost(0.5)),
    aim(Row::Compaction, P99_BY_QUIET, Nothing, AtMost(1.2)),
    aim(Row::Defragment, LARGEST_MILLIS, Etcd, AtMost(0.01)),
    aim(Row::Defragment, LARGEST_MILLIS, Nothing, AtMost(25.0)),
];

/// An aim beside what was measured.
pub(crate) struct Judged<'a> {
    pub(crate) aim: &'a Aim,
    pub(crate) ours: f64,
    /// What it was held against.
    pub(crate) theirs: Option<f64>,
    /// The median of each round's ratio; the figure itself where it is held against nothing.
    pub(crate) reached: f64,
    pub(crate) is_met: bool,
}

/// The aims that something was measured for.
pub(crate) fn judge(figures: &Figures) -> Vec<Judged<'static>> {
    AIMS.iter().filter_map(|aim| judge_one(figures, aim)).collect()
}

fn judge_one<'a>(figures: &Figures, aim: &'a Aim) -> Option<Judged<'a>> {
    let (name, side) = match aim.against {
        Against::Etcd => (aim.figure, Some(Side::Etcd)),
        Against::Axum => (aim.figure, Some(Side::Ceiling)),
        Against::Disk => (SYNCS, Some(Side::Ceiling)),
        Against::Nothing => (aim.figure, None),
    };
    let ours = figures.find(aim.row, aim.figure)?;
    let (theirs, reached) = match side {
        None => (None, ours.median(Side::Revgate)?),
        Some(side) => {
            let theirs = figures.find(aim.row, name)?;
            (theirs.median(side), median_ratio(ours.rounds(Side::Revgate), theirs.rounds(side))?)
        }
    };
    let is_met = match aim.bound {
        Bound::AtLeast(least) => reached >= least,
        Bound::AtMost(most) => reached <= most,
    };
    Some(Judged { aim, ours: ours.median(Side::Revgate)?, theirs, reached, is_met })
}
