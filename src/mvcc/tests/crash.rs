//! Power cuts and faults at every call of a workload: what was flushed is there, whole entries and all of their
//! history, and nothing that was never written.

use std::collections::BTreeMap;

use super::*;
use crate::disk::sim::{
    CrashState, Op, Promise, Recording, SimDisk, crash_states, explore, inject_everywhere, scratch,
};

/// Rounds of one run of the workload; each ends with a flush.
const ROUNDS: usize = 7;

/// What a step does, one log entry each.
#[derive(Debug)]
enum Entry {
    Put(Vec<(String, String)>),
    Delete(String),
    /// So many revisions below the current one.
    Compact(i64),
}

fn entry(step: u64) -> Entry {
    let key = |number: u64| format!("k{}", number % 7);
    match step {
        step if step % 9 == 4 => Entry::Compact(2),
        step if step % 4 == 3 => Entry::Delete(key(step - 1)),
        _ => {
            let bytes = if step % 6 == 1 { 9_000 } else { (step * 53 % 400) as usize };
            let value = |number: u64| format!("{step}.{number}{}", "v".repeat(bytes));
            Entry::Put((0..1 + step % 3).map(|number| (key(step + number), value(number))).collect())
        }
    }
}

/// What a store holds after some steps.
struct Model {
    revision: i64,
    compacted: i64,
    /// "a=1 b=2" at each revision, from 1 on.
    texts: Vec<String>,
}

impl Model {
    fn of(steps: &[u64]) -> Model {
        let mut model = Model { revision: 1, compacted: -1, texts: vec![String::new()] };
        let mut live = BTreeMap::new();
        for step in steps {
            match entry(*step) {
                Entry::Compact(back) if model.revision - back > model.compacted => {
                    model.compacted = model.revision - back
                }
                Entry::Compact(_) => {}
                Entry::Put(pairs) => {
                    live.extend(pairs);
                    model.write(&live);
                }
                Entry::Delete(key) => {
                    if live.remove(&key).is_some() {
                        model.write(&live);
                    }
                }
            }
        }
        model
    }

    fn write(&mut self, live: &BTreeMap<String, String>) {
        self.revision += 1;
        self.texts.push(live.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "));
    }
}

/// What is done to the file besides. What the store must survive is one line here.
fn upkeep(store: &Store, round: usize) -> Result<(), MvccError> {
    match round % 4 {
        2 => wait(|done| store.defragment(done)).map(drop),
        _ => Ok(()),
    }
}

fn wait(ask: impl FnOnce(Callback)) -> Result<LogPosition, MvccError> {
    let (done, result) = callback();
    ask(done);
    result.recv_timeout(RESULT_WAIT_MAX).unwrap()
}

fn apply(store: &Store, step: u64, index: u64) -> Result<(), MvccError> {
    match entry(step) {
        Entry::Put(pairs) => {
            let mut txn = store.write();
            for (key, value) in pairs {
                txn.put(key.into(), value.into(), 0, false)?;
            }
            txn.end();
        }
        Entry::Delete(key) => {
            let mut txn = store.write();
            txn.delete_range(&single(&key), false)?;
            txn.end();
        }
        Entry::Compact(back) => match store.compact(store.revision() - back, None) {
            Ok(()) | Err(MvccError::Compacted { .. }) => {}
            Err(error) => return Err(error),
        },
    }
    store.end_entry(at(index));
    Ok(())
}

fn open_checked(disk: Arc<dyn Disk>, dir: &Path) -> Result<(Store, Restored), MvccError> {
    let db = bolt::Db::open(disk, &dir.join("db"), &bolt::Options { map_bytes_max: MAP_BYTES_MAX })?;
    // The first finding is the reason not to open it.
    if let Some(problem) = db.check()?.into_iter().next() {
        return Err(problem.into());
    }
    // What waits for room is tried again after an interval.
    let options = StoreOptions { commit_interval: Duration::from_millis(50), ..options() };
    Store::open(db, options, &Metrics::new())
}

/// How many steps the store holds, if it holds what it may.
fn judge(store: &Store, restored: &Restored, promise: &Promise) -> Result<usize, String> {
    let held = restored.position.index as usize;
    promise.check(held)?;
    let model = Model::of(&promise.steps[..held]);
    let found = (store.revision(), store.compact_revision());
    if found != (model.revision, model.compacted) {
        return Err(format!("revisions {found:?}, not {:?}", (model.revision, model.compacted)));
    }
    for revision in model.compacted.max(1)..=model.revision {
        let text = text(store, revision).map_err(|error| error.to_string())?;
        if text != model.texts[revision as usize - 1] {
            return Err(format!("at revision {revision}: {text:.80}"));
        }
    }
    let sets =
        store.changes_since(model.compacted.max(1) + 1, usize::MAX, usize::MAX).map_err(|error| error.to_string())?;
    let revisions: Vec<i64> = sets.iter().map(|set| set.revision).collect();
    let expected: Vec<i64> = (model.compacted.max(1) + 1..=model.revision).collect();
    if revisions == expected { Ok(held) } else { Err(format!("changes of revisions {revisions:?}, not {expected:?}")) }
}

fn work(disk: &SimDisk, dir: &Path, may_refuse: bool) {
    if let Err(error) = try_work(disk, dir) {
        assert!(may_refuse, "{error}");
    }
}

fn try_work(disk: &SimDisk, dir: &Path) -> Result<(), MvccError> {
    let (store, restored) = open_checked(Arc::new(disk.clone()), dir)?;
    match judge(&store, &restored, &disk.promise()) {
        Ok(held) => disk.restarted(held),
        // A store whose resumed compaction failed answers nothing.
        Err(what) => return Err(flush(&store).expect_err(&what)),
    }
    for round in 0..ROUNDS {
        for _ in 0..1 + round % 3 {
            let promise = disk.promise();
            let step = promise.next_step();
            disk.begin(step);
            apply(&store, step, promise.steps.len() as u64 + 1)?;
        }
        let flushed = wait(|done| store.flush(done)).inspect_err(|_| {
            let refused = store.write().put(Bytes::from_static(b"x"), Bytes::new(), 0, false);
            assert!(refused.is_err(), "a store that failed takes nothing");
        })?;
        disk.done(disk.promise().steps[flushed.index as usize - 1]);
        upkeep(&store, round)?;
    }
    // Half of the runs end without closing, as by a crash of the process.
    if disk.promise().done.is_multiple_of(2) { store.close() } else { Ok(()) }
}

fn check(state: &CrashState<'_>) -> Result<(), String> {
    let promise = state.promise();
    let text = |error: MvccError| error.to_string();
    let (store, restored) = open_checked(Arc::new(RealDisk), &state.dir).map_err(text)?;
    let held = judge(&store, &restored, &promise)?;
    apply(&store, 1, held as u64 + 1).map_err(text)?;
    store.close().map_err(text)?;
    drop(store);
    let (store, restored) = open_checked(Arc::new(RealDisk), &state.dir).map_err(text)?;
    let mut then = Promise { done: held + 1, steps: promise.steps[..held].to_vec() };
    then.steps.push(1);
    judge(&store, &restored, &then).map(drop)
}

fn recorded() -> Recording {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    (0..3).for_each(|_| work(&disk, dir.path(), false));
    disk.recorded()
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed() {
    let explored = explore(&recorded(), 0, crash_states(400, 2), &mut check);
    explored.assert_sound("mvcc");
    println!("mvcc: {} states", explored.states);
}

#[test]
fn a_fault_at_any_call_loses_nothing_that_was_flushed() {
    let injected = inject_everywhere("mvcc", 11, &mut work, &mut check);
    println!("mvcc: {} faults, {} states after them", injected.faults, injected.states);
    assert!(injected.faults > 20);
}

/// The same search finds what a store loses whose syncs do nothing.
#[test]
fn a_store_without_syncs_is_caught() {
    let wrong = recorded().without(|op| matches!(op, Op::Sync { .. }));
    let explored = explore(&wrong, 0, 100, &mut check);
    assert!(!explored.losses.is_empty(), "{} states and no loss", explored.states);
}
