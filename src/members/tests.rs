#![allow(clippy::unwrap_used)]

use bytes::Bytes;

use super::*;

fn urls(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn member(id: u64) -> Member {
    Member {
        id,
        name: "default".into(),
        peer_urls: urls(&["http://localhost:2380"]),
        client_urls: urls(&["http://localhost:2379"]),
        is_learner: false,
    }
}

#[test]
fn ids_are_those_of_a_default_etcd() {
    let id = member_id(&urls(&["http://localhost:2380"]), "etcd-cluster");
    assert_eq!(id, 0x8e9e_05c5_2164_694d);
    assert_eq!(cluster_id(&[id]), 0xcdf8_1819_4e3a_8c32);
}

#[test]
fn ids_do_not_depend_on_the_order_given() {
    let one = member_id(&urls(&["http://a:1", "http://b:1"]), "t");
    assert_eq!(one, member_id(&urls(&["http://b:1", "http://a:1"]), "t"));
    assert_eq!(cluster_id(&[3, 1, 2]), cluster_id(&[1, 2, 3]));
    assert_ne!(cluster_id(&[1, 2]), cluster_id(&[1, 3]));
}

#[test]
fn a_member_is_stored_as_etcd_stores_it() {
    let members = Members::new(1, 2, Vec::new());
    let write = members.set(member(0x0a0b));
    assert_eq!(write.bucket, b"members");
    assert_eq!(&write.key[..], b"a0b");
    assert_eq!(
        std::str::from_utf8(&write.value.unwrap()).unwrap(),
        r#"{"id":2571,"peerURLs":["http://localhost:2380"],"name":"default","clientURLs":["http://localhost:2379"]}"#
    );
    let learner = Member { is_learner: true, name: String::new(), client_urls: Vec::new(), ..member(1) };
    let json = members.set(learner).value.unwrap();
    assert_eq!(&json[..], br#"{"id":1,"peerURLs":["http://localhost:2380"],"isLearner":true}"#);
}

#[test]
fn restore_replaces_what_is_known_if_anything_is_stored() {
    let members = Members::new(1, 9, vec![member(9)]);
    members.restore(&[]).unwrap();
    assert_eq!(members.list(), [member(9)]);
    let stored: Vec<(Bytes, Bytes)> =
        [member(8), member(7)].into_iter().map(|m| members.set(m)).map(|w| (w.key, w.value.unwrap())).collect();
    let other = Members::new(1, 9, vec![member(9)]);
    other.restore(&stored).unwrap();
    assert_eq!(other.list(), [member(7), member(8)]);
    assert_eq!((other.cluster_id(), other.local_id()), (1, 9));
}

#[test]
fn restore_reads_ids_beyond_floats_nulls_and_unknown_fields() {
    let members = Members::new(1, 2, Vec::new());
    let json = br#"{"id":10276657743932975437,"peerURLs":null,"color":{"x":[1]},"clientURLs":null}"#;
    members.restore(&[("8e9e05c52164694d".into(), Bytes::from_static(json))]).unwrap();
    let expected = Member {
        id: 0x8e9e_05c5_2164_694d,
        peer_urls: Vec::new(),
        client_urls: Vec::new(),
        name: String::new(),
        ..member(0)
    };
    assert_eq!(members.list(), [expected]);
}

#[test]
fn restore_names_the_damaged_record() {
    let members = Members::new(1, 2, vec![member(2)]);
    let error = |key: &'static str, json: &'static str| members.restore(&[(key.into(), json.into())]).unwrap_err();
    assert_eq!(error("a", r#"{"id":11}"#), "members bucket: record of member a is about member b");
    assert!(error("a", "{").starts_with("members bucket: record of member a: "));
    assert!(error("a", r#"{"id":-1}"#).starts_with("members bucket: record of member a: "));
    assert_eq!(members.list(), [member(2)]);
}
