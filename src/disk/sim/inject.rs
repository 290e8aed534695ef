//! A fault at every call of a workload, one run each.

use std::path::Path;

use super::{
    SimDisk,
    fault::{Call, EIO, ENOSPC, Failure, Fault},
    model::mix,
    scratch,
    states::{CrashState, crash_states, explore},
};

/// States that are looked at after each fault.
const STATES_EACH: usize = 4;
/// The same, and how many times more calls fail, where `REVGATE_CRASH_STATES` asks for many states.
const MANY_STATES_EACH: usize = 12;
const STRIDE_DIVISOR: usize = 12;

/// What an injection came to.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    pub(crate) faults: usize,
    pub(crate) states: usize,
}

/// Runs a workload again and again, each time with another call failing in another way. Then the disk is healed, the
/// workload goes on where it was, and power cuts are tried from the fault on.
///
/// `work` opens the engine, makes sure that it holds what the disk's marks promise, goes on a while, and ends quietly
/// where the engine refuses to. It is told whether the engine may refuse. `check` judges a state. One in `stride`
/// calls fails, all or nearly all with `REVGATE_CRASH_STATES`.
pub(crate) fn inject_everywhere(
    name: &str,
    stride: usize,
    work: &mut dyn FnMut(&SimDisk, &Path, bool),
    check: &mut dyn FnMut(&CrashState<'_>) -> Result<(), String>,
) -> Injection {
    let calls = {
        let dir = scratch();
        let disk = SimDisk::recording(dir.path());
        work(&disk, dir.path(), false);
        work(&disk, dir.path(), false);
        Call::ALL.iter().map(|call| disk.calls(*call)).sum::<usize>()
    };
    let (stride, states_each) = match crash_states(0, 1) {
        0 => (stride, STATES_EACH),
        _ => (stride.div_ceil(STRIDE_DIVISOR), MANY_STATES_EACH),
    };
    let mut injection = Injection::default();
    for (kind, failure) in
        [Failure::Errno(EIO), Failure::Errno(ENOSPC), Failure::Short(ENOSPC), Failure::Kill].into_iter().enumerate()
    {
        // Another call for each kind of failure, so that a stride leaves out none of either.
        for skip in (mix(kind as u64, 0) as usize % stride..calls).step_by(stride) {
            let dir = scratch();
            let disk = SimDisk::recording(dir.path());
            let struck = strike(&disk, dir.path(), Fault::after(skip, &Call::ALL, failure), work);
            let recording = disk.recorded();
            let label = format!("{name}: {failure:?} after {skip} calls");
            assert!(!recording.goes_on_after_a_failed_sync(), "{label}: goes on after a failed sync");
            let Some(from) = struck else { continue };
            injection.faults += 1;
            let explored = explore(&recording, from, states_each, check);
            explored.assert_sound(&label);
            injection.states += explored.states;
        }
    }
    injection
}

/// Works until the fault strikes and the engine ends, then heals the disk and goes on. Returns where in the recording
/// the fault was, if it struck.
fn strike(disk: &SimDisk, dir: &Path, fault: Fault, work: &mut dyn FnMut(&SimDisk, &Path, bool)) -> Option<usize> {
    disk.fail(fault);
    work(disk, dir, true);
    if disk.faults_struck() == 0 {
        // The fault is in what comes after a restart.
        disk.started();
        work(disk, dir, true);
    }
    let from = disk.struck_at();
    disk.heal();
    disk.started();
    work(disk, dir, false);
    from
}
