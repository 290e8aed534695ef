//! The path of a request as the original's router sees it: percent-decoded, old names made new, and clean.
//!
//! A client whose base URL ends in a slash asks for `//v3/…`; like the original we send it to the clean path. Knows no route.

use std::{borrow::Cow, fmt::Write as _};

use hyper::Uri;

use super::routes::current_path;

/// Characters of a path that need no encoding, besides letters and digits.
const PLAIN: &[u8] = b"-._~/!$&'()*+,;=:@";

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// To this path.
    Here(Cow<'a, str>),
    /// Nowhere: the client is to ask again at this location.
    Elsewhere(String),
    /// The path's percent-encoding is broken.
    Malformed,
}

/// Where a request for `uri` goes.
pub(super) fn place(uri: &Uri) -> Place<'_> {
    let path = uri.path();
    let decoded = if path.contains('%') {
        match decoded(path) {
            Some(decoded) => Cow::Owned(decoded),
            None => return Place::Malformed,
        }
    } else {
        Cow::Borrowed(path)
    };
    let current = match current_path(&decoded) {
        Cow::Owned(current) => Cow::Owned(current),
        Cow::Borrowed(_) => decoded,
    };
    if is_clean(&current) { Place::Here(current) } else { Place::Elsewhere(location(&clean(&current), uri.query())) }
}

fn is_clean(path: &str) -> bool {
    path.starts_with('/')
        && path != "/v3"
        && !path.contains("//")
        && !path.split('/').any(|step| step == "." || step == "..")
}

fn clean(path: &str) -> String {
    let mut steps = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            _ => steps.push(step),
        }
    }
    let mut clean = format!("/{}", steps.join("/"));
    // The API's root is a directory.
    if (path.ends_with('/') || clean == "/v3") && clean != "/" {
        clean.push('/');
    }
    clean
}

fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = after else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = after;
    }
    // No path of ours is anything but ASCII, so what is lost here is nowhere to be found anyway.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn location(path: &str, query: Option<&str>) -> String {
    let mut location = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) {
            location.push(char::from(byte));
        } else {
            write!(location, "%{byte:02X}").expect("a string takes whatever is written");
        }
    }
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }
    location
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn here(path: &str) -> Place<'_> {
        Place::Here(path.into())
    }

    fn placed(uri: &str) -> Place<'static> {
        match place(&uri.parse().unwrap()) {
            Place::Here(path) => Place::Here(path.into_owned().into()),
            Place::Elsewhere(location) => Place::Elsewhere(location),
            Place::Malformed => Place::Malformed,
        }
    }

    #[test]
    fn paths_are_decoded_and_old_names_made_new() {
        assert_eq!(placed("/v3/kv/range?x=1"), here("/v3/kv/range"));
        assert_eq!(placed("/v3/kv/%72ange"), here("/v3/kv/range"));
        assert_eq!(placed("/v3/kv%2frange"), here("/v3/kv/range"));
        assert_eq!(placed("/v3beta/kv/range"), here("/v3/kv/range"));
        assert_eq!(placed("/v3/kv/range/"), here("/v3/kv/range/"));
        assert_eq!(placed("/"), here("/"));
        assert_eq!(placed("/v3/a...b"), here("/v3/a...b"));
        assert_eq!(placed("/v3/kv/%zz"), Place::Malformed);
        assert_eq!(placed("/v3/kv/%7"), Place::Malformed);
    }

    #[test]
    fn a_path_that_is_not_clean_leads_to_the_clean_one() {
        let elsewhere = |location: &str| Place::Elsewhere(location.into());
        assert_eq!(placed("//v3/kv/range"), elsewhere("/v3/kv/range"));
        assert_eq!(placed("/v3//kv/range?a=b"), elsewhere("/v3/kv/range?a=b"));
        assert_eq!(placed("/v3/kv/../kv/./range"), elsewhere("/v3/kv/range"));
        assert_eq!(placed("/../../version"), elsewhere("/version"));
        assert_eq!(placed("/v3/kv/.."), elsewhere("/v3/"));
        assert_eq!(placed("/v3"), elsewhere("/v3/"));
        assert_eq!(placed("/v3/kv//"), elsewhere("/v3/kv/"));
        assert_eq!(placed("//%0d%0aa b".replace(' ', "%20").as_str()), elsewhere("/%0D%0Aa%20b"));
    }
}
