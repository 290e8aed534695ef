//! The tests' disk: the real one, watched. It can record every call that changes something, fail any call, hold one at
//! a gate, end the engine like a kill, and tell from a recording what a power cut could have left.
//!
//! Calls go to real files, because the tree maps them. They go there one at a time, so that the recording's order is
//! the order in which they happened. `fault`: what fails. `recording`: what was done. `model`: what of it is certain.
//! `states`: what a power cut may leave. `promise`: what an engine said it holds. `inject`: a fault at every call. It knows nothing of formats; what a state must hold is for each room to say.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fault;
mod inject;
mod model;
mod promise;
mod recording;
mod states;
mod tests;

use std::{
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tempfile::TempDir;

use self::{fault::Faults, recording::Mark};
pub(crate) use self::{
    fault::{Call, EIO, ENOSPC, Failure, Fault},
    inject::inject_everywhere,
    promise::Promise,
    recording::{FileId, Op, Recording},
    states::{CrashState, crash_states, explore},
};
use super::{Disk, File, OpenMode, RealDisk};

/// A directory in memory where the machine has one, else among its temporary ones.
pub(crate) fn scratch() -> TempDir {
    match Path::new("/dev/shm") {
        shared if shared.is_dir() => tempfile::tempdir_in(shared).unwrap(),
        _ => tempfile::tempdir().unwrap(),
    }
}

/// The disk. Cheap to clone; all clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimDisk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    recording: Option<Recording>,
    faults: Faults,
    /// What waits at the gate until it is opened.
    held: Option<Call>,
    sync_delay: Duration,
    struck_at: Option<usize>,
    /// Each kind of call, with the name of a thread that made one.
    callers: Vec<(Call, String)>,
}

impl State {
    fn note_caller(&mut self, call: Call) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        if !self.callers.iter().any(|known| known.0 == call && known.1 == name) {
            self.callers.push((call, name.to_owned()));
        }
    }
}

impl SimDisk {
    /// A disk that records what happens below a directory, whatever is there already being durable.
    pub(crate) fn recording(root: &Path) -> SimDisk {
        let disk = SimDisk::default();
        disk.shared.state.lock().recording = Some(Recording::begin(root));
        disk
    }

    /// Each sync takes so much longer.
    pub(crate) fn with_slow_syncs(delay: Duration) -> SimDisk {
        let disk = SimDisk::default();
        disk.shared.state.lock().sync_delay = delay;
        disk
    }

    /// What was recorded so far.
    pub(crate) fn recorded(&self) -> Recording {
        self.shared.state.lock().recording.clone().expect("a disk that records")
    }

    /// Notes that a step is asked of the engine.
    pub(crate) fn begin(&self, step: u64) {
        self.mark(Mark::Begun(step));
    }

    /// Notes that the engine promised a step.
    pub(crate) fn done(&self, step: u64) {
        self.mark(Mark::Done(step));
    }

    /// Notes that another process begins.
    fn started(&self) {
        self.mark(Mark::Started);
    }

    /// Notes that the engine is up again and holds so many steps.
    pub(crate) fn restarted(&self, steps: usize) {
        self.mark(Mark::Restarted(steps));
    }

    fn mark(&self, mark: Mark) {
        if let Some(recording) = &mut self.shared.state.lock().recording {
            recording.push(Op::Mark(mark));
        }
    }

    /// What the marks so far promise.
    pub(crate) fn promise(&self) -> Promise {
        let state = self.shared.state.lock();
        Promise::of(&state.recording.as_ref().expect("a disk that records").ops)
    }

    /// Adds a fault.
    pub(crate) fn fail(&self, fault: Fault) {
        self.shared.state.lock().faults.add(fault);
    }

    /// Takes all faults away; a killed engine's disk works again, for the engine that is started next.
    pub(crate) fn heal(&self) {
        self.shared.state.lock().faults.clear();
    }

    /// Where in the recording a fault struck first.
    fn struck_at(&self) -> Option<usize> {
        self.shared.state.lock().struck_at
    }

    /// How often a fault struck.
    pub(crate) fn faults_struck(&self) -> usize {
        self.shared.state.lock().faults.struck
    }

    /// From here on, or no longer, nothing can grow.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.shared.state.lock().faults.is_full = is_full;
    }

    /// How many calls of a kind there were, those that failed or wait at the gate included.
    pub(crate) fn calls(&self, call: Call) -> usize {
        self.shared.state.lock().faults.counted(call)
    }

    /// Whether a thread of that name made such a call, those that failed or wait at the gate included.
    pub(crate) fn was_called_by(&self, call: Call, thread: &str) -> bool {
        self.shared.state.lock().callers.iter().any(|known| known.0 == call && known.1 == thread)
    }

    /// Waits until there were so many.
    pub(crate) fn wait_for_calls(&self, call: Call, count: usize) {
        let mut state = self.shared.state.lock();
        while state.faults.counted(call) < count {
            self.shared.changed.wait(&mut state);
        }
    }

    /// Calls of this kind, and of no other, wait until the gate is opened.
    pub(crate) fn hold(&self, call: Call) {
        self.shared.state.lock().held = Some(call);
        self.shared.changed.notify_all();
    }

    /// Opens the gate.
    pub(crate) fn release(&self) {
        self.shared.state.lock().held = None;
        self.shared.changed.notify_all();
    }

    /// Counts a call, waits at the gate, and says how the call is to fail, if it is.
    fn enter(&self, call: Call) -> (MutexGuard<'_, State>, Option<Failure>) {
        let mut state = self.shared.state.lock();
        if call.is_sync() && !state.sync_delay.is_zero() {
            let delay = state.sync_delay;
            MutexGuard::unlocked(&mut state, || std::thread::sleep(delay));
        }
        state.faults.count(call);
        state.note_caller(call);
        self.shared.changed.notify_all();
        while state.held == Some(call) {
            self.shared.changed.wait(&mut state);
        }
        let failure = state.faults.strike(call);
        if failure.is_some() && state.struck_at.is_none() {
            state.struck_at = state.recording.as_ref().map(|recording| recording.ops.len());
        }
        (state, failure)
    }

    /// A call that either happens or fails.
    fn call<T>(&self, call: Call, act: impl FnOnce(&mut Option<Recording>) -> io::Result<T>) -> io::Result<T> {
        let (mut state, failure) = self.enter(call);
        match failure {
            Some(failure) => Err(failure.error()),
            None => act(&mut state.recording),
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let id = |recording: &mut Option<Recording>| -> io::Result<(Box<dyn File>, Option<FileId>)> {
            let existed = path.exists();
            let file = RealDisk.open(path, mode)?;
            let id = recording.as_mut().and_then(|recording| recording.opened(path, existed, mode));
            Ok((file, id))
        };
        let call = if mode == OpenMode::Read { Call::OpenToRead } else { Call::Open };
        let (file, id) = self.call(call, id)?;
        Ok(Box::new(SimFile { file, id, disk: self.clone() }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.call(Call::CreateDir, |recording| {
            let missing: Vec<&Path> = path.ancestors().take_while(|dir| !dir.exists()).collect();
            RealDisk.create_dir_all(path)?;
            if let Some(recording) = recording {
                missing.into_iter().rev().for_each(|dir| recording.created_dir(dir));
            }
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.call(Call::Look, |_| RealDisk.list(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.call(Call::Look, |_| RealDisk.exists(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Rename, |recording| {
            RealDisk.rename(from, to)?;
            recording.iter_mut().for_each(|recording| recording.renamed(from, to));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove, |recording| {
            RealDisk.remove(path)?;
            recording.iter_mut().for_each(|recording| recording.removed(path));
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(Call::SyncDir, |recording| {
            RealDisk.sync_dir(dir)?;
            recording.iter_mut().for_each(|recording| recording.synced_dir(dir));
            Ok(())
        })
    }
}

#[derive(Debug)]
struct SimFile {
    file: Box<dyn File>,
    /// Its number in the recording, if it is in it.
    id: Option<FileId>,
    disk: SimDisk,
}

impl SimFile {
    /// A call that changes the file, and what the recording says of it.
    fn change(
        &self,
        call: Call,
        act: impl FnOnce() -> io::Result<()>,
        op: impl FnOnce(FileId) -> Op,
    ) -> io::Result<()> {
        self.disk.call(call, |recording| {
            act()?;
            if let (Some(recording), Some(file)) = (recording, self.id) {
                recording.push(op(file));
            }
            Ok(())
        })
    }

    fn sync(&self, call: Call, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let (mut state, failure) = self.disk.enter(call);
        let outcome = match &failure {
            Some(failure) => Err(failure.error()),
            None => act(),
        };
        // A killed engine's call never came to the kernel: that is no failed sync.
        let came_through = !matches!(failure, Some(Failure::Kill));
        if let (Some(recording), Some(file), true) = (&mut state.recording, self.id, came_through) {
            recording.push(if outcome.is_ok() { Op::Sync { file } } else { Op::FailedSync { file } });
        }
        outcome
    }

    fn would_grow(&self, state: &State, end: u64) -> io::Result<bool> {
        Ok(state.faults.is_full && end > self.file.len()?)
    }
}

impl File for SimFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.call(Call::Read, |_| self.file.read_exact_at(buf, offset))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, mut failure) = self.disk.enter(Call::Write);
        if failure.is_none() && self.would_grow(&state, offset + buf.len() as u64)? {
            failure = Some(Failure::Short(ENOSPC));
        }
        let written = match failure {
            None => buf,
            // A write may be cut short at any byte.
            Some(Failure::Short(_)) => &buf[..buf.len() / 2],
            Some(failure) => return Err(failure.error()),
        };
        self.file.write_all_at(written, offset)?;
        if let (Some(recording), Some(file), false) = (&mut state.recording, self.id, written.is_empty()) {
            recording.push(Op::Write { file, offset, bytes: written.into() });
        }
        failure.map_or(Ok(()), |failure| Err(failure.error()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Call::SyncData, || self.file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(Call::SyncAll, || self.file.sync_all())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let (mut state, mut failure) = self.disk.enter(Call::Allocate);
        if failure.is_none() && self.would_grow(&state, offset + len)? {
            failure = Some(Failure::Errno(ENOSPC));
        }
        if let Some(failure) = failure {
            return Err(failure.error());
        }
        self.file.allocate(offset, len)?;
        if let (Some(recording), Some(file)) = (&mut state.recording, self.id) {
            recording.push(Op::Allocate { file, end: offset + len });
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Call::SetLen, || self.file.set_len(len), |file| Op::SetLen { file, len })
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.call(Call::Look, |_| self.file.len())
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.disk.call(Call::Look, |_| self.file.try_lock_exclusive())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}
