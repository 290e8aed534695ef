//! WebSocket: any API path, made for watches. JSON values in messages, one text message without a line's end for each response.
//!
//! Better than the original in how it ends: a malformed message is answered with an error message and a close frame that says
//! why, a member that goes down says so, and clients that are gone are found out by pings. Responses are made only when the
//! socket takes them, so a slow client holds up nothing but its own session.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use hyper::{HeaderMap, upgrade::Upgraded};
use prometheus::IntCounter;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{self, Message, error::ProtocolError, protocol::CloseFrame};

use super::{
    disconnect::Disconnect,
    frames::Socket,
    front::{Connection, Front},
    handshake::Handshake,
    json::{read, split::Splitter},
    meter::Call,
    outputs,
    range::RangeBody,
    reply::{self, Reply},
    routes::Method,
    server_stream,
    stream::REQUESTS_AT_ONCE_MAX,
    unary,
};
use crate::{
    error::{ApiError, Code},
    service::{Caller, WatchOutput, WatchSession},
};

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
pub(super) fn upgrade(connection: Arc<Connection>, handshake: Handshake, asked: Asked, call: Call) -> Reply {
    let task = connection.front().tasks.token();
    let (reply, on_upgrade) = handshake.accept();
    tokio::spawn(async move {
        // If it fails the client is gone already.
        let Ok(upgraded) = on_upgrade.await else { return };
        // In a box, because the task that waits for the upgrade would else be as big as all that can come after it.
        Box::pin(async {
            tokio::select! {
                () = serve(upgraded, &connection, asked, call) => {}
                () = connection.front().abort.cancelled() => {}
            }
        })
        .await;
        drop(connection);
        drop(task);
    });
    reply
}

async fn serve(upgraded: Upgraded, connection: &Connection, asked: Asked, mut call: Call) {
    let front = connection.front();
    let message_bytes_max = front.limits.text_bytes_max.saturating_mul(MESSAGE_TEXTS_MAX);
    let mut socket = Socket::new(upgraded, message_bytes_max, front.metrics.client_sent_bytes.clone()).await;
    let _open = front.sockets.open();
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
    // A conversation that was broken off may have had something done aside.
    socket.take_back();
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

async fn say_farewell(socket: &mut Socket, end: End, call: &mut Call) {
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
async fn converse(socket: &mut Socket, connection: &Connection, asked: Asked, route: &'static str) -> End {
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
async fn watch(socket: &mut Socket, front: &Front, mut session: WatchSession) -> End {
    let mut pulse = Pulse::new(front);
    let mut watches_end = pin!(front.watches_end.cancelled());
    let mut finishing = false;
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
                Some(output) => respond(socket, front, &mut session, output).await,
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

/// Sends a response, and with it what else is ready, up to a limit. History goes out aside.
async fn respond(
    socket: &mut Socket,
    front: &Front,
    session: &mut WatchSession,
    output: WatchOutput,
) -> Result<(), End> {
    let (mut gathered, mut next) = (0, Some(output));
    while let Some(output) = next {
        next = if outputs::is_history(&output) {
            send_history(socket, front, session, output, &mut gathered).await?
        } else {
            send_live(socket, front, session, output, &mut gathered).await?
        };
    }
    Ok(())
}

/// Sends what is no history. Returns what was next and is some, if it was. No more is taken once `gathered` is full.
async fn send_live(
    socket: &mut Socket,
    front: &Front,
    session: &mut WatchSession,
    first: WatchOutput,
    gathered: &mut usize,
) -> Result<Option<WatchOutput>, End> {
    let mut next = Some(first);
    while let Some(output) = next.take_if(|output| !outputs::is_history(output)) {
        *gathered += feed(socket, &output);
        outputs::observe(&front.metrics, &output);
        next = if *gathered < GATHERED_BYTES { session.try_next() } else { None };
    }
    socket.flush().await.map_err(|_| End::Gone)?;
    Ok(next)
}

/// Has history encoded and sent aside, and waits until it is. Returns what was next and is none, if it was. No more is
/// taken once `gathered` is full.
async fn send_history(
    socket: &Socket,
    front: &Front,
    session: &mut WatchSession,
    first: WatchOutput,
    gathered: &mut usize,
) -> Result<Option<WatchOutput>, End> {
    let (mut outputs, mut next) = (Vec::new(), Some(first));
    while let Some(output) = next.take_if(|output| outputs::is_history(output)) {
        *gathered += outputs::content_bytes(&output);
        outputs.push(output);
        next = if *gathered < GATHERED_BYTES { session.try_next() } else { None };
    }
    let mut socket = socket.clone();
    let sent = front.aside.run(async move {
        for output in outputs {
            feed(&mut socket, &output);
        }
        socket.flush().await.map_err(|_| End::Gone)
    });
    sent.await.unwrap_or(Err(End::Gone))?;
    Ok(next)
}

/// Gives a response to the socket, for the next flush; how long it is, in bytes.
fn feed(socket: &mut Socket, output: &WatchOutput) -> usize {
    let message = outputs::watch_message(output);
    let bytes = message.len();
    socket.feed(message);
    bytes
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
async fn keep_alive(socket: &mut Socket, front: &Front, caller: &Caller) -> End {
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

async fn renew(socket: &mut Socket, front: &Front, caller: &Caller, text: &[u8]) -> Result<(), End> {
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
async fn messages(socket: &mut Socket, front: &Front, method: Method, caller: &Caller) -> End {
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
async fn once(socket: &mut Socket, front: &Front, (method, route): (Method, &'static str), caller: &Caller) -> End {
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
    if let Some(stages) = caller.stages() {
        record.wrote(stages);
    }
    drop(record);
    let body = answer.unwrap_or_else(|error| reply::error_body(&error));
    send(socket, body.into()).await.err().unwrap_or(End::Finished)
}

/// The first thing a client says.
async fn request(socket: &mut Socket, front: &Front, pulse: &mut Pulse) -> Result<Vec<u8>, End> {
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
async fn until_gone(socket: &mut Socket, front: &Front, pulse: &mut Pulse) -> End {
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
async fn send(socket: &mut Socket, text: bytes::Bytes) -> Result<(), End> {
    socket.send_text(text).await.map_err(|_| End::Gone)
}

/// Sends a close frame and waits, for a moment, until the client has seen it.
async fn close(socket: &mut Socket, code: u16, reason: &str) {
    let mut reason = reason.to_owned();
    while reason.len() > CLOSE_REASON_BYTES_MAX {
        reason.pop();
    }
    let farewell = socket.send_control(Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() })));
    if let Ok(Ok(())) = tokio::time::timeout(CLOSE_WAIT_MAX, farewell).await {
        part(socket).await;
    }
}

/// Reads until both close frames are exchanged; the transport answers the client's own while it is read from.
async fn part(socket: &mut Socket) {
    let exchange = async { while let Some(Ok(_)) = socket.recv().await {} };
    // A client that does not answer in time is cut off: that is what the limit is for.
    let _ = tokio::time::timeout(CLOSE_WAIT_MAX, exchange).await;
}

/// Whether the client is still there.
struct Pulse {
    ticks: Interval,
    heard_at: Instant,
    silence_max: Duration,
    received: IntCounter,
}

impl Pulse {
    fn new(front: &Front) -> Pulse {
        let now = Instant::now();
        let mut ticks = tokio::time::interval_at(now + front.ping_interval, front.ping_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let received = front.metrics.client_received_bytes.clone();
        Pulse { ticks, heard_at: now, silence_max: front.stall_timeout, received }
    }

    async fn due(&mut self) {
        self.ticks.tick().await;
    }

    async fn ping(&mut self, socket: &mut Socket) -> Result<(), End> {
        if self.heard_at.elapsed() >= self.silence_max {
            return Err(End::Silent);
        }
        socket.send_control(Message::Ping(bytes::Bytes::new())).await.map_err(|_| End::Gone)
    }

    /// The text of what came; empty for a pong or the like.
    fn heard(&mut self, message: Option<Result<Message, tungstenite::Error>>) -> Result<Vec<u8>, End> {
        self.heard_at = Instant::now();
        let text = match message {
            Some(Ok(Message::Text(text))) => Ok(text.as_bytes().to_vec()),
            Some(Ok(Message::Binary(bytes))) => Ok(bytes.to_vec()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(Vec::new()),
            Some(Ok(Message::Close(_))) => Err(End::Closed),
            None => Err(End::Gone),
            Some(Err(error)) if is_connections(&error) => Err(End::Gone),
            Some(Err(error)) => Err(End::Broken(error.to_string())),
        };
        self.received.inc_by(text.as_ref().map_or(0, |text| text.len() as u64));
        text
    }
}

/// Whether it is the connection that failed, and no rule of WebSocket's that the client broke: most clients go like that.
fn is_connections(error: &tungstenite::Error) -> bool {
    use tungstenite::Error;
    matches!(
        error,
        Error::Io(_)
            | Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
    )
}
