//! Who asks, as far as the transport knows, and whom that makes them.

use super::Core;
use crate::{error::ApiError, proto::revgatepb::RequestHeader};

/// What a transport knows of the client behind a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The token that came with the request, without a scheme.
    pub token: Option<String>,
    /// The common name of the client's certificate, if the connection was made with one that was verified.
    pub certificate_name: Option<String>,
}

impl Core {
    /// Whom a caller is taken for. Without authentication everybody is nobody.
    pub(super) fn identify(&self, _caller: &Caller) -> Result<Option<RequestHeader>, ApiError> {
        Ok(None)
    }
}
