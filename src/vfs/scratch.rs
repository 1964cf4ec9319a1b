//! Scratch files: files of the mount that are not in FILE. Editors and tools make them in the root, beside blocks and beside arrays.
//!
//! One table has those of all members of a mount, and outlives a member that is closed. All of them share one limit: the bytes of each file
//! and [`NAME_COST`] for each name. The bytes lie in memory while they are few, then in a temporary file, see [`ScratchBytes`](crate::source::ScratchBytes).
//!
//! `tree.yaml` is such a file, too: `tree_file` knows which one, and when it is saved. The table has its name only while that is gone.
//!
//! A directory is known by its path, so that numbers under `arrays/` do not matter. A file in a directory that the tree no longer has can't
//! be reached until the directory is back.

mod editors;
mod file;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

pub(super) use self::editors::{is_made_by_editor, is_temporary_data};
pub(super) use self::file::{Role, ScratchFile, Unsaved, copy_pieces, is_beginning, is_blank};
pub(super) use self::names::MemberScratch;
use super::attr::{Attr, FileKind};
use super::node::Node;
use super::{Result, locked};
use crate::source::ScratchRoom;

/// What each name costs of the limit, in bytes.
const NAME_COST: u64 = 1024;
/// The most files.
const MAX_FILES: usize = 10_000;
/// How long a program has for the second step when it replaces a file in two: it removes the file, or empties it by its name, and then makes
/// or opens it again. After that time the file is there as it was before. FILE itself may be gone for as long.
pub const REPLACED_WITHIN: Duration = Duration::from_secs(2);

/// A directory that can have scratch files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Directory {
    /// The member that it is of.
    member: u32,
    /// Its path in the member; that of the root is empty.
    path: String,
}

impl Directory {
    /// The path of a file in it.
    fn path_of(&self, name: &OsStr) -> String {
        let name = name.display();
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}/{name}", self.path)
        }
    }
}

/// A name of a file, which counts as one of its links as long as this lives.
#[derive(Debug)]
pub(super) struct Named {
    file: Arc<ScratchFile>,
    /// The room that the name is charged to, if it costs something.
    cost: Option<Arc<ScratchRoom>>,
}

impl Named {
    /// A name that costs nothing.
    pub(super) fn free(file: Arc<ScratchFile>) -> Self {
        file.link();
        Self { file, cost: None }
    }

    /// A name of the table.
    fn charged(file: Arc<ScratchFile>, room: &Arc<ScratchRoom>) -> Result<Self> {
        room.take(NAME_COST)?;
        let mut named = Self::free(file);
        named.cost = Some(Arc::clone(room));
        Ok(named)
    }

    /// The file.
    pub(super) fn file(&self) -> &Arc<ScratchFile> {
        &self.file
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.file.unlink();
        if let Some(room) = &self.cost {
            room.give(NAME_COST);
        }
    }
}

/// The scratch files of a mount.
#[derive(Debug)]
pub struct Scratch {
    room: Arc<ScratchRoom>,
    /// That of texts that are `tree.yaml`, which has no limit.
    tree_room: Arc<ScratchRoom>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    names: BTreeMap<Directory, BTreeMap<OsString, Named>>,
    /// Those that have a name or are open, by number.
    files: HashMap<u32, Weak<ScratchFile>>,
    /// The number of the next file: none is given twice.
    next: u32,
    /// Names of something in FILE that were removed, and when; see [`Table::hidden`].
    hidden: HashMap<(Directory, OsString), Instant>,
}

impl Scratch {
    /// No files. They may take `limit` bytes, in temporary files in `folder` if possible.
    #[must_use]
    pub fn new(limit: u64, folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            room: ScratchRoom::new(limit, folder),
            tree_room: ScratchRoom::new(u64::MAX, folder),
            table: Mutex::default(),
        })
    }

    /// What all of them may take.
    #[must_use]
    pub fn room(&self) -> &Arc<ScratchRoom> {
        &self.room
    }

    /// What texts take that are `tree.yaml`.
    pub(super) fn tree_room(&self) -> &Arc<ScratchRoom> {
        &self.tree_room
    }

    /// Whether a member has any, or names that are gone.
    pub(super) fn has_any(&self, member: u32) -> bool {
        let mut table = locked(&self.table);
        let mut hidden = table.hidden().keys();
        let is_hidden = hidden.any(|(directory, _)| directory.member == member);
        is_hidden || table.of(member).next().is_some()
    }

    /// The files of a member that hold something and that users have named, each with its length.
    pub(super) fn described(&self, member: u32) -> Vec<String> {
        let table = locked(&self.table);
        let files = table.of(member).filter(|(directory, name, _)| {
            let is_of_tool = !directory.path.is_empty() && is_temporary_data(name);
            !is_of_tool && !is_made_by_editor(name)
        });
        let files = files.filter_map(|(directory, name, named)| {
            let Attr { kind, size, .. } = named.file.attr();
            let holds = kind == FileKind::File && size > 0;
            holds.then(|| format!("{} ({size} bytes)", directory.path_of(name)))
        });
        files.collect()
    }

    /// Drops all files of a member.
    pub(super) fn drop_all(&self, member: u32) {
        let mut table = locked(&self.table);
        table
            .names
            .retain(|directory, _| directory.member != member);
    }
}

impl Table {
    fn get(&self, directory: &Directory, name: &OsStr) -> Option<&Named> {
        self.names.get(directory)?.get(name)
    }

    fn put(&mut self, directory: Directory, name: &OsStr, given: Named) {
        let there = self.names.entry(directory).or_default();
        there.insert(name.to_owned(), given);
    }

    fn remove(&mut self, directory: &Directory, name: &OsStr) -> Option<Named> {
        let there = self.names.get_mut(directory)?;
        let removed = there.remove(name);
        if there.is_empty() {
            self.names.remove(directory);
        }
        removed
    }

    /// The names that are gone, until a program makes them again or their time is over.
    fn hidden(&mut self) -> &mut HashMap<(Directory, OsString), Instant> {
        self.hidden
            .retain(|_, removed| removed.elapsed() < REPLACED_WITHIN);
        &mut self.hidden
    }

    /// A name of a file of a member.
    fn named(&self, member: u32, node: Node) -> Option<(&Directory, &OsString, &Named)> {
        self.of(member)
            .find(|(_, _, named)| named.file.node == node)
    }

    /// The names of a member.
    fn of(&self, member: u32) -> impl Iterator<Item = (&Directory, &OsString, &Named)> {
        let root = Directory {
            member,
            path: String::new(),
        };
        // the table is sorted by members: others may have very many
        let directories = self.names.range(root..);
        let directories = directories.take_while(move |(directory, _)| directory.member == member);
        directories.flat_map(|(directory, names)| {
            names
                .iter()
                .map(move |(name, named)| (directory, name, named))
        })
    }
}
