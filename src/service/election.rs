//! Elections: who has the oldest key below a name leads, and its value is what the leader proclaims.
//!
//! Leases are as for locks: a candidate that brings none gets one of 60 seconds that nobody renews.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::sync::CancellationToken;

use crate::{
    error::ApiError,
    proto::{
        etcdserverpb::{PutRequest, ResponseHeader},
        mvccpb::KeyValue,
        v3electionpb::{
            CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
            ProclaimResponse, ResignRequest, ResignResponse,
        },
    },
};

use super::{
    Caller,
    turn::{self, Changes, Turns, prefix_of},
};

/// Answers requests about elections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ElectionService {
    turns: Turns,
}

impl ElectionService {
    pub(super) fn new(turns: Turns) -> ElectionService {
        ElectionService { turns }
    }

    /// Waits to be elected. Dropping the future gives the candidacy up.
    ///
    /// # Errors
    /// [`ApiError::LeaseNotFound`] when there is no such lease, [`ApiError::CandidateSessionExpired`] when it runs out during
    /// the wait.
    pub async fn campaign(&self, caller: &Caller, request: CampaignRequest) -> Result<CampaignResponse, ApiError> {
        let (service, caller) = (self.clone(), caller.clone());
        self.turns.attended(|gone| async move { service.run(&caller, request, &gone).await }).await
    }

    async fn run(
        &self,
        caller: &Caller,
        request: CampaignRequest,
        gone: &CancellationToken,
    ) -> Result<CampaignResponse, ApiError> {
        let turn = self.turns.join(caller, &request.name, request.lease, request.value.clone()).await?;
        let header = turn.header;
        let leader = LeaderKey {
            name: request.name,
            key: turn.key.clone(),
            rev: turn.create_revision,
            lease: turn.session.lease,
        };
        let outcome = async {
            // A candidate that asks again with another value proclaims it, elected or not.
            if turn.found.as_ref().is_some_and(|value| *value != request.value) {
                self.put(caller, &leader, request.value).await?;
            }
            self.turns.wait(&turn, gone, ApiError::CandidateSessionExpired).await
        };
        match outcome.await {
            Ok(_) => Ok(CampaignResponse { header, leader: Some(leader) }),
            Err(error) => {
                self.turns.leave(turn).await;
                Err(error)
            }
        }
    }

    /// Changes the leader's value.
    ///
    /// # Errors
    /// [`ApiError::LeaderKeyNotProvided`], or [`ApiError::NotElectionLeader`] when the key is not the leader's any more.
    pub async fn proclaim(&self, caller: &Caller, request: ProclaimRequest) -> Result<ProclaimResponse, ApiError> {
        let leader = request.leader.ok_or(ApiError::LeaderKeyNotProvided)?;
        let session = self.turns.session(caller, leader.lease).await?;
        let put = self.put(caller, &LeaderKey { lease: session.lease, ..leader }, request.value).await;
        if put.is_err() {
            self.turns.end_session(session).await;
        }
        Ok(ProclaimResponse { header: put? })
    }

    async fn put(&self, caller: &Caller, leader: &LeaderKey, value: Bytes) -> Result<Option<ResponseHeader>, ApiError> {
        let put = PutRequest { key: leader.key.clone(), value, lease: leader.lease, ..Default::default() };
        let answer = self.turns.put_created_at(caller, put, leader.rev).await?;
        if answer.succeeded { Ok(answer.header) } else { Err(ApiError::NotElectionLeader) }
    }

    /// Whose turn it is, with what it has proclaimed.
    ///
    /// # Errors
    /// [`ApiError::NoElectionLeader`] when it is nobody's.
    pub async fn leader(&self, caller: &Caller, request: LeaderRequest) -> Result<LeaderResponse, ApiError> {
        match self.turns.oldest(caller, &prefix_of(&request.name)).await? {
            (header, Some(kv)) => Ok(LeaderResponse { header: Some(header), kv: Some(kv) }),
            (_, None) => Err(ApiError::NoElectionLeader),
        }
    }

    /// The leader, each of its proclamations, and each leader after it. Ends with an error or with its reader.
    pub fn observe(
        &self,
        caller: &Caller,
        request: LeaderRequest,
    ) -> impl Stream<Item = Result<LeaderResponse, ApiError>> + Send + use<> {
        let observation = Observation {
            turns: self.turns.clone(),
            caller: caller.clone(),
            prefix: prefix_of(&request.name),
            leader: None,
            told: None,
            waiting: VecDeque::new(),
        };
        stream::try_unfold(observation, |mut observation| async move {
            let response = observation.next().await?;
            Ok(Some((response, observation)))
        })
    }

    /// Gives the lead back, or a candidacy. One that is over already is no error.
    ///
    /// # Errors
    /// [`ApiError::LeaderKeyNotProvided`].
    pub async fn resign(&self, caller: &Caller, request: ResignRequest) -> Result<ResignResponse, ApiError> {
        let leader = request.leader.ok_or(ApiError::LeaderKeyNotProvided)?;
        let answer = self.turns.delete_created_at(caller, leader.key, leader.rev).await?;
        Ok(ResignResponse { header: answer.header })
    }
}

/// One reader's view of an election.
struct Observation {
    turns: Turns,
    caller: Caller,
    prefix: Bytes,
    /// The changes of the leader's key.
    leader: Option<Changes>,
    /// Key and modification revision of what was told last.
    told: Option<(Bytes, i64)>,
    /// Deliveries are taken apart into one response a change; this holds the rest of one.
    waiting: VecDeque<LeaderResponse>,
}

impl Observation {
    async fn next(&mut self) -> Result<LeaderResponse, ApiError> {
        loop {
            if let Some(response) = self.waiting.pop_front() {
                return Ok(response);
            }
            match self.leader.take() {
                None => self.find_leader().await?,
                Some(changes) => self.follow(changes).await?,
            }
        }
    }

    /// Looks whose turn it is; if it is nobody's, waits for the first that comes.
    async fn find_leader(&mut self) -> Result<(), ApiError> {
        let (header, oldest) = self.turns.oldest(&self.caller, &self.prefix).await?;
        let next_revision = header.revision + 1;
        if let Some(kv) = oldest {
            self.leader = Some(self.watch_key(kv.key.clone(), next_revision));
            self.tell(header, kv);
            return Ok(());
        }
        let mut comers = self.turns.watch(&self.caller, [turn::comers_to(&self.prefix, next_revision)]);
        // `None`: history was compacted away before it could be read. Look again.
        if let Some((header, events)) = comers.next().await?
            && let Some(first) = events.first()
        {
            let kv = first.record.kv.clone();
            self.leader = Some(self.watch_key(kv.key.clone(), kv.mod_revision + 1));
            self.tell(header, kv);
        }
        Ok(())
    }

    /// Waits for the leader's next changes. Its end, or a gap, makes for another look.
    async fn follow(&mut self, mut changes: Changes) -> Result<(), ApiError> {
        let Some((header, events)) = changes.next().await? else { return Ok(()) };
        for event in events {
            if event.record.tombstone {
                return Ok(());
            }
            self.tell(header, event.record.kv.clone());
        }
        self.leader = Some(changes);
        Ok(())
    }

    fn watch_key(&self, key: Bytes, start_revision: i64) -> Changes {
        self.turns.watch(&self.caller, [turn::changes_of(key, start_revision)])
    }

    /// What was told before is not told again, as after a gap.
    fn tell(&mut self, header: ResponseHeader, kv: KeyValue) {
        let is_new = self.told.as_ref().is_none_or(|(key, revision)| *key != kv.key || *revision < kv.mod_revision);
        if is_new {
            self.told = Some((kv.key.clone(), kv.mod_revision));
            self.waiting.push_back(LeaderResponse { header: Some(header), kv: Some(kv) });
        }
    }
}
