//! The mapping's rules, one table each, for the readers; and what malformed texts are told.

use crate::{
    error::{ApiError, Code},
    http::json::{DEPTH_MAX_LEVELS, generic, read},
    proto::etcdserverpb as pb,
};

fn limit(json: &str) -> Result<i64, ApiError> {
    let text = format!("{{\"limit\":{json}}}");
    let fast = read::range(text.as_bytes());
    let generic = generic::read::<pb::RangeRequest>(text.as_bytes());
    assert_eq!(fast, generic, "{text}");
    fast.map(|request| request.limit)
}

fn key(json: &str) -> Result<Vec<u8>, ApiError> {
    let text = format!("{{\"key\":{json}}}");
    let fast = read::range(text.as_bytes());
    let generic = generic::read::<pb::RangeRequest>(text.as_bytes());
    assert_eq!(fast, generic, "{text}");
    fast.map(|request| request.key.to_vec())
}

#[test]
fn the_schema_has_only_kinds_that_are_mapped() {
    assert!(generic::schema_is_covered());
}

#[test]
fn integers_are_exact_as_numbers_and_as_strings() {
    let accepted = [
        ("0", 0),
        ("-0", 0),
        ("1", 1),
        ("1.0", 1),
        ("1e0", 1),
        ("1e2", 100),
        ("1E+2", 100),
        ("1.50e1", 15),
        ("100e-2", 1),
        ("0e999999999999999999999", 0),
        ("9223372036854775807", i64::MAX),
        ("9223372036854775807.0", i64::MAX),
        ("9223372036854775.807e3", i64::MAX),
        ("9007199254740993", 9_007_199_254_740_993),
        ("-9223372036854775808", i64::MIN),
    ];
    for (json, value) in accepted {
        assert_eq!(limit(json), Ok(value), "{json}");
        assert_eq!(limit(&format!("\"{json}\"")), Ok(value), "\"{json}\"");
    }
    let refused = [
        "9223372036854775808",
        "-9223372036854775809",
        "1.5",
        "1e-1",
        "1e19",
        "1e999999999",
        "1e99999999999999999999",
        "\"\"",
        "\" 1\"",
        "\"1 \"",
        "\"+1\"",
        "\"01\"",
        "\"0x1\"",
        "\"1.\"",
        "\".5\"",
        "true",
        "[1]",
        "{}",
        "\"x\"",
    ];
    for json in refused {
        assert_eq!(limit(json).map_err(|error| error.code()), Err(Code::InvalidArgument), "{json}");
    }
}

#[test]
fn both_base64_alphabets_with_and_without_padding() {
    let accepted: [(&str, &[u8]); 16] = [
        ("", b""),
        ("Zm9v", b"foo"),
        ("Zm8=", b"fo"),
        ("Zm8", b"fo"),
        ("Zg==", b"f"),
        ("Zg", b"f"),
        ("+/+/", &[0xfb, 0xff, 0xbf]),
        ("-_-_", &[0xfb, 0xff, 0xbf]),
        ("-_8=", &[0xfb, 0xff]),
        ("-_8", &[0xfb, 0xff]),
        ("+\\/8", &[0xfb, 0xff]),
        // Leftover bits that are not zero, as Go takes them.
        ("Zh", b"f"),
        ("Zh==", b"f"),
        // Line breaks are nothing.
        ("Zm9v\\n", b"foo"),
        ("Zm\\r\\n9v", b"foo"),
        ("Zg==\\n", b"f"),
    ];
    for (text, value) in accepted {
        assert_eq!(key(&format!("\"{text}\"")).as_deref(), Ok(value), "{text}");
    }
    for text in ["A", "AAAAA", "+_+_", "Zg=", "Zg===", "Zm9v=", "=", "Zm 9v", "Zm9vé", "Z=9v"] {
        assert_eq!(key(&format!("\"{text}\"")).map_err(|error| error.code()), Err(Code::InvalidArgument), "{text}");
    }
}

#[test]
fn names_enums_nulls_and_what_is_unknown() {
    let request = read::range(
        br#"{"rangeEnd":"AA==","sortOrder":"DESCEND","sort_target":4,"keysOnly":true,"limit":null,"later":[{"x":"y"}]}"#,
    )
    .unwrap();
    assert_eq!((&request.range_end[..], request.sort_order, request.sort_target), (&b"\0"[..], 2, 4));
    assert!(request.keys_only);
    assert_eq!(request.limit, 0);
    // A name nobody knows is dropped; a number nobody knows is kept for the service to refuse.
    assert_eq!(read::range(br#"{"sort_order":"SIDEWAYS"}"#).unwrap().sort_order, 0);
    assert_eq!(read::range(br#"{"sort_order":9}"#).unwrap().sort_order, 9);
    assert_eq!(read::range(br#"{"sort_order":"1"}"#).unwrap().sort_order, 0);
    assert!(read::range(br#"{"sort_order":1.5}"#).is_err());
    // Escapes in names are names.
    assert_eq!(&read::range(br#"{"\u006bey":"Zm9v"}"#).unwrap().key[..], b"foo");
}

#[test]
fn only_the_first_value_counts_and_none_is_the_empty_message() {
    for text in ["", " \n", "{}", "null", "{} {\"key\":", "{}x"] {
        assert_eq!(read::range(text.as_bytes()), Ok(pb::RangeRequest::default()), "{text}");
    }
}

#[test]
fn what_is_malformed_is_refused_with_its_place() {
    let cases: [(&[u8], &str); 16] = [
        (b"{", "malformed request: unexpected end of input at byte 1"),
        (b"[]", "malformed request: expected an object, found an array at byte 0"),
        (b"x", "malformed request: expected a JSON value at byte 0"),
        (b"{\"key\"}", "malformed request: expected a colon after a field name at byte 6"),
        (b"{\"key\":}", "malformed request: expected a JSON value at byte 7"),
        (b"{\"key\":\"Zm9v\",}", "malformed request: expected a field name in quotes at byte 14"),
        (b"{\"key\":\"Zm9v\" \"x\":1}", "malformed request: expected a comma or the object's end at byte 14"),
        (b"{\"key\":\"Zm9v", "malformed request: unexpected end of input in a string at byte 12"),
        (b"{\"key\":\"***\"}", "malformed request: malformed base64 at byte 7"),
        (b"{\"key\":7}", "malformed request: expected a string, found a number at byte 7"),
        (b"{\"limit\":1.5}", "malformed request: expected an integer (int64) at byte 9"),
        (b"{\"keys_only\":\"true\"}", "malformed request: expected true or false, found a string at byte 13"),
        (b"{\"key\":\"\",\"key\":\"\"}", "malformed request: duplicate field at byte 16"),
        (b"{\"range_end\":\"\",\"rangeEnd\":\"\"}", "malformed request: duplicate field at byte 27"),
        (b"{\"x\":\"\xff\"}", "malformed request: invalid UTF-8 at byte 6"),
        (b"{\"x\":\"\\ud800\"}", "malformed request: half a surrogate pair at byte 6"),
    ];
    for (text, message) in cases {
        let shown = String::from_utf8_lossy(text);
        let error = read::range(text).expect_err(&shown);
        assert_eq!(error.to_string(), message, "{shown}");
        assert_eq!(error.code(), Code::InvalidArgument, "{shown}");
        let generic = generic::read::<pb::RangeRequest>(text);
        assert_eq!(generic, Err(error), "{shown}");
    }
}

#[test]
fn a_oneof_is_given_once() {
    for text in [r#"{"compare":[{"version":1,"value":""}]}"#, r#"{"success":[{"request_put":{},"requestRange":{}}]}"#] {
        assert!(read::txn(text.as_bytes()).is_err(), "{text}");
    }
    let null_does_not_count = r#"{"compare":[{"version":null,"value":"AA=="}]}"#;
    assert!(read::txn(null_does_not_count.as_bytes()).is_ok());
}

#[test]
fn depth_is_bounded_and_what_passes_can_be_stored() {
    use prost_reflect::prost::Message;

    let nested = |levels: usize| {
        let open = r#"{"success":[{"request_txn":"#.repeat(levels);
        format!("{open}{{}}{}", "}]}".repeat(levels))
    };
    let deepest = usize::try_from(DEPTH_MAX_LEVELS).unwrap() / 3 - 1;
    let request = read::txn(nested(deepest).as_bytes()).unwrap();
    assert_eq!(pb::TxnRequest::decode(&request.encode_to_vec()[..]), Ok(request));
    assert!(read::txn(nested(deepest + 1).as_bytes()).is_err());
    let brackets = format!("{{\"x\":{}", "[".repeat(1_000_000));
    assert!(read::txn(brackets.as_bytes()).is_err());
}
