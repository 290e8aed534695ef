//! How messages look as JSON: proto3's mapping, as etcd's gateway speaks it.
//!
//! One scanner ([`scan`]) and one set of scalar rules ([`scalar`]) lie under two readers: the hand-written one for the
//! hot requests ([`read`]) and the one that follows the schema ([`generic`]). Answers likewise have hand-written writers
//! ([`write`]) and the generic one. Property tests hold the pairs together: same inputs, same values, same bytes.
//! [`split`] cuts a stream of JSON values into its values. Nothing here knows HTTP or what the messages mean.

pub(super) mod generic;
pub(super) mod read;
pub(super) mod scalar;
pub(super) mod scan;
pub(super) mod split;
pub(super) mod write;

#[cfg(test)]
mod tests;

use crate::error::ApiError;

/// Objects and arrays inside each other. A nested txn takes three of these and two protobuf messages a level; protobuf
/// decoders, the log's among them, stop at 100 messages, so what passes here can always be read back from the log.
pub(super) const DEPTH_MAX_LEVELS: u32 = 120;

/// Where a JSON text is not what the contract says, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonError {
    /// Offset in the text, in bytes.
    pub(super) at_byte: usize,
    /// What is wrong there.
    pub(super) what: String,
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> ApiError {
        ApiError::Malformed(format!("malformed request: {} at byte {}", error.what, error.at_byte))
    }
}
