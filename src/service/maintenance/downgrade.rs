//! Versions a cluster may go down to.

use crate::error::ApiError;

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClusterVersion {
    pub(super) major: u64,
    pub(super) minor: u64,
}

impl ClusterVersion {
    /// Reads `3.6`, `3.6.1`, `3.6.1-rc.1`: what is behind the minor number must be well-formed and does not count.
    pub(super) fn parse(text: &str) -> Result<ClusterVersion, ApiError> {
        let core = text.split('+').next().unwrap_or_default();
        let core = core.split('-').next().unwrap_or_default();
        let numbers: Option<Vec<u64>> = core.split('.').map(number).collect();
        match numbers.as_deref() {
            Some([major, minor] | [major, minor, _]) => Ok(ClusterVersion { major: *major, minor: *minor }),
            _ => Err(ApiError::DowngradeVersionFormat),
        }
    }

    /// A cluster goes down one minor version at a time.
    pub(super) fn check_target_of(self, cluster: ClusterVersion) -> Result<(), ApiError> {
        let is_next_lower = self.major == cluster.major && Some(self.minor) == cluster.minor.checked_sub(1);
        if is_next_lower { Ok(()) } else { Err(ApiError::DowngradeVersionInvalid) }
    }
}

impl std::fmt::Display for ClusterVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn number(text: &str) -> Option<u64> {
    // `parse` alone would take a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_etcd_reads_them() {
        for good in ["3.6", "3.6.0", "3.6.1", "03.6.1", "3.6.0-rc.1", "3.6.0+x"] {
            assert_eq!(ClusterVersion::parse(good), Ok(ClusterVersion { major: 3, minor: 6 }), "{good}");
        }
        for bad in ["", "abc", "3", "3.6.0.1", "3.x", "3..6", "+3.6", "3.-6", "99999999999999999999.6"] {
            assert_eq!(ClusterVersion::parse(bad), Err(ApiError::DowngradeVersionFormat), "{bad}");
        }
    }

    #[test]
    fn only_the_next_lower_minor_version_is_a_target() {
        let cluster = ClusterVersion { major: 3, minor: 7 };
        for (target, allowed) in [("3.6", true), ("3.7", false), ("3.8", false), ("3.5", false), ("2.6", false)] {
            let outcome = ClusterVersion::parse(target).and_then(|target| target.check_target_of(cluster));
            assert_eq!(outcome.is_ok(), allowed, "{target}");
        }
        let zero = ClusterVersion { major: 4, minor: 0 };
        assert!(ClusterVersion { major: 4, minor: 0 }.check_target_of(zero).is_err());
    }
}
