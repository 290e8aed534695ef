//! The threads that serve connections: one for each processor. A connection stays on the one that had the fewest when it
//! came.
//!
//! Each thread waits for its own sockets and runs its own tasks. Threads that share both wake each other for every
//! request: the one that waits for the sockets of all, and the one that does the work. What takes long goes elsewhere
//! (see `range` and `aside`), so no connection keeps the others of its thread waiting. Must never know what is served.

use std::{
    io,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::runtime::{Builder, Handle, Runtime};

/// Most threads for what may block, for all connections together.
const BLOCKING_THREADS_MAX: usize = 512;
/// The same of one thread, if there are many.
const BLOCKING_THREADS_EACH_MIN: usize = 32;

/// The threads. Dropping this cuts off what still runs on them.
#[derive(Debug)]
pub struct Workers {
    runtimes: Vec<Runtime>,
    places: Places,
}

/// Where connections can go. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Places {
    workers: Arc<[Worker]>,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's place on a thread, while this lives.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts one thread for each processor that this process may use.
    ///
    /// # Errors
    /// The system gives nothing to wait for sockets with.
    pub(super) fn start() -> io::Result<Workers> {
        Workers::with_threads(thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn with_threads(threads: usize) -> io::Result<Workers> {
        // Of a start that fails in the middle, those that are there end as all do.
        let mut workers = Workers { runtimes: Vec::with_capacity(threads), places: Places { workers: Arc::new([]) } };
        for _ in 0..threads {
            // One worker each: it alone waits, and whoever wakes one of its tasks while it runs need not wake it.
            let runtime = Builder::new_multi_thread()
                .enable_all()
                .worker_threads(1)
                .max_blocking_threads((BLOCKING_THREADS_MAX / threads).max(BLOCKING_THREADS_EACH_MIN))
                .thread_name("revgate-worker")
                .build()?;
            workers.runtimes.push(runtime);
        }
        let worker =
            |runtime: &Runtime| Worker { handle: runtime.handle().clone(), connections: Arc::new(AtomicUsize::new(0)) };
        workers.places = Places { workers: workers.runtimes.iter().map(worker).collect() };
        Ok(workers)
    }

    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }
}

impl Drop for Workers {
    /// Within another runtime none may be waited for. Nobody is left for whom there would be work.
    fn drop(&mut self) {
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_background();
        }
    }
}

impl Places {
    /// Gives a connection its place: where the fewest are. The thread is the one the handle is of.
    pub(super) fn take(&self) -> (Place, &Handle) {
        let worker = self
            .workers
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
            .expect("there is one thread at least");
        worker.connections.fetch_add(1, Ordering::Relaxed);
        (Place { connections: Arc::clone(&worker.connections) }, &worker.handle)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::sync::oneshot;

    use super::*;

    async fn thread_of(handle: &Handle) -> thread::ThreadId {
        handle.spawn(async { thread::current().id() }).await.unwrap()
    }

    #[tokio::test]
    async fn connections_go_where_the_fewest_are_and_stay_on_one_thread() {
        let workers = Workers::with_threads(2).unwrap();
        let places = workers.places();
        let (first, at) = places.take();
        let first_thread = thread_of(at).await;
        assert_eq!(thread_of(at).await, first_thread);
        let (second, at) = places.take();
        let second_thread = thread_of(at).await;
        assert_ne!(second_thread, first_thread);
        let (_third, at) = places.take();
        assert_eq!(thread_of(at).await, first_thread, "both have one: the first of them");
        drop(first);
        // One and one again.
        let (fourth, at) = places.take();
        assert_eq!(thread_of(at).await, first_thread);
        drop(second);
        drop(fourth);
        let (_fifth, at) = places.take();
        assert_eq!(thread_of(at).await, second_thread, "the second has none left");
    }

    #[tokio::test]
    async fn what_is_still_served_is_cut_off_when_all_go() {
        let workers = Workers::with_threads(1).unwrap();
        let (held, cut_off) = oneshot::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let (_place, at) = workers.places.take();
        drop(at.spawn(async move {
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(held);
        }));
        has_begun.await.unwrap();
        drop(workers);
        assert!(cut_off.await.is_err());
    }
}
