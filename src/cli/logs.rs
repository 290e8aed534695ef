//! Logging: how much, in which form, and where to.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::Arc,
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::{
    flags::{LogFormat, LogLevel},
    settings::FlagError,
};

const FLAG: &str = "log-outputs";
/// Most places lines go to.
const OUTPUTS_MAX: usize = 8;

/// A place lines go to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Stderr,
    Stdout,
    File(PathBuf),
}

/// Sends log lines to `outputs` from here on: names with commas, as `--log-outputs` has them. A second call changes nothing.
pub(super) fn init(level: LogLevel, format: Option<LogFormat>, outputs: &str) -> Result<(), FlagError> {
    let wrong = |problem| FlagError { flag: FLAG, problem };
    let places = places(outputs).map_err(wrong)?;
    let outputs = places.iter().map(open).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    // What the Raft library warns of is of use to its authors; what must be known, the consensus tells.
    let filter = EnvFilter::new(format!("{level},openraft=error"));
    let terminal = outputs.iter().all(Output::is_terminal);
    let format = format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let writer = Writer(outputs.into());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(terminal);
    let outcome = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = outcome {
        tracing::debug!(error, "logging was set up before");
    }
    Ok(())
}

/// The places a list names. etcd's name `default` is standard error.
fn places(text: &str) -> Result<Vec<Place>, String> {
    let mut places = Vec::new();
    for name in text.split(',').map(str::trim) {
        let place = match name {
            "default" | "stderr" => Place::Stderr,
            "stdout" => Place::Stdout,
            "" => return Err("expected stderr, stdout or paths of files, separated by commas".to_owned()),
            "systemd/journal" => {
                return Err("systemd/journal: journald takes what comes on stderr; use that".to_owned());
            }
            path => Place::File(path.into()),
        };
        if places.contains(&place) {
            return Err(format!("{name} is there twice"));
        }
        places.push(place);
    }
    if places.len() > OUTPUTS_MAX { Err(format!("at most {OUTPUTS_MAX} outputs are allowed")) } else { Ok(places) }
}

fn open(place: &Place) -> Result<Output, String> {
    match place {
        Place::Stderr => Ok(Output::Stderr),
        Place::Stdout => Ok(Output::Stdout),
        Place::File(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map(Output::File).map_err(|error| format!("{}: {error}", path.display()))
        }
    }
}

#[derive(Debug)]
enum Output {
    Stderr,
    Stdout,
    /// Only appended to, so that it can be cut by those who rotate logs. A line is one write.
    File(File),
}

impl Output {
    fn is_terminal(&self) -> bool {
        match self {
            Output::Stderr => io::stderr().is_terminal(),
            Output::Stdout => io::stdout().is_terminal(),
            Output::File(_) => false,
        }
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Output::Stderr => io::stderr().write_all(line),
            Output::Stdout => io::stdout().write_all(line),
            Output::File(file) => (&*file).write_all(line),
        }
    }
}

/// Writes each line to all outputs.
#[derive(Clone, Debug)]
struct Writer(Arc<[Output]>);

impl Write for Writer {
    /// The subscriber hands over a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        for output in self.0.iter() {
            // A log that cannot be written must not stop what it tells of, nor the other logs.
            let _ = output.write(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Writer;

    fn make_writer(&'a self) -> Writer {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_have_etcd_s_names() {
        assert_eq!(places("default"), Ok(vec![Place::Stderr]));
        let all = [Place::Stdout, Place::Stderr, Place::File("/var/log/x".into())];
        assert_eq!(places("stdout, stderr,/var/log/x"), Ok(all.to_vec()));
        for (text, complaint) in [
            ("", "expected stderr"),
            ("stderr,", "expected stderr"),
            ("systemd/journal", "journald takes"),
            ("stderr,default", "default is there twice"),
            ("a,b,c,d,e,f,g,h,i", "at most 8"),
        ] {
            let refused = places(text).expect_err(text);
            assert!(refused.contains(complaint), "{text}: {refused}");
        }
    }

    #[test]
    fn a_line_goes_to_every_output_and_files_are_appended_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for line in [&b"first\n"[..], b"second\n"] {
            let outputs = paths.iter().map(|path| open(&Place::File(path.clone())).expect("a file"));
            Writer(outputs.collect()).make_writer().write_all(line).expect("lines are taken");
        }
        for path in paths {
            assert_eq!(std::fs::read_to_string(path).expect("a log"), "first\nsecond\n");
        }
        let refused = open(&Place::File(dir.path().join("no/such"))).expect_err("no directory");
        assert!(refused.ends_with("no/such: No such file or directory (os error 2)"), "{refused}");
    }
}
