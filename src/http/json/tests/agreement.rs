//! The fast readers and writers against the generic ones, and the generic ones against prost-reflect's own mapping.

use std::fmt::Debug;

use proptest::prelude::*;
use prost_reflect::{
    DynamicMessage, SerializeOptions,
    prost::{Message, Name},
};

use super::strategies as any_of;
use crate::{
    error::ApiError,
    http::json::{generic, read, scan::Scanner, write},
    mvcc::KeyValueRef,
    proto::etcdserverpb as pb,
};

/// The generic writer's bytes, which must be prost-reflect's too.
fn generic_bytes<T: Message + Name>(message: &T) -> Vec<u8> {
    let mut written = Vec::new();
    generic::write(message, &mut written).unwrap();
    let mut dynamic = DynamicMessage::new(generic::descriptor(&T::full_name()).unwrap());
    dynamic.transcode_from(message).unwrap();
    let mut oracle = serde_json::Serializer::new(Vec::new());
    dynamic.serialize_with_options(&mut oracle, &SerializeOptions::new().use_proto_field_name(true)).unwrap();
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&oracle.into_inner()));
    written
}

fn writers_agree<T: Message + Name>(message: &T, fast: impl Fn(&mut Vec<u8>, &T)) {
    let mut written = Vec::new();
    fast(&mut written, message);
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&generic_bytes(message)));
}

/// What is written is read back by both readers, whatever the spelling.
fn readers_agree<T: Message + Name + Default + PartialEq + Debug>(
    message: &T,
    fast: impl Fn(&[u8]) -> Result<T, ApiError>,
) {
    let mut snake = Vec::new();
    generic::write(message, &mut snake).unwrap();
    let mut dynamic = DynamicMessage::new(generic::descriptor(&T::full_name()).unwrap());
    dynamic.transcode_from(message).unwrap();
    let mut camel = serde_json::Serializer::pretty(Vec::new());
    let options = SerializeOptions::new().stringify_64_bit_integers(false).use_enum_numbers(true);
    dynamic.serialize_with_options(&mut camel, &options).unwrap();
    for text in [snake, camel.into_inner()] {
        let shown = String::from_utf8_lossy(&text);
        assert_eq!(fast(&text).as_ref(), Ok(message), "{shown}");
        assert_eq!(generic::read(&text).as_ref(), Ok(message), "{shown}");
    }
}

fn same_verdict<T: Message + Name + Default + PartialEq + Debug>(
    text: &[u8],
    fast: impl Fn(&[u8]) -> Result<T, ApiError>,
) {
    assert_eq!(fast(text), generic::read::<T>(text), "{}", String::from_utf8_lossy(text));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn range_requests_are_read_alike(message in any_of::range_request()) {
        readers_agree(&message, read::range);
    }

    #[test]
    fn put_requests_are_read_alike(message in any_of::put_request()) {
        readers_agree(&message, read::put);
    }

    #[test]
    fn delete_requests_are_read_alike(message in any_of::delete_request()) {
        readers_agree(&message, read::delete_range);
    }

    #[test]
    fn txn_requests_are_read_alike(message in any_of::txn_request()) {
        readers_agree(&message, read::txn);
    }

    #[test]
    fn watch_requests_are_read_alike(message in any_of::watch_request()) {
        readers_agree(&message, read::watch);
    }

    #[test]
    fn keep_alives_are_read_and_written_alike(header in any_of::header(), id: i64, ttl: i64) {
        readers_agree(&pb::LeaseKeepAliveRequest { id }, read::keep_alive);
        let response = pb::LeaseKeepAliveResponse { header: Some(header), id, ttl };
        writers_agree(&response, write::keep_alive);
    }

    #[test]
    fn range_responses_are_written_alike(message in any_of::range_response()) {
        writers_agree(&message, write::range);
    }

    #[test]
    fn put_responses_are_written_alike(message in any_of::put_response()) {
        writers_agree(&message, write::put);
    }

    #[test]
    fn delete_responses_are_written_alike(message in any_of::delete_response()) {
        writers_agree(&message, write::delete_range);
    }

    #[test]
    fn txn_responses_are_written_alike(message in any_of::txn_response()) {
        writers_agree(&message, write::txn);
    }

    #[test]
    fn watch_responses_are_written_alike(message in any_of::watch_response()) {
        writers_agree(&message, write::watch);
    }

    #[test]
    fn streamed_answers_are_the_whole_ones(range in any_of::range_response(), watch in any_of::watch_response()) {
        let mut writer = write::RangeWriter::begin(range.header.as_ref(), 0);
        for kv in &range.kvs {
            writer.pair(KeyValueRef {
                key: &kv.key, create_revision: kv.create_revision, mod_revision: kv.mod_revision, version: kv.version,
                value: &kv.value, lease: kv.lease,
            });
        }
        let streamed = writer.end(range.more, range.count, &range.r#continue);
        let mut whole = Vec::new();
        write::range(&mut whole, &range);
        prop_assert_eq!(String::from_utf8_lossy(&streamed), String::from_utf8_lossy(&whole));

        prop_assume!(!watch.events.is_empty());
        let encoded: Vec<Vec<u8>> = watch.events.iter().map(|event| {
            let mut out = Vec::new();
            write::event(&mut out, event.r#type == 1, event.kv.as_ref(), event.prev_kv.as_ref());
            out
        }).collect();
        let (mut shared, mut whole) = (Vec::new(), Vec::new());
        write::watch_events(&mut shared, &watch, encoded.iter().map(Vec::as_slice));
        write::watch(&mut whole, &watch);
        prop_assert_eq!(String::from_utf8_lossy(&shared), String::from_utf8_lossy(&whole));
    }

    #[test]
    fn odd_texts_get_the_same_verdict(text in any_of::request_text(), at: usize, byte: u8, how: u8) {
        for text in [text.as_bytes().to_vec(), any_of::edit(text.as_bytes(), at, byte, how)] {
            same_verdict(&text, read::range);
            same_verdict(&text, read::put);
            same_verdict(&text, read::delete_range);
            same_verdict(&text, read::txn);
            same_verdict(&text, read::watch);
            same_verdict(&text, read::keep_alive);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        same_verdict(&bytes, read::txn);
        let mut inside = b"{\"compare\":[{\"key\":\"".to_vec();
        inside.extend_from_slice(&bytes);
        same_verdict(&inside, read::txn);
    }

    #[test]
    fn the_scanner_takes_what_serde_json_takes(text in any_of::request_text(), at: usize, byte: u8, how: u8) {
        for text in [text.as_bytes().to_vec(), any_of::edit(text.as_bytes(), at, byte, how)] {
            let mut scanner = Scanner::new(&text);
            let taken = scanner.skip_value().is_ok() && scanner.at_end();
            let oracle = serde_json::from_slice::<serde_json::Value>(&text).is_ok();
            prop_assert_eq!(taken, oracle, "{}", String::from_utf8_lossy(&text));
        }
    }
}
