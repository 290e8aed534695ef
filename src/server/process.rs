//! A process that is one member: its start, the signals that end it, and its exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::config::Config;

use super::Server;

/// Exit code of a member that did not start, or could not go on.
const EXIT_FAILED: u8 = 1;
/// Exit codes of a process that a signal ended, as shells count them.
const EXIT_SIGINT: u8 = 130;
const EXIT_SIGTERM: u8 = 143;

/// Serves until a signal or a failure; the process' exit code.
pub fn run(config: Config) -> ExitCode {
    raise_file_limit();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime did not start");
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let code = runtime.block_on(serve(config));
    if code == 0 {
        // All that matters is closed; a probe that still hangs on the disk must not keep the process.
        runtime.shutdown_background();
        ExitCode::SUCCESS
    } else {
        // At once: nothing that was stopped in the middle may go on to write, not even while it is taken down.
        std::process::exit(i32::from(code))
    }
}

/// The exit code.
async fn serve(config: Config) -> u8 {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "signals cannot be listened to");
            return EXIT_FAILED;
        }
    };
    let server = tokio::select! {
        started = Server::start(config) => match started {
            Ok(server) => server,
            Err(error) => {
                tracing::error!("{error}");
                return EXIT_FAILED;
            }
        },
        // Nobody was served yet: the files are as after a crash, which the next start takes up.
        code = signals.next() => return code,
    };
    greet(&server);

    let failure = server.failure();
    tokio::pin!(failure);
    tokio::select! {
        reason = &mut failure => return failed(&reason),
        _ = signals.next() => tracing::info!("stopping; a second signal stops at once"),
    }
    tokio::select! {
        stopped = server.stop() => match stopped {
            Ok(()) => {
                tracing::info!("stopped");
                0
            }
            Err(error) => {
                tracing::error!("{error}");
                EXIT_FAILED
            }
        },
        reason = &mut failure => failed(&reason),
        code = signals.next() => code,
    }
}

fn failed(reason: &str) -> u8 {
    tracing::error!("cannot go on: {reason}");
    EXIT_FAILED
}

/// Tells a newcomer where everything is.
fn greet(server: &Server) {
    let listening = server.urls();
    let data_dir = std::path::absolute(server.data_dir()).unwrap_or_else(|_| server.data_dir().to_owned());
    let metrics = match &server.metrics_urls()[..] {
        [] => String::new(),
        urls => format!("probes and metrics are on {}\n", urls.join(", ")),
    };
    let lines = format!(
        "revgate listens on {}\n{metrics}its data is in {}\ntry: curl -d '{{\"key\":\"Zm9v\",\"value\":\"YmFy\"}}' {}/v3/kv/put\n",
        listening.join(", "),
        data_dir.display(),
        listening.first().map_or("", |url| url),
    );
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(%error, "standard output cannot be written to");
    }
}

/// Lets this process have as many files open as it may: each client is one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it was");
    }
}

/// The signals that ask to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Comes with a write beyond the largest size a file may have, and would end the process. The write fails beside it,
    /// as one on a full disk does.
    _file_too_large: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let file_too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _file_too_large: signal(file_too_large)?,
        })
    }

    /// The next one, as the exit code of a process that it ends.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => EXIT_SIGINT,
            _ = self.terminate.recv() => EXIT_SIGTERM,
        }
    }
}
