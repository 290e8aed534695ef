//! Which plots are drawn of a run.

use super::{
    aims::{Against, Bound, Judged},
    chart::{Bar, Chart, Group},
};
use crate::{
    figures::{Figures, Side},
    options::Row,
    rows::{P50_MILLIS, P99_MILLIS, PER_SECOND},
};

const SIDES: [(Side, &str); 3] = [(Side::Revgate, "revgate"), (Side::Etcd, "etcd"), (Side::Ceiling, "axum route")];

/// Each plot that there are figures for: file, title, and the picture.
pub(super) fn draw(figures: &Figures, judged: &[Judged<'_>]) -> Vec<(&'static str, &'static str, String)> {
    let plots = [
        ("ratios.svg", "How many times better than etcd", ratios(judged)),
        ("throughput.svg", "Requests a second", throughput(figures)),
        ("latency.svg", "Latency, ms", latency(figures)),
        ("fan-out.svg", "From a put to its watchers, at the same rate, ms", fan_out(figures)),
    ];
    let drawn = plots.into_iter().filter(|(_, _, groups)| !groups.is_empty());
    drawn.map(|(file, title, groups)| (file, title, Chart { title, groups }.svg())).collect()
}

/// One bar for each aim that is held against etcd; the mark is the aim. More is better: ratios that are to be small are
/// turned over.
fn ratios(judged: &[Judged<'_>]) -> Vec<Group> {
    let against_etcd = judged.iter().filter(|judged| judged.aim.against == Against::Etcd);
    against_etcd
        .map(|judged| {
            let (value, mark) = match judged.aim.bound {
                Bound::AtLeast(least) => (judged.reached, least),
                Bound::AtMost(most) => (1.0 / judged.reached, 1.0 / most),
            };
            let title = format!("{} {}", judged.aim.row.name(), judged.aim.figure);
            Group { title, bars: vec![Bar { series: "revgate", value, mark: Some(mark) }] }
        })
        .filter(|group| group.bars[0].value.is_finite())
        .collect()
}

fn throughput(figures: &Figures) -> Vec<Group> {
    let rows = [Row::Put1, Row::Put64, Row::Put512, Row::ComparePut, Row::Get, Row::GetSerializable, Row::Mixed];
    rows.iter().filter_map(|row| group(figures, *row, PER_SECOND, row.name())).collect()
}

fn latency(figures: &Figures) -> Vec<Group> {
    let mut groups = Vec::new();
    for row in [Row::Put1, Row::Put64, Row::Put512, Row::ComparePut, Row::Get, Row::GetSerializable, Row::Page] {
        for name in [P50_MILLIS, P99_MILLIS] {
            groups.extend(group(figures, row, name, format!("{} {}", row.name(), name.trim_end_matches(" ms"))));
        }
    }
    for name in ["get p50 ms", "get p99 ms"] {
        groups.extend(group(figures, Row::Mixed, name, format!("mixed {}", name.trim_end_matches(" ms"))));
    }
    groups
}

fn fan_out(figures: &Figures) -> Vec<Group> {
    let quantiles = ["p50", "p99", "p99.9"];
    let name = |quantile: &str| format!("same rate: {quantile} ms");
    quantiles.iter().filter_map(|q| group(figures, Row::FanOut, &name(q), (*q).to_owned())).collect()
}

fn group(figures: &Figures, row: Row, name: &str, title: String) -> Option<Group> {
    let bar = |(side, series)| Some(Bar { series, value: figures.median(row, name, side)?, mark: None });
    let bars: Vec<Bar> = SIDES.into_iter().filter_map(bar).collect();
    (!bars.is_empty()).then_some(Group { title, bars })
}
