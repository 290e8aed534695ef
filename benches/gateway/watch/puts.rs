//! Numbered puts: each value begins with its number, and when each was sent is known to whoever receives it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::LocalSet,
};

use super::{
    frames::{find, number},
    micros,
};
use crate::load;

/// Digits are base64 as they stand; this many are whole groups of four.
const NUMBER_DIGITS: usize = 12;

/// Connections for all but the closed loop of fan-out.
pub(crate) const CONNECTIONS: usize = 16;
/// So many keys are put, one after another.
const KEYS: usize = 1000;

/// The number that a value begins with. Values are text that is base64 of something and that a server must give back as it
/// is: decimal digits, then filler.
pub(super) fn number_of(value: &[u8]) -> usize {
    number(&value[..NUMBER_DIGITS]) as usize
}

/// When each put was sent, and who may send the next.
pub(crate) struct Puts {
    prefix: &'static str,
    started: Instant,
    /// Nanoseconds since the start, by number; 0: not yet.
    sent_nanos: Vec<AtomicU64>,
    next: AtomicUsize,
    ended: AtomicBool,
    filler: String,
}

impl Puts {
    /// Room for so many puts.
    pub(crate) fn new(prefix: &'static str, puts_max: usize, value_bytes: usize) -> Arc<Puts> {
        let text_length = (value_bytes.div_ceil(3) * 4).max(NUMBER_DIGITS) - NUMBER_DIGITS;
        Arc::new(Puts {
            prefix,
            started: Instant::now(),
            sent_nanos: (0..puts_max).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            filler: "A".repeat(text_length),
        })
    }

    /// How many were sent.
    pub(crate) fn count(&self) -> usize {
        self.next.load(Ordering::SeqCst).min(self.sent_nanos.len())
    }

    /// No more puts after those that have a number.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Time since a put was sent.
    pub(crate) fn since(&self, number: usize) -> Duration {
        let sent = Duration::from_nanos(self.sent_nanos[number].load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(sent)
    }

    /// Takes the next number; `None` when all are used.
    fn take(&self) -> Option<usize> {
        if self.ended.load(Ordering::SeqCst) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        (number < self.sent_nanos.len()).then_some(number)
    }

    fn request(&self, address: SocketAddr, number: usize) -> Vec<u8> {
        let key = base64_simd::STANDARD.encode_to_string(format!("{}{:04}", self.prefix, number % KEYS));
        let body = format!(r#"{{"key":"{key}","value":"{number:0width$}{}"}}"#, self.filler, width = NUMBER_DIGITS);
        load::post(address, "/v3/kv/put", &body).to_vec()
    }

    async fn put(&self, connection: &mut Connection, number: usize) -> Duration {
        let request = self.request(connection.address, number);
        self.sent_nanos[number].store(self.started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let sent = Instant::now();
        connection.stream.write_all(&request).await.unwrap();
        connection.read_answer().await;
        sent.elapsed()
    }
}

/// When puts are sent.
#[derive(Clone)]
pub(crate) enum Pace {
    /// Whenever there is a permit, of which each put takes one.
    Permits(Arc<Semaphore>),
    /// At so many a second.
    Rate(f64),
    /// One after another on each connection.
    Free,
}

/// Puts on a thread of its own for a time, or until the numbers are used up; the latencies of the answers, in microseconds,
/// sorted.
pub(crate) fn start(
    address: SocketAddr,
    puts: &Arc<Puts>,
    pace: Pace,
    connections: usize,
    duration: Duration,
) -> thread::JoinHandle<Vec<u32>> {
    let puts = Arc::clone(puts);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tasks = LocalSet::new();
        let began = Instant::now();
        let first = puts.count();
        let running: Vec<_> = (0..connections)
            .map(|_| {
                let (puts, pace) = (Arc::clone(&puts), pace.clone());
                tasks.spawn_local(async move {
                    let mut connection = Connection::open(address).await;
                    let mut latencies = Vec::new();
                    while began.elapsed() < duration {
                        match &pace {
                            Pace::Permits(permits) => match tokio::time::timeout(duration, permits.acquire()).await {
                                Ok(Ok(permit)) => permit.forget(),
                                _ => break,
                            },
                            Pace::Rate(_) | Pace::Free => {}
                        }
                        let Some(number) = puts.take() else { break };
                        if let Pace::Rate(rate) = pace {
                            let due = began + Duration::from_secs_f64((number - first) as f64 / rate);
                            tokio::time::sleep_until(due.into()).await;
                        }
                        latencies.push(micros(puts.put(&mut connection, number).await));
                    }
                    latencies
                })
            })
            .collect();
        let mut latencies = Vec::new();
        runtime.block_on(tasks.run_until(async {
            for task in running {
                latencies.extend(task.await.unwrap());
            }
        }));
        latencies.sort_unstable();
        latencies
    })
}

struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { address, stream, answer: Vec::new() }
    }

    /// Reads one answer; a put's is short, and its object ends it.
    async fn read_answer(&mut self) {
        self.answer.clear();
        loop {
            assert!(self.stream.read_buf(&mut self.answer).await.unwrap() > 0, "the server closed the connection");
            if find(&self.answer, b"}}").is_some() {
                break;
            }
        }
        assert!(self.answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&self.answer));
    }
}
