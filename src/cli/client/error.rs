//! Why a member did not give what was asked for.

use std::{io, time::Duration};

use serde::Deserialize;
use thiserror::Error;

/// Why a member did not give what was asked for.
#[derive(Debug, Error)]
pub(in crate::cli) enum ClientError {
    /// Flags that cannot be.
    #[error("{0}")]
    Flags(String),
    /// The network.
    #[error("the member cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// HTTP went wrong.
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    /// The member said no.
    #[error("the member answered {status}: {message}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The member said something that is no answer to the request.
    #[error("the member's answer cannot be read: {0}")]
    Answer(String),
    /// Nothing came for too long.
    #[error("{authority} was silent for {patience:?}; see --command-timeout")]
    TooSlow {
        /// Whom we waited for.
        authority: String,
        /// How long.
        patience: Duration,
    },
}

/// The body of a refusal, as far as it is of interest; also what a stream says when it fails.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct StatusBody {
    /// Its words.
    #[serde(default)]
    pub(in crate::cli) message: String,
}
