//! Logging to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::flags::{LogFormat, LogLevel};

/// Sends log lines to standard error from here on. A second call changes nothing.
pub(super) fn init(level: LogLevel, format: Option<LogFormat>) {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    // What the Raft library warns of is of use to its authors; what must be known, the consensus tells.
    let filter = EnvFilter::new(format!("{level},openraft=error"));
    let terminal = io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(terminal);
    let outcome = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = outcome {
        tracing::debug!(error, "logging was set up before");
    }
}
