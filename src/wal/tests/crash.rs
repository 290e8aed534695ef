//! Power cuts and faults at every call of a workload: what was acknowledged comes back, in order, and nothing that was
//! never appended.

use std::collections::BTreeMap;

use super::*;
use crate::disk::sim::{
    CrashState, Op, Promise, Recording, SimDisk, crash_states, explore, inject_everywhere, scratch,
};

/// Groups of batches of one run of the workload.
const GROUPS: u64 = 9;

/// What a log holds. Each step is a record.
#[derive(Default, PartialEq, Debug)]
struct Model {
    entries: BTreeMap<u64, Entry>,
    last: u64,
    released: Option<(u64, u64)>,
    state: Option<Bytes>,
}

impl Model {
    fn of(steps: &[u64]) -> Model {
        let mut model = Model::default();
        for step in steps {
            let record = model.record(*step);
            model.take(record);
        }
        model
    }

    fn floor(&self) -> u64 {
        self.released.map_or(0, |(index, _)| index)
    }

    /// The record that a step is, for a log that holds this.
    fn record(&self, step: u64) -> Record {
        let entry = |index| {
            let data = vec![step as u8; (step * 131 % 900) as usize];
            Record::Entry(Entry { index, term: step, kind: 7, data: data.into() })
        };
        match step {
            step if step % 11 == 7 => Record::Truncate { last_index: self.last.saturating_sub(2) },
            step if step % 13 == 5 => Record::Released { index: self.last.saturating_sub(3), term: step },
            step if step % 5 == 3 => Record::State(step.to_be_bytes().to_vec().into()),
            step if step % 7 == 6 => entry(self.last.max(self.floor() + 1)),
            _ => entry(self.last + 1),
        }
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Entry(entry) => {
                self.entries.split_off(&entry.index);
                self.last = entry.index;
                self.entries.insert(entry.index, entry);
            }
            Record::State(state) => self.state = Some(state),
            Record::Truncate { last_index } => {
                self.entries.split_off(&(last_index + 1));
                self.last = self.last.min(last_index).max(self.floor());
            }
            Record::Released { index, term } if index >= self.floor() => {
                self.released = Some((index, term));
                self.entries = self.entries.split_off(&(index + 1));
                self.last = self.last.max(index);
            }
            Record::Released { .. } => {}
        }
    }
}

/// How many steps were recovered.
fn judge(recovered: &Recovered, promise: &Promise) -> Result<usize, String> {
    if &recovered.metadata[..] != b"metadata" {
        return Err("the metadata is wrong".into());
    }
    let entries: BTreeMap<u64, Entry> = recovered.entries.iter().map(|entry| (entry.index, entry.clone())).collect();
    let mut model = Model::default();
    let is_held = |model: &Model| {
        (&model.entries, model.released, &model.state) == (&entries, recovered.released, &recovered.state)
    };
    let mut held = is_held(&model).then_some(0);
    for (at, step) in promise.steps.iter().enumerate() {
        let record = model.record(*step);
        model.take(record);
        if is_held(&model) {
            held = Some(at + 1);
        }
    }
    match held {
        Some(held) => promise.check(held).map(|()| held),
        None => Err(format!("holds what never was: entries {:?}", entries.keys())),
    }
}

fn options(run: usize) -> Options {
    Options { released_segments_kept: run % 2, ..SMALL }
}

fn work(disk: &SimDisk, dir: &Path, may_refuse: bool) {
    if let Err(error) = try_work(disk, dir) {
        assert!(may_refuse, "{error}");
    }
}

fn try_work(disk: &SimDisk, dir: &Path) -> Result<(), WalError> {
    let (wal, recovered) = open_on(Arc::new(disk.clone()), &dir.join("member/wal"), 1, options(disk.promise().done))?;
    disk.restarted(judge(&recovered, &disk.promise()).unwrap());
    for group in 0..GROUPS {
        let (sender, outcomes) = mpsc::channel();
        // Several batches that may share a sync.
        for batch in 0..1 + group % 3 {
            let mut records = Vec::new();
            let mut last = 0;
            for _ in 0..1 + (group + batch) % 4 {
                let promise = disk.promise();
                last = promise.next_step();
                records.push(Model::of(&promise.steps).record(last));
                disk.begin(last);
            }
            let sender = sender.clone();
            wal.append(records, Box::new(move |outcome| sender.send((last, outcome.map(drop))).unwrap()));
        }
        drop(sender);
        let mut failure = None;
        for (last, outcome) in outcomes {
            match outcome {
                Ok(()) => {
                    assert!(failure.is_none(), "acknowledged after a failure");
                    disk.done(last);
                }
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        if let Some(failure) = failure {
            assert!(append(&wal, vec![entry(1, "x")]).is_err(), "a log that failed takes nothing");
            return Err(failure);
        }
    }
    wal.close()
}

/// Opens a state, with another power cut while it is being opened and written to.
fn check(state: &CrashState<'_>) -> Result<(), String> {
    let promise = state.promise();
    let text = |error: WalError| error.to_string();
    let disk = SimDisk::recording(&state.dir);
    let dir = state.dir.join("member/wal");
    let (wal, recovered) = open_on(Arc::new(disk.clone()), &dir, 1, options(0)).map_err(text)?;
    let held = judge(&recovered, &promise)?;
    let mut then = Promise { done: held, steps: promise.steps[..held].to_vec() };
    append(&wal, vec![Model::of(&then.steps).record(10_000)]).map_err(text)?;
    wal.close().map_err(text)?;
    then.steps.push(10_000);
    let again = explore(&disk.recorded(), 0, 2, &mut |again| {
        let dir = again.dir.join("member/wal");
        let (_, recovered) = open_on(Arc::new(RealDisk), &dir, 1, options(0)).map_err(text)?;
        judge(&recovered, &then).map(drop)
    });
    again.losses.into_iter().next().map_or(Ok(()), |loss| Err(format!("after another power cut: {loss}")))
}

fn recorded() -> Recording {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    (0..4).for_each(|_| work(&disk, dir.path(), false));
    disk.recorded()
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let explored = explore(&recorded(), 0, crash_states(1000, 1), &mut check);
    explored.assert_sound("wal");
    println!("wal: {} states", explored.states);
}

#[test]
fn a_fault_at_any_call_loses_nothing_that_was_acknowledged() {
    let injected = inject_everywhere("wal", 7, &mut work, &mut check);
    println!("wal: {} faults, {} states after them", injected.faults, injected.states);
    assert!(injected.faults > 20);
}

/// The same search finds what a log loses that leaves something out.
#[test]
fn a_log_that_leaves_out_a_sync_is_caught() {
    let recording = recorded();
    let no_data = recording.without(|op| matches!(op, Op::Sync { .. }));
    let no_names = recording.without(|op| matches!(op, Op::SyncDir { .. }));
    for (name, wrong) in [("data", no_data), ("names", no_names)] {
        let explored = explore(&wrong, 0, 200, &mut check);
        assert!(!explored.losses.is_empty(), "{name}: {} states and no loss", explored.states);
    }
}
