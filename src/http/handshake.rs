//! How a request becomes a WebSocket: an upgrade over HTTP/1.1 (RFC 6455, 4.2), an extended CONNECT over HTTP/2 (RFC 8441).
//! Knows nothing of what the socket is for.

use hyper::{
    HeaderMap, Method, Response, StatusCode, Version,
    ext::Protocol,
    header::{
        AsHeaderName, CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    http::request::Parts,
    upgrade::OnUpgrade,
};
use sha1::{Digest as _, Sha1};

use super::reply::{Body, Reply};
use crate::error::ApiError;

/// What a server appends to a client's key to show that it knows this protocol.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The version of the protocol.
const VERSION: &str = "13";
const WEBSOCKET: &str = "websocket";

/// A request that can become a socket.
#[derive(Debug)]
pub(super) struct Handshake {
    key: Option<HeaderValue>,
    protocol: Option<&'static str>,
    on_upgrade: OnUpgrade,
}

impl Handshake {
    /// Looks at a request. Of the subprotocols that the client offers, `protocol` is taken.
    ///
    /// # Errors
    /// [`ApiError::Malformed`]: what is missing or wrong.
    pub(super) fn of(parts: &mut Parts, protocol: &'static str) -> Result<Handshake, ApiError> {
        let refused = |what: &str| Err(ApiError::Malformed(format!("not a WebSocket request: {what}")));
        let headers = &parts.headers;
        let key = if parts.version <= Version::HTTP_11 {
            if parts.method != Method::GET {
                return refused("its method is not GET");
            }
            if !names(headers, CONNECTION, "upgrade") || !names(headers, UPGRADE, WEBSOCKET) {
                return refused("it needs `Connection: upgrade` and `Upgrade: websocket`");
            }
            match headers.get(SEC_WEBSOCKET_KEY) {
                Some(key) => Some(key.clone()),
                None => return refused("it has no `Sec-WebSocket-Key`"),
            }
        } else {
            let asked = parts.extensions.get::<Protocol>();
            if parts.method != Method::CONNECT || asked.is_none_or(|asked| asked.as_str() != WEBSOCKET) {
                return refused("over HTTP/2 it must be CONNECT with `:protocol` websocket");
            }
            None
        };
        if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
            return refused("its `Sec-WebSocket-Version` is not 13");
        }
        let protocol = names(headers, SEC_WEBSOCKET_PROTOCOL, protocol).then_some(protocol);
        match parts.extensions.remove::<OnUpgrade>() {
            Some(on_upgrade) => Ok(Handshake { key, protocol, on_upgrade }),
            None => refused("its connection cannot be upgraded"),
        }
    }

    /// The answer, and what comes of the connection once it is sent.
    pub(super) fn accept(self) -> (Reply, OnUpgrade) {
        let mut reply = Response::new(Body::empty());
        if let Some(key) = self.key {
            *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
            reply.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, proof(key.as_bytes()));
        }
        if let Some(protocol) = self.protocol {
            reply.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        (reply, self.on_upgrade)
    }
}

/// Whether a header's list has a word in it, in any case of letters.
fn names(headers: &HeaderMap, header: impl AsHeaderName, word: &str) -> bool {
    let words = headers.get_all(header).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.map(<[u8]>::trim_ascii).any(|found| found.eq_ignore_ascii_case(word.as_bytes()))
}

fn proof(key: &[u8]) -> HeaderValue {
    let digest = Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize();
    let text = base64_simd::STANDARD.encode_to_string(digest);
    HeaderValue::try_from(text).expect("base64 has no character that a header may not have")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, 1.3.
    #[test]
    fn the_proof_is_that_of_the_standard() {
        assert_eq!(proof(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "AAAA"),
        ];
        let said = |method: Method, left_out: &str| {
            let mut request = hyper::Request::builder().method(method);
            for (name, value) in whole.iter().filter(|(name, _)| *name != left_out) {
                request = request.header(*name, *value);
            }
            let (mut parts, ()) = request.body(()).expect("it is well formed").into_parts();
            Handshake::of(&mut parts, "Bearer").expect_err("nothing can be upgraded here").to_string()
        };
        assert!(said(Method::GET, "").contains("cannot be upgraded"));
        assert!(said(Method::POST, "").contains("GET"));
        assert!(said(Method::GET, "connection").contains("`Connection: upgrade`"));
        assert!(said(Method::GET, "upgrade").contains("`Upgrade: websocket`"));
        assert!(said(Method::GET, "sec-websocket-version").contains("13"));
        assert!(said(Method::GET, "sec-websocket-key").contains("Key"));
        assert!(said(Method::CONNECT, "").contains("GET"));
    }
}
