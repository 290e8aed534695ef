//! The answer to a range: whole if it is small, else a stream from the cursor to the socket.
//!
//! A piece is made, in turn with those of other lists, when the connection asks for one, and one ahead of it, on a
//! thread where that keeps nobody waiting: a client that does not read holds two pieces and no thread. What goes wrong
//! in the middle breaks the transfer, so that nobody takes what came so far for the answer. Must never know: how keys
//! are kept.

use std::{
    future::Future,
    io,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use prometheus::IntCounter;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Sleep, sleep},
};
use tokio_util::sync::PollSemaphore;

use super::{
    encoding::{Encoder, Encoding},
    json::write::RangeWriter,
    meter::Call,
    record::Record,
};
use crate::{
    error::ApiError,
    mvcc::RangeCursor,
    service::{NextPage, RangeAnswer, read_error},
};

/// An answer that is bigger is sent in pieces.
pub(super) const WHOLE_BYTES_MAX: usize = 256 * 1024;
/// A piece ends with the pair that takes it beyond this.
const PIECE_BYTES: usize = 128 * 1024;
/// Pairs asked of the cursor at a time.
const STEP_KEYS: usize = 1_000;
/// Room for an answer without pairs or values.
const SMALL_ANSWER_BYTES: usize = 256;

/// A range's answer in the making.
#[derive(Debug)]
pub(super) struct RangeBody {
    cursor: RangeCursor,
    next_page: Option<NextPage>,
    writer: RangeWriter,
}

/// The answer of a range: all of it, or its beginning and what makes the rest.
#[derive(Debug)]
pub(super) enum Answer {
    Whole(Vec<u8>),
    Begun(Vec<u8>, Box<RangeBody>),
}

impl Answer {
    /// Bytes of it that are made.
    pub(super) fn len(&self) -> usize {
        match self {
            Answer::Whole(text) | Answer::Begun(text, _) => text.len(),
        }
    }
}

/// A piece, and what makes the next one; of the last one, how many keys there are.
type Piece = (Vec<u8>, Result<Box<RangeBody>, i64>);

impl RangeBody {
    /// Makes the answer, or its beginning if it is not small.
    pub(super) async fn begin(answer: RangeAnswer, record: &mut Record<'_>) -> Result<Answer, ApiError> {
        let RangeAnswer { header, cursor, next_page, is_long } = answer;
        let writer = RangeWriter::begin(Some(&header), SMALL_ANSWER_BYTES);
        let body = Box::new(RangeBody { cursor, next_page, writer });
        let begun =
            if is_long { elsewhere(move || body.piece(WHOLE_BYTES_MAX)).await } else { body.piece(WHOLE_BYTES_MAX) };
        begun.map(|(piece, rest)| match rest {
            Err(count) => {
                record.counted(count);
                Answer::Whole(piece)
            }
            Ok(rest) => Answer::Begun(piece, rest),
        })
    }

    /// The whole answer, for transports that cannot do better.
    pub(super) async fn whole(answer: Answer) -> Result<Vec<u8>, ApiError> {
        match answer {
            Answer::Whole(whole) => Ok(whole),
            Answer::Begun(mut whole, mut body) => {
                elsewhere(move || {
                    loop {
                        let (piece, rest) = body.piece(PIECE_BYTES)?;
                        whole.extend_from_slice(&piece);
                        match rest {
                            Err(_) => return Ok(whole),
                            Ok(rest) => body = rest,
                        }
                    }
                })
                .await
            }
        }
    }

    /// Makes the next piece.
    fn piece(mut self: Box<Self>, bytes: usize) -> Result<Piece, ApiError> {
        loop {
            let writer = &mut self.writer;
            let more = self.cursor.next_chunk_while(STEP_KEYS, &mut |kv| {
                writer.pair(kv);
                if writer.len() < bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if !more.map_err(read_error)? {
                let (more, count) = self.cursor.more_and_count();
                let next_page = self.next_page.zip(self.cursor.page_end());
                let token = next_page.map(|(page, after)| page.token(after, count)).unwrap_or_default();
                return Ok((self.writer.end(more, count, &token), Err(count)));
            }
            if self.writer.len() >= bytes {
                return Ok((self.writer.take(), Ok(self)));
            }
        }
    }
}

async fn elsewhere<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    spawn_blocking(make).await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
}

/// An answer on its way, piece by piece.
pub(super) struct RangePieces {
    /// The piece that was made before anybody asked.
    first: Option<Vec<u8>>,
    state: State,
    turns: PollSemaphore,
    encoder: Encoder,
    deadline: Option<Pin<Box<Sleep>>>,
    call: Call,
    streamed: IntCounter,
}

enum State {
    Idle(Box<RangeBody>),
    Making(JoinHandle<Result<Made, ApiError>>),
    Done,
}

/// A piece, encoded, with what encodes and what makes the next one.
struct Made {
    piece: Bytes,
    encoder: Encoder,
    rest: Option<Box<RangeBody>>,
}

impl RangePieces {
    /// `remaining`: how long the client is still willing to wait. `streamed` counts the bytes that are sent.
    pub(super) fn new(
        first: Vec<u8>,
        rest: Box<RangeBody>,
        turns: PollSemaphore,
        remaining: Option<std::time::Duration>,
        call: Call,
        streamed: IntCounter,
    ) -> RangePieces {
        RangePieces {
            first: Some(first),
            state: State::Idle(rest),
            turns,
            encoder: Encoder::new(Encoding::Identity),
            deadline: remaining.map(|remaining| Box::pin(sleep(remaining))),
            call,
            streamed,
        }
    }

    /// Has the pieces encoded. To be called before the first is asked for.
    pub(super) fn encode(&mut self, encoding: Encoding) {
        self.encoder = Encoder::new(encoding);
    }

    /// The next piece. An error breaks the transfer.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match ready!(self.poll_piece(context)) {
            Ok(piece) => {
                match &piece {
                    Some(piece) => self.streamed.inc_by(piece.len() as u64),
                    None => {
                        self.call.ends(None);
                        self.call.took();
                    }
                }
                Poll::Ready(piece.map(Ok))
            }
            Err(error) => {
                self.state = State::Done;
                tracing::warn!(%error, "a range's answer was broken off");
                self.call.ends(Some(&error));
                Poll::Ready(Some(Err(io::Error::other(error.to_string()))))
            }
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ApiError>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(ApiError::DeadlineExceeded));
        }
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Poll::Ready(Ok(None)),
                State::Idle(body) => {
                    if self.make(context, body).is_pending() {
                        return Poll::Pending;
                    }
                }
                State::Making(mut making) => {
                    let Poll::Ready(made) = Pin::new(&mut making).poll(context) else {
                        self.state = State::Making(making);
                        return Poll::Pending;
                    };
                    let made = made.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())));
                    let Made { piece, encoder, rest } = made?;
                    self.encoder = encoder;
                    if let Some(rest) = rest {
                        // One ahead, if it is its turn.
                        let _ = self.make(context, rest);
                    }
                    // An encoder may keep a piece to itself until it has more.
                    if !piece.is_empty() {
                        return Poll::Ready(Ok(Some(piece)));
                    }
                }
            }
        }
    }

    /// Begins with the next piece once it is its turn.
    fn make(&mut self, context: &mut Context<'_>, body: Box<RangeBody>) -> Poll<()> {
        let Poll::Ready(turn) = self.turns.poll_acquire(context) else {
            self.state = State::Idle(body);
            return Poll::Pending;
        };
        let first = self.first.take();
        let mut encoder = std::mem::replace(&mut self.encoder, Encoder::new(Encoding::Identity));
        self.state = State::Making(spawn_blocking(move || {
            let (piece, rest) = match first {
                Some(first) => (first, Some(body)),
                None => {
                    let (piece, rest) = body.piece(PIECE_BYTES)?;
                    (piece, rest.ok())
                }
            };
            let encoded =
                encoder.encode(piece, rest.is_none()).map_err(|error| ApiError::Internal(error.to_string()))?;
            drop(turn);
            Ok(Made { piece: encoded.into(), encoder, rest })
        }));
        Poll::Ready(())
    }
}
