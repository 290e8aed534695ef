//! The cluster's secret that vouches for the tokens with which clients go on from page to page: bucket `cluster` keeps
//! it, so that every member knows tokens the others made, before and after a restart.

use bytes::Bytes;

use super::Members;
use crate::mvcc::{BucketWrite, buckets};

/// Length of the secret.
pub const PAGE_KEY_BYTES: usize = 32;
/// The key in bucket `cluster`. etcd reads the keys it knows there and no others.
const KEY: &[u8] = b"revgatePageKey";

impl Members {
    /// The secret, once there is one.
    pub fn page_key(&self) -> Option<[u8; PAGE_KEY_BYTES]> {
        *self.page_key.read()
    }

    /// Takes a secret unless there is one; what to store.
    pub fn set_page_key(&self, secret: [u8; PAGE_KEY_BYTES]) -> Option<BucketWrite> {
        let mut known = self.page_key.write();
        if known.is_some() {
            return None;
        }
        *known = Some(secret);
        let value = Some(Bytes::copy_from_slice(&secret));
        Some(BucketWrite { bucket: buckets::CLUSTER, key: Bytes::from_static(KEY), value })
    }

    /// Takes what bucket `cluster` holds. An error says what cannot be read.
    pub fn restore_page_key(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        let Some((_, value)) = stored.iter().find(|(key, _)| key.as_ref() == KEY) else { return Ok(()) };
        let secret = value
            .as_ref()
            .try_into()
            .map_err(|_| format!("the key of page tokens has {} bytes instead of {PAGE_KEY_BYTES}", value.len()))?;
        *self.page_key.write() = Some(secret);
        Ok(())
    }
}
