//! One record as bytes: the frame, the envelope, the checksum.
//!
//! Frame, 8-byte aligned: an `i64` little endian whose low 56 bits are the length of the envelope and whose top byte is
//! `0x80 | padding` if the envelope is padded to 8 bytes (else 0), the envelope, zero padding. Envelope, in protobuf's
//! encoding: `{type = 1, crc = 2, data = 3, end = 4}`, as etcd's but for `end`: the constant byte 0x7f, so that a
//! written record never ends in a zero byte and a missing tail can be told from a damaged one. The checksum is a CRC-32C
//! that rolls over the `data` of all records of all segments.
//!
//! The checksum does not cover `type`; instead the data of each type decodes under no other type. Decoding trusts no
//! byte: every length is checked, and an encoding other than the one written here is a [`Fault`].

use crc32c::crc32c_append;

use super::{Entry, Record};

/// Length of the field before each envelope, and the alignment of frames, in bytes.
pub(super) const HEADER_BYTES: usize = 8;

const LENGTH_BITS: u32 = 56;
const PADDED: u64 = 0x80;
const END: u8 = 0x7f;
/// Field 4 with its constant value.
const END_FIELD: [u8; 2] = [0x20, END];

const METADATA: u64 = 1;
const ENTRY: u64 = 2;
const STATE: u64 = 3;
const CHECKSUM: u64 = 4;
const RELEASED: u64 = 5;
const TRUNCATE: u64 = 6;

/// Appends frames to a buffer and carries the rolling checksum.
#[derive(Debug)]
pub(super) struct Encoder {
    crc: u32,
    head: Vec<u8>,
}

impl Encoder {
    /// Continues after records whose checksum is `crc`.
    pub(super) fn new(crc: u32) -> Self {
        Encoder { crc, head: Vec::with_capacity(64) }
    }

    /// The record that begins a segment: the checksum of everything before it.
    pub(super) fn checksum(&mut self, out: &mut Vec<u8>) {
        self.head.clear();
        self.frame(out, CHECKSUM, &[]);
    }

    /// The second record of a segment.
    pub(super) fn metadata(&mut self, out: &mut Vec<u8>, metadata: &[u8]) {
        self.head.clear();
        put_length(&mut self.head, 1, metadata.len());
        self.frame(out, METADATA, metadata);
    }

    /// Any other record.
    pub(super) fn record(&mut self, out: &mut Vec<u8>, record: &Record) {
        self.head.clear();
        match record {
            Record::Entry(Entry { index, term, kind, data }) => {
                put_number(&mut self.head, 1, u64::from(*kind));
                put_number(&mut self.head, 2, *term);
                put_number(&mut self.head, 3, *index);
                put_length(&mut self.head, 4, data.len());
                self.frame(out, ENTRY, data);
            }
            Record::State(state) => {
                put_length(&mut self.head, 2, state.len());
                self.frame(out, STATE, state);
            }
            Record::Truncate { last_index } => {
                put_number(&mut self.head, 1, *last_index);
                self.frame(out, TRUNCATE, &[]);
            }
            Record::Released { index, term } => {
                put_number(&mut self.head, 1, *index);
                put_number(&mut self.head, 2, *term);
                self.frame(out, RELEASED, &[]);
            }
        }
    }

    /// Frames the data `self.head ++ rest`.
    fn frame(&mut self, out: &mut Vec<u8>, kind: u64, rest: &[u8]) {
        self.crc = crc32c_append(crc32c_append(self.crc, &self.head), rest);
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        put_number(out, 1, kind);
        put_number(out, 2, u64::from(self.crc));
        let data_bytes = self.head.len() + rest.len();
        if data_bytes > 0 {
            put_length(out, 3, data_bytes);
            out.extend_from_slice(&self.head);
            out.extend_from_slice(rest);
        }
        out.extend_from_slice(&END_FIELD);
        let length = out.len() - start - HEADER_BYTES;
        let padding = length.wrapping_neg() % HEADER_BYTES;
        let flags = if padding == 0 { 0 } else { PADDED | padding as u64 };
        let header = length as u64 | flags << LENGTH_BITS;
        out[start..start + HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
        out.resize(out.len() + padding, 0);
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    put_varint(out, value);
}

fn put_length(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | 2);
    put_varint(out, length as u64);
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) &'static str);

/// A record as it lies in a segment's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded<'a> {
    Checksum,
    Metadata(&'a [u8]),
    Entry { index: u64, term: u64, kind: u32, data: &'a [u8] },
    State(&'a [u8]),
    Truncate { last_index: u64 },
    Released { index: u64, term: u64 },
}

/// A record and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) record: Decoded<'a>,
    /// The rolling checksum after this record.
    pub(super) crc: u32,
    /// Offset of the next frame.
    pub(super) next: usize,
}

/// Decodes the frame at `offset` of a segment's `bytes`, after records whose checksum is `crc`. `None`: nothing was
/// written there (a zero length, or the end of the file).
///
/// The checksum in a [`Decoded::Checksum`] record is returned, not compared: the caller knows with what.
pub(super) fn decode_frame(bytes: &[u8], offset: usize, crc: u32) -> Result<Option<Frame<'_>>, Fault> {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
        let unwritten = rest.iter().all(|byte| *byte == 0);
        return if unwritten { Ok(None) } else { Err(Fault("the file ends within a length field")) };
    };
    if *header == [0; HEADER_BYTES] {
        return Ok(None);
    }
    let (length, padding) = frame_length(*header)?;
    let envelope = rest.get(..length).ok_or(Fault("the file ends within a record"))?;
    let padding_bytes = rest.get(length..length + padding).ok_or(Fault("the file ends within the padding"))?;
    if padding_bytes.iter().any(|byte| *byte != 0) {
        return Err(Fault("the padding of the record is not zero"));
    }
    let (record, crc) = decode_envelope(envelope, crc)?;
    Ok(Some(Frame { record, crc, next: offset + HEADER_BYTES + length + padding }))
}

/// Length of the envelope and of the padding, from a length field.
pub(super) fn frame_length(header: [u8; HEADER_BYTES]) -> Result<(usize, usize), Fault> {
    let header = u64::from_le_bytes(header);
    let flags = header >> LENGTH_BITS;
    let length = usize::try_from(header & ((1 << LENGTH_BITS) - 1)).map_err(|_| Fault("the length is impossible"))?;
    let padding = length.wrapping_neg() % HEADER_BYTES;
    let expected = if padding == 0 { 0 } else { PADDED | padding as u64 };
    if flags != expected {
        return Err(Fault("the length field contradicts itself"));
    }
    Ok((length, padding))
}

fn decode_envelope(envelope: &[u8], crc: u32) -> Result<(Decoded<'_>, u32), Fault> {
    let mut fields = Fields(envelope);
    let kind = fields.number(1)?;
    let stored = u32::try_from(fields.number(2)?).map_err(|_| Fault("the checksum has more than 32 bits"))?;
    let data = if fields.0.len() > END_FIELD.len() { fields.bytes(3)? } else { &[] };
    if fields.0 != END_FIELD {
        return Err(Fault("the record does not end where its length says"));
    }
    if kind == CHECKSUM {
        return if data.is_empty() {
            Ok((Decoded::Checksum, stored))
        } else {
            Err(Fault("a checksum record has data"))
        };
    }
    if crc32c_append(crc, data) != stored {
        return Err(Fault("the checksum does not match"));
    }
    Ok((decode_data(kind, data)?, stored))
}

fn decode_data(kind: u64, data: &[u8]) -> Result<Decoded<'_>, Fault> {
    let mut fields = Fields(data);
    let record = match kind {
        METADATA => Decoded::Metadata(fields.bytes(1)?),
        ENTRY => {
            let kind = u32::try_from(fields.number(1)?).map_err(|_| Fault("the kind has more than 32 bits"))?;
            let term = fields.number(2)?;
            let index = fields.number(3)?;
            Decoded::Entry { index, term, kind, data: fields.bytes(4)? }
        }
        STATE => Decoded::State(fields.bytes(2)?),
        RELEASED => Decoded::Released { index: fields.number(1)?, term: fields.number(2)? },
        TRUNCATE => Decoded::Truncate { last_index: fields.number(1)? },
        _ => return Err(Fault("the type of the record is unknown")),
    };
    if !fields.0.is_empty() {
        return Err(Fault("the data of the record is longer than its type allows"));
    }
    Ok(record)
}

/// Whether `available`, the first bytes of an envelope whose rest is missing, agrees with its `length`. What is not
/// there cannot disagree.
pub(super) fn could_begin_envelope(available: &[u8], length: usize) -> bool {
    let mut fields = Fields(available);
    let head = (|| {
        fields.number(1)?;
        fields.number(2)?;
        if fields.0.first() == Some(&END_FIELD[0]) {
            return Ok(0);
        }
        fields.length(3)
    })();
    match head {
        Ok(data_bytes) => (available.len() - fields.0.len())
            .checked_add(data_bytes)
            .and_then(|bytes| bytes.checked_add(END_FIELD.len()))
            .is_some_and(|bytes| bytes == length),
        Err(fault) => fault == RAN_OUT,
    }
}

const RAN_OUT: Fault = Fault("a field ends after its record");

/// Reads fields in their one order from the front of a slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self, field: u8) -> Result<u64, Fault> {
        self.tag(field << 3)?;
        self.varint()
    }

    fn bytes(&mut self, field: u8) -> Result<&'a [u8], Fault> {
        let length = self.length(field)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(RAN_OUT)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn length(&mut self, field: u8) -> Result<usize, Fault> {
        self.tag(field << 3 | 2)?;
        usize::try_from(self.varint()?).map_err(|_| Fault("the length of a field is impossible"))
    }

    fn tag(&mut self, expected: u8) -> Result<(), Fault> {
        if self.byte()? == expected { Ok(()) } else { Err(Fault("a field is not where it belongs")) }
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                let minimal = byte != 0 || shift == 0;
                return if minimal { Ok(value) } else { Err(Fault("a number is longer than it needs to be")) };
            }
        }
        Err(Fault("a number has more than 64 bits"))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let (byte, rest) = self.0.split_first().ok_or(RAN_OUT)?;
        self.0 = rest;
        Ok(*byte)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn entry(index: u64, data: &'static [u8]) -> Record {
        Record::Entry(Entry { index, term: 2, kind: 0, data: Bytes::from_static(data) })
    }

    fn as_decoded(record: &Record) -> Decoded<'_> {
        match record {
            Record::Entry(entry) => {
                Decoded::Entry { index: entry.index, term: entry.term, kind: entry.kind, data: &entry.data }
            }
            Record::State(state) => Decoded::State(state),
            Record::Truncate { last_index } => Decoded::Truncate { last_index: *last_index },
            Record::Released { index, term } => Decoded::Released { index: *index, term: *term },
        }
    }

    #[test]
    fn golden_frames() {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(0);
        encoder.checksum(&mut out);
        // Six bytes of envelope and two of padding: type 4, checksum 0, end.
        assert_eq!(out, [6, 0, 0, 0, 0, 0, 0, 0x82, 0x08, 4, 0x10, 0, 0x20, 0x7f, 0, 0]);

        // The CRC-32C of "123456789" is 0xe3069283 by its definition; a metadata record puts 0x0a and the length first.
        assert_eq!(crc32c_append(0, b"123456789"), 0xe306_9283);
        out.clear();
        encoder.record(&mut out, &entry(3, b"ab"));
        let data = [0x08, 0, 0x10, 2, 0x18, 3, 0x22, 2, b'a', b'b'];
        let crc = crc32c_append(0, &data);
        assert!(crc >= 1 << 28, "the varint below has five bytes");
        let varint = [
            crc as u8 | 0x80,
            (crc >> 7) as u8 | 0x80,
            (crc >> 14) as u8 | 0x80,
            (crc >> 21) as u8 | 0x80,
            (crc >> 28) as u8,
        ];
        let mut expected = vec![22, 0, 0, 0, 0, 0, 0, 0x82, 0x08, 2, 0x10];
        expected.extend(varint);
        expected.extend([0x1a, 10]);
        expected.extend(data);
        expected.extend([0x20, 0x7f, 0, 0]);
        assert_eq!(out, expected);
    }

    #[test]
    fn aligned_envelope_has_no_padding_flag() {
        let mut out = Vec::new();
        let lengths: Vec<u8> = (0..8)
            .map(|padding| {
                out.clear();
                Encoder::new(0).record(&mut out, &Record::State(Bytes::from(vec![1; padding])));
                assert_eq!(out.len() % 8, 0);
                out[7]
            })
            .collect();
        assert!(lengths.contains(&0) && lengths.contains(&0x87), "{lengths:x?}");
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let records = [
            entry(1, b"some payload \0\0\0"),
            Record::State(Bytes::from_static(b"\x08\x01\x10\x02")),
            Record::State(Bytes::new()),
            Record::Truncate { last_index: 0 },
            Record::Released { index: 7, term: 0 },
        ];
        for record in &records {
            let mut out = Vec::new();
            Encoder::new(9).record(&mut out, record);
            for bit in 0..out.len() * 8 {
                out[bit / 8] ^= 1 << (bit % 8);
                assert!(!matches!(decode_frame(&out, 0, 9), Ok(Some(_))), "{record:?} bit {bit}");
                out[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_file_is_a_fault_and_reserves_nothing() {
        let mut bytes = vec![0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
        bytes.extend([0; 64]);
        assert_eq!(decode_frame(&bytes, 0, 0), Err(Fault("the file ends within a record")));
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let data = proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        prop_oneof![
            (any::<u64>(), any::<u64>(), any::<u32>(), data.clone())
                .prop_map(|(index, term, kind, data)| Record::Entry(Entry { index, term, kind, data })),
            data.prop_map(Record::State),
            any::<u64>().prop_map(|last_index| Record::Truncate { last_index }),
            (any::<u64>(), any::<u64>()).prop_map(|(index, term)| Record::Released { index, term }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn records_round_trip(records in proptest::collection::vec(any_record(), 1..8), crc: u32) {
            let mut out = Vec::new();
            let mut encoder = Encoder::new(crc);
            records.iter().for_each(|record| encoder.record(&mut out, record));
            let (mut offset, mut rolling) = (0, crc);
            for record in &records {
                let frame = decode_frame(&out, offset, rolling).unwrap().unwrap();
                prop_assert_eq!(frame.record, as_decoded(record));
                (offset, rolling) = (frame.next, frame.crc);
            }
            prop_assert_eq!(offset, out.len());
            prop_assert_eq!(decode_frame(&out, offset, rolling), Ok(None));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), crc: u32) {
            let _ = decode_frame(&bytes, 0, crc);
            could_begin_envelope(&bytes, bytes.len());
            decode_envelope(&bytes, crc).ok();
            for kind in 0..8 {
                decode_data(kind, &bytes).ok();
            }
        }
    }
}
