//! Alarms raised in the cluster: who raised which, and how.
//!
//! In the file an alarm is etcd's message as key. Its value, which etcd leaves empty and never looks at, says here when an
//! alarm was raised by hand: such a one stays until it is disarmed by hand. One that a member raised itself, or that comes
//! from an etcd, may be disarmed by the member once its cause is gone.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message;

use crate::{
    mvcc::{BucketWrite, buckets},
    proto::etcdserverpb::{AlarmMember, AlarmType},
};

/// Value in the file of an alarm that was raised by hand.
const BY_HAND: &[u8] = b"by hand";

/// How an alarm came to be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A member found a reason.
    Member,
    /// An operator asked for it.
    Hand,
}

/// Alarms raised in the cluster. Thread-safe, shared with `service`.
#[derive(Debug, Default)]
pub struct Alarms {
    /// By (kind, member).
    raised: RwLock<BTreeMap<(i32, u64), Origin>>,
    // Asked for every command.
    no_space: AtomicBool,
    corrupt: AtomicBool,
}

impl Alarms {
    /// No alarm.
    pub fn new() -> Alarms {
        Alarms::default()
    }

    /// Takes the alarms bucket `alarm` holds (the message as key, its origin as value) in place of what is known.
    pub fn restore(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        let mut raised = BTreeMap::new();
        for (key, value) in stored {
            let alarm = AlarmMember::decode(key.clone()).map_err(|error| format!("an alarm is damaged: {error}"))?;
            let origin = if value == BY_HAND { Origin::Hand } else { Origin::Member };
            raised.insert((alarm.alarm, alarm.member_id), origin);
        }
        *self.raised.write() = raised;
        self.note();
        Ok(())
    }

    /// What is wrong with a key of bucket `alarm`, if something is.
    pub fn check_record(key: &[u8]) -> Result<(), String> {
        Alarms::new().restore(&[(Bytes::copy_from_slice(key), Bytes::new())])
    }

    /// Every alarm, by kind and member.
    pub fn list(&self) -> Vec<AlarmMember> {
        self.raised.read().keys().copied().map(message).collect()
    }

    /// Whether some member has raised this kind of alarm.
    pub fn is_raised(&self, alarm: AlarmType) -> bool {
        match alarm {
            AlarmType::None => !self.raised.read().is_empty(),
            AlarmType::Nospace => self.no_space.load(Ordering::Acquire),
            AlarmType::Corrupt => self.corrupt.load(Ordering::Acquire),
        }
    }

    /// Whether this member has raised this alarm.
    pub fn is_raised_by(&self, member_id: u64, alarm: AlarmType) -> bool {
        self.raised.read().contains_key(&(alarm as i32, member_id))
    }

    /// Whether this member has raised this alarm, and nobody's hand: it may disarm it when the cause is gone.
    pub fn is_own(&self, member_id: u64, alarm: AlarmType) -> bool {
        self.raised.read().get(&(alarm as i32, member_id)) == Some(&Origin::Member)
    }

    /// Raises an alarm; what to store, nothing if it is raised already.
    pub(super) fn raise(&self, member_id: u64, alarm: AlarmType, origin: Origin) -> Vec<BucketWrite> {
        let alarm = (alarm as i32, member_id);
        let mut raised = self.raised.write();
        if raised.contains_key(&alarm) {
            return Vec::new();
        }
        raised.insert(alarm, origin);
        drop(raised);
        self.note();
        let value = match origin {
            Origin::Member => Bytes::new(),
            Origin::Hand => Bytes::from_static(BY_HAND),
        };
        vec![bucket_write(alarm, Some(value))]
    }

    /// Disarms alarms of one kind ([`AlarmType::None`]: of every kind) of one member (0: of every member). Returns them,
    /// and what to store.
    pub(super) fn disarm(&self, member_id: u64, alarm: AlarmType) -> (Vec<AlarmMember>, Vec<BucketWrite>) {
        let meant = |raised: &(i32, u64)| {
            (alarm == AlarmType::None || alarm as i32 == raised.0) && (member_id == 0 || member_id == raised.1)
        };
        let disarmed: Vec<(i32, u64)> = self.raised.read().keys().copied().filter(meant).collect();
        self.raised.write().retain(|raised, _| !meant(raised));
        self.note();
        let writes = disarmed.iter().map(|alarm| bucket_write(*alarm, None)).collect();
        (disarmed.into_iter().map(message).collect(), writes)
    }

    fn note(&self) {
        let raised = self.raised.read();
        let any = |alarm: AlarmType| raised.keys().any(|(kind, _)| *kind == alarm as i32);
        self.no_space.store(any(AlarmType::Nospace), Ordering::Release);
        self.corrupt.store(any(AlarmType::Corrupt), Ordering::Release);
    }
}

fn message((alarm, member_id): (i32, u64)) -> AlarmMember {
    AlarmMember { member_id, alarm }
}

fn bucket_write(alarm: (i32, u64), value: Option<Bytes>) -> BucketWrite {
    BucketWrite { bucket: buckets::ALARM, key: Bytes::from(message(alarm).encode_to_vec()), value }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn kinds(alarms: &Alarms) -> Vec<(u64, i32)> {
        alarms.list().iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect()
    }

    #[test]
    fn an_alarm_is_stored_once_and_restored() {
        let alarms = Alarms::new();
        let writes = alarms.raise(7, AlarmType::Nospace, Origin::Member);
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].key.as_ref(), [0x08, 7, 0x10, 1]);
        assert!(alarms.raise(7, AlarmType::Nospace, Origin::Hand).is_empty());

        let other = Alarms::new();
        other.restore(&[(writes[0].key.clone(), Bytes::new())]).unwrap();
        assert_eq!(kinds(&other), [(7, 1)]);
        assert!(other.is_raised(AlarmType::Nospace) && !other.is_raised(AlarmType::Corrupt));
        assert!(other.restore(&[(Bytes::from_static(b"\x08"), Bytes::new())]).is_err());
    }

    #[test]
    fn what_a_hand_has_raised_is_not_the_members_own() {
        let alarms = Alarms::new();
        let writes = alarms.raise(7, AlarmType::Nospace, Origin::Hand);
        let other = Alarms::new();
        other.restore(&[(writes[0].key.clone(), writes[0].value.clone().unwrap())]).unwrap();
        let from_etcd = Alarms::new();
        from_etcd.restore(&[(writes[0].key.clone(), Bytes::new())]).unwrap();
        for (alarms, own) in [(alarms, false), (other, false), (from_etcd, true)] {
            assert!(alarms.is_raised_by(7, AlarmType::Nospace) && !alarms.is_raised_by(8, AlarmType::Nospace));
            assert_eq!(alarms.is_own(7, AlarmType::Nospace), own);
        }
    }

    #[test]
    fn member_zero_disarms_every_member_and_kind_none_every_kind() {
        let raised = || {
            let alarms = Alarms::new();
            for (member, alarm) in [(1, AlarmType::Nospace), (2, AlarmType::Nospace), (2, AlarmType::Corrupt)] {
                alarms.raise(member, alarm, Origin::Member);
            }
            alarms
        };
        for (member, alarm, left) in [
            (1, AlarmType::Nospace, vec![(2, 1), (2, 2)]),
            (0, AlarmType::Nospace, vec![(2, 2)]),
            (2, AlarmType::None, vec![(1, 1)]),
            (0, AlarmType::None, vec![]),
            (3, AlarmType::None, vec![(1, 1), (2, 1), (2, 2)]),
        ] {
            let alarms = raised();
            let (disarmed, writes) = alarms.disarm(member, alarm);
            assert_eq!(kinds(&alarms), left, "disarm({member}, {alarm:?})");
            assert_eq!((disarmed.len(), writes.len()), (3 - left.len(), 3 - left.len()));
            assert_eq!(alarms.is_raised(AlarmType::Nospace), left.iter().any(|(_, kind)| *kind == 1));
        }
    }
}
