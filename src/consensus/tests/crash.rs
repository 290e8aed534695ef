//! Power cuts and faults at every call of a member's workload: what was answered is there after a restart, in the log
//! or in the file, with all of its history.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures_util::future::join_all;

use super::fixture::options;
use crate::{
    apply::{
        Applier, State,
        fixture::{command, config, put, try_open_state},
    },
    consensus::{Consensus, ConsensusOptions},
    disk::{
        Disk, RealDisk,
        sim::{
            Call, CrashState, ENOSPC, Failure, Fault, Op, Promise, Recording, SimDisk, crash_states, explore,
            inject_everywhere, scratch,
        },
    },
    metrics::Metrics,
    mvcc::Store,
    proto::{etcdserverpb as pb, revgatepb::internal_raft_request::Request},
};

/// Groups of proposals of one run of the workload.
const GROUPS: u64 = 5;

const KEYS: u64 = 5;

fn key(step: u64) -> String {
    format!("k{}", step % KEYS)
}

/// What a step proposes. Each makes one revision: steps are numbered without a gap, so what one deletes the one before
/// has put.
fn request(step: u64) -> Request {
    if step % 4 == 3 {
        return Request::DeleteRange(pb::DeleteRangeRequest { key: key(step - 1).into(), ..Default::default() });
    }
    put(&key(step), &format!("{step}{}", "v".repeat((step * 97 % 700) as usize)))
}

/// The keys' values after so many steps.
fn model(steps: u64) -> BTreeMap<String, String> {
    let mut live = BTreeMap::new();
    for step in 1..=steps {
        match request(step) {
            Request::Put(put) => {
                live.insert(key(step), String::from_utf8(put.value.to_vec()).unwrap());
            }
            _ => drop(live.remove(&key(step - 1))),
        }
    }
    live
}

/// How many steps the store holds, if it holds what it may.
fn judge(store: &Store, promise: &Promise) -> Result<usize, String> {
    let held = store.revision() - 1;
    promise.check(held as usize)?;
    for revision in store.compact_revision().max(1)..=store.revision() {
        let expected = model(revision as u64 - 1);
        for step in 0..KEYS {
            let found = store.get(key(step).as_bytes(), revision).map_err(|error| error.to_string())?;
            let found = found.map(|kv| String::from_utf8(kv.value.to_vec()).unwrap());
            if found.as_ref() != expected.get(&key(step)) {
                return Err(format!("{} at revision {revision} is {found:.40?}", key(step)));
            }
        }
    }
    Ok(held as usize)
}

/// A member whose log is cut, released and removed all the time.
struct Member {
    consensus: Consensus,
    state: State,
}

impl Member {
    async fn start(disk: Arc<dyn Disk>, dir: &Path) -> Result<Member, String> {
        Member::start_with(disk, dir, 4096).await
    }

    async fn start_with(disk: Arc<dyn Disk>, dir: &Path, wal_segment_bytes: u64) -> Result<Member, String> {
        let metrics = Metrics::new();
        let state = try_open_state(disk.clone(), dir, &metrics).map_err(|error| error.to_string())?;
        let applier = Applier::new(state.clone(), &config(-1), &metrics);
        let options = ConsensusOptions {
            snapshot_count: 8,
            snapshot_catchup_entries: 3,
            wal_segment_bytes,
            wals_max: 0,
            ..options(dir)
        };
        match Consensus::start(options, disk, state.store.clone(), applier, &metrics).await {
            Ok(consensus) => Ok(Member { consensus, state }),
            Err(error) => {
                state.hub.close();
                Err(error.to_string())
            }
        }
    }

    async fn propose(&self, request: Request) -> Result<(), String> {
        self.consensus.propose(command(request)).await.map(drop).map_err(|error| error.to_string())
    }

    async fn stop(self) -> Result<(), String> {
        let stopped = self.consensus.shutdown().await.map_err(|error| error.to_string());
        self.state.hub.close();
        stopped
    }

    /// What is done besides. What a member must survive is one line here.
    async fn upkeep(&self, group: u64) -> Result<(), String> {
        let (sender, done) = tokio::sync::oneshot::channel();
        let callback = Box::new(move |result| drop(sender.send(result)));
        match group {
            1 => self.state.store.flush(callback),
            2 => {
                let revision = self.state.store.revision() - 2;
                let compaction = pb::CompactionRequest { revision, physical: true };
                return self.propose(Request::Compaction(compaction)).await;
            }
            3 => self.state.store.defragment(callback),
            _ => return Ok(()),
        }
        done.await.unwrap().map(drop).map_err(|error| error.to_string())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn work(disk: &SimDisk, dir: &Path, may_refuse: bool) {
    if let Err(error) = runtime().block_on(try_work(disk, dir)) {
        assert!(may_refuse, "{error}");
    }
}

async fn try_work(disk: &SimDisk, dir: &Path) -> Result<(), String> {
    let member = Member::start(Arc::new(disk.clone()), dir).await?;
    let outcome = match judge(&member.state.store, &disk.promise()) {
        Ok(held) => {
            disk.restarted(held);
            propose_all(&member, disk).await
        }
        // A store whose resumed compaction failed answers nothing.
        Err(what) => Err(member.upkeep(1).await.expect_err(&what)),
    };
    let stopped = member.stop().await;
    outcome.and(stopped)
}

async fn propose_all(member: &Member, disk: &SimDisk) -> Result<(), String> {
    for group in 0..GROUPS {
        let first = disk.promise().next_step();
        let steps: Vec<u64> = (first..first + 1 + group % 3).collect();
        steps.iter().for_each(|step| disk.begin(*step));
        // In the order in which they are asked for: each is in the queue before the next is made.
        let outcomes = join_all(steps.iter().map(|step| member.propose(request(*step)))).await;
        let mut failure = Ok(());
        for (step, outcome) in steps.iter().zip(outcomes) {
            match outcome {
                Ok(()) => disk.done(*step),
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        failure?;
        member.upkeep(group).await?;
    }
    Ok(())
}

fn check(state: &CrashState<'_>) -> Result<(), String> {
    let promise = state.promise();
    runtime().block_on(async {
        let member = Member::start(Arc::new(RealDisk), &state.dir).await?;
        let judged = judge(&member.state.store, &promise);
        let went_on = member.propose(put("after", "1")).await;
        member.stop().await?;
        judged.and(went_on)
    })
}

fn recorded() -> Recording {
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    (0..3).for_each(|_| work(&disk, dir.path(), false));
    disk.recorded()
}

#[test]
fn a_power_cut_loses_nothing_that_was_answered() {
    let explored = explore(&recorded(), 0, crash_states(150, 20), &mut check);
    explored.assert_sound("member");
    println!("member: {} states", explored.states);
}

#[test]
fn a_fault_at_any_call_loses_nothing_that_was_answered() {
    let injected = inject_everywhere("member", 31, &mut work, &mut check);
    println!("member: {} faults, {} states after them", injected.faults, injected.states);
    assert!(injected.faults > 10);
}

/// A file that cannot grow takes nothing away: reads go on, and what was answered is in the log until there is room.
#[test]
fn a_full_disk_below_the_file_loses_nothing() {
    const SEGMENT_BYTES: u64 = 4 << 20;
    let value_bytes = |step: u64| 200_000 * step as usize;
    let dir = scratch();
    let disk = SimDisk::recording(dir.path());
    runtime().block_on(async {
        let member = Member::start_with(Arc::new(disk.clone()), dir.path(), SEGMENT_BYTES).await.unwrap();
        // The log's segment is large enough for all that comes.
        disk.fail(Fault::every(&[Call::Allocate], Failure::Errno(ENOSPC)));
        for step in 1..=3 {
            disk.begin(step);
            match member.propose(put(&key(step), &"v".repeat(value_bytes(step)))).await {
                Ok(()) => disk.done(step),
                // Turned away: that the file is full is known by now.
                Err(_) => assert!(step > 1),
            }
            member.state.store.flush(Box::new(drop));
        }
        assert_eq!(member.state.store.get(key(1).as_bytes(), 0).unwrap().unwrap().value.len(), value_bytes(1));
        disk.heal();
        member.stop().await.unwrap();
    });
    let explored = explore(&disk.recorded(), 0, 40, &mut |state| {
        let done = state.promise().done as u64;
        runtime().block_on(async {
            let member = Member::start_with(Arc::new(RealDisk), &state.dir, SEGMENT_BYTES).await?;
            let found = |step| member.state.store.get(key(step).as_bytes(), 0).unwrap().map_or(0, |kv| kv.value.len());
            let are_there = (1..=done).all(|step| found(step) == value_bytes(step));
            member.stop().await?;
            if are_there { Ok(()) } else { Err(format!("one of {done} values is lost")) }
        })
    });
    explored.assert_sound("member on a full disk");
}

/// The same search finds what a member loses whose syncs do nothing.
#[test]
fn a_member_without_syncs_is_caught() {
    let wrong = recorded().without(|op| matches!(op, Op::Sync { .. }));
    let explored = explore(&wrong, 0, 30, &mut check);
    assert!(!explored.losses.is_empty(), "{} states and no loss", explored.states);
}
