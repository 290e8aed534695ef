//! The replicated state machine: one committed command after another, through auth, quota and mvcc.
//!
//! Total and deterministic: whatever comes, a command has an outcome, and a refused one leaves nothing behind; what is
//! decided depends on the entries before it and on the state they made. All of an entry's effects, and its position,
//! reach the backend file in one commit. The only way out is a state that cannot be read or written any more
//! ([`ApplyFatal`]): the member must stop then, because going on would part it from its peers.
//! Waits for no disk. Never knows who proposed a command, and who waits for its outcome.

mod alarms;
mod auth;
mod cluster;
mod compaction;
mod compare;
#[cfg(test)]
pub(crate) mod fixture;
mod mvcc;
mod observe;
mod permissions;
mod quota;
#[cfg(test)]
mod tests;
mod txn;

use std::{sync::Arc, time::Duration};

use thiserror::Error;

pub use self::{
    alarms::Alarms,
    compaction::CompactionFinished,
    permissions::{check_command, check_lease_read, check_lease_write, check_range, check_txn},
    quota::growth_bytes,
    txn::evaluate_read_only,
    txn::range_query,
};
use self::{auth::AuthLayer, mvcc::MvccLayer, observe::Observer, quota::QuotaLayer};
use crate::{
    auth::AuthStore,
    config::Config,
    error::ApiError,
    lease::{LeaseError, Lessor},
    members::{ChangeError, Member, Members},
    metrics::Metrics,
    mvcc::{LogPosition, MvccError, Store},
    proto::{
        etcdserverpb as pb,
        revgatepb::{InternalRaftRequest, internal_raft_request::Request},
    },
    watch::Hub,
};

/// What a command came to. Headers carry the revision only; `service` fills in the rest.
#[derive(Debug)]
pub enum Applied {
    /// A put.
    Put(pb::PutResponse),
    /// A delete.
    DeleteRange(pb::DeleteRangeResponse),
    /// A transaction.
    Txn(pb::TxnResponse),
    /// A compaction. Readers see it at once; its physical part goes on.
    Compaction {
        /// The answer.
        response: pb::CompactionResponse,
        /// Tells when the physical part is done, if the request asked for it.
        finished: Option<CompactionFinished>,
    },
    /// A new lease.
    LeaseGrant(pb::LeaseGrantResponse),
    /// A lease that is gone, with its keys.
    LeaseRevoke(pb::LeaseRevokeResponse),
    /// Alarms asked for, raised or disarmed.
    Alarm(pb::AlarmResponse),
    /// A change of the membership; all members after it, by id.
    Members(Vec<Member>),
    /// A downgrade that was begun or called off.
    Downgrade,
    /// The secret of page tokens is set, to this one or to one that was there.
    PageKey,
    /// A user that has proved who it is, with its token.
    Authenticated(pb::AuthenticateResponse),
    /// A change of users or roles.
    AuthChanged(Option<pb::ResponseHeader>),
}

/// Everything the state machine keeps.
#[derive(Clone, Debug)]
pub struct State {
    /// The keys and their history.
    pub store: Store,
    /// The leases.
    pub lessor: Arc<Lessor>,
    /// The members.
    pub members: Arc<Members>,
    /// The alarms.
    pub alarms: Arc<Alarms>,
    /// Users and roles.
    pub auth: Arc<AuthStore>,
    /// Who is told of changes.
    pub hub: Hub,
}

/// The state cannot be read or written any more: the member must stop.
#[derive(Clone, Debug, Error)]
#[error("applying entry {index} failed: {source}")]
pub struct ApplyFatal {
    /// The entry; nothing of it is in the backend file.
    pub index: u64,
    /// What happened.
    #[source]
    pub source: MvccError,
}

/// Why a layer has no outcome.
#[derive(Debug)]
enum Failure {
    /// The command is refused: an outcome like any other.
    Refused(ApiError),
    /// The state machine cannot go on.
    Fatal(MvccError),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<MvccError> for Failure {
    fn from(error: MvccError) -> Failure {
        match error {
            MvccError::Compacted { .. } => Failure::Refused(ApiError::Compacted),
            MvccError::Future { .. } => Failure::Refused(ApiError::FutureRevision),
            fatal => Failure::Fatal(fatal),
        }
    }
}

impl From<LeaseError> for Failure {
    fn from(error: LeaseError) -> Failure {
        Failure::Refused(match error {
            LeaseError::NotFound => ApiError::LeaseNotFound,
            LeaseError::Exists => ApiError::LeaseExists,
            LeaseError::TtlTooLarge => ApiError::LeaseTtlTooLarge,
            LeaseError::NotPrimary => ApiError::NotLeader,
        })
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> ApiError {
        match error {
            ChangeError::NotFound => ApiError::MemberNotFound,
            ChangeError::IdExists => ApiError::MemberExists,
            ChangeError::PeerUrlExists => ApiError::PeerUrlExists,
            ChangeError::TooManyLearners => ApiError::TooManyLearners,
            ChangeError::NotEnoughStarted => ApiError::NotEnoughStartedMembers,
        }
    }
}

/// Applies committed entries, one after another. One thread calls it.
#[derive(Debug)]
pub struct Applier {
    store: Store,
    alarms: Arc<Alarms>,
    layers: AuthLayer,
    observer: Observer,
    position: LogPosition,
}

impl Applier {
    /// An applier that goes on after what the backend file holds.
    pub fn new(state: State, config: &Config, metrics: &Metrics) -> Applier {
        let position = state.store.durable_position();
        let mvcc = MvccLayer::new(state.clone(), metrics);
        let quota = QuotaLayer::new(mvcc, &state);
        Applier {
            layers: AuthLayer::new(quota, &state, metrics),
            observer: Observer::new(config.warning_apply_duration, metrics),
            store: state.store,
            alarms: state.alarms,
            position,
        }
    }

    /// The last entry whose effects the state holds.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// How long handing changes to the watches has taken since the last call.
    pub fn take_notify_time(&mut self) -> Duration {
        self.layers.take_notify_time()
    }

    /// Applies one entry's commands in order, all of them into one entry of the file; one outcome a command. Entries at
    /// or below [`Applier::position`] are skipped: no outcomes. A refused command is an outcome, not an error.
    pub fn apply(
        &mut self,
        position: LogPosition,
        commands: &[InternalRaftRequest],
    ) -> Result<Vec<Result<Applied, ApiError>>, ApplyFatal> {
        if position.index <= self.position.index {
            return Ok(Vec::new());
        }
        self.layers.begin_entry(position);
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            let timer = self.observer.begin(command);
            let outcome = match self.apply_command(command) {
                Ok(applied) => Ok(applied),
                Err(Failure::Refused(error)) => Err(error),
                Err(Failure::Fatal(source)) => return Err(ApplyFatal { index: position.index, source }),
            };
            self.observer.end(timer, outcome.is_ok());
            outcomes.push(outcome);
        }
        self.store.end_entry(position);
        self.position = position;
        Ok(outcomes)
    }

    fn apply_command(&mut self, command: &InternalRaftRequest) -> Result<Applied, Failure> {
        let request = command.request.as_ref().ok_or_else(|| unsupported("an empty command"))?;
        if self.alarms.is_raised(pb::AlarmType::Corrupt) && !matches!(request, Request::Alarm(_)) {
            return Err(ApiError::Corrupt.into());
        }
        self.layers.apply(command, request)
    }
}

/// A command this version does not execute.
fn unsupported(what: &str) -> Failure {
    Failure::Refused(ApiError::Unimplemented(format!("{what} cannot be applied")))
}

/// A header as apply makes them.
fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}
