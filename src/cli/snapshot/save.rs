//! `revgate snapshot save`: the stream of `/v3/maintenance/snapshot`, as a file that is whole or not there.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::{
    cli::{
        client::{Client, ClientError, ClientFlags, StatusBody},
        output::{self, EXIT_FAILED},
    },
    disk::{Disk, File, OpenMode, RealDisk, durable_rename},
};

/// Bytes of the hash at the end.
const HASH_BYTES: usize = 32;
/// Whole pages are whole sectors, whatever their size.
const UNIT_BYTES: u64 = 512;
/// Longest line of the stream. etcd's and ours have 32 KiB of the file each, as base64.
const LINE_BYTES_MAX: usize = 16 << 20;
/// What a file's name ends with while it is not whole.
const UNFINISHED_SUFFIX: &str = ".part";

/// Flags of `revgate snapshot save`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct SaveFlags {
    /// The file to make. It must not exist yet.
    file: PathBuf,

    #[command(flatten)]
    client: ClientFlags,
}

#[derive(Debug, Error)]
enum SaveError {
    #[error("{} is there already: choose another name, or remove it first", .0.display())]
    Exists(PathBuf),
    #[error("{} is being written by another process", .0.display())]
    UnderWay(PathBuf),
    #[error("cannot {action} {}: {source}", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the member gave up: {0}")]
    Failed(String),
    #[error(
        "the snapshot is not whole: the connection ended after {bytes} bytes, and their SHA-256 is not the one at the end"
    )]
    NotWhole { bytes: u64 },
}

pub(super) fn run(flags: &SaveFlags) -> ExitCode {
    let began = Instant::now();
    let saved = std::path::absolute(&flags.file)
        .map_err(|source| SaveError::Io { path: flags.file.clone(), action: "find", source })
        .and_then(|path| save(&path, flags));
    match saved {
        Ok(bytes) => {
            let text = format!(
                "saved {}: {} in {:.1} s, SHA-256 right\n",
                flags.file.display(),
                output::bytes(bytes),
                began.elapsed().as_secs_f64()
            );
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => output::failed(error, EXIT_FAILED),
    }
}

fn save(path: &Path, flags: &SaveFlags) -> Result<u64, SaveError> {
    let disk = RealDisk;
    refuse_existing(&disk, path)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let unfinished = PathBuf::from(unfinished);
    let failed = |action| move |source| SaveError::Io { path: path.to_owned(), action, source };

    let file = open_unfinished(&disk, &unfinished)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("begin"))?;
    let mut sink = Sink { file: &*file, path: &unfinished, held_back: Vec::new(), sha256: Sha256::new(), bytes: 0 };
    let received = runtime.block_on(receive(flags, &mut sink)).and_then(|()| sink.finish());
    let renamed = received.and_then(|bytes| {
        refuse_existing(&disk, path)?;
        durable_rename(&disk, &unfinished, path).map_err(failed("put in place"))?;
        Ok(bytes)
    });
    if renamed.is_err()
        && let Err(error) = disk.remove(&unfinished)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %unfinished.display(), "what was written of the snapshot stays");
    }
    renamed
}

fn refuse_existing(disk: &dyn Disk, path: &Path) -> Result<(), SaveError> {
    match disk.exists(path) {
        Ok(false) => Ok(()),
        Ok(true) => Err(SaveError::Exists(path.to_owned())),
        Err(source) => Err(SaveError::Io { path: path.to_owned(), action: "look for", source }),
    }
}

/// What an interrupted save left is overwritten; what another one is writing is not.
fn open_unfinished(disk: &dyn Disk, path: &Path) -> Result<Box<dyn File>, SaveError> {
    let failed = |action| move |source| SaveError::Io { path: path.to_owned(), action, source };
    let file = match disk.open(path, OpenMode::CreateNew) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(path, OpenMode::ReadWrite),
        opened => opened,
    };
    let file = file.map_err(failed("create"))?;
    if !file.try_lock_exclusive().map_err(failed("lock"))? {
        return Err(SaveError::UnderWay(path.to_owned()));
    }
    file.set_len(0).map_err(failed("empty"))?;
    Ok(file)
}

async fn receive(flags: &SaveFlags, sink: &mut Sink<'_>) -> Result<(), SaveError> {
    let client = Client::new(&flags.client).await?;
    let mut body = client.post("/v3/maintenance/snapshot", &json!({})).await?.into_body();
    let mut line = Vec::new();
    while let Some(part) = client.next_part(&mut body).await? {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.len() > LINE_BYTES_MAX {
                return Err(ClientError::Answer(format!("a line is longer than {LINE_BYTES_MAX} bytes")).into());
            }
            if piece.ends_with(b"\n") {
                sink.take_line(&line)?;
                line.clear();
            }
        }
    }
    sink.take_line(&line)
}

/// A line of the stream, as far as it is of interest.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    result: Option<Message<'a>>,
    error: Option<StatusBody>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    blob: Cow<'a, str>,
}

/// Takes the file's bytes in order. The last ones are the hash of those before: they are held back until it is known
/// that they are the last.
struct Sink<'a> {
    file: &'a dyn File,
    path: &'a Path,
    held_back: Vec<u8>,
    sha256: Sha256,
    bytes: u64,
}

impl Sink<'_> {
    fn take_line(&mut self, line: &[u8]) -> Result<(), SaveError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let unreadable = |what: String| SaveError::Client(ClientError::Answer(what));
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| unreadable(error.to_string()))?;
        if let Some(error) = line.error {
            return Err(SaveError::Failed(error.message));
        }
        let Some(message) = line.result else { return Err(unreadable("a line has no result".into())) };
        let blob = base64_simd::STANDARD.decode_to_vec(message.blob.as_bytes());
        self.held_back.extend(blob.map_err(|error| unreadable(error.to_string()))?);
        let sure = self.held_back.len().saturating_sub(HASH_BYTES);
        let sure: Vec<u8> = self.held_back.drain(..sure).collect();
        self.sha256.update(&sure);
        self.write(&sure)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        let failed = |source| SaveError::Io { path: self.path.to_owned(), action: "write", source };
        self.file.write_all_at(bytes, self.bytes).map_err(failed)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Adds the hash, if it is right; the length of the file.
    fn finish(mut self) -> Result<u64, SaveError> {
        let hash = std::mem::take(&mut self.held_back);
        let is_whole = self.bytes > 0 && self.bytes.is_multiple_of(UNIT_BYTES);
        if !is_whole || self.sha256.finalize_reset().as_slice() != hash {
            return Err(SaveError::NotWhole { bytes: self.bytes + hash.len() as u64 });
        }
        self.write(&hash)?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails panics")]

    use super::*;

    /// What a stream of lines makes of a file.
    fn saved(lines: &[String]) -> Result<Vec<u8>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        let mut sink = Sink { file: &*file, path: &path, held_back: Vec::new(), sha256: Sha256::new(), bytes: 0 };
        for line in lines {
            sink.take_line(line.as_bytes()).map_err(|error| error.to_string())?;
        }
        sink.finish().map_err(|error| error.to_string())?;
        Ok(std::fs::read(&path).unwrap())
    }

    fn line(bytes: &[u8]) -> String {
        format!("{{\"result\":{{\"blob\":\"{}\"}}}}\n", base64_simd::STANDARD.encode_to_string(bytes))
    }

    #[test]
    fn only_a_stream_that_ends_with_its_hash_becomes_a_file() {
        let content = [7; 1024];
        let hash = Sha256::digest(content).to_vec();
        let whole = [&content[..], &hash].concat();
        // However the bytes are dealt out to lines.
        for size in [1, 31, 32, 33, 500, 2000] {
            let lines: Vec<String> = whole.chunks(size).map(line).collect();
            assert_eq!(saved(&lines).unwrap(), whole);
        }
        for bad in [&whole[..1055], &whole[..1024], &whole[1..], &[], &hash] {
            assert!(saved(&[line(bad)]).unwrap_err().contains("not whole"));
        }
        let failed = ["{\"error\":{\"code\":14,\"message\":\"stopped\"}}\n".to_owned()];
        assert!(saved(&[&[line(&content)][..], &failed[..]].concat()).unwrap_err().contains("stopped"));
        assert!(saved(&["{}".to_owned()]).unwrap_err().contains("no result"));
        assert!(saved(&["nonsense".to_owned()]).is_err());
    }
}
