//! Who asks: what a request's headers and its connection tell of the client.
//!
//! etcd's gateway passes `Authorization` and every `Grpc-Metadata-<name>` on to its RPCs, which look for the names `token`
//! and then `authorization`. Browsers, which can set neither on a WebSocket, hand their token over as a subprotocol or as a
//! cookie.

use hyper::header::{COOKIE, HeaderMap, SEC_WEBSOCKET_PROTOCOL};

use crate::service::Caller;

/// The scheme a token may come with. etcd's own clients send the token alone.
const BEARER_PREFIX: &str = "Bearer ";
/// The subprotocol that stands before a token; it is echoed.
pub(super) const TOKEN_PROTOCOL: &str = "Bearer";
/// The cookie a token may be in.
const TOKEN_COOKIE: &str = "token";
/// Where a token may be, by preference.
const TOKEN_HEADERS: [&str; 3] = ["grpc-metadata-token", "authorization", "grpc-metadata-authorization"];
/// Set to `true` by a client that would rather have an error than wait for a leader.
const LEADER_HEADER: &str = "grpc-metadata-hasleader";

/// The caller behind a request, on a connection made with the certificate of `certificate_name`.
pub(super) fn of_request(headers: &HeaderMap, certificate_name: Option<&str>) -> Caller {
    // One that cannot be read is a bad one, not none: its client did not mean to come without.
    let token =
        TOKEN_HEADERS.iter().find_map(|name| headers.get(*name)).map(|value| value.to_str().unwrap_or_default());
    caller(token, certificate_name)
}

/// The caller behind a WebSocket: a cookie wins over a subprotocol, and either over what else there is.
pub(super) fn of_socket(headers: &HeaderMap, certificate_name: Option<&str>) -> Caller {
    match token_cookie(headers).or_else(|| token_protocol(headers)) {
        Some(token) => caller(Some(token), certificate_name),
        None => of_request(headers, certificate_name),
    }
}

/// Whether a client would rather have an error than wait for a leader.
pub(super) fn requires_leader(headers: &HeaderMap) -> bool {
    headers.get(LEADER_HEADER).is_some_and(|value| value == "true")
}

fn caller(token: Option<&str>, certificate_name: Option<&str>) -> Caller {
    let token = token.map(|token| token.strip_prefix(BEARER_PREFIX).unwrap_or(token).trim().to_owned());
    Caller::new(token, certificate_name.map(str::to_owned))
}

fn token_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, token) = pairs.find(|(name, _)| name.trim() == TOKEN_COOKIE)?;
    let token = token.trim();
    Some(token.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"')).unwrap_or(token))
}

/// The subprotocol after `Bearer`.
fn token_protocol(headers: &HeaderMap) -> Option<&str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut protocols = lists.flat_map(|list| list.split(',')).map(str::trim);
    protocols.find(|protocol| *protocol == TOKEN_PROTOCOL)?;
    protocols.next()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn tokens_of_requests() {
        type Row = (&'static [(&'static str, &'static str)], Option<&'static str>);
        let table: [Row; 11] = [
            (&[], None),
            (&[("authorization", "abc.5")], Some("abc.5")),
            (&[("authorization", "Bearer abc.5")], Some("abc.5")),
            (&[("authorization", "Bearer ")], Some("")),
            (&[("authorization", "")], Some("")),
            (&[("grpc-metadata-token", "abc.5")], Some("abc.5")),
            (&[("grpc-metadata-authorization", "abc.5")], Some("abc.5")),
            (&[("grpc-metadata-authorization", "Bearer abc.5")], Some("abc.5")),
            (&[("authorization", "a"), ("grpc-metadata-token", "b")], Some("b")),
            (&[("authorization", "a"), ("grpc-metadata-authorization", "b")], Some("a")),
            // Those two are for sockets.
            (&[("cookie", "token=a"), ("sec-websocket-protocol", "Bearer, b")], None),
        ];
        for (pairs, token) in table {
            assert_eq!(of_request(&headers(pairs), None).token.as_deref(), token, "{pairs:?}");
        }
    }

    #[test]
    fn tokens_of_sockets() {
        type Row = (&'static [(&'static str, &'static str)], Option<&'static str>);
        let table: [Row; 12] = [
            (&[], None),
            (&[("sec-websocket-protocol", "Bearer, abc.5")], Some("abc.5")),
            (&[("sec-websocket-protocol", "Bearer,abc.5")], Some("abc.5")),
            (&[("sec-websocket-protocol", "Bearer"), ("sec-websocket-protocol", "abc.5")], Some("abc.5")),
            (&[("sec-websocket-protocol", "other, Bearer, abc.5")], Some("abc.5")),
            (&[("sec-websocket-protocol", "Bearer")], None),
            (&[("sec-websocket-protocol", "abc.5")], None),
            (&[("cookie", "token=abc.5")], Some("abc.5")),
            (&[("cookie", "a=b; token=\"abc.5\"; c=d")], Some("abc.5")),
            (&[("cookie", "mytoken=abc.5")], None),
            (&[("cookie", "token=a"), ("sec-websocket-protocol", "Bearer, b"), ("authorization", "c")], Some("a")),
            (&[("sec-websocket-protocol", "Bearer, b"), ("authorization", "c")], Some("b")),
        ];
        for (pairs, token) in table {
            assert_eq!(of_socket(&headers(pairs), None).token.as_deref(), token, "{pairs:?}");
        }
        assert_eq!(of_socket(&headers(&[("authorization", "c")]), None).token.as_deref(), Some("c"));
    }

    #[test]
    fn a_certificate_names_its_client() {
        for of in [of_request, of_socket] {
            let caller = of(&headers(&[("authorization", "a")]), Some("alice"));
            assert_eq!((caller.token.as_deref(), caller.certificate_name.as_deref()), (Some("a"), Some("alice")));
        }
    }

    #[test]
    fn who_requires_a_leader() {
        assert!(requires_leader(&headers(&[("grpc-metadata-hasleader", "true")])));
        assert!(!requires_leader(&headers(&[("grpc-metadata-hasleader", "false")])));
        assert!(!requires_leader(&HeaderMap::new()));
    }
}
