//! Durations as etcd's flags write them: "100ms", "1h30m", "1.5h".

use std::time::Duration;

const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

const EXPECTED: &str = "expected a duration such as 100ms, 30s, 1h or 1h30m";

/// Reads a duration: one or more numbers, each with a unit. Only 0 needs no unit; there are no negative ones.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total_secs = 0.0;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let number: f64 = number.parse().map_err(|_| EXPECTED.to_owned())?;
        let unit_secs = UNITS.iter().find(|(name, _)| *name == unit).ok_or(EXPECTED)?.1;
        total_secs += number * unit_secs;
        rest = after;
    }
    if text.is_empty() {
        return Err(EXPECTED.into());
    }
    // Nanoseconds are beyond a float's precision: whole microseconds are meant.
    let total = Duration::try_from_secs_f64(total_secs).map_err(|_| "the duration is too long".to_owned())?;
    Ok(Duration::from_nanos(u64::try_from(total.as_nanos()).map_err(|_| "the duration is too long")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        let table = [
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("100ms", Duration::from_millis(100)),
            ("1h", Duration::from_secs(3600)),
            ("1h30m", Duration::from_secs(5400)),
            ("1.5h", Duration::from_secs(5400)),
            (".5s", Duration::from_millis(500)),
            ("2m3s4ms", Duration::from_millis(123_004)),
            ("10us", Duration::from_micros(10)),
            ("10µs", Duration::from_micros(10)),
            ("500ns", Duration::from_nanos(500)),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for text in ["", "10", "1d", "-1s", "s", "1h30", "1..5s", "ms", " 1s", "1e400h", "99999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
