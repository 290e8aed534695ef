//! Streamed calls over plain HTTP: JSON values in, a chunked body of JSON lines out.
//!
//! The headers go out at once, unless the whole request is known to be coming: then the first value is looked at before, and
//! a bad one is answered with its status. A response is made only when the connection asks for one, so a client that does not
//! read holds up nothing but its own session. Dropping the body (the client is gone) drops the session.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    disconnect::Disconnect,
    front::Connection,
    json::read,
    limits::BODY_SILENCE_MAX,
    meter::{Call, OpenStream},
    outputs,
    reply::{self, Reply},
    values::Values,
};
use crate::{
    error::ApiError,
    proto::etcdserverpb::LeaseKeepAliveResponse,
    service::{Caller, LeaseService, WatchSession},
};

/// Requests taken from a client before its responses get their turn.
pub(super) const REQUESTS_AT_ONCE_MAX: usize = 64;
/// What a client that sets no deadline gets: none, for all practical purposes.
pub(super) const NO_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// When a stream ends without its client's doing.
pub(super) struct Ends {
    /// The member is going down.
    pub(super) going_down: CancellationToken,
    /// How long the client is willing to wait.
    pub(super) timeout: Option<Duration>,
    /// It counts as open until this is dropped.
    pub(super) open: OpenStream,
}

/// Serves a watch stream.
pub(super) async fn watch(
    mut session: WatchSession,
    mut values: Values,
    connection: Arc<Connection>,
    timeout: Option<Duration>,
    mut call: Call,
) -> Reply {
    match announced_value(&mut values, read::watch).await {
        Ok(Some(request)) => session.handle(request),
        Ok(None) => {}
        Err(error) => return refused(&error, &mut call),
    }
    call.answered(hyper::StatusCode::OK);
    let open = connection.front().line_streams.open();
    let watches_end = connection.front().watches_end.clone();
    reply::lines(WatchLines {
        session,
        values: Some(values),
        watches_end: Some(Box::pin(watches_end.cancelled_owned())),
        deadline: timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))),
        connection,
        call,
        history: None,
        ended: None,
        _open: open,
    })
}

/// The first value of a request that is known to be coming whole; it is waited for, so that a bad one gets its status.
async fn announced_value<T>(
    values: &mut Values,
    read: fn(&[u8]) -> Result<T, ApiError>,
) -> Result<Option<T>, ApiError> {
    if !values.is_announced() {
        return Ok(None);
    }
    let value = poll_fn(|context| values.poll_next(context, read));
    tokio::time::timeout(BODY_SILENCE_MAX, value).await.map_err(|_| ApiError::DeadlineExceeded)?.transpose()
}

pub(super) fn refused(error: &ApiError, call: &mut Call) -> Reply {
    call.ends(Some(error));
    call.answered(reply::status_of(error));
    reply::stream_error(error)
}

struct WatchLines {
    session: WatchSession,
    values: Option<Values>,
    /// `None` once it has been told to the session.
    watches_end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    connection: Arc<Connection>,
    call: Call,
    /// The line that is being made aside, because it is history.
    history: Option<Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>>,
    /// Why there is nothing more to say.
    ended: Option<Disconnect>,
    _open: OpenStream,
}

impl WatchLines {
    /// The member ends the stream. (A client that goes just drops it, which counts as canceled.)
    fn end(&mut self) -> Poll<Option<Bytes>> {
        self.ended = Some(Disconnect::Shutdown);
        self.call.ends(None);
        Poll::Ready(None)
    }

    fn fail(&mut self, error: &ApiError) -> Bytes {
        self.ended = Some(Disconnect::of(error));
        self.call.ends(Some(error));
        outputs::error_line(error)
    }

    /// The line that is being made, once it is.
    fn poll_history(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(line) = self.history.as_mut() else { return Poll::Pending };
        let line = ready!(line.as_mut().poll(context));
        self.history = None;
        match line {
            Some(line) => Poll::Ready(Some(line)),
            None => self.end(),
        }
    }

    /// Hands the client's requests to the session, none while too many answers wait.
    fn take_requests(&mut self, context: &mut Context<'_>) -> Result<(), ApiError> {
        for _ in 0..REQUESTS_AT_ONCE_MAX {
            let Some(values) = self.values.as_mut() else { return Ok(()) };
            if !self.session.takes_requests() {
                return Ok(());
            }
            match values.poll_next(context, read::watch) {
                Poll::Ready(Some(request)) => self.session.handle(request?),
                Poll::Ready(None) => self.values = None,
                Poll::Pending => return Ok(()),
            }
        }
        context.waker().wake_by_ref();
        Ok(())
    }
}

impl Stream for WatchLines {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if this.ended.is_some() {
            return Poll::Ready(None);
        }
        if let Some(watches_end) = this.watches_end.as_mut()
            && watches_end.as_mut().poll(context).is_ready()
        {
            this.watches_end = None;
            this.values = None;
            this.session.finish();
        }
        if let Some(deadline) = this.deadline.as_mut()
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(this.fail(&ApiError::DeadlineExceeded)));
        }
        if let Err(error) = this.take_requests(context) {
            return Poll::Ready(Some(this.fail(&error)));
        }
        if this.history.is_some() {
            return this.poll_history(context);
        }
        let Poll::Ready(output) = this.session.poll_next(context) else { return Poll::Pending };
        let Some(output) = output else {
            return match this.session.failure() {
                Some(error) => Poll::Ready(Some(this.fail(&error))),
                None => this.end(),
            };
        };
        // One line for each chunk: there are clients that parse by chunks. Chunks that are ready together are still
        // written together.
        if outputs::is_history(&output) {
            let line = this.connection.front().aside.run(async move { outputs::watch_line(&output) });
            this.history = Some(Box::pin(line));
            return this.poll_history(context);
        }
        let line = outputs::watch_line(&output);
        outputs::observe(&this.connection.front().metrics, &output);
        Poll::Ready(Some(line))
    }
}

impl Drop for WatchLines {
    fn drop(&mut self) {
        let stalled = self.connection.stalled().get();
        let reason = self.ended.unwrap_or(if stalled { Disconnect::Stalled } else { Disconnect::Gone });
        reason.count(&self.connection.front().metrics);
    }
}

/// Serves lease renewals: one line for each value, until there are no more values.
pub(super) async fn keep_alive(
    service: LeaseService,
    caller: Caller,
    mut values: Values,
    ends: Ends,
    mut call: Call,
) -> Reply {
    let response = match announced_value(&mut values, read::keep_alive).await {
        Ok(Some(request)) => service.keep_alive(&caller, request).await.map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    let first = match response {
        Ok(response) => response.as_ref().map(renewal_line),
        Err(error) => return refused(&error, &mut call),
    };
    call.answered(hyper::StatusCode::OK);
    let timeout = Box::pin(tokio::time::sleep(ends.timeout.unwrap_or(NO_DEADLINE)));
    let Ends { going_down, open, .. } = ends;
    let renewals = Renewals { service, caller, values, going_down, timeout, call, first, ended: false, _open: open };
    reply::lines(stream::unfold(renewals, Renewals::next))
}

struct Renewals {
    service: LeaseService,
    caller: Caller,
    values: Values,
    going_down: CancellationToken,
    timeout: Pin<Box<tokio::time::Sleep>>,
    call: Call,
    first: Option<Bytes>,
    ended: bool,
    _open: OpenStream,
}

impl Renewals {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if let Some(first) = self.first.take() {
            return Some((first, self));
        }
        if self.ended {
            return None;
        }
        let line = match self.renewal().await {
            Ok(Some(line)) => line,
            Ok(None) => {
                self.call.ends(None);
                return None;
            }
            Err(error) => {
                self.ended = true;
                self.call.ends(Some(&error));
                outputs::error_line(&error)
            }
        };
        Some((line, self))
    }

    async fn renewal(&mut self) -> Result<Option<Bytes>, ApiError> {
        let request = tokio::select! {
            request = poll_fn(|context| self.values.poll_next(context, read::keep_alive)) => request,
            () = self.going_down.cancelled() => None,
            () = self.timeout.as_mut() => Some(Err(ApiError::DeadlineExceeded)),
        };
        let Some(request) = request else { return Ok(None) };
        let response = self.service.keep_alive(&self.caller, request?).await?;
        Ok(Some(renewal_line(&response)))
    }
}

fn renewal_line(response: &LeaseKeepAliveResponse) -> Bytes {
    let mut line = Vec::new();
    outputs::keep_alive(&mut line, response);
    line.push(b'\n');
    line.into()
}
