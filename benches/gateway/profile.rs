//! A look at where revgate spends its time while it is measured, by `perf`, if that was asked for. Figures of such a run are
//! a little worse than they would be.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    figures::Side,
    options::{Options, Row},
    server::{Running, Target},
};

/// Looks a second, by the clock: virtual machines often have no counters. No round number, so that it does not keep step.
const LOOKS_PER_SECOND: &str = "499";
/// How much of the stack is kept for each look, in bytes: programs keep no frame pointers.
const CALL_GRAPH: &str = "dwarf,32768";
/// Until perf has attached itself.
const ATTACH: Duration = Duration::from_millis(500);

/// A running profile; dropping it ends it.
pub(crate) struct Profile(Child);

impl Profile {
    /// Begins one, if it was asked for and the server is revgate.
    pub(crate) fn start(options: &Options, row: Row, target: &Target, server: &Running) -> Option<Profile> {
        let dir = options.profile.as_ref().filter(|_| target.side == Side::Revgate)?;
        fs::create_dir_all(dir).unwrap();
        let perf = Command::new("perf")
            .args(["record", "--quiet", "-e", "cpu-clock", "-F", LOOKS_PER_SECOND, "--call-graph", CALL_GRAPH])
            .args(["-p", &server.process_id().to_string(), "-o"])
            .arg(dir.join(format!("{}.data", row.name())))
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("perf: {error}"));
        thread::sleep(ATTACH);
        Some(Profile(perf))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let ended = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        ended.map_err(std::io::Error::from).and_then(|()| self.0.wait()).unwrap();
    }
}
