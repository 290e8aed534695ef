//! Append-only writers: the primitives every answer is built of, and the hot answers by hand.
//!
//! They write what [`generic`](super::generic) writes, byte for byte, straight into the output buffer.

use base64_simd::STANDARD;

use crate::{
    mvcc::KeyValueRef,
    proto::{
        etcdserverpb::{self as pb, response_op::Response},
        mvccpb,
    },
};

/// An object in the making.
#[derive(Debug)]
pub(crate) struct Object<'o> {
    out: &'o mut Vec<u8>,
    separator: u8,
}

impl<'o> Object<'o> {
    /// Opens an object.
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> Self {
        Self { out, separator: b'{' }
    }

    /// Begins a field; its value is to be appended to what this returns. `name` needs no escaping.
    pub(crate) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.out.extend_from_slice(&[self.separator, b'"']);
        self.separator = b',';
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Closes the object.
    pub(crate) fn end(self) {
        if self.separator == b'{' {
            self.out.push(b'{');
        }
        self.out.push(b'}');
    }

    /// An int64 field, unless it is zero.
    pub(crate) fn int64(&mut self, name: &str, value: i64) {
        if value != 0 {
            quoted_number(self.name(name), value);
        }
    }

    /// A uint64 field, unless it is zero.
    pub(crate) fn uint64(&mut self, name: &str, value: u64) {
        if value != 0 {
            quoted_number(self.name(name), value);
        }
    }

    /// A bool field, unless it is false.
    pub(crate) fn bool(&mut self, name: &str, value: bool) {
        if value {
            bool(self.name(name), value);
        }
    }

    /// A bytes field, unless it is empty.
    pub(crate) fn bytes(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            bytes(self.name(name), value);
        }
    }

    /// A string field, unless it is empty.
    pub(crate) fn string(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            string(self.name(name), value);
        }
    }

    /// The header every answer begins with.
    pub(crate) fn header(&mut self, value: Option<&pb::ResponseHeader>) {
        if let Some(value) = value {
            header(self.name("header"), value);
        }
    }

    /// A list, unless it is empty.
    fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
        if items.is_empty() {
            return;
        }
        let mut array = Array::begin(self.name(name));
        for item in items {
            write(array.item(), item);
        }
        array.end();
    }
}

/// An array in the making.
#[derive(Debug)]
pub(crate) struct Array<'o> {
    out: &'o mut Vec<u8>,
    separator: u8,
}

impl<'o> Array<'o> {
    /// Opens an array.
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> Self {
        Self { out, separator: b'[' }
    }

    /// Begins an item; it is to be appended to what this returns.
    pub(crate) fn item(&mut self) -> &mut Vec<u8> {
        self.out.push(self.separator);
        self.separator = b',';
        self.out
    }

    /// Closes the array.
    pub(crate) fn end(self) {
        if self.separator == b'[' {
            self.out.push(b'[');
        }
        self.out.push(b']');
    }
}

/// `true` or `false`.
pub(crate) fn bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// A number in digits.
pub(crate) fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A 64-bit number: digits in quotes.
pub(crate) fn quoted_number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.push(b'"');
    number(out, value);
    out.push(b'"');
}

/// Bytes as base64 in quotes.
pub(crate) fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    STANDARD.encode_append(value, out);
    out.push(b'"');
}

/// Text in quotes.
pub(crate) fn string(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    for byte in value.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x00..0x20 => {
                let digit = |four: u8| char::from_digit(four.into(), 16).map_or(b'0', |digit| digit as u8);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A ResponseHeader.
pub(crate) fn header(out: &mut Vec<u8>, header: &pb::ResponseHeader) {
    let mut object = Object::begin(out);
    object.uint64("cluster_id", header.cluster_id);
    object.uint64("member_id", header.member_id);
    object.int64("revision", header.revision);
    object.uint64("raft_term", header.raft_term);
    object.end();
}

/// A KeyValue, from wherever it lies.
pub(crate) fn key_value_ref(out: &mut Vec<u8>, kv: KeyValueRef<'_>) {
    // Names, quotes and numbers take less than this; so one key and value make the buffer grow at most once.
    const FRAME_BYTES: usize = 192;
    out.reserve(FRAME_BYTES + (kv.key.len() + kv.value.len()) / 3 * 4);
    if kv.key.is_empty() || kv.create_revision == 0 || kv.mod_revision == 0 || kv.version == 0 || kv.value.is_empty() {
        return sparse_key_value(out, kv);
    }
    // What nearly all pairs have: text of known length, put together from few parts.
    out.extend_from_slice(br#"{"key":""#);
    STANDARD.encode_append(kv.key, out);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(br#"","create_revision":""#);
    out.extend_from_slice(digits.format(kv.create_revision).as_bytes());
    out.extend_from_slice(br#"","mod_revision":""#);
    out.extend_from_slice(digits.format(kv.mod_revision).as_bytes());
    out.extend_from_slice(br#"","version":""#);
    out.extend_from_slice(digits.format(kv.version).as_bytes());
    out.extend_from_slice(br#"","value":""#);
    STANDARD.encode_append(kv.value, out);
    if kv.lease == 0 {
        out.extend_from_slice(br#""}"#);
    } else {
        out.extend_from_slice(br#"","lease":""#);
        out.extend_from_slice(digits.format(kv.lease).as_bytes());
        out.extend_from_slice(br#""}"#);
    }
}

/// A KeyValue some of whose fields are empty: those are left out.
fn sparse_key_value(out: &mut Vec<u8>, kv: KeyValueRef<'_>) {
    let mut object = Object::begin(out);
    object.bytes("key", kv.key);
    object.int64("create_revision", kv.create_revision);
    object.int64("mod_revision", kv.mod_revision);
    object.int64("version", kv.version);
    object.bytes("value", kv.value);
    object.int64("lease", kv.lease);
    object.end();
}

/// A KeyValue.
pub(crate) fn key_value(out: &mut Vec<u8>, kv: &mvccpb::KeyValue) {
    let borrowed = KeyValueRef {
        key: &kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: &kv.value,
        lease: kv.lease,
    };
    key_value_ref(out, borrowed);
}

/// A RangeResponse that is whole.
pub(crate) fn range(out: &mut Vec<u8>, response: &pb::RangeResponse) {
    let mut object = Object::begin(out);
    object.header(response.header.as_ref());
    object.list("kvs", &response.kvs, key_value);
    object.bool("more", response.more);
    object.int64("count", response.count);
    object.string("continue", &response.r#continue);
    object.end();
}

/// A RangeResponse in the making: its pairs come one by one, from wherever they lie.
#[derive(Debug)]
pub(crate) struct RangeWriter {
    out: Vec<u8>,
    separator: bool,
    pairs: usize,
    /// Size of what was taken.
    taken_bytes: usize,
}

impl RangeWriter {
    /// Begins with the header. `bytes_expected` of room are reserved.
    pub(crate) fn begin(response_header: Option<&pb::ResponseHeader>, bytes_expected: usize) -> Self {
        let mut out = Vec::with_capacity(bytes_expected);
        out.push(b'{');
        if let Some(value) = response_header {
            out.extend_from_slice(b"\"header\":");
            header(&mut out, value);
        }
        Self { out, separator: response_header.is_some(), pairs: 0, taken_bytes: 0 }
    }

    /// Appends a pair.
    pub(crate) fn pair(&mut self, kv: KeyValueRef<'_>) {
        if self.pairs == 0 {
            self.name("kvs");
        }
        self.out.push(if self.pairs == 0 { b'[' } else { b',' });
        self.pairs += 1;
        key_value_ref(&mut self.out, kv);
    }

    /// Size of what was written and not taken yet, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Size of a pair so far, in bytes; `None` before the first.
    pub(crate) fn pair_bytes(&self) -> Option<usize> {
        (self.taken_bytes + self.out.len()).checked_div(self.pairs)
    }

    /// Takes what was written so far, to be sent ahead of the rest. The next part is to have `bytes_expected`, and a pair
    /// that ends beyond them.
    pub(crate) fn take(&mut self, bytes_expected: usize) -> Vec<u8> {
        let room = bytes_expected.saturating_add(self.pair_bytes().unwrap_or(0).saturating_mul(2));
        self.taken_bytes = self.taken_bytes.saturating_add(self.out.len());
        std::mem::replace(&mut self.out, Vec::with_capacity(room))
    }

    /// Ends with what is known only once the pairs are through.
    pub(crate) fn end(mut self, more: bool, count: i64, next_page: &str) -> Vec<u8> {
        if self.pairs > 0 {
            self.out.push(b']');
        }
        if more {
            self.name("more");
            bool(&mut self.out, true);
        }
        if count != 0 {
            self.name("count");
            quoted_number(&mut self.out, count);
        }
        if !next_page.is_empty() {
            self.name("continue");
            string(&mut self.out, next_page);
        }
        self.out.push(b'}');
        self.out
    }

    fn name(&mut self, name: &str) {
        if std::mem::replace(&mut self.separator, true) {
            self.out.push(b',');
        }
        string(&mut self.out, name);
        self.out.push(b':');
    }
}

/// A PutResponse.
pub(crate) fn put(out: &mut Vec<u8>, response: &pb::PutResponse) {
    let mut object = Object::begin(out);
    object.header(response.header.as_ref());
    if let Some(previous) = &response.prev_kv {
        key_value(object.name("prev_kv"), previous);
    }
    object.end();
}

/// A DeleteRangeResponse.
pub(crate) fn delete_range(out: &mut Vec<u8>, response: &pb::DeleteRangeResponse) {
    let mut object = Object::begin(out);
    object.header(response.header.as_ref());
    object.int64("deleted", response.deleted);
    object.list("prev_kvs", &response.prev_kvs, key_value);
    object.end();
}

/// A TxnResponse.
pub(crate) fn txn(out: &mut Vec<u8>, response: &pb::TxnResponse) {
    let mut object = Object::begin(out);
    object.header(response.header.as_ref());
    object.bool("succeeded", response.succeeded);
    object.list("responses", &response.responses, response_op);
    object.end();
}

fn response_op(out: &mut Vec<u8>, response: &pb::ResponseOp) {
    let mut object = Object::begin(out);
    match &response.response {
        Some(Response::ResponseRange(response)) => range(object.name("response_range"), response),
        Some(Response::ResponsePut(response)) => put(object.name("response_put"), response),
        Some(Response::ResponseDeleteRange(response)) => delete_range(object.name("response_delete_range"), response),
        Some(Response::ResponseTxn(response)) => txn(object.name("response_txn"), response),
        None => {}
    }
    object.end();
}

/// A LeaseKeepAliveResponse.
pub(crate) fn keep_alive(out: &mut Vec<u8>, response: &pb::LeaseKeepAliveResponse) {
    let mut object = Object::begin(out);
    object.header(response.header.as_ref());
    object.int64("ID", response.id);
    object.int64("TTL", response.ttl);
    object.end();
}

/// A WatchResponse that is whole.
pub(crate) fn watch(out: &mut Vec<u8>, response: &pb::WatchResponse) {
    let mut object = watch_beginning(out, response);
    object.list("events", &response.events, |out, event| {
        let delete = event.r#type == i32::from(mvccpb::event::EventType::Delete);
        self::event(out, delete, event.kv.as_ref(), event.prev_kv.as_ref());
    });
    object.end();
}

/// A WatchResponse whose events are encoded already.
pub(crate) fn watch_events<'e>(
    out: &mut Vec<u8>,
    response: &pb::WatchResponse,
    events: impl Iterator<Item = &'e [u8]>,
) {
    let mut object = watch_beginning(out, response);
    let mut array = Array::begin(object.name("events"));
    for event in events {
        array.item().extend_from_slice(event);
    }
    array.end();
    object.end();
}

fn watch_beginning<'o>(out: &'o mut Vec<u8>, response: &pb::WatchResponse) -> Object<'o> {
    let mut object = Object::begin(out);
    object.header(response.header.as_ref());
    object.int64("watch_id", response.watch_id);
    object.bool("created", response.created);
    object.bool("canceled", response.canceled);
    object.int64("compact_revision", response.compact_revision);
    object.string("cancel_reason", &response.cancel_reason);
    object.bool("fragment", response.fragment);
    object
}

/// An Event.
pub(crate) fn event(
    out: &mut Vec<u8>,
    delete: bool,
    kv: Option<&mvccpb::KeyValue>,
    previous: Option<&mvccpb::KeyValue>,
) {
    let mut object = Object::begin(out);
    if delete {
        object.string("type", "DELETE");
    }
    if let Some(kv) = kv {
        key_value(object.name("kv"), kv);
    }
    if let Some(previous) = previous {
        key_value(object.name("prev_kv"), previous);
    }
    object.end();
}
