//! A steady load of puts while history is compacted: their latency before and meanwhile, and how long it takes.

use std::{
    cell::Cell,
    fmt::Write,
    fs,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    load::{self, Load},
    options::Options,
    server::{Running, Target},
};

/// Puts a second, offered whatever the answers take.
const PUTS_PER_SECOND: u64 = 1_000;
/// Connections the puts are spread over.
const CONNECTIONS: usize = 16;
/// Keys whose history is compacted: each has been put many times.
const KEYS: usize = 10_000;
/// Both servers' limit of operations in a txn.
const PUTS_PER_TXN: usize = 128;
const FILL_CONNECTIONS: usize = 8;
/// Least length of the measurement during the compaction, so that a short one has a p99 too.
const MEANWHILE_MIN: Duration = Duration::from_secs(2);

struct Found {
    quiet: Load,
    meanwhile: Load,
    compaction: Duration,
}

/// A row of the table: its title, and its figure.
type Row = (&'static str, fn(&Found) -> f64);

const ROWS: [Row; 9] = [
    ("compaction s", |f| f.compaction.as_secs_f64()),
    ("quiet p50 ms", |f| f.quiet.quantile_millis(0.5)),
    ("quiet p99 ms", |f| f.quiet.quantile_millis(0.99)),
    ("quiet max ms", |f| f.quiet.quantile_millis(1.0)),
    ("compacting p50 ms", |f| f.meanwhile.quantile_millis(0.5)),
    ("compacting p99 ms", |f| f.meanwhile.quantile_millis(0.99)),
    ("compacting max ms", |f| f.meanwhile.quantile_millis(1.0)),
    ("p99 compacting / quiet", |f| f.meanwhile.quantile_millis(0.99) / f.quiet.quantile_millis(0.99)),
    ("puts/s meanwhile", |f| f.meanwhile.per_second()),
];

/// Measures each server and prints the table.
pub(crate) fn run(options: &Options, targets: &[Target]) {
    println!(
        "{PUTS_PER_SECOND} puts a second ({} bytes of value) while {} revisions of {KEYS} keys are compacted",
        options.value_bytes, options.compact_revisions
    );
    let found: Vec<Found> = targets.iter().map(|target| one(options, target)).collect();
    print!("{:<26}", "");
    targets.iter().for_each(|target| print!("{:>14}", target.name));
    println!();
    for (title, figure) in ROWS {
        print!("{title:<26}");
        found.iter().for_each(|found| print!("{:>14.2}", figure(found)));
        if let [ours, theirs] = found.as_slice() {
            print!("   ratio {:.2}", figure(ours) / figure(theirs));
        }
        println!();
    }
}

fn one(options: &Options, target: &Target) -> Found {
    let data_dir = options.dir.join(format!("compaction-{}", target.name));
    let _ = fs::remove_dir_all(&data_dir);
    let (server, _) = target.start(&data_dir);
    fill(&server, options);
    let value = base64_simd::STANDARD.encode_to_string(vec![b'v'; options.value_bytes]);
    let put = load::post(server.address, "/v3/kv/put", &format!(r#"{{"key":"Zm9v","value":"{value}"}}"#));
    steady(server.address, &put, Until::Passed(Duration::from_secs(1)));
    let quiet = steady(server.address, &put, Until::Passed(options.duration.max(MEANWHILE_MIN)));

    let answer = load::ask(server.address, "/v3/kv/range", r#"{"key":"Zm9v"}"#);
    let revision = answer.split_once(r#""revision":""#).and_then(|(_, rest)| rest.split_once('"'));
    let revision = revision.unwrap_or_else(|| panic!("no revision in {answer}")).0.to_owned();
    let is_over = Arc::new(AtomicBool::new(false));
    let compacting = thread::spawn({
        let (address, is_over) = (server.address, Arc::clone(&is_over));
        move || {
            let started = Instant::now();
            load::ask(address, "/v3/kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#));
            let took = started.elapsed();
            is_over.store(true, Ordering::SeqCst);
            took
        }
    });
    let meanwhile = steady(server.address, &put, Until::Over(is_over));
    let compaction = compacting.join().unwrap();
    server.stop();
    fs::remove_dir_all(&data_dir).unwrap();
    Found { quiet, meanwhile, compaction }
}

/// When a steady load ends.
enum Until {
    Passed(Duration),
    /// The flag is set, and [`MEANWHILE_MIN`] has passed.
    Over(Arc<AtomicBool>),
}

/// Puts at a fixed rate: each is due at its own time, and one that comes late counts from when it was due.
fn steady(address: SocketAddr, put: &Rc<[u8]>, until: Until) -> Load {
    let started = Instant::now();
    let ends = move || match &until {
        Until::Passed(limit) => started.elapsed() >= *limit,
        Until::Over(is_over) => started.elapsed() >= MEANWHILE_MIN && is_over.load(Ordering::SeqCst),
    };
    let (put, sent) = (Rc::clone(put), Cell::new(0_u64));
    load::run_paced(address, CONNECTIONS, move |_| {
        let due = started + Duration::from_nanos(sent.get() * 1_000_000_000 / PUTS_PER_SECOND);
        sent.set(sent.get() + 1);
        (!ends()).then(|| (due, Rc::clone(&put)))
    })
}

fn fill(server: &Running, options: &Options) {
    let (address, revisions, value_bytes) = (server.address, options.compact_revisions, options.value_bytes);
    let filled = Cell::new(0);
    load::run(address, FILL_CONNECTIONS, move |_| {
        if filled.get() >= revisions {
            return None;
        }
        // A txn is one revision to its headers, and as many as it puts to the file.
        let numbers = filled.get()..(filled.get() + PUTS_PER_TXN).min(revisions);
        filled.set(numbers.end);
        let mut body = String::from(r#"{"success":["#);
        for number in numbers.clone() {
            let comma = if number == numbers.start { "" } else { "," };
            let key = base64_simd::STANDARD.encode_to_string(format!("k{:08}", number % KEYS));
            let value = base64_simd::STANDARD.encode_to_string(format!("{number:0value_bytes$}"));
            write!(body, r#"{comma}{{"request_put":{{"key":"{key}","value":"{value}"}}}}"#).unwrap();
        }
        body.push_str("]}");
        Some(load::post(address, "/v3/kv/txn", &body))
    });
}
