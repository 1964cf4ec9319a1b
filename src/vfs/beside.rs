//! Files that tools make beside those of blocks and arrays, to rename them over one: what rsync, `mv` and careful scripts do.
//!
//! They are like the scratch files of the root, but may be as large as the disk allows: all of them share the room of scratch files. Only certain names
//! are allowed, so that no user takes such a file for an array; see [`Vfs::check_beside`].
//!
//! After a rename over a block or array, the kernel takes the file for what has the name. So the kernel never keeps such a name (`valid`
//! is zero): the next lookup finds the block or array, which has the bytes of the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, SystemTime};

use super::attr::{Attr, Attributes, FileFacts};
use super::error::{Error, check_name};
use super::node::Node;
use super::texts::{is_made_by_editor, is_temporary_data};
use super::vacancy::Vacancy;
use super::{Result, Vfs, locked};
use crate::asdf::names::SUFFIXES;
use crate::error::Error as Library;
use crate::source::{Memory, Overlay, ScratchBytes, ScratchRoom, Source};

/// The most files.
const MAX_FILES: usize = 1000;

/// The files beside those of blocks and arrays.
pub(super) struct Beside {
    /// What the bytes of new files take.
    scratch: Arc<ScratchRoom>,
    /// By directory and name.
    names: BTreeMap<(Node, OsString), Arc<BesideFile>>,
    /// Those with a name, and those that are open.
    files: HashMap<u32, Weak<BesideFile>>,
    /// The number of the next file.
    next: u32,
    /// The files of arrays that a process has taken away to make them anew.
    vacancies: HashMap<(Node, OsString), Vacancy>,
}

/// A file beside those of blocks and arrays.
pub(super) struct BesideFile {
    number: u32,
    pub(super) bytes: Arc<Overlay>,
    facts: Mutex<FileFacts>,
    /// Whether a block or array has got its bytes, or is getting them. A thread that changes the bytes reads this, and holds the lock
    /// until it is done: a file that is taken does not change while it is copied.
    taken: RwLock<bool>,
}

impl BesideFile {
    /// Its attributes, with so many names.
    fn attr(&self, names: u32) -> Attr {
        let node = Node::Beside(self.number);
        Attr {
            nlink: names,
            attr_valid: Duration::ZERO,
            ..locked(&self.facts).attr(node, self.bytes.len())
        }
    }

    /// Writes bytes; a hole before them reads as zeros.
    ///
    /// # Errors
    /// [`Error::Library`]; [`Library::Stale`] if a block or array has got its bytes.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _untaken = self.untaken()?;
        self.bytes.write(offset, data)?;
        locked(&self.facts).mtime = SystemTime::now();
        Ok(())
    }

    /// Makes it as long as that.
    ///
    /// # Errors
    /// [`Library::Stale`] if a block or array has got its bytes.
    pub(super) fn resize(&self, size: u64) -> Result<()> {
        let _untaken = self.untaken()?;
        self.bytes.resize(size);
        locked(&self.facts).mtime = SystemTime::now();
        Ok(())
    }

    /// Sets what is to be changed.
    ///
    /// # Errors
    /// As [`BesideFile::resize`].
    pub(super) fn set(&self, changes: &Attributes) -> Result<()> {
        changes.size.map_or(Ok(()), |size| self.resize(size))?;
        locked(&self.facts).set(changes);
        Ok(())
    }

    /// Notes whether a block or array gets its bytes, once no other thread changes them.
    pub(super) fn set_taken(&self, is_taken: bool) {
        *self.taken.write().unwrap_or_else(PoisonError::into_inner) = is_taken;
    }

    /// Keeps the file from being taken while the guard lives.
    fn untaken(&self) -> Result<RwLockReadGuard<'_, bool>> {
        let is_taken = self.taken.read().unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            return Err(taken());
        }
        Ok(is_taken)
    }
}

/// Why nothing more is written to a file that was renamed over a block or array.
pub(super) fn taken() -> Error {
    let why = "it was renamed over a block or array, which has the bytes that it had then: open that to write to it";
    let why = why.to_owned();
    Library::Stale { why }.into()
}

impl Beside {
    /// No files. Those to come take this room.
    pub(super) fn new(scratch: &Arc<ScratchRoom>) -> Self {
        Self {
            scratch: Arc::clone(scratch),
            names: BTreeMap::new(),
            files: HashMap::new(),
            next: 0,
            vacancies: HashMap::new(),
        }
    }

    /// Whether there are no files, and no name is free to a process.
    pub(super) fn is_empty(&mut self) -> bool {
        self.end_old_vacancies();
        self.names.is_empty() && self.vacancies.is_empty()
    }

    fn end_old_vacancies(&mut self) {
        self.vacancies.retain(|_, vacancy| vacancy.lasts());
    }

    /// Takes the files out, if there are any, or a name is free to a process. No handle has any of them open.
    pub(super) fn leave(&mut self) -> Option<Self> {
        let none = Self::new(&self.scratch);
        (!self.is_empty()).then(|| std::mem::replace(self, none))
    }

    /// The directories that have such files.
    pub(super) fn directories(&self) -> BTreeSet<Node> {
        let names = self.names.keys();
        names.map(|(directory, _)| *directory).collect()
    }

    /// Moves the files of each directory in `now` to the directory there, or drops them if there is none. Gives the old directory and name
    /// of each that is dropped.
    pub(super) fn move_all(&mut self, now: &HashMap<Node, Option<Node>>) -> Vec<(Node, OsString)> {
        let mut gone = Vec::new();
        for ((directory, name), file) in std::mem::take(&mut self.names) {
            match now.get(&directory) {
                None => drop(self.names.insert((directory, name), file)),
                Some(Some(directory)) => drop(self.names.insert((*directory, name), file)),
                Some(None) => gone.push((directory, name)),
            }
        }
        gone
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Library::NoRoom`] beyond the limit.
    pub(super) fn create(
        &mut self,
        directory: Node,
        name: &OsStr,
        facts: FileFacts,
    ) -> Result<Node> {
        let key = (directory, name.to_owned());
        if self.names.contains_key(&key) {
            return Err(Error::Exists);
        }
        self.files.retain(|_, file| file.strong_count() > 0);
        let number = self.next;
        let next = number.checked_add(1);
        let Some(next) = next.filter(|_| self.files.len() < MAX_FILES) else {
            let why = format!("{MAX_FILES} files are beside those of blocks and arrays already");
            return Err(Library::NoRoom { why, limit: false }.into());
        };
        let nothing = Arc::new(Memory::new(Vec::new()));
        let file = Arc::new(BesideFile {
            number,
            bytes: Arc::new(Overlay::new(nothing, ScratchBytes::new(&self.scratch))),
            facts: Mutex::new(facts),
            taken: RwLock::new(false),
        });
        self.next = next;
        self.files.insert(number, Arc::downgrade(&file));
        self.names.insert(key, file);
        Ok(Node::Beside(number))
    }

    /// The file of a name.
    pub(super) fn lookup(&self, directory: Node, name: &OsStr) -> Option<Node> {
        let file = self.names.get(&(directory, name.to_owned()));
        file.map(|file| Node::Beside(file.number))
    }

    /// The file of that number.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn file(&self, number: u32) -> Result<Arc<BesideFile>> {
        let file = self.files.get(&number).and_then(Weak::upgrade);
        file.ok_or(Error::NotFound)
    }

    /// The names in a directory.
    pub(super) fn names(&self, directory: Node) -> Vec<OsString> {
        let names = self.names.keys().filter(|(of, _)| *of == directory);
        names.map(|(_, name)| name.clone()).collect()
    }

    /// The directory and name of a file.
    pub(super) fn name_of(&self, number: u32) -> Option<(Node, OsString)> {
        let mut names = self.names.iter();
        let found = names.find(|(_, file)| file.number == number);
        found.map(|(name, _)| name.clone())
    }

    /// The files that hold something and that users have named, each with its length.
    fn described(&self) -> Vec<(Node, u64)> {
        let files = self
            .names
            .iter()
            .filter(|((_, name), _)| !is_made_by_editor(name) && !is_temporary_data(name));
        let files = files.map(|(_, file)| (Node::Beside(file.number), file.bytes.len()));
        files.filter(|(_, len)| *len > 0).collect()
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn unlink(&mut self, directory: Node, name: &OsStr) -> Result<()> {
        let gone = self.names.remove(&(directory, name.to_owned()));
        gone.map(drop).ok_or(Error::NotFound)
    }

    /// Gives a file another name. It replaces one that has that name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn rename(&mut self, from: (Node, &OsStr), to: (Node, &OsStr)) -> Result<()> {
        let file = self.names.remove(&(from.0, from.1.to_owned()));
        let file = file.ok_or(Error::NotFound)?;
        self.names.insert((to.0, to.1.to_owned()), file);
        Ok(())
    }

    /// Lets a process find the name of an array's file free for a while.
    pub(super) fn vacate(&mut self, directory: Node, name: &OsStr, process: u32) {
        let key = (directory, name.to_owned());
        self.end_old_vacancies();
        self.vacancies.insert(key, Vacancy::to(process));
    }

    /// Whether a process finds a name free that a file of an array has.
    pub(super) fn is_free_to(
        &self,
        directory: Node,
        name: &OsStr,
        process: impl FnOnce() -> u32,
    ) -> bool {
        let vacancy = self.vacancy(directory, name);
        vacancy.is_some_and(|vacancy| vacancy.is_to(process))
    }

    fn vacancy(&self, directory: Node, name: &OsStr) -> Option<&Vacancy> {
        if self.vacancies.is_empty() {
            return None;
        }
        self.vacancies.get(&(directory, name.to_owned()))
    }

    /// Ends a vacancy; whether the name was free to any process.
    pub(super) fn end_vacancy(&mut self, directory: Node, name: &OsStr) -> bool {
        let key = (directory, name.to_owned());
        let vacancy = self.vacancies.remove(&key);
        vacancy.is_some_and(|vacancy| vacancy.lasts())
    }
}

impl Vfs {
    /// The attributes of the file of that number.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn attr_beside(&self, number: u32) -> Result<Attr> {
        let (file, is_named) = {
            let beside = locked(&self.beside);
            (beside.file(number)?, beside.name_of(number).is_some())
        };
        // a write to it may be slow: other threads do not wait for that
        Ok(file.attr(is_named.into()))
    }

    /// The files beside blocks and arrays that hold something and that users have named, with their lengths.
    pub(super) fn described_beside(&self) -> impl Iterator<Item = String> {
        let files = locked(&self.beside).described().into_iter();
        files.map(|(file, len)| format!("{} ({len} bytes)", self.path_of(file)))
    }

    /// Checks that a file of that name may be made in a directory of blocks or arrays: tools make such names, or it is named after a file
    /// there, as `x.npy.part`, `x.new.npy` and `x_tmp.npy` are after `x.npy`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::TooLong`].
    pub(super) fn check_beside(&self, directory: Node, name: &OsStr) -> Result<()> {
        check_name(name)?;
        let state = self.state();
        let is_there = |name: &[u8]| {
            let found = self.find(&state, directory, OsStr::from_bytes(name));
            let data = found
                .ok()
                .filter(|node| matches!(node, Node::Block(_) | Node::Array(..)));
            data.is_some_and(|node| self.attr(&state, node).is_ok())
        };
        let bytes = name.as_bytes();
        let ends = bytes.iter().enumerate();
        let ends = ends.filter(|(_, byte)| byte.is_ascii() && !byte.is_ascii_alphanumeric());
        let mut starts = ends.filter_map(|(end, _)| bytes.get(..end));
        let is_named_after_one = |start: &[u8]| {
            let mut endings = std::iter::once("").chain(SUFFIXES);
            endings.any(|ending| is_there(&[start, ending.as_bytes()].concat()))
        };
        if is_made_by_editor(name) || is_temporary_data(name) || starts.any(is_named_after_one) {
            return Ok(());
        }
        Err(Error::NotPermitted(
            "arrays follow the tree: to add one, add it to tree.yaml; beside them only files named after one, as x.new.npy is after \
             x.npy, hidden and temporary ones (.tmp) can be made, to be renamed over it",
        ))
    }
}
