//! Do the records of a file make a history? Fed pair by pair, in the file's order, it tells what cannot be.
//!
//! Of each key it remembers where its last change left it, so it needs memory for every key, as a member does.

use std::collections::HashMap;

use super::super::{KeyValueRef, Revision, buckets};

/// Checks buckets `key` and `meta`.
#[derive(Debug, Default)]
pub struct KeyAudit {
    /// Key → its state after its last change.
    keys: HashMap<Box<[u8]>, Last>,
    scheduled: Option<i64>,
    finished: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    created: i64,
    /// 0 after a deletion.
    version: i64,
}

impl KeyAudit {
    /// Looks at a pair of a bucket; what is wrong with it, if something is. Buckets of others' are none of its business.
    pub fn see(&mut self, bucket: &[u8], key: &[u8], value: &[u8]) -> Result<(), String> {
        match bucket {
            buckets::KEY => self.see_change(key, value),
            buckets::META => self.see_mark(key, value),
            _ => Ok(()),
        }
    }

    /// To be asked when all was seen: what is wrong with the whole.
    pub fn finish(&self) -> Result<(), String> {
        match (self.finished, self.scheduled) {
            (Some(finished), Some(scheduled)) if finished > scheduled => Err(format!(
                "bucket meta: the compaction at {finished} is finished, but the last one to be begun is that at {scheduled}"
            )),
            _ => Ok(()),
        }
    }

    fn see_change(&mut self, name: &[u8], encoded: &[u8]) -> Result<(), String> {
        let Some((revision, tombstone)) = Revision::decode(name) else {
            return Err(format!("{} is not a revision", name.escape_ascii()));
        };
        let wrong = |what: &str| Err(format!("revision {}.{}: {what}", revision.main, revision.sub));
        let kv = match KeyValueRef::decode_at(revision, encoded) {
            Ok(kv) => kv,
            Err(error) => return Err(error.to_string()),
        };
        if kv.key.is_empty() {
            // What a restore with a bump of the revision leaves: a revision without a change.
            return if encoded.is_empty() && !tombstone { Ok(()) } else { wrong("it names no key") };
        }
        let before = self.keys.get(kv.key).copied();
        if tombstone {
            self.remember(kv.key, Last { created: 0, version: 0 });
            let is_plain = KeyValueRef { key: kv.key, ..KeyValueRef::default() } == kv;
            return if is_plain { Ok(()) } else { wrong("a deletion holds more than its key") };
        }
        self.remember(kv.key, Last { created: kv.create_revision, version: kv.version });
        check_put(revision, &kv, before).or_else(|what| wrong(&what))
    }

    fn remember(&mut self, key: &[u8], last: Last) {
        match self.keys.get_mut(key) {
            Some(known) => *known = last,
            None => _ = self.keys.insert(key.into(), last),
        }
    }

    fn see_mark(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mark = match key {
            buckets::SCHEDULED_COMPACTION => &mut self.scheduled,
            buckets::FINISHED_COMPACTION => &mut self.finished,
            buckets::CONSISTENT_INDEX | buckets::TERM if value.len() != 8 => {
                return Err(format!("{} is not 8 bytes long", key.escape_ascii()));
            }
            buckets::STORAGE_VERSION if !is_version(value) => {
                return Err(format!("storageVersion {} is not a version", value.escape_ascii()));
            }
            _ => return Ok(()),
        };
        match Revision::decode(value) {
            Some((revision, false)) => {
                *mark = Some(revision.main);
                Ok(())
            }
            _ => Err(format!("{} does not hold a revision", key.escape_ascii())),
        }
    }
}

fn check_put(revision: Revision, kv: &KeyValueRef<'_>, before: Option<Last>) -> Result<(), String> {
    let key = kv.key.escape_ascii();
    if kv.mod_revision != revision.main {
        return Err(format!("its record says it is of revision {}", kv.mod_revision));
    }
    if !(1..=kv.mod_revision).contains(&kv.create_revision) {
        return Err(format!("key {key} was created at revision {}", kv.create_revision));
    }
    if kv.version < 1 || kv.version > kv.mod_revision - kv.create_revision + 1 {
        return Err(format!("key {key} has version {} since revision {}", kv.version, kv.create_revision));
    }
    match before {
        Some(last) if last.version > 0 && (kv.version, kv.create_revision) != (last.version + 1, last.created) => {
            Err(format!(
                "key {key} has version {} since revision {}, before it had version {} since revision {}",
                kv.version, kv.create_revision, last.version, last.created
            ))
        }
        Some(last) if last.version == 0 && (kv.version, kv.create_revision) != (1, revision.main) => {
            Err(format!("key {key} was deleted before, but has version {} since {}", kv.version, kv.create_revision))
        }
        _ => Ok(()),
    }
}

fn is_version(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let number = text.split_once('-').map_or(text, |(number, _)| number);
    number.split('.').count() == 3 && number.split('.').all(|part| part.parse::<u32>().is_ok())
}
