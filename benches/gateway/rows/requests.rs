//! Requests for single keys, and the keys they are for.

use crate::options::Options;

/// Keys that are put, got and compared.
pub(super) const KEYS: usize = 1_000;

pub(super) const PUT: &str = "/v3/kv/put";
pub(super) const RANGE: &str = "/v3/kv/range";

pub(super) fn put(key: &str, value: &str) -> String {
    format!(r#"{{"key":"{key}","value":"{value}"}}"#)
}

pub(super) fn get(key: &str, _: &str) -> String {
    format!(r#"{{"key":"{key}"}}"#)
}

/// The key of a number, in base64.
pub(super) fn key(number: usize) -> String {
    base64_simd::STANDARD.encode_to_string(format!("bench/{number:04}"))
}

pub(super) fn value(options: &Options) -> String {
    base64_simd::STANDARD.encode_to_string(vec![b'v'; options.value_bytes()])
}
