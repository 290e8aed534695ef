//! WebSocket: any API path, made for watches. JSON values in messages, one text message without a line's end for each response.
//!
//! Better than the original in how it ends: a malformed message is answered with an error message and a close frame that says
//! why, a member that goes down says so, and clients that are gone are found out by pings. Responses are made only when the
//! socket takes them, so a slow client holds up nothing but its own session.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::{Sink, SinkExt as _, StreamExt as _};
use hyper::HeaderMap;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::PollSemaphore;

use super::{
    caller::TOKEN_PROTOCOL,
    disconnect::Disconnect,
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
    service::{Caller, WatchOutput, WatchSession},
};

/// A socket's read buffer, which is there as long as the socket; tungstenite's own default is 128 KiB.
const READ_BUFFER_BYTES: usize = 512;
/// Nothing is written before it is flushed: when that is done is decided here.
const WRITE_BUFFER_BYTES: usize = usize::MAX / 2;
/// Largest message, in largest requests. Over one request it is refused with a reason, over this the transport gives up.
const MESSAGE_TEXTS_MAX: usize = 2;
/// Responses are gathered until they reach this size, then written.
const GATHERED_BYTES: usize = 32 * 1024;
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
    /// The connection ended or broke.
    Gone,
    /// The client did not answer pings.
    Silent,
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
        .on_upgrade(move |socket| {
            // In a box, because the task that waits for the upgrade would else be as big as all that can come after it.
            Box::pin(async move {
                let front = connection.front();
                tokio::select! {
                    () = serve(socket, &connection, asked, call) => {}
                    () = front.abort.cancelled() => {}
                }
                drop(connection);
                drop(task);
            })
        });
    response.map(|_| Body::Whole(None))
}

async fn serve(mut socket: WebSocket, connection: &Connection, asked: Asked, mut call: Call) {
    let front = connection.front();
    let (timeout, is_watch) = (asked.timeout, asked.method == Some(Method::Watch));
    let end = {
        // In a box for the time it lasts: what is said in the end needs other memory.
        let conversation = converse(&mut socket, connection, asked, call.route());
        match timeout {
            None => conversation.await,
            Some(timeout) => {
                let end = tokio::time::timeout(timeout, conversation).await;
                end.unwrap_or(End::Refused(ApiError::DeadlineExceeded))
            }
        }
    };
    if is_watch {
        end.disconnect(connection).count(&front.metrics);
    }
    Box::pin(say_farewell(&mut socket, end, &mut call)).await;
}

impl End {
    fn disconnect(&self, connection: &Connection) -> Disconnect {
        match self {
            End::Gone if connection.stalled().get() => Disconnect::Stalled,
            End::Gone => Disconnect::Gone,
            End::Silent => Disconnect::Silent,
            End::Closed | End::Finished => Disconnect::Closed,
            End::Refused(error) => Disconnect::of(error),
            End::Broken(_) => Disconnect::Refused,
            End::GoingDown => Disconnect::Shutdown,
        }
    }
}

async fn say_farewell(socket: &mut WebSocket, end: End, call: &mut Call) {
    let (code, reason) = match end {
        End::Gone | End::Silent => return,
        End::Closed => return part(socket).await,
        End::Finished => (1000, String::new()),
        End::Broken(what) => (1002, what),
        End::GoingDown => (1001, "going away".into()),
        End::Refused(error) => {
            call.ends(Some(&error));
            let mut last = Vec::new();
            reply::write_stream_error(&mut last, &error);
            let sent = tokio::time::timeout(CLOSE_WAIT_MAX, send(socket, last.into()));
            if !matches!(sent.await, Ok(Ok(()))) {
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
    close(socket, code, &reason).await;
}

/// Serves what was asked for until it ends.
async fn converse(socket: &mut WebSocket, connection: &Connection, asked: Asked, route: &'static str) -> End {
    let front = connection.front();
    let Asked { method, caller, requires_leader, .. } = asked;
    match method {
        Some(Method::Watch) => {
            let session = front.services.watch.open(caller, requires_leader, Some(connection.peer()));
            Box::pin(watch(socket, front, session)).await
        }
        Some(Method::LeaseKeepAlive) => Box::pin(keep_alive(socket, front, &caller)).await,
        Some(method) if method.is_server_stream() => Box::pin(messages(socket, front, method, &caller)).await,
        Some(method) => Box::pin(once(socket, front, (method, route), &caller)).await,
        None => {
            let body = reply::error_body(&ApiError::NoSuchPath);
            send(socket, body.into()).await.err().unwrap_or(End::Finished)
        }
    }
}

/// A watch session: requests, responses and pings side by side.
async fn watch(socket: &mut WebSocket, front: &Front, mut session: WatchSession) -> End {
    let mut pulse = Pulse::new(front);
    let mut watches_end = pin!(front.watches_end.cancelled());
    let mut finishing = false;
    let mut history_turns = PollSemaphore::new(Arc::clone(&front.history_turns));
    // What is left of the last message. A message can hold a hundred thousand requests, and each is answered.
    let mut requests: Option<Splitter> = None;
    loop {
        if let Err(end) = hand_over(&mut requests, &mut session) {
            return end;
        }
        let outcome = tokio::select! {
            message = socket.recv(), if requests.is_none() => match pulse.heard(message) {
                Ok(_) if finishing => Ok(()),
                Ok(text) => {
                    if !text.is_empty() {
                        let mut splitter = Splitter::new(front.limits.text_bytes_max);
                        splitter.push(&text);
                        requests = Some(splitter);
                    }
                    Ok(())
                }
                Err(end) => Err(end),
            },
            () = tokio::task::yield_now(), if requests.is_some() => Ok(()),
            output = poll_fn(|context| session.poll_next(context)) => match output {
                None => Err(session.failure().map_or(End::GoingDown, End::Refused)),
                Some(output) => respond(socket, front, &mut session, output, &mut history_turns).await,
            },
            () = pulse.due() => pulse.ping(socket).await,
            () = &mut watches_end, if !finishing => {
                finishing = true;
                requests = None;
                session.finish();
                Ok(())
            }
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// Sends a response, and with it what else is ready, up to a limit. History goes out in turns.
async fn respond(
    socket: &mut WebSocket,
    front: &Front,
    session: &mut WatchSession,
    output: WatchOutput,
    history_turns: &mut PollSemaphore,
) -> Result<(), End> {
    let mut turns = outputs::is_history(&output).then_some(history_turns);
    let (mut gathered, mut next) = (0, Some(output));
    while let Some(output) = next {
        // Nothing below waits: the socket's buffer takes what it is given until it is flushed.
        let _turn = match &mut turns {
            Some(turns) => poll_fn(|context| turns.poll_acquire(context)).await,
            None => None,
        };
        let message = outputs::watch_message(&output);
        gathered += message.len();
        let text = Utf8Bytes::try_from(message).map_err(|_| End::Gone)?;
        socket.feed(Message::Text(text)).await.map_err(|_| End::Gone)?;
        outputs::observe(&front.metrics, &output);
        next = if gathered < GATHERED_BYTES { session.try_next() } else { None };
    }
    match turns {
        Some(turns) => {
            in_turns(turns, |context| Pin::new(&mut *socket).poll_flush(context)).await?;
            // Others wait for their turn.
            tokio::task::yield_now().await;
            Ok(())
        }
        None => socket.flush().await.map_err(|_| End::Gone),
    }
}

/// Writes only while it is this task's turn. Waiting for the socket is no part of a turn: a client that does not read
/// keeps nobody else from his.
async fn in_turns(
    turns: &mut PollSemaphore,
    mut write: impl FnMut(&mut Context<'_>) -> Poll<Result<(), axum::Error>>,
) -> Result<(), End> {
    poll_fn(|context| {
        let _turn = ready!(turns.poll_acquire(context));
        write(context)
    })
    .await
    .map_err(|_| End::Gone)
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
    let mut pulse = Pulse::new(front);
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
        send(socket, frame.into()).await?;
    }
    Ok(())
}

/// A call that is answered with a stream: one message in, many out.
async fn messages(socket: &mut WebSocket, front: &Front, method: Method, caller: &Caller) -> End {
    let mut pulse = Pulse::new(front);
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
                Some(Ok(message)) => send(socket, message.into()).await,
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
async fn once(socket: &mut WebSocket, front: &Front, (method, route): (Method, &'static str), caller: &Caller) -> End {
    let mut pulse = Pulse::new(front);
    let text = match request(socket, front, &mut pulse).await {
        Ok(text) => text,
        Err(end) => return end,
    };
    let _call = match front.begin_call() {
        Ok(call) => call,
        Err(error) => return End::Refused(error),
    };
    let mut record = front.observer.begin(route, Instant::now().into_std());
    record.traced(&HeaderMap::new());
    record.read(text.len());
    if method.may_wait() {
        record.waits_for_others();
    }
    let answer = unary::call(&front.services, &front.limits, method, caller, &text, &mut record);
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
    record.ends(answer.as_ref().map(Vec::len));
    drop(record);
    let body = answer.unwrap_or_else(|error| reply::error_body(&error));
    send(socket, body.into()).await.err().unwrap_or(End::Finished)
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

/// Writes a text message.
async fn send(socket: &mut WebSocket, text: bytes::Bytes) -> Result<(), End> {
    let text = Utf8Bytes::try_from(text).map_err(|_| End::Gone)?;
    socket.send(Message::Text(text)).await.map_err(|_| End::Gone)
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
    heard_at: Instant,
    silence_max: Duration,
}

impl Pulse {
    fn new(front: &Front) -> Pulse {
        let now = Instant::now();
        let mut ticks = tokio::time::interval_at(now + front.ping_interval, front.ping_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pulse { ticks, heard_at: now, silence_max: front.stall_timeout }
    }

    async fn due(&mut self) {
        self.ticks.tick().await;
    }

    async fn ping(&mut self, socket: &mut WebSocket) -> Result<(), End> {
        if self.heard_at.elapsed() >= self.silence_max {
            return Err(End::Silent);
        }
        socket.send(Message::Ping(bytes::Bytes::new())).await.map_err(|_| End::Gone)
    }

    /// The text of what came; empty for a pong or the like.
    fn heard(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<Vec<u8>, End> {
        self.heard_at = Instant::now();
        match message {
            Some(Ok(Message::Text(text))) => Ok(text.as_bytes().to_vec()),
            Some(Ok(Message::Binary(bytes))) => Ok(bytes.to_vec()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Vec::new()),
            Some(Ok(Message::Close(_))) => Err(End::Closed),
            None => Err(End::Gone),
            Some(Err(error)) => Err(End::Broken(error.to_string())),
        }
    }
}
