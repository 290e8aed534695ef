//! The cryptography behind signed tokens: the JWT library's seam, filled with ring, which TLS stands on too. (Its own two
//! fillings are a second C library, and an RSA implementation whose timing tells of the key.)

use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature,
};
use ring::{
    hmac,
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
        ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
        RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
        RSA_PSS_SHA512, RsaEncoding, UnparsedPublicKey, VerificationAlgorithm,
    },
};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Makes ring the library's cryptography, for the whole process.
pub(super) fn install() {
    // It is there already if another member of this process came first; nobody installs another one.
    let _ = PROVIDER.install_default();
}

/// A private key, ready to sign.
pub(super) enum KeyPair {
    Rsa(&'static dyn RsaEncoding, Box<rsa::KeyPair>),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Hmac(hmac::Key),
}

impl KeyPair {
    /// A key of the kind an algorithm needs: PKCS#8, PKCS#1 for RSA, or the secret itself for HMAC.
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<KeyPair, ErrorKind> {
        let ecdsa = |parameters| {
            let key = EcdsaKeyPair::from_pkcs8(parameters, key, &SystemRandom::new());
            key.map(KeyPair::Ecdsa).map_err(|_| ErrorKind::InvalidEcdsaKey)
        };
        match algorithm {
            Algorithm::ES256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::ES384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::EdDSA => {
                let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key);
                key.map(KeyPair::Ed25519).map_err(|_| ErrorKind::InvalidEddsaKey)
            }
            algorithm => match (hmac_algorithm(algorithm), rsa_encoding(algorithm)) {
                (Some(hash), _) => Ok(KeyPair::Hmac(hmac::Key::new(hash, key))),
                (None, Some(encoding)) => {
                    let pair = rsa::KeyPair::from_pkcs8(key).or_else(|_| rsa::KeyPair::from_der(key));
                    let pair = pair.map_err(|error| ErrorKind::InvalidRsaKey(error.to_string()))?;
                    Ok(KeyPair::Rsa(encoding, Box::new(pair)))
                }
                (None, None) => Err(ErrorKind::InvalidAlgorithm),
            },
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, ring::error::Unspecified> {
        let random = SystemRandom::new();
        match self {
            KeyPair::Rsa(encoding, pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature)?;
                Ok(signature)
            }
            KeyPair::Ecdsa(pair) => Ok(pair.sign(&random, message)?.as_ref().to_vec()),
            KeyPair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            KeyPair::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
        }
    }
}

fn hmac_algorithm(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::HS256 => Some(hmac::HMAC_SHA256),
        Algorithm::HS384 => Some(hmac::HMAC_SHA384),
        Algorithm::HS512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

fn rsa_encoding(algorithm: Algorithm) -> Option<&'static dyn RsaEncoding> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_SHA512),
        _ => None,
    }
}

/// How a signature made with a private key is checked; `None` where both sides have the same secret.
fn verification(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Some(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ED25519),
        _ => None,
    }
}

struct Signer {
    algorithm: Algorithm,
    pair: KeyPair,
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    let pair = KeyPair::new(*algorithm, key.as_bytes())?;
    Ok(Box::new(Signer { algorithm: *algorithm, pair }))
}

impl signature::Signer<Vec<u8>> for Signer {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        self.pair.sign(message).map_err(|_| signature::Error::new())
    }
}

impl JwtSigner for Signer {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

struct Verifier {
    algorithm: Algorithm,
    key: Vec<u8>,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(Verifier { algorithm: *algorithm, key: key.try_get_as_bytes()?.to_vec() }))
}

impl signature::Verifier<Vec<u8>> for Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (verification(self.algorithm), hmac_algorithm(self.algorithm)) {
            (Some(verification), _) => UnparsedPublicKey::new(verification, &self.key).verify(message, signature),
            (None, Some(hash)) => hmac::verify(&hmac::Key::new(hash, &self.key), message, signature),
            (None, None) => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Verifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
