//! Servers with many keys, and lists of them: whole by ten clients at once, page by page, and by a reader that hardly reads.
//!
//! Both servers are filled alike, then each measurement is taken on the one and on the other. Where memory is looked at
//! they are started anew before, so that neither has some to spare. The client reads with constant memory and checks
//! what it reads.

mod beside;
mod client;
mod keys;
pub(crate) mod pages;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use self::{
    beside::{Growth, Puts, watched},
    client::{Broken, Connection, Ends},
};
use crate::{
    fill::field,
    load::{self, Load},
    mib,
    options::Options,
    server::{Running, Target, remove},
    table::Table,
};

const LISTS_AT_ONCE: usize = 10;
/// The p99 of a hundred puts per second needs some time; lists at once are repeated until it is over.
const PUTS_MIN: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 256 * 1024;
const SLOW_BYTES_PER_SECOND: usize = 1024;
const SLOW_SOCKET_BYTES: usize = 128 * 1024;
const FAST_SOCKET_BYTES: usize = 4 * 1024 * 1024;
const ALL: &str = r#"{"key":"AA==","range_end":"AA=="}"#;

/// A filled server.
pub(crate) struct Filled<'a> {
    pub(crate) target: &'a Target,
    data_dir: PathBuf,
    pub(crate) server: Running,
    pub(crate) keys: usize,
    value_bytes: usize,
    memory_bytes_max: u64,
}

/// Measures all targets, and prints the table.
pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!("lists of {} keys of 32 bytes with {} bytes of value", options.keys, options.value_bytes());
    let mut table = Table::new(targets);
    let mut filled: Vec<Filled> = targets.iter().map(|target| Filled::fill(target, options)).collect();
    for (server, filled) in filled.iter_mut().enumerate() {
        lists_at_once(filled, server, &mut table);
    }
    for (server, filled) in filled.iter_mut().enumerate() {
        pages::walks(filled, server, &mut table);
    }
    for (server, filled) in filled.iter_mut().enumerate() {
        slow_reader(filled, options.slow_duration(), server, &mut table);
    }
    println!();
    table.print();
    filled.into_iter().for_each(Filled::remove);
}

impl<'a> Filled<'a> {
    /// Fills a fresh server with all keys, in no order, and lets it come to rest.
    pub(crate) fn fill(target: &'a Target, options: &Options) -> Filled<'a> {
        let (keys, value_bytes) = (options.keys, options.value_bytes());
        let needed = pages::PAGE_KEYS * pages::WALKERS..keys::KEYS_MAX;
        assert!(needed.contains(&keys), "{keys} keys are too few or too many: {needed:?}");
        let (server, data_dir) = target.start_fresh(options, "filled");
        keys::fill(server.address, keys, value_bytes);
        server.settle();
        Filled { target, data_dir, server, keys, value_bytes, memory_bytes_max: options.memory_bytes_max() }
    }

    /// SIGTERM and a start: how long the one took, and how long until healthy again.
    pub(crate) fn restart(&mut self) -> (Duration, Duration) {
        let stop = self.server.stop();
        let (server, start) = self.target.start(&self.data_dir);
        self.server = server;
        (stop, start)
    }

    /// Keys by the server's own count.
    pub(crate) fn count(&self) -> usize {
        let all = r#"{"key":"AA==","range_end":"AA==","count_only":true}"#;
        field(&load::ask(self.server.address, "/v3/kv/range", all), "count").parse().unwrap()
    }

    /// Stops the server, and removes what it kept.
    pub(crate) fn remove(mut self) {
        self.server.stop();
        remove(&self.data_dir);
    }

    /// Does the work, watching memory. A server that took too much is started anew, and there is no result.
    pub(crate) fn watched<T>(&mut self, work: impl FnOnce(&Self) -> T) -> (Option<T>, Growth) {
        let (result, growth) = watched(&self.server, self.memory_bytes_max, || work(self));
        if !growth.was_stopped {
            return (Some(result), growth);
        }
        println!("  {} was killed when it had grown by {:.0} MiB", self.target.name, growth.mib());
        self.start_anew();
        (None, growth)
    }

    /// Memory that was freed and kept would hide what a measurement takes.
    fn start_anew(&mut self) {
        self.server.kill();
        self.server.wait();
        self.server = self.target.start(&self.data_dir).0;
        self.server.settle();
    }

    fn puts(&self) -> Puts {
        Puts { address: self.server.address, keys: self.keys, value_bytes: self.value_bytes }
    }

    /// Lists everything on a connection of its own; the size of the answer.
    pub(crate) fn list_once(&self) -> Result<u64, Broken> {
        self.list(&mut Connection::open(self.server.address, BUFFER_BYTES), |_| {})
    }

    /// Lists everything; the size of the answer. `pace` is called after each piece.
    fn list(&self, connection: &mut Connection, mut pace: impl FnMut(&Ends)) -> Result<u64, Broken> {
        let mut ends = Ends::default();
        connection.ask("/v3/kv/range", ALL, &mut |piece| {
            ends.take(piece);
            pace(&ends);
        })?;
        // Base64 takes four bytes for three.
        let wrong = ends.check(self.keys, (32 + self.value_bytes) / 3 * 4);
        wrong.unwrap_or_else(|wrong| panic!("a wrong answer of {}: {wrong}", self.target.name));
        Ok(ends.bytes)
    }
}

fn lists_at_once(filled: &mut Filled<'_>, server: usize, table: &mut Table) {
    filled.start_anew();
    let quiet = filled.puts().alone(PUTS_MIN);
    let (result, growth) = filled.watched(|filled| {
        filled.puts().beside(|| {
            let (started, mut seconds) = (Instant::now(), Vec::new());
            while started.elapsed() < PUTS_MIN {
                seconds.push(ten_lists(filled)?);
            }
            Ok::<_, Broken>(seconds)
        })
    });
    table.add("10 lists: growth MiB", server, growth.mib());
    if let Some((seconds, puts)) = result {
        seconds.unwrap().into_iter().for_each(|seconds| table.add("10 lists s", server, seconds));
        add_puts(table, server, "10 lists", &quiet, &puts.unwrap());
    }
}

/// How long it takes until all have their list, in seconds.
fn ten_lists(filled: &Filled<'_>) -> Result<f64, Broken> {
    let started = Instant::now();
    thread::scope(|scope| {
        let lists: Vec<_> = (0..LISTS_AT_ONCE).map(|_| scope.spawn(|| filled.list_once())).collect();
        lists.into_iter().try_for_each(|list| list.join().unwrap().map(|_| ()))
    })?;
    Ok(started.elapsed().as_secs_f64())
}

fn add_puts(table: &mut Table, server: usize, title: &str, quiet: &Load, busy: &Load) {
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let [quiet, busy] = [quiet, busy].map(|load| load.quantile_millis(share));
        table.add(&format!("{title}: put {name} before, ms"), server, quiet);
        table.add(&format!("{title}: put {name} meanwhile, ms"), server, busy);
        table.add(&format!("{title}: put {name} meanwhile/before"), server, busy / quiet);
    }
}

fn slow_reader(filled: &mut Filled<'_>, duration: Duration, server: usize, table: &mut Table) {
    filled.start_anew();
    let quiet = filled.puts().alone(duration);
    let name = filled.target.name;
    let mut connection = Connection::open(filled.server.address, SLOW_BYTES_PER_SECOND);
    let socket = connection.socket();
    // Less room, or no more later on, and it is the kernel that is slow.
    set_socket_recv_buffer_size(&socket, SLOW_SOCKET_BYTES).unwrap();
    let (result, growth) = filled.watched(|filled| {
        let slow_until = Instant::now() + duration;
        let pace = |_: &Ends| {
            let left = slow_until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_secs(1)));
        };
        thread::scope(|scope| {
            let reader = scope.spawn(move || filled.list(&mut connection, pace));
            let (at_end, puts) = filled.puts().beside(|| {
                thread::sleep(duration);
                set_socket_recv_buffer_size(&socket, FAST_SOCKET_BYTES).unwrap();
                filled.server.memory_bytes().1
            });
            (reader.join().unwrap(), at_end, puts)
        })
    });
    table.add("slow reader: growth MiB", server, growth.mib());
    let Some((end, at_end, puts)) = result else { return };
    let kept = mib(at_end.saturating_sub(growth.before_bytes));
    table.add("slow reader: growth at the end of slowness MiB", server, kept);
    add_puts(table, server, "slow reader", &quiet, &puts.unwrap());
    match end {
        Ok(bytes) => println!("  the slow reader of {name} got a whole right answer of {bytes} bytes"),
        Err(Broken { after_bytes, how }) => {
            println!("  the slow reader of {name} got a broken transfer after {after_bytes} bytes: {how}");
        }
    }
}
