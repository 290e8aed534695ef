//! Opening a file to look at it only: nothing of it is written, whatever state it is in, and nobody can write it
//! meanwhile who respects its lock. A snapshot's hash behind the last page does no harm.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;

use crate::disk::{Disk, OpenMode};

use super::{Inner, View, Writer, error::BoltError, freelist::Freelist, map::Map, open::read_meta, read::ReadTx};

pub(super) fn open_read_only(disk: &Arc<dyn Disk>, path: &Path) -> Result<ReadTx, BoltError> {
    let failed = |action| move |source| BoltError::io(path, action, source);
    let file = disk.open(path, OpenMode::Read).map_err(failed("opening"))?;
    if !file.try_lock_shared().map_err(failed("locking"))? {
        return Err(BoltError::Locked { path: path.to_owned() });
    }
    let file_bytes = file.len().map_err(failed("asking for the length"))?;
    let (meta, _) = read_meta(&*file, path)?;
    if file_bytes < meta.used_bytes() {
        return Err(BoltError::TooShort { path: path.to_owned(), file_bytes, needed_bytes: meta.used_bytes() });
    }
    let map = Map::new(file.descriptor(), file_bytes, file_bytes).map_err(failed("mapping into memory"))?;
    // Nobody gets a handle to write with; the writer's part is there because every open file has one.
    let slot_high_water = [meta.high_water; 2];
    let writer =
        Writer { freelist: Freelist::default(), file_bytes, freelist_run: None, poisoned: true, slot_high_water };
    let view = View { meta, file_bytes, free_pages: 0, readers: Default::default() };
    Ok(ReadTx::open(Arc::new(Inner {
        path: path.to_owned(),
        file,
        map,
        map_bytes_max: file_bytes,
        view: Mutex::new(view),
        writer: Mutex::new(writer),
        directories: Default::default(),
    })))
}
