//! What fails, and how.

use std::io;

/// The system's number of an error of the device.
pub(crate) const EIO: i32 = 5;
/// The system's number of a full disk.
pub(crate) const ENOSPC: i32 = 28;

/// The kinds of calls, as far as tests tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Opening or creating for writing.
    Open,
    OpenToRead,
    Read,
    Write,
    Allocate,
    SetLen,
    SyncData,
    SyncAll,
    Rename,
    Remove,
    CreateDir,
    SyncDir,
    /// Listing, asking whether something is there, for a length, for a lock.
    Look,
}

impl Call {
    /// All kinds.
    pub(crate) const ALL: [Call; 13] = [
        Call::Open,
        Call::OpenToRead,
        Call::Read,
        Call::Write,
        Call::Allocate,
        Call::SetLen,
        Call::SyncData,
        Call::SyncAll,
        Call::Rename,
        Call::Remove,
        Call::CreateDir,
        Call::SyncDir,
        Call::Look,
    ];

    pub(super) fn is_sync(self) -> bool {
        matches!(self, Call::SyncData | Call::SyncAll)
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It has no effect and gives the system's error of this number. After a sync that failed so, what it was to make
    /// durable may be on the disk or not, and no later sync tells.
    Errno(i32),
    /// A write does half of its work first.
    Short(i32),
    /// The process ends: neither this call nor any later one has an effect.
    Kill,
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        match self {
            Failure::Errno(number) | Failure::Short(number) => io::Error::from_raw_os_error(number),
            Failure::Kill => io::Error::other("the process was killed"),
        }
    }
}

/// A fault: some calls succeed, then some fail.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    calls: Vec<Call>,
    /// Matching calls that still succeed.
    skip: usize,
    /// Matching calls that then fail.
    times: usize,
    failure: Failure,
}

impl Fault {
    /// Every call of these kinds fails.
    pub(crate) fn every(calls: &[Call], failure: Failure) -> Fault {
        Fault { calls: calls.to_vec(), skip: 0, times: usize::MAX, failure }
    }

    /// The call after `skip` calls of these kinds fails, and only that.
    pub(crate) fn after(skip: usize, calls: &[Call], failure: Failure) -> Fault {
        Fault { calls: calls.to_vec(), skip, times: 1, failure }
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    faults: Vec<Fault>,
    killed: bool,
    counts: [usize; Call::ALL.len()],
    pub(super) is_full: bool,
    pub(super) struck: usize,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
        self.killed = false;
        self.is_full = false;
    }

    pub(super) fn count(&mut self, call: Call) {
        self.counts[call as usize] += 1;
    }

    pub(super) fn counted(&self, call: Call) -> usize {
        self.counts[call as usize]
    }

    /// How this call fails, if it does.
    pub(super) fn strike(&mut self, call: Call) -> Option<Failure> {
        if self.killed {
            return Some(Failure::Kill);
        }
        for fault in self.faults.iter_mut().filter(|fault| fault.calls.contains(&call)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                self.struck += 1;
                self.killed = fault.failure == Failure::Kill;
                return Some(fault.failure);
            }
        }
        None
    }
}
