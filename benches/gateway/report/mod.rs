//! What a run came to, as tables and plots: printed, and written into `BENCHMARKS.md` between two marks, so that what people
//! write around them stays.

mod aims;
mod chart;
mod plots;

use std::{fmt::Write, fs, time::Duration};

use self::aims::{Against, Bound, Judged};
use crate::{
    figures::{Figures, Side, median_ratio, shown},
    machine,
    options::Options,
    server::Target,
};

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";
/// What is written where there is no file yet.
const EMPTY: &str = "# Benchmarks\n\n<!-- measured: begin -->\n<!-- measured: end -->\n";

/// Prints the tables, and writes them with the plots.
pub(crate) fn write(options: &Options, targets: &[Target], figures: &Figures, took: Duration) {
    let judged = aims::judge(figures);
    let mut text = aims_table(&judged);
    print!("\n{text}");
    if !judged.is_empty() {
        let met = judged.iter().filter(|judged| judged.is_met).count();
        println!("\n{met} of {} aims are met", judged.len());
    }
    let out = options.out();
    let plots_dir = out.join("plots");
    fs::create_dir_all(&plots_dir).unwrap();
    for (file, title, svg) in plots::draw(figures, &judged) {
        fs::write(plots_dir.join(file), svg).unwrap();
        write!(text, "\n![{title}](plots/{file})\n").unwrap();
    }
    text.push_str(&figures_table(figures));
    let text = format!("{}\n{text}", machine_list(options, targets, took));
    let path = out.join("BENCHMARKS.md");
    let before = fs::read_to_string(&path).unwrap_or_else(|_| EMPTY.to_owned());
    fs::write(&path, between_marks(&before, &text)).unwrap();
    println!("written to {}", path.display());
}

fn machine_list(options: &Options, targets: &[Target], took: Duration) -> String {
    let mut text = String::new();
    for (name, value) in machine::describe(options, targets) {
        writeln!(text, "- {name}: {value}").unwrap();
    }
    let (rounds, seconds, minutes) = (options.rounds, options.seconds, took.as_secs_f64() / 60.0);
    writeln!(text, "- rounds: {rounds} of {seconds} s each; the whole took {minutes:.0} minutes").unwrap();
    text.push_str("\nFigures are medians of the rounds, ratios the medians of each round's ratio.\n");
    text
}

fn aims_table(judged: &[Judged<'_>]) -> String {
    let mut table = Markdown::new(&["row", "figure", "revgate", "held against", "", "reached", "aim", "met"]);
    for Judged { aim, ours, theirs, reached, is_met } in judged {
        let against = match aim.against {
            Against::Etcd => "etcd",
            Against::Axum => "axum route",
            Against::Disk => "fdatasync of 2 KiB",
            Against::Nothing => "",
        };
        let times = if aim.against == Against::Nothing { "" } else { "×" };
        let bound = match aim.bound {
            Bound::AtLeast(least) => format!("≥ {least}{times}"),
            Bound::AtMost(most) => format!("≤ {most}{times}"),
        };
        table.row(&[
            aim.row.name(),
            aim.figure.to_owned(),
            shown(*ours),
            against.to_owned(),
            theirs.map(shown).unwrap_or_default(),
            format!("{}{times}", shown(*reached)),
            bound,
            if *is_met { "yes" } else { "**no**" }.to_owned(),
        ]);
    }
    table.text
}

fn figures_table(figures: &Figures) -> String {
    let mut table = Markdown::new(&["row", "figure", "revgate", "etcd", "ceiling", "revgate / etcd"]);
    for figure in figures.by_row() {
        let median = |side| figure.median(side).map(shown).unwrap_or_default();
        let ratio = median_ratio(figure.rounds(Side::Revgate), figure.rounds(Side::Etcd));
        table.row(&[
            figure.row.name(),
            figure.name.clone(),
            median(Side::Revgate),
            median(Side::Etcd),
            median(Side::Ceiling),
            ratio.map(shown).unwrap_or_default(),
        ]);
    }
    format!("\n<details><summary>Every figure</summary>\n\n{}\n</details>\n", table.text)
}

/// A table as Markdown, whose columns also line up as text.
struct Markdown {
    text: String,
}

impl Markdown {
    const WIDTHS: [usize; 8] = [16, 30, 12, 18, 12, 14, 10, 6];

    fn new(titles: &[&str]) -> Markdown {
        let mut table = Markdown { text: String::new() };
        table.row(&titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
        table.row(&vec!["---".to_owned(); titles.len()]);
        table
    }

    fn row(&mut self, cells: &[String]) {
        self.text.push('|');
        for (cell, width) in cells.iter().zip(Markdown::WIDTHS) {
            write!(self.text, " {cell:<width$} |").unwrap();
        }
        self.text.push('\n');
    }
}

fn between_marks(before: &str, text: &str) -> String {
    let marks = before.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = marks else { panic!("BENCHMARKS.md has no {BEGIN} before an {END}") };
    format!("{head}{BEGIN}\n{text}{END}{tail}")
}
