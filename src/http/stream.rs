//! Streamed calls over plain HTTP: JSON values in, a chunked body of JSON lines out.
//!
//! The headers go out at once, unless the whole request is known to be coming: then the first value is looked at before, and
//! a bad one is answered with its status. A response is made only when the connection asks for one, so a client that does not
//! read holds up nothing but its own session. Dropping the body (the client is gone) drops the session.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    json::read,
    meter::Call,
    outputs,
    reply::{self, Reply},
    values::Values,
};
use crate::{
    error::ApiError,
    service::{LeaseService, WatchService, WatchSession},
};

/// Responses are gathered until they reach this size, then written.
pub(super) const GATHERED_BYTES: usize = 64 * 1024;
/// Requests taken from a client before its responses get their turn.
const REQUESTS_AT_ONCE_MAX: usize = 64;
/// What a client that sets no deadline gets: none, for all practical purposes.
const NO_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// When a stream ends without its client's doing.
pub(super) struct Ends {
    /// The member is going down.
    pub(super) going_down: CancellationToken,
    /// How long the client is willing to wait.
    pub(super) timeout: Option<Duration>,
}

/// Serves a watch stream.
pub(super) async fn watch(service: &WatchService, mut values: Values, ends: Ends, mut call: Call) -> Reply {
    let mut session = service.open();
    if values.is_announced()
        && let Some(first) = poll_fn(|context| values.poll_next(context, read::watch)).await
    {
        match first {
            Ok(request) => session.handle(request),
            Err(error) => return refused(&error, &mut call),
        }
    }
    call.ends(None);
    call.answered(hyper::StatusCode::OK);
    reply::lines(WatchLines {
        session,
        values: Some(values),
        going_down: Box::pin(ends.going_down.cancelled_owned()),
        deadline: ends.timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))),
        call,
        ended: false,
    })
}

fn refused(error: &ApiError, call: &mut Call) -> Reply {
    call.ends(Some(error));
    call.answered(reply::status_of(error));
    reply::stream_error(error)
}

struct WatchLines {
    session: WatchSession,
    values: Option<Values>,
    going_down: Pin<Box<WaitForCancellationFutureOwned>>,
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    call: Call,
    ended: bool,
}

impl WatchLines {
    fn fail(&mut self, error: &ApiError) -> Bytes {
        self.ended = true;
        self.call.ends(Some(error));
        outputs::error_line(error)
    }

    /// Hands the client's requests to the session.
    fn take_requests(&mut self, context: &mut Context<'_>) -> Result<(), ApiError> {
        for _ in 0..REQUESTS_AT_ONCE_MAX {
            let Some(values) = self.values.as_mut() else { return Ok(()) };
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
        if this.ended || this.going_down.as_mut().poll(context).is_ready() {
            this.ended = true;
            return Poll::Ready(None);
        }
        if let Some(deadline) = this.deadline.as_mut()
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(this.fail(&ApiError::DeadlineExceeded)));
        }
        if let Err(error) = this.take_requests(context) {
            return Poll::Ready(Some(this.fail(&error)));
        }
        let Poll::Ready(first) = this.session.poll_next(context) else { return Poll::Pending };
        let mut lines = Vec::new();
        let mut next = first;
        while let Some(output) = next {
            outputs::watch(&mut lines, &output);
            lines.push(b'\n');
            next = if lines.len() < GATHERED_BYTES { this.session.try_next() } else { None };
        }
        if lines.is_empty() {
            this.ended = true;
            return Poll::Ready(None);
        }
        Poll::Ready(Some(lines.into()))
    }
}

/// Serves lease renewals: one line for each value, until there are no more values.
pub(super) async fn keep_alive(service: LeaseService, mut values: Values, ends: Ends, mut call: Call) -> Reply {
    let mut first = Vec::new();
    if values.is_announced()
        && let Some(request) = poll_fn(|context| values.poll_next(context, read::keep_alive)).await
    {
        let response = match request {
            Ok(request) => service.keep_alive(request).await,
            Err(error) => Err(error),
        };
        match response {
            Ok(response) => {
                outputs::keep_alive(&mut first, &response);
                first.push(b'\n');
            }
            Err(error) => return refused(&error, &mut call),
        }
    }
    call.ends(None);
    call.answered(hyper::StatusCode::OK);
    let timeout = Box::pin(tokio::time::sleep(ends.timeout.unwrap_or(NO_DEADLINE)));
    let renewals = Renewals { service, values, going_down: ends.going_down, timeout, call, first, ended: false };
    reply::lines(stream::unfold(renewals, Renewals::next))
}

struct Renewals {
    service: LeaseService,
    values: Values,
    going_down: CancellationToken,
    timeout: Pin<Box<tokio::time::Sleep>>,
    call: Call,
    first: Vec<u8>,
    ended: bool,
}

impl Renewals {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if !self.first.is_empty() {
            return Some((std::mem::take(&mut self.first).into(), self));
        }
        if self.ended {
            return None;
        }
        let line = match self.renewal().await {
            Ok(line) => line?,
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
        let response = self.service.keep_alive(request?).await?;
        let mut line = Vec::new();
        outputs::keep_alive(&mut line, &response);
        line.push(b'\n');
        Ok(Some(line.into()))
    }
}
