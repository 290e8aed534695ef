//! Just enough reading of Rust to find names: source text to tokens with their lines, test-only items cut out, and
//! `use` trees unfolded to full paths. It knows nothing of the house.

/// A word or a sign, and the line it stands on (from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// A path as written, with its parts: `crate::wal::Wal` is `["crate", "wal", "Wal"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathFound {
    pub(super) parts: Vec<String>,
    pub(super) line: usize,
}

/// Splits source text into tokens. Comments are dropped; literals become one empty token, so that nothing in them
/// looks like code. `::` is one token.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let bytes = source.as_bytes();
    let (mut at, mut line, mut found) = (0, 1, Vec::new());
    while at < bytes.len() {
        let (end, text) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (end_of_line(bytes, at), None),
            b'/' if bytes[at..].starts_with(b"/*") => (end_of_block_comment(bytes, at), None),
            b'"' => (end_of_string(bytes, at + 1), Some(String::new())),
            b'\'' => end_of_quote(bytes, at),
            byte if byte.is_ascii_whitespace() => (at + 1, None),
            byte if is_word(byte) => word_or_prefixed_literal(source, at),
            b':' if bytes[at..].starts_with(b"::") => (at + 2, Some("::".to_owned())),
            byte => (at + 1, Some(char::from(byte).to_string())),
        };
        if let Some(text) = text {
            found.push(Token { text, line });
        }
        line += bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        at = end;
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| from + length)
}

fn end_of_block_comment(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A character literal, or a lifetime.
fn end_of_quote(bytes: &[u8], at: usize) -> (usize, Option<String>) {
    let literal_end = if bytes.get(at + 1) == Some(&b'\\') {
        bytes.get(at + 3..).and_then(|rest| rest.iter().position(|byte| *byte == b'\'')).map(|length| at + 3 + length)
    } else {
        // One character, up to four bytes long.
        (at + 2..=at + 5)
            .find(|end| bytes.get(*end) == Some(&b'\''))
            .filter(|end| std::str::from_utf8(&bytes[at + 1..*end]).is_ok_and(|between| between.chars().count() == 1))
    };
    match literal_end {
        Some(end) => (end + 1, Some(String::new())),
        None => (at + 1, Some("'".to_owned())),
    }
}

/// A word; or, where the word is the prefix of a literal (`b"…"`, `r#"…"#`), the literal.
fn word_or_prefixed_literal(source: &str, at: usize) -> (usize, Option<String>) {
    let bytes = source.as_bytes();
    let end = at + bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
    let word = &source[at..end];
    if matches!(word, "r" | "br" | "cr") {
        let hashes = bytes[end..].iter().take_while(|byte| **byte == b'#').count();
        if bytes.get(end + hashes) == Some(&b'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = end + hashes + 1;
            let length = source[body..].find(&close).map_or(source.len() - body, |length| length + close.len());
            return (body + length, Some(String::new()));
        }
    }
    if matches!(word, "b" | "c") && bytes.get(end) == Some(&b'"') {
        return (end_of_string(bytes, end + 1), Some(String::new()));
    }
    (end, Some(word.to_owned()))
}

/// What [`without_tests`] leaves, and the modules in other files that only tests compile.
pub(super) struct Code {
    pub(super) tokens: Vec<Token>,
    pub(super) test_modules: Vec<String>,
}

/// Cuts out every item under `#[cfg(test)]`.
pub(super) fn without_tests(tokens: &[Token]) -> Code {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut code = Code { tokens: Vec::new(), test_modules: Vec::new() };
    let mut at = 0;
    while at < tokens.len() {
        let is_mark = tokens[at..].iter().map(|token| token.text.as_str()).take(CFG_TEST.len()).eq(CFG_TEST);
        if !is_mark {
            code.tokens.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let item = at + CFG_TEST.len();
        at = end_of_item(tokens, item);
        let words: Vec<&str> = tokens[item..at].iter().map(|token| token.text.as_str()).collect();
        if let Some(module) = words.windows(3).find(|three| three[0] == "mod" && three[2] == ";") {
            code.test_modules.push(module[1].to_owned());
        }
    }
    code
}

/// Where the item that starts here ends: after its `;`, or after its braces.
fn end_of_item(tokens: &[Token], from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token.text == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Every path in the tokens, with groups (`a::{b, c::d}`) unfolded. Single words count as paths of one part.
pub(super) fn paths(tokens: &[Token]) -> Vec<PathFound> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_name(&tokens[at].text) {
            at = unfold(tokens, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(is_word)
}

/// Reads one path from `at` on, below `prefix`; returns where it ends.
fn unfold(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<PathFound>) -> usize {
    let mut parts = prefix.to_vec();
    let line = tokens[at].line;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    loop {
        if is_name(text(at)) || text(at) == "*" {
            parts.push(text(at).to_owned());
            at += 1;
        } else if text(at) == "{" {
            at += 1;
            while at < tokens.len() && text(at) != "}" {
                if is_name(text(at)) || text(at) == "*" {
                    at = unfold(tokens, at, &parts, found);
                    // `as name` gives the path another name and is none of its parts.
                    while at < tokens.len() && !matches!(text(at), "," | "}") {
                        at += 1;
                    }
                } else {
                    at += 1;
                }
            }
            return at + 1;
        }
        if text(at) == "::" && (is_name(text(at + 1)) || matches!(text(at + 1), "{" | "*")) {
            at += 1;
            continue;
        }
        found.push(PathFound { parts, line });
        return at.max(1);
    }
}
