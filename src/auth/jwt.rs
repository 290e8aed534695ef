//! Signed tokens: they say who their user is, at which auth revision, and until when, and no member has to remember them.

use std::{sync::Arc, time::Duration};

use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use ring::signature::KeyPair as _;
use serde::{Deserialize, Serialize};

use super::{
    Identity,
    ring_provider::{self, KeyPair},
};
use crate::{clock::Clock, error::ApiError};

/// What a token says. The names are etcd's.
#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    username: String,
    revision: u64,
    /// Seconds of the Unix epoch.
    exp: u64,
}

/// Makes and checks signed tokens.
pub struct JwtTokens {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    algorithm: Algorithm,
    verifying: DecodingKey,
    signing: Option<EncodingKey>,
    validation: Validation,
}

impl JwtTokens {
    /// `method` as JWTs spell it. Keys are PEM (private ones PKCS#8, or PKCS#1 for RSA); for HMAC the one that is given is
    /// the secret. Without a private key tokens are only checked; a public key need not be given beside a private one.
    /// An error says what is wrong with which key.
    pub fn new(
        clock: Arc<dyn Clock>,
        method: &str,
        public_key: Option<&[u8]>,
        private_key: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<JwtTokens, String> {
        ring_provider::install();
        let algorithm: Algorithm = method.parse().map_err(|_| format!("no known sign-method: {method:?}"))?;
        let signing = private_key.map(|key| private(algorithm, key)).transpose();
        let signing = signing.map_err(|error| format!("priv-key: {error}"))?;
        let verifying = match (public_key, &signing) {
            (Some(key), _) => public(algorithm, key).map_err(|error| format!("pub-key: {error}"))?,
            (None, Some(signing)) => public_of(algorithm, signing).map_err(|error| format!("priv-key: {error}"))?,
            (None, None) => return Err("neither pub-key nor priv-key is given".to_owned()),
        };
        let mut validation = Validation::new(algorithm);
        // When a token ends is for our clock to say; it is checked below.
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        let tokens = JwtTokens { clock, ttl, algorithm, verifying, signing, validation };
        tokens.check_keys_belong_together()?;
        Ok(tokens)
    }

    fn check_keys_belong_together(&self) -> Result<(), String> {
        if self.signing.is_none() {
            return Ok(());
        }
        let token = self.sign("", 0).map_err(|error| format!("priv-key: {error}"))?;
        let checked = decode::<Claims>(&token, &self.verifying, &self.validation);
        checked.map(drop).map_err(|_| "pub-key and priv-key do not belong together".to_owned())
    }

    /// A token for a user whose password was right at an auth revision.
    pub fn sign(&self, user: &str, revision: u64) -> Result<String, ApiError> {
        let key = self.signing.as_ref().ok_or(ApiError::VerifyOnlyKey)?;
        let exp = (self.clock.unix_time() + self.ttl).as_secs();
        let claims = Claims { username: user.to_owned(), revision, exp };
        encode(&Header::new(self.algorithm), &claims, key)
            .map_err(|error| ApiError::Internal(format!("a token could not be signed: {error}")))
    }

    /// Whom a token stands for, as far as the token itself can tell.
    pub(super) fn identify(&self, token: &str) -> Result<Identity, ApiError> {
        let claims = decode::<Claims>(token, &self.verifying, &self.validation);
        let claims = claims.map_err(|_| ApiError::InvalidAuthToken)?.claims;
        if claims.username.is_empty() || claims.exp <= self.clock.unix_time().as_secs() {
            return Err(ApiError::InvalidAuthToken);
        }
        Ok(Identity { user: claims.username, revision: claims.revision })
    }

    /// The same, for the fuzz targets.
    #[cfg(fuzzing)]
    #[doc(hidden)]
    pub fn identify_any(&self, token: &str) -> Result<Identity, ApiError> {
        self.identify(token)
    }
}

type Keyed<T> = Result<T, jsonwebtoken::errors::Error>;

fn private(algorithm: Algorithm, key: &[u8]) -> Keyed<EncodingKey> {
    match algorithm.family() {
        AlgorithmFamily::Rsa => EncodingKey::from_rsa_pem(key),
        AlgorithmFamily::Ec => EncodingKey::from_ec_pem(key),
        AlgorithmFamily::Ed => EncodingKey::from_ed_pem(key),
        AlgorithmFamily::Hmac => EncodingKey::from_secret(key),
    }
}

fn public(algorithm: Algorithm, key: &[u8]) -> Keyed<DecodingKey> {
    match algorithm.family() {
        AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(key),
        AlgorithmFamily::Ec => DecodingKey::from_ec_pem(key),
        AlgorithmFamily::Ed => DecodingKey::from_ed_pem(key),
        AlgorithmFamily::Hmac => DecodingKey::from_secret(key),
    }
}

/// The other half of a private key.
fn public_of(algorithm: Algorithm, signing: &EncodingKey) -> Keyed<DecodingKey> {
    Ok(match KeyPair::new(algorithm, signing.as_bytes())? {
        KeyPair::Rsa(_, pair) => DecodingKey::from_rsa_der(pair.public_key().as_ref()),
        KeyPair::Ecdsa(pair) => DecodingKey::from_ec_der(pair.public_key().as_ref()),
        KeyPair::Ed25519(pair) => DecodingKey::from_ed_der(pair.public_key().as_ref()),
        KeyPair::Hmac(_) => DecodingKey::from_secret(signing.as_bytes())?,
    })
}

impl std::fmt::Debug for JwtTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtTokens").field("algorithm", &self.algorithm).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
