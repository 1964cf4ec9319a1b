//! Scratch files: files of the mount that are not in FILE. Editors and tools make them in the root, beside blocks and beside arrays.
//!
//! One table has those of all members of a mount, and outlives a member that is closed. All of them share one limit: the bytes of each file
//! and [`NAME_COST`] for each name. The bytes lie in memory while they are few, then in a temporary file, see [`ScratchBytes`](crate::source::ScratchBytes).
//!
//! `tree.yaml` is such a file, too: `tree_file` knows which one, and when it is saved. The table has its name only while that is gone.
//!
//! A directory is known by its path, so that numbers under `arrays/` do not matter. A file in a directory that the tree no longer has can't
//! be reached until the directory is back.

mod file;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

pub(super) use self::file::{Role, ScratchFile, Unsaved, copy_pieces, is_beginning, is_blank};
use super::attr::{Attr, FileFacts, FileKind};
use super::node::{NUMBERS, Node, TREE_NAME};
use super::state::Shown;
use super::{Error, Result, locked};
use crate::asdf::names::SUFFIXES;
use crate::error::Error as Library;
use crate::source::ScratchRoom;

/// What each name costs of the limit, in bytes.
const NAME_COST: u64 = 1024;
/// The most files.
const MAX_FILES: usize = 10_000;
/// What the names of files begin and end with that editors make beside the file that they edit, and that no user misses when they are gone.
const PATTERNS: [(&str, &str); 11] = [
    // hidden: swap files (.tree.yaml.swp), locks (.#tree.yaml, .~lock.tree.yaml#), temporary files (.goutputstream-XXXXXX)
    (".", ""),
    // backups
    ("", "~"),
    ("", ".bck"),
    ("", ".rej"),
    ("", "___jb_old___"),
    // what emacs and jed save by themselves
    ("#", "#"),
    // what nano and joe leave when they are killed
    ("", ".save"),
    ("DEADJOE", ""),
    // temporary files
    ("", ".swp"),
    ("", "___jb_tmp___"),
    ("tmp.", ""),
];
/// What mkstemp(3) and its like put behind these: characters that are chosen at random.
const BEFORE_RANDOM: [&str; 2] = ["sed", "tmp"];
/// How many random characters Python's `tempfile` has behind `tmp`.
const AFTER_TMP: usize = 8;
/// How many of them there are, at least and at most.
const RANDOM: std::ops::RangeInclusive<usize> = 6..=10;
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

/// The scratch files of one member, and the names of `tree.yaml`, blocks and arrays that are gone.
pub(super) struct MemberScratch {
    pub(super) scratch: Arc<Scratch>,
    /// Which member of the mount it is.
    pub(super) member: u32,
    pub(super) shown: Arc<Shown>,
}

impl MemberScratch {
    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.scratch.table)
    }

    /// A directory, as the table knows it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is gone, or never has scratch files.
    pub(super) fn place(&self, directory: Node) -> Result<Directory> {
        let path = match directory {
            Node::Root => Some(String::new()),
            Node::Blocks => Some("blocks".to_owned()),
            Node::ArrayDir(_) => self.shown.now().catalogue().path(directory),
            _ => None,
        };
        let (member, path) = (self.member, path.ok_or(Error::NotFound)?);
        Ok(Directory { member, path })
    }

    /// The directory, if there is anything in the table at all: its path takes a while to find.
    fn place_if_any(&self, directory: Node) -> Option<Directory> {
        let mut table = self.table();
        let is_empty = table.names.is_empty() && table.hidden().is_empty();
        drop(table);
        (!is_empty).then(|| self.place(directory).ok()).flatten()
    }

    /// The file of a name.
    pub(super) fn lookup(&self, directory: Node, name: &OsStr) -> Option<Arc<ScratchFile>> {
        let place = self.place_if_any(directory)?;
        let table = self.table();
        table.get(&place, name).map(|named| Arc::clone(&named.file))
    }

    /// The file of a node.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn file(&self, node: Node) -> Result<Arc<ScratchFile>> {
        let table = self.table();
        let found = match node {
            Node::Scratch(number) => table.files.get(&number).and_then(Weak::upgrade),
            // one that was `tree.yaml` before FILE was closed
            _ => table
                .named(self.member, node)
                .map(|(_, _, named)| Arc::clone(&named.file)),
        };
        found.ok_or(Error::NotFound)
    }

    /// The path of a file, by one of its names.
    pub(super) fn path_of(&self, node: Node) -> Option<String> {
        let table = self.table();
        let (directory, name, _) = table.named(self.member, node)?;
        Some(directory.path_of(name))
    }

    /// The names in a directory.
    pub(super) fn names(&self, directory: Node) -> Vec<OsString> {
        let Some(place) = self.place_if_any(directory) else {
            return Vec::new();
        };
        let table = self.table();
        let names = table.names.get(&place).into_iter();
        names.flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Makes an empty file, or a symlink to `target`. `made_of`: which of FILE's texts there is.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`]; [`Library::NoRoom`] beyond the limit.
    pub(super) fn create(
        &self,
        directory: Node,
        name: &OsStr,
        target: Option<&OsStr>,
        facts: FileFacts,
        made_of: u64,
    ) -> Result<Node> {
        let place = self.place(directory)?;
        let mut table = self.table();
        if table.get(&place, name).is_some() {
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
        let (node, text, room) = (Node::Scratch(number), Arc::new(text), &self.scratch.room);
        let file = Arc::new(ScratchFile::new(node, kind, room, text, facts, made_of));
        let named = Named::charged(Arc::clone(&file), room)?;
        table.next = next;
        table.files.insert(number, Arc::downgrade(&file));
        table.put(place, name, named);
        Ok(node)
    }

    /// Gives a file another name in the root; it replaces one that has that name, for what that costs.
    ///
    /// # Errors
    /// [`Library::NoRoom`] beyond the limit.
    pub(super) fn give(&self, name: &OsStr, file: &Arc<ScratchFile>) -> Result<()> {
        let root = self.place(Node::Root)?;
        let mut table = self.table();
        let there = table.names.get_mut(&root);
        if let Some(replaced) = there.and_then(|names| names.get_mut(name)) {
            file.link();
            std::mem::replace(&mut replaced.file, Arc::clone(file)).unlink();
            return Ok(());
        }
        let given = Named::charged(Arc::clone(file), &self.scratch.room)?;
        table.put(root, name, given);
        Ok(())
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn take(&self, place: &Directory, name: &OsStr) -> Result<()> {
        let taken = self.table().remove(place, name);
        taken.map(drop).ok_or(Error::NotFound)
    }

    /// Gives a file another name instead of its own; it replaces one that has that name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn rename(&self, from: (Node, &OsStr), to: (Node, &OsStr)) -> Result<()> {
        let (old, new) = (self.place(from.0)?, self.place(to.0)?);
        let mut table = self.table();
        let named = table.remove(&old, from.1).ok_or(Error::NotFound)?;
        table.put(new, to.1, named);
        Ok(())
    }

    /// Exchanges two names of the root.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn exchange(&self, a: &OsStr, b: &OsStr) -> Result<()> {
        let root = self.place(Node::Root)?;
        let mut table = self.table();
        let names = table.names.get_mut(&root).ok_or(Error::NotFound)?;
        // asked before the first name is taken, so that an error leaves both as they were
        if !names.contains_key(b) {
            return Err(Error::NotFound);
        }
        let first = names.remove(a).ok_or(Error::NotFound)?;
        let second = names.insert(b.to_owned(), first).ok_or(Error::NotFound)?;
        names.insert(a.to_owned(), second);
        Ok(())
    }

    /// Removes the name of `tree.yaml`, a block or an array's file for a while.
    ///
    /// # Errors
    /// [`Error::NotFound`], also if it is gone already.
    pub(super) fn hide(&self, directory: Node, name: &OsStr) -> Result<()> {
        let place = self.place(directory)?;
        let mut table = self.table();
        let name = (place, name.to_owned());
        if table.hidden().contains_key(&name) {
            return Err(Error::NotFound);
        }
        table.hidden.insert(name, Instant::now());
        Ok(())
    }

    /// The names of things in FILE that were removed from a directory a moment ago.
    pub(super) fn hidden(&self, directory: Node) -> HashSet<OsString> {
        let Some(place) = self.place_if_any(directory) else {
            return HashSet::new();
        };
        let mut table = self.table();
        let hidden = table.hidden().keys().filter(|(of, _)| *of == place);
        hidden.map(|(_, name)| name.clone()).collect()
    }

    /// Shows the name of a thing in FILE again. Whether it was removed a moment ago.
    pub(super) fn unhide(&self, directory: Node, name: &OsStr) -> bool {
        let Some(place) = self.place_if_any(directory) else {
            return false;
        };
        let mut table = self.table();
        table.hidden().remove(&(place, name.to_owned())).is_some()
    }
}

/// Whether an editor makes files of that name.
pub(super) fn is_made_by_editor(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let fits = |(start, end): &(&str, &str)| {
        let rest = name.strip_prefix(start.as_bytes());
        rest.is_some_and(|rest| rest.ends_with(end.as_bytes()))
    };
    let of_tree = name.strip_prefix(TREE_NAME.as_bytes());
    let of_tree = of_tree.and_then(|rest| rest.strip_prefix(b"."));
    let mut before = BEFORE_RANDOM.iter();
    // vim tries whether it can make files with 4913 and larger numbers
    name.iter().all(u8::is_ascii_digit)
        || PATTERNS.iter().any(fits)
        || of_tree.is_some_and(is_random)
        || before.any(|start| name.strip_prefix(start.as_bytes()).is_some_and(is_random))
        || name.strip_prefix(b"tmp").is_some_and(is_of_tempfile)
}

/// Whether tools make files of that name beside files of data: `x.tmp`, `x.tmp.npy`, as programs that write NPY files put the ending behind all
/// else, the names that Python's `tempfile` chooses, with an ending, and those of perl -i: `XX` and six random characters.
pub(super) fn is_temporary_data(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_of_perl =
        |random: &[u8]| random.len() == 6 && random.iter().all(u8::is_ascii_alphanumeric);
    let mut endings = SUFFIXES.into_iter();
    let stem = endings.find_map(|ending| name.strip_suffix(ending.as_bytes()));
    stem.unwrap_or(name).ends_with(b".tmp")
        || name.strip_prefix(b"XX").is_some_and(is_of_perl)
        || stem.is_some_and(|stem| stem.strip_prefix(b"tmp").is_some_and(is_of_tempfile))
}

/// Whether characters were chosen at random, rather than a word by people.
fn is_random(characters: &[u8]) -> bool {
    RANDOM.contains(&characters.len())
        && characters
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || *c == b'_')
        && characters.iter().any(|c| !c.is_ascii_lowercase())
}

/// Whether they are as many as Python's `tempfile` has behind `tmp`, where all may be small letters.
fn is_of_tempfile(characters: &[u8]) -> bool {
    characters.len() == AFTER_TMP
        && characters
            .iter()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'_')
}

#[cfg(test)]
mod tests;
