//! Bytes on the wire. SKELETON: the signatures below are the contract.
#![allow(missing_docs, unused, clippy::all)]

mod json;

use std::{io, net::SocketAddr, time::Duration};

use crate::{metrics::Metrics, service::Services};

#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Largest encoded request, in bytes (etcd's max-request-bytes).
    pub request_bytes_max: usize,
    /// Most connections at once.
    pub connections_max: usize,
}

/// The running front.
#[derive(Debug)]
pub struct HttpServer {
    _p: (),
}

impl HttpServer {
    /// Serves on listeners that are already bound (so that "address in use" is known before anything is opened).
    pub fn start(
        listeners: Vec<std::net::TcpListener>,
        options: HttpOptions,
        services: Services,
        metrics: Metrics,
    ) -> io::Result<HttpServer> {
        todo!()
    }
    /// Where it listens (port 0 resolved).
    pub fn addresses(&self) -> &[SocketAddr] {
        todo!()
    }
    /// Stops accepting, ends streams cleanly (close frames, last chunk), lets requests in flight finish, at most `within`.
    pub async fn drain(self, within: Duration) {
        todo!()
    }
}
