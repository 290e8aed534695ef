//! The command line of the benchmark.

use std::{path::PathBuf, time::Duration};

pub(crate) const HELP: &str = "\
Usage: cargo bench --bench gateway -- [OPTIONS]

  --etcd PATH         measure this etcd beside revgate (.ci/fetch-etcd prints the path of one)
  --rounds N          rounds of put and get for each server (5; 0: none)
  --seconds N         length of each measurement, in seconds (3)
  --connections N     kept HTTP connections, one request in flight on each (64)
  --value-bytes N     size of values, in bytes (256)
  --restart-keys N    fill each server with so many keys, and time its next start (0: no such measurement)
  --compact-revisions N  put steadily while so many revisions are compacted (0: no such measurement)
  --defragment-mb N   fill each server's file to so many MB, half of them free, and defragment it under a steady load of
                      200 reads and 200 writes a second (0: no such measurement)
  --list-keys N       fill each server with so many keys, and list them whole, by pages, and slowly (0: no such measurement)
  --slow-seconds N    how long the slow reader of a list is slow, in seconds (20)
  --memory-keys N,... fill each server with so many keys, and see what memory that takes and how long its next start
  --memory-mib-max N  kill a server whose anonymous memory exceeds this while it lists, in MiB (of what is free now, 3/4)
  --dir PATH          where data directories are made (below target/; must be on the disk that is to be measured)
  --revgate PATH      measure this revgate instead of the one just built
";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) etcd: Option<PathBuf>,
    pub(crate) revgate: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) duration: Duration,
    pub(crate) connections: usize,
    pub(crate) value_bytes: usize,
    pub(crate) restart_keys: usize,
    pub(crate) compact_revisions: usize,
    pub(crate) defragment_mb: usize,
    pub(crate) list_keys: usize,
    pub(crate) slow_duration: Duration,
    pub(crate) memory_keys: Vec<usize>,
    pub(crate) memory_bytes_max: u64,
    pub(crate) dir: PathBuf,
}

impl Options {
    /// `Ok(None)`: help was asked for.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options {
            etcd: None,
            revgate: PathBuf::from(env!("CARGO_BIN_EXE_revgate")),
            rounds: 5,
            duration: Duration::from_secs(3),
            connections: 64,
            value_bytes: 256,
            restart_keys: 0,
            compact_revisions: 0,
            defragment_mb: 0,
            list_keys: 0,
            slow_duration: Duration::from_secs(20),
            memory_keys: Vec::new(),
            memory_bytes_max: available_memory_bytes() / 4 * 3,
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
            let number = || value.parse::<usize>().map_err(|_| format!("{flag} needs a whole number, not {value}"));
            match flag.as_str() {
                "--etcd" => options.etcd = Some(PathBuf::from(value)),
                "--revgate" => options.revgate = PathBuf::from(value),
                "--dir" => options.dir = PathBuf::from(value),
                "--rounds" => options.rounds = number()?,
                "--seconds" => options.duration = Duration::from_secs(number()?.max(1) as u64),
                "--connections" => options.connections = number()?.max(1),
                "--value-bytes" => options.value_bytes = number()?,
                "--compact-revisions" => options.compact_revisions = number()?,
                "--defragment-mb" => options.defragment_mb = number()?,
                "--restart-keys" => options.restart_keys = number()?,
                "--list-keys" => options.list_keys = number()?,
                "--slow-seconds" => options.slow_duration = Duration::from_secs(number()?.max(1) as u64),
                "--memory-keys" => {
                    let numbers: Result<_, _> = value.split(',').map(str::parse).collect();
                    options.memory_keys = numbers.map_err(|_| format!("{flag} needs whole numbers, not {value}"))?;
                }
                "--memory-mib-max" => options.memory_bytes_max = number()? as u64 * 1024 * 1024,
                _ => return Err(format!("{flag} is not known")),
            }
        }
        Ok(Some(options))
    }
}

fn available_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
