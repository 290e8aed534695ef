//! The way to the collector: one HTTP/1.1 request on a connection of its own, by TLS where its URL asks for it.
//!
//! The library that batches spans brings no client of its own that goes without a second TLS stack; this one is made of
//! what speaks to clients already. It runs on the member's runtime, while the library's thread waits for it.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response, Uri,
    client::conn::http1,
    header::{CONNECTION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
};

use crate::http::client_tls::ClientTls;

/// Longest answer of a collector that is looked at.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Sends requests to a collector.
#[derive(Debug)]
pub(super) struct Collector {
    tls: Option<ClientTls>,
    within: Duration,
    runtime: Handle,
    /// Whether the last request was answered well: a collector that is gone makes one line in the log, not one for each
    /// batch.
    is_well: AtomicBool,
}

impl Collector {
    /// To be called within a tokio runtime.
    pub(super) fn new(tls: Option<ClientTls>, within: Duration) -> Collector {
        Collector { tls, within, runtime: Handle::current(), is_well: AtomicBool::new(true) }
    }

    fn note(&self, outcome: &Result<Response<Bytes>, HttpError>) {
        let problem = match outcome {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("status {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_well = self.is_well.swap(problem.is_none(), Ordering::Relaxed);
        match problem {
            Some(problem) if was_well => tracing::warn!(problem, "the collector takes no traces; they are dropped"),
            None if !was_well => tracing::info!("the collector takes traces again"),
            _ => {}
        }
    }
}

impl HttpClient for Collector {
    // As the trait's macro would write it.
    fn send_bytes<'a, 'future>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'future>>
    where
        'a: 'future,
        Self: 'future,
    {
        let (tls, within) = (self.tls.clone(), self.within);
        let sending = self.runtime.spawn(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {within:?}"));
            tokio::time::timeout(within, send(tls, request)).await.map_err(|_| late())?
        });
        Box::pin(async move {
            let outcome = match sending.await {
                Ok(outcome) => outcome,
                // The runtime is going away.
                Err(error) => Err(error.into()),
            };
            self.note(&outcome);
            outcome
        })
    }
}

async fn send(tls: Option<ClientTls>, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let uri = std::mem::take(request.uri_mut());
    let host = uri.host().ok_or("a URL without a host")?.to_owned();
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { HTTPS_PORT } else { HTTP_PORT });
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(uri.authority().map_or(&host, |authority| authority.as_str()))?);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    *request.uri_mut() = uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    match (is_tls, tls) {
        (false, _) => exchange(stream, request).await,
        (true, Some(tls)) => exchange(tls.connect(&host, stream).await?, request).await,
        (true, None) => Err("https needs the file of the authorities that are trusted".into()),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let (head, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok::<_, HttpError>(Response::from_parts(head, body))
    };
    // The connection is driven until the answer is there, and goes with it.
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => {
            ended?;
            answer.await
        }
    }
}
