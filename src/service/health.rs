//! What tells whether this member can serve: the reasons behind `/health`, the checks behind `/livez` and `/readyz`.
//!
//! Every check ends within a deadline, whatever the disk or the cluster does: a probe that hangs tells nothing.

use std::{sync::Arc, time::Duration};

use prometheus::IntCounter;
use tokio::{sync::Semaphore, task, time::timeout};

use crate::{error::ApiError, metrics::Metrics, proto::etcdserverpb::AlarmType};

use super::{Core, read_error};

/// The key a probe reads; it need not be there.
const PROBE_KEY: &[u8] = b"health";
/// Reads of probes at once: if these hang, further probes fail at their deadline instead of hanging beside them.
const PROBE_READS_MAX: usize = 4;

const DATA_CORRUPTION: &str = "data_corruption";
const SERIALIZABLE_READ: &str = "serializable_read";
const LINEARIZABLE_READ: &str = "linearizable_read";
const NON_LEARNER: &str = "non_learner";
/// Ours alone: it is told of only when it fails, or asked for, so that all is well in etcd's words.
const DISK_SPACE: &str = "disk_space";

/// One check's name and what is wrong, if anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// As probes name it.
    pub name: &'static str,
    /// What is wrong.
    pub failure: Option<String>,
}

/// Answers probes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HealthService {
    core: Core,
    deadline: Duration,
    reads: Arc<Semaphore>,
    successes: IntCounter,
    failures: IntCounter,
}

impl HealthService {
    pub(super) fn new(core: Core, deadline: Duration, metrics: &Metrics) -> HealthService {
        HealthService {
            core,
            deadline,
            reads: Arc::new(Semaphore::new(PROBE_READS_MAX)),
            successes: metrics.health_success.clone(),
            failures: metrics.health_failures.clone(),
        }
    }

    /// `/health`: the reason it is not healthy ("ALARM NOSPACE", "DISK FULL", "RAFT NO LEADER", "RANGE ERROR:…"), if any.
    /// `excluded` names alarms to ignore (NOSPACE the full disk with it); `serializable` asks about this member alone.
    pub async fn health(&self, excluded: &[String], serializable: bool) -> Result<(), String> {
        let outcome = self.unhealthy_reason(excluded, serializable).await;
        match outcome {
            None => {
                self.successes.inc();
                Ok(())
            }
            Some(reason) => {
                self.failures.inc();
                tracing::warn!(reason, "a health check failed");
                Err(reason)
            }
        }
    }

    async fn unhealthy_reason(&self, excluded: &[String], serializable: bool) -> Option<String> {
        let alarms = self.core.state.alarms.list();
        let mut raised = alarms.iter().map(|alarm| alarm.alarm().as_str_name());
        if let Some(alarm) = raised.find(|name| !excluded.iter().any(|excluded| excluded == name)) {
            return Some(format!("ALARM {alarm}"));
        }
        // Reads are answered all the same: who asks about this member alone, or says that want of space does not matter,
        // must not have it restarted for that.
        let is_full = self.core.consensus.shortage().is_some();
        if is_full && !serializable && !excluded.iter().any(|excluded| excluded == AlarmType::Nospace.as_str_name()) {
            return Some("DISK FULL".into());
        }
        if serializable {
            return self.read_here().await.err().map(|error| format!("RANGE ERROR:{error}"));
        }
        if self.core.consensus.status().leader == 0 {
            return Some("RAFT NO LEADER".into());
        }
        self.read_linearizable().await.err().map(|error| format!("RANGE ERROR:{error}"))
    }

    /// `/livez`: serializable_read.
    pub async fn live_checks(&self, excluded: &[String]) -> Vec<Check> {
        self.checks(&[SERIALIZABLE_READ], excluded).await
    }

    /// `/readyz`: data_corruption, serializable_read, linearizable_read, non_learner; and disk_space, if it fails or all
    /// are to be shown.
    pub async fn ready_checks(&self, excluded: &[String], shows_all: bool) -> Vec<Check> {
        let names = [DATA_CORRUPTION, SERIALIZABLE_READ, LINEARIZABLE_READ, NON_LEARNER];
        let mut checks = self.checks(&names, excluded).await;
        let space = self.checks(&[DISK_SPACE], excluded).await;
        checks.extend(space.into_iter().filter(|check| check.failure.is_some() || shows_all));
        checks
    }

    async fn checks(&self, names: &[&'static str], excluded: &[String]) -> Vec<Check> {
        let mut checks = Vec::with_capacity(names.len());
        for &name in names {
            if !excluded.iter().any(|excluded| excluded == name) {
                checks.push(Check { name, failure: self.check(name).await });
            }
        }
        checks
    }

    async fn check(&self, name: &str) -> Option<String> {
        match name {
            DATA_CORRUPTION => {
                let corrupt = self.core.state.alarms.is_raised(AlarmType::Corrupt);
                corrupt.then(|| "alarm activated: CORRUPT".into())
            }
            DISK_SPACE => self.core.consensus.shortage(),
            SERIALIZABLE_READ => self.read_here().await.err().map(|error| error.to_string()),
            LINEARIZABLE_READ => self.read_linearizable().await.err().map(|error| error.to_string()),
            _ => {
                let local = self.core.state.members.local_id();
                let members = self.core.state.members.list();
                let learner = members.iter().any(|member| member.id == local && member.is_learner);
                learner.then(|| "this member is a learner".into())
            }
        }
    }

    async fn read_linearizable(&self) -> Result<(), ApiError> {
        let barrier = self.core.consensus.read_barrier();
        timeout(self.deadline, barrier).await.map_err(|_| ApiError::DeadlineExceeded)??;
        self.read_here().await
    }

    /// Reads a key on a thread that may hang on the disk without taking this task with it.
    async fn read_here(&self) -> Result<(), ApiError> {
        let store = self.core.state.store.clone();
        let reads = self.reads.clone();
        let read = async move {
            let permit = reads.acquire_owned().await.map_err(|_| ApiError::Stopped)?;
            let read = task::spawn_blocking(move || {
                let _permit = permit;
                store.get(PROBE_KEY, 0).map_err(read_error).map(drop)
            });
            read.await.map_err(|_| ApiError::Stopped)?
        };
        timeout(self.deadline, read).await.map_err(|_| ApiError::DeadlineExceeded)?
    }
}
