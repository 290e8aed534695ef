//! Tokens with which a client goes on from one page of a range to the next.
//!
//! A token holds the revision of the first page, the last key given and the count, and is good for the request it was
//! made for, with any limit, on any member of the cluster. Nothing is kept for it: once its revision has been compacted it
//! has expired.

use base64_simd::URL_SAFE_NO_PAD;
use bytes::{Buf, Bytes};
use ring::hmac;

use crate::{error::ApiError, members::PAGE_KEY_BYTES, proto::etcdserverpb::RangeRequest};

/// The form of what is in a token.
const VERSION: u8 = 1;
/// How much of the HMAC-SHA256 goes into a token.
const TAG_BYTES: usize = 16;
/// Version, revision and count.
const FIXED_BYTES: usize = 1 + 8 + 8;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The revision of the first page.
    pub(super) revision: i64,
    /// The last key of the page before.
    pub(super) after: Bytes,
    /// How many keys the whole range has at that revision.
    pub(super) count: i64,
}

/// Makes the token for the page that follows.
#[derive(Clone, Debug)]
pub struct NextPage {
    key: hmac::Key,
    request: Vec<u8>,
    revision: i64,
}

impl NextPage {
    pub(super) fn new(secret: &[u8; PAGE_KEY_BYTES], request: &RangeRequest, revision: i64) -> NextPage {
        NextPage { key: hmac::Key::new(hmac::HMAC_SHA256, secret), request: fingerprint(request), revision }
    }

    /// The token for going on behind the key `after`. `count` is that of the whole range.
    pub fn token(&self, after: &[u8], count: i64) -> String {
        let mut token = Vec::with_capacity(FIXED_BYTES + after.len() + TAG_BYTES);
        token.push(VERSION);
        token.extend_from_slice(&self.revision.to_be_bytes());
        token.extend_from_slice(&count.to_be_bytes());
        token.extend_from_slice(after);
        let tag = hmac::sign(&self.key, &[self.request.as_slice(), &token].concat());
        token.extend_from_slice(&tag.as_ref()[..TAG_BYTES]);
        URL_SAFE_NO_PAD.encode_to_string(token)
    }
}

/// Reads the token in a request.
pub(super) fn open(secret: &[u8; PAGE_KEY_BYTES], request: &RangeRequest) -> Result<Page, ApiError> {
    let token = URL_SAFE_NO_PAD.decode_to_vec(&request.r#continue).map_err(|_| ApiError::PageTokenInvalid)?;
    let payload_bytes = token.len().checked_sub(TAG_BYTES).filter(|bytes| *bytes >= FIXED_BYTES);
    let (payload, tag) = token.split_at(payload_bytes.ok_or(ApiError::PageTokenInvalid)?);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let expected = hmac::sign(&key, &[fingerprint(request).as_slice(), payload].concat());
    // In constant time: a tag must not be found byte by byte.
    let differs = expected.as_ref().iter().zip(tag).fold(0, |differs, (a, b)| differs | (a ^ b));
    let mut fields = payload;
    if differs != 0 || fields.get_u8() != VERSION {
        return Err(ApiError::PageTokenInvalid);
    }
    let page = Page { revision: fields.get_i64(), count: fields.get_i64(), after: Bytes::copy_from_slice(fields) };
    if request.revision > 0 && request.revision != page.revision {
        return Err(ApiError::PageTokenInvalid);
    }
    Ok(page)
}

/// What has to be the same in the requests for all pages: the range, the order, the filters and what is shown. Not the
/// limit, the revision, and who may answer.
fn fingerprint(request: &RangeRequest) -> Vec<u8> {
    let mut same = Vec::with_capacity(80 + request.key.len() + request.range_end.len());
    for part in [&request.key, &request.range_end] {
        same.extend_from_slice(&(part.len() as u64).to_be_bytes());
        same.extend_from_slice(part);
    }
    let numbers = [
        i64::from(request.sort_order),
        i64::from(request.sort_target),
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    numbers.iter().for_each(|number| same.extend_from_slice(&number.to_be_bytes()));
    same.extend_from_slice(&[u8::from(request.keys_only), u8::from(request.count_only)]);
    same
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const SECRET: [u8; PAGE_KEY_BYTES] = [7; PAGE_KEY_BYTES];

    fn request() -> RangeRequest {
        RangeRequest { key: "a".into(), range_end: "z".into(), limit: 5, min_mod_revision: 3, ..Default::default() }
    }

    fn going_on(token: &str) -> RangeRequest {
        RangeRequest { r#continue: token.into(), ..request() }
    }

    #[test]
    fn a_token_opens_for_its_own_request_with_any_limit() {
        let token = NextPage::new(&SECRET, &request(), 9).token(b"key\0\xff", 1 << 40);
        let page = Page { revision: 9, after: Bytes::from_static(b"key\0\xff"), count: 1 << 40 };
        assert_eq!(open(&SECRET, &going_on(&token)), Ok(page.clone()));
        let others = [
            RangeRequest { limit: 1, serializable: true, ..going_on(&token) },
            RangeRequest { revision: 9, ..going_on(&token) },
        ];
        for other in others {
            assert_eq!(open(&SECRET, &other), Ok(page.clone()));
        }
    }

    #[test]
    fn a_token_opens_for_no_other_request_and_no_other_cluster() {
        let token = NextPage::new(&SECRET, &request(), 9).token(b"key", 3);
        let others = [
            RangeRequest { key: "b".into(), ..going_on(&token) },
            RangeRequest { range_end: "y".into(), ..going_on(&token) },
            RangeRequest { min_mod_revision: 0, ..going_on(&token) },
            RangeRequest { sort_order: 2, ..going_on(&token) },
            RangeRequest { keys_only: true, ..going_on(&token) },
            RangeRequest { revision: 8, ..going_on(&token) },
        ];
        for other in others {
            assert_eq!(open(&SECRET, &other), Err(ApiError::PageTokenInvalid), "{other:?}");
        }
        assert_eq!(open(&[8; PAGE_KEY_BYTES], &going_on(&token)), Err(ApiError::PageTokenInvalid));
    }

    #[test]
    fn no_bit_of_a_token_can_be_changed() {
        let token = URL_SAFE_NO_PAD.decode_to_vec(NextPage::new(&SECRET, &request(), 9).token(b"k", 3)).unwrap();
        for bit in 0..token.len() * 8 {
            let mut forged = token.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = URL_SAFE_NO_PAD.encode_to_string(forged);
            assert_eq!(open(&SECRET, &going_on(&forged)), Err(ApiError::PageTokenInvalid), "bit {bit}");
        }
        for short in 0..token.len() {
            let cut = URL_SAFE_NO_PAD.encode_to_string(&token[..short]);
            assert_eq!(open(&SECRET, &going_on(&cut)), Err(ApiError::PageTokenInvalid), "{short} bytes");
        }
        assert_eq!(open(&SECRET, &going_on("no base64!")), Err(ApiError::PageTokenInvalid));
    }
}
