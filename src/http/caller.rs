//! Who asks: what a request's headers and its connection tell of the client.

use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::service::Caller;

/// The scheme a token may come with. etcd's own clients send the token alone.
const BEARER_PREFIX: &str = "Bearer ";

/// The caller behind a request.
pub(super) fn of_request(headers: &HeaderMap) -> Caller {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(without_scheme);
    Caller { token, certificate_name: None }
}

fn without_scheme(value: &str) -> String {
    value.strip_prefix(BEARER_PREFIX).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_token_comes_alone_or_with_its_scheme() {
        assert_eq!(of_request(&HeaderMap::new()), Caller::default());
        for value in ["abc.5", "Bearer abc.5"] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            assert_eq!(of_request(&headers).token.as_deref(), Some("abc.5"));
        }
    }
}
