//! What the services do without being asked, as tasks that end together.

use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::{config::Config, metrics::Metrics};

use super::{Services, auto_compaction, lease_expiry, pipeline, quota};

/// The running tasks. Dropping this ends them too, without waiting.
#[derive(Debug)]
pub struct Tasks {
    running: JoinSet<()>,
    waits: TaskTracker,
}

impl Tasks {
    /// Starts them all. Must be called inside a runtime.
    pub fn start(config: &Config, services: &Services, metrics: &Metrics) -> Tasks {
        let core = services.kv.core();
        let primary = services.lease.primary();
        let mut running = JoinSet::new();
        running.spawn(lease_expiry::follow_leadership(core.clone(), primary, config.election_timeout));
        running.spawn(lease_expiry::revoke_expired(core.clone(), lease_expiry::Counters::new(metrics)));
        running.spawn(quota::keep(core.clone()));
        running.spawn(pipeline::keep(core.clone(), metrics.clone()));
        running.spawn(auto_compaction::run(core, config.auto_compaction));
        Tasks { running, waits: services.waits.clone() }
    }

    /// Ends them. What they have proposed and not seen committed may still be committed. Waits until clients that waited
    /// for a lock or an election, and are gone by now, have given their keys back: a proposal or two, which take no longer
    /// than a request may.
    pub async fn stop(mut self) {
        self.waits.close();
        self.waits.wait().await;
        self.running.shutdown().await;
    }
}
