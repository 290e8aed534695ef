//! What messages with passwords, hashes and tokens in them show of themselves: everything else.

use std::fmt::{Debug, Formatter, Result};

use super::{authpb, etcdserverpb as pb, revgatepb};

impl Debug for authpb::User {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("User").field("name", &self.name).field("roles", &self.roles).finish_non_exhaustive()
    }
}

impl Debug for pb::AuthenticateRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Debug for pb::AuthenticateResponse {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthenticateResponse").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Debug for pb::AuthUserAddRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut shown = f.debug_struct("AuthUserAddRequest");
        shown.field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Debug for pb::AuthUserChangePasswordRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("AuthUserChangePasswordRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Debug for revgatepb::InternalAuthenticateRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("InternalAuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2021-28235: what is shown of a request must not tell its password.
    #[test]
    fn no_debug_output_tells_a_secret() {
        const SECRET: &str = "sesame";
        let secret = || SECRET.to_owned();
        let name = || "ann".to_owned();
        let asked = pb::AuthenticateRequest { name: name(), password: secret() };
        let given = pb::AuthenticateResponse { header: None, token: secret() };
        let added = pb::AuthUserAddRequest {
            name: name(),
            password: secret(),
            hashed_password: secret(),
            ..Default::default()
        };
        let changed = pb::AuthUserChangePasswordRequest { name: name(), password: secret(), hashed_password: secret() };
        let proposed =
            revgatepb::InternalAuthenticateRequest { name: name(), password: secret(), simple_token: secret() };
        let stored = authpb::User { password: SECRET.into(), ..Default::default() };
        let command = revgatepb::InternalRaftRequest {
            request: Some(revgatepb::internal_raft_request::Request::AuthUserAdd(added.clone())),
            ..Default::default()
        };
        let shown = format!("{asked:?} {given:?} {added:?} {changed:?} {proposed:?} {stored:?} {command:?}");
        assert!(shown.contains("ann"), "{shown}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
}
