//! Watch streams: requests in, complete responses out.
//!
//! The hub decides what each watcher gets; here it becomes etcd's responses: headers, the texts of refusals, and the
//! splitting of responses that are too big for watchers that allow it.

mod fragment;
mod permits;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    error::ApiError,
    mvcc::KeyRange,
    proto::etcdserverpb::{
        self as pb, WatchCreateRequest, WatchResponse, watch_create_request::FilterType, watch_request::RequestUnion,
    },
    watch::{CreateError, Delivery, EventBatch, HubReport, StreamClient, WatchSpec, WatchStream},
};

use self::permits::Permits;
use super::{Caller, Core, header::Headers};

/// The watch id of a response that belongs to no watch: refusals, and progress of the whole stream.
const NO_WATCH_ID: i64 = -1;
/// Most refusals that wait for their client. One that is refused more often without reading is cut off.
const WAITING_REFUSALS_MAX: usize = 1024;

/// Responses that wait for their client above which its requests are to wait too.
const WAITING_RESPONSES_MAX: usize = 512;

/// Opens watch streams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WatchService {
    core: Core,
    response_bytes_max: usize,
    leaderless_max: Duration,
}

impl WatchService {
    pub(super) fn new(core: Core, response_bytes_max: usize, leaderless_max: Duration) -> WatchService {
        WatchService { core, response_bytes_max, leaderless_max }
    }

    /// A stream for one client. Dropping it cancels all its watches. With `requires_leader`, it ends when there has been no
    /// leader for a while. `peer` is where the client connects from, for who asks how streams stand.
    pub fn open(&self, caller: Caller, requires_leader: bool, peer: Option<SocketAddr>) -> WatchSession {
        let leaderless = requires_leader.then(|| {
            let (consensus, limit) = (self.core.consensus.clone(), self.leaderless_max);
            Leaderless(Box::pin(async move { consensus.leaderless(limit).await }))
        });
        WatchSession {
            permits: Permits::default(),
            leaderless,
            failure: None,
            core: self.core.clone(),
            stream: self.core.state.hub.open_stream(self.client(&caller, peer)),
            response_bytes_max: self.response_bytes_max,
            waiting: VecDeque::new(),
            cut_off: false,
            finishing: false,
            waker: None,
            caller,
        }
    }

    /// A name for reports. One whose token is bad has none: each of its watches will be refused.
    fn client(&self, caller: &Caller, peer: Option<SocketAddr>) -> StreamClient {
        let user = self.core.identify(caller).map(|identity| identity.user).unwrap_or_default();
        StreamClient { peer, user: user.into() }
    }

    /// How all streams of this member stand: those that lag most, at most `streams_max`. For operators and
    /// those who may do what concerns everybody.
    pub async fn report(&self, caller: &Caller, streams_max: usize) -> Result<HubReport, ApiError> {
        self.core.require_observer(caller)?;
        let (sender, report) = oneshot::channel();
        self.core.state.hub.report(streams_max, move |report| {
            // Whoever asked may be gone.
            let _ = sender.send(report);
        });
        report.await.map_err(|_| ApiError::Stopped)
    }
}

/// What goes to the client. Headers are complete.
#[derive(Debug)]
pub enum WatchOutput {
    /// Anything without events.
    Control(WatchResponse),
    /// Events, shared with other streams; `header` and the flag `fragment` are this response's. Already split if the
    /// watcher allows it.
    Events {
        /// Complete; the revision is the store's when the events were handed over, at least the events'.
        header: pb::ResponseHeader,
        /// The watch they belong to.
        watch_id: i64,
        /// Whether more events of the same revisions follow in the next response.
        fragment: bool,
        /// The events, in order.
        events: Arc<EventBatch>,
        /// When the oldest of them was applied; `None` if they were read from history.
        applied_at: Option<Instant>,
    },
}

struct Leaderless(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for Leaderless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaderless")
    }
}

/// One client's stream of watches: requests in, deliveries out.
#[derive(Debug)]
pub struct WatchSession {
    core: Core,
    /// In whose name every watch of this stream is created.
    caller: Caller,
    permits: Permits,
    stream: WatchStream,
    response_bytes_max: usize,
    /// Refusals, and the pieces of a split response; they go out before anything new is taken from the hub.
    waiting: VecDeque<WatchOutput>,
    cut_off: bool,
    /// Ends with what is in the store now.
    finishing: bool,
    /// Why the stream ends by the member's doing.
    failure: Option<ApiError>,
    /// Resolves when there has been no leader for too long; of clients that asked to be told.
    leaderless: Option<Leaderless>,
    /// Whom a refusal must wake.
    waker: Option<Waker>,
}

impl WatchSession {
    /// Whether [`WatchSession::handle`] should be given more. `false` only while there are responses to take: each request
    /// is answered whether its answer is taken or not, so a transport that asks first bounds what a client can make wait here.
    /// A session that finishes takes none any more.
    pub fn takes_requests(&self) -> bool {
        !self.finishing && self.waiting.len() + self.stream.pending_deliveries() < WAITING_RESPONSES_MAX
    }

    /// Takes one request of the client's. Unknown or empty ones are ignored, as etcd does. Refused creations come out as a
    /// created+canceled response with watch_id -1.
    pub fn handle(&mut self, request: pb::WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                if let Err(reason) = self.create(watch_spec(create)) {
                    self.refuse(reason);
                }
            }
            // No such watch: etcd stays silent.
            Some(RequestUnion::CancelRequest(cancel)) => drop(self.stream.cancel(cancel.watch_id)),
            Some(RequestUnion::ProgressRequest(_)) => self.stream.request_progress(),
            None => {}
        }
    }

    /// Creates a watch, or says why not. Whom it is refused to is looked at before everything but a negative revision, as
    /// in etcd; and always for the range as it was asked for, an open end included.
    fn create(&mut self, spec: WatchSpec) -> Result<(), String> {
        if spec.watch_id != 0 && self.permits.is_revoked(spec.watch_id) {
            return Err(CreateError::DuplicateId.to_string());
        }
        if spec.start_revision < 0 {
            return Err(CreateError::NegativeRevision.to_string());
        }
        let permit = Permits::check(&self.core, &self.caller, &spec.range).map_err(|error| permits::reason(&error))?;
        let watch_id = self.stream.create(spec).map_err(|refusal| refusal.to_string())?;
        self.permits.add(watch_id, permit);
        Ok(())
    }

    /// Lets the session end with everything that is in the store now delivered. To be called once no more writes are
    /// acknowledged.
    pub fn finish(&mut self) {
        self.finishing = true;
        self.stream.finish();
    }

    fn refuse(&mut self, reason: String) {
        let refusals = self.waiting.iter().filter(|output| matches!(output, WatchOutput::Control(_))).count();
        if refusals >= WAITING_REFUSALS_MAX {
            tracing::warn!("a watch client does not read its refusals; its stream is cut off");
            self.cut_off = true;
        } else {
            let header = self.core.headers.at(self.core.state.store.revision());
            self.waiting.push_back(WatchOutput::Control(refused(header, reason)));
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Why there are no more responses, unless that is because the member is going down.
    pub fn failure(&self) -> Option<ApiError> {
        self.failure.clone()
    }

    /// The next response; `None` when the member is going down, has cut this client off, or has failed it: see
    /// [`WatchSession::failure`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchOutput>> {
        if let Some(output) = self.waiting.pop_front() {
            return Poll::Ready(Some(output));
        }
        if let Some(leaderless) = self.leaderless.as_mut()
            && leaderless.0.as_mut().poll(context).is_ready()
        {
            self.leaderless = None;
            self.failure = Some(ApiError::NoLeader);
        }
        if self.cut_off || self.failure.is_some() {
            return Poll::Ready(None);
        }
        loop {
            match self.stream.poll_next(context) {
                Poll::Ready(Some(delivery)) => {
                    if let Some(delivery) = self.permitted(delivery) {
                        return Poll::Ready(Some(self.output(delivery)));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    /// What may go out of a delivery. Watches that are permitted no more get nothing but their end.
    fn permitted(&mut self, mut delivery: Delivery) -> Option<Delivery> {
        for watch_id in self.permits.revoke(&self.core, &self.caller) {
            // If the client has just canceled it itself, that is on its way.
            self.stream.cancel(watch_id);
        }
        match &mut delivery {
            Delivery::Canceled { watch_id, reason, .. } => {
                if let Some(revoked) = self.permits.remove(*watch_id) {
                    *reason = revoked;
                }
            }
            Delivery::Created { .. } => {}
            Delivery::Events { watch_id, .. } | Delivery::Progress { watch_id, .. } => {
                if self.permits.is_revoked(*watch_id) {
                    return None;
                }
            }
        }
        Some(delivery)
    }

    /// The next response if one is ready without waiting (so that a transport can gather a burst into one write). After a
    /// `None` only `poll_next` arranges for a wake-up.
    pub fn try_next(&mut self) -> Option<WatchOutput> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => None,
        }
    }

    fn output(&mut self, delivery: Delivery) -> WatchOutput {
        let (watch_id, revision, events, may_split, applied_at) = match delivery {
            Delivery::Events { watch_id, revision, events, fragment, applied_at } => {
                (watch_id, revision, events, fragment, applied_at)
            }
            control => return WatchOutput::Control(control_response(&self.core.headers, control)),
        };
        let header = self.core.headers.at(revision);
        if !may_split {
            return WatchOutput::Events { header, watch_id, fragment: false, events, applied_at };
        }
        let mut pieces = fragment::split(&events, self.response_bytes_max).into_iter().peekable();
        let first = pieces.next().unwrap_or_default();
        if pieces.peek().is_none() {
            return WatchOutput::Events { header, watch_id, fragment: false, events, applied_at };
        }
        while let Some(piece) = pieces.next() {
            let (events, fragment) = (Arc::new(EventBatch::new(piece)), pieces.peek().is_some());
            self.waiting.push_back(WatchOutput::Events { header, watch_id, fragment, events, applied_at });
        }
        let events = Arc::new(EventBatch::new(first));
        WatchOutput::Events { header, watch_id, fragment: true, events, applied_at }
    }
}

/// A creation as the hub takes it. No key means "\0", as in etcd: with the end "\0" that is everything.
fn watch_spec(request: WatchCreateRequest) -> WatchSpec {
    let filters = |kind: FilterType| request.filters.contains(&(kind as i32));
    let (no_put, no_delete) = (filters(FilterType::Noput), filters(FilterType::Nodelete));
    let key = if request.key.is_empty() { Bytes::from_static(b"\0") } else { request.key };
    WatchSpec {
        range: KeyRange::new(key, request.range_end),
        start_revision: request.start_revision,
        progress_notify: request.progress_notify,
        no_put,
        no_delete,
        prev_kv: request.prev_kv,
        fragment: request.fragment,
        watch_id: request.watch_id,
    }
}

fn refused(header: pb::ResponseHeader, cancel_reason: String) -> WatchResponse {
    WatchResponse {
        header: Some(header),
        watch_id: NO_WATCH_ID,
        created: true,
        canceled: true,
        cancel_reason,
        ..Default::default()
    }
}

fn control_response(headers: &Headers, delivery: Delivery) -> WatchResponse {
    let (header_revision, response) = control_parts(delivery);
    WatchResponse { header: Some(headers.at(header_revision)), ..response }
}

/// The header's revision, and the rest of the response.
fn control_parts(delivery: Delivery) -> (i64, WatchResponse) {
    match delivery {
        Delivery::Created { watch_id, revision } => {
            (revision, WatchResponse { watch_id, created: true, ..Default::default() })
        }
        Delivery::Progress { watch_id, revision } => (revision, WatchResponse { watch_id, ..Default::default() }),
        Delivery::Canceled { watch_id, revision, compact_revision, reason } => {
            let response = WatchResponse {
                watch_id,
                canceled: true,
                compact_revision,
                cancel_reason: reason,
                ..Default::default()
            };
            // A watch that fell behind a compaction is told the compact revision and, as by etcd, no other.
            (if compact_revision == 0 { revision } else { 0 }, response)
        }
        Delivery::Events { watch_id, revision, .. } => (revision, WatchResponse { watch_id, ..Default::default() }),
    }
}
