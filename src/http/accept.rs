//! Accepting connections: how many, how patiently, and how they end.
//!
//! At the limit the next connection waits unaccepted. A connection is one task, TLS handshake included; it serves HTTP/1.1 and HTTP/2 by what the client
//! speaks, and ends when the client goes, when its request's head does not come in time, or when the member drains.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;

use super::{
    Serves,
    front::{self, Admission, Connection, Front, Security},
    patience::Patient,
    tls::Tls,
    workers::Places,
};

/// Longest time for a request's head, and for the silence before it; etcd's figure.
const HEAD_READ_MAX: Duration = Duration::from_secs(300);
/// The same where metrics alone are served: there are few connections there, and whoever holds one in silence would keep
/// probes out.
const METRICS_HEAD_READ_MAX: Duration = Duration::from_secs(10);
/// Read and head buffer of one HTTP/1.1 connection.
const HTTP1_BUFFER_BYTES_MAX: usize = 128 * 1024;
/// Requests in flight on one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 1024;
/// How often, in the time a client may be silent, the kernel asks whether it is still there.
const TCP_KEEPALIVE_PROBES_MAX: u32 = 4;
/// The kernel counts these times in seconds, and takes no shorter ones.
const TCP_KEEPALIVE_MIN: Duration = Duration::from_secs(1);
/// First and longest wait after an accept that failed for lack of something (file descriptors, memory).
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where connections come in, and what they are for.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) serves: Serves,
}

/// Accepts on one listener until `closed`.
pub(super) async fn accept(
    Listener { socket, tls, serves }: Listener,
    front: Arc<Front>,
    connections: Arc<Semaphore>,
    places: Places,
    closed: CancellationToken,
) {
    let mut pause = ACCEPT_PAUSE_MIN;
    loop {
        let Some((stream, peer, permit)) = closed.run_until_cancelled(next(&socket, &connections, &mut pause)).await
        else {
            return;
        };
        let prepared = prepare(&stream, front.ping_interval, front.stall_timeout);
        let stream = match prepared.and_then(|()| stream.into_std()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection was gone before it was served");
                continue;
            }
        };
        let (place, thread) = places.take();
        let admission = Admission { _permit: permit, _place: place, peer, serves };
        front.tasks.spawn_on(welcome(stream, tls.clone(), Arc::clone(&front), admission), thread);
    }
}

async fn next(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
    pause: &mut Duration,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let permit = Arc::clone(connections).acquire_owned().await.expect("nobody closes the semaphore");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                *pause = ACCEPT_PAUSE_MIN;
                return (stream, peer, permit);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                // Nothing tells when there will be descriptors or memory again; all that can be done is to try later.
                tracing::warn!(%error, "connections cannot be accepted");
                tokio::time::sleep(*pause).await;
                *pause = (*pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// Whether an accept failed because the client went away first.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Lets the kernel find out clients whose machine is gone: that say nothing, or do not confirm what they are sent.
fn prepare(stream: &TcpStream, ping_interval: Duration, stall_timeout: Duration) -> io::Result<()> {
    use rustix::net::sockopt;

    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ping_interval.max(TCP_KEEPALIVE_MIN))?;
    sockopt::set_tcp_keepintvl(stream, (stall_timeout / TCP_KEEPALIVE_PROBES_MAX).max(TCP_KEEPALIVE_MIN))?;
    sockopt::set_tcp_keepcnt(stream, TCP_KEEPALIVE_PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(stall_timeout.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// Shakes hands where TLS is spoken, and serves.
async fn welcome(stream: std::net::TcpStream, tls: Option<Arc<Tls>>, front: Arc<Front>, admission: Admission) {
    // Here, on its own thread: this is where it is waited for.
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%error, "a connection cannot be waited for"),
    };
    let Some(tls) = tls else {
        serve(stream, Arc::new(Connection::new(front, admission, Security::None))).await;
        return;
    };
    match front.going_down.run_until_cancelled(tls.handshake(stream)).await {
        Some(Ok((stream, certificate_name))) => {
            let security = Security::Tls { certificate_name };
            serve(stream, Arc::new(Connection::new(front, admission, security))).await;
        }
        Some(Err(error)) => tracing::debug!(%error, "a client did not get through the TLS handshake"),
        None => {}
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, connection: Arc<Connection>) {
    let front = connection.front();
    let head_read_max = match connection.serves() {
        Serves::Everything => HEAD_READ_MAX,
        Serves::Metrics => METRICS_HEAD_READ_MAX,
    };
    let stream = Patient::new(stream, front.stall_timeout, connection.stalled().clone());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_read_max)
        .max_buf_size(HTTP1_BUFFER_BYTES_MAX)
        // As etcd writes them: there are clients that look for `Content-Length: ` letter by letter.
        .title_case_headers(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .keep_alive_interval(front.ping_interval)
        .keep_alive_timeout(front.stall_timeout)
        .enable_connect_protocol();
    let requests = service_fn(|request| {
        let answer = front::answer(Arc::clone(&connection), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), requests));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = front.going_down.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                ended = serving.as_mut() => ended,
                () = front.abort.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended with an error");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn a_connection_is_watched_by_the_kernel_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream, Duration::from_secs(30), Duration::from_secs(120)).unwrap();
        assert!(rustix::net::sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(&stream).unwrap(), 120_000);
    }
}
