//! `revgate inspect`.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;
use serde_json::{Value, json};

use crate::{
    bolt::BucketUse,
    disk::{Disk, RealDisk},
    mvcc::KeySize,
    server::offline::{Inspected, inspect_file},
};

use super::output::{self, EXIT_FAILED};

/// Flags of `revgate inspect`.
#[derive(Args, Clone, Debug)]
pub(super) struct InspectFlags {
    /// The data file or snapshot. Nothing of it is changed.
    file: PathBuf,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// How many keys and prefixes are told.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    top: u16,

    /// At which '/' of a key its prefix ends (one at the very beginning does not count).
    #[arg(long, value_name = "DEPTH", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=32))]
    depth: u8,
}

pub(super) fn run(flags: &InspectFlags) -> ExitCode {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    match inspect_file(&disk, &flags.file, usize::from(flags.top), usize::from(flags.depth)) {
        Ok(inspected) if flags.json => output::print_json(&as_json(&inspected)),
        Ok(inspected) => output::print(&as_text(&inspected)),
        Err(error) if error.is_damage() => {
            return output::failed(format!("{error}; revgate check tells all that is damaged"), EXIT_FAILED);
        }
        Err(error) => return output::failed(error, EXIT_FAILED),
    }
    ExitCode::SUCCESS
}

fn as_text(inspected: &Inspected) -> String {
    let pages = &inspected.pages;
    let size = |count: u64| output::bytes(count * pages.page_bytes);
    let of_pages = |name: &str, count: u64| {
        vec![name.to_owned(), count.to_string(), size(count), output::percent(count, pages.pages)]
    };
    let mut text = format!(
        "file: {}; pages of {} bytes: {}, in use {}, free {} ({}) in {} stretches, the longest {}; free at the end {}\n\n",
        output::bytes(pages.file_bytes),
        pages.page_bytes,
        pages.pages,
        size(pages.pages - pages.free_pages),
        size(pages.free_pages),
        output::percent(pages.free_pages, pages.pages),
        pages.free_runs,
        size(pages.longest_free_run_pages),
        size(pages.free_tail_pages),
    );
    let rows = [
        of_pages("meta", pages.meta_pages),
        of_pages("branch", pages.branch_pages),
        of_pages("leaf", pages.leaf_pages),
        of_pages("overflow", pages.overflow_pages),
        of_pages("freelist", pages.freelist_pages),
        of_pages("free", pages.free_pages),
    ];
    text += &output::table(&["kind of page", "pages", "size", "share"], &rows);
    let bucket_row = |bucket: &BucketUse| {
        vec![
            output::key(&bucket.name),
            bucket.keys.to_string(),
            output::bytes(bucket.key_bytes),
            output::bytes(bucket.value_bytes),
            bucket.pages().to_string(),
            bucket.depth_levels.to_string(),
            output::percent(bucket.used_bytes, bucket.pages() * pages.page_bytes),
        ]
    };
    let rows: Vec<_> = pages.buckets.iter().map(bucket_row).collect();
    text += "\n";
    text += &output::table(&["bucket", "keys", "bytes of keys", "bytes of values", "pages", "depth", "fill"], &rows);
    text += "\n";
    let key_row = |size: &KeySize| {
        let newest = size.newest_value_bytes;
        vec![output::key(&size.key), output::bytes(size.bytes), size.revisions.to_string(), output::bytes(newest)]
    };
    let rows: Vec<_> = inspected.keys.iter().map(key_row).collect();
    text += &output::table(&["biggest keys, all revisions", "bytes", "revisions", "newest value"], &rows);
    text += "\n";
    let rows: Vec<_> = inspected
        .newest
        .iter()
        .map(|size| vec![output::key(&size.key), output::bytes(size.newest_value_bytes)])
        .collect();
    text += &output::table(&["biggest newest values", "bytes"], &rows);
    text += "\n";
    let rows: Vec<_> = inspected
        .prefixes
        .iter()
        .map(|size| vec![prefix_text(&size.prefix), output::bytes(size.bytes), size.revisions.to_string()])
        .collect();
    text += &output::table(&["biggest prefixes, all revisions", "bytes", "revisions"], &rows);
    if inspected.forgotten_bytes > 0 {
        text += &format!(
            "\nThere are more keys or prefixes than were remembered on the way: figures are at least what is told, and \
             what is left out may have taken up to {}.\n",
            output::bytes(inspected.forgotten_bytes)
        );
    }
    text
}

fn prefix_text(prefix: &[u8]) -> String {
    if prefix.is_empty() || prefix == b"/" { "(keys without a path)".to_owned() } else { output::key(prefix) }
}

fn as_json(inspected: &Inspected) -> Value {
    let pages = &inspected.pages;
    let name = |bytes: &[u8]| json!({ "text": bytes.escape_ascii().to_string(), "base64": base64_simd::STANDARD.encode_to_string(bytes) });
    let bucket = |bucket: &BucketUse| {
        json!({
            "name": String::from_utf8_lossy(&bucket.name),
            "keys": bucket.keys,
            "keyBytes": bucket.key_bytes,
            "valueBytes": bucket.value_bytes,
            "branchPages": bucket.branch_pages,
            "leafPages": bucket.leaf_pages,
            "overflowPages": bucket.overflow_pages,
            "depthLevels": bucket.depth_levels,
            "usedBytes": bucket.used_bytes,
        })
    };
    let key = |size: &KeySize| {
        json!({
            "key": name(&size.key),
            "bytes": size.bytes,
            "revisions": size.revisions,
            "newestValueBytes": size.newest_value_bytes,
        })
    };
    json!({
        "fileBytes": pages.file_bytes,
        "pageBytes": pages.page_bytes,
        "pages": {
            "all": pages.pages,
            "meta": pages.meta_pages,
            "branch": pages.branch_pages,
            "leaf": pages.leaf_pages,
            "overflow": pages.overflow_pages,
            "freelist": pages.freelist_pages,
            "free": pages.free_pages,
            "freeTail": pages.free_tail_pages,
            "freeRuns": pages.free_runs,
            "longestFreeRun": pages.longest_free_run_pages,
        },
        "inUseBytes": (pages.pages - pages.free_pages) * pages.page_bytes,
        "buckets": pages.buckets.iter().map(bucket).collect::<Vec<_>>(),
        "biggestKeys": inspected.keys.iter().map(key).collect::<Vec<_>>(),
        "biggestNewestValues": inspected.newest.iter().map(key).collect::<Vec<_>>(),
        "biggestPrefixes": inspected
            .prefixes
            .iter()
            .map(|size| json!({ "prefix": name(&size.prefix), "bytes": size.bytes, "revisions": size.revisions }))
            .collect::<Vec<_>>(),
        "forgottenBytesMax": inspected.forgotten_bytes,
    })
}
