//! Doors for the fuzz targets, and only for them: what the parsers of this room promise of any bytes, as functions that
//! panic when a promise is broken.

use std::{fmt::Debug, sync::Arc, time::Duration};

use hyper::{HeaderMap, header::HeaderValue};
use prost_reflect::{
    DescriptorPool, MessageDescriptor,
    prost::{Message, Name},
};

use super::{
    caller,
    json::{generic, read, split::Splitter},
    limits,
};
use crate::{
    auth::JwtTokens,
    clock::SystemClock,
    error::{ApiError, Code},
    proto::DESCRIPTORS,
};

/// The fast readers come to the generic one's verdict; any message that is read is the same after it was written and read
/// again. The first byte picks the message for the second.
pub fn request_body(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    same_verdict(text, read::range);
    same_verdict(text, read::put);
    same_verdict(text, read::delete_range);
    same_verdict(text, read::txn);
    same_verdict(text, read::watch);
    same_verdict(text, read::keep_alive);
    thread_local! {
        static REQUESTS: Vec<MessageDescriptor> = requests();
    }
    REQUESTS.with(|requests| survives(&requests[usize::from(*choice) % requests.len()], text));
}

/// What every method of the schema is asked.
fn requests() -> Vec<MessageDescriptor> {
    let pool = DescriptorPool::decode(DESCRIPTORS).expect("the descriptor set was made by our own build");
    pool.services().flat_map(|service| service.methods().map(|method| method.input()).collect::<Vec<_>>()).collect()
}

fn same_verdict<T>(text: &[u8], fast: fn(&[u8]) -> Result<T, ApiError>)
where
    T: Message + Name + Default + PartialEq + Debug,
{
    let (fast, generic) = (fast(text), generic::read::<T>(text));
    assert_eq!(fast, generic, "{}", String::from_utf8_lossy(text));
    let Ok(message) = fast else { return };
    let mut written = Vec::new();
    generic::write(&message, &mut written).expect("what was read can be written");
    assert_eq!(generic::read::<T>(&written), Ok(message), "{}", String::from_utf8_lossy(&written));
}

fn survives(descriptor: &MessageDescriptor, text: &[u8]) {
    let Ok(message) = generic::read_by(descriptor, text) else { return };
    let (mut written, mut again) = (Vec::new(), Vec::new());
    generic::write_message(&message, &mut written);
    let read = generic::read_by(descriptor, &written).expect("what was written can be read");
    // Compared as written: a zero that was read and one that was never set are two things to prost-reflect.
    generic::write_message(&read, &mut again);
    assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&written));
}

/// A stream gives the same requests, up to the same refusal, however its bytes are cut. The first byte says how they are, and
/// whether the limit of a value is small.
pub fn request_stream(data: &[u8]) {
    let Some((how, stream)) = data.split_first() else { return };
    let bytes_max = if how & 1 == 0 { 32 } else { 1 << 20 };
    let mut pieces = Vec::new();
    let (mut rest, mut step) = (stream, usize::from(*how) + 1);
    while !rest.is_empty() {
        step = (step * 5 + 3) % 17;
        let (piece, after) = rest.split_at(step.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    let (whole, cut) = (values(&[stream], bytes_max), values(&pieces, bytes_max));
    assert_eq!(whole, cut, "{}", String::from_utf8_lossy(stream));
    for value in &whole.0 {
        same_verdict(value, read::watch);
        same_verdict(value, read::keep_alive);
    }
}

/// The values of a stream, and why there are no more.
fn values(pieces: &[&[u8]], bytes_max: usize) -> (Vec<Vec<u8>>, Option<Code>) {
    let mut splitter = Splitter::new(bytes_max);
    let mut values = Vec::new();
    for (piece, ended) in pieces.iter().map(|piece| (*piece, false)).chain([(&[][..], true)]) {
        splitter.push(piece);
        loop {
            match splitter.next_value(ended) {
                Ok(Some(value)) => values.push(value.to_vec()),
                Ok(None) => break,
                Err(error) => return (values, Some(error.code())),
            }
        }
    }
    (values, None)
}

/// A token is a part of what was sent, whichever header it came in, and as a JWT it stands for nobody who did not have the
/// key; a deadline is one or is refused. Header values are separated by line ends.
pub fn headers(data: &[u8]) {
    thread_local! {
        static TOKENS: JwtTokens = JwtTokens::new(
            Arc::new(SystemClock::new()), "HS256", None, Some(b"a secret of the fuzz targets' own"), Duration::from_secs(60),
        ).expect("a secret of any length will do");
    }
    let names = ["authorization", "grpc-timeout", "cookie", "sec-websocket-protocol", "grpc-metadata-token"];
    let mut headers = HeaderMap::new();
    for (name, value) in names.into_iter().zip(data.split(|byte| *byte == b'\n')) {
        if let Ok(value) = HeaderValue::from_bytes(value)
            && !value.is_empty()
        {
            headers.insert(name, value);
        }
    }
    for caller in [caller::of_request(&headers, None), caller::of_socket(&headers, None)] {
        let Some(token) = caller.token else { continue };
        // An empty one is a bad one: what was sent cannot be read.
        assert_eq!(token, token.trim());
        let sent =
            token.is_empty() || headers.values().any(|value| value.to_str().is_ok_and(|value| value.contains(&token)));
        assert!(sent, "{token:?} of {headers:?}");
        TOKENS.with(|tokens| assert!(tokens.identify_any(&token).is_err(), "{token:?}"));
    }
    match limits::client_timeout(&headers) {
        // None at all, or zero, is none.
        Ok(timeout) => assert!(timeout.is_none() || headers.contains_key("grpc-timeout")),
        Err(error) => assert_eq!(error.code(), Code::InvalidArgument),
    }
}
