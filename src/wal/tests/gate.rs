//! The log's thread on a disk whose syncs wait at a gate, or fail.

use super::*;
use crate::disk::sim::{Call, EIO, ENOSPC, Failure, Fault, SimDisk};

const LARGE: Options = Options { segment_bytes: 1 << 20, ..SMALL };

fn open_gated(dir: &Path, options: Options) -> (SimDisk, Wal) {
    let gate = SimDisk::default();
    let (wal, _) = open_on(Arc::new(gate.clone()), dir, 1, options).unwrap();
    (gate, wal)
}

type Outcomes = mpsc::Receiver<(u64, Result<(), WalError>)>;

/// Appends one entry a batch; their outcomes in the order of the callbacks.
fn append_each(wal: &Wal, range: std::ops::RangeInclusive<u64>) -> Outcomes {
    let (sender, outcomes) = mpsc::channel();
    for index in range {
        let sender = sender.clone();
        wal.append(vec![entry(index, "x")], Box::new(move |outcome| sender.send((index, outcome.map(drop))).unwrap()));
    }
    outcomes
}

#[test]
fn what_is_queued_during_a_sync_shares_the_next_one() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    let writes_before = gate.calls(Call::Write);
    gate.hold(Call::SyncData);
    let first = append_each(&wal, 1..=1);
    gate.wait_for_calls(Call::SyncData, 1);
    let rest = append_each(&wal, 2..=101);
    assert!(first.try_recv().is_err() && rest.try_recv().is_err(), "answered before the sync");
    gate.release();
    assert!(first.recv().unwrap().1.is_ok());
    let order: Vec<u64> = rest.iter().map(|(index, outcome)| outcome.map(|()| index).unwrap()).collect();
    assert_eq!(order, (2..=101).collect::<Vec<_>>());
    assert_eq!(gate.calls(Call::SyncData), 2);
    assert_eq!(gate.calls(Call::Write) - writes_before, 2);
    wal.close().unwrap();
    assert_eq!(indexes(&open_on(Arc::new(RealDisk), temp.path(), 1, LARGE).unwrap().1).len(), 101);
}

/// Appends one entry here; on which thread it was answered, and how.
fn append_here(wal: &Wal, index: u64) -> mpsc::Receiver<(ThreadId, Result<(), WalError>)> {
    let (sender, outcome) = mpsc::channel();
    let done = move |result: Result<_, _>| sender.send((thread::current().id(), result.map(drop))).unwrap();
    wal.append_here(vec![entry(index, "x")], Box::new(done));
    outcome
}

#[test]
fn an_idle_log_is_written_by_who_appends() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    for index in 1..=3 {
        let (thread, outcome) = append_here(&wal, index).try_recv().expect("it is durable when the call returns");
        assert_eq!(thread, thread::current().id());
        outcome.unwrap();
        assert_eq!(gate.calls(Call::SyncData), index as usize);
    }
    wal.close().unwrap();
    assert_eq!(indexes(&open_on(Arc::new(RealDisk), temp.path(), 1, LARGE).unwrap().1), [1, 2, 3]);
}

#[test]
fn a_log_that_is_not_idle_keeps_the_order() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    gate.hold(Call::SyncData);
    let first = append_each(&wal, 1..=1);
    gate.wait_for_calls(Call::SyncData, 1);
    let second = append_here(&wal, 2);
    assert!(second.try_recv().is_err(), "the call waits for nobody");
    gate.release();
    first.recv().unwrap().1.unwrap();
    let (thread, outcome) = second.recv().unwrap();
    assert_ne!(thread, thread::current().id());
    outcome.unwrap();
    wal.close().unwrap();
    assert_eq!(indexes(&open_on(Arc::new(RealDisk), temp.path(), 1, LARGE).unwrap().1), [1, 2]);
}

#[test]
fn segments_are_cut_and_removed_also_behind_who_appends_here() {
    let temp = TempDir::new().unwrap();
    let options = Options { segment_bytes: 4096, released_segments_kept: 1, ..SMALL };
    let (_gate, wal) = open_gated(temp.path(), options.clone());
    let segments = || segment::list(&RealDisk, temp.path()).unwrap().len();
    let mut index = 0;
    let mut most = 0;
    while most < 4 {
        index += 1;
        let (_, outcome) = append_here(&wal, index).recv().unwrap();
        outcome.unwrap();
        most = most.max(segments());
    }
    let (sender, released) = mpsc::channel();
    let done = move |outcome: Result<_, _>| sender.send(outcome.map(drop)).unwrap();
    wal.append_here(vec![Record::Released { index, term: 1 }], Box::new(done));
    released.recv().unwrap().unwrap();
    // Closing waits for the threads.
    wal.close().unwrap();
    assert_eq!(segments(), 2, "the one that is written, and one that is kept");
}

#[test]
fn a_failed_sync_here_is_final_too() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    gate.fail(Fault::every(&[Call::SyncData], Failure::Errno(EIO)));
    let (_, failed) = append_here(&wal, 1).recv().unwrap();
    assert!(matches!(failed, Err(WalError::Io { action: "syncing", .. })), "{failed:?}");
    gate.heal();
    let syncs = gate.calls(Call::SyncData);
    assert!(matches!(append_here(&wal, 2).recv().unwrap().1, Err(WalError::Stopped(_))));
    assert!(matches!(append_each(&wal, 3..=3).recv().unwrap().1, Err(WalError::Stopped(_))));
    assert_eq!(gate.calls(Call::SyncData), syncs);
    assert!(matches!(wal.close(), Err(WalError::Stopped(_))));
}

#[test]
fn a_failed_sync_is_final_and_never_repeated() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    append_each(&wal, 1..=1).recv().unwrap().1.unwrap();
    gate.fail(Fault::every(&[Call::SyncData], Failure::Errno(EIO)));
    let failed = append_each(&wal, 2..=2).recv().unwrap().1;
    assert!(matches!(failed, Err(WalError::Io { action: "syncing", .. })), "{failed:?}");
    gate.heal();
    let (writes, syncs) = (gate.calls(Call::Write), gate.calls(Call::SyncData));
    for (_, outcome) in append_each(&wal, 3..=5) {
        let Err(WalError::Stopped(why)) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("syncing failed"), "{why}");
    }
    assert!(matches!(wal.close(), Err(WalError::Stopped(_))));
    assert_eq!((gate.calls(Call::Write), gate.calls(Call::SyncData)), (writes, syncs));
}

#[test]
fn a_write_cut_short_is_final_and_is_cut_off_at_the_next_opening() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), LARGE);
    append_each(&wal, 1..=1).recv().unwrap().1.unwrap();
    gate.fail(Fault::every(&[Call::Write], Failure::Short(ENOSPC)));
    assert!(matches!(append(&wal, vec![entry(2, vec![3; 99])]), Err(WalError::Io { action: "writing", .. })));
    gate.heal();
    assert!(append(&wal, vec![entry(2, "x")]).is_err());
    drop(wal);
    let (_wal, recovered) = open_on(Arc::new(RealDisk), temp.path(), 1, LARGE).unwrap();
    assert_eq!(indexes(&recovered), [1]);
    assert!(recovered.repaired.is_some());
}

#[test]
fn a_failure_after_the_answer_meets_the_next_batch() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), SMALL);
    gate.fail(Fault::every(&[Call::Remove], Failure::Errno(EIO)));
    fill(&wal, 1..=5);
    append(&wal, vec![Record::Released { index: 4, term: 1 }]).unwrap();
    // The removal fails on another thread; closing waits for it.
    let closed = wal.close();
    assert!(
        matches!(&closed, Err(WalError::Stopped(why)) if why.contains("removing a released segment failed")),
        "{closed:?}"
    );
}

#[test]
fn a_full_queue_blocks_until_the_disk_goes_on() {
    let temp = TempDir::new().unwrap();
    let (gate, wal) = open_gated(temp.path(), Options { queue_bytes_max: 1000, ..LARGE });
    gate.hold(Call::SyncData);
    let first = append_each(&wal, 1..=1);
    gate.wait_for_calls(Call::SyncData, 1);
    // Each of these costs more than half the queue, so each waits for the one before it to be taken.
    let wal = Arc::new(wal);
    let appender = std::thread::spawn({
        let wal = wal.clone();
        move || (2..=6).for_each(|index| wal.append(vec![entry(index, vec![1; 600])], Box::new(|_| {})))
    });
    assert!(!appender.is_finished());
    gate.release();
    appender.join().unwrap();
    first.recv().unwrap().1.unwrap();
    append(&wal, vec![]).unwrap();
    assert!(
        gate.calls(Call::SyncData) >= 4,
        "five batches, no two of which fit into the queue together, but for the first"
    );
    Arc::into_inner(wal).unwrap().close().unwrap();
}

#[test]
fn dropping_the_log_drains_it() {
    let temp = TempDir::new().unwrap();
    let (_, wal) = open_gated(temp.path(), LARGE);
    let outcomes = append_each(&wal, 1..=50);
    drop(wal);
    assert_eq!(outcomes.try_iter().filter(|(_, outcome)| outcome.is_ok()).count(), 50);
}
