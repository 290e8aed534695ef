//! A pull scanner over JSON text (RFC 8259): the caller says what it expects, strings are borrowed where they can be.
//!
//! Promises: never panics, never recurses deeper than [`DEPTH_MAX_LEVELS`](super::DEPTH_MAX_LEVELS), refuses invalid
//! UTF-8, and names the byte at which a text goes wrong. It knows no message and no field.

use std::borrow::Cow;

use super::{DEPTH_MAX_LEVELS, JsonError};

/// What kind of value comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// A digit or a minus.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Object => "an object",
            Kind::Array => "an array",
            Kind::String => "a string",
            Kind::Number => "a number",
            Kind::Bool => "true or false",
            Kind::Null => "null",
        }
    }
}

/// A position in a JSON text.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth_left: u32,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of `text`.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth_left: DEPTH_MAX_LEVELS }
    }

    /// An error at the current position.
    pub(crate) fn error(&self, what: impl Into<String>) -> JsonError {
        self.error_at(self.at, what)
    }

    /// An error at `at_byte`.
    pub(crate) fn error_at(&self, at_byte: usize, what: impl Into<String>) -> JsonError {
        JsonError { at_byte, what: what.into() }
    }

    /// Offset of the next value's first byte.
    pub(crate) fn offset(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    /// Whether only white space is left.
    pub(crate) fn at_end(&mut self) -> bool {
        self.skip_space();
        self.at >= self.text.len()
    }

    /// The kind of the next value; takes nothing but white space.
    pub(crate) fn peek(&mut self) -> Result<Kind, JsonError> {
        self.skip_space();
        match self.text.get(self.at) {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(_) => Err(self.error("expected a JSON value")),
            None => Err(self.error("unexpected end of input")),
        }
    }

    /// Takes a `null` if one comes next.
    pub(crate) fn null(&mut self) -> Result<bool, JsonError> {
        if self.peek()? != Kind::Null {
            return Ok(false);
        }
        self.literal("null")?;
        Ok(true)
    }

    /// Takes `true` or `false`.
    pub(crate) fn bool(&mut self) -> Result<bool, JsonError> {
        self.expect(Kind::Bool)?;
        if self.text.get(self.at) == Some(&b't') {
            self.literal("true")?;
            Ok(true)
        } else {
            self.literal("false")?;
            Ok(false)
        }
    }

    /// Takes a number; its text follows JSON's grammar.
    pub(crate) fn number(&mut self) -> Result<&'a str, JsonError> {
        self.expect(Kind::Number)?;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = number_length(rest).ok_or_else(|| self.error("malformed number"))?;
        let text = std::str::from_utf8(&rest[..length]).expect("digits, signs and letters of a number are ASCII");
        self.at += length;
        Ok(text)
    }

    /// Takes a string. Borrowed unless it has escapes in it.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.expect(Kind::String)?;
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        if self.text.get(self.at) == Some(&b'"') {
            let plain = self.utf8(start, self.at)?;
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        let mut unescaped = String::from(self.utf8(start, self.at)?);
        loop {
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => unescaped.push(self.escape()?),
                Some(_) => return Err(self.error("control character in a string")),
                None => return Err(self.error("unexpected end of input in a string")),
            }
            let start = self.at;
            self.skip_plain();
            unescaped.push_str(self.utf8(start, self.at)?);
        }
    }

    /// Takes an object: `field` is called with each name and must take that field's value.
    pub(crate) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &str) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.expect(Kind::Object)?;
        self.enter()?;
        if !self.closes(b'}') {
            loop {
                self.skip_space();
                if self.text.get(self.at) != Some(&b'"') {
                    return Err(self.unexpected("expected a field name in quotes"));
                }
                let name = self.string()?;
                self.skip_space();
                if self.text.get(self.at) != Some(&b':') {
                    return Err(self.unexpected("expected a colon after a field name"));
                }
                self.at += 1;
                field(self, &name)?;
                if !self.continues(b'}', "expected a comma or the object's end")? {
                    break;
                }
            }
        }
        self.depth_left += 1;
        Ok(())
    }

    /// Takes an array: `item` is called before each item and must take it.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), JsonError>) -> Result<(), JsonError> {
        self.expect(Kind::Array)?;
        self.enter()?;
        if !self.closes(b']') {
            loop {
                item(self)?;
                if !self.continues(b']', "expected a comma or the array's end")? {
                    break;
                }
            }
        }
        self.depth_left += 1;
        Ok(())
    }

    /// Takes any value and forgets it. It must be well-formed all the same.
    pub(crate) fn skip_value(&mut self) -> Result<(), JsonError> {
        match self.peek()? {
            Kind::Object => self.object(|scanner, _| scanner.skip_value()),
            Kind::Array => self.array(Self::skip_value),
            Kind::String => self.string().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::Bool => self.bool().map(drop),
            Kind::Null => self.null().map(drop),
        }
    }

    fn expect(&mut self, wanted: Kind) -> Result<(), JsonError> {
        let found = self.peek()?;
        if found == wanted {
            return Ok(());
        }
        Err(self.error(format!("expected {}, found {}", wanted.name(), found.name())))
    }

    fn unexpected(&self, what: &str) -> JsonError {
        if self.at >= self.text.len() { self.error("unexpected end of input") } else { self.error(what) }
    }

    /// Steps over the opening bracket.
    fn enter(&mut self) -> Result<(), JsonError> {
        self.depth_left = self
            .depth_left
            .checked_sub(1)
            .ok_or_else(|| self.error(format!("nested more than {DEPTH_MAX_LEVELS} levels deep")))?;
        self.at += 1;
        Ok(())
    }

    fn closes(&mut self, bracket: u8) -> bool {
        self.skip_space();
        let closes = self.text.get(self.at) == Some(&bracket);
        self.at += usize::from(closes);
        closes
    }

    fn continues(&mut self, bracket: u8, wanted: &str) -> Result<bool, JsonError> {
        if self.closes(bracket) {
            return Ok(false);
        }
        if self.text.get(self.at) != Some(&b',') {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(true)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return Err(self.error("expected a JSON value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Moves to the next byte that ends or interrupts a string's plain text.
    fn skip_plain(&mut self) {
        let (words, tail) = self.text.get(self.at..).unwrap_or_default().as_chunks();
        for word in words {
            let found = interruptions(u64::from_le_bytes(*word));
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += word.len();
        }
        let interrupts = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
        self.at += tail.iter().position(interrupts).unwrap_or(tail.len());
    }

    fn utf8(&self, start: usize, end: usize) -> Result<&'a str, JsonError> {
        let bytes = self.text.get(start..end).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|error| self.error_at(start + error.valid_up_to(), "invalid UTF-8"))
    }

    /// Takes an escape sequence; a surrogate pair is one.
    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        let kind = self.text.get(start + 1).copied();
        self.at += 2;
        Ok(match kind {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex4(start)?;
                let number = if (0xd800..0xdc00).contains(&first) {
                    let pair = self.text.get(self.at..self.at + 2) == Some(b"\\u");
                    self.at += 2;
                    let second = if pair { self.hex4(start)? } else { 0 };
                    if !(0xdc00..0xe000).contains(&second) {
                        return Err(self.error_at(start, "half a surrogate pair"));
                    }
                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                char::from_u32(number).ok_or_else(|| self.error_at(start, "half a surrogate pair"))?
            }
            _ => return Err(self.error_at(start, "unknown escape in a string")),
        })
    }

    fn hex4(&mut self, start: usize) -> Result<u32, JsonError> {
        let bad = || JsonError { at_byte: start, what: "malformed \\u escape".into() };
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(bad)?;
        self.at += 4;
        digits.iter().try_fold(0, |number, digit| Some(number * 16 + char::from(*digit).to_digit(16)?)).ok_or_else(bad)
    }
}

/// Length of the number at the start of `text`, by JSON's grammar: no plus, no leading zeros, digits around a point.
pub(crate) fn number_length(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| text.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(text.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && text.get(at) == Some(&b'0')) {
        return None;
    }
    at += whole;
    if text.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at);
        if exponent == 0 {
            return None;
        }
        at += exponent;
    }
    Some(at)
}

/// Where a string's plain text ends or is interrupted among eight bytes, the first in the lowest eight bits: by a quote, a
/// backslash, or a control character. The lowest bit that is set is in such a byte; above it others may be.
fn interruptions(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const TOPS: u64 = ONES << 7;
    // A byte's highest bit is set if the byte is below the limit (and itself below 0x80), or if a lower byte was.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & TOPS;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    is(b'"') | is(b'\\') | below(word, 0x20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_interruption_is_found_wherever_it_is_and_whatever_follows() {
        let interrupts = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                for (around, after) in
                    [(b'a', b'a'), (0xff, 0), (0x80, b'"'), (b'!', 0x21), (b'#', b'\\'), (0x20, 0xc3)]
                {
                    let mut word = [after; 8];
                    word[..at].fill(around);
                    word[at] = byte;
                    let expected = word.iter().position(|byte| interrupts(*byte));
                    let found = interruptions(u64::from_le_bytes(word));
                    let first = (found != 0).then(|| found.trailing_zeros() as usize / 8);
                    assert_eq!(first, expected, "{word:02x?}");
                }
            }
        }
    }
}
