//! Is a file sound, from its pages to its records?

use std::{path::Path, sync::Arc};

use super::{OfflineError, source::Source};
use crate::{
    apply::Alarms,
    auth,
    bolt::{Damage, DamagedPlace, PlacedPair},
    disk::Disk,
    lease, members,
    mvcc::{self, KeyAudit, buckets},
};

/// Findings that are told one by one; those after them are counted.
const FINDINGS_MAX: usize = 1_000;

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The page, unless it is the whole that is wrong.
    pub page: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// What is to be found there, as far as it is known.
    pub place: Option<DamagedPlace>,
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The first of the findings.
    pub findings: Vec<Finding>,
    /// How many findings there are.
    pub findings_total: u64,
    /// Pairs that were looked at.
    pub pairs: u64,
    /// Whether a SHA-256 at the end was looked at too.
    pub has_hash: bool,
}

impl Checked {
    fn note(&mut self, finding: Finding) {
        self.findings_total += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Looks at everything in a file. An error is what keeps it from being looked at.
pub fn check_file(disk: &Arc<dyn Disk>, path: &Path) -> Result<Checked, OfflineError> {
    let source = Source::open(disk, path)?;
    let mut checked = check_source(&source)?;
    checked.has_hash = source.has_hash;
    match source.check_hash() {
        Err(error @ OfflineError::WrongHash { .. }) => {
            checked.note(Finding { page: None, what: error.to_string(), place: None });
        }
        outcome => outcome?,
    }
    Ok(checked)
}

/// The same without the hash.
pub(super) fn check_source(source: &Source) -> Result<Checked, OfflineError> {
    let mut keys = KeyAudit::default();
    let (mut checked, mut records) = (Checked::default(), Checked::default());
    let mut pairs = 0;
    let mut on_pair = |pair: PlacedPair<'_>| {
        pairs += 1;
        if let Err(what) = check_record(&mut keys, &pair) {
            let place = DamagedPlace {
                bucket: pair.bucket.to_vec(),
                low: pair.key.to_vec(),
                high: Some([pair.key, &[0]].concat()),
            };
            records.note(Finding { page: Some(pair.page), what, place: Some(place) });
        }
    };
    let mut on_damage = |damage: Damage| {
        checked.note(Finding { page: Some(damage.page), what: damage.what, place: damage.place });
    };
    source.tx.check_file(&mut on_pair, &mut on_damage)?;
    // A list of buckets that cannot be read is among the damaged pages already.
    if let Ok(Some((page, what))) = mvcc::misnamed_bucket(&source.tx) {
        records.note(Finding { page: Some(page), what, place: None });
    }
    if let Err(what) = keys.finish() {
        records.note(Finding { page: None, what, place: None });
    }
    // Damaged pages first: records may be wrong because of them.
    let told = records.findings.len() as u64;
    for finding in records.findings {
        checked.note(finding);
    }
    checked.findings_total += records.findings_total - told;
    checked.pairs = pairs;
    Ok(checked)
}

fn check_record(keys: &mut KeyAudit, pair: &PlacedPair<'_>) -> Result<(), String> {
    keys.see(pair.bucket, pair.key, pair.value)?;
    match pair.bucket {
        buckets::LEASE => lease::check_record(pair.key, pair.value),
        buckets::ALARM => Alarms::check_record(pair.key),
        bucket => {
            auth::check_record(bucket, pair.key, pair.value)?;
            members::check_record(bucket, pair.key, pair.value)
        }
    }
}
