//! Cuts a byte stream into the JSON values in it, however the transport cut it into pieces.
//!
//! It only looks for where a value ends (brackets outside strings, or the end of a scalar); whether the value is well-formed the
//! reader finds out. Each byte is looked at once. What it holds is bounded by the limit it is given.

use crate::error::ApiError;

/// An unfinished stream of values.
#[derive(Debug)]
pub(crate) struct Splitter {
    buffer: Vec<u8>,
    /// Where the value in progress begins; everything before is done with.
    start: usize,
    /// The next byte to look at.
    next: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    value_bytes_max: usize,
}

impl Splitter {
    /// Refuses values longer than `value_bytes_max` bytes.
    pub(crate) fn new(value_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, next: 0, depth: 0, in_string: false, escaped: false, value_bytes_max }
    }

    /// Adds bytes to the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.next -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole value, if it is there. `ended`: no more bytes will come, so what is left is a value as it stands.
    pub(crate) fn next_value(&mut self, ended: bool) -> Result<Option<&[u8]>, ApiError> {
        let mut end = None;
        while let Some(byte) = self.buffer.get(self.next).copied() {
            if self.starts_anew(byte) {
                end = Some(self.next);
                break;
            }
            self.next += 1;
            if self.closes(byte) {
                end = Some(self.next);
                break;
            }
        }
        if end.is_none() && ended && self.start < self.next {
            end = Some(self.next);
        }
        if end.unwrap_or(self.next) - self.start > self.value_bytes_max {
            let received = u64::try_from(self.buffer.len() - self.start).unwrap_or(u64::MAX);
            let max = u64::try_from(self.value_bytes_max).unwrap_or(u64::MAX);
            return Err(ApiError::MessageTooLarge { received, max });
        }
        let Some(end) = end else { return Ok(None) };
        let value = self.start..end;
        self.start = end;
        (self.depth, self.in_string, self.escaped) = (0, false, false);
        Ok(self.buffer.get(value))
    }

    /// Whether `byte` ends a scalar without belonging to it. White space before a value is dropped here.
    fn starts_anew(&mut self, byte: u8) -> bool {
        if self.depth > 0 || self.in_string {
            return false;
        }
        let space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        if self.start == self.next {
            self.start += usize::from(space);
            return false;
        }
        space || matches!(byte, b'{' | b'[' | b'"')
    }

    /// Follows the nesting; whether `byte` ends the value.
    fn closes(&mut self, byte: u8) -> bool {
        if self.start == self.next {
            return false;
        }
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return !self.in_string && self.depth == 0;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}
