//! A request body that is a stream of JSON values: several in a piece, or one over several pieces.
//!
//! The end of the body is the end of the requests, not of the call. What is held is one value and one piece.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::Body as _;
use hyper::body::Incoming;
use prometheus::IntCounter;

use super::json::split::Splitter;
use crate::error::ApiError;

/// The values still to come.
#[derive(Debug)]
pub(super) struct Values {
    body: Option<Incoming>,
    splitter: Splitter,
    received: IntCounter,
}

impl Values {
    /// Values of `body`, each of at most `text_bytes_max`. Its bytes are counted as they come.
    pub(super) fn new(body: Incoming, text_bytes_max: usize, received: IntCounter) -> Values {
        Values { body: Some(body), splitter: Splitter::new(text_bytes_max), received }
    }

    /// Whether the whole body is known to be on its way, so that waiting for its first value cannot be in vain.
    pub(super) fn is_announced(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.size_hint().exact().is_some())
    }

    /// The next value, read by `read`. `None`: the client has said all it will.
    pub(super) fn poll_next<T>(
        &mut self,
        context: &mut Context<'_>,
        read: fn(&[u8]) -> Result<T, ApiError>,
    ) -> Poll<Option<Result<T, ApiError>>> {
        loop {
            match self.splitter.next_value(self.body.is_none()) {
                Ok(Some(text)) => return Poll::Ready(Some(read(text))),
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(None) => {}
            }
            let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
            match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.received.inc_by(data.len() as u64);
                        self.splitter.push(&data);
                    }
                }
                Some(Err(error)) => {
                    self.body = None;
                    return Poll::Ready(Some(Err(ApiError::Malformed(format!("malformed request: {error}")))));
                }
                None => self.body = None,
            }
        }
    }
}
