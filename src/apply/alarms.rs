//! Alarms raised in the cluster: who raised which. Each is kept until it is disarmed by hand.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message;

use crate::{
    mvcc::{BucketWrite, buckets},
    proto::etcdserverpb::{AlarmMember, AlarmType},
};

/// Alarms raised in the cluster. Thread-safe, shared with `service`.
#[derive(Debug, Default)]
pub struct Alarms {
    /// (kind, member).
    raised: RwLock<BTreeSet<(i32, u64)>>,
    // Asked for every command.
    no_space: AtomicBool,
    corrupt: AtomicBool,
}

impl Alarms {
    /// No alarm.
    pub fn new() -> Alarms {
        Alarms::default()
    }

    /// Takes the alarms bucket `alarm` holds (the message as key, nothing as value) in place of what is known.
    pub fn restore(&self, stored: &[(Bytes, Bytes)]) -> Result<(), String> {
        let mut raised = BTreeSet::new();
        for (key, _) in stored {
            let alarm = AlarmMember::decode(key.clone()).map_err(|error| format!("an alarm is damaged: {error}"))?;
            raised.insert((alarm.alarm, alarm.member_id));
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
        self.raised.read().iter().copied().map(message).collect()
    }

    /// Whether some member has raised this kind of alarm.
    pub fn is_raised(&self, alarm: AlarmType) -> bool {
        match alarm {
            AlarmType::None => !self.raised.read().is_empty(),
            AlarmType::Nospace => self.no_space.load(Ordering::Acquire),
            AlarmType::Corrupt => self.corrupt.load(Ordering::Acquire),
        }
    }

    /// Raises an alarm; what to store, nothing if it is raised already.
    pub(super) fn raise(&self, member_id: u64, alarm: AlarmType) -> Vec<BucketWrite> {
        let alarm = (alarm as i32, member_id);
        if !self.raised.write().insert(alarm) {
            return Vec::new();
        }
        self.note();
        vec![bucket_write(alarm, Some(Bytes::new()))]
    }

    /// Disarms alarms of one kind ([`AlarmType::None`]: of every kind) of one member (0: of every member). Returns them,
    /// and what to store.
    pub(super) fn disarm(&self, member_id: u64, alarm: AlarmType) -> (Vec<AlarmMember>, Vec<BucketWrite>) {
        let meant = |raised: &(i32, u64)| {
            (alarm == AlarmType::None || alarm as i32 == raised.0) && (member_id == 0 || member_id == raised.1)
        };
        let disarmed: Vec<(i32, u64)> = self.raised.read().iter().copied().filter(meant).collect();
        self.raised.write().retain(|raised| !meant(raised));
        self.note();
        let writes = disarmed.iter().map(|alarm| bucket_write(*alarm, None)).collect();
        (disarmed.into_iter().map(message).collect(), writes)
    }

    fn note(&self) {
        let raised = self.raised.read();
        let any = |alarm: AlarmType| raised.iter().any(|(kind, _)| *kind == alarm as i32);
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
        let writes = alarms.raise(7, AlarmType::Nospace);
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].key.as_ref(), [0x08, 7, 0x10, 1]);
        assert!(alarms.raise(7, AlarmType::Nospace).is_empty());

        let other = Alarms::new();
        other.restore(&[(writes[0].key.clone(), Bytes::new())]).unwrap();
        assert_eq!(kinds(&other), [(7, 1)]);
        assert!(other.is_raised(AlarmType::Nospace) && !other.is_raised(AlarmType::Corrupt));
        assert!(other.restore(&[(Bytes::from_static(b"\x08"), Bytes::new())]).is_err());
    }

    #[test]
    fn member_zero_disarms_every_member_and_kind_none_every_kind() {
        let raised = || {
            let alarms = Alarms::new();
            for (member, alarm) in [(1, AlarmType::Nospace), (2, AlarmType::Nospace), (2, AlarmType::Corrupt)] {
                alarms.raise(member, alarm);
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
