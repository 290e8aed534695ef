//! Where each setting comes from: the command line, else the environment, else the configuration file, else its default.
//!
//! What the file says is put onto the command line where nothing else was said, so that one parser and one set of checks
//! serve all three; a complaint names the place the value came from. An unknown key is an error with the nearest name; a
//! key that only etcd has is a warning that says why it has no effect.

mod etcd;
mod file;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    error::Error as _,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use thiserror::Error;

use self::file::Entry;
use super::settings::FlagError;

/// The id of `--config-file`, and its name.
const CONFIG_FILE: (&str, &str) = ("config_file", "config-file");
/// A variable of OpenTelemetry's that stands in for a setting where nothing of ours says anything: its name, and the
/// setting's id and name.
const OTEL_ENDPOINT: (&str, &str, &str) =
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "distributed_tracing_address", "distributed-tracing-address");
/// What names of variables begin with.
const PREFIX: &str = "REVGATE_";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Flag,
    /// The variable's name.
    Environment(String),
    File {
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Environment(variable) => f.write_str(variable),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One setting in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The flag's name.
    pub(super) name: String,
    /// `None`: not set.
    pub(super) value: Option<String>,
    pub(super) origin: Origin,
}

/// All settings of a command that takes those of `serve`.
#[derive(Debug)]
pub(super) struct Sources {
    /// As if all had been on the command line.
    pub(super) matches: ArgMatches,
    /// In the order of the help.
    pub(super) settings: Vec<Setting>,
    /// What was given and has no effect.
    pub(super) warnings: Vec<String>,
}

impl Sources {
    /// A complaint about a flag, with the place its value came from.
    pub(super) fn complaint(&self, error: &FlagError) -> String {
        let origin = self.settings.iter().find(|setting| setting.name == error.flag).map(|setting| &setting.origin);
        match origin {
            Some(Origin::File { path, line }) => in_file(path, *line, error.flag, &error.problem),
            Some(Origin::Environment(variable)) => format!("{variable}: {}", error.problem),
            _ => error.to_string(),
        }
    }
}

fn in_file(path: &Path, line: usize, key: &str, problem: &str) -> String {
    format!("{key} in {} line {line}: {problem}", path.display())
}

/// Why there are no settings.
#[derive(Debug, Error)]
pub(super) enum SourcesError {
    /// The command line or the environment; also `--help`.
    #[error("{0}")]
    CommandLine(#[from] clap::Error),
    /// The configuration file.
    #[error("{0}")]
    File(String),
}

/// Reads everything there is. `words` is how many words of `args` name the program and its command; `variables` are the
/// environment.
pub(super) fn read(
    command: &Command,
    args: &[OsString],
    words: usize,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Sources, SourcesError> {
    let given = command.clone().try_get_matches_from(args)?;
    let own = leaf(command, &given).0;
    let variables: Vec<_> = variables.into_iter().collect();
    let mut warnings = unknown_variables(command, own, variables.iter().map(|(name, _)| name.clone()));
    let path = leaf(command, &given).1.get_one::<PathBuf>(CONFIG_FILE.0).cloned();
    let from_file = match &path {
        Some(path) => FromFile::read(path, own, leaf(command, &given).1, &mut warnings)?,
        None => FromFile::default(),
    };
    let mut added = from_file.args;
    let (variable, id, name) = OTEL_ENDPOINT;
    let otel = variables.into_iter().find(|(name, value)| name == variable && !value.is_empty());
    let otel = otel.filter(|_| !is_given(leaf(command, &given).1, id) && !from_file.lines.contains_key(id));
    added.extend(otel.iter().map(|(_, value)| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    }));
    let mut args = args.to_vec();
    args.splice(words..words, added);
    let matches = command.clone().try_get_matches_from(&args)?;
    let mut settings =
        settings(own, leaf(command, &given).1, leaf(command, &matches).1, path.as_deref(), &from_file.lines);
    if otel.is_some() {
        let setting = settings.iter_mut().find(|setting| setting.name == name);
        setting.into_iter().for_each(|setting| setting.origin = Origin::Environment(variable.to_owned()));
    }
    Ok(Sources { settings, matches, warnings })
}

/// The command that was asked for, and what was given to it.
fn leaf<'a>(command: &'a Command, matches: &'a ArgMatches) -> (&'a Command, &'a ArgMatches) {
    match matches.subcommand() {
        Some((name, below)) => match command.find_subcommand(name) {
            Some(command) => leaf(command, below),
            None => (command, below),
        },
        None => (command, matches),
    }
}

/// What of the file has effect.
#[derive(Default)]
struct FromFile {
    /// For the command line.
    args: Vec<OsString>,
    /// By the flag's id.
    lines: HashMap<String, usize>,
}

impl FromFile {
    fn read(
        path: &Path,
        command: &Command,
        given: &ArgMatches,
        warnings: &mut Vec<String>,
    ) -> Result<FromFile, SourcesError> {
        let failed = |line: Option<usize>, what: &str| {
            let line = line.map(|line| format!(" line {line}")).unwrap_or_default();
            SourcesError::File(format!("{}{line}: {what}", path.display()))
        };
        let entries = file::read(path).map_err(|error| failed(error.line, &error.what))?;
        let mut found = FromFile::default();
        let mut seen: HashMap<String, usize> = HashMap::new();
        for Entry { key, value, line } in entries {
            if format!("{key}/") == etcd::CLIENT_TLS_SECTION {
                continue;
            }
            let Some(arg) = flag(command, &key) else {
                let Some(why) = etcd::why_without_effect(&key) else {
                    return Err(failed(Some(line), &unknown(command, &key)));
                };
                // Its keys are told of; a section once is enough.
                if value.is_some() || !key.contains('/') {
                    warnings.push(in_file(path, line, &key, &format!("has no effect here: {why}")));
                }
                continue;
            };
            let (id, name) = (arg.get_id().as_str(), arg.get_long().unwrap_or_default());
            if name == CONFIG_FILE.1 {
                return Err(failed(Some(line), "a file cannot name another: --config-file is for the command line"));
            }
            if let Some(first) = seen.insert(id.to_owned(), line) {
                return Err(failed(Some(line), &format!("{key} is there twice: --{name} is in line {first}, too")));
            }
            let Some(value) = value else { continue };
            let word = OsString::from(format!("--{name}={}", with_unit(arg, name, value)));
            if let Err(error) = command.clone().try_get_matches_from([OsString::from("revgate"), word.clone()]) {
                return Err(SourcesError::File(in_file(path, line, &key, &problem(&error))));
            }
            if is_given(given, id) {
                continue;
            }
            found.args.push(word);
            found.lines.insert(id.to_owned(), line);
        }
        Ok(found)
    }
}

/// Whether the command line or the environment has it.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// The flag that a key of the file stands for, by any of its names.
fn flag<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    let name = match key.strip_prefix(etcd::CLIENT_TLS_SECTION) {
        Some(name) if etcd::CLIENT_TLS_KEYS.contains(&name) => name,
        Some(_) => return None,
        None => key,
    };
    let is_setting = |arg: &&Arg| arg.get_env().is_some();
    command.get_arguments().filter(is_setting).find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// etcd's file counts some durations in nanoseconds; with flags of ours alone a number without unit is a mistake.
fn with_unit(arg: &Arg, name: &str, value: String) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let is_duration = names.iter().any(|name| name.as_str() == "DURATION");
    let is_whole = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if is_duration && is_whole && etcd::NANOSECONDS.contains(&name) { format!("{value}ns") } else { value }
}

fn unknown(command: &Command, key: &str) -> String {
    match nearest(command, key) {
        Some(nearest) => format!("{key} is no setting; did you mean {nearest}?"),
        None => format!("{key} is no setting; revgate serve --help names all of them"),
    }
}

/// The flag whose name is most like `key`, if any is.
fn nearest(command: &Command, key: &str) -> Option<String> {
    let name = key.rsplit('/').next()?;
    let error = command.clone().try_get_matches_from(["revgate".to_owned(), format!("--{name}=")]).err()?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let suggested = match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(one) => one.clone(),
        ContextValue::Strings(several) => several.first()?.clone(),
        _ => return None,
    };
    suggested.split_whitespace().next()?.strip_prefix("--").map(str::to_owned)
}

/// What there is to say of an argument that only etcd has.
pub(super) fn note_on_unknown(error: &clap::Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => {
            let name = argument.trim_start_matches('-').split('=').next()?;
            let why = etcd::why_without_effect(name)?;
            Some(format!("note: etcd's --{name} would have no effect here: {why}. Take it away."))
        }
        _ => None,
    }
}

/// What is wrong with a value, without the way it was handed over.
fn problem(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    match (text(ContextKind::ValidValue), error.source()) {
        (Some(valid), _) if !valid.is_empty() => format!("{value:?} is none of {valid}"),
        (_, Some(source)) => format!("{value:?}: {source}"),
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// Variables that look like flags of ours and are none.
fn unknown_variables(all: &Command, command: &Command, variables: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let mut known = Vec::new();
    collect_variables(all, &mut known);
    let named = variables.into_iter().filter_map(|name| name.into_string().ok());
    let mut unknown: Vec<String> = named.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
    unknown.sort();
    let told = |variable: String| {
        let name = variable.trim_start_matches(PREFIX).to_lowercase().replace('_', "-");
        match (etcd::why_without_effect(&name), nearest(command, &name)) {
            (Some(why), _) => format!("{variable} has no effect here: {why}"),
            (None, Some(nearest)) => {
                let nearest = nearest.to_uppercase().replace('-', "_");
                format!("{variable} is set and is no setting; did you mean {PREFIX}{nearest}?")
            }
            (None, None) => format!("{variable} is set and is no setting"),
        }
    };
    unknown.into_iter().map(told).collect()
}

fn collect_variables(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(|arg| arg.get_env());
    known.extend(variables.map(|variable| variable.to_string_lossy().into_owned()));
    command.get_subcommands().for_each(|below| collect_variables(below, known));
}

/// Everything in effect. `given` has what the command line and the environment said, `all` what the file said beside that.
fn settings(
    command: &Command,
    given: &ArgMatches,
    all: &ArgMatches,
    path: Option<&Path>,
    lines: &HashMap<String, usize>,
) -> Vec<Setting> {
    let mut args: Vec<&Arg> = command.get_arguments().filter(|arg| arg.get_env().is_some()).collect();
    args.sort_by_key(|arg| arg.get_display_order());
    let setting = |arg: &Arg| {
        let id = arg.get_id().as_str();
        let origin = match (given.value_source(id), lines.get(id).zip(path)) {
            (Some(ValueSource::CommandLine), _) => Origin::Flag,
            (Some(ValueSource::EnvVariable), _) => {
                Origin::Environment(arg.get_env().unwrap_or_default().to_string_lossy().into_owned())
            }
            (_, Some((line, path))) => Origin::File { path: path.to_owned(), line: *line },
            _ => Origin::Default,
        };
        let value = all.get_raw(id).map(|values| {
            let values: Vec<_> = values.map(|value| without_password(&value.to_string_lossy())).collect();
            values.join(",")
        });
        Setting { name: arg.get_long().unwrap_or_default().to_owned(), value, origin }
    };
    args.into_iter().map(setting).collect()
}

/// No setting is a secret, but a URL may have one in it.
fn without_password(value: &str) -> String {
    let hide = |word: &str| {
        let hidden = || {
            let (scheme, rest) = word.split_once("://")?;
            let end = rest.find('/').unwrap_or(rest.len());
            let at = rest.get(..end)?.rfind('@')?;
            Some(format!("{scheme}://…{}", rest.get(at..)?))
        };
        hidden().unwrap_or_else(|| word.to_owned())
    };
    value.split(',').map(hide).collect::<Vec<_>>().join(",")
}
