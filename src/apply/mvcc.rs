//! The innermost layer: carries a command out on the keys, the leases and the alarms.

use std::time::Duration;

use prometheus::IntCounter;

use super::{Applied, CompactionFinished, Failure, State, alarms::Origin, cluster, header, txn, unsupported};
use crate::{
    error::ApiError,
    metrics::{Metrics, Time},
    mvcc::{ChangeSet, KeyRange, WriteTxn},
    proto::{
        etcdserverpb::{
            AlarmRequest, AlarmResponse, AlarmType, CompactionRequest, CompactionResponse, DeleteRangeRequest,
            LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, TxnRequest,
            alarm_request::AlarmAction,
        },
        revgatepb::internal_raft_request::Request,
    },
};

/// The layer that does it.
#[derive(Debug)]
pub(super) struct MvccLayer {
    state: State,
    txns: IntCounter,
    time: Time,
    /// Time that handing changes to the watches took.
    notify: Duration,
}

impl MvccLayer {
    pub(super) fn new(state: State, metrics: &Metrics) -> MvccLayer {
        MvccLayer { state, txns: metrics.txn_total.clone(), time: metrics.time.clone(), notify: Duration::ZERO }
    }

    pub(super) fn take_notify_time(&mut self) -> Duration {
        std::mem::take(&mut self.notify)
    }

    pub(super) fn apply(&mut self, request: &Request, origin: Origin) -> Result<Applied, Failure> {
        match request {
            Request::Put(request) => self.put(request),
            Request::DeleteRange(request) => self.delete_range(request),
            Request::Txn(request) => self.txn(request),
            Request::Compaction(request) => self.compact(*request),
            Request::LeaseGrant(request) => self.lease_grant(*request),
            Request::LeaseRevoke(request) => self.lease_revoke(*request),
            Request::Alarm(request) => Ok(Applied::Alarm(self.alarm(*request, origin))),
            Request::Range(_) => Err(unsupported("a range")),
            Request::LeaseCheckpoint(_) => Err(unsupported("a lease checkpoint")),
            Request::MemberAdd(member) => Ok(cluster::add_member(&self.state, member)?),
            Request::MemberUpdate(request) => Ok(cluster::update_member(&self.state, request)?),
            Request::MemberRemove(request) => Ok(cluster::remove_member(&self.state, *request)?),
            Request::PageKeySet(request) => Ok(cluster::set_page_key(&self.state, request)?),
            Request::DowngradeInfoSet(request) => Ok(cluster::set_downgrade(&self.state, request)),
            // Changes do not come this far, and questions are answered without the log.
            _ => Err(unsupported("a question about users or roles")),
        }
    }

    fn put(&mut self, request: &PutRequest) -> Result<Applied, Failure> {
        let mut write = self.state.store.write();
        let response = txn::put(&mut write, &self.state.lessor, request)?;
        self.notify += self.publish(write);
        Ok(Applied::Put(response))
    }

    fn delete_range(&mut self, request: &DeleteRangeRequest) -> Result<Applied, Failure> {
        let mut write = self.state.store.write();
        let response = txn::delete_range(&mut write, request)?;
        self.notify += self.publish(write);
        Ok(Applied::DeleteRange(response))
    }

    fn txn(&mut self, request: &TxnRequest) -> Result<Applied, Failure> {
        let compact_revision = self.state.store.compact_revision();
        let mut write = self.state.store.write();
        let (response, operations) = txn::execute(&mut write, &self.state.lessor, compact_revision, request)?;
        self.notify += self.publish(write);
        // As etcd counts: a txn of one operation is that operation. Those are counted where they are carried out.
        if operations > 1 {
            self.txns.inc();
        }
        Ok(Applied::Txn(response))
    }

    fn compact(&self, request: CompactionRequest) -> Result<Applied, Failure> {
        let (finished, done) = if request.physical {
            let (finished, done) = CompactionFinished::new();
            (Some(finished), Some(done))
        } else {
            (None, None)
        };
        self.state.store.compact(request.revision, done)?;
        let response = CompactionResponse { header: header(self.state.store.revision()) };
        Ok(Applied::Compaction { response, finished })
    }

    fn lease_grant(&self, request: LeaseGrantRequest) -> Result<Applied, Failure> {
        // `service` chooses an id before it proposes: here every member must get the same one.
        if request.id == 0 {
            return Err(ApiError::Internal("a lease needs an id before it is proposed".into()).into());
        }
        let (ttl, write) = self.state.lessor.grant(request.id, request.ttl)?;
        self.state.store.stage(vec![write]);
        let header = header(self.state.store.revision());
        Ok(Applied::LeaseGrant(LeaseGrantResponse { header, id: request.id, ttl, error: String::new() }))
    }

    /// All keys of the lease go under one revision, in key order.
    fn lease_revoke(&mut self, request: LeaseRevokeRequest) -> Result<Applied, Failure> {
        let keys = self.state.lessor.keys(request.id)?;
        let mut write = self.state.store.write();
        for key in keys {
            write.delete_range(&KeyRange::Single(key), false)?;
        }
        self.notify += self.publish(write);
        self.state.store.stage(vec![self.state.lessor.revoke(request.id)?]);
        Ok(Applied::LeaseRevoke(LeaseRevokeResponse { header: header(self.state.store.revision()) }))
    }

    fn alarm(&self, request: AlarmRequest, origin: Origin) -> AlarmResponse {
        let kind = AlarmType::try_from(request.alarm);
        let alarms = match (AlarmAction::try_from(request.action), kind) {
            (Ok(AlarmAction::Get), Ok(kind)) => {
                let meant = |alarm: i32| kind == AlarmType::None || alarm == kind as i32;
                self.state.alarms.list().into_iter().filter(|member| meant(member.alarm)).collect()
            }
            (Ok(AlarmAction::Activate), Ok(kind)) if kind != AlarmType::None => {
                self.state.store.stage(self.state.alarms.raise(request.member_id, kind, origin));
                let raised = |alarm: i32, member: u64| alarm == kind as i32 && member == request.member_id;
                self.state.alarms.list().into_iter().filter(|a| raised(a.alarm, a.member_id)).collect()
            }
            (Ok(AlarmAction::Deactivate), Ok(kind)) => {
                let (disarmed, writes) = self.state.alarms.disarm(request.member_id, kind);
                self.state.store.stage(writes);
                disarmed
            }
            // There is no such alarm to raise, or no such thing to do: nothing is raised, nothing disarmed.
            _ => Vec::new(),
        };
        AlarmResponse { header: header(self.state.store.revision()), alarms }
    }

    /// Makes changes visible, moves the keys' leases along, and tells who watches; how long the last took.
    fn publish(&self, write: WriteTxn<'_>) -> Duration {
        let Some(changes) = write.end() else { return Duration::ZERO };
        self.move_leases(&changes);
        let began = self.time.now();
        self.state.hub.notify(changes);
        self.time.now().saturating_sub(began)
    }

    fn move_leases(&self, changes: &ChangeSet) {
        let lessor = &self.state.lessor;
        for change in changes.changes.iter() {
            // A key that kept a lease nobody knows (a file put together by hand) hangs on none.
            if change.tombstone || lessor.attach(&change.kv.key, change.kv.lease).is_err() {
                lessor.detach(&change.kv.key);
            }
        }
    }
}
