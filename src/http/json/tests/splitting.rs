//! The splitter finds the same values however the stream is cut.

use proptest::prelude::*;

use crate::{error::ApiError, http::json::split::Splitter};

fn split(pieces: &[&[u8]]) -> Result<Vec<String>, ApiError> {
    let mut splitter = Splitter::new(1 << 20);
    let mut values = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        while let Some(value) = splitter.next_value(false)? {
            values.push(String::from_utf8_lossy(value).into_owned());
        }
    }
    while let Some(value) = splitter.next_value(true)? {
        values.push(String::from_utf8_lossy(value).into_owned());
    }
    Ok(values)
}

const STREAM: &str = " {\"a\":\"}\\\"{\"}\n{\"b\":[1,{\"c\":\"\\\\\"}]}[2] 17 \"x y\"null\t{}{} true";
const VALUES: [&str; 9] =
    ["{\"a\":\"}\\\"{\"}", "{\"b\":[1,{\"c\":\"\\\\\"}]}", "[2]", "17", "\"x y\"", "null", "{}", "{}", "true"];

#[test]
fn values_are_found_wherever_the_stream_is_cut() {
    let bytes = STREAM.as_bytes();
    assert_eq!(split(&[bytes]).unwrap(), VALUES);
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            assert_eq!(split(&pieces).unwrap(), VALUES, "cut at {first} and {second}");
        }
    }
    assert_eq!(split(&bytes.chunks(1).collect::<Vec<_>>()).unwrap(), VALUES);
}

#[test]
fn what_is_left_at_the_end_is_a_value_as_it_stands() {
    assert_eq!(split(&[b"{} {\"cre"]).unwrap(), ["{}", "{\"cre"]);
    assert_eq!(split(&[b"} ]"]).unwrap(), ["}", "]"]);
    assert_eq!(split(&[b" \n"]).unwrap(), [""; 0]);
}

#[test]
fn a_value_over_the_limit_is_refused_before_it_is_whole() {
    let mut splitter = Splitter::new(4);
    splitter.push(b"{} \"12\" ");
    assert_eq!(splitter.next_value(false), Ok(Some(&b"{}"[..])));
    assert_eq!(splitter.next_value(false), Ok(Some(&b"\"12\""[..])));
    splitter.push(b"[1,2,");
    assert_eq!(splitter.next_value(false), Err(ApiError::MessageTooLarge { received: 5, max: 4 }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn no_input_breaks_it_and_nothing_is_lost(bytes in proptest::collection::vec(any::<u8>(), 0..64), cut in 0_usize..64) {
        let cut = cut.min(bytes.len());
        let whole = split(&[&bytes]).unwrap();
        prop_assert_eq!(&split(&[&bytes[..cut], &bytes[cut..]]).unwrap(), &whole);
    }
}
