//! The answer to a range: whole if it is small, else a stream from the cursor to the socket.
//!
//! Pieces are made ahead of the connection, a few at a time and in turn with those of other lists, on a thread where
//! that keeps nobody waiting: a client that does not read holds a few pieces and no thread. What goes wrong in the
//! middle breaks the transfer, so that nobody takes what came so far for the answer. Must never know: how keys are kept.

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
    sync::{OwnedSemaphorePermit, mpsc},
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
/// Most pieces that wait for the connection.
const PIECES_AHEAD_MAX: usize = 4;
/// Once so few of them are left, the next ones are made: several at once, for waking a thread takes its time.
const PIECES_AHEAD_MIN: usize = 1;
/// Most pairs asked of the cursor at a time.
const STEP_KEYS_MAX: usize = 1_000;
/// The same while nothing is known of their size.
const FIRST_STEP_KEYS: usize = 64;
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
            let step_keys = self.step_keys(bytes);
            let writer = &mut self.writer;
            let more = self.cursor.next_chunk_while(step_keys, &mut |kv| {
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
                return Ok((self.writer.take(PIECE_BYTES), Ok(self)));
            }
        }
    }

    /// How many pairs the piece will take, as far as can be told: more would be looked for in vain.
    fn step_keys(&self, bytes: usize) -> usize {
        let Some(pair_bytes) = self.writer.pair_bytes() else { return FIRST_STEP_KEYS };
        let room_bytes = bytes.saturating_sub(self.writer.len());
        (room_bytes / pair_bytes.max(1) + 1).min(STEP_KEYS_MAX)
    }
}

async fn elsewhere<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    bulk(make).await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
}

/// Where all work on long lists is done: a thread that nobody else waits for.
fn bulk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn_blocking(work)
}

/// What makes the pieces.
struct Maker {
    /// The piece that was made before anybody asked.
    first: Option<Vec<u8>>,
    body: Box<RangeBody>,
    encoder: Encoder,
}

/// How it went: all is made, or there is no room for more.
type Ran = Result<Option<Box<Maker>>, ApiError>;

impl Maker {
    /// Makes pieces as long as there is room for them.
    fn run(mut self: Box<Self>, pieces: &mpsc::Sender<Bytes>) -> Ran {
        for _ in 0..PIECES_AHEAD_MAX {
            // Or nobody waits for them any more.
            let Ok(room) = pieces.try_reserve() else { break };
            let (piece, rest) = match self.first.take() {
                Some(first) => (first, Ok(self.body)),
                None => self.body.piece(PIECE_BYTES)?,
            };
            let encoded =
                self.encoder.encode(piece, rest.is_err()).map_err(|error| ApiError::Internal(error.to_string()))?;
            // An encoder may keep a piece to itself until it has more.
            if !encoded.is_empty() {
                room.send(encoded.into());
            }
            let Ok(body) = rest else { return Ok(None) };
            self.body = body;
        }
        Ok(Some(self))
    }
}

/// An answer on its way, piece by piece.
pub(super) struct RangePieces {
    state: State,
    made: mpsc::Receiver<Bytes>,
    maker_sends: mpsc::Sender<Bytes>,
    turns: PollSemaphore,
    deadline: Option<Pin<Box<Sleep>>>,
    call: Call,
    streamed: IntCounter,
}

enum State {
    Idle(Box<Maker>),
    Making(JoinHandle<Ran>),
    Failed(ApiError),
    Done,
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
        let maker = Maker { first: Some(first), body: rest, encoder: Encoder::new(Encoding::Identity) };
        let (maker_sends, made) = mpsc::channel(PIECES_AHEAD_MAX);
        let deadline = remaining.map(|remaining| Box::pin(sleep(remaining)));
        RangePieces { state: State::Idle(Box::new(maker)), made, maker_sends, turns, deadline, call, streamed }
    }

    /// Has the pieces encoded. To be called before the first is asked for.
    pub(super) fn encode(&mut self, encoding: Encoding) {
        if let State::Idle(maker) = &mut self.state {
            maker.encoder = Encoder::new(encoding);
        }
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
            if let Poll::Ready(Some(piece)) = self.made.poll_recv(context) {
                if self.made.len() <= PIECES_AHEAD_MIN {
                    self.look_ahead(context);
                }
                return Poll::Ready(Ok(Some(piece)));
            }
            ready!(self.poll_made(context));
            match std::mem::replace(&mut self.state, State::Done) {
                State::Failed(error) => return Poll::Ready(Err(error)),
                // The runtime may have had a task wait that has had its share.
                State::Done if self.made.is_empty() => return Poll::Ready(Ok(None)),
                State::Done => return Poll::Pending,
                under_way => self.state = under_way,
            }
        }
    }

    /// Sees what became of what is being made; has more made if there is more, and once it is its turn. Ready if there
    /// is something to be seen. To be polled only for pieces that are wanted now: whoever waits in line is given the turn,
    /// whether it comes back for it or not.
    fn poll_made(&mut self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_ran(context));
        if let State::Idle(_) = self.state
            && let Some(turn) = ready!(self.turns.poll_acquire(context))
        {
            self.run(turn);
        }
        Poll::Ready(())
    }

    /// The same for pieces that will be wanted, if it can be done at once. A client that stops reading must not be in line.
    fn look_ahead(&mut self, context: &mut Context<'_>) {
        if self.poll_ran(context).is_ready()
            && let State::Idle(_) = self.state
            && let Ok(turn) = self.turns.clone_inner().try_acquire_owned()
        {
            self.run(turn);
        }
    }

    /// Sees what became of what is being made, if anything is.
    fn poll_ran(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let State::Making(making) = &mut self.state {
            let ran = ready!(Pin::new(making).poll(context));
            self.state = match ran.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string()))) {
                Ok(Some(maker)) => State::Idle(maker),
                Ok(None) => State::Done,
                Err(error) => State::Failed(error),
            };
        }
        Poll::Ready(())
    }

    /// Has pieces made: it is its turn.
    fn run(&mut self, turn: OwnedSemaphorePermit) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(maker) => {
                let pieces = self.maker_sends.clone();
                self.state = State::Making(bulk(move || {
                    let _turn = turn;
                    maker.run(&pieces)
                }));
            }
            other => self.state = other,
        }
    }
}
