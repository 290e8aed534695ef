//! Threads whose work can wait: history that is replayed, not what clients wait for.
//!
//! The system is told so. Where the processors are short, it lets such a thread run in what the others leave over, and
//! puts it aside as soon as another has something to do. That is a wish, not a lock: a thread that does not get its lower
//! priority works all the same. Nobody may hold, on such a thread, a lock that others need for more than a moment.
//! Must never know what the work is.

use std::{
    io,
    sync::Once,
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
}
