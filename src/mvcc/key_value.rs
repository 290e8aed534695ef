//! A key's stored state: read in place from a page, written by appending. Both sides speak protobuf's wire format of
//! `mvccpb.KeyValue`, by hand: a read of a million keys must not allocate a million messages.

use std::sync::Arc;

use bytes::Bytes;

use super::{MvccError, Revision};
use crate::proto::mvccpb;

/// A key's state, borrowed from memory or from a mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyValueRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The revision that created it (the last time).
    pub create_revision: i64,
    /// The revision that changed it last.
    pub mod_revision: i64,
    /// How many puts since it was created; 1 on creation.
    pub version: i64,
    /// Its value.
    pub value: &'a [u8],
    /// The lease it hangs on; 0 for none.
    pub lease: i64,
}

impl<'a> KeyValueRef<'a> {
    /// Decodes a stored KeyValue (protobuf), bounds-checked, without copying. Unknown fields are skipped.
    /// Bad bytes are a [`MvccError::DamagedRecord`] that names no revision.
    pub fn decode(encoded: &'a [u8]) -> Result<KeyValueRef<'a>, MvccError> {
        Self::decode_at(Revision::default(), encoded)
    }

    /// Decodes what is stored at a revision; an error names it.
    pub(super) fn decode_at(revision: Revision, encoded: &'a [u8]) -> Result<KeyValueRef<'a>, MvccError> {
        decode_fields(encoded).map_err(|what| MvccError::DamagedRecord { revision, what: what.to_owned() })
    }

    /// A copy that borrows nothing.
    pub fn to_owned(&self) -> mvccpb::KeyValue {
        mvccpb::KeyValue {
            key: Bytes::copy_from_slice(self.key),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            value: Bytes::copy_from_slice(self.value),
            lease: self.lease,
        }
    }
}

impl<'a> From<&'a mvccpb::KeyValue> for KeyValueRef<'a> {
    fn from(kv: &'a mvccpb::KeyValue) -> Self {
        KeyValueRef {
            key: &kv.key,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            value: &kv.value,
            lease: kv.lease,
        }
    }
}

/// One change: what revision `revision` did to `kv.key`. Of a tombstone only key and mod_revision are set.
#[derive(Debug, PartialEq)]
pub struct Record {
    /// The change's place in history.
    pub revision: Revision,
    /// Whether it deleted the key.
    pub tombstone: bool,
    /// The key's state after it.
    pub kv: mvccpb::KeyValue,
}

impl Record {
    /// Bytes the record is counted as wherever bytes are bounded: its strings and a fixed share for the rest.
    pub(super) fn cost_bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 64;
        self.kv.key.len() + self.kv.value.len() + OVERHEAD_BYTES
    }
}

/// All changes of one main revision, in order of `sub`.
#[derive(Clone, Debug)]
pub struct ChangeSet {
    /// The main revision.
    pub revision: i64,
    /// The changes.
    pub changes: Arc<[Arc<Record>]>,
}

const WIRE_VARINT: u64 = 0;
const WIRE_FIXED64: u64 = 1;
const WIRE_BYTES: u64 = 2;
const WIRE_FIXED32: u64 = 5;

const KEY: u64 = 1;
const CREATE_REVISION: u64 = 2;
const MOD_REVISION: u64 = 3;
const VERSION: u64 = 4;
const VALUE: u64 = 5;
const LEASE: u64 = 6;

fn decode_fields(mut rest: &[u8]) -> Result<KeyValueRef<'_>, &'static str> {
    let mut kv = KeyValueRef::default();
    while !rest.is_empty() {
        let tag = take_varint(&mut rest)?;
        let (field, wire) = (tag >> 3, tag & 7);
        if field == 0 || tag > u64::from(u32::MAX) {
            return Err("a field number is out of range");
        }
        match (field, wire) {
            (KEY, WIRE_BYTES) => kv.key = take_bytes(&mut rest)?,
            (VALUE, WIRE_BYTES) => kv.value = take_bytes(&mut rest)?,
            (CREATE_REVISION, WIRE_VARINT) => kv.create_revision = take_int64(&mut rest)?,
            (MOD_REVISION, WIRE_VARINT) => kv.mod_revision = take_int64(&mut rest)?,
            (VERSION, WIRE_VARINT) => kv.version = take_int64(&mut rest)?,
            (LEASE, WIRE_VARINT) => kv.lease = take_int64(&mut rest)?,
            (KEY..=LEASE, _) => return Err("a field has the wrong wire type"),
            (_, WIRE_VARINT) => _ = take_varint(&mut rest)?,
            (_, WIRE_FIXED64) => _ = take(&mut rest, 8)?,
            (_, WIRE_BYTES) => _ = take_bytes(&mut rest)?,
            (_, WIRE_FIXED32) => _ = take(&mut rest, 4)?,
            _ => return Err("a field has an unknown wire type"),
        }
    }
    Ok(kv)
}

/// The key alone of what is stored at a revision. It comes first in what we and etcd write: the value, which may be large,
/// is then not even looked at.
pub(super) fn stored_key(revision: Revision, encoded: &[u8]) -> Result<&[u8], MvccError> {
    match encoded.strip_prefix(&[(KEY << 3 | WIRE_BYTES) as u8]) {
        Some(mut rest) => {
            take_bytes(&mut rest).map_err(|what| MvccError::DamagedRecord { revision, what: what.to_owned() })
        }
        None => Ok(KeyValueRef::decode_at(revision, encoded)?.key),
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], &'static str> {
    let length = usize::try_from(length).map_err(|_| "a length is out of range")?;
    let (taken, left) = rest.split_at_checked(length).ok_or("a field is cut short")?;
    *rest = left;
    Ok(taken)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = take_varint(rest)?;
    take(rest, length)
}

/// int64 is stored as the two's complement in a varint.
fn take_int64(rest: &mut &[u8]) -> Result<i64, &'static str> {
    take_varint(rest).map(|raw| raw.cast_signed())
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0u64;
    for (at, &byte) in rest.iter().enumerate() {
        // The tenth byte holds the 64th bit and nothing else.
        if at == 9 && byte > 1 {
            return Err("a varint is too long");
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *rest = &rest[at + 1..];
            return Ok(value);
        }
    }
    Err("a varint is cut short")
}

/// Appends the pair as protobuf, fields in order of their numbers, zero and empty ones left out.
pub(super) fn encode_key_value(kv: &mvccpb::KeyValue, out: &mut Vec<u8>) {
    put_bytes(out, KEY, &kv.key);
    put_int64(out, CREATE_REVISION, kv.create_revision);
    put_int64(out, MOD_REVISION, kv.mod_revision);
    put_int64(out, VERSION, kv.version);
    put_bytes(out, VALUE, &kv.value);
    put_int64(out, LEASE, kv.lease);
}

/// Appends what is stored of a deletion: the key alone.
pub(super) fn encode_tombstone(key: &[u8], out: &mut Vec<u8>) {
    put_bytes(out, KEY, key);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_varint(out, field << 3 | WIRE_BYTES);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

fn put_int64(out: &mut Vec<u8>, field: u64, number: i64) {
    if number != 0 {
        put_varint(out, field << 3 | WIRE_VARINT);
        put_varint(out, number.cast_unsigned());
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails panics")]

    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn any_key_value() -> impl Strategy<Value = mvccpb::KeyValue> {
        let number = || prop_oneof![Just(0), Just(-1), 1i64..300, any::<i64>()];
        let bytes = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        (bytes(), bytes(), [number(), number(), number(), number()]).prop_map(
            |(key, value, [create_revision, mod_revision, version, lease])| mvccpb::KeyValue {
                key,
                create_revision,
                mod_revision,
                version,
                value,
                lease,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn encoding_equals_prosts_and_decodes_to_the_same(kv in any_key_value()) {
            let mut encoded = Vec::new();
            encode_key_value(&kv, &mut encoded);
            prop_assert_eq!(&encoded, &kv.encode_to_vec());
            prop_assert_eq!(KeyValueRef::decode(&encoded).unwrap().to_owned(), kv);
        }

        #[test]
        fn arbitrary_bytes_are_refused_exactly_when_prost_refuses_them(
            bytes in prop::collection::vec(prop_oneof![0u8..0x40, any::<u8>()], 0..24),
        ) {
            // Groups are the exception: nobody writes them, and skipping them would need a recursion limit.
            let ours = KeyValueRef::decode(&bytes);
            match mvccpb::KeyValue::decode(bytes.as_slice()) {
                Ok(kv) => if let Ok(ours) = ours { prop_assert_eq!(ours.to_owned(), kv) },
                Err(_) => prop_assert!(ours.is_err()),
            }
        }
    }

    #[test]
    fn unknown_fields_are_skipped() {
        // key "k"; field 9 varint; field 10 fixed64; field 11 bytes; field 12 fixed32; version 3.
        let encoded =
            b"\x0a\x01k\x48\x96\x01\x51\x01\x02\x03\x04\x05\x06\x07\x08\x5a\x02xy\x65\x01\x02\x03\x04\x20\x03";
        let kv = KeyValueRef::decode(encoded).unwrap();
        assert_eq!((kv.key, kv.version), (b"k".as_slice(), 3));
    }

    #[test]
    fn a_record_cut_anywhere_inside_a_field_is_damaged() {
        let mut encoded = Vec::new();
        encode_tombstone(b"some key", &mut encoded);
        for length in 1..encoded.len() {
            assert!(matches!(KeyValueRef::decode(&encoded[..length]), Err(MvccError::DamagedRecord { .. })));
        }
        assert_eq!(KeyValueRef::decode(&encoded).unwrap(), KeyValueRef { key: b"some key", ..Default::default() });
    }
}
