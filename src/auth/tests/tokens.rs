//! Tokens of both kinds: how they begin, whom they stand for, when they end.

use std::{sync::Arc, time::Duration};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
        Ed25519KeyPair,
    },
};
use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};

use super::{Rig, TTL};
use crate::{
    auth::{Identity, JwtTokens, Tokens},
    clock::ManualClock,
    error::ApiError,
};

fn give(rig: &Rig, user: &str, token: &str) {
    rig.store.assign_token(user, token, rig.store.revision()).unwrap();
}

fn user_of(rig: &Rig, token: &str) -> Result<String, ApiError> {
    rig.store.identify(Some(token), None).map(|identity| identity.user)
}

#[test]
fn a_simple_token_slides_and_then_ends() {
    let rig = Rig::enabled();
    give(&rig, "ann", "t.1");
    for _ in 0..3 {
        rig.clock.advance(TTL - Duration::from_secs(1));
        assert_eq!(user_of(&rig, "t.1").unwrap(), "ann");
    }
    rig.clock.advance(TTL);
    assert_eq!(user_of(&rig, "t.1"), Err(ApiError::InvalidAuthToken));
}

#[test]
fn a_simple_token_is_always_of_the_newest_revision() {
    let mut rig = Rig::enabled();
    give(&rig, "ann", "t.1");
    rig.add_role("another").unwrap();
    let identity = rig.store.identify(Some("t.1"), None).unwrap();
    assert_eq!(identity, Identity { user: "ann".into(), revision: rig.store.revision() });
}

#[test]
fn simple_tokens_end_with_the_password_the_user_and_authentication() {
    let mut rig = Rig::enabled();
    let both = |rig: &Rig| (user_of(rig, "a.1").is_ok(), user_of(rig, "b.1").is_ok());
    give(&rig, "ann", "a.1");
    give(&rig, "bob", "b.1");
    rig.change_password("ann").unwrap();
    assert_eq!(both(&rig), (false, true));
    rig.delete_user("bob").unwrap();
    assert_eq!(both(&rig), (false, false));
    give(&rig, "ann", "a.1");
    rig.keep(|store| Ok(store.disable())).unwrap();
    rig.keep(|store| store.enable()).unwrap();
    assert_eq!(both(&rig), (false, false));
}

#[test]
fn no_token_for_a_password_that_was_looked_at_before_a_change() {
    let mut rig = Rig::enabled();
    let checked_at = rig.store.credentials("ann").unwrap().unwrap().revision;
    rig.change_password("ann").unwrap();
    assert_eq!(rig.store.assign_token("ann", "t.1", checked_at), Err(ApiError::AuthOldRevision));
    assert_eq!(rig.store.assign_token("eve", "t.1", rig.store.revision()), Err(ApiError::AuthFailed));
    rig.keep(|store| Ok(store.disable())).unwrap();
    assert_eq!(rig.store.assign_token("ann", "t.1", rig.store.revision()), Err(ApiError::AuthNotEnabled));
    assert_eq!(rig.store.credentials("ann"), Err(ApiError::AuthNotEnabled));
}

/// A pair of PEM texts: public, private.
fn rsa_keys() -> (String, String) {
    let private = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
    let public = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
    (public, private.to_pkcs8_pem(LineEnding::LF).unwrap().to_string())
}

fn pem(kind: &str, der: &[u8]) -> String {
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", base64_simd::STANDARD.encode_to_string(der))
}

fn ecdsa_key(algorithm: &'static EcdsaSigningAlgorithm) -> String {
    pem("PRIVATE KEY", EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap().as_ref())
}

fn jwt(method: &str, public: Option<&str>, private: Option<&str>) -> (Arc<ManualClock>, JwtTokens) {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1_700_000_000));
    let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let tokens =
        JwtTokens::new(clock.clone(), method, bytes(public).as_deref(), bytes(private).as_deref(), TTL).unwrap();
    (clock, tokens)
}

fn with_jwt() -> Rig {
    let (clock, tokens) = jwt("HS256", None, Some("a secret of some length"));
    let mut rig = Rig::with(Tokens::Jwt(Box::new(tokens)), clock);
    rig.set_up();
    rig
}

fn signed(rig: &Rig, user: &str, revision: u64) -> String {
    match rig.store.tokens() {
        Tokens::Jwt(tokens) => tokens.sign(user, revision).unwrap(),
        Tokens::Simple(_) => unreachable!("these are signed"),
    }
}

#[test]
fn every_method_signs_what_it_checks_and_nothing_else() {
    let (rsa_public, rsa_private) = rsa_keys();
    let ed25519 = pem("PRIVATE KEY", Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref());
    let (p256, p384) = (ecdsa_key(&ECDSA_P256_SHA256_FIXED_SIGNING), ecdsa_key(&ECDSA_P384_SHA384_FIXED_SIGNING));
    let secret = "a secret of some length";
    let keys = [
        ("HS256", None, secret),
        ("HS384", None, secret),
        ("HS512", Some(secret), secret),
        ("RS256", Some(rsa_public.as_str()), rsa_private.as_str()),
        ("RS512", None, &rsa_private),
        ("PS384", Some(&rsa_public), &rsa_private),
        ("ES256", None, &p256),
        ("ES384", None, &p384),
        ("EdDSA", None, &ed25519),
    ];
    let mut before: Option<String> = None;
    for (method, public, private) in keys {
        let (clock, tokens) = jwt(method, public, Some(private));
        let token = tokens.sign("ann", 7).unwrap();
        assert_eq!(tokens.identify(&token), Ok(Identity { user: "ann".into(), revision: 7 }), "{method}");
        for bad in [token.replacen('.', ".A", 1), format!("{token}A"), token[..token.len() - 4].to_owned()] {
            assert_eq!(tokens.identify(&bad), Err(ApiError::InvalidAuthToken), "{method} {bad}");
        }
        if let Some(other) = before {
            assert_eq!(tokens.identify(&other), Err(ApiError::InvalidAuthToken), "{method}");
        }
        clock.advance(TTL - Duration::from_secs(1));
        assert!(tokens.identify(&token).is_ok(), "{method}");
        clock.advance(Duration::from_secs(1));
        assert_eq!(tokens.identify(&token), Err(ApiError::InvalidAuthToken), "{method}: it does not slide");
        before = Some(token);
    }
}

#[test]
fn a_member_with_the_public_key_alone_checks_and_does_not_sign() {
    let (public, private) = rsa_keys();
    let (_, signer) = jwt("RS256", Some(&public), Some(&private));
    let (_, checker) = jwt("RS256", Some(&public), None);
    let token = signer.sign("ann", 3).unwrap();
    assert_eq!(checker.identify(&token).unwrap().user, "ann");
    assert_eq!(checker.sign("ann", 3), Err(ApiError::VerifyOnlyKey));
}

#[test]
fn keys_that_do_not_fit_are_refused_at_once() {
    let (_, private) = rsa_keys();
    let (other_public, _) = rsa_keys();
    let elliptic = ecdsa_key(&ECDSA_P256_SHA256_FIXED_SIGNING);
    for (method, public, private, named) in [
        ("RS256", Some(other_public.as_str()), Some(private.as_str()), "belong together"),
        ("RS256", None, Some(elliptic.as_str()), "priv-key"),
        ("RS256", Some("no pem"), None, "pub-key"),
        ("ES384", None, Some(&elliptic), "priv-key"),
        ("HS256", None, Some(""), "priv-key"),
        ("none", None, Some("x"), "sign-method"),
        ("HS256", None, None, "neither"),
    ] {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let clock = Arc::new(ManualClock::default());
        let outcome = JwtTokens::new(clock, method, bytes(public).as_deref(), bytes(private).as_deref(), TTL);
        let error = outcome.unwrap_err();
        assert!(error.contains(named), "{method}: {error}");
    }
}

#[test]
fn claims_that_are_missing_or_of_another_algorithm_are_no_token() {
    let secret = "a secret of some length";
    let (_, tokens) = jwt("HS256", None, Some(secret));
    let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
    let forge = |algorithm, claims: serde_json::Value| encode(&Header::new(algorithm), &claims, &key).unwrap();
    let whole = serde_json::json!({"username": "ann", "revision": 1, "exp": 1_800_000_000});
    assert!(tokens.identify(&forge(Algorithm::HS256, whole.clone())).is_ok());
    assert!(tokens.identify(&forge(Algorithm::HS384, whole.clone())).is_err(), "not the configured method");
    for missing in ["username", "revision", "exp"] {
        let mut claims = whole.clone();
        claims.as_object_mut().unwrap().remove(missing);
        assert_eq!(tokens.identify(&forge(Algorithm::HS256, claims)), Err(ApiError::InvalidAuthToken), "{missing}");
    }
    let mut nobody = whole;
    nobody["username"] = "".into();
    assert!(tokens.identify(&forge(Algorithm::HS256, nobody)).is_err());
    for text in ["", ".", "..", "a.b.c", "t.1"] {
        assert_eq!(tokens.identify(text), Err(ApiError::InvalidAuthToken));
    }
}

#[test]
fn a_signed_token_is_of_the_revision_it_was_given_at() {
    let mut rig = with_jwt();
    let token = signed(&rig, "ann", rig.store.revision());
    assert!(rig.store.rights(&rig.store.identify(Some(&token), None).unwrap()).is_ok());
    rig.add_role("another").unwrap();
    let old = rig.store.identify(Some(&token), None).unwrap();
    assert_eq!(rig.store.rights(&old).unwrap_err(), ApiError::AuthOldRevision);
    // What needs no permission on keys goes on, as in etcd: a series of changes with one token is possible.
    let root = signed(&rig, "root", 1 + rig.store.revision());
    rig.add_role("one more").unwrap();
    assert!(rig.store.check_admin(&rig.store.identify(Some(&root), None).unwrap().user).is_ok());
}

#[test]
fn a_signed_token_ends_with_the_password_it_was_given_for() {
    let mut rig = with_jwt();
    let given = |rig: &Rig, user: &str| signed(rig, user, rig.store.revision());
    let is_good = |rig: &Rig, token: &str| rig.store.identify(Some(token), None).is_ok();
    let (root, ann) = (given(&rig, "root"), given(&rig, "ann"));
    rig.change_password("root").unwrap();
    assert_eq!((is_good(&rig, &root), is_good(&rig, &ann)), (false, true));
    rig.delete_user("ann").unwrap();
    assert!(!is_good(&rig, &ann));
    rig.add_user("ann").unwrap();
    assert!(!is_good(&rig, &ann), "another ann");
    let root = given(&rig, "root");
    rig.keep(|store| Ok(store.disable())).unwrap();
    rig.keep(|store| store.enable()).unwrap();
    assert!(!is_good(&rig, &root));
}
