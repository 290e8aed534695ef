//! The library's log storage over the write-ahead log: a tail of entries in memory, everything durable in the log.
//!
//! An entry is readable the moment `append` returns and durable when its callback comes. Everything that must be
//! ordered goes through the one queue of the write-ahead log. What the tail holds is bounded in bytes by purging: the
//! entries from the oldest the file may still need on are all in memory, so reading never touches the disk.

use std::{
    collections::VecDeque,
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use openraft::{
    LogState, OptionalSend, RaftLogReader,
    storage::{IOFlushed, RaftLogStorage},
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    ConsensusError,
    standing::Standing,
    types::{
        Entry, LogId, Payload, TypeConfig, Vote, decode_entry, decode_vote, encode_entry, encode_vote, log_id_of,
        memory_bytes, position_of,
    },
};
use crate::{
    metrics::Metrics,
    mvcc::LogPosition,
    wal::{Done, Record, Recovered, Room, Wal, WalError},
};

/// Bytes of entries one read for a follower returns at most, unless the first alone is larger.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// Entries up to this size are written by the thread that appends them, if nobody else's acknowledgement is needed and
/// all before them are applied: it has nothing else to do meanwhile. While others are written, the next are packed and
/// the last are applied.
const APPEND_HERE_BYTES_MAX: usize = 64 * 1024;

/// The log's storage. Cheap to clone; all clones are the same log.
#[derive(Clone, Debug)]
pub(super) struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tail: Mutex<Tail>,
    /// None once closed.
    wal: Mutex<Option<Wal>>,
    standing: Arc<Standing>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Tail {
    entries: VecDeque<Entry>,
    /// Memory the entries take, in bytes.
    bytes: usize,
    purged: Option<LogId>,
    vote: Option<Vote>,
}

impl Tail {
    /// Index (the library's) of the first entry here, or of the one to come.
    fn first_index(&self) -> u64 {
        let next = self.purged.map_or(0, |purged| purged.index + 1);
        self.entries.front().map_or(next, |entry| entry.log_id.index)
    }

    fn last_log_id(&self) -> Option<LogId> {
        self.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += memory_bytes(&entry);
        self.entries.push_back(entry);
    }

    /// The entries whose index is in `start..end`, as far as they are here.
    fn slice(&self, start: u64, end: u64) -> impl Iterator<Item = &Entry> {
        let first = self.first_index();
        let offset =
            |index: u64| usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX).min(self.entries.len());
        self.entries.range(offset(start)..offset(end).max(offset(start)))
    }
}

impl LogStore {
    /// Takes what was found in the log. `applied` is what the backend file holds: nothing at or before it is needed to
    /// go on, and an entry after it must not be missing.
    ///
    /// # Errors
    /// [`ConsensusError::Apart`] if entries are missing between the two.
    pub(super) fn new(
        wal: Wal,
        recovered: Recovered,
        applied: LogPosition,
        member_id: u64,
        standing: Arc<Standing>,
        metrics: Metrics,
    ) -> Result<LogStore, ConsensusError> {
        let damaged = |error: io::Error| ConsensusError::Raft(error.to_string());
        let mut tail = Tail::default();
        for entry in recovered.entries {
            tail.push(decode_entry(entry).map_err(damaged)?);
        }
        tail.purged = purged_position(&mut tail, recovered.released, applied).map_err(ConsensusError::Apart)?;
        tail.vote = recovered.state.as_deref().map(decode_vote).transpose().map_err(damaged)?;
        // A backend file without its log: terms go on from the one it has seen.
        if tail.vote.is_none() && applied.term > 0 {
            tail.vote = Some(Vote::new(applied.term, member_id));
        }
        if let Some(vote) = &tail.vote {
            // What was led before the restart is led no more.
            standing.voted(&Vote { committed: false, ..*vote });
        }
        for entry in &tail.entries {
            if let Payload::Membership(membership) = &entry.payload {
                standing.membership_appended(position_of(&entry.log_id).index, membership);
            }
        }
        let shared = Shared { tail: Mutex::new(tail), wal: Mutex::new(Some(wal)), standing, metrics };
        let store = LogStore { shared: Arc::new(shared) };
        store.note_last(&store.shared.tail.lock());
        store.go_on_after(applied, recovered.released).map_err(damaged)?;
        Ok(store)
    }

    /// A log without entries that belongs to a backend file with some goes on after the file's last one.
    fn go_on_after(&self, applied: LogPosition, released: Option<(u64, u64)>) -> io::Result<()> {
        let is_empty = self.shared.tail.lock().entries.is_empty();
        if is_empty && released.is_none_or(|(index, _)| index < applied.index) && applied.index > 0 {
            tracing::warn!(
                entry = applied.index,
                "the log is gone: going on after what the backend file holds; what was acknowledged later is lost"
            );
            let record = Record::Released { index: applied.index, term: applied.term };
            self.write(vec![record], self.watch_failure())?;
        }
        Ok(())
    }

    /// What room the log has; `None` once it is closed.
    pub(super) fn room(&self) -> Option<Arc<Room>> {
        self.shared.wal.lock().as_ref().map(Wal::room)
    }

    /// Memory the entries take, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.shared.tail.lock().bytes
    }

    /// The last of the oldest entries that must go for the rest to fit in `bytes_max`. Index is the library's.
    pub(super) fn purge_point(&self, bytes_max: usize) -> Option<u64> {
        let tail = self.shared.tail.lock();
        let mut excess = tail.bytes.checked_sub(bytes_max).filter(|excess| *excess > 0)?;
        for entry in &tail.entries {
            let bytes = memory_bytes(entry);
            if bytes >= excess {
                return Some(entry.log_id.index);
            }
            excess -= bytes;
        }
        None
    }

    /// Writes what is queued and closes the log; every later write fails.
    pub(super) fn close(&self) -> Result<(), WalError> {
        // Not under the lock: closing waits for the disk.
        let wal = self.shared.wal.lock().take();
        wal.map_or(Ok(()), Wal::close)
    }

    fn write(&self, records: Vec<Record>, done: Done) -> io::Result<()> {
        self.with_wal(|wal| wal.append(records, done))
    }

    /// The same, on this thread if the log is idle.
    fn write_here(&self, records: Vec<Record>, done: Done) -> io::Result<()> {
        self.with_wal(|wal| wal.append_here(records, done))
    }

    fn with_wal(&self, append: impl FnOnce(&Wal)) -> io::Result<()> {
        self.shared.wal.lock().as_ref().map(append).ok_or_else(|| io::Error::other("the log is closed"))
    }

    /// A callback that only looks for failure.
    fn watch_failure(&self) -> Done {
        let standing = Arc::clone(&self.shared.standing);
        Box::new(move |result| {
            if let Err(error) = result {
                standing.fail(error.to_string());
            }
        })
    }

    /// Notes when the entries behind `before` were committed, up to `through`. Both are the log's indexes.
    fn mark_committed(&self, before: u64, through: u64) {
        let Shared { tail, standing, metrics, .. } = &*self.shared;
        let now = metrics.time.now();
        for entry in tail.lock().slice(before, through) {
            if let Payload::Normal(batch) = &entry.payload {
                batch.marks().committed(now);
            }
        }
        let lag = through.saturating_sub(standing.applied());
        metrics.proposals_committed.set(i64::try_from(through).unwrap_or(i64::MAX));
        metrics.apply_lag_entries.set(i64::try_from(lag).unwrap_or(i64::MAX));
    }

    fn note_last(&self, tail: &Tail) {
        self.shared.standing.set_last_log(tail.last_log_id().map_or(0, |last| position_of(&last).index));
    }
}

/// What is gone before the first entry. Takes an entry out of the tail where only it can tell.
fn purged_position(
    tail: &mut Tail,
    released: Option<(u64, u64)>,
    applied: LogPosition,
) -> Result<Option<LogId>, String> {
    let released = released.map_or_else(LogPosition::default, |(index, term)| LogPosition { term, index });
    // Only what a file held durably was ever released: this is another file, or an older one.
    if released.index > applied.index {
        return Err(format!(
            "the log has let go of entries up to {}, but the backend file holds entries only up to {}",
            released.index, applied.index
        ));
    }
    let Some(first) = tail.entries.front().map(|entry| position_of(&entry.log_id)) else {
        return Ok(log_id_of(applied));
    };
    let last = tail.entries.back().map_or(first, |entry| position_of(&entry.log_id));
    if last.index < applied.index {
        return Err(format!(
            "the log ends at entry {}, but the backend file holds entries up to {}",
            last.index, applied.index
        ));
    }
    if first.index == 1 {
        return Ok(None);
    }
    if let Some(before) = [applied, released].into_iter().find(|position| position.index + 1 == first.index) {
        return Ok(log_id_of(before));
    }
    if first.index > applied.index {
        return Err(format!(
            "the log begins at entry {}, but the backend file holds entries only up to {}",
            first.index, applied.index
        ));
    }
    // The file holds the first entry's effects: it is there only to tell the term of its position.
    if let Some(entry) = tail.entries.pop_front() {
        tail.bytes -= memory_bytes(&entry);
    }
    Ok(log_id_of(first))
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (start, end) = bounds(&range);
        Ok(self.shared.tail.lock().slice(start, end).cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.tail.lock().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let tail = self.shared.tail.lock();
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let first = bytes == 0;
            bytes += memory_bytes(entry);
            first || bytes <= READ_BYTES_MAX
        };
        Ok(tail.slice(start, end).take_while(fits).cloned().collect())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let tail = self.shared.tail.lock();
        Ok(LogState { last_purged_log_id: tail.purged, last_log_id: tail.last_log_id() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        // Before it can take effect: a read must not be answered here on the strength of a leadership given away.
        self.shared.standing.voted(vote);
        let (sender, durable) = oneshot::channel();
        let standing = Arc::clone(&self.shared.standing);
        let done: Done = Box::new(move |result| {
            if let Err(error) = &result {
                standing.fail(error.to_string());
            }
            // The receiver is gone only if the library's core is.
            let _gone = sender.send(result.map(drop));
        });
        self.write(vec![Record::State(encode_vote(vote))], done)?;
        durable.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        self.shared.tail.lock().vote = Some(*vote);
        Ok(())
    }

    // Only remembered in memory: after a restart, reads wait until everything in the log is committed anew and applied.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let before = self.shared.standing.committed();
        let now = committed.map_or(0, |committed| position_of(&committed).index);
        self.shared.standing.set_committed(now);
        self.mark_committed(before, now);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        let mut batches = Vec::new();
        let mut first_index = None;
        {
            let mut tail = self.shared.tail.lock();
            for entry in entries {
                first_index.get_or_insert(position_of(&entry.log_id).index);
                if let Payload::Membership(membership) = &entry.payload {
                    self.shared.standing.membership_appended(position_of(&entry.log_id).index, membership);
                }
                // A log that never held anything begins wherever its first entry is.
                if tail.entries.is_empty() && tail.purged.is_none() && entry.log_id.index > 0 {
                    records.push(Record::Released { index: entry.log_id.index, term: 0 });
                }
                records.push(Record::Entry(encode_entry(&entry)));
                if let Payload::Normal(batch) = &entry.payload {
                    batches.push(batch.clone());
                }
                tail.push(entry);
            }
            self.note_last(&tail);
        }
        let standing = Arc::clone(&self.shared.standing);
        let done: Done = Box::new(move |result| {
            match &result {
                Ok(written) => batches.iter().for_each(|batch| batch.marks().durable(written)),
                Err(error) => standing.fail(error.to_string()),
            }
            callback.io_completed(result.map(drop).map_err(io::Error::other));
        });
        let bytes: usize = records.iter().map(Record::data_bytes).sum();
        let standing = &self.shared.standing;
        if bytes <= APPEND_HERE_BYTES_MAX && standing.is_ready() && first_index == Some(standing.applied() + 1) {
            self.write_here(records, done)
        } else {
            self.write(records, done)
        }
    }

    // Needs no waiting: the record is ordered before every later append, and nothing that was acknowledged goes.
    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let (keep_index, last_index) = match last {
            Some(last) => (last.index + 1, position_of(&last).index),
            None => (0, 0),
        };
        {
            let mut tail = self.shared.tail.lock();
            while tail.entries.back().is_some_and(|entry| entry.log_id.index >= keep_index) {
                if let Some(entry) = tail.entries.pop_back() {
                    tail.bytes -= memory_bytes(&entry);
                }
            }
            self.note_last(&tail);
        }
        self.write(vec![Record::Truncate { last_index }], self.watch_failure())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        {
            let mut tail = self.shared.tail.lock();
            if tail.purged.is_some_and(|purged| purged.index >= upto.index) {
                return Ok(());
            }
            while tail.entries.front().is_some_and(|entry| entry.log_id.index <= upto.index) {
                if let Some(entry) = tail.entries.pop_front() {
                    tail.bytes -= memory_bytes(&entry);
                }
            }
            tail.purged = Some(upto);
            self.note_last(&tail);
        }
        let LogPosition { term, index } = position_of(&upto);
        self.write(vec![Record::Released { index, term }], self.watch_failure())
    }
}
