//! Who asks, as far as the transport knows, and whom that makes them.

use parking_lot::Mutex;

use super::Core;
use crate::{
    auth::{Identity, Rights},
    error::ApiError,
    metrics::StageTimes,
    proto::revgatepb::RequestHeader,
};

/// What a transport knows of the client behind a request.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The token that came with the request, without a scheme.
    pub token: Option<String>,
    /// The common name of the client's certificate, if the connection was made with one that was verified.
    pub certificate_name: Option<String>,
    /// Whether the client came where only operators are let: it may look at how the member does, whoever it is.
    pub is_operator: bool,
    last_write: LastWrite,
}

/// How the last write went that was made in a caller's name. No part of who that is: any two are alike.
#[derive(Default)]
struct LastWrite(Mutex<Option<Box<StageTimes>>>);

impl Clone for LastWrite {
    fn clone(&self) -> LastWrite {
        LastWrite(Mutex::new(self.0.lock().clone()))
    }
}

impl PartialEq for LastWrite {
    fn eq(&self, _: &LastWrite) -> bool {
        true
    }
}

impl Eq for LastWrite {}

impl Caller {
    /// Who comes where only operators are let, and need not say who they are.
    pub fn operator() -> Caller {
        Caller { is_operator: true, ..Caller::default() }
    }

    /// A client with this token and this certificate.
    pub fn new(token: Option<String>, certificate_name: Option<String>) -> Caller {
        Caller { token, certificate_name, ..Caller::default() }
    }

    /// How long the last write made in this name was in each stage of its way; none if there was none. For a request whose
    /// caller is its own, that is the request's.
    pub fn stages(&self) -> Option<StageTimes> {
        self.last_write.0.lock().as_deref().copied()
    }

    /// Notes a write made in this name.
    pub(super) fn note_write(&self, stages: Option<Box<StageTimes>>) {
        *self.last_write.0.lock() = stages;
    }
}

impl std::fmt::Debug for Caller {
    /// A token is as good as a password: it is not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("certificate_name", &self.certificate_name)
            .field("is_operator", &self.is_operator)
            .finish()
    }
}

impl Core {
    /// Whom a caller is taken for: its token's user, or else its certificate's name. Fails for a token nobody knows.
    /// Without authentication everybody is nobody, and tokens are not looked at.
    pub(super) fn identify(&self, caller: &Caller) -> Result<Identity, ApiError> {
        self.state.auth.identify(caller.token.as_deref(), caller.certificate_name.as_deref())
    }

    /// Whether the caller may do what any user may: its name is needed, and no permission.
    pub(super) fn require_user(&self, caller: &Caller) -> Result<(), ApiError> {
        self.state.auth.check_user(&self.identify(caller)?.user)
    }

    /// Whether the caller may do what concerns everybody: only users with the role `root` may.
    pub(super) fn require_admin(&self, caller: &Caller) -> Result<(), ApiError> {
        self.state.auth.check_admin(&self.identify(caller)?.user)
    }

    /// Whether the caller may look at what tells how the member does, and who is connected: operators, and users with the
    /// role `root`. Nothing may be changed on the strength of it.
    pub(super) fn require_observer(&self, caller: &Caller) -> Result<(), ApiError> {
        if caller.is_operator { Ok(()) } else { self.require_admin(caller) }
    }

    /// What the caller may do with keys, for reads that do not go through the log.
    pub(super) fn rights(&self, caller: &Caller) -> Result<KeyRights, ApiError> {
        // Before the look: a change in between must not go unnoticed.
        let changes = self.state.auth.changes();
        let rights = self.state.auth.rights(&self.identify(caller)?)?;
        Ok(KeyRights { rights, changes })
    }

    /// To be asked once a read has its revision: rights that were looked at before may be others by then, and what was
    /// written after they were taken away must not be read with them.
    pub(super) fn still_has(&self, rights: &KeyRights) -> Result<(), ApiError> {
        if self.state.auth.changes() == rights.changes { Ok(()) } else { Err(ApiError::AuthOldRevision) }
    }
}

/// A caller's rights, and when they were looked at.
pub(super) struct KeyRights {
    pub(super) rights: Rights,
    changes: u64,
}

/// A name for a command's header.
pub(super) fn header(identity: Identity) -> RequestHeader {
    RequestHeader { id: 0, username: identity.user, auth_revision: identity.revision }
}
