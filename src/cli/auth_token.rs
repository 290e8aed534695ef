//! The flag `--auth-token`: "simple", or "jwt" and what signed tokens need to know.

use std::{path::PathBuf, time::Duration};

use super::duration::parse_duration;
use crate::config::{AuthTokens, JwtConfig};

/// How long a signed token is good unless it is said.
const JWT_TTL_DEFAULT: Duration = Duration::from_secs(300);

/// Reads the flag; `simple_ttl_secs` is that of simple tokens.
pub(super) fn parse(text: &str, simple_ttl_secs: u64) -> Result<AuthTokens, String> {
    match text.split_once(',').unwrap_or((text, "")) {
        ("simple", "") => Ok(AuthTokens::Simple { ttl: Duration::from_secs(simple_ttl_secs) }),
        ("jwt", options) => jwt(options).map(AuthTokens::Jwt),
        _ => Err(format!("{text:?} is neither \"simple\" nor \"jwt,…\"")),
    }
}

fn jwt(options: &str) -> Result<JwtConfig, String> {
    let mut config =
        JwtConfig { sign_method: String::new(), public_key: None, private_key: None, ttl: JWT_TTL_DEFAULT };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').ok_or_else(|| format!("{option:?} is not NAME=VALUE"))?;
        match name {
            "sign-method" => config.sign_method = value.to_owned(),
            "pub-key" => config.public_key = Some(PathBuf::from(value)),
            "priv-key" => config.private_key = Some(PathBuf::from(value)),
            "ttl" => config.ttl = parse_duration(value).map_err(|problem| format!("ttl: {problem}"))?,
            _ => return Err(format!("{name:?} is none of sign-method, pub-key, priv-key and ttl")),
        }
    }
    if config.sign_method.is_empty() {
        return Err("jwt needs sign-method=…, such as RS256, ES256 or HS256".to_owned());
    }
    if config.public_key.is_none() && config.private_key.is_none() {
        return Err("jwt needs priv-key=FILE, or pub-key=FILE to check tokens only".to_owned());
    }
    if config.ttl < Duration::from_secs(1) {
        return Err("ttl: less than a second".to_owned());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn tokens_are_simple_or_signed() {
        assert_eq!(parse("simple", 300), Ok(AuthTokens::Simple { ttl: Duration::from_secs(300) }));
        let AuthTokens::Jwt(jwt) = parse("jwt,pub-key=a.pem,priv-key=b.pem,sign-method=RS256,ttl=10m", 300).unwrap()
        else {
            panic!("a jwt");
        };
        assert_eq!((jwt.sign_method.as_str(), jwt.ttl), ("RS256", Duration::from_secs(600)));
        assert_eq!((jwt.public_key.unwrap(), jwt.private_key.unwrap()), ("a.pem".into(), "b.pem".into()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("", "neither"),
            ("simple,ttl=5m", "neither"),
            ("jwt", "sign-method"),
            ("jwt,sign-method=HS256", "priv-key"),
            ("jwt,sign-method", "NAME=VALUE"),
            ("jwt,sign-method=HS256,priv-key=k,colour=red", "none of"),
            ("jwt,sign-method=HS256,priv-key=k,ttl=soon", "ttl"),
            ("jwt,sign-method=HS256,priv-key=k,ttl=1ms", "ttl"),
        ] {
            let error = parse(text, 300).unwrap_err();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }
}
