//! The command line: `revgate serve`, which plain `revgate` means too, and the commands that work on files.
//!
//! Flags have etcd's names where the meaning is etcd's. Each has an environment variable `REVGATE_<FLAG>`, and is a key in
//! the configuration file; `sources` says which of the three wins. This room turns words into a [`Config`] and sets up
//! logs; it knows nothing of what is done with it. The other commands have a file each; what they do to files is done in
//! the rooms below.

mod auth_token;
mod check;
mod client;
mod config;
mod doctor;
mod duration;
mod flags;
mod help;
mod inspect;
mod logs;
mod output;
mod settings;
mod snapshot;
mod sources;
mod urls;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::{
    config::{ConfigCommand, PrintFlags},
    flags::ServeFlags,
    sources::{Sources, SourcesError},
};
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
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Save, restore and look at snapshots; etcd's go too, both ways.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Tell whether a data file or snapshot is sound, and which pages and keys are not. Exits with 0 if it is, 1 if not,
    /// 2 if it cannot be read.
    Check(check::CheckFlags),
    /// Tell what is wrong with running members, from what, and what to do. Exits with 0 if nothing is, 1 if something is, 2 if
    /// a member cannot be asked.
    Doctor(doctor::DoctorFlags),
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

/// A command that does something and ends.
#[derive(Debug)]
pub struct Tool(Work);

#[derive(Debug)]
enum Work {
    PrintConfig(Box<PrintFlags>, Sources),
    Snapshot(snapshot::SnapshotCommand),
    Check(check::CheckFlags),
    Doctor(doctor::DoctorFlags),
    Inspect(inspect::InspectFlags),
}

impl Tool {
    /// Does the work; the process's exit code. What there is to tell goes to standard output, errors to standard error.
    pub fn run(self) -> ExitCode {
        match self.0 {
            Work::PrintConfig(flags, sources) => config::print(&flags, &sources),
            Work::Snapshot(command) => command.run(),
            Work::Check(flags) => check::run(&flags),
            Work::Doctor(flags) => doctor::run(&flags),
            Work::Inspect(flags) => inspect::run(&flags),
        }
    }
}

/// Words that name the program and the command whose options come from other sources too.
const SERVE_WORDS: usize = 2;
const CONFIG_PRINT_WORDS: usize = 3;

/// Reads the command line of this process, its environment and its configuration file, and sets up its logs. What cannot
/// be is told on standard error; then, and after `--help` and `--version`, the process ends with the code.
pub fn read() -> Result<Asked, ExitCode> {
    let args = with_default_command(std::env::args_os().collect());
    let command = help::arranged(Cli::command());
    let asked = parse(&command, &args)?;
    let quiet = |work| {
        logs::init(flags::LogLevel::Warn, Some(flags::LogFormat::Text), "stderr").map_err(|error| refused(&error))?;
        Ok(Asked::Tool(Tool(work)))
    };
    match asked.command {
        Command::Serve(_) => serve(&command, &args).map(|config| Asked::Serve(Box::new(config))),
        Command::Config(ConfigCommand::Print(_)) => {
            let (cli, sources) = sourced(&command, &args, CONFIG_PRINT_WORDS)?;
            match cli.command {
                Command::Config(ConfigCommand::Print(flags)) => quiet(Work::PrintConfig(flags, sources)),
                _ => unreachable!("is the command that was asked for"),
            }
        }
        Command::Snapshot(command) => quiet(Work::Snapshot(command)),
        Command::Check(flags) => quiet(Work::Check(flags)),
        Command::Doctor(flags) => quiet(Work::Doctor(flags)),
        Command::Inspect(flags) => quiet(Work::Inspect(flags)),
    }
}

fn parse(command: &clap::Command, args: &[OsString]) -> Result<Cli, ExitCode> {
    let matches = command.clone().try_get_matches_from(args);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| told(&error))
}

/// Tells what clap has to say: a mistake, or the help that was asked for.
fn told(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if let Some(note) = sources::note_on_unknown(error) {
        eprintln!("{note}");
    }
    match printed {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE)),
        // Nobody listens any more.
        Err(_) => ExitCode::from(EXIT_USAGE),
    }
}

/// The command once more, with what environment and file add to it.
fn sourced(command: &clap::Command, args: &[OsString], words: usize) -> Result<(Cli, Sources), ExitCode> {
    let sources = sources::read(command, args, words, std::env::vars_os()).map_err(|error| match error {
        SourcesError::CommandLine(error) => told(&error),
        SourcesError::File(error) => refused(error),
    })?;
    let cli = Cli::from_arg_matches(&sources.matches).map_err(|error| told(&error))?;
    Ok((cli, sources))
}

fn serve(command: &clap::Command, args: &[OsString]) -> Result<Config, ExitCode> {
    let (cli, sources) = sourced(command, args, SERVE_WORDS)?;
    let Command::Serve(flags) = cli.command else { unreachable!("is the command that was asked for") };
    logs::init(flags.log_level, flags.log_format, &flags.log_outputs)
        .map_err(|error| refused(sources.complaint(&error)))?;
    sources.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let config = settings::config(&flags).and_then(|config| settings::check_existing(&flags).map(|()| config));
    config.map_err(|error| refused(sources.complaint(&error)))
}

fn refused(complaint: impl std::fmt::Display) -> ExitCode {
    eprintln!("error: {complaint}");
    ExitCode::from(EXIT_USAGE)
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
