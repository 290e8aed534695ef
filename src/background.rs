//! Threads whose work can wait: history that is replayed, not what clients wait for.
//!
//! The system is told so. Where the processors are short, it lets such a thread run in what the others leave over, and
//! puts it aside as soon as another has something to do. That is a wish, not a lock: a thread that does not get its lower
//! priority works all the same. Nobody may hold, on such a thread, a lock that others need for more than a moment.
//! Must never know what the work is.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Once, mpsc},
    thread::{self, JoinHandle},
};

/// How much nicer such a thread is than the rest of the process. It gets about a tenth of the weight.
const NICENESS_STEPS: i32 = 10;

/// Starts a thread whose work can wait.
///
/// # Errors
/// The system gives no thread.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(move || {
        lower_priority();
        work();
    })
}

/// A thread whose work can wait, for another that has such work now and then, and cannot lower its own priority for a
/// while: the system lets nobody raise it again.
#[derive(Debug)]
pub struct Helper {
    /// `None` once it is to end. It has no room: who hands work over waits for its end.
    work: Option<mpsc::SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
}

type Work = Box<dyn FnOnce() + Send>;

impl Helper {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(name: &str) -> io::Result<Helper> {
        let (work, received) = mpsc::sync_channel::<Work>(0);
        let thread = spawn(name, move || received.into_iter().for_each(|work| work()))?;
        Ok(Helper { work: Some(work), thread: Some(thread) })
    }

    /// Has it do something, and waits until that is done. A panic of the work is the caller's.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        const IS_THERE: &str = "the thread ends when its helper is dropped, and not by work that panics";
        let (sender, done) = mpsc::sync_channel(1);
        let work = move || {
            // Who waits for it is there until it has been told.
            let _ = sender.send(panic::catch_unwind(AssertUnwindSafe(work)));
        };
        self.work.as_ref().expect(IS_THERE).send(Box::new(work)).expect(IS_THERE);
        match done.recv().expect(IS_THERE) {
            Ok(told) => told,
            Err(panic) => panic::resume_unwind(panic),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.work.take();
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked: what its work does wrong is caught.
            let _ = thread.join();
        }
    }
}

/// How many threads whose work can wait may use the processors at once: half as many as there are, at least one.
pub fn threads_max() -> usize {
    (thread::available_parallelism().map_or(1, usize::from) / 2).max(1)
}

/// Lowers the priority of the calling thread, for good.
pub fn lower_priority() {
    static TOLD: Once = Once::new();
    if let Err(error) = lower() {
        TOLD.call_once(|| tracing::debug!(%error, "background threads keep the priority of the others"));
    }
}

/// On Linux a process of that call is a thread, and none named is the calling one.
#[cfg(target_os = "linux")]
fn lower() -> io::Result<()> {
    let priority = rustix::process::getpriority_process(None)?;
    Ok(rustix::process::setpriority_process(None, priority.saturating_add(NICENESS_STEPS))?)
}

/// Elsewhere it would be the whole process.
#[cfg(not(target_os = "linux"))]
fn lower() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system knows no priority of a thread"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_background_thread_is_nicer_and_the_one_that_starts_it_is_not() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let before = own();
        let (sender, niceness) = mpsc::channel();
        spawn("test", move || sender.send(own()).unwrap()).unwrap().join().unwrap();
        // 19 is the most there is.
        assert_eq!(niceness.recv().unwrap(), (before + NICENESS_STEPS).min(19));
        assert_eq!(own(), before);
    }

    #[test]
    fn a_helper_works_at_lower_priority_and_its_panics_are_the_callers() {
        let own = || (rustix::process::getpriority_process(None).unwrap(), thread::current().name().map(str::to_owned));
        let (before, _) = own();
        let helper = Helper::start("helper").unwrap();
        let nicer = ((before + NICENESS_STEPS).min(19), Some("helper".to_owned()));
        assert_eq!(helper.run(own), nicer);
        let panicked = panic::catch_unwind(AssertUnwindSafe(|| helper.run(|| panic::panic_any(7))));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(helper.run(own), nicer, "it goes on after a panic");
        assert_eq!(own().0, before);
    }
}
