//! Who does what of a compaction, and what the others may do meanwhile.

use super::*;
use crate::disk::sim::{Call, EIO, Failure, Fault, SimDisk};

/// A compaction of ninety revisions, more than one step's, that waits for a list; all else is in the file.
struct Held {
    dir: tempfile::TempDir,
    disk: SimDisk,
    store: Store,
    list: Option<RangeCursor>,
    finished: mpsc::Receiver<Result<LogPosition, MvccError>>,
}

const REVISIONS: i64 = 90;

impl Held {
    fn start(options: StoreOptions) -> Held {
        let dir = tempfile::tempdir().unwrap();
        let disk = SimDisk::default();
        let (store, _) = open_on(Arc::new(disk.clone()), &dir.path().join("db"), options).unwrap();
        for n in 0..REVISIONS {
            put(&store, "a", &n.to_string());
        }
        let list = store.range(&RangeQuery::all(everything())).unwrap();
        put(&store, "a", "last");
        let (done, finished) = callback();
        store.compact(store.revision(), Some(done)).unwrap();
        store.end_entry(at(1));
        assert_eq!(flush(&store).unwrap(), at(1));
        assert_eq!(store.compaction().unwrap().phase, CompactionPhase::Reads);
        Held { dir, disk, store, list: Some(list), finished }
    }

    /// Lets it go on until it has made the next sync of the file, which is held.
    fn go_on_until_it_syncs(&mut self) {
        let syncs = self.disk.calls(Call::SyncData);
        self.disk.hold(Call::SyncData);
        self.list.take();
        self.disk.wait_for_calls(Call::SyncData, syncs + 1);
    }

    fn finished(&self) -> Result<LogPosition, MvccError> {
        self.finished.recv_timeout(RESULT_WAIT_MAX).unwrap()
    }

    fn stored(&self) -> usize {
        self.store.bucket_pairs(buckets::KEY).unwrap().len()
    }
}

/// A test that fails in between is not to hang: the store waits for its threads.
impl Drop for Held {
    fn drop(&mut self) {
        self.disk.release();
    }
}

#[test]
fn deletions_are_the_background_threads_and_commits_are_not() {
    let mut held = Held::start(options());
    let is_by = |held: &Held, thread| [Call::Write, Call::SyncData].map(|call| held.disk.was_called_by(call, thread));
    assert_eq!((is_by(&held, "backend"), is_by(&held, "compaction")), ([true; 2], [false; 2]));
    held.go_on_until_it_syncs();
    assert_eq!(is_by(&held, "compaction"), [true; 2]);
    held.disk.release();
    assert_eq!(held.finished().unwrap(), at(1));
    assert_eq!(held.stored(), 1);
}

/// The disk hangs in the middle of a step: who reads or writes does not, since the step holds nothing of theirs.
#[test]
fn nobody_but_the_file_waits_for_a_step() {
    let mut held = Held::start(options());
    held.go_on_until_it_syncs();
    let store = &held.store;
    let revision = put(store, "b", "1");
    store.end_entry(at(2));
    assert_eq!(text(store, 0).unwrap(), "a=last b=1");
    assert_eq!(text(store, revision - 1).unwrap(), "a=last");
    assert_eq!(changes(store, revision).unwrap(), [format!("{revision} b=1")]);
    assert_eq!(store.hash_keys(0).unwrap().revision, revision);
    let progress = store.compaction().unwrap();
    assert_eq!((progress.phase, progress.target_revision), (CompactionPhase::File, revision - 1));
    assert_eq!(store.durable_position(), at(1));
    assert!(held.finished.try_recv().is_err(), "its deletions are not durable");

    held.disk.release();
    held.finished().unwrap();
    assert_eq!(flush(&held.store).unwrap(), at(2));
    assert_eq!(held.stored(), 2);
}

/// It rests for an hour behind its first step.
#[test]
fn what_is_applied_is_committed_between_two_steps() {
    let mut held = Held::start(StoreOptions { compaction_sleep: Duration::from_secs(3_600), ..options() });
    held.go_on_until_it_syncs();
    held.disk.release();
    for index in 2..5 {
        put(&held.store, "b", &index.to_string());
        held.store.end_entry(at(index));
        assert_eq!(flush(&held.store).unwrap(), at(index));
    }
    let kept = held.stored();
    assert!(kept > 4, "{kept} revisions are left");
    assert_eq!(held.store.compaction().unwrap().phase, CompactionPhase::File);
    held.store.close().unwrap();
    assert!(matches!(held.finished(), Err(MvccError::Closed)));
    assert_eq!(open(&held.dir.path().join("db")).1.position, at(4));
}

#[test]
fn a_step_that_fails_stops_the_store_and_answers_who_waits() {
    let mut held = Held::start(options());
    let (sender, fatal) = mpsc::channel();
    held.store.on_fatal(Box::new(move |error| sender.send(error).unwrap()));
    held.disk.fail(Fault::every(&[Call::SyncData], Failure::Errno(EIO)));
    held.list.take();
    assert!(matches!(held.finished(), Err(MvccError::Bolt(_))));
    assert!(matches!(fatal.recv_timeout(RESULT_WAIT_MAX).unwrap(), MvccError::Bolt(_)));
    assert!(held.disk.was_called_by(Call::SyncData, "compaction"));
    assert!(matches!(flush(&held.store), Err(MvccError::Bolt(_))));
    assert!(matches!(held.store.close(), Err(MvccError::Bolt(_))));
}

/// A member that ends in the middle of a step ends behind it, and the next one takes the compaction up.
#[test]
fn a_store_that_is_closed_in_a_step_goes_on_with_the_next_start() {
    let mut held = Held::start(options());
    held.go_on_until_it_syncs();
    let store = held.store.clone();
    let closing = std::thread::spawn(move || store.close());
    held.disk.release();
    closing.join().unwrap().unwrap();
    // Perhaps it was faster.
    assert!(matches!(held.finished(), Ok(_) | Err(MvccError::Closed)));
    let (store, _) = open(&held.dir.path().join("db"));
    let given_up_at = std::time::Instant::now() + RESULT_WAIT_MAX;
    while store.bucket_pairs(buckets::KEY).unwrap().len() > 1 {
        assert!(std::time::Instant::now() < given_up_at);
        std::thread::yield_now();
    }
    assert_eq!(text(&store, 0).unwrap(), "a=last");
}

/// They come while one waits for a list: one by one, and several in one commit. Those that come before that one was looked
/// at for the first time are done by it.
#[test]
fn compactions_that_wait_are_one_and_all_are_answered() {
    const BEHIND: u64 = 20;
    let mut held = Held::start(options());
    let mut results = Vec::new();
    for index in 2..2 + BEHIND {
        put(&held.store, "b", &index.to_string());
        let (done, result) = callback();
        held.store.compact(held.store.revision(), Some(done)).unwrap();
        held.store.end_entry(at(index));
        results.push(result);
        if index % 3 == 0 {
            flush(&held.store).unwrap();
        }
    }
    let last = at(1 + BEHIND);
    assert_eq!(flush(&held.store).unwrap(), last);
    let progress = held.store.compaction().unwrap();
    assert_eq!(progress.phase, CompactionPhase::Reads);
    assert!(progress.waiting <= BEHIND as usize, "{progress:?}");
    held.list.take();
    assert_eq!(held.finished().unwrap(), last);
    for result in results {
        assert_eq!(result.recv_timeout(RESULT_WAIT_MAX).unwrap().unwrap(), last);
        assert!(result.recv().is_err(), "answered twice");
    }
    let walks = held.store.shared().metrics.compaction_total_duration.get_sample_count();
    assert!((1..=2).contains(&walks), "{walks} walks through the file");
    assert_eq!(text(&held.store, 0).unwrap(), format!("a=last b={}", 1 + BEHIND));
    assert_eq!(held.stored(), 2);
}

/// While each commit is at work more is applied than may wait: the next one is due when it ends, as long as this goes on.
#[test]
fn commits_that_follow_each_other_leave_turns_to_a_compaction() {
    let mut held = Held::start(StoreOptions { commit_ops_max: 1, ..options() });
    let mut index = 2;
    let mut apply = |store: &Store| {
        put(store, "b", &index.to_string());
        store.end_entry(at(index));
        index += 1;
    };
    let disk = held.disk.clone();
    held.list.take();
    let given_up_at = std::time::Instant::now() + RESULT_WAIT_MAX;
    loop {
        // Lets the call go on at which the file's writer is stopped, and stops it at its next one of the other kind.
        for call in [Call::Write, Call::SyncData] {
            let calls = disk.calls(call);
            disk.hold(call);
            apply(&held.store);
            disk.wait_for_calls(call, calls + 1);
        }
        if let Ok(finished) = held.finished.try_recv() {
            finished.unwrap();
            break;
        }
        assert!(std::time::Instant::now() < given_up_at, "the compaction had no turn");
    }
    disk.release();
}
