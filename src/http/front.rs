//! From a request to its answer: which endpoint, which call shape, what is counted.
//!
//! One match on the path and no layers: what is done for each request is written here.

use std::{future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::{
    Method as HttpMethod, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{EXPECT, HOST, HeaderValue, LOCATION, UPGRADE},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{
    sync::{CancellationToken, PollSemaphore},
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::{
    Serves,
    access::Access,
    aside::Aside,
    caller::{self, TOKEN_PROTOCOL},
    encoding::Encoding,
    handshake::Handshake,
    limits::{Limits, client_timeout},
    meter::{Arrival, Call, Meter, OpenStreams},
    path::{self, Place},
    patience::Stalled,
    range::{Answer, RangePieces},
    record::{Observer, Record},
    reply::{self, Body, Reply},
    routes::{Method, Router},
    server_stream, side,
    socket::{self, Asked},
    stream::{self, Ends},
    unary,
    values::Values,
    workers,
};
use crate::{
    background,
    config::Transport,
    error::ApiError,
    metrics::{Metrics, Stage},
    service::{Caller, Services},
};

/// What the paths of the API begin with, old ones too.
const API_PREFIX: &str = "/v3";

/// What all connections share.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) services: Services,
    pub(super) metrics: Metrics,
    pub(super) limits: Limits,
    /// Notes what is to be told of calls.
    pub(super) observer: Observer,
    access: Access,
    /// Nothing new begins, and what waits for others ends: the member is going down.
    pub(super) going_down: CancellationToken,
    /// Calls that may still write. Watches go on until there are none.
    pub(super) calls: TaskTracker,
    /// Watches end with what is in the store.
    pub(super) watches_end: CancellationToken,
    /// Where those are served that are sent history, so that they never keep the processors from those that follow live.
    pub(super) aside: Aside,
    /// Turns of those that make pieces of long lists, for the same reason.
    pub(super) list_turns: Arc<Semaphore>,
    /// How often clients are pinged, and how long they may be silent.
    pub(super) ping_interval: Duration,
    pub(super) stall_timeout: Duration,
    /// Ends everything at once: the time for going down is over.
    pub(super) abort: CancellationToken,
    /// Connections and sockets that are still alive.
    pub(super) tasks: TaskTracker,
    router: Router,
    side_meters: Vec<Arc<Meter>>,
    other_meter: Arc<Meter>,
    /// WebSockets.
    pub(super) sockets: OpenStreams,
    /// Answers of JSON lines.
    pub(super) line_streams: OpenStreams,
}

impl Front {
    pub(super) fn new(
        services: Services,
        metrics: Metrics,
        request_bytes_max: usize,
        transport: &Transport,
        observer: Observer,
    ) -> io::Result<Front> {
        Ok(Front {
            observer,
            access: Access::new(transport),
            limits: Limits::new(request_bytes_max),
            going_down: CancellationToken::new(),
            calls: TaskTracker::new(),
            watches_end: CancellationToken::new(),
            aside: Aside::start()?,
            list_turns: Arc::new(Semaphore::new(background::threads_max())),
            ping_interval: transport.ping_interval,
            stall_timeout: transport.stall_timeout,
            abort: CancellationToken::new(),
            tasks: TaskTracker::new(),
            router: Router::new(&metrics),
            side_meters: side::TEMPLATES.iter().map(|path| Arc::new(Meter::new(path, &metrics))).collect(),
            other_meter: Arc::new(Meter::new("other", &metrics)),
            sockets: OpenStreams::new("websocket", &metrics),
            line_streams: OpenStreams::new("ndjson", &metrics),
            services,
            metrics,
        })
    }

    /// Lets a call begin that may write. Until what is returned is dropped, no watch ends that is to tell of it.
    pub(super) fn begin_call(&self) -> Result<TaskTrackerToken, ApiError> {
        let call = self.calls.token();
        if self.going_down.is_cancelled() { Err(ApiError::Stopped) } else { Ok(call) }
    }

    /// Reads a call's whole body.
    async fn read_body(&self, body: Incoming, asks_first: bool) -> Result<Bytes, ApiError> {
        let text = self.limits.read_body(body, asks_first).await?;
        self.metrics.client_received_bytes.inc_by(text.len() as u64);
        Ok(text)
    }

    fn side_meter(&self, template: &str) -> &Meter {
        let known = side::TEMPLATES.iter().zip(&self.side_meters).find(|(path, _)| **path == template);
        known.map_or(&self.other_meter, |(_, meter)| meter)
    }
}

/// What stands between a connection and who would listen in.
#[derive(Debug)]
pub(super) enum Security {
    None,
    /// TLS, and the name in the client's certificate if it had to have one.
    Tls {
        certificate_name: Option<String>,
    },
}

/// What a connection was let in with.
#[derive(Debug)]
pub(super) struct Admission {
    /// Its place among all connections.
    pub(super) _permit: OwnedSemaphorePermit,
    /// Its place on a thread.
    pub(super) _place: workers::Place,
    /// Where the client connects from.
    pub(super) peer: SocketAddr,
    /// What its listener is for.
    pub(super) serves: Serves,
}

/// One client connection; whatever outlives its HTTP part (a socket) holds on to it.
#[derive(Debug)]
pub(super) struct Connection {
    front: Arc<Front>,
    admission: Admission,
    security: Security,
    stalled: Stalled,
}

impl Connection {
    pub(super) fn new(front: Arc<Front>, admission: Admission, security: Security) -> Connection {
        front.metrics.http_connections.inc();
        Connection { front, admission, security, stalled: Stalled::default() }
    }

    /// What the listener it came by is for.
    pub(super) fn serves(&self) -> Serves {
        self.admission.serves
    }

    /// Where the client connects from.
    pub(super) fn peer(&self) -> SocketAddr {
        self.admission.peer
    }

    /// Whether the connection was given up.
    pub(super) fn stalled(&self) -> &Stalled {
        &self.stalled
    }

    fn certificate_name(&self) -> Option<&str> {
        match &self.security {
            Security::Tls { certificate_name } => certificate_name.as_deref(),
            Security::None => None,
        }
    }

    pub(super) fn front(&self) -> &Front {
        &self.front
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.front.metrics.http_connections.dec();
    }
}

/// Answers one request.
pub(super) async fn answer(connection: Arc<Connection>, request: Request<Incoming>) -> Reply {
    let arrival = Arrival::of(request.method());
    if connection.serves() == Serves::Metrics {
        // Neither by name nor by origin: a probe calls a pod by its address, and no page has business here.
        let encoding = Encoding::accepted(request.headers());
        return reply::encoded(metrics_endpoint(&connection, &arrival, &request).await, encoding).await;
    }
    let is_api = request.uri().path().starts_with(API_PREFIX);
    let access = &connection.front.access;
    if let Some(refusal) = access.refuse_host(matches!(connection.security, Security::Tls { .. }), &request) {
        connection.front.other_meter.answered(&arrival, refusal.status());
        return refusal;
    }
    let origin = access.origin(request.headers());
    let encoding = Encoding::accepted(request.headers());
    let mut reply = if request.method() == HttpMethod::OPTIONS {
        connection.front.other_meter.answered(&arrival, StatusCode::OK);
        Response::new(Body::empty())
    } else {
        endpoint(&connection, arrival, request).await
    };
    access.allow(origin, reply.headers_mut());
    let mut reply = reply::encoded(reply, encoding).await;
    if is_api {
        reply.body_mut().count(&connection.front.metrics.client_sent_bytes);
    }
    reply
}

async fn endpoint(connection: &Arc<Connection>, arrival: Arrival, request: Request<Incoming>) -> Reply {
    let front = connection.front();
    if let Some(reply) = refusal(&request) {
        front.other_meter.answered(&arrival, reply.status());
        return reply;
    }
    let path = match path::place(request.uri()) {
        Place::Here(path) => path.into_owned(),
        Place::Elsewhere(location) => return redirect(front, &arrival, &location),
        Place::Malformed => {
            front.other_meter.answered(&arrival, StatusCode::BAD_REQUEST);
            return reply::text(StatusCode::BAD_REQUEST, "400 Bad Request");
        }
    };
    if !path.starts_with("/v3/") || !front.access.gateway {
        return side_endpoint(connection, &arrival, &path, &request).await;
    }
    let found = front.router.find(&path);
    let (method, meter) = found.map_or((None, &front.other_meter), |(method, meter)| (Some(method), meter));
    if wants_socket(&request) {
        return upgrade(connection, method, meter.start(arrival), request);
    }
    let refusal = match method {
        Some(method) if request.method() == HttpMethod::POST => {
            return api_call(connection, method, meter.start(arrival), request).await;
        }
        Some(_) => ApiError::MethodNotAllowed,
        None => ApiError::NoSuchPath,
    };
    meter.answered(&arrival, reply::status_of(&refusal));
    reply::error(&refusal)
}

/// What HTTP/1.1 itself does not allow.
fn refusal(request: &Request<Incoming>) -> Option<Reply> {
    let needs_host = request.version() == Version::HTTP_11 && request.uri().host().is_none();
    let refused = needs_host && !request.headers().contains_key(HOST);
    refused.then(|| reply::text(StatusCode::BAD_REQUEST, "400 Bad Request: missing required Host header"))
}

/// Sends a client to the path it should have asked for; method and body stay.
fn redirect(front: &Front, arrival: &Arrival, location: &str) -> Reply {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let location = HeaderValue::from_str(location).expect("a location is encoded, or was in a request's head");
    reply.headers_mut().insert(LOCATION, location);
    front.other_meter.answered(arrival, reply.status());
    reply
}

async fn api_call(connection: &Arc<Connection>, method: Method, mut call: Call, request: Request<Incoming>) -> Reply {
    let began = call.began();
    let front = connection.front();
    let Wishes { timeout, requires_leader } = match wishes(front, request.headers()) {
        Ok(wishes) => wishes,
        Err(error) => return finish(call, Err(error)),
    };
    let caller = caller::of_request(request.headers(), connection.certificate_name());
    let asks_first = request.headers().contains_key(EXPECT);
    let (head, body) = request.into_parts();
    let streamed = matches!(method, Method::Watch | Method::LeaseKeepAlive);
    if streamed {
        let values = Values::new(body, front.limits.text_bytes_max, front.metrics.client_received_bytes.clone());
        let ends = Ends { going_down: front.going_down.clone(), timeout, open: front.line_streams.open() };
        // In boxes: the future of a call is moved with each request, and few of them are streams.
        return match method {
            Method::Watch => {
                let session = front.services.watch.open(caller, requires_leader, Some(connection.peer()));
                Box::pin(stream::watch(session, values, Arc::clone(connection), timeout, call)).await
            }
            _ => Box::pin(stream::keep_alive(front.services.lease.clone(), caller, values, ends, call)).await,
        };
    }
    if method.is_server_stream() {
        let ends = Ends { going_down: front.going_down.clone(), timeout, open: front.line_streams.open() };
        let messages = async {
            let text = front.read_body(body, asks_first).await?;
            server_stream::open(&front.services, method, &caller, &text).await
        };
        return Box::pin(server_stream::lines(messages, ends, call)).await;
    }
    let mut record = front.observer.begin(call.route(), began);
    record.traced(&head.headers);
    let answer = {
        // Pinned here, so that it is not moved, and its room not needed twice, whichever way it is awaited.
        let answer = pin!(async {
            let text = front.read_body(body, asks_first).await?;
            record.read(text.len());
            let _call = front.begin_call()?;
            unary_call(front, method, &caller, &text, &mut record).await
        });
        match timeout {
            None => answer.await,
            Some(timeout) => within(timeout.saturating_sub(began.elapsed()), answer).await,
        }
    };
    record.ends(answer.as_ref().map(Answer::len));
    // A compaction's answer waits for more than its command.
    if let Some(stages) = caller.stages().filter(|_| method != Method::Compact) {
        let respond = front.metrics.time.now().saturating_sub(stages.applied_at);
        front.metrics.stages.of(Stage::Respond).observe(respond);
        record.wrote(stages);
    }
    match answer {
        Ok(Answer::Begun(first, rest)) => {
            call.answered(StatusCode::OK);
            let remaining = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            let turns = PollSemaphore::new(Arc::clone(&front.list_turns));
            let streamed = front.metrics.range_streamed_bytes.clone();
            reply::range(RangePieces::new(first, rest, turns, remaining, call, streamed))
        }
        Ok(Answer::Whole(whole)) => finish(call, Ok(whole)),
        Err(error) => finish(call, Err(error)),
    }
}

/// What a client asks for beside its request.
struct Wishes {
    timeout: Option<std::time::Duration>,
    requires_leader: bool,
}

/// Reads the headers that say how to go about a call.
fn wishes(front: &Front, headers: &hyper::HeaderMap) -> Result<Wishes, ApiError> {
    let requires_leader = caller::requires_leader(headers);
    if requires_leader && !front.services.has_leader() {
        return Err(ApiError::NoLeader);
    }
    Ok(Wishes { timeout: client_timeout(headers)?, requires_leader })
}

/// A unary call that ends with the member if it waits for other clients. Dropping it ends its wait.
async fn unary_call(
    front: &Front,
    method: Method,
    caller: &Caller,
    text: &[u8],
    record: &mut Record<'_>,
) -> Result<Answer, ApiError> {
    if !method.may_wait() {
        return unary::call(&front.services, &front.limits, method, caller, text, record).await;
    }
    record.waits_for_others();
    // In a box: this future is moved with each request, and few wait.
    let answer = Box::pin(unary::call(&front.services, &front.limits, method, caller, text, record));
    front.going_down.run_until_cancelled(answer).await.unwrap_or(Err(ApiError::Stopped))
}

async fn within<T>(
    timeout: std::time::Duration,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    if timeout.is_zero() {
        return Err(ApiError::DeadlineExceeded);
    }
    tokio::time::timeout(timeout, answer).await.unwrap_or(Err(ApiError::DeadlineExceeded))
}

fn finish(mut call: Call, answer: Result<Vec<u8>, ApiError>) -> Reply {
    call.ends(answer.as_ref().err());
    let reply = match answer {
        Ok(body) => reply::answer(body),
        Err(error) => reply::error(&error),
    };
    call.answered(reply.status());
    call.took();
    reply
}

/// What is served where metrics alone are: anything else is not there, whatever the method.
async fn metrics_endpoint(connection: &Connection, arrival: &Arrival, request: &Request<Incoming>) -> Reply {
    let front = connection.front();
    if let Some(reply) = refusal(request) {
        front.other_meter.answered(arrival, reply.status());
        return reply;
    }
    match path::place(request.uri()) {
        Place::Here(path) if side::is_for_operators(&path) => side_endpoint(connection, arrival, &path, request).await,
        Place::Here(_) | Place::Elsewhere(_) | Place::Malformed => {
            front.other_meter.answered(arrival, reply::status_of(&ApiError::NoSuchPath));
            reply::error(&ApiError::NoSuchPath)
        }
    }
}

async fn side_endpoint(connection: &Connection, arrival: &Arrival, path: &str, request: &Request<Incoming>) -> Reply {
    let front = connection.front();
    let (meter, reply) = match side::template(path) {
        None => (&*front.other_meter, side::not_found()),
        Some(template) => {
            let reply = if request.method() == HttpMethod::GET {
                let caller = match connection.serves() {
                    Serves::Everything => caller::of_request(request.headers(), connection.certificate_name()),
                    Serves::Metrics => Caller::operator(),
                };
                let query = request.uri().query().unwrap_or_default();
                side::answer(front, path, query, request.headers(), &caller).await
            } else {
                reply::text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n")
            };
            (front.side_meter(template), reply)
        }
    };
    meter.answered(arrival, reply.status());
    reply
}

/// Over HTTP/1.1 an upgrade, over HTTP/2 an extended CONNECT.
fn wants_socket(request: &Request<Incoming>) -> bool {
    request.method() == HttpMethod::CONNECT
        || request.headers().get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn upgrade(connection: &Arc<Connection>, method: Option<Method>, mut call: Call, request: Request<Incoming>) -> Reply {
    let (mut parts, _) = request.into_parts();
    let handshake = Handshake::of(&mut parts, TOKEN_PROTOCOL);
    match handshake.and_then(|handshake| Ok((handshake, wishes(connection.front(), &parts.headers)?))) {
        Ok((handshake, Wishes { timeout, requires_leader })) => {
            call.answered(StatusCode::SWITCHING_PROTOCOLS);
            let caller = caller::of_socket(&parts.headers, connection.certificate_name());
            let asked = Asked { method, caller, timeout, requires_leader };
            socket::upgrade(Arc::clone(connection), handshake, asked, call)
        }
        Err(error) => {
            call.ends(Some(&error));
            call.answered(reply::status_of(&error));
            reply::error(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is moved with each request: what few calls need of it is in boxes.
    #[test]
    fn the_future_of_a_call_is_small() {
        fn future_bytes<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = future_bytes(answer);
        assert!(bytes <= 6 * 1024, "{bytes} bytes");
    }
}
