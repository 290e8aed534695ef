//! The load: one thread, many kept connections, one request in flight on each, as little work per request as possible,
//! because client and server share the processors.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::LocalSet,
};

/// What a phase of load came to.
pub(crate) struct Load {
    pub(crate) elapsed: Duration,
    /// Latency of each request, sorted, in nanoseconds.
    pub(crate) latencies_nanos: Vec<u64>,
}

impl Load {
    /// Of latencies in any order.
    pub(crate) fn new(elapsed: Duration, mut latencies_nanos: Vec<u64>) -> Load {
        latencies_nanos.sort_unstable();
        Load { elapsed, latencies_nanos }
    }

    pub(crate) fn count(&self) -> usize {
        self.latencies_nanos.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.latencies_nanos.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that this share of the requests kept below, in milliseconds.
    pub(crate) fn quantile_millis(&self, share: f64) -> f64 {
        let last = self.latencies_nanos.len().saturating_sub(1);
        self.latencies_nanos.get((last as f64 * share) as usize).map_or(0.0, |nanos| *nanos as f64 / 1e6)
    }
}

/// A request, when it is due, and of which kind it is.
pub(crate) struct Due {
    pub(crate) at: Instant,
    pub(crate) kind: usize,
    pub(crate) request: Rc<[u8]>,
}

/// Requests that are due at once, until `next` has no more; `next` gets the number of the connection.
pub(crate) fn run(address: SocketAddr, connections: usize, next: impl Fn(usize) -> Option<Rc<[u8]>> + 'static) -> Load {
    let now = move |connection| next(connection).map(|request| Due { at: Instant::now(), kind: 0, request });
    run_kinds(address, connections, 1, now).remove(0)
}

/// Sends requests on every connection, none before it is due, until `next` has no more. A latency counts from when the
/// request was due. The loads by kind.
///
/// # Panics
///
/// On any answer other than 200, and on a connection that breaks.
pub(crate) fn run_kinds(
    address: SocketAddr,
    connections: usize,
    kinds: usize,
    next: impl Fn(usize) -> Option<Due> + 'static,
) -> Vec<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let next = Rc::new(next);
    let latencies = Rc::new(RefCell::new(vec![Vec::with_capacity(1 << 18); kinds]));
    let tasks = LocalSet::new();
    let started = Instant::now();
    for connection in 0..connections {
        let (next, latencies) = (Rc::clone(&next), Rc::clone(&latencies));
        tasks.spawn_local(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut buffer = Vec::with_capacity(64 * 1024);
            while let Some(Due { at, kind, request }) = next(connection) {
                if at > Instant::now() {
                    tokio::time::sleep_until(at.into()).await;
                }
                stream.write_all(&request).await.unwrap();
                read_answer(&mut stream, &mut buffer).await;
                latencies.borrow_mut()[kind].push(at.elapsed().as_nanos() as u64);
            }
        });
    }
    runtime.block_on(tasks);
    let elapsed = started.elapsed();
    latencies.take().into_iter().map(|latencies| Load::new(elapsed, latencies)).collect()
}

/// Load of the same requests over and over, for a time.
pub(crate) fn run_for(address: SocketAddr, connections: usize, duration: Duration, requests: &[Rc<[u8]>]) -> Load {
    let (deadline, requests, sent) = (Instant::now() + duration, requests.to_vec(), Cell::new(0));
    run(address, connections, move |_| {
        let request = &requests[sent.replace(sent.get() + 1) % requests.len()];
        (Instant::now() < deadline).then(|| Rc::clone(request))
    })
}

/// A whole POST request.
pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> Rc<[u8]> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
    .into()
}

/// One request on a connection of its own; the answer with its head.
pub(crate) fn ask(address: SocketAddr, path: &str, body: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&post(address, path, body)).await.unwrap();
        let mut buffer = Vec::new();
        read_answer(&mut stream, &mut buffer).await;
        String::from_utf8_lossy(&buffer).into_owned()
    })
}

/// Reads one answer, of which there is never more than one on its way.
pub(crate) async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) {
    buffer.clear();
    while !is_whole(buffer) {
        let read = stream.read_buf(buffer).await.unwrap();
        assert!(read > 0, "the server closed the connection after: {}", String::from_utf8_lossy(buffer));
    }
    assert!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(buffer));
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head_length) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = &answer[..head_length];
    match header(head, b"content-length") {
        Some(length) => {
            let length: usize = std::str::from_utf8(length).unwrap().trim().parse().unwrap();
            answer.len() >= head_length + 4 + length
        }
        None => answer.ends_with(b"0\r\n\r\n") && answer.len() > head_length + 4,
    }
}

fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (line_name, value) = line.split_at_checked(name.len())?;
        if line_name.eq_ignore_ascii_case(name) { value.strip_prefix(b":") } else { None }
    })
}
