//! Torn or damaged? A record at the end of the last segment that does not check may be the half of a write that a crash
//! cut short; it was never acknowledged and may be cut off. Anything else is damage and must not be touched.
//!
//! What a crash can leave of an unsynced write: any of its 512-byte sectors may still hold the zeros they were reserved
//! with; a write the kernel itself cut short leaves zeros, or the end of the file, from any byte on. So a record is torn
//! if the nonzero bytes of the file end before it does, or if a sector within it is all zero; and what is there of its
//! head must agree with its length. A length of zero with something behind it is torn if its whole sector is zero.

use super::record::{HEADER_BYTES, could_begin_envelope, frame_length};

/// What a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

const ZEROS: [u8; 4096] = [0; 4096];

/// Length of the file without the zeros at its end.
pub(super) fn used_bytes(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    // A fresh segment is nearly all zeros: compared by the block this takes no time, in no build.
    while end >= ZEROS.len() && bytes[end - ZEROS.len()..end] == ZEROS {
        end -= ZEROS.len();
    }
    bytes[..end].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Whether the record at `offset`, which does not check, is a torn one. `bytes` is the whole segment.
pub(super) fn is_torn(bytes: &[u8], offset: usize) -> bool {
    let used = used_bytes(bytes);
    let body = offset + HEADER_BYTES;
    if used <= body {
        return true;
    }
    // `used > body`: the header is all there.
    let Some(header) = bytes[offset..].first_chunk::<HEADER_BYTES>() else { return true };
    if *header == [0; HEADER_BYTES] {
        return is_zero(bytes, offset, next_sector(offset));
    }
    let Ok((length, padding)) = frame_length(*header) else { return false };
    let Some(end) = body.checked_add(length) else { return false };
    let readable_end = end.min(used);
    let first_zero_sector =
        sectors_after(offset, readable_end).find(|start| is_zero(bytes, *start, start + SECTOR_BYTES));
    let ends_in_file = used >= end && bytes.len() - end >= padding;
    if ends_in_file && first_zero_sector.is_none() {
        return false;
    }
    let available_end = first_zero_sector.unwrap_or(readable_end).max(body);
    could_begin_envelope(&bytes[body..available_end], length)
}

fn next_sector(offset: usize) -> usize {
    (offset / SECTOR_BYTES + 1) * SECTOR_BYTES
}

/// Starts of the sectors that begin after `offset` and before `end`.
fn sectors_after(offset: usize, end: usize) -> impl Iterator<Item = usize> {
    (next_sector(offset)..end).step_by(SECTOR_BYTES)
}

fn is_zero(bytes: &[u8], start: usize, end: usize) -> bool {
    bytes[start..end.min(bytes.len())].iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;

    use super::{
        super::{
            Entry, Record,
            record::{Encoder, decode_frame},
        },
        *,
    };

    const FILE_BYTES: usize = 8192;

    /// A file of zeros with one record at `offset`; the end of the record.
    fn file_with_record(offset: usize, data_bytes: usize) -> (Vec<u8>, usize) {
        let mut bytes = vec![0; offset];
        let data = Bytes::from(vec![0xee; data_bytes]);
        Encoder::new(0).record(&mut bytes, &Record::Entry(Entry { index: 1, term: 1, kind: 0, data }));
        let end = bytes.len();
        bytes.resize(FILE_BYTES, 0);
        (bytes, end)
    }

    fn checks(bytes: &[u8], offset: usize) -> bool {
        matches!(decode_frame(bytes, offset, 0), Ok(Some(_)))
    }

    #[test]
    fn any_set_of_missing_sectors_is_torn() {
        for offset in [0, 8, 496, 504, 512] {
            let (whole, end) = file_with_record(offset, 1800);
            let sectors: Vec<usize> = (offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)).collect();
            for missing in 1_u32..1 << sectors.len() {
                let mut bytes = whole.clone();
                for (bit, sector) in sectors.iter().enumerate().filter(|(bit, _)| missing >> bit & 1 == 1) {
                    let _ = bit;
                    bytes[(sector * SECTOR_BYTES).max(offset)..(sector + 1) * SECTOR_BYTES].fill(0);
                }
                if used_bytes(&bytes) > offset && !checks(&bytes, offset) {
                    assert!(is_torn(&bytes, offset), "offset {offset} missing {missing:b}");
                }
            }
        }
    }

    #[test]
    fn any_missing_tail_is_torn() {
        let (whole, end) = file_with_record(40, 700);
        for cut in 41..end {
            let mut zeroed = whole.clone();
            zeroed[cut..].fill(0);
            for bytes in [&zeroed[..], &whole[..cut]] {
                assert!(checks(bytes, 40) || is_torn(bytes, 40) || used_bytes(bytes) <= 40, "cut at {cut}");
            }
        }
    }

    #[test]
    fn no_flipped_bit_is_torn() {
        for (offset, data_bytes) in [(40, 0), (40, 26), (40, 700), (512, 100)] {
            let (mut bytes, end) = file_with_record(offset, data_bytes);
            for bit in offset * 8..end * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!checks(&bytes, offset) && !is_torn(&bytes, offset), "offset {offset} bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
