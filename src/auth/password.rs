//! Passwords: hashed and checked with bcrypt, in the form etcd stores. Slow on purpose: not to be called where it keeps
//! anybody waiting.

use bcrypt::Version;

use crate::error::ApiError;

/// bcrypt looks at no more, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 72;

/// Any salt will do for a hash that is thrown away.
const WASTED_SALT: [u8; 16] = [0; 16];

/// A password's hash, with a fresh salt.
pub fn hash_password(password: &str, cost: u32) -> Result<String, ApiError> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(ApiError::PasswordTooLong);
    }
    let hash = bcrypt::hash_with_result(password, cost).map_err(|error| ApiError::Internal(error.to_string()))?;
    // What etcd writes; to bcrypt the letters say nothing.
    Ok(hash.format_for_version(Version::TwoA))
}

/// Whether this is the password. A hash that is none fits no password.
pub fn check_password(password: &str, hash: &[u8]) -> bool {
    password.len() <= PASSWORD_BYTES_MAX
        && std::str::from_utf8(hash).is_ok_and(|hash| bcrypt::verify(password, hash).unwrap_or(false))
}

/// Takes as long as checking a password, so that the time does not tell which users there are.
pub fn waste_time(password: &str, cost: u32) {
    // There is no result to look at.
    let _ = bcrypt::hash_with_salt(password, cost, WASTED_SALT);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const COST: u32 = 4;

    #[test]
    fn a_hash_is_etcds_and_fits_its_password_only() {
        let hash = hash_password("secret", COST).unwrap();
        assert!(hash.starts_with("$2a$04$") && hash.len() == 60, "{hash}");
        assert!(check_password("secret", hash.as_bytes()));
        assert!(!check_password("Secret", hash.as_bytes()));
        assert!(!check_password("", hash.as_bytes()));
        assert_ne!(hash, hash_password("secret", COST).unwrap(), "another salt");
        // Made by Go's bcrypt, in a real etcd.
        assert!(check_password("pw", b"$2a$04$bc0fvUk2TkvKuUQWHlUjVO..r61EAH/pUl.XjJN.wXkaH9gRMh7pm"));
    }

    #[test]
    fn what_is_no_hash_fits_nothing() {
        for damaged in [&b""[..], b"secret", b"$2a$04$", &[0xff; 60]] {
            assert!(!check_password("secret", damaged));
        }
    }

    #[test]
    fn passwords_end_at_72_bytes() {
        let longest = "p".repeat(PASSWORD_BYTES_MAX);
        let hash = hash_password(&longest, COST).unwrap();
        assert!(check_password(&longest, hash.as_bytes()));
        assert!(!check_password(&format!("{longest}x"), hash.as_bytes()), "not cut off in silence");
        assert_eq!(hash_password(&format!("{longest}x"), COST), Err(ApiError::PasswordTooLong));
        assert!(check_password("", hash_password("", COST).unwrap().as_bytes()));
    }
}
