//! Opening: the file's buckets are there, its marks are read, and the key index is built from bucket `key`.
//!
//! The scan is split by revisions over threads that decode and sort; the index is then built in one go. Every record
//! is decoded, so a damaged one is found here and named, not when it is read.

use std::{
    num::NonZero,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    KeyValueRef, LogPosition, MvccError, Revision, buckets,
    index::{Entry, Index, VERSION_MAX},
    progress::Progress,
    state::Values,
};
use crate::bolt;

/// Revisions below which one thread is enough.
const REVISIONS_PER_THREAD_MIN: i64 = 20_000;
/// Most threads a scan is split over.
const THREADS_MAX: usize = 8;
/// Between two lines of the log that say how far a scan is.
const REPORT_INTERVAL: Duration = Duration::from_secs(3);
/// Records after which a thread says how far it is.
const RECORDS_PER_COUNT: usize = 4_096;
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
    let entries = scan(&tx)?;
    let records = entries.len();
    let last = entries.iter().map(|stored| stored.entry.revision.main).max();
    let lease_attachments = attachments(&entries);
    let compact_revision = finished.max(scheduled).unwrap_or(-1);
    let index = Index::from_sorted(entries.into_iter().map(|stored| (stored.key, stored.entry)));
    if started.elapsed() >= REPORT_INTERVAL {
        tracing::info!(records, keys = index.len(), took = ?started.elapsed(), "the key index was built");
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

/// One stored revision of a key, without its value. The key lies in the file: a copy of each would leave memory behind
/// that is used no more and hardly given back.
struct Stored<'tx> {
    key: &'tx [u8],
    entry: Entry,
    lease: i64,
}

/// All stored revisions, ascending by key, then by revision.
fn scan(tx: &bolt::ReadTx) -> Result<Vec<Stored<'_>>, MvccError> {
    let mut cursor = Values::of(tx)?.cursor();
    let Some((first, _)) = cursor.first()? else { return Ok(Vec::new()) };
    let (first, _) = Revision::decode(first).ok_or_else(|| MvccError::misnamed(first))?;
    let Some((last, _)) = cursor.last()? else { return Ok(Vec::new()) };
    let (last, _) = Revision::decode(last).ok_or_else(|| MvccError::misnamed(last))?;
    let all = first.main..last.main.saturating_add(1);
    let progress = &Progress::new(u64::try_from(all.end - all.start).unwrap_or(0));
    let mut parts = split(all).into_iter();
    let own = parts.next().unwrap_or_default();
    let runs = thread::scope(|scope| {
        let _reports = progress.report_every(scope, REPORT_INTERVAL, |done, total| {
            tracing::info!(revisions_done = done, revisions_total = total, "building the key index");
        });
        let others: Vec<_> = parts.map(|part| scope.spawn(move || scan_part(tx, part, progress))).collect();
        let mut runs = vec![scan_part(tx, own, progress)];
        for other in others {
            runs.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        runs
    });
    let mut runs = runs.into_iter();
    let mut all = runs.next().unwrap_or_else(|| Ok(Vec::new()))?;
    for run in runs {
        all.append(&mut run?);
    }
    // The runs are sorted: the sort finds that and merges them.
    all.sort_by(in_index_order);
    Ok(all)
}

fn in_index_order(a: &Stored<'_>, b: &Stored<'_>) -> std::cmp::Ordering {
    a.key.cmp(b.key).then(a.entry.revision.cmp(&b.entry.revision))
}

/// Splits a range of main revisions so that it pays to give each part to a thread.
fn split(range: Range<i64>) -> Vec<Range<i64>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX) as i64;
    let parts = ((range.end - range.start) / REVISIONS_PER_THREAD_MIN).clamp(1, threads);
    let step = (range.end - range.start) / parts;
    let start = |part| if part == parts { range.end } else { range.start + part * step };
    (0..parts).map(|part| start(part)..start(part + 1)).collect()
}

fn scan_part<'tx>(tx: &'tx bolt::ReadTx, part: Range<i64>, progress: &Progress) -> Result<Vec<Stored<'tx>>, MvccError> {
    let mut run = Vec::new();
    let mut counted = part.start;
    let mut cursor = Values::of(tx)?.cursor();
    let mut pair = cursor.seek(&Revision { main: part.start, sub: 0 }.encode())?;
    while let Some((name, encoded)) = pair {
        let decoded = Revision::decode(name);
        let (revision, tombstone) = decoded.ok_or_else(|| MvccError::misnamed(name).in_page(cursor.page()))?;
        if revision.main >= part.end {
            break;
        }
        if cursor.is_bucket() {
            return Err(MvccError::damaged(revision, "is a bucket").in_page(cursor.page()));
        }
        run.push(decode(revision, tombstone, encoded).map_err(|error| error.in_page(cursor.page()))?);
        if run.len() % RECORDS_PER_COUNT == 0 {
            progress.add(u64::try_from(revision.main - counted).unwrap_or(0));
            counted = revision.main;
        }
        pair = cursor.next()?;
    }
    run.sort_by(in_index_order);
    Ok(run)
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

/// The lease of each key whose newest revision has one.
fn attachments(entries: &[Stored<'_>]) -> Vec<(i64, Bytes)> {
    let leased = entries.iter().enumerate().filter(|(_, stored)| stored.lease != 0);
    let newest = leased.filter(|(at, stored)| entries.get(at + 1).is_none_or(|next| next.key != stored.key));
    newest.map(|(_, stored)| (stored.lease, Bytes::copy_from_slice(stored.key))).collect()
}
