//! A new member's data dir from a snapshot or a data file.
//!
//! All is made under a name of its own and renamed at the end: a data dir holds a whole member or none. What an
//! interrupted restore leaves is never served, see [`DataDir`](super::super::data_dir::DataDir).

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{OfflineError, check, source::Source};
use crate::{
    bolt::{self, Db},
    disk::{Disk, OpenMode, create_dir_durably},
    mvcc::{self, Bump, Reborn, buckets},
    server::{
        MAP_BYTES_MIN,
        data_dir::{MEMBER_DIR, UNFINISHED_MEMBER_DIR},
        identity,
    },
};

/// From what, where to, and who the member will be.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The snapshot or data file.
    pub file: PathBuf,
    /// The data dir that is to be.
    pub data_dir: PathBuf,
    /// The member's name.
    pub name: String,
    /// Its peer URLs.
    pub peer_urls: Vec<String>,
    /// The cluster's token.
    pub cluster_token: String,
    /// How far revisions jump ahead.
    pub bump: Option<Bump>,
    /// Whether to take a file as it is, without asking its hash or, where it has none, its structure.
    pub skip_hash_check: bool,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The member's id.
    pub member_id: u64,
    /// The cluster's.
    pub cluster_id: u64,
    /// Revisions before and after.
    pub revisions: Reborn,
    /// Whether the file was a snapshot, with a hash.
    pub has_hash: bool,
    /// Alarms in the file, which are kept.
    pub alarms: u64,
}

/// Makes a data dir that `revgate serve` starts on. Durable when it returns.
pub fn restore_file(disk: &Arc<dyn Disk>, options: &RestoreOptions) -> Result<RestoreReport, OfflineError> {
    check_target(&**disk, &options.data_dir)?;
    let source = Source::open(disk, &options.file)?;
    if !options.skip_hash_check {
        source.check_hash()?;
        if !source.has_hash {
            check_structure(&source, &options.file)?;
        }
    }
    let unfinished = options.data_dir.join(UNFINISHED_MEMBER_DIR);
    build(disk, &source, &unfinished, options)
        .map_err(|error| OfflineError::Unfinished { unfinished: options.data_dir.clone(), source: Box::new(error) })
}

fn check_target(disk: &dyn Disk, data_dir: &Path) -> Result<(), OfflineError> {
    let failed = |source| OfflineError::Io { path: data_dir.to_owned(), action: "look into", source };
    if disk.exists(data_dir).map_err(failed)? && !disk.list(data_dir).map_err(failed)?.is_empty() {
        return Err(OfflineError::NotEmpty { path: data_dir.to_owned() });
    }
    Ok(())
}

fn check_structure(source: &Source, path: &Path) -> Result<(), OfflineError> {
    let checked = check::check_source(source)?;
    let Some(first) = checked.findings.first() else { return Ok(()) };
    let first = match first.page {
        Some(page) => format!("page {page}: {}", first.what),
        None => first.what.clone(),
    };
    Err(OfflineError::Unsound { path: path.to_owned(), first, findings: checked.findings_total })
}

fn build(
    disk: &Arc<dyn Disk>,
    source: &Source,
    unfinished: &Path,
    options: &RestoreOptions,
) -> Result<RestoreReport, OfflineError> {
    let failed = |path: &Path, action| {
        let path = path.to_owned();
        move |source| OfflineError::Io { path, action, source }
    };
    let snap_dir = unfinished.join("snap");
    for dir in [&snap_dir, &unfinished.join("wal")] {
        create_dir_durably(&**disk, dir).map_err(failed(dir, "create"))?;
    }
    let db_path = snap_dir.join("db");
    let file = disk.open(&db_path, OpenMode::CreateNew).map_err(failed(&db_path, "create"))?;
    source.copy_to(&*file, &db_path)?;
    drop(file);

    let report = make_ready(disk, &db_path, source.has_hash, options)?;
    let file = disk.open(&db_path, OpenMode::ReadWrite).map_err(failed(&db_path, "open"))?;
    file.sync_all().map_err(failed(&db_path, "sync"))?;
    for dir in [&snap_dir, unfinished] {
        disk.sync_dir(dir).map_err(failed(dir, "sync"))?;
    }
    let member_dir = options.data_dir.join(MEMBER_DIR);
    disk.rename(unfinished, &member_dir).map_err(failed(&member_dir, "rename what was made to"))?;
    disk.sync_dir(&options.data_dir).map_err(failed(&options.data_dir, "sync"))?;
    Ok(report)
}

fn make_ready(
    disk: &Arc<dyn Disk>,
    db_path: &Path,
    has_hash: bool,
    options: &RestoreOptions,
) -> Result<RestoreReport, OfflineError> {
    let db = Db::open(Arc::clone(disk), db_path, &bolt::Options { map_bytes_max: MAP_BYTES_MIN })?;
    let revisions = mvcc::rebirth(&db, options.bump)?;
    let (member_id, cluster_id) = identity::found(&db, &options.name, &options.peer_urls, &options.cluster_token)?;
    let tx = db.read()?;
    let mut alarms = 0;
    if let Some(bucket) = tx.bucket(buckets::ALARM)? {
        let mut cursor = bucket.cursor();
        while cursor.next()?.is_some() {
            alarms += 1;
        }
    }
    drop(tx);
    db.close()?;
    Ok(RestoreReport { member_id, cluster_id, revisions, has_hash, alarms })
}
