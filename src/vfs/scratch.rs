//! Scratch files: files of the mount that are not in FILE. Editors and tools make them in the root, beside blocks and beside arrays.
//!
//! One table has those of all members of a mount, and outlives a member that is closed. All of them share one limit: the bytes of each file
//! and [`NAME_COST`] for each name. The bytes lie in memory while they are few, then in a temporary file, see [`ScratchBytes`](crate::source::ScratchBytes).
//!
//! `tree.yaml` is such a file, too: `tree_file` knows which one, and when it is saved. Its name is not in the table, and it costs nothing.
//!
//! A directory is known by its path, so that numbers under `arrays/` do not matter. A file in a directory that the tree no longer has can't
//! be reached until the directory is back.

mod editors;
mod file;
mod names;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

pub(super) use self::editors::{is_made_by_editor, is_temporary_data};
pub(super) use self::file::{Role, ScratchFile, Unsaved, copy_pieces, is_beginning, is_blank};
use super::attr::{Attr, FileFacts, FileKind};
use super::error::Error;
use super::node::{NUMBERS, Node};
use super::{Result, locked};
use crate::error::Error as Library;
use crate::source::ScratchRoom;

/// What each name costs of the limit, in bytes.
const NAME_COST: u64 = 1024;
/// The most files.
const MAX_FILES: usize = 10_000;
/// How long a name of something in FILE is gone that was removed.
pub(super) const GONE_FOR: Duration = Duration::from_secs(2);

/// When a name of something in FILE was removed: it is gone for two seconds, in which a program can make it again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Absence(Instant);

impl Absence {
    /// From now on.
    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Long ago, so that the name is there again.
    #[cfg(test)]
    pub(super) fn long_ago() -> Self {
        Self(Instant::now().checked_sub(GONE_FOR).unwrap())
    }

    /// Whether the name is still gone.
    pub(super) fn lasts(self) -> bool {
        self.0.elapsed() < GONE_FOR
    }
}

/// A directory that can have scratch files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Directory {
    /// The member that it is of.
    pub(super) member: u32,
    /// Its path in the member; that of the root is empty.
    pub(super) path: String,
}

impl Directory {
    /// The root of a member.
    pub(super) fn root(member: u32) -> Self {
        let path = String::new();
        Self { member, path }
    }

    /// The path of a file in it.
    pub(super) fn path_of(&self, name: &OsStr) -> String {
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
    /// Names of files of arrays that were removed.
    absent: HashMap<(Directory, OsString), Absence>,
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

    /// Whether no name leads to any, and none is gone.
    pub(super) fn is_empty(&self) -> bool {
        let table = locked(&self.table);
        table.names.is_empty() && table.absent.is_empty()
    }

    /// Whether a member has any, or names that are gone.
    pub(super) fn has_any(&self, member: u32) -> bool {
        let table = locked(&self.table);
        let absent = table.absent.iter();
        let mut absent = absent.filter(|((directory, _), _)| directory.member == member);
        table.of(member).next().is_some() || absent.any(|(_, absence)| absence.lasts())
    }

    /// The file of a name.
    pub(super) fn lookup(&self, directory: &Directory, name: &OsStr) -> Option<Arc<ScratchFile>> {
        let table = locked(&self.table);
        table
            .get(directory, name)
            .map(|named| Arc::clone(&named.file))
    }

    /// The file of that number.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn file(&self, number: u32) -> Result<Arc<ScratchFile>> {
        let file = locked(&self.table)
            .files
            .get(&number)
            .and_then(Weak::upgrade);
        file.ok_or(Error::NotFound)
    }

    /// The file of a node that has a name in a member.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn named(&self, member: u32, node: Node) -> Result<Arc<ScratchFile>> {
        let table = locked(&self.table);
        let mut files = table.of(member).map(|(_, _, named)| &named.file);
        let found = files.find(|file| file.node == node);
        found.cloned().ok_or(Error::NotFound)
    }

    /// The names in a directory.
    pub(super) fn names(&self, directory: &Directory) -> Vec<OsString> {
        let table = locked(&self.table);
        let names = table.names.get(directory);
        names
            .into_iter()
            .flat_map(BTreeMap::keys)
            .cloned()
            .collect()
    }

    /// A name of a file.
    pub(super) fn name_of(&self, file: &ScratchFile) -> Option<(Directory, OsString)> {
        let table = locked(&self.table);
        let mut names = table.names.iter().flat_map(|(directory, names)| {
            names
                .iter()
                .map(move |(name, named)| (directory, name, named))
        });
        let found = names.find(|(_, _, named)| named.file.node == file.node);
        found.map(|(directory, name, _)| (directory.clone(), name.clone()))
    }

    /// Makes an empty file, or a symlink to `target`. `made_of`: which of FILE's texts its member has.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Library::NoRoom`] beyond the limit.
    pub(super) fn create(
        &self,
        directory: &Directory,
        name: &OsStr,
        target: Option<&OsStr>,
        facts: FileFacts,
        made_of: u64,
    ) -> Result<Arc<ScratchFile>> {
        let mut table = locked(&self.table);
        if table.get(directory, name).is_some() {
            return Err(Error::Exists);
        }
        table.files.retain(|_, file| file.strong_count() > 0);
        let number = table.next;
        // the kernel may keep a number after its file is gone: one that came again would lead to other bytes
        let next = number.checked_add(1).filter(|next| *next < NUMBERS);
        let Some(next) = next.filter(|_| table.files.len() < MAX_FILES) else {
            let why = format!("there are {MAX_FILES} scratch files already");
            return Err(Library::NoRoom { why, limit: false }.into());
        };
        let kind = target.map_or(FileKind::File, |_| FileKind::Symlink);
        let text = target.map_or_else(Vec::new, |target| target.as_bytes().to_vec());
        let (node, text) = (Node::Scratch(number), Arc::new(text));
        let file = ScratchFile::new(node, kind, &self.room, text, facts, made_of);
        let file = Arc::new(file);
        let named = Named::charged(Arc::clone(&file), &self.room)?;
        table.next = next;
        table.files.insert(number, Arc::downgrade(&file));
        table.put(directory, name, named);
        Ok(file)
    }

    /// Gives a file another name; it replaces one that has that name, for what that costs.
    ///
    /// # Errors
    /// [`Library::NoRoom`] beyond the limit.
    pub(super) fn give(
        &self,
        directory: &Directory,
        name: &OsStr,
        file: &Arc<ScratchFile>,
    ) -> Result<()> {
        let mut table = locked(&self.table);
        let there = table.names.get_mut(directory);
        if let Some(replaced) = there.and_then(|names| names.get_mut(name)) {
            file.link();
            std::mem::replace(&mut replaced.file, Arc::clone(file)).unlink();
            return Ok(());
        }
        let given = Named::charged(Arc::clone(file), &self.room)?;
        table.put(directory, name, given);
        Ok(())
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn take(&self, directory: &Directory, name: &OsStr) -> Result<()> {
        let taken = locked(&self.table).remove(directory, name);
        taken.map(drop).ok_or(Error::NotFound)
    }

    /// Gives a file another name instead of its own; it replaces one that has that name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn rename(
        &self,
        from: (&Directory, &OsStr),
        to: (&Directory, &OsStr),
    ) -> Result<()> {
        let mut table = locked(&self.table);
        let named = table.remove(from.0, from.1).ok_or(Error::NotFound)?;
        table.put(to.0, to.1, named);
        Ok(())
    }

    /// Exchanges two names of a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn exchange(&self, directory: &Directory, a: &OsStr, b: &OsStr) -> Result<()> {
        let mut table = locked(&self.table);
        let names = table.names.get_mut(directory).ok_or(Error::NotFound)?;
        // asked before the first name is taken, so that an error leaves both as they were
        if !names.contains_key(b) {
            return Err(Error::NotFound);
        }
        let first = names.remove(a).ok_or(Error::NotFound)?;
        let second = names.insert(b.to_owned(), first).ok_or(Error::NotFound)?;
        names.insert(a.to_owned(), second);
        Ok(())
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

    /// Removes the name of an array's file for a while.
    pub(super) fn hide(&self, directory: &Directory, name: &OsStr) {
        let absent = &mut locked(&self.table).absent;
        // names that are back are forgotten here, so the table stays as short as two seconds of removals
        absent.retain(|_, absence| absence.lasts());
        absent.insert((directory.clone(), name.to_owned()), Absence::begin());
    }

    /// The names of files of arrays that are gone from a directory.
    pub(super) fn hidden(&self, directory: &Directory) -> HashSet<OsString> {
        let table = locked(&self.table);
        let names = table.absent.iter();
        let gone = names.filter(|((of, _), absence)| of == directory && absence.lasts());
        gone.map(|((_, name), _)| name.clone()).collect()
    }

    /// Has the name of an array's file back. Whether it was gone.
    pub(super) fn unhide(&self, directory: &Directory, name: &OsStr) -> bool {
        let absent = &mut locked(&self.table).absent;
        let absence = absent.remove(&(directory.clone(), name.to_owned()));
        absence.is_some_and(Absence::lasts)
    }
}

impl Table {
    fn get(&self, directory: &Directory, name: &OsStr) -> Option<&Named> {
        self.names.get(directory)?.get(name)
    }

    fn put(&mut self, directory: &Directory, name: &OsStr, given: Named) {
        let there = self.names.entry(directory.clone()).or_default();
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

    /// The names of a member.
    fn of(&self, member: u32) -> impl Iterator<Item = (&Directory, &OsString, &Named)> {
        let directories = self.names.iter();
        let directories = directories.filter(move |(directory, _)| directory.member == member);
        directories.flat_map(|(directory, names)| {
            names
                .iter()
                .map(move |(name, named)| (directory, name, named))
        })
    }
}
