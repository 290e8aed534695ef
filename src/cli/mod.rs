//! The command line: `revgate serve`, which plain `revgate` means too, and the commands that work on files.
//!
//! Flags have etcd's names where the meaning is etcd's, and each has an environment variable `REVGATE_<FLAG>`; a flag
//! given wins over its variable. This room turns words into a [`Config`] and sets up logs; it knows nothing of what is
//! done with it. The other commands have a file each; what they do to files is done in the rooms below.

mod auth_token;
mod check;
mod client;
mod duration;
mod flags;
mod inspect;
mod logs;
mod output;
mod settings;
mod snapshot;
mod urls;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use self::flags::ServeFlags;
use crate::config::Config;

/// Exit code for flags that cannot be, as clap's.
const EXIT_USAGE: u8 = 2;

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
    /// Save, restore and look at snapshots; etcd's go too, both ways.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Tell whether a data file or snapshot is sound, and which pages and keys are not. Exits with 0 if it is, 1 if not,
    /// 2 if it cannot be read.
    Check(check::CheckFlags),
    /// Tell what takes up the room in a data file or snapshot.
    Inspect(inspect::InspectFlags),
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// Serve one member.
    Serve(Box<Config>),
    /// Do something else, and end.
    Tool(Tool),
}

/// A command that works on files and ends.
#[derive(Debug)]
pub struct Tool(Command);

impl Tool {
    /// Does the work; the process's exit code. What there is to tell goes to standard output, errors to standard error.
    pub fn run(self) -> ExitCode {
        match self.0 {
            Command::Serve(_) => unreachable!("is never made a tool"),
            Command::Snapshot(command) => command.run(),
            Command::Check(flags) => check::run(&flags),
            Command::Inspect(flags) => inspect::run(&flags),
        }
    }
}

/// Reads the command line of this process and sets up its logs. What cannot be is told on standard error; then, and after
/// `--help` and `--version`, the process ends with the code.
pub fn read() -> Result<Asked, ExitCode> {
    let cli = Cli::parse_from(with_default_command(std::env::args_os().collect()));
    match cli.command {
        Command::Serve(flags) => {
            logs::init(flags.log_level, flags.log_format);
            let config = settings::config(&flags).and_then(|config| settings::check_existing(&flags).map(|()| config));
            match config {
                Ok(config) => Ok(Asked::Serve(Box::new(config))),
                Err(error) => {
                    eprintln!("error: {error}");
                    Err(ExitCode::from(EXIT_USAGE))
                }
            }
        }
        other => {
            logs::init(flags::LogLevel::Warn, Some(flags::LogFormat::Text));
            Ok(Asked::Tool(Tool(other)))
        }
    }
}

/// The settings that flags alone make, for the fuzz targets that need a member and the program that counts instructions.
#[cfg(any(fuzzing, feature = "instructions"))]
#[doc(hidden)]
pub fn config_of(flags: &[&str]) -> Config {
    let Command::Serve(flags) = Cli::parse_from(["revgate", "serve"].iter().chain(flags)).command else {
        unreachable!("is the command that was given");
    };
    settings::config(&flags).expect("their flags are right")
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
