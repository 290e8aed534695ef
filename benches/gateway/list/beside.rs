//! What goes on beside the work that is measured: a look at the server's memory, and puts at a steady rate.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    client::{Broken, Connection},
    keys,
};
use crate::{load::Load, mib, server::Running};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
const PUTS_PER_SECOND: u32 = 100;
/// Each sends every tenth put, so that none waits for one before it unless that took a tenth of a second.
const PUT_CONNECTIONS: u32 = 10;
const BUFFER_BYTES: usize = 4096;

/// How a server's anonymous memory developed.
pub(crate) struct Growth {
    pub(crate) before_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// The server took more than it may, and was killed.
    pub(crate) was_stopped: bool,
}

impl Growth {
    pub(crate) fn mib(&self) -> f64 {
        mib(self.peak_bytes.saturating_sub(self.before_bytes))
    }
}

/// Does the work, watching the server's anonymous memory all the while. A server that takes more than `bytes_max` is
/// killed: better than that the kernel chooses a process.
pub(crate) fn watched<T>(server: &Running, bytes_max: u64, work: impl FnOnce() -> T) -> (T, Growth) {
    let (_, before_bytes) = server.memory_bytes();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut growth = Growth { before_bytes, peak_bytes: before_bytes, was_stopped: false };
            while !done.load(Ordering::Relaxed) {
                let (_, bytes) = server.memory_bytes();
                growth.peak_bytes = growth.peak_bytes.max(bytes);
                if bytes > bytes_max && !growth.was_stopped {
                    server.kill();
                    growth.was_stopped = true;
                }
                thread::sleep(SAMPLE_INTERVAL);
            }
            growth
        });
        let result = {
            let _done = Done(&done);
            work()
        };
        (result, watch.join().unwrap())
    })
}

/// Says that the work is done, even if it panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts of keys that exist.
#[derive(Clone, Copy)]
pub(crate) struct Puts {
    pub(crate) address: SocketAddr,
    pub(crate) keys: usize,
    pub(crate) value_bytes: usize,
}

impl Puts {
    /// Does the work, with puts at a steady rate beside it. The latency of a put counts from when it was due, whatever
    /// held it back. `None` if a put failed.
    pub(crate) fn beside<T>(self, work: impl FnOnce() -> T) -> (T, Option<Load>) {
        let done = AtomicBool::new(false);
        let started = Instant::now();
        thread::scope(|scope| {
            let done = &done;
            let putting: Vec<_> =
                (0..PUT_CONNECTIONS).map(|turn| scope.spawn(move || self.put_until(done, started, turn))).collect();
            let result = {
                let _done = Done(done);
                work()
            };
            let elapsed = started.elapsed();
            let all: Result<Vec<_>, Broken> = putting.into_iter().map(|put| put.join().unwrap()).collect();
            let latencies_nanos = match all {
                Ok(all) => all.concat(),
                Err(broken) => {
                    println!("  a put failed: {}", broken.how);
                    return (result, None);
                }
            };
            (result, Some(Load::new(elapsed, latencies_nanos)))
        })
    }

    /// Puts for a time, and nothing beside them.
    pub(crate) fn alone(self, duration: Duration) -> Load {
        self.beside(|| thread::sleep(duration)).1.unwrap()
    }

    fn put_until(self, done: &AtomicBool, started: Instant, turn: u32) -> Result<Vec<u64>, Broken> {
        let mut connection = Connection::open(self.address, BUFFER_BYTES);
        let mut random = fastrand::Rng::with_seed(u64::from(turn));
        let mut latencies = Vec::new();
        let interval = Duration::from_secs(1) / PUTS_PER_SECOND;
        let mut due = started + interval * turn;
        while !done.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let number = random.usize(..self.keys);
            let (key, value) = (keys::key(number), keys::value(number, self.value_bytes));
            let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
            connection.ask("/v3/kv/put", &body, &mut |_| {})?;
            latencies.push(due.elapsed().as_nanos() as u64);
            due += interval * PUT_CONNECTIONS;
        }
        Ok(latencies)
    }
}
