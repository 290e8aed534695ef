//! What stands for users, as the settings have it: random tokens, or signed ones whose keys are read from their files.

use std::{fs, path::Path, sync::Arc};

use super::ServerError;
use crate::{
    auth::{JwtTokens, SimpleTokens, Tokens},
    clock::Clock,
    config::AuthTokens,
};

pub(super) fn tokens(config: &AuthTokens, clock: &Arc<dyn Clock>) -> Result<Tokens, ServerError> {
    let clock = Arc::clone(clock);
    match config {
        AuthTokens::Simple { ttl } => Ok(Tokens::Simple(SimpleTokens::new(clock, *ttl))),
        AuthTokens::Jwt(jwt) => {
            let read = |path: &Path| {
                fs::read(path).map_err(|error| ServerError::AuthTokens(format!("{}: {error}", path.display())))
            };
            let public_key = jwt.public_key.as_deref().map(read).transpose()?;
            let private_key = jwt.private_key.as_deref().map(read).transpose()?;
            JwtTokens::new(clock, &jwt.sign_method, public_key.as_deref(), private_key.as_deref(), jwt.ttl)
                .map(|tokens| Tokens::Jwt(Box::new(tokens)))
                .map_err(ServerError::AuthTokens)
        }
    }
}
