//! What a request's headers tell of the client and its deadline.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| revgate::http::fuzz::headers(data));
