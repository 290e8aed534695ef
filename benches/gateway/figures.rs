//! What was measured, round by round; medians, and the medians of each round's ratio.

use crate::options::Row;

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Revgate,
    Etcd,
    /// What could be had at best: a route that does nothing, or the disk alone.
    Ceiling,
}

/// One figure of one row, by side and round.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) row: Row,
    /// With its unit last.
    pub(crate) name: String,
    by_side: [Vec<f64>; 3],
}

/// Figures, in the order in which their first rounds came.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    all: Vec<Figure>,
}

impl Figures {
    /// Adds a round's figure.
    pub(crate) fn add(&mut self, row: Row, name: &str, side: Side, value: f64) {
        let at = self.all.iter().position(|figure| figure.row == row && figure.name == name).unwrap_or_else(|| {
            self.all.push(Figure { row, name: name.to_owned(), by_side: Default::default() });
            self.all.len() - 1
        });
        self.all[at].by_side[side as usize].push(value);
    }

    /// All of them, row by row.
    pub(crate) fn by_row(&self) -> Vec<&Figure> {
        let mut all: Vec<&Figure> = self.all.iter().collect();
        all.sort_by_key(|figure| figure.row);
        all
    }

    pub(crate) fn find(&self, row: Row, name: &str) -> Option<&Figure> {
        self.all.iter().find(|figure| figure.row == row && figure.name == name)
    }

    /// The middle of one side's rounds.
    pub(crate) fn median(&self, row: Row, name: &str, side: Side) -> Option<f64> {
        self.find(row, name)?.median(side)
    }
}

impl Figure {
    pub(crate) fn rounds(&self, side: Side) -> &[f64] {
        &self.by_side[side as usize]
    }

    pub(crate) fn median(&self, side: Side) -> Option<f64> {
        median(self.rounds(side).to_vec())
    }
}

/// The median of each round's ratio.
pub(crate) fn median_ratio(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).filter(|ratio| ratio.is_finite()).collect())
}

/// The middle of some figures, if there are any.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

/// A figure as people read it: three digits or more that mean something.
pub(crate) fn shown(figure: f64) -> String {
    match figure.abs() {
        small if small < 0.1 => format!("{figure:.4}"),
        small if small < 10.0 => format!("{figure:.2}"),
        middle if middle < 1000.0 => format!("{figure:.1}"),
        _ => with_thousands(figure.round() as i64),
    }
}

fn with_thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
