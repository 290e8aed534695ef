//! Calls that are answered with a stream: one request in, messages out, as JSON lines or as WebSocket messages.
//!
//! A message is made only when the connection asks for one, so a client that does not read holds up nothing but its own
//! stream. What goes wrong before the first message is the answer's status; after that it is the last line.

use std::{future::Future, pin::Pin};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use prost_reflect::prost::{Message, Name};
use tokio_util::sync::CancellationToken;

use super::{
    json::{generic, write},
    meter::{Call, OpenStream},
    outputs,
    reply::{self, Reply},
    routes::Method,
    stream::{Ends, NO_DEADLINE},
};
use crate::{
    error::ApiError,
    proto::etcdserverpb::SnapshotResponse,
    service::{Caller, Services, SnapshotStream},
};

/// The messages of one call, each the text of `{"result":…}`. After an error there are none.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<Vec<u8>, ApiError>> + Send>>;

/// Calls `method` with the request in `text`, in `caller`'s name.
pub(super) async fn open(
    services: &Services,
    method: Method,
    caller: &Caller,
    text: &[u8],
) -> Result<Messages, ApiError> {
    match method {
        Method::Observe => Ok(by_schema(services.election.observe(caller, generic::read(text)?))),
        Method::Snapshot => Ok(by_schema(parts(services.maintenance.snapshot(caller, generic::read(text)?).await?))),
        _ => Err(ApiError::Internal("not a call that is answered with a stream".into())),
    }
}

/// A snapshot's parts, a few read at a time.
fn parts(snapshot: SnapshotStream) -> impl Stream<Item = Result<SnapshotResponse, ApiError>> {
    let groups = stream::try_unfold(snapshot, async |snapshot| {
        let (parts, rest) = snapshot.next().await?;
        Ok::<_, ApiError>((!parts.is_empty()).then_some((stream::iter(parts.into_iter().map(Ok)), rest)))
    });
    groups.try_flatten()
}

/// Messages without a writer of their own.
fn by_schema<Answer: Message + Name>(
    answers: impl Stream<Item = Result<Answer, ApiError>> + Send + 'static,
) -> Messages {
    Box::pin(answers.map(|answer| {
        let answer = answer?;
        let mut text = Vec::new();
        let mut object = write::Object::begin(&mut text);
        generic::write(&answer, object.name("result"))?;
        object.end();
        Ok(text)
    }))
}

/// Answers with a line for each message. The head goes out with the first.
pub(super) async fn lines(
    messages: impl Future<Output = Result<Messages, ApiError>>,
    ends: Ends,
    mut call: Call,
) -> Reply {
    let timeout = Box::pin(tokio::time::sleep(ends.timeout.unwrap_or(NO_DEADLINE)));
    let Ends { going_down, open, .. } = ends;
    let mut lines = Lines { messages: Box::pin(stream::empty()), going_down, timeout, _open: open };
    let opened = lines.until_the_end(messages).await;
    let first = match opened {
        Ok(messages) => {
            lines.messages = messages;
            lines.next().await
        }
        Err(error) => Some(Err(error)),
    };
    match first {
        Some(Err(error)) => {
            call.ends(Some(&error));
            call.answered(reply::status_of(&error));
            reply::stream_error(&error)
        }
        first => {
            call.answered(hyper::StatusCode::OK);
            let rest = stream::unfold(Some((lines, call)), rest);
            reply::lines(stream::iter(first.and_then(Result::ok).map(line)).chain(rest))
        }
    }
}

struct Lines {
    messages: Messages,
    going_down: CancellationToken,
    timeout: Pin<Box<tokio::time::Sleep>>,
    _open: OpenStream,
}

impl Lines {
    /// The next message; an end that is not the stream's own is an error, so that no client takes a part for the whole.
    async fn next(&mut self) -> Option<Result<Vec<u8>, ApiError>> {
        let Lines { messages, going_down, timeout, .. } = self;
        tokio::select! {
            message = messages.next() => message,
            () = going_down.cancelled() => Some(Err(ApiError::Stopped)),
            () = timeout.as_mut() => Some(Err(ApiError::DeadlineExceeded)),
        }
    }

    async fn until_the_end<T>(&mut self, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        tokio::select! {
            done = work => done,
            () = self.going_down.cancelled() => Err(ApiError::Stopped),
            () = self.timeout.as_mut() => Err(ApiError::DeadlineExceeded),
        }
    }
}

async fn rest(state: Option<(Lines, Call)>) -> Option<(Bytes, Option<(Lines, Call)>)> {
    let (mut lines, mut call) = state?;
    match lines.next().await {
        Some(Ok(message)) => Some((line(message), Some((lines, call)))),
        Some(Err(error)) => {
            call.ends(Some(&error));
            Some((outputs::error_line(&error), None))
        }
        None => {
            call.ends(None);
            None
        }
    }
}

fn line(mut message: Vec<u8>) -> Bytes {
    message.push(b'\n');
    message.into()
}
