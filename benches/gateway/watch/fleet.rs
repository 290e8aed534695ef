//! Many watchers on one thread.

use std::{
    cell::RefCell,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{net::TcpStream, sync::Semaphore, task::LocalSet};
use tokio_util::sync::CancellationToken;

use super::{
    frames::{self, Frames},
    micros,
    puts::{Puts, number_of},
};

/// Read at once, into memory that all watchers share.
const SCRATCH_BYTES: usize = 256 * 1024;
/// Handshakes on their way at once.
const CONNECTING_MAX: usize = 64;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What the watchers are for.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) watchers: usize,
    /// What they watch: one prefix, or some that they take in turn.
    pub(crate) prefixes: Vec<String>,
    /// 0: from now on.
    pub(crate) start_revision: u64,
    /// Whose latencies are measured, from which number on.
    pub(crate) measured: Option<(Arc<Puts>, Arc<AtomicUsize>)>,
    /// Gets a permit whenever all watchers have one more put.
    pub(crate) permits: Option<Arc<Semaphore>>,
    /// Nobody reads before this.
    pub(crate) reading: CancellationToken,
    /// Their thread has a lower priority, so that they are not what delays others that are measured beside them.
    pub(crate) in_background: bool,
}

/// What the watchers have come to.
#[derive(Default)]
struct Tally {
    created: AtomicUsize,
    events: AtomicU64,
    /// Events that were not the next revision of their watcher. Means nothing where not all keys are watched.
    disorder: AtomicU64,
}

/// A running fleet.
pub(crate) struct Fleet {
    thread: thread::JoinHandle<Vec<u32>>,
    tally: Arc<Tally>,
    stop: CancellationToken,
    watchers: usize,
}

impl Fleet {
    /// Opens all watchers; returns when each has been told that it exists.
    pub(crate) fn launch(address: SocketAddr, plan: &Plan) -> Fleet {
        let (tally, stop) = (Arc::new(Tally::default()), CancellationToken::new());
        let thread = {
            let (plan, tally, stop) = (plan.clone(), Arc::clone(&tally), stop.clone());
            thread::spawn(move || {
                if plan.in_background {
                    revgate::background::lower_priority();
                }
                run(address, &plan, &tally, &stop)
            })
        };
        let fleet = Fleet { thread, tally, stop, watchers: plan.watchers };
        fleet.wait(|fleet| fleet.tally.created.load(Ordering::SeqCst) == fleet.watchers, Duration::from_secs(300));
        fleet
    }

    /// Events received, by all together.
    pub(crate) fn events(&self) -> u64 {
        self.tally.events.load(Ordering::Relaxed)
    }

    /// Waits for so many events; whether they came within the limit.
    pub(crate) fn wait_events(&self, events: u64, limit: Duration) -> bool {
        self.wait_quietly(|fleet| fleet.events() >= events, limit)
    }

    /// Closes every connection; latencies in microseconds, sorted, and events out of order, missing or repeated.
    pub(crate) fn stop(self) -> (Vec<u32>, u64) {
        self.stop.cancel();
        let latencies = self.thread.join().unwrap();
        (latencies, self.tally.disorder.load(Ordering::SeqCst))
    }

    fn wait(&self, reached: impl Fn(&Fleet) -> bool, limit: Duration) {
        assert!(self.wait_quietly(reached, limit), "the watchers are not where they should be after {limit:?}");
    }

    fn wait_quietly(&self, reached: impl Fn(&Fleet) -> bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !reached(self) {
            if Instant::now() > deadline || self.thread.is_finished() {
                return reached(self);
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

/// What the watchers of one thread share.
struct Crew {
    plan: Plan,
    tally: Arc<Tally>,
    scratch: RefCell<Vec<u8>>,
    latencies: RefCell<Vec<u32>>,
    /// How many watchers have each put, by number.
    received: RefCell<Vec<usize>>,
}

fn run(address: SocketAddr, plan: &Plan, tally: &Arc<Tally>, stop: &CancellationToken) -> Vec<u32> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let crew = Rc::new(Crew {
        plan: plan.clone(),
        tally: Arc::clone(tally),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES]),
        latencies: RefCell::default(),
        received: RefCell::default(),
    });
    let tasks = LocalSet::new();
    let connecting = Rc::new(Semaphore::new(CONNECTING_MAX));
    for watcher in 0..plan.watchers {
        let (crew, connecting) = (Rc::clone(&crew), Rc::clone(&connecting));
        tasks.spawn_local(async move {
            let stream = {
                let _permit = connecting.acquire().await;
                crew.open(address, watcher).await
            };
            crew.follow(stream).await;
        });
    }
    runtime.block_on(tasks.run_until(stop.cancelled()));
    drop(tasks);
    let mut latencies = crew.latencies.take();
    latencies.sort_unstable();
    latencies
}

impl Crew {
    /// Opens a watcher and waits until it exists. What comes after that in the same read is not lost: a watcher from now
    /// on is opened before anything is put, one from the past is created by a message of its own.
    async fn open(&self, address: SocketAddr, watcher: usize) -> (TcpStream, Frames, Progress) {
        let mut stream = frames::connect(address).await;
        let encode = |text: &str| base64_simd::STANDARD.encode_to_string(text);
        let prefix = &self.plan.prefixes[watcher % self.plan.prefixes.len()];
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let (key, end) = (encode(prefix), base64_simd::STANDARD.encode_to_string(&end));
        let start = match self.plan.start_revision {
            0 => String::new(),
            revision => format!(r#","start_revision":"{revision}""#),
        };
        let create = format!(r#"{{"create_request":{{"key":"{key}","range_end":"{end}"{start}}}}}"#);
        frames::send_text(&mut stream, &create).await;
        let (mut frames, mut progress) = (Frames::default(), Progress::default());
        while !progress.created {
            assert!(self.read(&mut stream, &mut frames, &mut progress).await, "a watcher was closed before it began");
        }
        self.tally.created.fetch_add(1, Ordering::SeqCst);
        (stream, frames, progress)
    }

    async fn follow(&self, (mut stream, mut frames, mut progress): (TcpStream, Frames, Progress)) {
        self.plan.reading.cancelled().await;
        while self.read(&mut stream, &mut frames, &mut progress).await {}
        eprintln!("a watcher was closed after revision {}", progress.revision);
    }

    /// Reads once; whether there may be more.
    async fn read(&self, stream: &mut TcpStream, frames: &mut Frames, progress: &mut Progress) -> bool {
        if stream.readable().await.is_err() {
            return false;
        }
        let pings = {
            let scratch = &mut *self.scratch.borrow_mut();
            match stream.try_read(scratch) {
                Ok(0) => return false,
                Ok(read) => frames.take(&scratch[..read], &mut |message| self.take(message, progress)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                Err(error) => Err(error),
            }
        };
        let Ok(pings) = pings else { return false };
        for _ in 0..pings {
            if frames::pong(stream).await.is_err() {
                return false;
            }
        }
        true
    }

    fn take(&self, message: &[u8], progress: &mut Progress) {
        if !progress.created {
            progress.created = frames::find(message, b"\"created\"").is_some();
            return;
        }
        let mut events = 0;
        frames::events(message, |revision, value| {
            events += 1;
            if progress.revision != 0 && revision != progress.revision + 1 {
                self.tally.disorder.fetch_add(1, Ordering::Relaxed);
            }
            progress.revision = revision;
            self.measure(value);
        });
        self.tally.events.fetch_add(events, Ordering::Relaxed);
    }

    fn measure(&self, value: &[u8]) {
        let Some((puts, from)) = &self.plan.measured else { return };
        let number = number_of(value);
        if number >= from.load(Ordering::Relaxed) {
            self.latencies.borrow_mut().push(micros(puts.since(number)));
        }
        let Some(permits) = &self.plan.permits else { return };
        let mut received = self.received.borrow_mut();
        if received.len() <= number {
            received.resize(number + 1, 0);
        }
        received[number] += 1;
        if received[number] == self.plan.watchers {
            permits.add_permits(1);
        }
    }
}

/// How far one watcher is.
#[derive(Default)]
struct Progress {
    created: bool,
    revision: u64,
}
