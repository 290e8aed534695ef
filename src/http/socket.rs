//! WebSocket: any API path, made for watches. JSON values in messages, one text message without a line's end for each response.
//!
//! Better than the original in how it ends: a malformed message is answered with an error message and a close frame that says
//! why, a member that goes down says so, and clients that are gone are found out by pings. Responses are made only when the
//! socket takes them, so a slow client holds up nothing but its own session.

use std::{future::poll_fn, sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Interval, MissedTickBehavior};

use super::{
    caller::TOKEN_PROTOCOL,
    front::{Connection, Front},
    json::{read, split::Splitter},
    meter::Call,
    outputs,
    range::RangeBody,
    reply::{self, Body, Reply},
    routes::Method,
    server_stream,
    stream::REQUESTS_AT_ONCE_MAX,
    unary,
};
use crate::{
    error::{ApiError, Code},
    service::{Caller, WatchSession},
};

/// Buffers of one socket; tungstenite's own defaults are 128 KiB each.
const READ_BUFFER_BYTES: usize = 4 * 1024;
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// Largest message, in largest requests. Over one request it is refused with a reason, over this the transport gives up.
const MESSAGE_TEXTS_MAX: usize = 2;
/// Responses are gathered until they reach this size, then written.
const GATHERED_BYTES: usize = 64 * 1024;
/// How often a client is pinged; one that sends nothing at all from one ping to the next is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Longest time a write may stand still.
const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// How long a client gets to answer a close frame.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);
/// A close frame holds this much text.
const CLOSE_REASON_BYTES_MAX: usize = 120;

/// What a socket was opened for.
pub(super) struct Asked {
    /// What is called; `None`: the path is unknown.
    pub(super) method: Option<Method>,
    /// In whose name.
    pub(super) caller: Caller,
    /// How long the client is willing to wait.
    pub(super) timeout: Option<Duration>,
    /// Whether it would rather have an error than wait for a leader.
    pub(super) requires_leader: bool,
}

/// Why a socket ends.
enum End {
    /// The client is gone.
    Client,
    /// The client sent a close frame, which is to be answered.
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

/// Answers an upgrade request and serves the socket on a task of its own.
pub(super) fn upgrade(connection: Arc<Connection>, upgrade: WebSocketUpgrade, asked: Asked, call: Call) -> Reply {
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
                () = serve(socket, front, asked, call) => {}
                () = front.abort.cancelled() => {}
            }
            drop(connection);
            drop(task);
        });
    response.map(|_| Body::Whole(None))
}

async fn serve(mut socket: WebSocket, front: &Front, asked: Asked, mut call: Call) {
    let end = match asked.timeout {
        None => converse(&mut socket, front, asked).await,
        Some(timeout) => {
            let end = tokio::time::timeout(timeout, converse(&mut socket, front, asked)).await;
            end.unwrap_or(End::Refused(ApiError::DeadlineExceeded))
        }
    };
    let (code, reason) = match end {
        End::Client => return,
        End::Closed => return part(&mut socket).await,
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
                _ if error.code() == Code::Unavailable => 1013,
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

/// Serves what was asked for until it ends.
async fn converse(socket: &mut WebSocket, front: &Front, asked: Asked) -> End {
    let Asked { method, caller, requires_leader, .. } = asked;
    match method {
        Some(Method::Watch) => watch(socket, front, front.services.watch.open(caller, requires_leader)).await,
        Some(Method::LeaseKeepAlive) => keep_alive(socket, front, &caller).await,
        Some(method) if method.is_server_stream() => messages(socket, front, method, &caller).await,
        Some(method) => once(socket, front, method, &caller).await,
        None => {
            let body = reply::error_body(&ApiError::NoSuchPath);
            send(socket, front, vec![body]).await.err().unwrap_or(End::Finished)
        }
    }
}

/// A watch session: requests, responses and pings side by side.
async fn watch(socket: &mut WebSocket, front: &Front, mut session: WatchSession) -> End {
    let mut pulse = Pulse::new();
    // What is left of the last message. A message can hold a hundred thousand requests, and each is answered.
    let mut requests: Option<Splitter> = None;
    loop {
        if let Err(end) = hand_over(&mut requests, &mut session) {
            return end;
        }
        let outcome = tokio::select! {
            message = socket.recv(), if requests.is_none() => pulse.heard(message).map(|text| {
                let mut splitter = Splitter::new(front.limits.text_bytes_max);
                splitter.push(&text);
                requests = Some(splitter);
            }),
            () = tokio::task::yield_now(), if requests.is_some() => Ok(()),
            output = poll_fn(|context| session.poll_next(context)) => match output {
                None => Err(session.failure().map_or(End::GoingDown, End::Refused)),
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

/// Hands some of a message's requests to the session, none while too many answers wait.
fn hand_over(requests: &mut Option<Splitter>, session: &mut WatchSession) -> Result<(), End> {
    for _ in 0..REQUESTS_AT_ONCE_MAX {
        let Some(splitter) = requests else { break };
        if !session.takes_requests() {
            break;
        }
        match splitter.next_value(true).map_err(End::Refused)? {
            Some(value) => session.handle(read::watch(value).map_err(End::Refused)?),
            None => *requests = None,
        }
    }
    Ok(())
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
    let mut splitter = Splitter::new(front.limits.text_bytes_max);
    splitter.push(text);
    while let Some(value) = splitter.next_value(true).map_err(End::Refused)? {
        let request = read::keep_alive(value).map_err(End::Refused)?;
        let response = front.services.lease.keep_alive(caller, request).await.map_err(End::Refused)?;
        let mut frame = Vec::new();
        outputs::keep_alive(&mut frame, &response);
        send(socket, front, vec![frame]).await?;
    }
    Ok(())
}

/// A call that is answered with a stream: one message in, many out.
async fn messages(socket: &mut WebSocket, front: &Front, method: Method, caller: &Caller) -> End {
    let mut pulse = Pulse::new();
    let text = match request(socket, front, &mut pulse).await {
        Ok(text) => text,
        Err(end) => return end,
    };
    let mut messages = match server_stream::open(&front.services, method, caller, &text).await {
        Ok(messages) => messages,
        Err(error) => return End::Refused(error),
    };
    loop {
        let outcome = tokio::select! {
            message = messages.next() => match message {
                Some(Ok(message)) => send(socket, front, vec![message]).await,
                Some(Err(error)) => Err(End::Refused(error)),
                None => Err(End::Finished),
            },
            end = until_gone(socket, front, &mut pulse) => Err(end),
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// A unary call: one message in, one out.
async fn once(socket: &mut WebSocket, front: &Front, method: Method, caller: &Caller) -> End {
    let mut pulse = Pulse::new();
    let text = match request(socket, front, &mut pulse).await {
        Ok(text) => text,
        Err(end) => return end,
    };
    let answer = unary::call(&front.services, &front.limits, method, caller, &text);
    let answer = if method.may_wait() {
        tokio::select! {
            answer = answer => answer,
            end = until_gone(socket, front, &mut pulse) => return end,
        }
    } else {
        answer.await
    };
    // A frame is sent whole.
    let answer = match answer {
        Ok(answer) => RangeBody::whole(answer).await,
        Err(error) => Err(error),
    };
    let body = answer.unwrap_or_else(|error| reply::error_body(&error));
    send(socket, front, vec![body]).await.err().unwrap_or(End::Finished)
}

/// The first thing a client says.
async fn request(socket: &mut WebSocket, front: &Front, pulse: &mut Pulse) -> Result<Vec<u8>, End> {
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

/// Resolves when a client that has said all it may is gone, or the member is going down.
async fn until_gone(socket: &mut WebSocket, front: &Front, pulse: &mut Pulse) -> End {
    loop {
        let heard = tokio::select! {
            message = socket.recv() => pulse.heard(message).map(drop),
            () = pulse.due() => pulse.ping(socket).await,
            () = front.going_down.cancelled() => Err(End::GoingDown),
        };
        if let Err(end) = heard {
            return end;
        }
    }
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
    let farewell = socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
    if let Ok(Ok(())) = tokio::time::timeout(CLOSE_WAIT_MAX, farewell).await {
        part(socket).await;
    }
}

/// Reads until both close frames are exchanged; the transport answers the client's own while it is read from.
async fn part(socket: &mut WebSocket) {
    let exchange = async { while let Some(Ok(_)) = socket.recv().await {} };
    // A client that does not answer in time is cut off: that is what the limit is for.
    let _ = tokio::time::timeout(CLOSE_WAIT_MAX, exchange).await;
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
