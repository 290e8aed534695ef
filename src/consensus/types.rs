//! The types the Raft library works on, and how they are written to the log.
//!
//! Positions: the library counts entries from 0, the log and etcd from 1. The shift by one happens here and nowhere
//! else; outside this room every index is the log's.

use std::{collections::BTreeSet, fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;
use openraft::{EmptyNode, RaftTypeConfig, impls, vote::RaftLeaderId};
use parking_lot::Mutex;
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::marks::Marks;
use crate::{
    apply::Applied,
    error::ApiError,
    metrics::StageTimes,
    mvcc::LogPosition,
    proto::{
        etcdserverpb::{RequestOp, TxnRequest, request_op},
        revgatepb::{CommandBatch, InternalRaftRequest, internal_raft_request::Request},
    },
    wal,
};

/// The choice of types. Written out because the library's macro cannot choose the responder.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd)]
pub(super) struct TypeConfig;

/// One leader a term, as in etcd.
pub(super) type LeaderId = impls::leader_id_std::LeaderId<u64, u64>;
pub(super) type CommittedLeaderId = <LeaderId as RaftLeaderId>::Committed;
pub(super) type Vote = openraft::Vote<LeaderId>;
pub(super) type LogId = openraft::LogId<CommittedLeaderId>;
pub(super) type Payload = openraft::EntryPayload<Batch, u64, EmptyNode>;
pub(super) type Entry = openraft::Entry<CommittedLeaderId, Payload>;
pub(super) type Membership = openraft::Membership<u64, EmptyNode>;
pub(super) type StoredMembership = openraft::StoredMembership<CommittedLeaderId, u64, EmptyNode>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId, u64, EmptyNode>;

impl RaftTypeConfig for TypeConfig {
    type D = Batch;
    // Outcomes go from the state machine straight to those who wait; the library only reports that it is done.
    type R = ();
    type NodeId = u64;
    type Node = EmptyNode;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = openraft::TokioRuntime;
    type Responder<T>
        = impls::OneshotResponder<Self, T>
    where
        T: Send + 'static;
    type Batch<T>
        = impls::InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = impls::BoxedErrorSource;
}

/// What one request comes to.
pub(super) type Outcome = Result<Applied, ApiError>;

/// An outcome, and how long the request was in each stage if it was applied. In a box: many futures hold one.
pub(super) type Answer = (Outcome, Option<Box<StageTimes>>);

/// Where one request's outcome is awaited.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) sender: oneshot::Sender<Answer>,
    /// When the request was handed in.
    pub(super) handed_in: Duration,
}

impl Waiter {
    /// Whether somebody was still waiting.
    pub(super) fn answer(self, answer: Answer) -> bool {
        self.sender.send(answer).is_ok()
    }
}

/// The commands of one log entry, decoded and encoded once, cheap to clone. On the member that proposed it, it also
/// carries those who wait for the outcomes, one a command; an entry that is dropped without being applied drops them.
#[derive(Clone)]
pub(super) struct Batch(Arc<BatchInner>);

struct BatchInner {
    commands: Vec<InternalRaftRequest>,
    encoded: Bytes,
    waiters: Mutex<Vec<Waiter>>,
    marks: Marks,
}

impl Batch {
    /// A batch to propose. `waiters` has one entry a command.
    pub(super) fn new(commands: Vec<InternalRaftRequest>, waiters: Vec<Waiter>) -> Batch {
        let message = CommandBatch { commands };
        let encoded = Bytes::from(message.encode_to_vec());
        let (waiters, marks) = (Mutex::new(waiters), Marks::default());
        Batch(Arc::new(BatchInner { commands: message.commands, encoded, waiters, marks }))
    }

    /// A batch as found in the log.
    pub(super) fn decode(encoded: Bytes) -> Result<Batch, prost::DecodeError> {
        let message = CommandBatch::decode(encoded.clone())?;
        let (waiters, marks) = (Mutex::default(), Marks::default());
        Ok(Batch(Arc::new(BatchInner { commands: message.commands, encoded, waiters, marks })))
    }

    pub(super) fn commands(&self) -> &[InternalRaftRequest] {
        &self.0.commands
    }

    /// When it passed each stage.
    pub(super) fn marks(&self) -> &Marks {
        &self.0.marks
    }

    /// Takes those who wait: whoever calls first answers them.
    pub(super) fn take_waiters(&self) -> Vec<Waiter> {
        std::mem::take(&mut self.0.waiters.lock())
    }

    /// Tells all who still wait the same; how many they were.
    pub(super) fn fail(&self, error: &ApiError) -> u64 {
        let waiters = self.take_waiters().into_iter();
        waiters.map(|waiter| u64::from(waiter.answer((Err(error.clone()), None)))).sum()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commands in {} bytes", self.0.commands.len(), self.0.encoded.len())
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.0.encoded == other.0.encoded
    }
}

/// Txns inside txns that are taken. The decoder gives up at about fifty, and what is in the log must be readable.
const TXN_NESTING_MAX: usize = 32;

/// Whether a command can be read back from the log.
pub(super) fn is_readable(command: &InternalRaftRequest) -> bool {
    fn fits(txn: &TxnRequest, levels: usize) -> bool {
        let nested = |op: &RequestOp| match &op.request {
            Some(request_op::Request::RequestTxn(nested)) => levels > 0 && fits(nested, levels - 1),
            _ => true,
        };
        txn.success.iter().chain(&txn.failure).all(nested)
    }
    match &command.request {
        Some(Request::Txn(txn)) => fits(txn, TXN_NESTING_MAX),
        _ => true,
    }
}

/// Where an entry stands in the log.
pub(super) fn position_of(log_id: &LogId) -> LogPosition {
    LogPosition { term: log_id.leader_id.term, index: log_id.index + 1 }
}

/// The library's name of a position; none for the position before the first entry.
pub(super) fn log_id_of(position: LogPosition) -> Option<LogId> {
    let index = position.index.checked_sub(1)?;
    Some(LogId { leader_id: LeaderId { term: position.term, voted_for: 0 }.to_committed(), index })
}

/// Kinds of entries in the log.
mod kind {
    pub(super) const BATCH: u32 = 0;
    pub(super) const MEMBERSHIP: u32 = 1;
    pub(super) const BLANK: u32 = 2;
}

/// An entry as the log takes it.
pub(super) fn encode_entry(entry: &Entry) -> wal::Entry {
    let LogPosition { term, index } = position_of(&entry.log_id);
    let (kind, data) = match &entry.payload {
        Payload::Normal(batch) => (kind::BATCH, batch.0.encoded.clone()),
        Payload::Membership(membership) => (kind::MEMBERSHIP, Bytes::from(encode_membership(membership))),
        Payload::Blank => (kind::BLANK, Bytes::new()),
    };
    wal::Entry { index, term, kind, data }
}

/// An entry as found in the log.
pub(super) fn decode_entry(entry: wal::Entry) -> io::Result<Entry> {
    let damaged =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("log entry {}: {what}", entry.index));
    let log_id = log_id_of(LogPosition { term: entry.term, index: entry.index })
        .ok_or_else(|| damaged("the first entry has index 1".into()))?;
    let payload = match entry.kind {
        kind::BATCH => Payload::Normal(Batch::decode(entry.data.clone()).map_err(|error| damaged(error.to_string()))?),
        kind::MEMBERSHIP => Payload::Membership(decode_membership(&entry.data).map_err(damaged)?),
        kind::BLANK => Payload::Blank,
        other => return Err(damaged(format!("unknown kind {other}"))),
    };
    Ok(Entry { log_id, payload })
}

/// Bytes an entry takes in memory, about: what is encoded, and as much again decoded.
pub(super) fn memory_bytes(entry: &Entry) -> usize {
    const ENTRY_BYTES: usize = 256;
    match &entry.payload {
        Payload::Normal(batch) => ENTRY_BYTES + 2 * batch.0.encoded.len(),
        Payload::Membership(_) | Payload::Blank => ENTRY_BYTES,
    }
}

/// A membership as JSON, in the form etcd keeps in `meta/confState` (raftpb.ConfState), so that either can read the
/// other's. The position is ours; etcd ignores it.
#[derive(Serialize, Deserialize)]
struct ConfState {
    #[serde(default)]
    voters: BTreeSet<u64>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    learners: BTreeSet<u64>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    voters_outgoing: BTreeSet<u64>,
    #[serde(default)]
    auto_leave: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revgate_position: Option<(u64, u64)>,
}

impl ConfState {
    fn new(membership: &Membership, position: Option<LogPosition>) -> ConfState {
        let mut configs = membership.get_joint_config().iter().rev();
        ConfState {
            voters: configs.next().cloned().unwrap_or_default(),
            voters_outgoing: configs.next().cloned().unwrap_or_default(),
            learners: membership.learner_ids().collect(),
            auto_leave: false,
            revgate_position: position.map(|position| (position.term, position.index)),
        }
    }

    fn membership(self) -> Membership {
        let configs = [self.voters_outgoing, self.voters].into_iter().filter(|voters| !voters.is_empty()).collect();
        Membership::new_with_defaults(configs, self.learners)
    }
}

fn encode_membership(membership: &Membership) -> Vec<u8> {
    to_json(&ConfState::new(membership, None))
}

fn decode_membership(encoded: &[u8]) -> Result<Membership, String> {
    let state: ConfState = serde_json::from_slice(encoded).map_err(|error| error.to_string())?;
    Ok(state.membership())
}

/// The membership in force, as the backend file keeps it.
pub(super) fn encode_stored_membership(membership: &StoredMembership) -> Bytes {
    let position = membership.log_id().as_ref().map(position_of);
    Bytes::from(to_json(&ConfState::new(membership.membership(), position)))
}

/// The membership in force, as found in the backend file. One that etcd wrote has no position: `applied` stands in,
/// which it cannot be newer than.
pub(super) fn decode_stored_membership(encoded: &[u8], applied: LogPosition) -> Result<StoredMembership, String> {
    let state: ConfState = serde_json::from_slice(encoded).map_err(|error| error.to_string())?;
    let position = match state.revgate_position {
        Some((term, index)) => LogPosition { term, index },
        None => applied,
    };
    Ok(StoredMembership::new(log_id_of(position), state.membership()))
}

fn to_json(state: &ConfState) -> Vec<u8> {
    serde_json::to_vec(state).expect("numbers and lists always have a JSON form")
}

/// Whether this member alone is all voters.
pub(super) fn is_sole_voter(membership: &Membership, member_id: u64) -> bool {
    membership.get_joint_config().len() == 1 && membership.voter_ids().eq([member_id])
}

const VOTE_VERSION: u8 = 1;
const VOTE_BYTES: usize = 18;

/// The vote as a state record: version, term (8 bytes, big endian), candidate (8, big endian), whether a quorum granted it.
pub(super) fn encode_vote(vote: &Vote) -> Bytes {
    let mut encoded = Vec::with_capacity(VOTE_BYTES);
    encoded.push(VOTE_VERSION);
    encoded.extend_from_slice(&vote.leader_id.term.to_be_bytes());
    encoded.extend_from_slice(&vote.leader_id.voted_for.to_be_bytes());
    encoded.push(u8::from(vote.committed));
    Bytes::from(encoded)
}

/// The vote as found in a state record.
pub(super) fn decode_vote(encoded: &[u8]) -> io::Result<Vote> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the log's state record is damaged");
    let encoded: &[u8; VOTE_BYTES] = encoded.try_into().map_err(|_| damaged())?;
    let [version, rest @ .., committed] = encoded;
    let (term, candidate) = rest.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    if *version != VOTE_VERSION || *committed > 1 {
        return Err(damaged());
    }
    Ok(Vote { leader_id: LeaderId { term: number(term), voted_for: number(candidate) }, committed: *committed == 1 })
}
