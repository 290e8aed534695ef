//! What of a recording is certain at some moment, and what a power cut decides.
//!
//! Certain is what was synced: a file's data and size by a sync of the file, its name by a sync of its directory. Of the
//! rest any part may be there: each write whole, in part (by sectors of 512 bytes) or not, with or without the growth
//! it brought; each change of a length; each name that was made, given or taken away. A sync that failed makes what
//! came before it doubtful for good: the kernel takes it for written, so that no later sync writes it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::recording::{FileId, Op, Recording};

/// What a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

/// What a power cut did with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Dropped,
    Kept,
    /// A write's bytes are there as far as the file reached before it.
    KeptWithoutGrowth,
    /// Some sectors of a write are there; the number decides which.
    Torn(u64),
}

/// A moment of a recording.
#[derive(Debug)]
pub(super) struct Moment {
    inodes: BTreeMap<FileId, Inode>,
    /// The durable names.
    names: BTreeMap<PathBuf, Node>,
    /// The names as the engine sees them.
    live: BTreeMap<PathBuf, Node>,
    open_names: Vec<(usize, NameOp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(FileId),
}

/// A change of a directory that was not synced yet: these names go, this one comes.
#[derive(Debug)]
struct NameOp {
    dir: PathBuf,
    gone: Option<PathBuf>,
    come: Option<(PathBuf, Node)>,
}

#[derive(Debug, Default)]
struct Inode {
    content: Vec<u8>,
    /// Stands for the calls that made `content`.
    tag: u64,
    /// Calls that `content` does not have yet, in order.
    ops: Vec<(usize, DataOp, Standing)>,
}

#[derive(Clone, Debug)]
enum DataOp {
    Write { offset: usize, bytes: Arc<[u8]> },
    Allocate { end: usize },
    SetLen { len: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    Durable,
    /// A sync of it failed.
    Doubtful,
}

/// A call a power cut decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The call's number in the recording.
    pub(super) op: usize,
    pub(super) is_write: bool,
}

/// A directory as a power cut left it.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Moment {
    /// The beginning of a recording.
    pub(super) fn begin(recording: &Recording) -> Moment {
        let mut names: BTreeMap<PathBuf, Node> =
            recording.base_dirs.iter().map(|dir| (dir.clone(), Node::Dir)).collect();
        let mut inodes = BTreeMap::new();
        for (path, file, content) in &recording.base_files {
            names.insert(path.clone(), Node::File(*file));
            inodes.insert(*file, Inode { content: content.to_vec(), ..Inode::default() });
        }
        Moment { inodes, live: names.clone(), names, open_names: Vec::new() }
    }

    /// Goes on to after a call.
    pub(super) fn advance(&mut self, number: usize, op: &Op) {
        match op {
            Op::CreateDir { path } => self.name(number, None, Some((path.clone(), Node::Dir))),
            Op::Create { path, file } => {
                self.inodes.insert(*file, Inode::default());
                self.name(number, None, Some((path.clone(), Node::File(*file))));
            }
            Op::Rename { from, to } => {
                let node = self.live[from];
                self.name(number, Some(from.clone()), Some((to.clone(), node)));
            }
            Op::Remove { path } => self.name(number, Some(path.clone()), None),
            Op::SyncDir { path } => {
                let (synced, open) =
                    std::mem::take(&mut self.open_names).into_iter().partition(|(_, op)| op.dir == *path);
                self.open_names = open;
                let synced: Vec<(usize, NameOp)> = synced;
                synced.iter().for_each(|(_, op)| op.apply(&mut self.names));
            }
            Op::Write { file, offset, bytes } => {
                self.data(number, *file, DataOp::Write { offset: *offset as usize, bytes: Arc::clone(bytes) });
            }
            Op::Allocate { file, end } => self.data(number, *file, DataOp::Allocate { end: *end as usize }),
            Op::SetLen { file, len } => self.data(number, *file, DataOp::SetLen { len: *len as usize }),
            Op::Sync { file } => self.inode(*file).settle(Standing::Durable),
            Op::FailedSync { file } => self.inode(*file).settle(Standing::Doubtful),
            Op::Mark(_) => {}
        }
    }

    fn name(&mut self, number: usize, gone: Option<PathBuf>, come: Option<(PathBuf, Node)>) {
        let path = gone.as_ref().or(come.as_ref().map(|(path, _)| path)).expect("something changes");
        let op = NameOp { dir: path.parent().unwrap_or(Path::new("")).to_owned(), gone, come };
        op.apply(&mut self.live);
        self.open_names.push((number, op));
    }

    fn inode(&mut self, file: FileId) -> &mut Inode {
        self.inodes.get_mut(&file).expect("a file that was created or there from the beginning")
    }

    fn data(&mut self, number: usize, file: FileId, op: DataOp) {
        self.inode(file).ops.push((number, op, Standing::Open));
    }

    /// Files that have a name, or may have one after a power cut.
    fn nameable(&self) -> BTreeSet<FileId> {
        let open = self.open_names.iter().filter_map(|(_, op)| op.come.as_ref().map(|(_, node)| node));
        let nodes = self.names.values().chain(open);
        nodes.filter_map(|node| if let Node::File(file) = node { Some(*file) } else { None }).collect()
    }

    /// What a power cut at this moment decides.
    pub(super) fn questions(&self) -> Vec<Question> {
        let mut questions: Vec<Question> =
            self.open_names.iter().map(|(op, _)| Question { op: *op, is_write: false }).collect();
        for file in self.nameable() {
            let open = self.inodes[&file].ops.iter().filter(|(.., standing)| *standing != Standing::Durable);
            questions
                .extend(open.map(|(op, data, _)| Question { op: *op, is_write: matches!(data, DataOp::Write { .. }) }));
        }
        questions
    }

    /// The names with some of the open changes, and a number that stands for the state.
    fn decide(&self, choices: &BTreeMap<usize, Choice>) -> (BTreeMap<PathBuf, Node>, u64) {
        let mut names = self.names.clone();
        for (number, op) in &self.open_names {
            if choices[number] == Choice::Kept {
                op.apply(&mut names);
            }
        }
        let reachable = |path: &PathBuf| {
            let mut above = path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
            above.all(|dir| names.get(dir) == Some(&Node::Dir))
        };
        let names: BTreeMap<PathBuf, Node> =
            names.iter().filter(|(path, _)| reachable(path)).map(|(path, node)| (path.clone(), *node)).collect();
        let mut tag = 0;
        for (path, node) in &names {
            path.to_string_lossy().bytes().for_each(|byte| tag = mix(tag, u64::from(byte)));
            if let Node::File(file) = node {
                tag = mix(tag, self.inodes[file].tag_with(choices));
            }
        }
        (names, tag)
    }

    /// Equal for equal states.
    pub(super) fn tag(&self, choices: &BTreeMap<usize, Choice>) -> u64 {
        self.decide(choices).1
    }

    /// The state a power cut leaves that decided so.
    pub(super) fn image(&self, choices: &BTreeMap<usize, Choice>) -> Image {
        let mut image = Image { dirs: BTreeSet::new(), files: BTreeMap::new() };
        for (path, node) in self.decide(choices).0 {
            match node {
                Node::Dir => drop(image.dirs.insert(path)),
                Node::File(file) => drop(image.files.insert(path, self.inodes[&file].content_with(choices))),
            }
        }
        image
    }
}

impl NameOp {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        if let Some(gone) = &self.gone {
            names.remove(gone);
        }
        if let Some((path, node)) = &self.come {
            names.insert(path.clone(), *node);
        }
    }
}

impl Inode {
    /// A sync succeeded or failed.
    fn settle(&mut self, outcome: Standing) {
        for (_, op, standing) in &mut self.ops {
            match (*standing, &op) {
                (Standing::Open, _) => *standing = outcome,
                // Lengths are not kept in pages: the next sync writes the one that rules then.
                (Standing::Doubtful, DataOp::Allocate { .. } | DataOp::SetLen { .. }) => *standing = outcome,
                _ => {}
            }
        }
        let certain = self.ops.iter().take_while(|(.., standing)| *standing == Standing::Durable).count();
        for (number, op, _) in self.ops.drain(..certain) {
            op.apply(Choice::Kept, &mut self.content);
            self.tag = mix(mix(self.tag, number as u64), 1);
        }
    }

    fn decided<'a>(
        &'a self,
        choices: &'a BTreeMap<usize, Choice>,
    ) -> impl Iterator<Item = (usize, &'a DataOp, Choice)> {
        self.ops.iter().map(|(number, op, standing)| match standing {
            Standing::Durable => (*number, op, Choice::Kept),
            _ => (*number, op, choices[number]),
        })
    }

    fn tag_with(&self, choices: &BTreeMap<usize, Choice>) -> u64 {
        self.decided(choices).fold(self.tag, |tag, (number, _, choice)| match choice {
            Choice::Dropped => tag,
            Choice::Kept => mix(mix(tag, number as u64), 1),
            Choice::KeptWithoutGrowth => mix(mix(tag, number as u64), 2),
            Choice::Torn(sectors) => mix(mix(tag, number as u64), sectors | 4),
        })
    }

    fn content_with(&self, choices: &BTreeMap<usize, Choice>) -> Vec<u8> {
        let mut content = self.content.clone();
        self.decided(choices).for_each(|(_, op, choice)| op.apply(choice, &mut content));
        content
    }
}

impl DataOp {
    fn apply(&self, choice: Choice, content: &mut Vec<u8>) {
        match self {
            _ if choice == Choice::Dropped => {}
            DataOp::Allocate { end } => content.resize(content.len().max(*end), 0),
            DataOp::SetLen { len } => content.resize(*len, 0),
            DataOp::Write { offset, bytes } => {
                let grows = match choice {
                    Choice::Torn(sectors) => sectors & 1 == 1,
                    choice => choice == Choice::Kept,
                };
                if grows {
                    content.resize(content.len().max(offset + bytes.len()), 0);
                }
                let mut at = *offset;
                let end = (offset + bytes.len()).min(content.len());
                while at < end {
                    let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
                    let is_there = match choice {
                        Choice::Torn(sectors) => mix(sectors, (at / SECTOR_BYTES) as u64) & 1 == 1,
                        _ => true,
                    };
                    if is_there {
                        content[at..sector_end].copy_from_slice(&bytes[at - offset..sector_end - offset]);
                    }
                    at = sector_end;
                }
            }
        }
    }
}

/// Stirs a number into another (splitmix64).
pub(super) fn mix(tag: u64, number: u64) -> u64 {
    let mut z = (tag.rotate_left(17) ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
