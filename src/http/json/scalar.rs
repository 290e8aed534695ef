//! The rules for single values, shared by both readers: integers to the last bit, both base64 alphabets, enums by name
//! or number. They are protojson's (reference: the proto3 JSON mapping); what they know of messages is only that a field
//! may come once, and one member of a oneof.

use bytes::Bytes;

use super::{
    JsonError,
    scan::{Kind, Scanner, number_length},
};

/// Decimal digits of the largest 64-bit integer; more cannot fit.
const INTEGER_DIGITS_MAX: usize = 20;

/// What fields an object has shown so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    fields: u128,
    oneofs: u32,
}

impl Seen {
    /// Begins a field's value. `false`: it was `null`, which means the field is not set.
    pub(crate) fn field(&mut self, number: u32, scanner: &mut Scanner<'_>) -> Result<bool, JsonError> {
        let bit = 1_u128.checked_shl(number).unwrap_or(0);
        if self.fields & bit != 0 {
            return Err(scanner.error("duplicate field"));
        }
        self.fields |= bit;
        Ok(!scanner.null()?)
    }

    /// Begins the value of a member of the message's `oneof`-th oneof.
    pub(crate) fn member(&mut self, oneof: u32, number: u32, scanner: &mut Scanner<'_>) -> Result<bool, JsonError> {
        if !self.field(number, scanner)? {
            return Ok(false);
        }
        let bit = 1_u32.checked_shl(oneof).unwrap_or(0);
        if self.oneofs & bit != 0 {
            return Err(scanner.error("second member of a oneof"));
        }
        self.oneofs |= bit;
        Ok(true)
    }
}

impl Scanner<'_> {
    /// Takes an int64: a number, or a string with a number in it.
    pub(crate) fn int64(&mut self) -> Result<i64, JsonError> {
        self.integer("int64")
    }

    /// Takes a uint64.
    pub(crate) fn uint64(&mut self) -> Result<u64, JsonError> {
        self.integer("uint64")
    }

    /// Takes an integer of type `T`, which `type_name` names in errors.
    pub(crate) fn integer<T: TryFrom<i128>>(&mut self, type_name: &str) -> Result<T, JsonError> {
        let start = self.offset();
        let value = match self.peek()? {
            Kind::String => integer(&self.string()?),
            Kind::Number => integer(self.number()?),
            _ => None,
        };
        value
            .and_then(|value| T::try_from(value).ok())
            .ok_or_else(|| self.error_at(start, format!("expected an integer ({type_name})")))
    }

    /// Takes bytes: a string of base64.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, JsonError> {
        let start = self.offset();
        let text = self.string()?;
        base64_decode(&text).map(Bytes::from).ok_or_else(|| self.error_at(start, "malformed base64"))
    }

    /// Takes an enum's value. `None`: a name nobody knows, which is dropped as if the field were not there. A number is
    /// kept whether it is known or not.
    pub(crate) fn enumeration(&mut self, number_of: impl Fn(&str) -> Option<i32>) -> Result<Option<i32>, JsonError> {
        let start = self.offset();
        match self.peek()? {
            Kind::String => Ok(number_of(&self.string()?)),
            Kind::Number => self.integer("enum").map(Some),
            _ => Err(self.error_at(start, "expected an enum's name or number")),
        }
    }
}

/// The value of a number in JSON's grammar, if it is integral and could fit 64 bits; `1.0` and `1e3` are integral.
fn integer(text: &str) -> Option<i128> {
    if text.len() < INTEGER_DIGITS_MAX
        && let Ok(value) = text.parse::<i64>()
        && number_length(text.as_bytes()) == Some(text.len())
    {
        return Some(value.into());
    }
    if number_length(text.as_bytes()) != Some(text.len()) {
        return None;
    }
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let trimmed = significant.trim_end_matches('0');
    if trimmed.is_empty() {
        return Some(0);
    }
    // An exponent that does not even fit 64 bits cannot be made up for by any number of digits that came over the wire.
    let exponent: i64 = exponent.parse().ok()?;
    let zeros = i64::try_from(significant.len() - trimmed.len()).ok()?;
    let scale = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(zeros)?;
    let scale = usize::try_from(scale).ok()?;
    if trimmed.len().checked_add(scale)? > INTEGER_DIGITS_MAX {
        return None;
    }
    let magnitude: i128 = format!("{trimmed}{:0<scale$}", "").parse().ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

/// Decodes base64 as protojson does: standard or URL-safe alphabet, padded or not.
fn base64_decode(text: &str) -> Option<Vec<u8>> {
    base64_simd::STANDARD.decode_to_vec(text).ok().or_else(|| base64_decode_lenient(text))
}

/// The whole rule, a byte at a time: one alphabet in one text, padding right or absent, leftover bits whatever they are, and line
/// breaks as if they were not there (the command `base64` makes some).
fn base64_decode_lenient(text: &str) -> Option<Vec<u8>> {
    let whole = text.replace(['\r', '\n'], "");
    let text = whole.as_str();
    let url_safe = text.contains(['-', '_']);
    let data = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    if (data.len() != text.len() && !text.len().is_multiple_of(4)) || data.len() % 4 == 1 {
        return None;
    }
    let mut decoded = Vec::with_capacity(data.len() / 4 * 3 + 2);
    let (mut bits, mut bits_held) = (0_u32, 0);
    for byte in data.bytes() {
        let six = match (byte, url_safe) {
            (b'A'..=b'Z', _) => byte - b'A',
            (b'a'..=b'z', _) => byte - b'a' + 26,
            (b'0'..=b'9', _) => byte - b'0' + 52,
            (b'+', false) | (b'-', true) => 62,
            (b'/', false) | (b'_', true) => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(six);
        bits_held += 6;
        if bits_held >= 8 {
            bits_held -= 8;
            decoded.push(u8::try_from((bits >> bits_held) & 0xff).expect("masked to eight bits"));
        }
    }
    Some(decoded)
}
