//! What commands print: tables, bytes as people read them, and JSON.

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

use serde_json::Value;

/// Exit code of a command that came to nothing.
pub(super) const EXIT_FAILED: u8 = 1;

/// Prints a text as it is. A reader that has gone away is no error of ours.
pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("error: standard output cannot be written to: {error}");
    }
}

/// Prints JSON on a line.
pub(super) fn print_json(value: &Value) {
    print(&format!("{value}\n"));
}

/// Tells why a command came to nothing.
pub(super) fn failed(error: impl Display, code: u8) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

/// Columns as wide as their widest entry: the first to the left, numbers to the right.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let all: Vec<Vec<&str>> =
        [head.to_vec()].into_iter().chain(rows.iter().map(|row| row.iter().map(String::as_str).collect())).collect();
    let width = |column: usize| all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let is_number = |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit());
    let mut text = String::new();
    for (number, row) in all.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let right = column > 0 && rows.iter().all(|row| row.get(column).is_none_or(|cell| is_number(cell)));
            line += &if right { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
        }
        text += line.trim_end();
        text.push('\n');
        if number == 0 {
            text += &format!("{}\n", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len().max(1) - 1)));
        }
    }
    text
}

/// Bytes with a unit, in steps of 1024.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut amount, mut unit) = (count as f64, 0);
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{amount:.1} {}", UNITS[unit]) }
}

/// A share in per cent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 })
}

/// A key for people: what is no printable ASCII as escapes, long ones cut.
pub(super) fn key(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 80;
    let shown = key[..key.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string();
    if key.len() > SHOWN_BYTES_MAX { format!("{shown}... ({} bytes)", key.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_columns() {
        let rows = vec![vec!["a".to_owned(), "7".to_owned()], vec!["longer".to_owned(), "12".to_owned()]];
        assert_eq!(table(&["name", "keys"], &rows), "name    keys\n------------\na          7\nlonger    12\n");
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!((bytes(0), bytes(1023)), ("0 B".into(), "1023 B".into()));
        assert_eq!((bytes(1536), bytes(5 << 30)), ("1.5 KiB".into(), "5.0 GiB".into()));
        assert_eq!((percent(1, 3), percent(0, 0)), ("33.3 %".into(), "0.0 %".into()));
        assert_eq!(key(b"a\xff"), "a\\xff");
    }
}
