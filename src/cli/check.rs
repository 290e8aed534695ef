//! `revgate check`.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;

use crate::{
    bolt::DamagedPlace,
    disk::{Disk, RealDisk},
    mvcc::{Revision, buckets},
    server::offline::{Checked, check_file},
};

use super::output::{self, EXIT_FAILED};

/// Exit code for a file that cannot be read.
const EXIT_UNREADABLE: u8 = 2;

/// Flags of `revgate check`.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckFlags {
    /// The data file or snapshot. Nothing of it is changed.
    file: PathBuf,
}

pub(super) fn run(flags: &CheckFlags) -> ExitCode {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    match check_file(&disk, &flags.file) {
        Ok(checked) => {
            output::print(&told(&flags.file, &checked));
            ExitCode::from(if checked.findings_total == 0 { 0 } else { EXIT_FAILED })
        }
        Err(error) => {
            let code = if error.is_damage() { EXIT_FAILED } else { EXIT_UNREADABLE };
            output::failed(error, code)
        }
    }
}

fn told(file: &std::path::Path, checked: &Checked) -> String {
    let file = file.display();
    if checked.findings_total == 0 {
        let hash = if checked.has_hash { ", and its SHA-256 is right" } else { "" };
        return format!("{file} is sound: {} keys and values in their places{hash}\n", checked.pairs);
    }
    let mut text = String::new();
    for finding in &checked.findings {
        match finding.page {
            Some(page) => text += &format!("page {page}: {}\n", finding.what),
            None => text += &format!("{}\n", finding.what),
        }
        if let Some(place) = &finding.place {
            text += &format!("    {}\n", place_text(place));
        }
    }
    let more = checked.findings_total - checked.findings.len() as u64;
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text + &format!("{file} is damaged: {} findings\n", checked.findings_total)
}

/// Which keys are meant.
fn place_text(place: &DamagedPlace) -> String {
    if place.bucket.is_empty() {
        return format!("in the list of buckets, {}", range_text(&place.low, place.high.as_deref(), output::key));
    }
    let bucket = output::key(&place.bucket);
    if place.bucket == buckets::KEY {
        return format!("bucket {bucket}, {}", range_text(&place.low, place.high.as_deref(), revision_text));
    }
    format!("bucket {bucket}, {}", range_text(&place.low, place.high.as_deref(), output::key))
}

fn range_text(low: &[u8], high: Option<&[u8]>, name: impl Fn(&[u8]) -> String) -> String {
    match (low, high) {
        (low, Some(high)) if high.strip_suffix(&[0]) == Some(low) => name(low),
        ([], None) => "all its keys".to_owned(),
        ([], Some(high)) => format!("up to, and without, {}", name(high)),
        (low, None) => format!("from {} on", name(low)),
        (low, Some(high)) => format!("from {} up to, and without, {}", name(low), name(high)),
    }
}

fn revision_text(name: &[u8]) -> String {
    match Revision::decode(name) {
        Some((revision, _)) => format!("revision {}.{}", revision.main, revision.sub),
        None => output::key(name),
    }
}
