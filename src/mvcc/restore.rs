//! Opening: the file's buckets are there, its marks are read, and the key index is built from bucket `key`.
//!
//! The scan is split over threads by the file's pages: each decodes and sorts what it gets. Then each of them builds the
//! index of a range of keys. Every record is decoded, so a damaged one is found here and named, not when it is read.

use std::{
    iter,
    num::NonZero,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    KeyValueRef, LogPosition, MvccError, Revision, buckets,
    index::{Entry, Index, Part, VERSION_MAX},
    progress::Progress,
    runs::{Merged, Run, Stored, merge},
    state::Values,
};
use crate::bolt;

/// Most threads a scan is split over.
const THREADS_MAX: usize = 8;
/// Parts below which it does not pay to start a thread.
const PARTS_PER_THREAD_MIN: usize = 16;
/// Parts a scan is made in, if there is so much to scan: enough for all threads.
const PARTS_MIN: usize = THREADS_MAX * PARTS_PER_THREAD_MIN;
/// Between two lines of the log that say how far a scan is.
const REPORT_INTERVAL: Duration = Duration::from_secs(3);
/// The form of the file, as bucket `meta` names it: the etcd whose files look alike. Between 3.6 and 3.7 nothing changed.
pub const STORAGE_VERSION: &str = "3.7.0";

/// What was found in the file.
#[derive(Debug)]
pub struct Restored {
    /// The last log entry the file contains.
    pub position: LogPosition,
    /// Live keys that hang on a lease: (lease id, key).
    pub lease_attachments: Vec<(i64, Bytes)>,
}

/// The store's state as the file has it.
pub(super) struct Contents {
    pub(super) restored: Restored,
    pub(super) index: Index,
    pub(super) current_revision: i64,
    /// -1 if nothing was ever compacted.
    pub(super) compact_revision: i64,
    /// A compaction that was begun and not finished.
    pub(super) unfinished_compaction: Option<i64>,
}

/// Creates what buckets are missing, and marks the file with the version of its form.
pub(super) fn prepare(db: &bolt::Db) -> Result<(), MvccError> {
    let tx = db.read()?;
    if let Some((page, what)) = misnamed_bucket(&tx)? {
        return Err(MvccError::damaged(Revision::default(), what).in_page(Some(page)));
    }
    let version = meta(&tx, buckets::STORAGE_VERSION)?.map(|text| String::from_utf8_lossy(text).into_owned());
    if let Some(found) = version.as_ref().filter(|found| is_too_new(found)) {
        return Err(MvccError::TooNew { found: found.clone() });
    }
    let mut is_complete = version.as_deref() == Some(STORAGE_VERSION);
    for name in buckets::ALL {
        is_complete &= tx.bucket(name)?.is_some();
    }
    drop(tx);
    if is_complete {
        return Ok(());
    }
    let mut tx = db.write()?;
    for name in buckets::ALL {
        tx.create_bucket_if_missing(name)?;
    }
    tx.put(buckets::META, buckets::STORAGE_VERSION, STORAGE_VERSION.as_bytes())?;
    tx.commit()?;
    Ok(())
}

/// What of the list of buckets cannot be, and the page it lies in: something that is no bucket, or a bucket that nobody
/// knows where one that everybody knows is missing: creating that one anew would hide that its name was damaged.
pub fn misnamed_bucket(tx: &bolt::ReadTx) -> Result<Option<(u64, String)>, MvccError> {
    let (mut found, mut stranger) = (Vec::new(), None);
    let mut cursor = tx.root().cursor();
    let mut name = cursor.first()?;
    while let Some((bucket, _)) = name {
        let page = cursor.page().unwrap_or_default();
        let shown = bucket.escape_ascii();
        if !cursor.is_bucket() {
            return Ok(Some((page, format!("{shown} lies among the buckets, but is none"))));
        }
        if buckets::ALL.contains(&bucket) {
            found.push(bucket);
        } else {
            stranger = Some((page, format!("bucket {shown} is unknown")));
        }
        name = cursor.next()?;
    }
    let missing = buckets::ALL.into_iter().find(|bucket| !found.contains(bucket));
    Ok(missing
        .zip(stranger)
        .map(|(missing, (page, what))| (page, format!("{what}, and bucket {} is missing", missing.escape_ascii()))))
}

/// Whether a version's major and minor number are above ours. What cannot be read is taken for old.
fn is_too_new(version: &str) -> bool {
    let numbers = |text: &str| {
        let mut parts = text.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    numbers(version) > numbers(STORAGE_VERSION)
}

/// Reads the file whole.
pub(super) fn read(db: &bolt::Db) -> Result<Contents, MvccError> {
    let tx = db.read()?;
    let finished = mark(&tx, buckets::FINISHED_COMPACTION)?;
    let scheduled = mark(&tx, buckets::SCHEDULED_COMPACTION)?;
    let position = LogPosition { term: number(&tx, buckets::TERM)?, index: number(&tx, buckets::CONSISTENT_INDEX)? };
    let started = Instant::now();
    let last = last_main(&tx)?;
    let (index, lease_attachments) = build(&scan(&tx)?);
    let compact_revision = finished.max(scheduled).unwrap_or(-1);
    if started.elapsed() >= REPORT_INTERVAL {
        tracing::info!(keys = index.len(), took = ?started.elapsed(), "the key index was built");
    }
    Ok(Contents {
        restored: Restored { position, lease_attachments },
        current_revision: last.unwrap_or(1).max(compact_revision).max(1),
        compact_revision,
        unfinished_compaction: scheduled.filter(|scheduled| Some(*scheduled) > finished),
        index,
    })
}

pub(super) fn meta<'tx>(tx: &'tx bolt::ReadTx, name: &[u8]) -> Result<Option<&'tx [u8]>, MvccError> {
    match tx.bucket(buckets::META)? {
        Some(bucket) => Ok(bucket.get(name)?),
        None => Ok(None),
    }
}

pub(super) fn mark(tx: &bolt::ReadTx, name: &[u8]) -> Result<Option<i64>, MvccError> {
    let Some(stored) = meta(tx, name)? else { return Ok(None) };
    match Revision::decode(stored) {
        Some((revision, false)) => Ok(Some(revision.main)),
        _ => Err(damaged_mark(name)),
    }
}

fn number(tx: &bolt::ReadTx, name: &[u8]) -> Result<u64, MvccError> {
    let Some(stored) = meta(tx, name)? else { return Ok(0) };
    stored.try_into().map(u64::from_be_bytes).map_err(|_| damaged_mark(name))
}

fn damaged_mark(name: &[u8]) -> MvccError {
    let what = format!("{} in bucket meta has the wrong form", String::from_utf8_lossy(name));
    MvccError::damaged(Revision::default(), what)
}

/// All stored revisions, in a run for each thread that read them. Of several damaged records the first is named.
fn scan(tx: &bolt::ReadTx) -> Result<Vec<Run<'_>>, MvccError> {
    let values = &Values::of(tx)?;
    let parts = &Parts::of(values.landmarks(PARTS_MIN)?);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let others = threads.min(parts.count() / PARTS_PER_THREAD_MIN).saturating_sub(1);
    let progress = &Progress::new(parts.count() as u64);
    let outcomes = thread::scope(|scope| {
        let _reports = progress.report_every(scope, REPORT_INTERVAL, |done, total| {
            tracing::info!(parts_done = done, parts_total = total, "building the key index");
        });
        let work = || scan_parts(values, parts, progress);
        // With fewer threads than wished for, the others do more.
        let others: Vec<_> = (0..others).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let own = work();
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        iter::once(own).chain(others).collect::<Vec<_>>()
    });
    let (mut runs, mut first_fault) = (Vec::new(), None);
    for outcome in outcomes {
        match outcome {
            Ok(run) => runs.push(run),
            Err(fault) if first_fault.as_ref().is_none_or(|first: &Fault| fault.part < first.part) => {
                first_fault = Some(fault);
            }
            Err(_) => {}
        }
    }
    first_fault.map_or(Ok(runs), |fault| Err(fault.error))
}

/// The parts of the bucket, which threads take one after the other: so each gets revisions in order, and none waits for
/// one that got more.
struct Parts<'tx> {
    /// Where each begins; the first begins where the bucket does.
    starts: Vec<&'tx [u8]>,
    taken: AtomicUsize,
}

/// One part: from `start` up to `end`, or to the bucket's end.
struct Stretch<'tx> {
    part: usize,
    start: &'tx [u8],
    end: Option<&'tx [u8]>,
}

/// Where a scan broke off.
struct Fault {
    part: usize,
    error: MvccError,
}

impl<'tx> Parts<'tx> {
    fn of(mut landmarks: Vec<&'tx [u8]>) -> Parts<'tx> {
        match landmarks.first_mut() {
            Some(first) => *first = &[],
            None => landmarks.push(&[]),
        }
        Parts { starts: landmarks, taken: AtomicUsize::new(0) }
    }

    fn count(&self) -> usize {
        self.starts.len()
    }

    /// The next part.
    fn take(&self) -> Option<Stretch<'tx>> {
        let part = self.taken.fetch_add(1, Ordering::Relaxed);
        let start = self.starts.get(part)?;
        Some(Stretch { part, start, end: self.starts.get(part + 1).copied() })
    }
}

/// Takes parts until there are none, and sorts what was in them.
fn scan_parts<'tx>(values: &Values<'tx>, parts: &Parts<'tx>, progress: &Progress) -> Result<Run<'tx>, Fault> {
    let mut stored = Vec::new();
    while let Some(stretch) = parts.take() {
        scan_part(values, &stretch, &mut stored).map_err(|error| Fault { part: stretch.part, error })?;
        progress.add(1);
    }
    Ok(Run::sort(stored))
}

/// Reads one part. Each of its leaves begins with a name from `start` up to `end`: the branches' names were compared with
/// each other, and a leaf begins with its name. So no leaf holds a name on both sides of `end`.
fn scan_part<'tx>(
    values: &Values<'tx>,
    &Stretch { start, end, .. }: &Stretch<'tx>,
    stored: &mut Vec<Stored<'tx>>,
) -> Result<(), MvccError> {
    let mut cursor = values.cursor();
    let mut pair = cursor.seek_leaf(start)?;
    let mut last_page = None;
    while let Some((name, encoded)) = pair {
        if end.is_some_and(|end| name >= end) {
            if last_page == cursor.page() {
                let what = format!("{name:02x?} in bucket key is not below the names of the next page");
                return Err(MvccError::damaged(Revision::default(), what).in_page(last_page));
            }
            break;
        }
        let decoded = Revision::decode(name);
        let (revision, tombstone) = decoded.ok_or_else(|| MvccError::misnamed(name).in_page(cursor.page()))?;
        if cursor.is_bucket() {
            return Err(MvccError::damaged(revision, "is a bucket").in_page(cursor.page()));
        }
        stored.push(decode(revision, tombstone, encoded).map_err(|error| error.in_page(cursor.page()))?);
        last_page = cursor.page();
        pair = cursor.next()?;
    }
    Ok(())
}

/// The newest main revision stored.
fn last_main(tx: &bolt::ReadTx) -> Result<Option<i64>, MvccError> {
    let mut cursor = Values::of(tx)?.cursor();
    let Some((name, _)) = cursor.last()? else { return Ok(None) };
    let (revision, _) = Revision::decode(name).ok_or_else(|| MvccError::misnamed(name).in_page(cursor.page()))?;
    Ok(Some(revision.main))
}

/// The index of all runs, and the live keys that hang on a lease. Each thread takes a range of keys; this one those for
/// which the system gives no thread.
fn build(runs: &[Run<'_>]) -> (Index, Vec<(i64, Bytes)>) {
    let mut ranges = merge(runs, runs.len()).into_iter();
    let Some(own) = ranges.next() else { return (Index::default(), Vec::new()) };
    let built = thread::scope(|scope| {
        let spawned = ranges.map(|range| {
            let kept = range.clone();
            thread::Builder::new().spawn_scoped(scope, || build_part(range)).map_err(|_| kept)
        });
        let others: Vec<_> = spawned.collect();
        let own = build_part(own);
        let others = others.into_iter().map(|other| match other {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(range) => build_part(range),
        });
        iter::once(own).chain(others).collect::<Vec<_>>()
    });
    let (parts, attachments): (_, Vec<_>) = built.into_iter().unzip();
    (Index::of_parts(parts), attachments.into_iter().flatten().collect())
}

fn build_part(range: Merged<'_, '_>) -> (Part, Vec<(i64, Bytes)>) {
    let mut attachments = Vec::new();
    let mut attach = |stored: &Stored<'_>| attachments.push((stored.lease, Bytes::copy_from_slice(stored.key)));
    let mut before: Option<&Stored<'_>> = None;
    let part = Part::from_sorted(range.map(|stored| {
        // The lease that counts is that of a key's newest revision.
        if let Some(newest) = before.replace(stored).filter(|before| before.lease != 0 && before.key != stored.key) {
            attach(newest);
        }
        (stored.key, stored.entry)
    }));
    if let Some(newest) = before.filter(|before| before.lease != 0) {
        attach(newest);
    }
    (part, attachments)
}

fn decode(revision: Revision, tombstone: bool, encoded: &[u8]) -> Result<Stored<'_>, MvccError> {
    let kv = KeyValueRef::decode_at(revision, encoded)?;
    if tombstone {
        return Ok(Stored { key: kv.key, entry: Entry::tombstone(revision), lease: 0 });
    }
    if encoded.is_empty() {
        // A revision without a change: where revisions jumped ahead when the file was restored. To be kept and hashed
        // like the change of a key, of one without a name, which no request can speak of.
        return Ok(Stored { key: kv.key, entry: Entry::after_put(revision, None, false), lease: 0 });
    }
    if kv.mod_revision != revision.main || !(1..=VERSION_MAX).contains(&kv.version) || kv.create_revision < 1 {
        return Err(MvccError::damaged(revision, "its revisions or its version cannot be"));
    }
    let (created, version, leased) = (kv.create_revision, kv.version, kv.lease != 0);
    let entry = Entry { revision, created, version, leased };
    Ok(Stored { key: kv.key, entry, lease: kv.lease })
}
