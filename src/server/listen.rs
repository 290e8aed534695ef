//! The listeners, for clients and for metrics alone.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use crate::config::{Config, ListenUrl};

use super::error::ServerError;

/// Binds every listener that `flag` asks for.
pub(super) fn bind(urls: &[ListenUrl], flag: &'static str) -> Result<Vec<TcpListener>, ServerError> {
    urls.iter()
        .map(|url| bind_one(url).map_err(|source| ServerError::Listen { url: url.url.clone(), flag, source }))
        .collect()
}

fn bind_one(url: &ListenUrl) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(url.address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What clients are told to connect to: as configured, else where the listeners are. A listener on all addresses is told
/// as localhost, for want of a better name.
pub(super) fn advertised_urls(config: &Config, listeners: &[TcpListener]) -> Result<Vec<String>, ServerError> {
    if !config.advertise_client_urls.is_empty() {
        return Ok(config.advertise_client_urls.clone());
    }
    let url = |(listener, url): (&TcpListener, &ListenUrl)| {
        let failed = |source| ServerError::Listen { url: url.url.clone(), flag: "--listen-client-urls", source };
        let address = listener.local_addr().map_err(failed)?;
        let unspecified = address.ip().is_unspecified();
        let host = if unspecified { format!("localhost:{}", address.port()) } else { address.to_string() };
        Ok(format!("{}://{host}", scheme(url.is_tls())))
    };
    listeners.iter().zip(&config.listen_client_urls).map(url).collect()
}

/// Listeners as URLs.
pub(super) fn urls(addresses: &[SocketAddr], is_tls: &[bool]) -> Vec<String> {
    addresses.iter().zip(is_tls).map(|(address, is_tls)| format!("{}://{address}", scheme(*is_tls))).collect()
}

/// The scheme of a listener's URLs.
fn scheme(is_tls: bool) -> &'static str {
    if is_tls { "https" } else { "http" }
}
