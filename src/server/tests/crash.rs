//! Power cuts and faults at every call of a whole member, from its very first start on: what was answered over HTTP is
//! there after a restart.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{life::call, *};
use crate::disk::sim::{CrashState, Promise, Recording, SimDisk, crash_states, explore, inject_everywhere, scratch};

/// Puts of one run of the workload.
const STEPS: usize = 3;

/// One answer, or why there is none.
async fn answer(address: SocketAddr, path: &str, body: Value) -> Result<Value, String> {
    match call(address, path, body).await {
        (200, answer) => Ok(answer),
        (status, error) => Err(format!("{path}: {status} {error}")),
    }
}

/// How many steps the member holds, if it holds what it may. Each is a key of its own.
async fn judge(address: SocketAddr, promise: &Promise) -> Result<usize, String> {
    let found = answer(address, "/v3/kv/range", json!({"key": "AA==", "range_end": "AA=="})).await?;
    let revision: usize = found["header"]["revision"].as_str().expect("a revision").parse().expect("a number");
    promise.check(revision - 1)?;
    let count = found["kvs"].as_array().map_or(0, Vec::len);
    if count == revision - 1 { Ok(count) } else { Err(format!("{count} keys at revision {revision}")) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// The member's data dir is made by it, as on a first start.
fn data_dir(dir: &Path) -> std::path::PathBuf {
    dir.join("below/data")
}

fn work(disk: &SimDisk, dir: &Path, may_refuse: bool) {
    let outcome = runtime().block_on(async {
        let started = Server::start_on(Arc::new(disk.clone()), config(&data_dir(dir))).await;
        let server = started.map_err(|error| error.to_string())?;
        let outcome = put_all(server.addresses()[0], disk).await;
        let stopped = server.stop().await.map_err(|error| error.to_string());
        outcome.and(stopped)
    });
    assert!(may_refuse || outcome.is_ok(), "{outcome:?}");
}

async fn put_all(address: SocketAddr, disk: &SimDisk) -> Result<(), String> {
    disk.restarted(judge(address, &disk.promise()).await?);
    for _ in 0..STEPS {
        let step = disk.promise().next_step();
        disk.begin(step);
        answer(address, "/v3/kv/put", json!({"key": format!("{step:04}")})).await?;
        disk.done(step);
    }
    Ok(())
}

fn check(state: &CrashState<'_>) -> Result<(), String> {
    let promise = state.promise();
    runtime().block_on(async {
        let server = Server::start(config(&data_dir(&state.dir))).await.map_err(|error| error.to_string())?;
        let judged = judge(server.addresses()[0], &promise).await;
        server.stop().await.map_err(|error| error.to_string())?;
        judged.map(drop)
    })
}

fn recorded() -> Recording {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    (0..2).for_each(|_| work(&disk, dir.path(), false));
    disk.recorded()
}

#[test]
fn a_power_cut_loses_nothing_that_was_answered() {
    let explored = explore(&recorded(), 0, crash_states(60, 20), &mut check);
    explored.assert_sound("server");
    println!("server: {} states", explored.states);
}

#[test]
fn a_fault_at_any_call_loses_nothing_that_was_answered() {
    let injected = inject_everywhere("server", 29, &mut work, &mut check);
    println!("server: {} faults, {} states after them", injected.faults, injected.states);
    assert!(injected.faults > 10);
}
