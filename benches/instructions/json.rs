//! Messages as JSON: the hot requests read, the hot answers written.

use std::path::Path;

use revgate::{
    http::instructions as door,
    mvcc::KeyValueRef,
    proto::{etcdserverpb as pb, mvccpb},
};

use crate::counted;

const TIMES: u64 = 200;
const PAIRS: usize = 500;

fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

fn value() -> String {
    base64(&[b'v'; 256])
}

fn read<T>(text: &str, read: fn(&[u8]) -> T) -> u64 {
    for _ in 0..TIMES {
        counted(|| read(text.as_bytes()));
    }
    TIMES
}

pub(crate) fn read_put(_: &Path) -> u64 {
    let text = format!(r#"{{"key":"{}","value":"{}","lease":"0"}}"#, base64(b"bench/0001"), value());
    assert!(door::read_put(text.as_bytes()).is_ok());
    read(&text, door::read_put)
}

pub(crate) fn read_range(_: &Path) -> u64 {
    let (key, end) = (base64(b"bench/0001"), base64(b"bench/0002"));
    let text = format!(r#"{{"key":"{key}","range_end":"{end}","limit":"500","serializable":true}}"#);
    assert!(door::read_range(text.as_bytes()).is_ok());
    read(&text, door::read_range)
}

pub(crate) fn read_txn(_: &Path) -> u64 {
    let (key, value) = (base64(b"bench/0001"), value());
    let text = format!(
        r#"{{"compare":[{{"key":"{key}","target":"MOD","mod_revision":"1234"}}],"success":[{{"request_put":{{"key":"{key}","value":"{value}"}}}}],"failure":[{{"request_range":{{"key":"{key}"}}}}]}}"#
    );
    assert!(door::read_txn(text.as_bytes()).is_ok());
    read(&text, door::read_txn)
}

fn header() -> pb::ResponseHeader {
    let (cluster_id, member_id) = (14_841_639_068_965_178_418, 10_276_657_743_932_975_437);
    pb::ResponseHeader { cluster_id, member_id, revision: 123_456, raft_term: 2 }
}

pub(crate) fn write_range(_: &Path) -> u64 {
    const TIMES: u64 = 20;
    let pairs: Vec<(String, Vec<u8>)> = (0..PAIRS).map(|n| (format!("bench/{n:06}"), vec![b'v'; 256])).collect();
    let header = header();
    for _ in 0..TIMES {
        let answer = counted(|| {
            let pairs = pairs.iter().map(|(key, value)| KeyValueRef {
                key: key.as_bytes(),
                create_revision: 1234,
                mod_revision: 12_345,
                version: 3,
                value,
                lease: 0,
            });
            door::write_range(&header, pairs)
        });
        assert!(answer.ends_with(br#"],"count":"500"}"#));
    }
    TIMES
}

pub(crate) fn write_event(_: &Path) -> u64 {
    let response = pb::WatchResponse { header: Some(header()), watch_id: 7, ..Default::default() };
    let kv = mvccpb::KeyValue {
        key: "bench/0001".into(),
        value: vec![b'v'; 256].into(),
        create_revision: 1234,
        mod_revision: 12_345,
        version: 3,
        lease: 0,
    };
    for _ in 0..TIMES {
        counted(|| door::write_event(&response, &kv));
    }
    TIMES
}
