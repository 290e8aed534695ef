//! What is noted of one call while it is served: for the line that a slow one makes, and for its trace.
//!
//! A record tells sizes, counts, revisions and times, and where the time went as far as this room sees it. It never holds a
//! value, a password or a token; of a key it holds the length, and its first bytes only if that is asked for.

use std::time::{Duration, Instant};

use hyper::{HeaderMap, StatusCode};

use super::trace::{Ended, Trace, Tracing};
use crate::{
    config::RequestLog,
    error::{ApiError, Code},
    metrics::StageTimes,
    proto::etcdserverpb as pb,
};

/// Most bytes of a key that are told.
const KEY_PREFIX_BYTES_MAX: usize = 16;
/// Names of the stages of a call: the body's way here, parsing it, the service (the wait for the consensus is part of it),
/// writing the answer.
const STAGES: [&str; 4] = ["read", "parse", "execute", "respond"];
/// What a client is answered that is not there any more; only traces tell it.
const CLIENT_GONE: u16 = 499;

/// What is to be told of calls.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Calls that take longer make a line; zero: none does.
    slow: Duration,
    /// Whether the beginnings of keys are told.
    tells_keys: bool,
    tracing: Option<Tracing>,
}

impl Observer {
    pub(super) fn new(log: &RequestLog, tracing: Option<Tracing>) -> Observer {
        Observer { slow: log.slow, tells_keys: log.key_prefixes, tracing }
    }

    /// Sends what traces wait to be sent, for a bounded time.
    pub(super) async fn stop(&self) {
        if let Some(tracing) = &self.tracing {
            tracing.stop().await;
        }
    }

    /// Begins the record of a call. Its end is told when it is dropped, however the call ends.
    pub(super) fn begin(&self, route: &'static str, began: Instant) -> Record<'_> {
        Record {
            observer: self,
            route,
            began,
            read: None,
            parsed: None,
            executed: None,
            trace: None,
            code: Code::Canceled,
            status: CLIENT_GONE,
            waits_for_others: false,
            request_bytes: 0,
            answer_bytes: 0,
            write: None,
            details: Details::default(),
        }
    }
}

/// One call.
#[derive(Debug)]
pub(super) struct Record<'a> {
    observer: &'a Observer,
    route: &'static str,
    began: Instant,
    /// When the body was there.
    read: Option<Instant>,
    /// When it was a message.
    parsed: Option<Instant>,
    /// When the service had answered: the wait for the consensus is part of this.
    executed: Option<Instant>,
    trace: Option<Trace>,
    code: Code,
    /// HTTP status.
    status: u16,
    waits_for_others: bool,
    request_bytes: usize,
    answer_bytes: usize,
    /// Where a write that is told of spent its time while it was executed. In a box: few are.
    write: Option<Box<StageTimes>>,
    details: Details,
}

/// What was asked for and found, where there is such a thing.
#[derive(Debug, Default)]
struct Details {
    key_bytes: Option<usize>,
    key_prefix: Option<Box<str>>,
    value_bytes: Option<usize>,
    is_range: Option<bool>,
    limit: Option<i64>,
    at_revision: Option<i64>,
    compares: Option<usize>,
    operations: Option<usize>,
    count: Option<i64>,
    revision: Option<i64>,
}

impl Record<'_> {
    /// The call waits for other clients by its nature: no length of it is too long.
    pub(super) fn waits_for_others(&mut self) {
        self.waits_for_others = true;
    }

    /// The headers may say which trace the call belongs to.
    pub(super) fn traced(&mut self, headers: &HeaderMap) {
        self.trace = self.observer.tracing.as_ref().and_then(|tracing| tracing.begin(headers));
    }

    /// The body is there.
    pub(super) fn read(&mut self, bytes: usize) {
        self.request_bytes = bytes;
        self.read = Some(Instant::now());
    }

    /// The body is a message.
    pub(super) fn parsed(&mut self) {
        self.parsed = Some(Instant::now());
    }

    /// The service has answered.
    pub(super) fn executed(&mut self) {
        self.executed = Some(Instant::now());
    }

    /// The call has made a write, which went like this.
    pub(super) fn wrote(&mut self, stages: StageTimes) {
        let executed = self.executed.unwrap_or_else(Instant::now);
        if !self.observer.slow.is_zero() && executed.saturating_duration_since(self.began) > self.observer.slow {
            self.write = Some(Box::new(stages));
        }
    }

    /// How the call ends. Without this it was given up.
    pub(super) fn ends(&mut self, answer: Result<usize, &ApiError>) {
        match answer {
            Ok(bytes) => {
                (self.code, self.status, self.answer_bytes) = (Code::Ok, StatusCode::OK.as_u16(), bytes);
            }
            Err(error) => (self.code, self.status) = (error.code(), error.http_status()),
        }
    }

    pub(super) fn range(&mut self, request: &pb::RangeRequest) {
        self.key(&request.key, &request.range_end);
        self.details.limit = Some(request.limit).filter(|limit| *limit > 0);
        self.details.at_revision = Some(request.revision).filter(|revision| *revision > 0);
    }

    pub(super) fn put(&mut self, request: &pb::PutRequest) {
        self.key(&request.key, &[]);
        self.details.value_bytes = Some(request.value.len());
    }

    pub(super) fn delete_range(&mut self, request: &pb::DeleteRangeRequest) {
        self.key(&request.key, &request.range_end);
    }

    pub(super) fn txn(&mut self, request: &pb::TxnRequest) {
        self.details.compares = Some(request.compare.len());
        self.details.operations = Some(request.success.len() + request.failure.len());
    }

    /// How many keys there are of what was asked for.
    pub(super) fn counted(&mut self, count: i64) {
        self.details.count = Some(count);
    }

    /// The revision the answer tells.
    pub(super) fn answered_at(&mut self, header: Option<&pb::ResponseHeader>) {
        self.details.revision = header.map(|header| header.revision);
    }

    fn key(&mut self, key: &[u8], range_end: &[u8]) {
        self.details.key_bytes = Some(key.len());
        self.details.is_range = Some(!range_end.is_empty());
        if self.observer.tells_keys {
            let begin = key.get(..KEY_PREFIX_BYTES_MAX).unwrap_or(key);
            self.details.key_prefix = Some(begin.escape_ascii().to_string().into());
        }
    }

    /// How long each of the [`STAGES`] took: nothing if it was not reached, until now if it did not end.
    fn stages(&self, now: Instant) -> [Option<Duration>; 4] {
        let ends = [self.read, self.parsed, self.executed, Some(now)];
        let mut begin = Some(self.began);
        ends.map(|end| {
            let from = begin?;
            begin = end;
            Some(end.unwrap_or(now).saturating_duration_since(from))
        })
    }

    fn tell_slow(&self, took: Duration, now: Instant) {
        let [read, parse, execute, respond] = self.stages(now);
        let shown = |stage: Option<Duration>| stage.map(tracing::field::debug);
        let write = |stage: fn(&StageTimes) -> Duration| shown(self.write.as_deref().map(stage));
        let Details {
            key_bytes,
            key_prefix,
            value_bytes,
            is_range,
            limit,
            at_revision,
            compares,
            operations,
            count,
            revision,
        } = &self.details;
        tracing::warn!(
            route = self.route,
            code = self.code.name(),
            ?took,
            expected = ?self.observer.slow,
            read = shown(read),
            parse = shown(parse),
            execute = shown(execute),
            respond = shown(respond),
            queue = write(|stages| stages.queue),
            wal_write = write(|stages| stages.wal_write),
            fsync = write(|stages| stages.fsync),
            replicate = write(|stages| stages.replicate),
            commit_to_apply = write(|stages| stages.commit_to_apply),
            apply = write(|stages| stages.apply),
            notify = write(|stages| stages.notify),
            request_bytes = self.request_bytes,
            answer_bytes = self.answer_bytes,
            key_bytes,
            key_prefix = key_prefix.as_deref(),
            value_bytes,
            is_range,
            limit,
            at_revision,
            compares,
            operations,
            count,
            revision,
            "a request took longer than expected"
        );
    }
}

impl Record<'_> {
    fn tell_trace(&self, trace: &Trace, ended: Instant) {
        let [read, parse, execute, respond] = self.stages(ended);
        let size = |size: usize| i64::try_from(size).ok();
        let details = &self.details;
        trace.tell(&Ended {
            route: self.route,
            status: self.status,
            code: self.code.name(),
            began: self.began,
            ended,
            stages: &[(STAGES[0], read), (STAGES[1], parse), (STAGES[2], execute), (STAGES[3], respond)],
            numbers: &[
                ("http.request.body.size", size(self.request_bytes)),
                ("http.response.body.size", size(self.answer_bytes)),
                ("revgate.key_bytes", details.key_bytes.and_then(size)),
                ("revgate.value_bytes", details.value_bytes.and_then(size)),
                ("revgate.limit", details.limit),
                ("revgate.compares", details.compares.and_then(size)),
                ("revgate.operations", details.operations.and_then(size)),
                ("revgate.count", details.count),
                ("revgate.revision", details.revision),
            ],
        });
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let slow = if self.waits_for_others { Duration::ZERO } else { self.observer.slow };
        if slow.is_zero() && self.trace.is_none() {
            return;
        }
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        if !slow.is_zero() && took > slow {
            self.tell_slow(took, now);
        }
        if let Some(trace) = &self.trace {
            self.tell_trace(trace, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn stages_end_where_the_next_begins() {
        let observer = Observer::default();
        let began = Instant::now();
        let mut record = observer.begin("/r", began);
        let now = began + 10 * MILLI;
        assert_eq!(record.stages(now), [Some(10 * MILLI), None, None, None]);
        record.read = Some(began + MILLI);
        assert_eq!(record.stages(now), [Some(MILLI), Some(9 * MILLI), None, None]);
        record.parsed = Some(began + 3 * MILLI);
        record.executed = Some(began + 6 * MILLI);
        assert_eq!(record.stages(now), [1, 2, 3, 4].map(|millis| Some(millis * MILLI)));
    }

    #[test]
    fn stages_of_a_write_are_kept_for_calls_that_are_told_of() {
        let observer = Observer { slow: MILLI, ..Observer::default() };
        let stages = StageTimes { fsync: 7 * MILLI, ..StageTimes::default() };
        let mut quick = observer.begin("/r", Instant::now() + Duration::from_secs(60));
        quick.wrote(stages);
        assert!(quick.write.is_none());
        let mut slow = observer.begin("/r", Instant::now() - 2 * MILLI);
        slow.wrote(stages);
        assert_eq!(slow.write.as_ref().map(|stages| stages.fsync), Some(7 * MILLI));
    }

    #[test]
    fn keys_are_told_only_where_that_is_asked_for_and_never_whole() {
        let request = pb::PutRequest { key: b"\xffsecret-key-of-somebody"[..].into(), ..Default::default() };
        let quiet = Observer::default();
        let mut record = quiet.begin("/r", Instant::now());
        record.put(&request);
        assert_eq!((record.details.key_bytes, record.details.key_prefix.as_deref()), (Some(23), None));
        let telling = Observer { tells_keys: true, ..Observer::default() };
        let mut record = telling.begin("/r", Instant::now());
        record.put(&request);
        assert_eq!(record.details.key_prefix.as_deref(), Some("\\xffsecret-key-of-s"));
    }
}
