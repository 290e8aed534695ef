//! Answers: one body type for whole and streamed ones, and the bodies of errors.
//!
//! Errors carry the union of both gateway dialects, so that clients of either find what they look for. Knows no route.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY, WWW_AUTHENTICATE},
};
use prometheus::IntCounter;
use tokio::task::spawn_blocking;

use super::{
    encoding::{ENCODED_BYTES_MIN, Encoding, INLINE_BYTES_MAX},
    json::write,
    range::RangePieces,
};
use crate::error::ApiError;

/// An answer.
pub(super) type Reply = Response<Body>;

/// An answer's body. Its bytes are counted as they are handed to the connection, if they are to be.
pub(super) struct Body {
    content: Content,
    sent: Option<IntCounter>,
}

impl Body {
    fn new(content: Content) -> Body {
        Body { content, sent: None }
    }

    /// Nothing.
    pub(super) fn empty() -> Body {
        Body::new(Content::Whole(None))
    }

    /// Has the bytes counted.
    pub(super) fn count(&mut self, sent: &IntCounter) {
        self.sent = Some(sent.clone());
    }
}

enum Content {
    /// All there is; sent with its length in one write.
    Whole(Option<Bytes>),
    /// Pieces as they come; each is flushed.
    Pieces(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// The pieces of a range that is too big to be made as a whole.
    Range(Box<RangePieces>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = match &mut self.content {
            Content::Whole(bytes) => bytes.take().map(Ok),
            Content::Pieces(pieces) => ready!(pieces.as_mut().poll_next(context)).map(Ok),
            Content::Range(pieces) => ready!(pieces.poll_next(context)),
        };
        if let (Some(Ok(bytes)), Some(sent)) = (&piece, &self.sent) {
            sent.inc_by(bytes.len() as u64);
        }
        Poll::Ready(piece.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)))
            }
            Content::Pieces(_) | Content::Range(_) => SizeHint::default(),
        }
    }
}

/// A whole JSON answer.
pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Reply {
    whole(status, HeaderValue::from_static("application/json"), body.into())
}

/// The whole answer to a call that succeeded.
pub(super) fn answer(body: Vec<u8>) -> Reply {
    let mut reply = json(StatusCode::OK, body);
    mark_as_rpc(reply.headers_mut());
    reply
}

/// The answer to a range, in pieces as they are made.
pub(super) fn range(pieces: RangePieces) -> Reply {
    let mut reply = Response::new(Body::new(Content::Range(Box::new(pieces))));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    mark_as_rpc(reply.headers_mut());
    reply
}

/// Encodes an answer as its client asked, if it is one that gains by it.
pub(super) async fn encoded(mut reply: Reply, encoding: Encoding) -> Reply {
    let encoded = match &mut reply.body_mut().content {
        Content::Whole(Some(plain)) if plain.len() >= ENCODED_BYTES_MIN => {
            let plain = plain.clone();
            whole_encoded(plain, encoding).await.map(|encoded| Content::Whole(Some(encoded)))
        }
        Content::Range(pieces) => {
            pieces.encode(encoding);
            None
        }
        Content::Whole(_) | Content::Pieces(_) => return reply,
    };
    reply.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let is_encoded = encoded.is_some() || matches!(reply.body().content, Content::Range(_));
    if let Some(encoded) = encoded {
        reply.body_mut().content = encoded;
    }
    if let Some(name) = encoding.name().filter(|_| is_encoded) {
        reply.headers_mut().insert(CONTENT_ENCODING, name);
    }
    reply
}

/// A whole body, encoded; `None` if it is to be sent as it is.
async fn whole_encoded(plain: Bytes, encoding: Encoding) -> Option<Bytes> {
    let encoded = match encoding {
        Encoding::Identity => return None,
        _ if plain.len() <= INLINE_BYTES_MAX => encoding.whole(&plain),
        _ => spawn_blocking(move || encoding.whole(&plain)).await.ok()?,
    };
    encoded
        .map(Bytes::from)
        .map_err(|error| tracing::warn!(%error, "an answer is sent without its content coding"))
        .ok()
}

/// Clients of etcd's gateway see the header of the gRPC answer behind theirs.
fn mark_as_rpc(headers: &mut HeaderMap) {
    headers.insert(HeaderName::from_static("grpc-metadata-content-type"), HeaderValue::from_static("application/grpc"));
}

/// A whole plain-text answer.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    whole(status, HeaderValue::from_static("text/plain; charset=utf-8"), body.into())
}

/// A whole answer of any type.
pub(super) fn whole(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Reply {
    let mut reply = Response::new(Body::new(Content::Whole(if body.is_empty() { None } else { Some(body) })));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply
}

/// A streamed answer of JSON lines.
pub(super) fn lines(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    let mut reply = Response::new(Body::new(Content::Pieces(Box::pin(pieces))));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    mark_as_rpc(reply.headers_mut());
    reply
}

/// The answer to a call that failed.
pub(super) fn error(error: &ApiError) -> Reply {
    with_challenge(json(status_of(error), error_body(error)), error)
}

/// The answer to a stream that failed before its first message.
pub(super) fn stream_error(error: &ApiError) -> Reply {
    let mut body = Vec::new();
    write_stream_error(&mut body, error);
    body.push(b'\n');
    with_challenge(json(status_of(error), body), error)
}

/// A 401 must say how to do better; etcd's says what was wrong.
fn with_challenge(mut reply: Reply, error: &ApiError) -> Reply {
    if reply.status() == StatusCode::UNAUTHORIZED
        && let Ok(challenge) = HeaderValue::from_str(&error.to_string())
    {
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    reply
}

/// The HTTP status a failure is answered with.
pub(super) fn status_of(error: &ApiError) -> StatusCode {
    StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The body of a failed call.
pub(super) fn error_body(error: &ApiError) -> Vec<u8> {
    let text = error.to_string();
    let mut body = Vec::with_capacity(64 + 2 * text.len());
    let mut object = write::Object::begin(&mut body);
    object.string("error", &text);
    write::number(object.name("code"), error.code().number());
    object.string("message", &text);
    if let ApiError::PageExpired { compact_revision } = error {
        object.int64("compact_revision", *compact_revision);
    }
    object.end();
    body
}

/// Appends the last message of a stream that failed, without the line's end.
pub(super) fn write_stream_error(out: &mut Vec<u8>, error: &ApiError) {
    let code = error.code();
    let mut outer = write::Object::begin(out);
    let mut object = write::Object::begin(outer.name("error"));
    write::number(object.name("grpc_code"), code.number());
    write::number(object.name("http_code"), code.http_status());
    object.string("message", &error.to_string());
    write::string(object.name("http_status"), code.http_status_text());
    write::number(object.name("code"), code.number());
    object.end();
    outer.end();
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// One of each variant, in their order, with the body's code, status and text.
    pub(in crate::http) fn table() -> Vec<(ApiError, u8, u16, &'static str)> {
        vec![
            (ApiError::KeyNotProvided, 3, 400, "etcdserver: key is not provided"),
            (ApiError::KeyNotFound, 3, 400, "etcdserver: key not found"),
            (ApiError::ValueProvided, 3, 400, "etcdserver: value is provided"),
            (ApiError::LeaseProvided, 3, 400, "etcdserver: lease is provided"),
            (ApiError::TooManyOps, 3, 400, "etcdserver: too many operations in txn request"),
            (ApiError::DuplicateKey, 3, 400, "etcdserver: duplicate key given in txn request"),
            (ApiError::InvalidSortOption, 3, 400, "etcdserver: invalid sort option"),
            (ApiError::RequestTooLarge, 3, 400, "etcdserver: request is too large"),
            (
                ApiError::MessageTooLarge { received: 2_097_153, max: 2_097_152 },
                8,
                429,
                "grpc: received message larger than max (2097153 vs. 2097152)",
            ),
            (ApiError::Compacted, 11, 400, "etcdserver: mvcc: required revision has been compacted"),
            (ApiError::FutureRevision, 11, 400, "etcdserver: mvcc: required revision is a future revision"),
            (
                ApiError::PageExpired { compact_revision: 7 },
                11,
                410,
                "etcdserver: mvcc: required revision has been compacted: begin the list anew",
            ),
            (
                ApiError::PageTokenInvalid,
                3,
                400,
                "etcdserver: the continue token was not made for this request: range, order, filters and revision must \
                 be those of the first page",
            ),
            (
                ApiError::DiskFull("db".into()),
                14,
                503,
                "etcdserver: the disk is full: db; until there is room, writes that grow are refused: make room on the \
                 disk, or delete keys and compact",
            ),
            (ApiError::NoSpace, 8, 429, "etcdserver: mvcc: database space exceeded"),
            (ApiError::LeaseNotFound, 5, 404, "etcdserver: requested lease not found"),
            (ApiError::LeaseExists, 9, 400, "etcdserver: lease already exists"),
            (ApiError::LeaseTtlTooLarge, 11, 400, "etcdserver: too large lease TTL"),
            (ApiError::NotLeader, 9, 400, "etcdserver: not leader"),
            (ApiError::NoLeader, 14, 503, "etcdserver: no leader"),
            (ApiError::LeaderChanged, 14, 503, "etcdserver: leader changed"),
            (ApiError::Stopped, 14, 503, "etcdserver: server stopped"),
            (ApiError::Timeout, 14, 503, "etcdserver: request timed out"),
            (
                ApiError::TimeoutWaitApplied,
                14,
                503,
                "etcdserver: request timed out, waiting for the applied index took too long",
            ),
            (ApiError::TooManyRequests, 8, 429, "etcdserver: too many requests"),
            (ApiError::Corrupt, 15, 500, "etcdserver: corrupt cluster"),
            (ApiError::UserEmpty, 3, 400, "etcdserver: user name is empty"),
            (ApiError::RoleEmpty, 3, 400, "etcdserver: role name is empty"),
            (ApiError::PermissionNotGiven, 3, 400, "etcdserver: permission not given"),
            (ApiError::InvalidAuthManagement, 3, 400, "etcdserver: invalid auth management"),
            (ApiError::AuthFailed, 3, 400, "etcdserver: authentication failed, invalid user ID or password"),
            (ApiError::AuthOldRevision, 3, 400, "etcdserver: revision of auth store is old"),
            (ApiError::PermissionDenied, 7, 403, "etcdserver: permission denied"),
            (ApiError::RootUserNotExist, 9, 400, "etcdserver: root user does not exist"),
            (ApiError::RootRoleNotExist, 9, 400, "etcdserver: root user does not have root role"),
            (ApiError::UserExists, 9, 400, "etcdserver: user name already exists"),
            (ApiError::UserNotFound, 9, 400, "etcdserver: user name not found"),
            (ApiError::RoleExists, 9, 400, "etcdserver: role name already exists"),
            (ApiError::RoleNotFound, 9, 400, "etcdserver: role name not found"),
            (ApiError::RoleNotGranted, 9, 400, "etcdserver: role is not granted to the user"),
            (ApiError::PermissionNotGranted, 9, 400, "etcdserver: permission is not granted to the role"),
            (ApiError::AuthNotEnabled, 9, 400, "etcdserver: authentication is not enabled"),
            (ApiError::InvalidAuthToken, 16, 401, "etcdserver: invalid auth token"),
            (ApiError::NoPasswordUser, 3, 400, "auth: authentication failed, password was given for no password user"),
            (ApiError::PasswordTooLong, 3, 400, "bcrypt: password length exceeds 72 bytes"),
            (ApiError::VerifyOnlyKey, 9, 400, "auth: token signing attempted with verify-only key"),
            (ApiError::DeadlineExceeded, 4, 504, "context deadline exceeded"),
            (ApiError::MemberUrlsInvalid, 3, 400, "etcdserver: given member URLs are invalid"),
            (ApiError::MemberNotFound, 5, 404, "etcdserver: member not found"),
            (ApiError::MemberExists, 9, 400, "etcdserver: member ID already exist"),
            (ApiError::PeerUrlExists, 9, 400, "etcdserver: Peer URLs already exists"),
            (ApiError::TooManyLearners, 9, 400, "etcdserver: too many learner members in cluster"),
            (ApiError::MemberNotLearner, 9, 400, "etcdserver: can only promote a learner member"),
            (
                ApiError::LearnerNotReady,
                9,
                400,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            (
                ApiError::NotEnoughStartedMembers,
                9,
                400,
                "etcdserver: re-configuration failed due to not enough started members",
            ),
            (
                ApiError::SeveralVotersUnsupported,
                9,
                400,
                "etcdserver: a cluster of several voting members is not supported yet: add a learner",
            ),
            (ApiError::BadLeaderTransferee, 9, 400, "etcdserver: bad leader transferee"),
            (ApiError::DowngradeVersionFormat, 3, 400, "etcdserver: wrong downgrade target version format"),
            (ApiError::DowngradeVersionInvalid, 3, 400, "etcdserver: invalid downgrade target version"),
            (ApiError::DowngradeInProgress, 9, 400, "etcdserver: cluster has a downgrade job in progress"),
            (ApiError::UnknownMethod, 3, 400, "etcdserver: unknown method"),
            (ApiError::BackendBusy, 8, 429, "etcdserver: too many requests wait for the backend file"),
            (ApiError::DefragmentFailed("x".into()), 8, 429, "etcdserver: defragmentation failed: x"),
            (ApiError::Malformed("bad \"x\"".into()), 3, 400, "bad \\\"x\\\""),
            (ApiError::NoSuchPath, 5, 404, "Not Found"),
            (ApiError::MethodNotAllowed, 12, 501, "Method Not Allowed"),
            (ApiError::Unimplemented("x".into()), 12, 501, "x"),
            (ApiError::Canceled, 1, 499, "context canceled"),
            (ApiError::NoElectionLeader, 5, 404, "election: no leader"),
            (ApiError::NotElectionLeader, 9, 400, "election: not leader"),
            (ApiError::LeaderKeyNotProvided, 3, 400, "\\\"leader\\\" field must be provided"),
            (ApiError::LockSessionExpired, 9, 400, "mutex: session is expired"),
            (ApiError::CandidateSessionExpired, 9, 400, "election: session is expired"),
            (ApiError::WatchRefused("x".into()), 7, 403, "x"),
            (ApiError::DataLoss("x".into()), 15, 500, "etcdserver: x"),
            (ApiError::Internal("x".into()), 13, 500, "etcdserver: internal error: x"),
        ]
    }

    #[test]
    fn the_table_is_whole() {
        let texts = include_str!("../error.rs").matches("    #[error(").count();
        assert_eq!(table().len(), texts);
    }

    /// etcd blames itself for some of these: it answers with code 2, which is status 500.
    #[test]
    fn what_a_client_did_wrong_is_no_fault_of_the_member() {
        let faults: Vec<ApiError> =
            table().into_iter().filter(|(_, _, status, _)| *status == 500).map(|(error, ..)| error).collect();
        assert!(matches!(faults[..], [ApiError::Corrupt, ApiError::DataLoss(_), ApiError::Internal(_)]), "{faults:?}");
    }

    #[test]
    fn every_error_has_its_status_and_both_dialects() {
        for (error, code, status, message) in table() {
            assert_eq!(status_of(&error).as_u16(), status, "{error}");
            let body = String::from_utf8(error_body(&error)).unwrap();
            let more = if status == 410 { r#","compact_revision":"7""# } else { "" };
            assert_eq!(body, format!(r#"{{"error":"{message}","code":{code},"message":"{message}"{more}}}"#));
            let mut line = Vec::new();
            write_stream_error(&mut line, &error);
            let (status, reason) = (error.code().http_status(), error.code().http_status_text());
            assert_eq!(
                String::from_utf8(line).unwrap(),
                format!(
                    "{{\"error\":{{\"grpc_code\":{code},\"http_code\":{status},\"message\":\"{message}\",\
                     \"http_status\":\"{reason}\",\"code\":{code}}}}}"
                )
            );
        }
    }
}
