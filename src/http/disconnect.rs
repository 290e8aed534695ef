//! Why watch streams end, as it is counted.

use crate::{
    error::{ApiError, Code},
    metrics::Metrics,
};

/// Why a watch stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disconnect {
    /// Its client closed it.
    Closed,
    /// The connection ended or broke.
    Gone,
    /// The client did not answer pings.
    Silent,
    /// The client did not read.
    Stalled,
    /// The client said something it cannot say.
    Refused,
    /// The client's own deadline.
    Deadline,
    /// There was no leader for a client that requires one.
    NoLeader,
    /// The member goes down.
    Shutdown,
    /// The member could not go on with it.
    Failed,
}

impl Disconnect {
    /// The reason that goes with a stream's last error.
    pub(super) fn of(error: &ApiError) -> Disconnect {
        match (error, error.code()) {
            (ApiError::NoLeader, _) => Disconnect::NoLeader,
            (ApiError::DeadlineExceeded, _) => Disconnect::Deadline,
            (ApiError::Stopped, _) => Disconnect::Shutdown,
            (_, Code::Internal | Code::DataLoss | Code::Unavailable | Code::Unknown) => Disconnect::Failed,
            _ => Disconnect::Refused,
        }
    }

    pub(super) fn count(self, metrics: &Metrics) {
        metrics.watch_disconnects.with_label_values(&[self.name()]).inc();
    }

    fn name(self) -> &'static str {
        match self {
            Disconnect::Closed => "closed",
            Disconnect::Gone => "gone",
            Disconnect::Silent => "silent",
            Disconnect::Stalled => "stalled",
            Disconnect::Refused => "refused",
            Disconnect::Deadline => "deadline",
            Disconnect::NoLeader => "no_leader",
            Disconnect::Shutdown => "shutdown",
            Disconnect::Failed => "failed",
        }
    }
}
