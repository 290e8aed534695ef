//! The command line of the benchmark, and what is measured if nothing is said.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use clap::{Parser, ValueEnum};

/// What can be measured: rows of the report, and after them measurements that print tables of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Row {
    /// Puts, one at a time
    #[value(name = "put-1")]
    Put1,
    /// Puts on 64 connections
    #[value(name = "put-64")]
    Put64,
    /// Puts on 512 connections
    #[value(name = "put-512")]
    Put512,
    /// Txns that compare a key's value and put it, on 64 connections
    #[value(name = "compare-and-put")]
    ComparePut,
    /// Linearizable gets on 64 connections
    Get,
    /// Serializable gets on 64 connections
    GetSerializable,
    /// 64 connections: 90 % get, 8 % put, 2 % page of 100, and 100 watchers of a hundredth of the keys each
    Mixed,
    /// Puts that go to many WebSocket watchers each
    FanOut,
    /// Memory after filling (--keys)
    Memory,
    /// Time from the start of the process until it is healthy, on the filled store
    Restart,
    /// The whole filled store in one answer
    List,
    /// Pages of 500 at random places of the filled store
    Page,
    /// 1,000 puts a second while history is compacted (--revisions)
    Compaction,
    /// 200 reads and 200 writes a second while a half empty file is defragmented (--defragment-mb)
    Defragment,
    /// By name only: ten lists at once, walks by pages, and a reader that hardly reads
    Lists,
    /// By name only: memory of WebSocket watchers to which nothing happens
    Idle,
    /// By name only: puts beside watchers that do not read, which then read everything
    Stalled,
    /// By name only: a live watcher beside watchers that replay history
    Replays,
}

/// What the report has.
pub(crate) const REPORT: [Row; 14] = [
    Row::Put1,
    Row::Put64,
    Row::Put512,
    Row::ComparePut,
    Row::Get,
    Row::GetSerializable,
    Row::Mixed,
    Row::FanOut,
    Row::Memory,
    Row::Restart,
    Row::List,
    Row::Page,
    Row::Compaction,
    Row::Defragment,
];

impl Row {
    /// As it is named on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Measures revgate beside a real etcd: same client, same disk, in turn. Without arguments: the whole report, which goes to
/// benches/BENCHMARKS.md with its plots.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo bench --bench gateway --", max_term_width = 120)]
pub(crate) struct Options {
    /// What to measure (the whole report)
    #[arg(value_enum, value_name = "ROW")]
    pub(crate) rows: Vec<Row>,
    /// Rounds; the report tells medians
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// One short round on small stores: shows that everything works, and its figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Processors for client and servers together (all there are)
    #[arg(long)]
    pub(crate) processors: Option<usize>,
    /// The etcd to measure beside revgate (what .ci/fetch-etcd prints)
    #[arg(long, value_name = "PATH", conflicts_with = "alone")]
    pub(crate) etcd: Option<PathBuf>,
    /// No etcd: revgate alone, and no ratios
    #[arg(long)]
    pub(crate) alone: bool,
    /// The revgate to measure
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_revgate"))]
    pub(crate) revgate: PathBuf,
    /// Where data directories are made: on the disk that is to be measured
    #[arg(long, value_name = "PATH", default_value = concat!(env!("CARGO_TARGET_TMPDIR"), "/bench"))]
    pub(crate) dir: PathBuf,
    /// Where BENCHMARKS.md and plots/ go (benches/ for a whole report; else a directory in --dir)
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Keys of the filled store, of 32 bytes each
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) keys: usize,
    /// Size of values, in bytes (256; 192 for watches, 1024 for defragmentation and stalled watchers)
    #[arg(long)]
    pub(crate) value_bytes: Option<usize>,
    /// Revisions that are compacted (600,000), or replayed (100,000)
    #[arg(long)]
    pub(crate) revisions: Option<usize>,
    /// Size of the file that is defragmented, in MB
    #[arg(long, default_value_t = 500)]
    pub(crate) defragment_mb: usize,
    /// WebSocket watchers (1,000 of fan-out, 9,900 idle, 100 stalled, 200 replays)
    #[arg(long)]
    pub(crate) watchers: Option<usize>,
    /// Puts under way at once in the closed loop of fan-out
    #[arg(long, default_value_t = 4)]
    pub(crate) window: usize,
    /// Puts a second beside stalled watchers
    #[arg(long, default_value_t = 2000.0)]
    pub(crate) rate: f64,
    /// Puts a second for the live watcher beside replays
    #[arg(long, default_value_t = 100.0)]
    pub(crate) live_rate: f64,
    /// Seconds for all replays, and for all watchers that did not read to catch up
    #[arg(long, default_value_t = 300.0)]
    pub(crate) replay_limit: f64,
    /// How long the slow reader of a list is slow, in seconds
    #[arg(long, default_value_t = 20.0)]
    pub(crate) slow_seconds: f64,
    /// Kills a server whose anonymous memory exceeds this while it lists, in MiB (of what is free now, 3/4)
    #[arg(long)]
    pub(crate) memory_mib_max: Option<u64>,
    /// Profiles revgate with perf while it is measured, and leaves a ROW.data for each row here (what benches/flame.sh does)
    #[arg(long, value_name = "PATH")]
    pub(crate) profile: Option<PathBuf>,
    /// Not to be called by hand: serve the route that the ceilings are measured with
    #[arg(long, hide = true)]
    pub(crate) serve_ceiling: bool,
    /// What cargo adds for benchmarks that have their own harness
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// What the command line says; ends the process where it cannot be understood.
    pub(crate) fn of_command_line() -> Options {
        let mut options = Options::parse();
        if options.quick {
            options.rounds = options.rounds.min(1);
            options.seconds = options.seconds.min(0.5);
            options.slow_seconds = options.slow_seconds.min(1.0);
            options.keys = options.keys.min(10_000);
            options.revisions = Some(options.revisions.unwrap_or(2_000).min(2_000));
            options.defragment_mb = options.defragment_mb.min(4);
            options.watchers = Some(options.watchers.unwrap_or(20).min(20));
            options.rate = options.rate.min(200.0);
        }
        options.rounds = options.rounds.max(1);
        options.window = options.window.max(1);
        options
    }

    /// The rows of the report that are to be measured.
    pub(crate) fn measures(&self, row: Row) -> bool {
        if self.rows.is_empty() { REPORT.contains(&row) } else { self.rows.contains(&row) }
    }

    /// Whether any of these is.
    pub(crate) fn measures_any(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| self.measures(*row))
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.max(0.1))
    }

    pub(crate) fn replay_limit(&self) -> Duration {
        Duration::from_secs_f64(self.replay_limit.max(1.0))
    }

    pub(crate) fn slow_duration(&self) -> Duration {
        Duration::from_secs_f64(self.slow_seconds.max(0.1))
    }

    /// Size of the values of keys that are put, got and listed.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes.unwrap_or(256)
    }

    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_mib_max.map_or_else(|| available_memory_bytes() / 4 * 3, |mib| mib << 20)
    }

    /// The etcd that was named, or one that can be had.
    pub(crate) fn etcd(&self) -> Option<PathBuf> {
        if self.alone {
            return None;
        }
        self.etcd.clone().or_else(|| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let said = Command::new(root.join(".ci/fetch-etcd")).stderr(Stdio::inherit()).output().ok()?;
            let path = String::from_utf8(said.stdout).ok()?.trim().to_owned();
            (said.status.success() && !path.is_empty()).then(|| path.into())
        })
    }

    /// Whether it is the report that anybody else would measure, too.
    pub(crate) fn is_whole_report(&self) -> bool {
        self.rows.is_empty() && !self.quick && !self.alone && self.processors.is_none()
    }

    /// Where the report goes.
    pub(crate) fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| match self.is_whole_report() {
            true => Path::new(env!("CARGO_MANIFEST_DIR")).join("benches"),
            false => self.dir.join("report"),
        })
    }
}

fn available_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
