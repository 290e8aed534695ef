//! Addresses of members as clients give them: `http://host:port`, or a Unix socket's, and nothing behind it.

use crate::error::ApiError;

/// The addresses, checked and without blanks around them; at least one.
pub(super) fn checked(urls: &[String]) -> Result<Vec<String>, ApiError> {
    let trimmed: Vec<String> = urls.iter().map(|url| url.trim().to_owned()).collect();
    if trimmed.is_empty() || !trimmed.iter().all(|url| is_address(url)) {
        return Err(ApiError::MemberUrlsInvalid);
    }
    Ok(trimmed)
}

fn is_address(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    if url.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => is_host_and_port(rest),
        "unix" | "unixs" => true,
        _ => false,
    }
}

/// `host:port`, with the host of an IPv6 address in brackets. As in etcd, either may be empty.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_is_plain = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']').is_some_and(|host| !host.contains(['[', ']', '/'])),
        None => !host.contains([':', '/', '?', '#', '[', ']']),
    };
    host_is_plain && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(urls: &[&str]) -> Result<Vec<String>, ApiError> {
        checked(&urls.iter().map(|&url| url.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn addresses_are_taken_and_trimmed() {
        assert_eq!(
            check(&[" http://b:1", "http://[::1]:2380"]),
            Ok(vec!["http://b:1".into(), "http://[::1]:2380".into()])
        );
        for good in ["https://10.0.0.1:2380", "unix://abc:7", "unixs://x", "HTTP://a:1", "http://:2380"] {
            assert_eq!(check(&[good]), Ok(vec![good.to_owned()]));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(check(&[]), Err(ApiError::MemberUrlsInvalid));
        for bad in [
            "",
            "abc",
            "http://x",
            "http://127.0.0.1:80/a",
            "http://127.0.0.1:80/",
            "ftp://127.0.0.1:80",
            "http://a:b",
            "127.0.0.1:2380",
            "http://::1:2380",
            "http://a b:1",
        ] {
            assert_eq!(check(&["http://good:1", bad]), Err(ApiError::MemberUrlsInvalid), "{bad:?}");
        }
    }
}
