//! Work of connections that can wait, done aside: on a few threads of lower priority, in a runtime of their own.
//!
//! Who follows live passes several threads, and would wait at each for a processor, were those that are sent history as
//! dear to the system as he is. A connection hands over what is to be made and written, one piece at a time, and goes on
//! when it is done; waiting for a client to read occupies no thread here. There is no queue beyond that: a piece for each
//! connection. Knows nothing of what is done.

use std::{future::Future, io};

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::background;

/// The threads.
#[derive(Debug)]
pub(super) struct Aside {
    /// `None` only once it is dropped.
    runtime: Option<Runtime>,
}

impl Aside {
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> io::Result<Aside> {
        // Time is needed by what gives up clients that do not read.
        let runtime = Builder::new_multi_thread()
            .enable_time()
            .worker_threads(background::threads_max())
            .thread_name("revgate-aside")
            .on_thread_start(background::lower_priority)
            .build()?;
        Ok(Aside { runtime: Some(runtime) })
    }

    /// Does some work; what it comes to, `None` if everything is going down. Dropping this ends the work.
    pub(super) fn run<W>(&self, work: W) -> impl Future<Output = Option<W::Output>> + Send + use<W>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        let work = self.runtime.as_ref().map(|runtime| AbortOnDropHandle::new(runtime.spawn(work)));
        async move { work?.await.ok() }
    }
}

impl Drop for Aside {
    /// Within another runtime none may be waited for. Nobody is left for whom there would be work.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::sync::oneshot;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn work_is_done_by_threads_that_are_nicer_than_the_others() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let aside = Aside::start().unwrap();
        assert!(aside.run(async move { own() }).await.unwrap() > own());
    }

    #[tokio::test]
    async fn work_that_nobody_wants_any_more_ends() {
        let aside = Aside::start().unwrap();
        let (held, let_go) = oneshot::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let work = aside.run(async move {
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(held);
        });
        has_begun.await.unwrap();
        drop(work);
        assert!(let_go.await.is_err(), "what the work held is let go");
    }

    #[tokio::test]
    async fn work_in_hand_comes_to_nothing_when_everything_goes_down() {
        let aside = Aside::start().unwrap();
        let work = aside.run(std::future::pending::<()>());
        drop(aside);
        assert_eq!(work.await, None);
    }
}
