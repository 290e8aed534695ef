//! The servers under measurement: how each is started and stopped, and what the kernel says of them.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{figures::Side, options::Options};

const START_MAX: Duration = Duration::from_secs(300);
const STOP_MAX: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The kernel counts processor time in hundredths of a second for every user program.
const TICKS_PER_SECOND: f64 = 100.0;

/// A program that can be measured.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    binary: PathBuf,
}

impl Target {
    pub(crate) fn revgate(binary: &Path) -> Target {
        Target { name: "revgate", side: Side::Revgate, binary: binary.to_owned() }
    }

    pub(crate) fn etcd(binary: &Path) -> Target {
        Target { name: "etcd", side: Side::Etcd, binary: binary.to_owned() }
    }

    /// A route that parses and answers a constant: this very program, in a process of its own.
    pub(crate) fn ceiling() -> Target {
        Target { name: "axum", side: Side::Ceiling, binary: std::env::current_exe().unwrap() }
    }

    /// The first line of what it says of its version.
    pub(crate) fn version(&self) -> String {
        let output = Command::new(&self.binary)
            .arg("--version")
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()));
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("says no version").to_owned()
    }

    /// Starts it on a data directory that was not there before.
    pub(crate) fn start_fresh(&self, options: &Options, what: &str) -> (Running, PathBuf) {
        let data_dir = self.data_dir(options, what);
        remove(&data_dir);
        (self.start(&data_dir).0, data_dir)
    }

    /// Its data directory for some measurement.
    pub(crate) fn data_dir(&self, options: &Options, what: &str) -> PathBuf {
        options.dir.join(format!("{what}-{}", self.name))
    }

    /// Starts it on a data directory; returns once `/health` is well, with the time since the process was started.
    pub(crate) fn start(&self, data_dir: &Path) -> (Running, Duration) {
        let started = Instant::now();
        let (child, address) = match self.side {
            Side::Etcd => self.start_etcd(data_dir),
            Side::Revgate => {
                let mut command = Command::new(&self.binary);
                command.args(["serve", "--listen-client-urls", "http://127.0.0.1:0", "--data-dir"]).arg(data_dir);
                self.start_and_hear(command, data_dir)
            }
            Side::Ceiling => {
                let mut command = Command::new(&self.binary);
                command.arg("--serve-ceiling");
                self.start_and_hear(command, data_dir)
            }
        };
        let mut running = Running { child, address };
        loop {
            if is_healthy(address) {
                return (running, started.elapsed());
            }
            if let Some(status) = running.child.try_wait().unwrap() {
                panic!("{} ended with {status}; see {}", self.name, log_path(data_dir).display());
            }
            assert!(started.elapsed() < START_MAX, "{} is not ready after {START_MAX:?}", self.name);
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn start_etcd(&self, data_dir: &Path) -> (Child, SocketAddr) {
        let [client, peer] = free_addresses();
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let child = Command::new(&self.binary)
            .args(["--log-level", "error", "--data-dir"])
            .arg(data_dir)
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdout(log_file(data_dir))
            .stderr(log_file(data_dir))
            .spawn()
            .unwrap();
        (child, client)
    }

    /// Starts what says where it listens.
    fn start_and_hear(&self, mut command: Command, data_dir: &Path) -> (Child, SocketAddr) {
        let mut child = command.stdout(Stdio::piped()).stderr(log_file(data_dir)).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            let read = said.read_line(&mut line).unwrap();
            assert!(read > 0, "{} did not say where it listens; see {}", self.name, log_path(data_dir).display());
            let url = line.split_whitespace().find_map(|word| word.split_once("http://"));
            let address = url.and_then(|(_, rest)| rest.trim_end_matches('/').parse().ok());
            if let Some(address) = address {
                break address;
            }
        };
        // Whatever else it says must not fill the pipe.
        let mut log = log_file(data_dir);
        thread::spawn(move || std::io::copy(&mut said, &mut log));
        (child, address)
    }
}

/// Removes a data directory, if it is there.
pub(crate) fn remove(data_dir: &Path) {
    match fs::remove_dir_all(data_dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", data_dir.display()),
        _ => {}
    }
}

fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.with_extension("log")
}

fn log_file(data_dir: &Path) -> File {
    File::options().create(true).append(true).open(log_path(data_dir)).unwrap()
}

/// Two addresses that nobody listens on right now.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

fn is_healthy(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
        && answer.contains(r#""health":"true""#)
}

/// A started server. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// SIGTERM, and the time until the process was gone.
    pub(crate) fn stop(&mut self) -> Duration {
        let started = Instant::now();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        while self.child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < STOP_MAX, "the server does not end");
            thread::sleep(POLL_INTERVAL);
        }
        started.elapsed()
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// Its number, for others that look at it.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process is gone.
    pub(crate) fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    /// Returns once it has used little processor time for a while: what a load left behind has been dealt with.
    pub(crate) fn settle(&self) {
        const IDLE_SECONDS_MAX: f64 = 0.05;
        const SETTLE_MAX: Duration = Duration::from_secs(120);
        let started = Instant::now();
        loop {
            let before = self.processor_seconds();
            thread::sleep(Duration::from_secs(1));
            if self.processor_seconds() - before <= IDLE_SECONDS_MAX {
                return;
            }
            assert!(started.elapsed() < SETTLE_MAX, "the server does not come to rest");
        }
    }

    /// Processor time used so far, in seconds.
    pub(crate) fn processor_seconds(&self) -> f64 {
        processor_seconds(&self.child.id().to_string())
    }

    /// What the threads of that name used of it; zero if there are none.
    pub(crate) fn thread_seconds(&self, name: &str) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of_name = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let seconds = |task: fs::DirEntry| {
            let task = task.file_name().to_string_lossy().into_owned();
            processor_seconds(&format!("{}/task/{task}", self.child.id()))
        };
        tasks.flatten().filter(of_name).map(seconds).sum()
    }

    /// Resident memory: all of it, and what of it is not backed by files, in bytes.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let figure = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
        };
        (figure("VmRSS:"), figure("RssAnon:"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of a process (`self` for this one) with all its threads, in seconds.
pub(crate) fn processor_seconds(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name, in parentheses, may hold spaces. After it: user and system time are the 12th and 13th field.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / TICKS_PER_SECOND
}
