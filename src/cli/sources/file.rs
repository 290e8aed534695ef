//! The configuration file: YAML, with flags' names as keys, as in etcd's.
//!
//! Reads it into a flat list of keys with their text and their line; what a key means is not known here. etcd's sections
//! (`client-transport-security:`) become keys with a prefix. The YAML is saphyr-parser's: the maintained one of the
//! libraries that tell where in the file a thing stands (serde_yaml, and the copies that go by its name, do not), with one
//! small dependency. What flags have no words for (anchors, tags, lists of lists) is refused by its line.

use std::{fs, io::Read as _, path::Path};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Largest configuration file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A key of the file with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// As written; of a key in a section, `section/key`.
    pub(super) key: String,
    /// What it says; lists are joined with commas. `None`: nothing, which leaves the flag's default.
    pub(super) value: Option<String>,
    /// From 1.
    pub(super) line: usize,
}

/// What is wrong, and in which line, if it is one's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileError {
    pub(super) line: Option<usize>,
    pub(super) what: String,
}

fn wrong<T>(line: usize, what: impl Into<String>) -> Result<T, FileError> {
    Err(FileError { line: Some(line), what: what.into() })
}

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, FileError> {
    let failed = |what: String| FileError { line: None, what };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text)
}

/// Reads the text of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, FileError> {
    let lines = text.lines().count().max(1);
    let mut reader = Reader { parser: Parser::new_from_str(text), lines, entries: Vec::new() };
    reader.document()?;
    Ok(reader.entries)
}

struct Reader<'text, Input: saphyr_parser::Input> {
    parser: Parser<'text, Input>,
    /// How many there are: what is missing at the end is told of the last one.
    lines: usize,
    entries: Vec<Entry>,
}

impl<'text, Input: saphyr_parser::Input> Reader<'text, Input> {
    /// The next event with its line.
    fn next(&mut self) -> Result<(Event<'text>, usize), FileError> {
        match self.parser.next_event() {
            Some(Ok((event, Span { start, .. }))) => Ok((event, start.line())),
            Some(Err(error)) => wrong(error.marker().line().min(self.lines), format!("is not YAML: {}", error.info())),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn document(&mut self) -> Result<(), FileError> {
        let mut documents = 0;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentStart(_), line) => {
                    documents += 1;
                    if documents > 1 {
                        return wrong(line, "a second document begins; there is to be one");
                    }
                }
                (Event::MappingStart(0, None), _) => self.mapping("")?,
                // An empty file, or one of comments.
                (Event::Scalar(text, ScalarStyle::Plain, 0, None), _) if is_null(&text) => {}
                (Event::StreamStart | Event::DocumentEnd | Event::Nothing, _) => {}
                (_, line) => return wrong(line, "expected lines of the form NAME: VALUE"),
            }
        }
    }

    /// Keys with their values, down to the mapping's end. `section` stands before each.
    fn mapping(&mut self, section: &str) -> Result<(), FileError> {
        loop {
            let (key, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(()),
                (Event::Scalar(key, _, 0, None), line) => (format!("{section}{key}"), line),
                (_, line) => return wrong(line, "a key that is not a name"),
            };
            let value = match self.next()? {
                (Event::Scalar(text, ScalarStyle::Plain, 0, None), _) if is_null(&text) => None,
                (Event::Scalar(text, _, 0, None), _) => Some(text.into_owned()),
                (Event::SequenceStart(0, None), _) => Some(self.sequence(&key)?),
                (Event::MappingStart(0, None), line) if section.is_empty() => {
                    self.entries.push(Entry { key: key.clone(), value: None, line });
                    self.mapping(&format!("{key}/"))?;
                    continue;
                }
                (Event::MappingStart(..), line) => return wrong(line, format!("{key}: a section within a section")),
                (_, line) => return wrong(line, format!("{key}: anchors, aliases and tags are not understood here")),
            };
            self.entries.push(Entry { key, value, line });
        }
    }

    /// A list's items, joined with commas.
    fn sequence(&mut self, key: &str) -> Result<String, FileError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items.join(",")),
                (Event::Scalar(text, _, 0, None), _) => items.push(text.into_owned()),
                (_, line) => return wrong(line, format!("{key}: an item that is not a plain value")),
            }
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: Option<&str>, line: usize) -> Entry {
        Entry { key: key.into(), value: value.map(str::to_owned), line }
    }

    #[test]
    fn keys_have_their_text_and_their_line() {
        let text = "# a comment\nname: a # another\n\nquota-backend-bytes: 8589934592\ncors: \"*\"\n\
                    log-outputs: [stderr, '/var/log/x']\nhost-whitelist:\n- a.example\n- b.example\n\
                    wal-dir:\ninitial-cluster: ~\nempty: ''\nclient-transport-security:\n  cert-file: c.pem\n  key-file: k.pem\n";
        let expected = [
            entry("name", Some("a"), 2),
            entry("quota-backend-bytes", Some("8589934592"), 4),
            entry("cors", Some("*"), 5),
            entry("log-outputs", Some("stderr,/var/log/x"), 6),
            entry("host-whitelist", Some("a.example,b.example"), 7),
            entry("wal-dir", None, 10),
            entry("initial-cluster", None, 11),
            entry("empty", Some(""), 12),
            entry("client-transport-security", None, 14),
            entry("client-transport-security/cert-file", Some("c.pem"), 14),
            entry("client-transport-security/key-file", Some("k.pem"), 15),
        ];
        assert_eq!(parse(text).expect("YAML"), expected);
        for nothing in ["", "# only this\n", "---\n", "---\n...\n", "{}"] {
            assert_eq!(parse(nothing), Ok(Vec::new()), "{nothing:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_by_its_line() {
        for (text, line, what) in [
            ("name: a\nname", 2, "is not YAML"),
            ("name: a\n b: c", 2, "is not YAML"),
            ("just words", 1, "NAME: VALUE"),
            ("- name", 1, "NAME: VALUE"),
            ("name: a\n---\nname: b", 2, "a second document"),
            ("name: &anchor a", 1, "anchors"),
            ("a: 1\nname: *anchor", 2, "anchor"),
            ("name: !!binary aGk=", 1, "tags"),
            ("cors:\n- [a]", 2, "an item that is not a plain value"),
            ("a:\n  b:\n    c: d", 3, "a section within a section"),
            ("[a]: b", 1, "a key that is not a name"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.line == Some(line) && error.what.contains(what), "{text:?}: {error:?}");
        }
    }
}
