//! The command line: `revgate serve`, which plain `revgate` means too.
//!
//! Flags have etcd's names where the meaning is etcd's, and each has an environment variable `REVGATE_<FLAG>`; a flag
//! given wins over its variable. This room turns words into a [`Config`](crate::config::Config), sets up logs and
//! signals, and knows nothing of how a member is built.

mod duration;
mod flags;
mod logs;
mod serve;
mod settings;
mod urls;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use self::flags::ServeFlags;

/// A durable, watchable key-value store that speaks etcd v3's JSON gateway over HTTP and WebSocket.
#[derive(Debug, Parser)]
#[command(name = "revgate", version, about, after_help = "Without a command, `revgate` means `revgate serve`.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one member.
    Serve(Box<ServeFlags>),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = Cli::parse_from(with_default_command(std::env::args_os().collect()));
    match cli.command {
        Command::Serve(flags) => serve::run(&flags),
    }
}

/// Puts `serve` where a command is missing: at the end of nothing, and before a first flag that is not ours.
fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    const OUR_OWN: [&str; 4] = ["-h", "--help", "-V", "--version"];
    let missing = match args.get(1).map(|arg| arg.to_string_lossy()) {
        None => true,
        Some(first) => first.starts_with('-') && !OUR_OWN.contains(&&*first),
    };
    if missing {
        args.insert(args.len().min(1), "serve".into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_is_what_is_meant_without_a_command() {
        let with_default = |args: &[&str]| {
            let args = with_default_command(args.iter().map(OsString::from).collect());
            args.into_iter().map(|arg| arg.into_string().expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(with_default(&["revgate"]), ["revgate", "serve"]);
        assert_eq!(with_default(&["revgate", "--name", "a"]), ["revgate", "serve", "--name", "a"]);
        assert_eq!(with_default(&["revgate", "serve", "--name", "a"]), ["revgate", "serve", "--name", "a"]);
        assert_eq!(with_default(&["revgate", "--version"]), ["revgate", "--version"]);
        assert_eq!(with_default(&["revgate", "--help"]), ["revgate", "--help"]);
        assert_eq!(with_default(&["revgate", "other"]), ["revgate", "other"]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["revgate", "serve", "--no-such-flag"]).is_err());
        let error = Cli::try_parse_from(["revgate", "serve", "--drain-timeout", "soon"]).expect_err("no duration");
        assert!(error.to_string().contains("--drain-timeout") && error.to_string().contains("30s"), "{error}");
    }
}
