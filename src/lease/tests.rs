#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::clock::ManualClock;

const SEC: Duration = Duration::from_secs(1);

fn primary() -> (Arc<ManualClock>, Lessor) {
    let clock = Arc::new(ManualClock::default());
    let lessor = Lessor::new(clock.clone(), 2);
    lessor.promote(Duration::ZERO);
    (clock, lessor)
}

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn grant_raises_the_ttl_and_stores_a_lease_message() {
    let (_, lessor) = primary();
    let (ttl_secs, write) = lessor.grant(0x0102_0304_0506_0708, 1).unwrap();
    assert_eq!(ttl_secs, 2);
    assert_eq!(write.bucket, b"lease");
    assert_eq!(&write.key[..], [1, 2, 3, 4, 5, 6, 7, 8]);
    // Field 1 varint id, field 2 varint TTL, no remaining TTL.
    assert_eq!(&write.value.unwrap()[..], [0x08, 0x88, 0x8e, 0x98, 0xa8, 0xc0, 0xe0, 0x80, 0x81, 0x01, 0x10, 2]);
    assert_eq!(lessor.grant(0x0102_0304_0506_0708, 9), Err(LeaseError::Exists));
}

#[test]
fn grant_refuses_what_etcd_refuses() {
    let (_, lessor) = primary();
    assert_eq!(lessor.grant(0, 10), Err(LeaseError::NotFound));
    assert_eq!(lessor.grant(1, TTL_MAX_SECS + 1), Err(LeaseError::TtlTooLarge));
    assert_eq!(lessor.grant(1, TTL_MAX_SECS).unwrap().0, TTL_MAX_SECS);
    assert_eq!(lessor.grant(2, -5).unwrap().0, 2);
}

#[test]
fn a_lease_runs_out_is_renewed_and_is_not_found_once_it_is_due() {
    let (clock, lessor) = primary();
    lessor.grant(7, 10).unwrap();
    clock.advance(Duration::from_millis(2500));
    let left = lessor.time_to_live(7, false).unwrap();
    assert_eq!((left.granted_ttl_secs, left.remaining_secs), (10, 7));
    assert_eq!(lessor.renew(7), Ok(10));
    clock.advance(10 * SEC - Duration::from_nanos(1));
    assert!(lessor.expired(10, SEC).is_empty());
    assert_eq!(lessor.time_to_live(7, false).unwrap().remaining_secs, 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(lessor.renew(7), Err(LeaseError::NotFound));
    assert_eq!(lessor.time_to_live(7, false), Err(LeaseError::NotFound));
    assert!(lessor.contains(7), "it exists until the log has revoked it");
    assert_eq!(lessor.expired(10, SEC), [7]);
}

#[test]
fn an_expired_lease_is_handed_out_again_only_after_a_while() {
    let (clock, lessor) = primary();
    for id in [3, 1, 2] {
        lessor.grant(id, 1 + id).unwrap();
    }
    clock.advance(10 * SEC);
    assert_eq!(lessor.expired(2, 3 * SEC), [1, 2]);
    assert_eq!(lessor.expired(2, 3 * SEC), [3]);
    assert!(lessor.expired(2, 3 * SEC).is_empty());
    lessor.revoke(1).unwrap();
    clock.advance(3 * SEC);
    assert_eq!(lessor.expired(10, 3 * SEC), [2, 3]);
    assert_eq!(lessor.ids(), [2, 3]);
}

#[test]
fn a_key_hangs_on_one_lease_at_most() {
    let (_, lessor) = primary();
    lessor.grant(1, 5).unwrap();
    lessor.grant(2, 5).unwrap();
    for name in ["b", "a", "c"] {
        lessor.attach(&key(name), 1).unwrap();
    }
    lessor.attach(&key("b"), 2).unwrap();
    assert_eq!(lessor.keys(1).unwrap(), [key("a"), key("c")]);
    assert_eq!(lessor.time_to_live(2, true).unwrap().keys, [key("b")]);
    assert_eq!(lessor.attach(&key("a"), 9), Err(LeaseError::NotFound));
    assert_eq!(lessor.lease_of(b"a"), 1, "a refused attachment changes nothing");
    lessor.attach(&key("a"), 0).unwrap();
    lessor.detach(b"b");
    assert_eq!((lessor.lease_of(b"a"), lessor.lease_of(b"b"), lessor.lease_of(b"c")), (0, 0, 1));
    let write = lessor.revoke(1).unwrap();
    assert_eq!((write.key.as_ref(), write.value), (&[0, 0, 0, 0, 0, 0, 0, 1][..], None));
    assert_eq!(lessor.lease_of(b"c"), 0);
    assert_eq!(lessor.revoke(1), Err(LeaseError::NotFound));
    assert_eq!(lessor.keys(1), Err(LeaseError::NotFound));
}

#[test]
fn only_the_primary_counts() {
    let (clock, lessor) = primary();
    lessor.grant(1, 5).unwrap();
    lessor.demote();
    lessor.grant(2, 5).unwrap();
    assert!(!lessor.is_primary());
    clock.advance(100 * SEC);
    assert!(lessor.expired(10, SEC).is_empty());
    assert_eq!(lessor.renew(1), Err(LeaseError::NotPrimary));
    assert_eq!(lessor.time_to_live(1, false), Err(LeaseError::NotPrimary));
    lessor.promote(3 * SEC);
    assert!(lessor.is_primary());
    assert_eq!(lessor.time_to_live(1, false).unwrap().remaining_secs, 8);
    assert_eq!(lessor.time_to_live(2, false).unwrap().remaining_secs, 8);
    clock.advance(8 * SEC);
    assert_eq!(lessor.expired(10, SEC), [1, 2]);
}

#[test]
fn a_promotion_spreads_what_would_expire_together() {
    let (clock, lessor) = primary();
    for id in 1..=2500 {
        lessor.grant(id, 10).unwrap();
    }
    lessor.promote(SEC);
    clock.advance(11 * SEC - Duration::from_nanos(1));
    assert_eq!(lessor.expired(5000, 100 * SEC).len(), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(lessor.expired(5000, 100 * SEC).len(), 1000);
    clock.advance(SEC);
    assert_eq!(lessor.expired(5000, 100 * SEC).len(), 1000);
    clock.advance(SEC);
    assert_eq!(lessor.expired(5000, 100 * SEC).len(), 500);
}

#[test]
fn restore_takes_what_grant_stored() {
    let (_, lessor) = primary();
    let stored: Vec<(Bytes, Bytes)> = [(5, 60), (-4, 30)]
        .into_iter()
        .map(|(id, ttl_secs)| lessor.grant(id, ttl_secs).unwrap().1)
        .map(|write| (write.key, write.value.unwrap()))
        .collect();
    let other = Lessor::new(Arc::new(ManualClock::default()), 2);
    other.restore(&stored, vec![(5, key("k")), (77, key("orphan")), (0, key("free"))]).unwrap();
    assert_eq!(other.keys(5).unwrap(), [key("k")]);
    assert_eq!((other.lease_of(b"orphan"), other.lease_of(b"free")), (0, 0));
    assert_eq!(other.ids(), [-4, 5]);
    other.promote(Duration::ZERO);
    assert_eq!(other.time_to_live(5, false).unwrap().remaining_secs, 60);
}

#[test]
fn restore_names_the_damaged_record() {
    let lessor = Lessor::new(Arc::new(ManualClock::default()), 2);
    let good = encode(1, 5);
    let error = |key: &'static [u8], value: Bytes| lessor.restore(&[(key.into(), value)], Vec::new()).unwrap_err();
    assert_eq!(error(b"ab\xff", good.clone()), r#"lease bucket: key "ab\\xff" is not 8 bytes long"#);
    let two = b"\0\0\0\0\0\0\0\x02";
    assert_eq!(error(two, good), "lease bucket: record of lease 0000000000000002 is about lease 0000000000000001");
    assert!(error(two, Bytes::from_static(b"\x08")).starts_with("lease bucket: record of lease 0000000000000002: "));
    assert_eq!(error(two, encode(2, -1)), "lease bucket: record of lease 0000000000000002 has TTL -1 s");
}

#[derive(Clone, Debug)]
enum Op {
    Grant(i64, i64),
    Revoke(i64),
    Attach(u8, i64),
    Detach(u8),
    Renew(i64),
    Advance(u64),
    Expired(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let id = 1..6i64;
    prop_oneof![
        (id.clone(), 0..8i64).prop_map(|(id, ttl_secs)| Op::Grant(id, ttl_secs)),
        id.clone().prop_map(Op::Revoke),
        (0..6u8, 0..6i64).prop_map(|(key, id)| Op::Attach(key, id)),
        (0..6u8).prop_map(Op::Detach),
        id.prop_map(Op::Renew),
        (0..4u64).prop_map(Op::Advance),
        (0..4usize).prop_map(Op::Expired),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Against the plainest model there is: (ttl, expiry, next hand-out) by id and a map from key to lease.
    #[test]
    fn behaves_as_the_model(ops in prop::collection::vec(op(), 1..80)) {
        let (clock, lessor) = primary();
        let mut leases: BTreeMap<i64, (i64, u64, u64)> = BTreeMap::new();
        let mut of: BTreeMap<Bytes, i64> = BTreeMap::new();
        let mut now = 0;
        let name = |k: u8| Bytes::from(vec![k]);
        for op in ops {
            match op {
                Op::Grant(id, ttl_secs) => {
                    let ttl_secs = ttl_secs.max(2);
                    let free = !leases.contains_key(&id);
                    prop_assert_eq!(lessor.grant(id, ttl_secs).is_ok(), free);
                    let end = now + ttl_secs as u64;
                    leases.entry(id).or_insert((ttl_secs, end, end));
                }
                Op::Revoke(id) => {
                    prop_assert_eq!(lessor.revoke(id).is_ok(), leases.remove(&id).is_some());
                    of.retain(|_, lease| *lease != id);
                }
                Op::Attach(k, id) => {
                    let fits = id == 0 || leases.contains_key(&id);
                    prop_assert_eq!(lessor.attach(&name(k), id).is_ok(), fits);
                    if id == 0 { of.remove(&name(k)); } else if fits { of.insert(name(k), id); }
                }
                Op::Detach(k) => { lessor.detach(&name(k)); of.remove(&name(k)); }
                Op::Renew(id) => match leases.get_mut(&id).filter(|lease| lease.1 > now) {
                    Some(lease) => {
                        prop_assert_eq!(lessor.renew(id), Ok(lease.0));
                        lease.1 = now + lease.0 as u64;
                        lease.2 = lease.1;
                    }
                    None => prop_assert_eq!(lessor.renew(id), Err(LeaseError::NotFound)),
                },
                Op::Advance(secs) => { clock.advance(Duration::from_secs(secs)); now += secs; }
                Op::Expired(max) => {
                    let mut due: Vec<(u64, i64)> =
                        leases.iter().filter(|(_, l)| l.2 <= now).map(|(id, l)| (l.2, *id)).collect();
                    due.sort_unstable();
                    due.truncate(max);
                    let due: Vec<i64> = due.into_iter().map(|(_, id)| id).collect();
                    for id in &due { leases.get_mut(id).unwrap().2 = now + 3; }
                    prop_assert_eq!(lessor.expired(max, Duration::from_secs(3)), due);
                }
            }
            for (id, lease) in &leases {
                let keys: BTreeSet<Bytes> = of.iter().filter(|(_, l)| *l == id).map(|(k, _)| k.clone()).collect();
                prop_assert_eq!(lessor.keys(*id).unwrap(), keys.into_iter().collect::<Vec<_>>());
                prop_assert_eq!(lessor.time_to_live(*id, false).is_ok(), lease.1 > now);
            }
            let mut ids: Vec<(u64, i64)> = leases.iter().map(|(id, l)| (l.1, *id)).collect();
            ids.sort_unstable();
            prop_assert_eq!(lessor.ids(), ids.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
        }
    }
}
