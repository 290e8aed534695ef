//! A table: a row for each figure, a column for each server, and the ratio where there are two.

use crate::{
    figures::{median, median_ratio, shown},
    server::Target,
};

/// What the figures of one row came to, by server, round by round.
struct Row {
    title: String,
    by_server: Vec<Vec<f64>>,
}

/// Rows in the order in which their first figures came.
pub(crate) struct Table {
    names: Vec<&'static str>,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(targets: &[Target]) -> Table {
        Table { names: targets.iter().map(|target| target.name).collect(), rows: Vec::new() }
    }

    /// Adds one round's figure of a server, told by its number.
    pub(crate) fn add(&mut self, title: &str, server: usize, figure: f64) {
        let at = self.rows.iter().position(|row| row.title == title).unwrap_or_else(|| {
            self.rows.push(Row { title: title.to_owned(), by_server: vec![Vec::new(); self.names.len()] });
            self.rows.len() - 1
        });
        self.rows[at].by_server[server].push(figure);
    }

    /// Medians, and the median of each round's ratio; a dash where there is no figure.
    pub(crate) fn print(&self) {
        let title_width = self.rows.iter().map(|row| row.title.len()).max().unwrap_or_default() + 2;
        print!("{:<title_width$}", "median");
        self.names.iter().for_each(|name| print!("{name:>14}"));
        println!("{:>14}", if self.names.len() == 2 { "ratio" } else { "" });
        for row in &self.rows {
            print!("{:<title_width$}", row.title);
            for rounds in &row.by_server {
                print_cell(median(rounds.clone()));
            }
            if let [ours, theirs] = row.by_server.as_slice() {
                print_cell(median_ratio(ours, theirs));
            }
            println!();
        }
        println!();
    }
}

fn print_cell(figure: Option<f64>) {
    print!("{:>14}", figure.map_or_else(|| "-".to_owned(), shown));
}
