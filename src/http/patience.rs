//! How long a client may be silent, and a connection that is given up when its client does not take what it is sent.
//!
//! The kernel finds out clients whose machine is gone. A client that is there and does not read, or whose connection's
//! system answers for it, is found out here: every byte that is taken starts its time anew.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// Whether a connection was given up because its client did not read. Shared with what is served on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection whose writes fail once nothing could be written for a time.
#[derive(Debug)]
pub(super) struct Patient<C> {
    connection: C,
    stall_max: Duration,
    stalled: Stalled,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<C> Patient<C> {
    pub(super) fn new(connection: C, stall_max: Duration, stalled: Stalled) -> Patient<C> {
        Patient { connection, stall_max, stalled, timer: None }
    }

    /// Notes what the kernel has found out by itself: what was sent was not taken.
    fn note<T>(&self, outcome: &Poll<io::Result<T>>) {
        if matches!(outcome, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut) {
            self.stalled.0.store(true, Ordering::Relaxed);
        }
    }

    /// What becomes of a write that came to `outcome`.
    fn judge<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.note(&outcome);
            self.timer = None;
            return outcome;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.stall_max)));
        ready!(timer.as_mut().poll(context));
        self.stalled.0.store(true, Ordering::Relaxed);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Patient<C> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.connection).poll_read(context, into);
        self.note(&outcome);
        outcome
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Patient<C> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.connection).poll_write(context, bytes);
        self.judge(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.connection).poll_write_vectored(context, slices);
        self.judge(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.connection).poll_flush(context);
        // With nothing to flush this succeeds at once, while a write still waits.
        if outcome.is_ready() { outcome } else { self.judge(context, outcome) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.connection).poll_shutdown(context);
        self.judge(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const STALL_MAX: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (near, _far) = tokio::io::duplex(16);
        let stalled = Stalled::default();
        let mut connection = Patient::new(near, STALL_MAX, stalled.clone());
        let begun = tokio::time::Instant::now();
        let error = connection.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(stalled.get());
        assert_eq!(begun.elapsed().as_secs(), STALL_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_a_little_at_a_time_is_kept() {
        let (near, mut far) = tokio::io::duplex(16);
        let stalled = Stalled::default();
        let mut connection = Patient::new(near, STALL_MAX, stalled.clone());
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            while all.len() < 100 {
                tokio::time::sleep(STALL_MAX / 2).await;
                let mut some = [0; 16];
                let read = far.read(&mut some).await.unwrap();
                all.extend_from_slice(&some[..read]);
            }
        });
        connection.write_all(&[0; 100]).await.unwrap();
        reading.await.unwrap();
        assert!(!stalled.get());
    }
}
