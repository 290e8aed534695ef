//! The real binary as a child process on a data directory of the test's: start, kill, stop, or be refused.
//!
//! `REVGATE_TEST_BINARY` names another program to test that takes the same flags and prints the same first line; so the
//! expectations of the interface can be held against a real etcd (`tests/clients/etcd-as-revgate`).

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::Client;

/// Longest time a server may take to be ready, or to refuse.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest time a server may take to stop.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Longest time an answer, or the next line of a stream, may take.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause between two looks at a condition that cannot be waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

const LISTEN_FLAG: &str = "--listen-client-urls";

/// Whether the tests run against a program that is not ours: what only we promise is not asked of it.
pub(crate) fn is_foreign() -> bool {
    env::var_os("REVGATE_TEST_BINARY").is_some()
}

/// Status and code of a client's mistake for which etcd has no code: it blames itself.
pub(crate) fn refusal(status: u16, code: u64) -> (u16, u64) {
    if is_foreign() { (500, 2) } else { (status, code) }
}

/// Looks at a condition until it gives something; panics with `what` after `limit`.
pub(crate) fn wait_until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} in vain for: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    output: Output,
    address: SocketAddr,
}

impl Server {
    /// Starts a server on a data directory and waits until it is ready.
    pub(crate) fn start(data_dir: &Path) -> Server {
        Server::start_with(data_dir, &[])
    }

    /// As [`Server::start`], with more flags.
    pub(crate) fn start_with(data_dir: &Path, flags: &[&str]) -> Server {
        Server::start_until(data_dir, flags, "/readyz")
    }

    /// As [`Server::start_with`], but only until it lives: for a server that cannot be ready.
    pub(crate) fn start_unready(data_dir: &Path, flags: &[&str]) -> Server {
        Server::start_until(data_dir, flags, "/livez")
    }

    fn start_until(data_dir: &Path, flags: &[&str], probe: &str) -> Server {
        let (child, output) = spawn(data_dir, flags);
        // From here on the child is killed if the test fails.
        let mut server = Server { child, output, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        server.address = server.output.first_address();
        wait_until("a ready server", START_MAX, || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended with {status} before it was ready:\n{}", server.output.text());
            }
            server.client().get(probe).ok().filter(|answer| answer.status == 200)
        });
        server
    }

    /// Starts a server that will be killed before it is ready.
    pub(crate) fn start_and_kill_after(data_dir: &Path, flags: &[&str], delay: Duration) {
        let (mut child, output) = spawn(data_dir, flags);
        thread::sleep(delay);
        child.kill().unwrap();
        child.wait().unwrap();
        output.close();
    }

    /// Starts a server that must refuse; returns how it ended and all it said.
    pub(crate) fn refused(data_dir: &Path) -> (ExitStatus, String) {
        Server::refused_with(data_dir, &[])
    }

    /// As [`Server::refused`], with more flags.
    pub(crate) fn refused_with(data_dir: &Path, flags: &[&str]) -> (ExitStatus, String) {
        let (mut child, output) = spawn(data_dir, flags);
        let deadline = Instant::now() + START_MAX;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= deadline {
                child.kill().unwrap();
                panic!("the server neither refused nor ended:\n{}", output.text());
            }
            thread::sleep(POLL_INTERVAL);
        };
        output.close();
        (status, output.text())
    }

    /// Where it listens for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client of its own connection.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// All it has said so far.
    pub(crate) fn output(&self) -> String {
        self.output.text()
    }

    /// SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Limits the size of files the process can make larger, in bytes; `None`: no more.
    pub(crate) fn limit_file_bytes(&self, bytes: Option<u64>) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limit).unwrap();
    }

    /// SIGTERM, without waiting.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits until the process has ended by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        wait_until("the end of the server", STOP_MAX, || self.child.try_wait().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to do about that.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- what the server said ---\n{}", self.output.text());
        }
    }
}

fn spawn(data_dir: &Path, flags: &[&str]) -> (Child, Output) {
    let binary = env::var_os("REVGATE_TEST_BINARY").unwrap_or_else(|| OsString::from(env!("CARGO_BIN_EXE_revgate")));
    let mut child = Command::new(&binary)
        .arg("serve")
        .arg("--data-dir")
        .arg(data_dir)
        .args(if flags.contains(&LISTEN_FLAG) { vec![] } else { vec![LISTEN_FLAG, "http://127.0.0.1:0"] })
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    let output = Output::of(&mut child);
    (child, output)
}

/// What a child says on both streams, gathered as it comes so that it never blocks on a full pipe.
#[derive(Clone)]
struct Output(Arc<(Mutex<Said>, Condvar)>);

#[derive(Default)]
struct Said {
    text: String,
    streams_open: usize,
}

impl Output {
    fn of(child: &mut Child) -> Output {
        let output = Output(Arc::new((Mutex::new(Said { text: String::new(), streams_open: 2 }), Condvar::new())));
        output.gather(child.stdout.take().unwrap());
        output.gather(child.stderr.take().unwrap());
        output
    }

    fn gather(&self, stream: impl Read + Send + 'static) {
        let output = self.clone();
        thread::spawn(move || {
            let mut lines = BufReader::new(stream);
            let mut line = Vec::new();
            // An error on a pipe of a dead child is its end.
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                output.change(|said| said.text.push_str(&String::from_utf8_lossy(&line)));
                line.clear();
            }
            output.change(|said| said.streams_open -= 1);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        self.0.0.lock().unwrap().text.clone()
    }

    /// Waits until `found` finds something, or both streams have ended, or [`START_MAX`] has passed.
    fn wait<T>(&self, mut found: impl FnMut(&Said) -> Option<T>) -> Option<T> {
        let mut result = None;
        let guard = self.0.0.lock().unwrap();
        let pending = |said: &mut Said| {
            result = found(said);
            result.is_none() && said.streams_open > 0
        };
        drop(self.0.1.wait_timeout_while(guard, START_MAX, pending).unwrap());
        result
    }

    /// Waits until both streams have ended.
    fn close(&self) {
        self.wait(|said| (said.streams_open == 0).then_some(()));
    }

    /// The first address the server prints with its scheme and a port.
    fn first_address(&self) -> SocketAddr {
        self.wait(|said| {
            said.text.split_whitespace().find_map(|word| {
                let rest = word.split_once("http://")?.1;
                let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(rest.len());
                rest[..end].parse::<SocketAddr>().ok().filter(|address| address.port() != 0)
            })
        })
        .unwrap_or_else(|| panic!("the server did not say where it listens:\n{}", self.text()))
    }
}
