//! A WebSocket, at the level of its messages. Reading and control frames are tungstenite's; texts go out past its buffer,
//! straight from where they were made.
//!
//! That buffer would be a copy of each text, one a client, and would stay as large as it ever was for as long as the
//! client is there. Promises: frames are whole, whoever writes them: nothing of tungstenite's goes out before a text that
//! has begun is out, and the other way round. Knows nothing of what is said.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{Sink as _, SinkExt as _, Stream as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::{Role, WebSocketConfig},
    },
};

/// A socket's read buffer, which is there as long as the socket; tungstenite's own default is 128 KiB.
const READ_BUFFER_BYTES: usize = 512;
/// A frame that is a whole text message.
const WHOLE_TEXT: u8 = 0x81;
/// Longest head of a frame without a mask, in bytes: servers mask nothing.
const HEAD_BYTES_MAX: usize = 10;
/// Heads and texts written at once.
const SLICES_MAX: usize = 64;
/// Room for waiting frames that is kept while there are none.
const IDLE_FRAMES_MAX: usize = 4;

/// The socket. Clones are the same one: its task shares it with the work it has done aside. They take turns, so the lock
/// is free whenever it is taken; one that has been taken back says nothing any more.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    /// Whose turn this is.
    turn: u64,
    line: Arc<Mutex<Line<TokioIo<Upgraded>>>>,
    /// Bytes of texts.
    sent: IntCounter,
}

#[derive(Debug)]
struct Line<C> {
    /// Who may speak.
    turn: u64,
    socket: WebSocketStream<C>,
    frames: VecDeque<Frame>,
}

/// A text that waits to be written, with its head.
#[derive(Debug)]
struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    text: Bytes,
    /// Of head and text.
    sent_bytes: usize,
}

impl Socket {
    /// Takes over a connection that was upgraded. Larger messages than `message_bytes_max` break it. Bytes of texts are
    /// added to `sent`.
    pub(super) async fn new(upgraded: Upgraded, message_bytes_max: usize, sent: IntCounter) -> Socket {
        let line = Line::new(TokioIo::new(upgraded), message_bytes_max).await;
        Socket { turn: line.turn, line: Arc::new(Mutex::new(line)), sent }
    }

    /// The next message; `None` once the connection has ended.
    pub(super) async fn recv(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|context| self.line.lock().poll_next(context)).await
    }

    /// Adds a text message to those that the next flush writes. The text must be UTF-8.
    pub(super) fn feed(&mut self, text: Bytes) {
        let mut line = self.line.lock();
        if line.turn == self.turn {
            self.sent.inc_by(text.len() as u64);
            line.frames.push_back(Frame::new(text));
        }
    }

    /// Writes what was fed.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|context| {
            let mut line = self.line.lock();
            if line.turn == self.turn { line.poll_flush(context) } else { Poll::Ready(Err(Error::AlreadyClosed)) }
        })
        .await
    }

    /// Ends the turn of every clone: they say nothing from now on, whatever they are still about.
    pub(super) fn take_back(&mut self) {
        let mut line = self.line.lock();
        line.turn += 1;
        self.turn = line.turn;
    }

    /// Sends a text message. The text must be UTF-8.
    pub(super) async fn send_text(&mut self, text: Bytes) -> Result<(), Error> {
        self.feed(text);
        self.flush().await
    }

    /// Sends a control frame.
    pub(super) async fn send_control(&mut self, message: Message) -> Result<(), Error> {
        self.flush().await?;
        poll_fn(|context| self.line.lock().socket.poll_ready_unpin(context)).await?;
        self.line.lock().socket.start_send_unpin(message)?;
        self.flush().await
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Line<C> {
    async fn new(connection: C, message_bytes_max: usize) -> Line<C> {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
        Line { turn: 0, socket, frames: VecDeque::new() }
    }

    /// What is read may have to be answered by tungstenite, which it does at once: texts that have begun go first.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        if let Err(error) = ready!(self.poll_frames(context)) {
            return Poll::Ready(Some(Err(error.into())));
        }
        Pin::new(&mut self.socket).poll_next(context)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.poll_frames(context))?;
        // Also what a connection keeps below, such as TLS.
        Pin::new(&mut self.socket).poll_flush(context)
    }

    /// Writes all texts.
    fn poll_frames(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(first) = self.frames.front() else { return Poll::Ready(Ok(())) };
        if first.sent_bytes == 0 {
            // The rest of an answer to a ping, say.
            ready!(Pin::new(&mut self.socket).poll_flush(context)).map_err(io::Error::other)?;
        }
        while !self.frames.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let rests = self.frames.iter().flat_map(Frame::rest);
            let used = slices.iter_mut().zip(rests).map(|(slice, rest)| *slice = IoSlice::new(rest)).count();
            let stream = Pin::new(self.socket.get_mut());
            let sent = ready!(stream.poll_write_vectored(context, &slices[..used]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.note_sent(sent);
        }
        if self.frames.capacity() > IDLE_FRAMES_MAX {
            self.frames = VecDeque::new();
        }
        Poll::Ready(Ok(()))
    }

    fn note_sent(&mut self, mut sent: usize) {
        while let Some(frame) = self.frames.front_mut() {
            let missing = frame.head_bytes + frame.text.len() - frame.sent_bytes;
            if sent < missing {
                frame.sent_bytes += sent;
                return;
            }
            sent -= missing;
            self.frames.pop_front();
        }
    }
}

impl Frame {
    fn new(text: Bytes) -> Frame {
        let mut head = [0; HEAD_BYTES_MAX];
        head[0] = WHOLE_TEXT;
        let head_bytes = match text.len() {
            // Checked just now: each fits.
            length @ ..126 => {
                head[1] = length as u8;
                2
            }
            length @ ..=0xffff => {
                head[1] = 126;
                head[2..4].copy_from_slice(&(length as u16).to_be_bytes());
                4
            }
            length => {
                head[1] = 127;
                head[2..].copy_from_slice(&(length as u64).to_be_bytes());
                HEAD_BYTES_MAX
            }
        };
        Frame { head, head_bytes, text, sent_bytes: 0 }
    }

    /// What is still to be written. Neither of both is empty but the text.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let head = &self.head[self.sent_bytes.min(self.head_bytes)..self.head_bytes];
        let text = &self.text[self.sent_bytes.saturating_sub(self.head_bytes)..];
        [head, text].into_iter().filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures_util::StreamExt as _;
    use tokio_tungstenite::tungstenite::protocol::frame::{
        self,
        coding::{Data, OpCode},
    };

    use super::*;

    fn written(frame: &Frame) -> Vec<u8> {
        frame.rest().flatten().copied().collect()
    }

    /// Against the library that reads them on the other side.
    #[test]
    fn frames_are_those_of_the_library() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 200_000] {
            let text = "x".repeat(length);
            let mut expected = Vec::new();
            let theirs = frame::Frame::message(text.clone(), OpCode::Data(Data::Text), true);
            theirs.format(&mut expected).unwrap();
            let mut ours = Frame::new(text.into());
            assert!(written(&ours) == expected, "{length}");
            for sent_bytes in (0..expected.len()).step_by(1 + expected.len() / 300) {
                ours.sent_bytes = sent_bytes;
                assert!(written(&ours) == expected[sent_bytes..], "{length} from {sent_bytes}");
            }
        }
    }

    /// The connection takes a few bytes at a time. While a text is half written, a ping comes that tungstenite answers.
    #[tokio::test]
    async fn an_answer_to_a_ping_waits_until_a_text_that_has_begun_is_out() {
        const TEXTS: usize = 20;
        let (near, far) = tokio::io::duplex(64);
        let mut line = Line::new(near, 1 << 20).await;
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        client.send(Message::Ping("anyone?".into())).await.unwrap();
        let text = |number: usize| format!("{number}{}", "x".repeat(100 * number));
        for number in 0..TEXTS {
            line.frames.push_back(Frame::new(text(number).into()));
        }
        let serving = tokio::spawn(async move {
            let heard = poll_fn(|context| {
                // Whichever is asked for first: both have something to say.
                let _ = line.poll_flush(context)?;
                line.poll_next(context)
            });
            assert!(matches!(heard.await, Some(Ok(Message::Ping(_)))));
            line.frames.push_back(Frame::new("last".into()));
            poll_fn(|context| line.poll_flush(context)).await.unwrap();
            line
        });
        for number in 0..TEXTS {
            assert_eq!(client.next().await.unwrap().unwrap(), Message::text(text(number)));
        }
        let (pong, last) = (client.next().await.unwrap().unwrap(), client.next().await.unwrap().unwrap());
        assert_eq!((pong, last), (Message::Pong("anyone?".into()), Message::text("last")));
        let line = serving.await.unwrap();
        assert!(line.frames.capacity() <= IDLE_FRAMES_MAX, "nothing is kept");
    }
}
