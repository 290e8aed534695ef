//! A WebSocket that its task shares with the work that it has done aside. They take turns: while the one waits for the
//! other, it leaves the socket alone, so the lock is free whenever it is taken.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Error,
    extract::ws::{Message, WebSocket},
};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use parking_lot::Mutex;

/// The socket. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<Mutex<WebSocket>>);

impl Socket {
    pub(super) fn new(socket: WebSocket) -> Socket {
        Socket(Arc::new(Mutex::new(socket)))
    }

    /// The next message; `None` once the connection has ended.
    pub(super) async fn recv(&mut self) -> Option<Result<Message, Error>> {
        self.next().await
    }
}

impl Stream for Socket {
    type Item = Result<Message, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().poll_next_unpin(context)
    }
}

impl Sink<Message> for Socket {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.lock().poll_ready_unpin(context)
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        self.0.lock().start_send_unpin(message)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.lock().poll_flush_unpin(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.lock().poll_close_unpin(context)
    }
}
