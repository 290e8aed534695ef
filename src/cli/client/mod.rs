//! A client of one member's HTTP interface, for commands: one request to a connection.

mod error;

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use crate::http::ClientTls;

pub(super) use self::error::{ClientError, StatusBody};
use super::{duration::parse_duration, urls};

/// Longest answer that is read whole.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Which member to ask, and as whom.
#[derive(Args, Clone, Debug)]
pub(super) struct ClientFlags {
    /// The member to ask: an http or https URL with a port.
    #[arg(long, env = "REVGATE_ENDPOINT", value_name = "URL", default_value = "http://127.0.0.1:2379")]
    endpoint: String,

    /// A user, as NAME:PASSWORD, or NAME with --password.
    #[arg(long, env = "REVGATE_USER", value_name = "NAME[:PASSWORD]", hide_env_values = true)]
    user: Option<String>,

    /// The user's password.
    #[arg(long, env = "REVGATE_PASSWORD", value_name = "PASSWORD", hide_env_values = true, requires = "user")]
    password: Option<String>,

    /// PEM file with the authorities of https members' certificates.
    #[arg(long, env = "REVGATE_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// PEM file with a certificate to show to https members.
    #[arg(long, env = "REVGATE_CERT", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// PEM file with that certificate's private key.
    #[arg(long, env = "REVGATE_KEY", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Longest time to wait for a connection, for the beginning of an answer, and for each next part of it.
    #[arg(long, env = "REVGATE_COMMAND_TIMEOUT", value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    command_timeout: Duration,
}

/// A member to ask.
#[derive(Debug)]
pub(super) struct Client {
    authority: String,
    host: String,
    port: u16,
    tls: Option<ClientTls>,
    token: Option<String>,
    patience: Duration,
}

impl ClientFlags {
    /// The member to ask.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The same, of another member.
    pub(super) fn at(&self, endpoint: &str) -> ClientFlags {
        ClientFlags { endpoint: endpoint.to_owned(), ..self.clone() }
    }
}

#[derive(Deserialize)]
struct Authenticated {
    token: String,
}

impl Client {
    /// Gets ready to ask, as the user if there is one.
    pub(super) async fn new(flags: &ClientFlags) -> Result<Client, ClientError> {
        let wrong = |what: String| ClientError::Flags(what);
        let endpoint = flags.endpoint.trim_end_matches('/');
        let authority = urls::authority(endpoint).map_err(wrong)?.to_owned();
        let (host, port) = authority.rsplit_once(':').ok_or_else(|| wrong(format!("{endpoint}: expected a port")))?;
        let port = port.parse().map_err(|_| wrong(format!("{endpoint}: expected a port")))?;
        let tls = match (&flags.cacert, endpoint.starts_with("https://")) {
            (Some(ca), true) => {
                let identity = flags.cert.as_deref().zip(flags.key.as_deref());
                Some(ClientTls::load(ca, identity).map_err(|error| wrong(error.to_string()))?)
            }
            (None, true) => return Err(wrong(format!("{endpoint}: --cacert is needed to know whom to trust"))),
            (_, false) => None,
        };
        let host = host.to_owned();
        let mut client = Client { authority, host, port, tls, token: None, patience: flags.command_timeout };
        if let Some(user) = &flags.user {
            let (name, password) = match (user.split_once(':'), &flags.password) {
                (Some((name, password)), None) => (name, password),
                (None, Some(password)) => (user.as_str(), password.as_str()),
                (Some(_), Some(_)) => return Err(wrong("--user names a password, and so does --password".into())),
                (None, None) => return Err(wrong("--user: expected NAME:PASSWORD, or --password too".into())),
            };
            client.token = Some(client.authenticate(name, password).await?);
        }
        Ok(client)
    }

    /// Posts JSON; the answer's body as a stream. An answer that is not a success is an error with the member's words.
    pub(super) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<Response<Incoming>, ClientError> {
        let answer = self.send(Method::POST, path, body.to_string()).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        Err(refusal(status, &self.whole(answer).await?))
    }

    /// Gets a whole answer, whatever its status.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
        let answer = self.send(Method::GET, path, String::new()).await?;
        Ok((answer.status(), self.whole(answer).await?))
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| ClientError::Flags(error.to_string()))?;
        let exchange = async {
            let stream = TcpStream::connect((self.host.trim_matches(['[', ']']), self.port)).await?;
            match &self.tls {
                None => exchange(stream, request).await,
                Some(tls) => exchange(tls.connect(&self.host, stream).await?, request).await,
            }
        };
        timeout(self.patience, exchange).await.map_err(|_| self.too_slow())?
    }

    /// The next part of a body; `None` at its end.
    pub(super) async fn next_part(&self, body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = timeout(self.patience, body.frame()).await.map_err(|_| self.too_slow())?;
            match frame.transpose()? {
                None => return Ok(None),
                Some(frame) => {
                    // Trailers say nothing we need.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    async fn authenticate(&self, name: &str, password: &str) -> Result<String, ClientError> {
        let body = serde_json::json!({ "name": name, "password": password });
        let answer = self.post("/v3/auth/authenticate", &body).await?;
        let body = self.whole(answer).await?;
        let authenticated: Authenticated =
            serde_json::from_slice(&body).map_err(|error| ClientError::Answer(error.to_string()))?;
        Ok(authenticated.token)
    }

    async fn whole(&self, answer: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let body = timeout(self.patience, body).await.map_err(|_| self.too_slow())?;
        Ok(body.map_err(|error| ClientError::Answer(error.to_string()))?.to_bytes())
    }

    fn too_slow(&self) -> ClientError {
        ClientError::TooSlow { authority: self.authority.clone(), patience: self.patience }
    }
}

async fn exchange<Io>(stream: Io, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError>
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends when the answer is read or dropped; its errors are the answer's too.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

/// What a member's answer says that is no success.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    let said: Option<StatusBody> = serde_json::from_slice(body).ok();
    let message = said.map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), |said| said.message);
    ClientError::Refused { status: status.as_u16(), message }
}
