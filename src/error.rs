//! The one table from what can go wrong for a client to its gRPC code, HTTP status and text.
//!
//! The texts are etcd's, to the letter: clients match on them. Rooms below `service` have error types of their own
//! for what is not a client's business; what reaches a client is always an [`ApiError`].

use thiserror::Error;

/// A gRPC status code. The numbers are gRPC's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are gRPC's")]
pub enum Code {
    Ok = 0,
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Every code, in the order of their numbers.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Canceled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code's number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The HTTP status a gateway answers with, as grpc-gateway v2 maps it.
    pub fn http_status(self) -> u16 {
        match self {
            Code::Ok => 200,
            Code::Canceled => 499,
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
            Code::DeadlineExceeded => 504,
            Code::NotFound => 404,
            Code::AlreadyExists | Code::Aborted => 409,
            Code::PermissionDenied => 403,
            Code::Unauthenticated => 401,
            Code::ResourceExhausted => 429,
            Code::Unimplemented => 501,
            Code::Unavailable => 503,
            Code::Unknown | Code::Internal | Code::DataLoss => 500,
        }
    }

    /// The HTTP status' reason phrase, as Go's net/http names it (stream errors carry it as `http_status`).
    pub fn http_status_text(self) -> &'static str {
        match self.http_status() {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            409 => "Conflict",
            429 => "Too Many Requests",
            499 => "",
            501 => "Not Implemented",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            _ => "Internal Server Error",
        }
    }

    /// The code's name, as `grpc_code` labels of metrics spell it.
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Canceled => "Canceled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
            Code::Unauthenticated => "Unauthenticated",
        }
    }
}

/// What a client can be told. The `Display` text is what goes on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApiError {
    /// A range, put, delete or compare without a key.
    #[error("etcdserver: key is not provided")]
    KeyNotProvided,
    /// `ignore_value` or `ignore_lease` on a missing key, or a request op with no member set.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// `ignore_value` together with a value.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// `ignore_lease` together with a lease.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// More compares or operations in one txn than `max-txn-ops`.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// One key put twice, or put and deleted, in one txn.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// A sort order or target outside its enum.
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    /// A proposal larger than `max-request-bytes` once encoded.
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    /// A request body larger than any request can be; `max` is the limit in bytes, `received` what came.
    #[error("grpc: received message larger than max ({received} vs. {max})")]
    MessageTooLarge {
        /// Bytes received, or announced.
        received: u64,
        /// The most that is taken.
        max: u64,
    },
    /// A revision below the last compaction.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The page after an earlier one was asked for, whose revision is below the last compaction.
    #[error("etcdserver: mvcc: required revision has been compacted: begin the list anew")]
    PageExpired {
        /// The first revision that can be read.
        compact_revision: i64,
    },
    /// A token for a page that is none, or was made for another request or by another cluster.
    #[error(
        "etcdserver: the continue token was not made for this request: range, order, filters and revision must be those of the first page"
    )]
    PageTokenInvalid,
    /// A revision above the store's.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// The quota is used up.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// A file cannot grow; the text says which, and what the system says.
    #[error(
        "etcdserver: the disk is full: {0}; until there is room, writes that grow are refused: make room on the disk, or \
         delete keys and compact"
    )]
    DiskFull(String),
    /// No lease of that id.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// A grant with an id that is in use.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// A TTL over nine billion seconds.
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// A lease request reached a member that is not the leader.
    #[error("etcdserver: not leader")]
    NotLeader,
    /// The cluster has no leader.
    #[error("etcdserver: no leader")]
    NoLeader,
    /// The leader changed while the request was in flight; its outcome is unknown.
    #[error("etcdserver: leader changed")]
    LeaderChanged,
    /// The member is going down.
    #[error("etcdserver: server stopped")]
    Stopped,
    /// The request's outcome was not known in time.
    #[error("etcdserver: request timed out")]
    Timeout,
    /// A linearizable read waited too long for the applied index.
    #[error("etcdserver: request timed out, waiting for the applied index took too long")]
    TimeoutWaitApplied,
    /// Apply lags too far behind commit, or too much waits to be written: try again later.
    #[error("etcdserver: too many requests")]
    TooManyRequests,
    /// The CORRUPT alarm is raised.
    #[error("etcdserver: corrupt cluster")]
    Corrupt,
    /// Nobody: authentication is on and the request names no user, or a user without a name was to be added.
    #[error("etcdserver: user name is empty")]
    UserEmpty,
    /// A role without a name was to be added.
    #[error("etcdserver: role name is empty")]
    RoleEmpty,
    /// A grant to a role that says nothing of what is granted.
    #[error("etcdserver: permission not given")]
    PermissionNotGiven,
    /// A change that would lock everybody out, or a range that is none.
    #[error("etcdserver: invalid auth management")]
    InvalidAuthManagement,
    /// No such user, or another password.
    #[error("etcdserver: authentication failed, invalid user ID or password")]
    AuthFailed,
    /// Users or roles have changed since the request's user was looked at.
    #[error("etcdserver: revision of auth store is old")]
    AuthOldRevision,
    /// The user may not do that.
    #[error("etcdserver: permission denied")]
    PermissionDenied,
    /// Authentication needs a user `root`.
    #[error("etcdserver: root user does not exist")]
    RootUserNotExist,
    /// Authentication needs a user `root` with the role `root`.
    #[error("etcdserver: root user does not have root role")]
    RootRoleNotExist,
    /// A user of that name is there.
    #[error("etcdserver: user name already exists")]
    UserExists,
    /// No user of that name.
    #[error("etcdserver: user name not found")]
    UserNotFound,
    /// A role of that name is there.
    #[error("etcdserver: role name already exists")]
    RoleExists,
    /// No role of that name.
    #[error("etcdserver: role name not found")]
    RoleNotFound,
    /// The user does not have the role.
    #[error("etcdserver: role is not granted to the user")]
    RoleNotGranted,
    /// The role does not have the permission.
    #[error("etcdserver: permission is not granted to the role")]
    PermissionNotGranted,
    /// A token was asked for while authentication is off.
    #[error("etcdserver: authentication is not enabled")]
    AuthNotEnabled,
    /// A token nobody knows (any more).
    #[error("etcdserver: invalid auth token")]
    InvalidAuthToken,
    /// A password for a user that has none and logs in by certificate only.
    #[error("auth: authentication failed, password was given for no password user")]
    NoPasswordUser,
    /// A password longer than bcrypt takes.
    #[error("bcrypt: password length exceeds 72 bytes")]
    PasswordTooLong,
    /// This member can check tokens and not make them: it has no private key.
    #[error("auth: token signing attempted with verify-only key")]
    VerifyOnlyKey,
    /// The client's own deadline (`Grpc-Timeout`) passed.
    #[error("context deadline exceeded")]
    DeadlineExceeded,
    /// Addresses of a member that are no addresses.
    #[error("etcdserver: given member URLs are invalid")]
    MemberUrlsInvalid,
    /// No such member, or one that was removed.
    #[error("etcdserver: member not found")]
    MemberNotFound,
    /// A member's id is taken.
    #[error("etcdserver: member ID already exist")]
    MemberExists,
    /// Another member has this address.
    #[error("etcdserver: Peer URLs already exists")]
    PeerUrlExists,
    /// There are as many learners as there may be.
    #[error("etcdserver: too many learner members in cluster")]
    TooManyLearners,
    /// A member that votes was to be promoted.
    #[error("etcdserver: can only promote a learner member")]
    MemberNotLearner,
    /// A learner that is not as far as the leader was to be promoted.
    #[error("etcdserver: can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// Without the member to be removed too few would be left to decide anything.
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughStartedMembers,
    /// A second member that votes was to be added.
    #[error("etcdserver: a cluster of several voting members is not supported yet: add a learner")]
    SeveralVotersUnsupported,
    /// Leadership was to go to who cannot lead.
    #[error("etcdserver: bad leader transferee")]
    BadLeaderTransferee,
    /// A version to downgrade to that is no version.
    #[error("etcdserver: wrong downgrade target version format")]
    DowngradeVersionFormat,
    /// A version nobody can downgrade to from here.
    #[error("etcdserver: invalid downgrade target version")]
    DowngradeVersionInvalid,
    /// A downgrade was begun already.
    #[error("etcdserver: cluster has a downgrade job in progress")]
    DowngradeInProgress,
    /// An action outside its enum.
    #[error("etcdserver: unknown method")]
    UnknownMethod,
    /// As much waits for the backend file as may wait.
    #[error("etcdserver: too many requests wait for the backend file")]
    BackendBusy,
    /// There is no room for a compacted copy of the backend file. The file is as it was.
    #[error("etcdserver: defragmentation failed: {0}")]
    DefragmentFailed(String),
    /// The body is not what the contract says; the text says where.
    #[error("{0}")]
    Malformed(String),
    /// No such path.
    #[error("Not Found")]
    NoSuchPath,
    /// The path exists, but not with this method.
    #[error("Method Not Allowed")]
    MethodNotAllowed,
    /// A watch stream's client asked for the impossible; the text says what.
    #[error("{0}")]
    Unimplemented(String),
    /// A client that waited has gone away.
    #[error("context canceled")]
    Canceled,
    /// An election in which nobody leads.
    #[error("election: no leader")]
    NoElectionLeader,
    /// Who does not lead an election, or no longer, wanted to proclaim something.
    #[error("election: not leader")]
    NotElectionLeader,
    /// Nobody's leadership was to be used, or given up.
    #[error("\"leader\" field must be provided")]
    LeaderKeyNotProvided,
    /// The lease of one who waited for a lock ran out.
    #[error("mutex: session is expired")]
    LockSessionExpired,
    /// The lease of a candidate ran out. etcd tells it that it was elected.
    #[error("election: session is expired")]
    CandidateSessionExpired,
    /// The caller may not, or may no longer, watch the keys it waits for; the text says why.
    #[error("{0}")]
    WatchRefused(String),
    /// Data on disk could not be read; the text names the place. The member's log says more.
    #[error("etcdserver: {0}")]
    DataLoss(String),
    /// A fault of ours; the text is for the operator.
    #[error("etcdserver: internal error: {0}")]
    Internal(String),
}

impl ApiError {
    /// The HTTP status a call that failed is answered with: that of the code, but for what HTTP has a word of its own.
    pub fn http_status(&self) -> u16 {
        match self {
            ApiError::PageExpired { .. } => 410,
            _ => self.code().http_status(),
        }
    }

    /// The gRPC code that goes with the text.
    pub fn code(&self) -> Code {
        match self {
            ApiError::KeyNotProvided
            | ApiError::KeyNotFound
            | ApiError::ValueProvided
            | ApiError::LeaseProvided
            | ApiError::TooManyOps
            | ApiError::DuplicateKey
            | ApiError::InvalidSortOption
            | ApiError::RequestTooLarge
            | ApiError::MemberUrlsInvalid
            | ApiError::DowngradeVersionFormat
            | ApiError::DowngradeVersionInvalid
            | ApiError::UserEmpty
            | ApiError::RoleEmpty
            | ApiError::PermissionNotGiven
            | ApiError::InvalidAuthManagement
            | ApiError::AuthFailed
            | ApiError::AuthOldRevision
            | ApiError::PageTokenInvalid
            // etcd has no code for these four, and with that HTTP 500, as if they were its own faults; so it is with all
            // that are marked so below.
            | ApiError::NoPasswordUser
            | ApiError::PasswordTooLong
            | ApiError::UnknownMethod
            | ApiError::LeaderKeyNotProvided
            | ApiError::Malformed(_) => Code::InvalidArgument,
            ApiError::MessageTooLarge { .. } | ApiError::NoSpace => Code::ResourceExhausted,
            ApiError::Compacted
            | ApiError::PageExpired { .. }
            | ApiError::FutureRevision
            | ApiError::LeaseTtlTooLarge => Code::OutOfRange,
            ApiError::LeaseNotFound | ApiError::NoSuchPath | ApiError::MemberNotFound => Code::NotFound,
            // No code of etcd's.
            ApiError::NoElectionLeader => Code::NotFound,
            ApiError::MemberExists
            | ApiError::PeerUrlExists
            | ApiError::TooManyLearners
            | ApiError::MemberNotLearner
            | ApiError::LearnerNotReady
            | ApiError::SeveralVotersUnsupported
            | ApiError::BadLeaderTransferee
            | ApiError::DowngradeInProgress => Code::FailedPrecondition,
            // No codes of etcd's, though it means this one for the first.
            ApiError::NotEnoughStartedMembers
            | ApiError::VerifyOnlyKey
            | ApiError::NotElectionLeader
            | ApiError::LockSessionExpired
            | ApiError::CandidateSessionExpired => Code::FailedPrecondition,
            ApiError::BackendBusy | ApiError::DefragmentFailed(_) => Code::ResourceExhausted,
            ApiError::LeaseExists
            | ApiError::NotLeader
            | ApiError::RootUserNotExist
            | ApiError::RootRoleNotExist
            | ApiError::UserExists
            | ApiError::UserNotFound
            | ApiError::RoleExists
            | ApiError::RoleNotFound
            | ApiError::RoleNotGranted
            | ApiError::PermissionNotGranted
            | ApiError::AuthNotEnabled => Code::FailedPrecondition,
            ApiError::PermissionDenied | ApiError::WatchRefused(_) => Code::PermissionDenied,
            ApiError::InvalidAuthToken => Code::Unauthenticated,
            ApiError::NoLeader
            | ApiError::LeaderChanged
            // It goes by itself, and another member may have room: clients that try again, or elsewhere, do well.
            | ApiError::DiskFull(_)
            | ApiError::Stopped
            | ApiError::Timeout
            | ApiError::TimeoutWaitApplied => Code::Unavailable,
            // etcd means ResourceExhausted here, but its mapping table misses it and clients see Unknown (HTTP 500).
            // A client that is told 429 backs off; one that is told 500 gives up or fails over for nothing.
            ApiError::TooManyRequests => Code::ResourceExhausted,
            ApiError::Corrupt | ApiError::DataLoss(_) => Code::DataLoss,
            ApiError::DeadlineExceeded => Code::DeadlineExceeded,
            ApiError::MethodNotAllowed | ApiError::Unimplemented(_) => Code::Unimplemented,
            ApiError::Canceled => Code::Canceled,
            ApiError::Internal(_) => Code::Internal,
        }
    }
}
