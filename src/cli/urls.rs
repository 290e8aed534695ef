//! Addresses as flags write them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::ListenUrl;

/// Most URLs of one flag.
const URLS_MAX: usize = 64;

/// Splits a list at its commas and checks that each is a URL of a scheme we speak.
pub(super) fn url_list(text: &str) -> Result<Vec<String>, String> {
    let urls: Vec<String> = text.split(',').map(|url| url.trim().to_owned()).collect();
    if urls.len() > URLS_MAX {
        return Err(format!("at most {URLS_MAX} URLs are allowed"));
    }
    for url in &urls {
        authority(url)?;
    }
    Ok(urls)
}

/// The listeners a list of URLs asks for.
pub(super) fn listen_urls(text: &str) -> Result<Vec<ListenUrl>, String> {
    let urls = url_list(text)?;
    urls.into_iter().map(|url| Ok(ListenUrl { address: listen_address(&url)?, url })).collect()
}

/// Where a URL asks to listen: an IP address, or localhost.
fn listen_address(url: &str) -> Result<SocketAddr, String> {
    let authority = authority(url)?;
    if let Ok(address) = authority.parse() {
        return Ok(address);
    }
    let port = authority.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| {
        format!("{url}: expected http://ADDRESS:PORT or https://ADDRESS:PORT with an IP address or localhost, e.g. http://127.0.0.1:2379")
    })?;
    Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

/// The host and port of an http or https URL. There must be a port and no path.
pub(super) fn authority(url: &str) -> Result<&str, String> {
    let authority = match url.split_once("://") {
        Some(("http" | "https", authority)) => authority,
        _ => return Err(format!("{url}: expected a URL such as http://127.0.0.1:2379")),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let has_port =
        authority.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port || authority.contains(['/', '?', '#', '@']) {
        return Err(format!("{url}: expected a URL with a port and without a path, such as http://127.0.0.1:2379"));
    }
    Ok(authority)
}

/// The members of a list of `name=url` pairs; a name may come more than once.
pub(super) fn cluster(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs: Vec<&str> = text.split(',').map(str::trim).collect();
    if pairs.len() > URLS_MAX {
        return Err(format!("at most {URLS_MAX} pairs are allowed"));
    }
    let member = |pair: &&str| match pair.split_once('=') {
        Some((name, url)) if !name.is_empty() => {
            authority(url)?;
            Ok((name.to_owned(), url.to_owned()))
        }
        _ => Err(format!("{pair}: expected NAME=URL, e.g. default=http://localhost:2380")),
    };
    pairs.iter().map(member).collect()
}

/// Checks that a list of `name=url` pairs is about one member only, of this name and with these peer URLs.
pub(super) fn check_cluster_of_one(text: &str, name: &str, peer_urls: &[String]) -> Result<(), String> {
    let members = cluster(text)?;
    if let Some((other, _)) = members.iter().find(|(other, _)| other != name) {
        return Err(if members.iter().any(|(own, _)| own == name) {
            "more than one member: clusters come later; name this member alone".to_owned()
        } else {
            format!("names {other}, but --name is {name}: they must be the same")
        });
    }
    let mut given: Vec<&String> = members.iter().map(|(_, url)| url).collect();
    let mut advertised: Vec<&String> = peer_urls.iter().collect();
    given.sort();
    advertised.sort();
    if given != advertised {
        return Err("its URLs must be those of --initial-advertise-peer-urls".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        let addresses =
            |text: &str| listen_urls(text).map(|urls| urls.iter().map(|url| url.address).collect::<Vec<_>>());
        let address = |text: &str| text.parse::<SocketAddr>().expect("a test's address");
        assert_eq!(addresses("http://127.0.0.1:2379"), Ok(vec![address("127.0.0.1:2379")]));
        assert_eq!(addresses("http://localhost:0/"), Ok(vec![address("127.0.0.1:0")]));
        assert_eq!(
            addresses("http://0.0.0.0:1, http://[::1]:65535"),
            Ok(vec![address("0.0.0.0:1"), address("[::1]:65535")])
        );
        let mixed = listen_urls("http://127.0.0.1:1,https://127.0.0.1:2").expect("two listeners");
        assert_eq!(mixed.iter().map(ListenUrl::is_tls).collect::<Vec<_>>(), [false, true]);
        for (text, expected) in [
            ("127.0.0.1:2379", "expected a URL such as"),
            ("unix:///tmp/socket", "expected a URL such as"),
            ("http://127.0.0.1", "with a port"),
            ("http://127.0.0.1:99999", "with a port"),
            ("http://127.0.0.1:2379/v3", "without a path"),
            ("http://example.com:2379", "with an IP address or localhost"),
            ("", "expected a URL such as"),
            ("http://127.0.0.1:1,", "expected a URL such as"),
        ] {
            let error = addresses(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn advertised_urls_may_have_names_and_tls() {
        assert_eq!(url_list("https://a.example:1,http://b:2").map(|urls| urls.len()), Ok(2));
        assert!(url_list("http://a").is_err());
    }

    #[test]
    fn clusters() {
        let pair = |name: &str, url: &str| (name.to_owned(), url.to_owned());
        assert_eq!(cluster("a=http://h:1"), Ok(vec![pair("a", "http://h:1")]));
        assert_eq!(cluster("a=http://h:1,a=http://h:2").map(|members| members.len()), Ok(2));
        assert!(cluster("http://h:1").is_err());
        assert!(cluster("=http://h:1").is_err());
        assert!(cluster("a=h:1").is_err());
    }
}
