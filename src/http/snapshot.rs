//! A snapshot over plain HTTP: one request, then lines as fast as the connection takes them.

use std::{collections::VecDeque, pin::Pin};

use bytes::Bytes;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::{
    json::generic,
    meter::Call,
    outputs,
    reply::{self, Reply},
    stream::{Ends, NO_DEADLINE, refused},
};
use crate::{
    error::ApiError,
    proto::etcdserverpb::{SnapshotRequest, SnapshotResponse},
    service::{Caller, MaintenanceService, SnapshotStream},
};

/// Serves a snapshot to the request in `body`.
pub(super) async fn snapshot(
    service: &MaintenanceService,
    caller: &Caller,
    body: Result<Vec<u8>, ApiError>,
    ends: Ends,
    mut call: Call,
) -> Reply {
    let opened = async { open(service, caller, &body?).await };
    let stream = match opened.await {
        Ok(stream) => stream,
        Err(error) => return refused(&error, &mut call),
    };
    call.answered(hyper::StatusCode::OK);
    let lines = Lines {
        stream: Some(stream),
        ready: VecDeque::new(),
        going_down: ends.going_down,
        timeout: Box::pin(tokio::time::sleep(ends.timeout.unwrap_or(NO_DEADLINE))),
        call,
    };
    reply::lines(stream::unfold(lines, Lines::next))
}

/// Opens a snapshot for the request in `body`.
pub(super) async fn open(
    service: &MaintenanceService,
    caller: &Caller,
    body: &[u8],
) -> Result<SnapshotStream, ApiError> {
    service.snapshot(caller, generic::read::<SnapshotRequest>(body)?).await
}

struct Lines {
    /// `None` once nothing more is to come from it.
    stream: Option<SnapshotStream>,
    ready: VecDeque<SnapshotResponse>,
    going_down: CancellationToken,
    timeout: Pin<Box<tokio::time::Sleep>>,
    call: Call,
}

impl Lines {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let line = match self.response().await {
            Ok(Some(response)) => outputs::snapshot(&response).map(|mut line| {
                line.push(b'\n');
                line.into()
            }),
            Ok(None) => {
                self.call.ends(None);
                return None;
            }
            Err(error) => Err(error),
        };
        let line = line.unwrap_or_else(|error| {
            self.call.ends(Some(&error));
            self.stream = None;
            self.ready.clear();
            outputs::error_line(&error)
        });
        Some((line, self))
    }

    async fn response(&mut self) -> Result<Option<SnapshotResponse>, ApiError> {
        if let Some(response) = self.ready.pop_front() {
            return Ok(Some(response));
        }
        let Some(stream) = self.stream.take() else { return Ok(None) };
        let (responses, stream) = tokio::select! {
            more = stream.next() => more?,
            // Without its last message a snapshot is none: the client must not take it for whole.
            () = self.going_down.cancelled() => return Err(ApiError::Stopped),
            () = self.timeout.as_mut() => return Err(ApiError::DeadlineExceeded),
        };
        self.ready = responses.into();
        let first = self.ready.pop_front();
        self.stream = first.is_some().then_some(stream);
        Ok(first)
    }
}
