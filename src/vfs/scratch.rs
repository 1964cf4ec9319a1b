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
mod names;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

pub(super) use self::file::{Role, ScratchFile, Unsaved, copy_pieces, is_beginning, is_blank};
pub(super) use self::names::MemberScratch;
use super::attr::{Attr, FileKind};
use super::node::{Node, TREE_NAME};
use super::{Result, locked};
use crate::asdf::names::SUFFIXES;
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
mod tests {
    use super::*;

    #[test]
    fn names_of_editors_are_told_from_those_of_users() {
        let editors = [
            ".tree.yaml.swp",
            ".tree.yaml.swx",
            "4913",
            "5036",
            "tree.yaml~",
            ".tree.yaml.un~",
            "tree.yaml.~1~",
            ".#tree.yaml",
            "#tree.yaml#",
            ".goutputstream-9XK2A1",
            "tree.yaml.pQ3xYz",
            ".tree.yaml.Xq12Ab",
            "sedA8xYkQ",
            "tmp_k3x9q1a",
            "tmpqwertyui",
            "tree.yaml.rej",
            "tree.yaml.save",
            ".tree.yaml.kate-swp",
            "DEADJOE",
            "tree.yaml___jb_tmp___",
            "tree.yaml___jb_old___",
            ".~lock.tree.yaml#",
            "tmp.8XkQ1aZ0bC",
            ".t",
        ];
        for name in editors {
            assert!(is_made_by_editor(name.as_ref()), "{name}");
        }
        let users = [
            "results.csv",
            "tree.yaml.backup",
            "tree.yaml.bak",
            "tree.yaml.orig",
            "tree.yaml.tmp",
            "tree2.yaml",
            "notes",
            "sediment.csv",
            "#1.txt",
            "data_2024.npy",
            "tmpfile",
            "a.asdf",
        ];
        for name in users {
            assert!(!is_made_by_editor(name.as_ref()), "{name}");
        }
        for name in ["XXtfDEBd", "XXabcdef", "XXa.tmp", "x.tmp.npy"] {
            assert!(is_temporary_data(name.as_ref()), "{name}");
        }
        for name in ["XXfinal2", "XXa.npy"] {
            let is_one = is_made_by_editor(name.as_ref());
            assert!(!is_one, "{name}");
        }
    }
}
