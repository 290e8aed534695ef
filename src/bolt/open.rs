//! Opening a file: lock, meta pages, map, freelist; and making a new one.
//!
//! A new file is built whole under a temporary name and renamed into place, so that a crash leaves all of it or none.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::disk::{Disk, File, OpenMode, durable_rename, sync_parent};

use super::{
    Db, Inner, Options, View, Writer,
    error::BoltError,
    freelist::Freelist,
    map::Map,
    meta::{META_PAGE_BYTES, Meta, NO_FREELIST, PAGE_BYTES_MIN},
    page::{self, FIRST_DATA_PAGE, HEADER_BYTES, Pages, Run},
    walk,
};

/// Page size of new files.
const NEW_PAGE_BYTES: u32 = 4096;
const NEW_FREELIST_PAGE: u64 = 2;
const NEW_ROOT_PAGE: u64 = 3;
const NEW_PAGES: u64 = 4;
/// Page sizes tried in search of the second meta page: 1 KiB doubled so many times at most.
const PROBE_DOUBLINGS_MAX: u32 = 14;

pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, options: &Options) -> Result<Db, BoltError> {
    let exists = disk.exists(path).map_err(|source| BoltError::io(path, "looking for it", source))?;
    let file = match if exists { None } else { create(&**disk, path)? } {
        Some(file) => file,
        None => {
            let file = disk.open(path, OpenMode::ReadWrite).map_err(|source| BoltError::io(path, "opening", source))?;
            lock(&*file, path)?;
            settle(&**disk, &*file, path)?;
            file
        }
    };
    open_file(file, path, options.map_bytes_max)
}

/// Makes durable what an earlier process showed but may not have lived to make so: the file's name, if it ended between
/// giving it and syncing the directory, and the last commit, if the sync of its meta page failed. After such a failure
/// the kernel takes the page for written, and no later sync would write it; so it is written again. What the meta page
/// refers to was synced before it was first written. Without this the next commits would build on a meta page the
/// disk does not have, and reuse pages of the one it has.
fn settle(disk: &dyn Disk, file: &dyn File, path: &Path) -> Result<(), BoltError> {
    let failed = |action| move |source| BoltError::io(path, action, source);
    let page_bytes = u64::from(read_meta(file, path)?.0.page_bytes);
    for offset in [0, page_bytes] {
        let mut head = [0; META_PAGE_BYTES];
        match file.read_exact_at(&mut head, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            outcome => outcome.map_err(failed("reading a meta page"))?,
        }
        file.write_all_at(&head, offset).map_err(failed("writing a meta page again"))?;
    }
    file.sync_all().map_err(failed("syncing what an earlier process left"))?;
    sync_parent(disk, path).map_err(failed("syncing its directory"))
}

/// Opens a file that is ours already.
fn open_file(file: Box<dyn File>, path: &Path, map_bytes_max: u64) -> Result<Db, BoltError> {
    let file_bytes = file.len().map_err(|source| BoltError::io(path, "asking for the length", source))?;
    let (meta, slots) = read_meta(&*file, path)?;
    if file_bytes < meta.used_bytes() {
        return Err(BoltError::TooShort { path: path.to_owned(), file_bytes, needed_bytes: meta.used_bytes() });
    }
    let map = Map::new(file.descriptor(), map_bytes_max, file_bytes)
        .map_err(|source| BoltError::io(path, "mapping into memory", source))?;
    let pages = Pages { map: &map, path, page_bytes: meta.page_bytes, high_water: meta.high_water };
    let (freelist, freelist_run) = load_freelist(&pages, &meta)?;
    let view = View { meta, file_bytes, free_pages: freelist.pages(), readers: Default::default() };
    // Where a meta page cannot be believed, nothing is cut until it is written anew.
    let unknown = file_bytes.div_ceil(u64::from(meta.page_bytes));
    let slot_high_water = slots.map(|slot| slot.map_or(unknown, |meta| meta.high_water));
    let writer = Writer { freelist, file_bytes, freelist_run, poisoned: false, slot_high_water };
    let inner = Inner {
        path: path.to_owned(),
        file,
        map,
        map_bytes_max,
        view: Mutex::new(view),
        writer: Mutex::new(writer),
        directories: Default::default(),
    };
    Ok(Db { inner: Arc::new(inner) })
}

fn lock(file: &dyn File, path: &Path) -> Result<(), BoltError> {
    match file.try_lock_exclusive() {
        Ok(true) => Ok(()),
        Ok(false) => Err(BoltError::Locked { path: path.to_owned() }),
        Err(source) => Err(BoltError::io(path, "locking", source)),
    }
}

/// Makes a new file, already locked. `None` if another process made one meanwhile.
fn create(disk: &dyn Disk, path: &Path) -> Result<Option<Box<dyn File>>, BoltError> {
    let failed = |action| move |source| BoltError::io(path, action, source);
    let building = temporary(path);
    // What an earlier attempt left behind is taken over, not cut: it may be another process's, at work this moment.
    let file = match disk.open(&building, OpenMode::CreateNew) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(&building, OpenMode::ReadWrite),
        opened => opened,
    };
    let file = file.map_err(failed("creating it under a temporary name"))?;
    lock(&*file, path)?;
    if disk.exists(path).map_err(failed("looking for it"))? {
        drop(file);
        return match disk.remove(&building) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing its temporary name")(error)),
            _ => Ok(None),
        };
    }
    let content = fresh_file();
    file.set_len(0).map_err(failed("emptying its temporary file"))?;
    file.allocate(0, content.len() as u64).map_err(failed("allocating room"))?;
    file.write_all_at(&content, 0).map_err(failed("writing the first pages"))?;
    file.sync_all().map_err(failed("syncing the first pages"))?;
    durable_rename(disk, &building, path).map_err(failed("renaming into place"))?;
    Ok(Some(file))
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Two meta pages, an empty freelist, and a root bucket without buckets.
fn fresh_file() -> Vec<u8> {
    let size = NEW_PAGE_BYTES as usize;
    let meta = |txid| Meta {
        page_bytes: NEW_PAGE_BYTES,
        root: NEW_ROOT_PAGE,
        sequence: 0,
        freelist: NEW_FREELIST_PAGE,
        high_water: NEW_PAGES,
        txid,
    };
    let mut content = [meta(0).encode(), meta(1).encode(), vec![0; 2 * size]].concat();
    page::put_header(&mut content[2 * size..], NEW_FREELIST_PAGE, page::FREELIST, 0, 0);
    page::put_header(&mut content[3 * size..], NEW_ROOT_PAGE, page::LEAF, 0, 0);
    content
}

/// The meta page that rules: of the valid ones, that with the higher txid. And what either page says, if it is valid.
pub(super) fn read_meta(file: &dyn File, path: &Path) -> Result<(Meta, [Option<Meta>; 2]), BoltError> {
    let first = read_meta_at(file, path, 0)?;
    let second = match &first {
        Ok(meta) => {
            let offset = u64::from(meta.page_bytes);
            read_meta_at(file, path, offset)?.map_err(|reason| format!("at byte {offset}: {reason}"))
        }
        Err(_) => find_second_meta(file, path)?,
    };
    let slots = [first.as_ref().ok().copied(), second.as_ref().ok().copied()];
    match (first, second) {
        (Ok(first), Ok(second)) if second.page_bytes == first.page_bytes && second.txid > first.txid => {
            Ok((second, slots))
        }
        (Ok(first), _) => Ok((first, slots)),
        (Err(_), Ok(second)) => Ok((second, slots)),
        (Err(first), Err(second)) => Err(BoltError::BothMetasBad { path: path.to_owned(), first, second }),
    }
}

/// Without the first page, the page size and with it the second page's place is unknown.
fn find_second_meta(file: &dyn File, path: &Path) -> Result<Result<Meta, String>, BoltError> {
    let mut usual = String::new();
    for doublings in 0..=PROBE_DOUBLINGS_MAX {
        let offset = u64::from(PAGE_BYTES_MIN) << doublings;
        match read_meta_at(file, path, offset)? {
            Ok(meta) if u64::from(meta.page_bytes) == offset => return Ok(Ok(meta)),
            Ok(meta) => usual = format!("at byte {offset}: page size is {} bytes", meta.page_bytes),
            Err(reason) if offset == u64::from(NEW_PAGE_BYTES) => usual = format!("at byte {offset}: {reason}"),
            Err(_) => {}
        }
    }
    Ok(Err(format!("{usual}; none at any other page size")))
}

pub(super) fn read_meta_at(file: &dyn File, path: &Path, offset: u64) -> Result<Result<Meta, String>, BoltError> {
    let mut bytes = [0; META_PAGE_BYTES];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(Meta::decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Err("the file ends before it".to_owned())),
        Err(source) => Err(BoltError::io(path, "reading a meta page", source)),
    }
}

/// The free pages, and where the list of them lies: as a clean close left it, or found by a walk through the tree.
fn load_freelist(pages: &Pages<'_>, meta: &Meta) -> Result<(Freelist, Option<Run>), BoltError> {
    if meta.freelist == NO_FREELIST {
        let mut freelist = Freelist::default();
        for run in walk::reachable(pages, meta.root)?.gaps(FIRST_DATA_PAGE, meta.high_water) {
            freelist.free(run).map_err(|twice| pages.damaged(twice.0, "is free twice"))?;
        }
        return Ok((freelist, None));
    }
    let (ids, run) = read_freelist(pages, meta.freelist)?;
    let mut freelist = Freelist::default();
    for id in ids {
        let in_use = id == meta.root || (run.first..run.end()).contains(&id);
        if in_use || !(FIRST_DATA_PAGE..meta.high_water).contains(&id) {
            return Err(pages.damaged(meta.freelist, format!("lists page {id} as free, which it cannot be")));
        }
        let twice = |_| pages.damaged(meta.freelist, format!("lists page {id} twice"));
        freelist.free(Run { first: id, count: 1 }).map_err(twice)?;
    }
    Ok((freelist, Some(run)))
}

/// The page numbers in a freelist, and the pages it takes up.
pub(super) fn read_freelist<'a>(
    pages: &Pages<'a>,
    first: u64,
) -> Result<(impl Iterator<Item = u64> + use<'a>, Run), BoltError> {
    let bytes = pages.raw(first)?;
    if page::u16_at(bytes, 8) != page::FREELIST {
        return Err(pages.damaged(first, format!("has flags {:#x}, not a freelist's", page::u16_at(bytes, 8))));
    }
    // A count of 0xFFFF says that the first number is the true count.
    let (count, body) = match page::u16_at(bytes, 10) {
        u16::MAX => (page::u64_at(bytes, HEADER_BYTES), &bytes[HEADER_BYTES + 8..]),
        count => (u64::from(count), &bytes[HEADER_BYTES..]),
    };
    if count > body.len() as u64 / 8 {
        return Err(pages.damaged(first, format!("claims {count} free pages, more than it has room for")));
    }
    let ids = body.chunks_exact(8).take(count as usize).map(|id| page::u64_at(id, 0));
    let run = Run { first, count: 1 + u64::from(page::overflow_of(bytes)) };
    Ok((ids, run))
}
