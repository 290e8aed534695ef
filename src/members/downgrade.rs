//! A downgrade of the cluster: the version it goes to, as bucket `cluster` keeps it. Nothing is done about it here.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Members;
use crate::mvcc::{BucketWrite, buckets};

/// The key in bucket `cluster`.
const KEY: &[u8] = b"downgrade";

/// As stored (JSON with etcd's field names).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downgrade {
    /// The version to go to, three numbers; empty if there is none.
    #[serde(rename = "target-version", default)]
    pub target_version: String,
    /// Whether a downgrade was begun.
    #[serde(default)]
    pub enabled: bool,
}

impl Members {
    /// The downgrade in progress, if there is one.
    pub fn downgrade(&self) -> Downgrade {
        self.downgrade.read().clone()
    }

    /// Begins a downgrade, or calls it off; what to store.
    pub fn set_downgrade(&self, downgrade: Downgrade) -> BucketWrite {
        let json = serde_json::to_vec(&downgrade).expect("a text and a bool always have a JSON form");
        *self.downgrade.write() = downgrade;
        BucketWrite { bucket: buckets::CLUSTER, key: Bytes::from_static(KEY), value: Some(json.into()) }
    }

    /// Takes what bucket `cluster` holds. An error says what cannot be read.
    pub fn restore_downgrade(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        let Some((_, json)) = stored.iter().find(|(key, _)| key.as_ref() == KEY) else { return Ok(()) };
        let downgrade = serde_json::from_slice(json).map_err(|error| format!("the downgrade's record: {error}"))?;
        *self.downgrade.write() = downgrade;
        Ok(())
    }
}
