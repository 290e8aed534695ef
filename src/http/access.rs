//! Who is let in before anything is looked at: pages by their origin, and requests by the name they call the member by.
//!
//! A page of any site can make a browser that is inside call a member by a name that its owner points here (DNS
//! rebinding). TLS prevents that; without it, a list of names does.

use hyper::{
    HeaderMap, Request, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, HOST, HeaderName,
        HeaderValue, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS,
    },
};

use super::reply::{self, Reply};
use crate::config::{Allowed, Transport};

/// The rules, from the settings.
#[derive(Debug)]
pub(super) struct Access {
    origins: Allowed,
    hosts: Allowed,
    /// Whether the API is served.
    pub(super) gateway: bool,
}

impl Access {
    pub(super) fn new(transport: &Transport) -> Access {
        Access { origins: transport.cors.clone(), hosts: transport.hosts.clone(), gateway: transport.gateway }
    }

    /// The answer to a request that calls the member by a name that is not its own. With TLS, any name will do: the
    /// certificate has told the client whom it speaks to.
    pub(super) fn refuse_host<B>(&self, is_tls: bool, request: &Request<B>) -> Option<Reply> {
        let Allowed::Only(hosts) = &self.hosts else { return None };
        let host = called_by(request);
        if is_tls || hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)) {
            return None;
        }
        let text = format!(
            "this member does not answer to the host name {host:?}.\n\n\
             Either use https, which any name may be used with, or add the name to those it answers to:\n    \
             revgate --host-whitelist {host:?}\n\n\
             This keeps pages of other sites out that point their own name here (DNS rebinding, CVE-2018-5702).\n"
        );
        let mut refusal = reply::text(StatusCode::MISDIRECTED_REQUEST, text);
        refusal.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Some(refusal)
    }

    /// The origin whose pages may read the answer to a request.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        match &self.origins {
            Allowed::Any => Some(HeaderValue::from_static("*")),
            Allowed::Only(origins) => {
                let origin = headers.get(ORIGIN)?;
                origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
            }
        }
    }

    /// Tells browsers whose pages may read an answer.
    pub(super) fn allow(&self, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        const ALLOW: [(HeaderName, &str); 2] = [
            (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "accept, content-type, authorization"),
        ];
        if self.origins != Allowed::Any {
            headers.insert(VARY, HeaderValue::from_static("origin"));
        }
        let Some(origin) = origin else { return };
        for (name, value) in ALLOW {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
}

/// The name in a request, without its port: of HTTP/1.1's header, or of HTTP/2's target.
fn called_by<B>(request: &Request<B>) -> &str {
    let header = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let host = header.or_else(|| request.uri().authority().map(|authority| authority.as_str())).unwrap_or_default();
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => match host.rsplit_once(':') {
            Some((name, _)) if !name.contains(':') => name,
            _ => host,
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn access(cors: &[&str], hosts: &[&str]) -> Access {
        let allowed = |entries: &[&str]| match entries {
            [] => Allowed::Any,
            entries => Allowed::Only(entries.iter().map(|entry| (*entry).to_owned()).collect()),
        };
        Access::new(&Transport { cors: allowed(cors), hosts: allowed(hosts), ..Default::default() })
    }

    fn request(name: HeaderName, value: &str) -> Request<()> {
        Request::builder().header(name, value).body(()).unwrap()
    }

    #[test]
    fn names() {
        let access = access(&[], &["good.example", "127.0.0.1", "::1"]);
        for (host, refused) in [
            ("good.example", false),
            ("good.example:99", false),
            ("Good.Example", false),
            ("127.0.0.1:2379", false),
            ("[::1]:2379", false),
            ("[::1]", false),
            ("::1", false),
            ("", true),
            ("evil.example", true),
            ("good.example.evil.example", true),
            ("good.example@evil.example", true),
            ("[::2]:2379", true),
        ] {
            let answer = access.refuse_host(false, &request(HOST, host));
            assert_eq!(answer.map(|answer| answer.status().as_u16()), refused.then_some(421), "{host}");
            assert!(access.refuse_host(true, &request(HOST, host)).is_none(), "{host} with TLS");
        }
        let http2 = |uri: &str| Request::builder().uri(uri).body(()).unwrap();
        assert!(access.refuse_host(false, &http2("http://good.example:1/v3/kv/put")).is_none());
        assert!(access.refuse_host(false, &http2("http://evil.example/v3/kv/put")).is_some());
        assert!(self::access(&[], &[]).refuse_host(false, &request(HOST, "any.example")).is_none());
    }

    #[test]
    fn origins() {
        let headers_of = |access: &Access, origin: Option<&str>| {
            let request = origin.map_or(Request::new(()), |origin| request(ORIGIN, origin));
            let mut headers = HeaderMap::new();
            access.allow(access.origin(request.headers()), &mut headers);
            let mut told: Vec<String> =
                headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            told.sort();
            told
        };
        let of = |origin: &str| {
            vec![
                "access-control-allow-headers: accept, content-type, authorization".to_owned(),
                "access-control-allow-methods: POST, GET, OPTIONS, PUT, DELETE".to_owned(),
                format!("access-control-allow-origin: {origin}"),
            ]
        };
        let vary = vec!["vary: origin".to_owned()];
        let any = access(&[], &[]);
        assert_eq!(headers_of(&any, None), of("*"));
        assert_eq!(headers_of(&any, Some("http://a.example")), of("*"));
        let some = access(&["http://a.example", "https://b.example:81"], &[]);
        assert_eq!(
            headers_of(&some, Some("https://b.example:81")),
            [of("https://b.example:81"), vary.clone()].concat()
        );
        for origin in [None, Some("http://c.example"), Some("https://a.example"), Some("*"), Some("null")] {
            assert_eq!(headers_of(&some, origin), vary, "{origin:?}");
        }
    }
}
