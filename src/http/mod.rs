//! Bytes on the wire: the accept loop, HTTP/1.1, HTTP/2 and WebSocket, etcd's JSON gateway API, health and metrics.
//!
//! A request goes accept → front → one of three call shapes (unary, stream, socket), each of which turns JSON into the
//! services' messages and back. What comes from outside may be anything: it gets an answer, never a panic, and what a client
//! can make this room hold is bounded.
//!
//! Must never know: what a request means, where data lies, or how members agree.

mod accept;
mod caller;
mod front;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod json;
mod limits;
mod meter;
mod openapi;
mod outputs;
mod reply;
mod routes;
mod side;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod unary;
mod values;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::front::Front;
use crate::{metrics::Metrics, service::Services};

/// Settings of the front.
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
    addresses: Vec<SocketAddr>,
    front: Arc<Front>,
    accepting: CancellationToken,
}

impl HttpServer {
    /// Serves on listeners that are already bound (so that "address in use" is known before anything is opened). To be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// A listener that cannot be used.
    pub fn start(
        listeners: Vec<std::net::TcpListener>,
        options: HttpOptions,
        services: Services,
        metrics: Metrics,
    ) -> io::Result<HttpServer> {
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let listeners = listeners
            .into_iter()
            .map(|listener| {
                listener.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(listener)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let front = Arc::new(Front::new(services, metrics, options.request_bytes_max));
        let connections = Arc::new(Semaphore::new(options.connections_max.min(Semaphore::MAX_PERMITS)));
        let accepting = CancellationToken::new();
        for listener in listeners {
            let accepting = accepting.clone();
            front.tasks.spawn(accept::accept(listener, Arc::clone(&front), Arc::clone(&connections), accepting));
        }
        Ok(HttpServer { addresses, front, accepting })
    }

    /// Where it listens (port 0 resolved).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops accepting, ends streams cleanly (close frames, last chunk), lets requests in flight finish, at most `within`;
    /// what is still there then is cut off.
    pub async fn drain(self, within: Duration) {
        self.accepting.cancel();
        self.front.going_down.cancel();
        self.front.tasks.close();
        if tokio::time::timeout(within, self.front.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.front.metrics.http_connections.get(), "connections did not end in time");
            self.front.abort.cancel();
            self.front.tasks.wait().await;
        }
    }
}
