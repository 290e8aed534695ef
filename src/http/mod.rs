//! Bytes on the wire: the accept loop, TLS, HTTP/1.1, HTTP/2 and WebSocket, etcd's JSON gateway API, health and metrics.
//!
//! A request goes accept → front → one of the call shapes (unary, server stream, stream, socket), each of which turns JSON into the
//! services' messages and back. What comes from outside may be anything: it gets an answer, never a panic, and what a client
//! can make this room hold is bounded.
//!
//! Must never know: what a request means, where data lies, or how members agree.

mod accept;
mod access;
mod aside;
mod caller;
mod client_tls;
mod debug;
mod disconnect;
mod encoding;
mod frames;
mod front;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod handshake;
#[cfg(feature = "instructions")]
#[doc(hidden)]
pub mod instructions;
mod json;
mod limits;
mod meter;
mod openapi;
mod outputs;
mod path;
mod patience;
mod pipeline;
mod range;
mod record;
mod reply;
mod routes;
mod server_stream;
mod side;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod trace;
mod unary;
mod values;
mod workers;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{accept::Listener, front::Front, record::Observer};
pub use self::{
    client_tls::ClientTls,
    tls::{Tls, TlsError},
    trace::{Tracing, TracingError},
    workers::Workers,
};
use crate::{
    config::{RequestLog, Transport},
    metrics::Metrics,
    service::Services,
};

/// Settings of the front.
#[derive(Debug)]
pub struct HttpOptions {
    /// Largest encoded request, in bytes (etcd's max-request-bytes).
    pub request_bytes_max: usize,
    /// Most connections at once.
    pub connections_max: usize,
    /// Who is let in, and to what. Its files are not looked at: `tls` is what came of them.
    pub transport: Transport,
    /// Which calls make a line in the log.
    pub request_log: RequestLog,
    /// Where traces go, if they do.
    pub tracing: Option<Tracing>,
    /// Certificates, for the listeners that need them.
    pub tls: Option<Tls>,
}

/// A listener that is already bound.
#[derive(Debug)]
pub struct HttpListener {
    /// The socket.
    pub socket: std::net::TcpListener,
    /// Whether clients speak TLS here.
    pub is_tls: bool,
    /// What is served here.
    pub serves: Serves,
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Everything, for clients.
    Everything,
    /// Probes, metrics, versions and debug, for operators' tools. Who reaches it needs no user.
    Metrics,
}

/// Most connections at once to the listeners for metrics. They are counted apart: probes get through when clients have
/// taken all connections there are for them.
const METRICS_CONNECTIONS_MAX: usize = 64;

/// The running front.
#[derive(Debug)]
pub struct HttpServer {
    addresses: Vec<SocketAddr>,
    metrics_addresses: Vec<SocketAddr>,
    front: Arc<Front>,
    accepting: CancellationToken,
    /// Dropped without a drain, nobody is let in any more either.
    _closes: DropGuard,
    workers: Workers,
}

impl HttpServer {
    /// Serves on listeners that are already bound (so that "address in use" is known before anything is opened). To be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// A listener that cannot be used, or needs certificates that are not there.
    pub fn start(
        listeners: Vec<HttpListener>,
        options: HttpOptions,
        services: Services,
        metrics: Metrics,
    ) -> io::Result<HttpServer> {
        let tls = options.tls.map(Arc::new);
        let (mut addresses, mut metrics_addresses) = (Vec::new(), Vec::new());
        let mut bound = Vec::new();
        for HttpListener { socket, is_tls, serves } in listeners {
            let tls = if is_tls {
                let missing = || io::Error::new(io::ErrorKind::InvalidInput, "TLS needs a certificate and its key");
                Some(tls.clone().ok_or_else(missing)?)
            } else {
                None
            };
            match serves {
                Serves::Everything => addresses.push(socket.local_addr()?),
                Serves::Metrics => metrics_addresses.push(socket.local_addr()?),
            }
            socket.set_nonblocking(true)?;
            bound.push(Listener { socket: tokio::net::TcpListener::from_std(socket)?, tls, serves });
        }
        let observer = Observer::new(&options.request_log, options.tracing);
        let front = Front::new(services, metrics, options.request_bytes_max, &options.transport, observer)?;
        let front = Arc::new(front);
        let of_clients = Arc::new(Semaphore::new(options.connections_max.min(Semaphore::MAX_PERMITS)));
        let of_metrics = Arc::new(Semaphore::new(METRICS_CONNECTIONS_MAX));
        let accepting = CancellationToken::new();
        let workers = Workers::start()?;
        for listener in bound {
            let connections = match listener.serves {
                Serves::Everything => &of_clients,
                Serves::Metrics => &of_metrics,
            };
            let (connections, accepting) = (Arc::clone(connections), accepting.clone());
            front.tasks.spawn(accept::accept(listener, Arc::clone(&front), connections, workers.places(), accepting));
        }
        let closes = accepting.clone().drop_guard();
        Ok(HttpServer { addresses, metrics_addresses, front, accepting, _closes: closes, workers })
    }

    /// Where it listens for clients (port 0 resolved).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it serves metrics alone (port 0 resolved).
    pub fn metrics_addresses(&self) -> &[SocketAddr] {
        &self.metrics_addresses
    }

    /// Stops accepting, lets requests in flight finish, and ends streams cleanly (close frames, last chunk): watches once they
    /// have delivered everything that was acknowledged. What is still there after `within` is cut off.
    ///
    /// Returns the threads: what clients began may still have to be undone on them, and ends when they are dropped.
    pub async fn drain(self, within: Duration) -> Workers {
        self.accepting.cancel();
        self.front.going_down.cancel();
        self.front.calls.close();
        self.front.tasks.close();
        let ended = async {
            self.front.calls.wait().await;
            self.front.watches_end.cancel();
            self.front.tasks.wait().await;
        };
        if tokio::time::timeout(within, ended).await.is_err() {
            tracing::warn!(connections = self.front.metrics.http_connections.get(), "connections did not end in time");
            self.front.abort.cancel();
            self.front.tasks.wait().await;
        }
        self.front.observer.stop().await;
        self.workers
    }
}
