//! WebSocket: any API path, made for watches. JSON values in messages, one text message without a line's end for each response.
//!
//! Better than the original in how it ends: a malformed message is answered with an error message and a close frame that says
//! why, a member that goes down says so, and clients that are gone are found out by pings. Responses are made only when the
//! socket takes them, so a slow client holds up nothing but its own session.

use std::{future::poll_fn, sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::SinkExt as _;
use tokio::time::{Interval, MissedTickBehavior};

use super::{
    front::{Connection, Front},
    json::{read, split::Splitter},
    meter::Call,
    outputs,
    reply::{self, Body, Reply},
    routes::Method,
    snapshot,
    stream::GATHERED_BYTES,
    unary,
};
use crate::{error::ApiError, service::Caller};

/// Buffers of one socket; tungstenite's own defaults are 128 KiB each.
const READ_BUFFER_BYTES: usize = 4 * 1024;
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// Largest message, in largest requests. Over one request it is refused with a reason, over this the transport gives up.
const MESSAGE_TEXTS_MAX: usize = 2;
/// How often a client is pinged; one that sends nothing at all from one ping to the next is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Longest time a write may stand still.
const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// How long a client gets to answer a close frame.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);
/// A close frame holds this much text.
const CLOSE_REASON_BYTES_MAX: usize = 120;
/// The subprotocol under which browsers hand over their token; it is echoed.
const TOKEN_PROTOCOL: &str = "Bearer";

/// Why a socket ends.
enum End {
    /// The client is gone.
    Client,
    /// The client closed.
    Closed,
    /// All is said.
    Finished,
    /// The client said something it cannot say.
    Refused(ApiError),
    /// The transport's rules were broken.
    Broken(String),
    /// The member is going down.
    GoingDown,
}

/// Answers an upgrade request and serves the socket on a task of its own. `None` for the method: the path is unknown.
pub(super) fn upgrade(
    connection: Arc<Connection>,
    upgrade: WebSocketUpgrade,
    method: Option<Method>,
    caller: Caller,
    call: Call,
) -> Reply {
    let front = connection.front();
    let task = front.tasks.token();
    let text_bytes_max = front.limits.text_bytes_max;
    // No limit on what waits to be written: a response is written whole before the next is made.
    let response = upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(text_bytes_max.saturating_mul(MESSAGE_TEXTS_MAX))
        .max_frame_size(text_bytes_max.saturating_mul(MESSAGE_TEXTS_MAX))
        .protocols([TOKEN_PROTOCOL])
        .on_upgrade(move |socket| async move {
            let front = connection.front();
            tokio::select! {
                () = serve(socket, front, method, caller, call) => {}
                () = front.abort.cancelled() => {}
            }
            drop(connection);
            drop(task);
        });
    response.map(|_| Body::Whole(None))
}

async fn serve(mut socket: WebSocket, front: &Front, method: Option<Method>, caller: Caller, mut call: Call) {
    let end = match method {
        Some(Method::Watch) => watch(&mut socket, front, caller).await,
        Some(Method::LeaseKeepAlive) => keep_alive(&mut socket, front, &caller).await,
        Some(Method::Snapshot) => snapshot(&mut socket, front, &caller).await,
        Some(method) => once(&mut socket, front, method, &caller).await,
        None => {
            let body = reply::error_body(&ApiError::NoSuchPath);
            send(&mut socket, front, vec![body]).await.err().unwrap_or(End::Finished)
        }
    };
    let (code, reason) = match end {
        End::Client => return,
        End::Closed => return hear_out(&mut socket).await,
        End::Finished => (1000, String::new()),
        End::Broken(what) => (1002, what),
        End::GoingDown => (1001, "going away".into()),
        End::Refused(error) => {
            call.ends(Some(&error));
            let mut last = Vec::new();
            reply::write_stream_error(&mut last, &error);
            if send(&mut socket, front, vec![last]).await.is_err() {
                return;
            }
            let code = match error {
                ApiError::Malformed(_) => 1007,
                ApiError::MessageTooLarge { .. } => 1009,
                _ => 1008,
            };
            (code, error.to_string())
        }
    };
    if code == 1000 || code == 1001 {
        call.ends(None);
    }
    close(&mut socket, code, &reason).await;
}

/// A watch session: requests, responses and pings side by side.
async fn watch(socket: &mut WebSocket, front: &Front, caller: Caller) -> End {
    let mut session = front.services.watch.open(caller);
    let mut pulse = Pulse::new();
    loop {
        let outcome = tokio::select! {
            message = socket.recv() => pulse.heard(message).and_then(|text| {
                each_value(&text, front.limits.text_bytes_max, read::watch, |request| session.handle(request))
            }),
            output = poll_fn(|context| session.poll_next(context)) => match output {
                None => Err(End::GoingDown),
                Some(output) => {
                    let mut frames = Vec::new();
                    let (mut gathered, mut next) = (0, Some(output));
                    while let Some(output) = next {
                        let mut frame = Vec::new();
                        outputs::watch(&mut frame, &output);
                        gathered += frame.len();
                        frames.push(frame);
                        next = if gathered < GATHERED_BYTES { session.try_next() } else { None };
                    }
                    send(socket, front, frames).await
                }
            },
            () = pulse.due() => pulse.ping(socket).await,
            () = front.going_down.cancelled() => Err(End::GoingDown),
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// Lease renewals: one response for each value.
async fn keep_alive(socket: &mut WebSocket, front: &Front, caller: &Caller) -> End {
    let mut pulse = Pulse::new();
    loop {
        let outcome = tokio::select! {
            message = socket.recv() => match pulse.heard(message) {
                Ok(text) => renew(socket, front, caller, &text).await,
                Err(end) => Err(end),
            },
            () = pulse.due() => pulse.ping(socket).await,
            () = front.going_down.cancelled() => Err(End::GoingDown),
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

async fn renew(socket: &mut WebSocket, front: &Front, caller: &Caller, text: &[u8]) -> Result<(), End> {
    let mut requests = Vec::new();
    each_value(text, front.limits.text_bytes_max, read::keep_alive, |request| requests.push(request))?;
    for request in requests {
        let response = front.services.lease.keep_alive(caller, request).await.map_err(End::Refused)?;
        let mut frame = Vec::new();
        outputs::keep_alive(&mut frame, &response);
        send(socket, front, vec![frame]).await?;
    }
    Ok(())
}

/// A unary call: one message in, one out.
async fn once(socket: &mut WebSocket, front: &Front, method: Method, caller: &Caller) -> End {
    let text = match one_text(socket, front).await {
        Ok(text) => text,
        Err(end) => return end,
    };
    let answer = unary::call(&front.services, &front.limits, method, caller, &text).await;
    let body = answer.unwrap_or_else(|error| reply::error_body(&error));
    send(socket, front, vec![body]).await.err().unwrap_or(End::Finished)
}

/// A snapshot: one message in, as many out as the socket takes.
async fn snapshot(socket: &mut WebSocket, front: &Front, caller: &Caller) -> End {
    let sending = async {
        let text = one_text(socket, front).await?;
        let maintenance = &front.services.maintenance;
        let mut stream = snapshot::open(maintenance, caller, &text).await.map_err(End::Refused)?;
        loop {
            let (responses, rest) = stream.next().await.map_err(End::Refused)?;
            if responses.is_empty() {
                return Ok(End::Finished);
            }
            let frames: Result<Vec<_>, _> = responses.iter().map(outputs::snapshot).collect();
            send(socket, front, frames.map_err(End::Refused)?).await?;
            stream = rest;
        }
    };
    sending.await.unwrap_or_else(|end| end)
}

/// Waits for the one message of a client that asks once.
async fn one_text(socket: &mut WebSocket, front: &Front) -> Result<Vec<u8>, End> {
    let mut pulse = Pulse::new();
    loop {
        let text = tokio::select! {
            message = socket.recv() => pulse.heard(message)?,
            () = pulse.due() => pulse.ping(socket).await.map(|()| Vec::new())?,
            () = front.going_down.cancelled() => return Err(End::GoingDown),
        };
        if !text.is_empty() {
            return Ok(text);
        }
    }
}

/// Hands each JSON value of a message to `take`.
fn each_value<T>(
    text: &[u8],
    text_bytes_max: usize,
    read: fn(&[u8]) -> Result<T, ApiError>,
    mut take: impl FnMut(T),
) -> Result<(), End> {
    let mut splitter = Splitter::new(text_bytes_max);
    splitter.push(text);
    while let Some(value) = splitter.next_value(true).map_err(End::Refused)? {
        take(read(value).map_err(End::Refused)?);
    }
    Ok(())
}

/// Writes text messages and flushes once.
async fn send(socket: &mut WebSocket, front: &Front, frames: Vec<Vec<u8>>) -> Result<(), End> {
    let writing = async {
        for frame in frames {
            let text = Utf8Bytes::try_from(bytes::Bytes::from(frame)).map_err(|_| End::Client)?;
            socket.feed(Message::Text(text)).await.map_err(|_| End::Client)?;
        }
        socket.flush().await.map_err(|_| End::Client)
    };
    tokio::select! {
        written = tokio::time::timeout(WRITE_STALL_MAX, writing) => written.unwrap_or(Err(End::Client)),
        () = front.going_down.cancelled() => Err(End::GoingDown),
    }
}

/// Sends a close frame and waits, for a moment, until the client has seen it.
async fn close(socket: &mut WebSocket, code: u16, reason: &str) {
    let mut reason = reason.to_owned();
    while reason.len() > CLOSE_REASON_BYTES_MAX {
        reason.pop();
    }
    let farewell = async {
        if socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    // A client that does not answer in time is cut off: that is what the limit is for.
    let _ = tokio::time::timeout(CLOSE_WAIT_MAX, farewell).await;
}

/// Lets the answer to the client's close frame, which the transport has ready, go out.
async fn hear_out(socket: &mut WebSocket) {
    let farewell = async { while let Some(Ok(_)) = socket.recv().await {} };
    // A client that closed owes us nothing more, so that it does not matter if it is gone by now.
    let _ = tokio::time::timeout(CLOSE_WAIT_MAX, farewell).await;
}

/// Whether the client is still there.
struct Pulse {
    ticks: Interval,
    heard_since_ping: bool,
}

impl Pulse {
    fn new() -> Pulse {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + PING_INTERVAL, PING_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pulse { ticks, heard_since_ping: true }
    }

    async fn due(&mut self) {
        self.ticks.tick().await;
    }

    async fn ping(&mut self, socket: &mut WebSocket) -> Result<(), End> {
        if !std::mem::replace(&mut self.heard_since_ping, false) {
            return Err(End::Client);
        }
        let ping = socket.send(Message::Ping(bytes::Bytes::new()));
        match tokio::time::timeout(WRITE_STALL_MAX, ping).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(End::Client),
        }
    }

    /// The text of what came; empty for a pong or the like.
    fn heard(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<Vec<u8>, End> {
        self.heard_since_ping = true;
        match message {
            Some(Ok(Message::Text(text))) => Ok(text.as_bytes().to_vec()),
            Some(Ok(Message::Binary(bytes))) => Ok(bytes.to_vec()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Vec::new()),
            Some(Ok(Message::Close(_))) => Err(End::Closed),
            None => Err(End::Client),
            Some(Err(error)) => Err(End::Broken(error.to_string())),
        }
    }
}
