//! Request bodies: both readers come to the same verdict, and what is read survives being written and read again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| revgate::http::fuzz::request_body(data));
