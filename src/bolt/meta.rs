//! The meta page: where a commit's tree begins.
//!
//! Two of them, in pages 0 and 1, are written in turn; the valid one with the higher txid rules. They are the only
//! pages that are rewritten in place, so they are read with `pread` and never through the map.

use super::page::{self, FIRST_DATA_PAGE, HEADER_BYTES};

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const VERSION: u32 = 2;
/// The freelist's page number when the freelist is not in the file.
pub(super) const NO_FREELIST: u64 = u64::MAX;
/// The flags in a meta page's header.
pub(super) const PAGE_FLAGS: u16 = page::META;
/// Page header and meta: all that is read of a meta page.
pub(super) const META_PAGE_BYTES: usize = HEADER_BYTES + 64;
pub(super) const PAGE_BYTES_MIN: u32 = 1024;
pub(super) const PAGE_BYTES_MAX: u32 = 1024 << 14;

/// No file has seen so many commits; the next txid cannot overflow.
const TXID_MAX: u64 = u64::MAX / 2;
const CHECKED_BYTES: usize = 56;

/// What a meta page says. The page's own number follows from `txid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// Bytes to a page.
    pub(super) page_bytes: u32,
    /// Root page of the tree of top-level buckets.
    pub(super) root: u64,
    /// The root bucket's sequence number; kept as it is found.
    pub(super) sequence: u64,
    /// First page of the freelist, or [`NO_FREELIST`].
    pub(super) freelist: u64,
    /// The first page number never used so far.
    pub(super) high_water: u64,
    /// The commit.
    pub(super) txid: u64,
}

impl Meta {
    /// Reads the head of a meta page; the error says what is wrong with it.
    pub(super) fn decode(bytes: &[u8; META_PAGE_BYTES]) -> Result<Meta, String> {
        let body = &bytes[HEADER_BYTES..];
        let u32_at = |at| page::u32_at(body, at);
        let u64_at = |at| page::u64_at(body, at);
        if u32_at(0) != MAGIC {
            return Err(format!("magic is {:#010x}, not {MAGIC:#010x}", u32_at(0)));
        }
        if u32_at(4) != VERSION {
            return Err(format!("format version is {}, not {VERSION}", u32_at(4)));
        }
        let checksum = fnv1a_64(&body[..CHECKED_BYTES]);
        if u64_at(56) != checksum {
            return Err(format!("checksum is {:#018x}, its content's is {checksum:#018x}", u64_at(56)));
        }
        let meta = Meta {
            page_bytes: u32_at(8),
            root: u64_at(16),
            sequence: u64_at(24),
            freelist: u64_at(32),
            high_water: u64_at(40),
            txid: u64_at(48),
        };
        meta.plausible()?;
        Ok(meta)
    }

    fn plausible(&self) -> Result<(), String> {
        let pages = FIRST_DATA_PAGE..self.high_water;
        if !self.page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&self.page_bytes) {
            return Err(format!("page size is {} bytes", self.page_bytes));
        }
        if self.high_water.checked_mul(u64::from(self.page_bytes)).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(format!("high-water mark is page {}", self.high_water));
        }
        if self.txid > TXID_MAX {
            return Err(format!("txid is {}", self.txid));
        }
        if !pages.contains(&self.root) {
            return Err(format!("root page {} is outside of the file's {} pages", self.root, self.high_water));
        }
        if self.freelist != NO_FREELIST && !pages.contains(&self.freelist) {
            return Err(format!("freelist page {} is outside of the file's {} pages", self.freelist, self.high_water));
        }
        Ok(())
    }

    /// The whole page as it is in the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        self.encode_at(self.slot())
    }

    /// The same in a page of the caller's choice: the reader of a file tells commits by txid, not by place.
    pub(super) fn encode_at(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.page_bytes as usize];
        page::put_header(&mut bytes, page, page::META, 0, 0);
        let body = &mut bytes[HEADER_BYTES..];
        page::put_u32(body, 0, MAGIC);
        page::put_u32(body, 4, VERSION);
        page::put_u32(body, 8, self.page_bytes);
        page::put_u64(body, 16, self.root);
        page::put_u64(body, 24, self.sequence);
        page::put_u64(body, 32, self.freelist);
        page::put_u64(body, 40, self.high_water);
        page::put_u64(body, 48, self.txid);
        let checksum = fnv1a_64(&body[..CHECKED_BYTES]);
        page::put_u64(body, 56, checksum);
        bytes
    }

    /// The page this commit's meta goes to: 0 or 1.
    pub(super) fn slot(&self) -> u64 {
        self.txid % 2
    }

    /// Bytes up to the high-water mark.
    pub(super) fn used_bytes(&self) -> u64 {
        self.high_water * u64::from(self.page_bytes)
    }
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(meta: &Meta) -> [u8; META_PAGE_BYTES] {
        meta.encode()[..META_PAGE_BYTES].try_into().expect("a page is longer than its head")
    }

    const META: Meta =
        Meta { page_bytes: 4096, root: 3, sequence: 7, freelist: NO_FREELIST, high_water: 9, txid: 0x0102_0304 };

    #[test]
    fn checksum_is_fnv1a_64() {
        // The published test vectors of FNV-1a.
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Meta::decode(&head(&META)), Ok(META));
    }

    #[test]
    fn any_flipped_bit_of_the_meta_is_noticed() {
        for bit in HEADER_BYTES * 8..META_PAGE_BYTES * 8 {
            let mut bytes = head(&META);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Meta::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_checksum_does_not_make_nonsense_true() {
        for bad in [
            Meta { page_bytes: 4095, ..META },
            Meta { page_bytes: 512, ..META },
            Meta { page_bytes: 1 << 25, ..META },
            Meta { root: 1, ..META },
            Meta { root: 9, ..META },
            Meta { freelist: 9, ..META },
            Meta { high_water: u64::MAX, ..META },
            Meta { txid: u64::MAX, ..META },
        ] {
            let mut page = Meta { page_bytes: 4096, ..bad }.encode();
            page::put_u32(&mut page[HEADER_BYTES..], 8, bad.page_bytes);
            let checksum = fnv1a_64(&page[HEADER_BYTES..HEADER_BYTES + CHECKED_BYTES]);
            page::put_u64(&mut page[HEADER_BYTES..], 56, checksum);
            let head = page[..META_PAGE_BYTES].try_into().expect("a page is longer than its head");
            assert!(Meta::decode(&head).is_err(), "{bad:?}");
        }
    }
}
