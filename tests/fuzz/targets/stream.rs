//! Streams of requests, over HTTP or in a socket's messages: the same requests, however the bytes are cut.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| revgate::http::fuzz::request_stream(data));
