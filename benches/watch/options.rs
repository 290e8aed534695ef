//! The command line of the benchmark.

use std::{path::PathBuf, time::Duration};

pub(crate) const HELP: &str = "\
Usage: cargo bench --bench watch -- [OPTIONS]

What is measured; each is left out unless its size is given:
  --fan-out N         N watchers of one prefix: first puts in a closed loop (the next put when every watcher has the
                      one before, less --window), then puts at a rate every server can hold
  --idle N            memory of N watchers that nothing happens to
  --stalled N         puts at --rate with and without N watchers that do not read, which then read everything
  --replays N         a live watcher, alone and beside N watchers that replay --revisions from the first

How:
  --etcd PATH         measure this etcd beside revgate (.ci/fetch-etcd prints the path of one)
  --seconds N         length of each measurement, in seconds (10); of --stalled, how long nobody reads
  --window N          puts on their way in the closed loop of --fan-out (1)
  --fan-out-rate N    puts a second in the second half of --fan-out (0: nine tenths of what the slowest server held)
  --rate N            puts a second for --stalled (2000)
  --rounds N          how often --stalled is measured without and with watchers, in turn; medians are told (3)
  --replay-limit N    seconds for all replays, and for all who did not read to catch up (300)
  --live-rate N       puts a second for the live watcher beside --replays (100)
  --revisions N       revisions that are replayed (100000)
  --connections N     connections that put, for all but the closed loop (16)
  --value-bytes N     size of values, in bytes, at least 18 (192; 1023 for --stalled)
  --dir PATH          where data directories are made (below target/; must be on the disk that is to be measured)
  --revgate PATH      measure this revgate instead of the one just built
";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) etcd: Option<PathBuf>,
    pub(crate) revgate: PathBuf,
    pub(crate) fan_out: usize,
    pub(crate) idle: usize,
    pub(crate) stalled: usize,
    pub(crate) replays: usize,
    pub(crate) duration: Duration,
    pub(crate) window: usize,
    pub(crate) fan_out_rate: f64,
    pub(crate) rate: f64,
    pub(crate) rounds: usize,
    pub(crate) replay_limit: Duration,
    pub(crate) live_rate: f64,
    pub(crate) revisions: usize,
    pub(crate) connections: usize,
    pub(crate) value_bytes: Option<usize>,
    pub(crate) dir: PathBuf,
}

impl Options {
    /// `Ok(None)`: help was asked for.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options {
            etcd: None,
            revgate: PathBuf::from(env!("CARGO_BIN_EXE_revgate")),
            fan_out: 0,
            idle: 0,
            stalled: 0,
            replays: 0,
            duration: Duration::from_secs(10),
            window: 1,
            fan_out_rate: 0.0,
            rate: 2000.0,
            rounds: 3,
            replay_limit: Duration::from_secs(300),
            live_rate: 100.0,
            revisions: 100_000,
            connections: 16,
            value_bytes: None,
            dir: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench"),
        };
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                // What cargo adds for benchmarks that have its own harness.
                "--bench" => continue,
                "--help" | "-h" => return Ok(None),
                _ => {}
            }
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value, or is not known"))?;
            options.set(&flag, value)?;
        }
        if [options.fan_out, options.idle, options.stalled, options.replays] == [0; 4] {
            return Err("say what is to be measured".to_owned());
        }
        Ok(Some(options))
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        let number = || value.parse::<usize>().map_err(|_| format!("{flag} needs a whole number, not {value}"));
        match flag {
            "--etcd" => self.etcd = Some(PathBuf::from(value)),
            "--revgate" => self.revgate = PathBuf::from(value),
            "--dir" => self.dir = PathBuf::from(value),
            "--fan-out" => self.fan_out = number()?,
            "--idle" => self.idle = number()?,
            "--stalled" => self.stalled = number()?,
            "--replays" => self.replays = number()?,
            "--seconds" => self.duration = Duration::from_secs(number()?.max(1) as u64),
            "--window" => self.window = number()?.max(1),
            "--fan-out-rate" => self.fan_out_rate = number()? as f64,
            "--rate" => self.rate = number()?.max(1) as f64,
            "--rounds" => self.rounds = number()?.max(1),
            "--replay-limit" => self.replay_limit = Duration::from_secs(number()?.max(1) as u64),
            "--live-rate" => self.live_rate = number()?.max(1) as f64,
            "--revisions" => self.revisions = number()?.max(1),
            "--connections" => self.connections = number()?.max(1),
            "--value-bytes" => self.value_bytes = Some(number()?),
            _ => return Err(format!("{flag} is not known")),
        }
        Ok(())
    }
}
