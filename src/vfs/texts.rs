//! The files in the mount's root: the name `tree.yaml`, drafts of the text, and scratch files of editors.
//!
//! This is bookkeeping in memory; `commit` saves texts. Three ideas follow from what editors do to save a file:
//!
//! - FILE's text, the *committed* one, does not depend on the name `tree.yaml`. An editor may rename that file away, unlink it, make it
//!   anew or move a backup back: the text to save is that of the file which has the name when it is flushed. The name is never gone, see
//!   [`tree_name`].
//! - Each handle that writes to `tree.yaml` has a draft of its own, made at its first change, so that the texts of two writers do not
//!   mix. The file shows the draft that was written last. Scratch files are written directly, like any file.
//! - A draft is not saved while it is blank, or begins with a comment and has no document yet (no `---`): a shell closes a file
//!   between writes to it. When its handle is released, a blank draft is forgotten, and the file shows the committed text again; any
//!   other such draft is refused.

mod editors;
mod left;
mod limit;
mod open;
mod refused;
mod tree_name;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::editors::{is_made_by_editor, is_temporary_data};
use self::open::OpenText;
pub(super) use self::open::{TextHandle, Unsaved};
pub(super) use self::refused::{Refused, not_saved};
use super::attr::{Attr, FileFacts, FileKind};
use super::error::Error;
use super::node::Node;
use super::vacancy::Vacancy;
use crate::source::{ScratchRoom, len_u64};

/// The name of the text of the file.
pub(super) const TREE_NAME: &str = "tree.yaml";

/// The files of the root: their names, those that are open, and what is not saved. One lock guards all of it.
#[derive(Debug)]
pub(super) struct Texts {
    names: BTreeMap<OsString, u32>,
    /// The files that have a name or are open, by number.
    files: HashMap<u32, RootFile>,
    /// The number of the next file.
    next: u32,
    open: HashMap<TextHandle, OpenText>,
    /// How many handles have been opened.
    opened: u64,
    /// What scratch files may cost; see [`limit`].
    room: Arc<ScratchRoom>,
    /// The files that were `tree.yaml` last, see [`tree_name`].
    trees: VecDeque<u32>,
    /// FILE's text.
    committed: Arc<Vec<u8>>,
    /// Owner, mode and times of FILE, which `tree.yaml` has.
    of_file: FileFacts,
    /// The text that was refused last, if none has been saved since.
    refused: Option<Refused>,
    /// How often FILE has got another text that was not saved through `tree.yaml`.
    text_epoch: u64,
    /// The process to which the name `tree.yaml` is free, while all others see FILE's tree there.
    vacancy: Option<Vacancy>,
    /// Whether the kernel's pages of the first `tree.yaml` are of FILE's text: not if it was opened to be written to, or has shown another
    /// text. `None` until a handle of it is opened: then the pages are those from before this was made.
    pages_are_of_text: Option<bool>,
}

/// A file in the root.
#[derive(Debug)]
struct RootFile {
    /// A file, or a symlink, as emacs makes to lock a file.
    kind: FileKind,
    /// The bytes that every reader sees; of a symlink, its target.
    bytes: Arc<Vec<u8>>,
    facts: FileFacts,
    /// Names that it has.
    names: u32,
    /// Bytes of the limit that it takes, see `limit`.
    charged: u64,
    /// Whether it was `tree.yaml` once and was not written to since: an editor puts it back when a save fails. Means nothing while it is
    /// `tree.yaml`.
    backup: bool,
    /// [`Texts::text_epoch`] when it was made, or emptied last; when it was `tree.yaml`, that of the text that it showed
    /// last under that name.
    text_epoch: u64,
    /// If it was `tree.yaml`, and open, when another program changed FILE: how many handles had been opened by then. A text that these
    /// write is refused; those that are opened later, by another name, write to a scratch file.
    superseded: Option<u64>,
    /// Whether it is being saved, to become `tree.yaml` then.
    becoming: bool,
    /// Whether a block or array has got its bytes, or is getting them.
    taken: bool,
}

impl RootFile {
    /// A file with one name, that no handle has open.
    fn new(kind: FileKind, bytes: Arc<Vec<u8>>, facts: FileFacts, text_epoch: u64) -> Self {
        Self {
            kind,
            bytes,
            facts,
            names: 1,
            charged: 0,
            backup: false,
            text_epoch,
            superseded: None,
            becoming: false,
            taken: false,
        }
    }

    /// Length in bytes; of a link, of its target.
    fn len(&self) -> u64 {
        len_u64(self.bytes.len())
    }
}

impl Texts {
    /// A root with only `tree.yaml`. Its scratch files share `room` with those of other roots.
    #[must_use]
    pub(super) fn new(text: Arc<Vec<u8>>, facts: FileFacts, room: Arc<ScratchRoom>) -> Self {
        let tree = RootFile::new(FileKind::File, Arc::clone(&text), facts.clone(), 0);
        Self {
            names: BTreeMap::from([(TREE_NAME.into(), 0)]),
            files: HashMap::from([(0, tree)]),
            next: 1,
            open: HashMap::new(),
            opened: 0,
            room,
            trees: VecDeque::new(),
            committed: text,
            of_file: facts,
            refused: None,
            text_epoch: 0,
            vacancy: None,
            pages_are_of_text: None,
        }
    }

    /// The file of that name.
    #[must_use]
    pub(super) fn lookup(&self, name: &OsStr) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// All names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = (&OsStr, u32)> {
        self.names
            .iter()
            .map(|(name, &number)| (name.as_os_str(), number))
    }

    /// Whether that file is `tree.yaml` now.
    #[must_use]
    pub(super) fn is_tree(&self, number: u32) -> bool {
        self.lookup(TREE_NAME.as_ref()) == Some(number)
    }

    fn file(&self, number: u32) -> Result<&RootFile, Error> {
        self.files.get(&number).ok_or(Error::NotFound)
    }

    fn file_mut(&mut self, number: u32) -> Result<&mut RootFile, Error> {
        self.files.get_mut(&number).ok_or(Error::NotFound)
    }

    /// The attributes of that file.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn attr(&self, number: u32) -> Result<Attr, Error> {
        let file = self.file(number)?;
        let is_link = file.kind == FileKind::Symlink;
        let perm = if is_link { 0o777 } else { file.facts.perm };
        Ok(Attr {
            kind: file.kind,
            perm,
            nlink: file.names,
            ..file.facts.attr(Node::Text(number), file.len())
        })
    }

    /// The bytes that every reader of that file sees.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for a symlink.
    pub(super) fn bytes(&self, number: u32) -> Result<&Arc<Vec<u8>>, Error> {
        match self.file(number)? {
            file if file.kind == FileKind::File => Ok(&file.bytes),
            _ => Err(Error::Invalid("a symlink has no bytes")),
        }
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] if it is none.
    pub(super) fn link_target(&self, number: u32) -> Result<&[u8], Error> {
        match self.file(number)? {
            file if file.kind == FileKind::Symlink => Ok(&file.bytes),
            _ => Err(Error::Invalid("not a symlink")),
        }
    }

    /// Makes an empty file; as `tree.yaml` one that shows FILE's tree until it is opened to be written anew. Its number.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::ScratchFull`].
    pub(super) fn create(&mut self, name: &OsStr, facts: FileFacts) -> Result<u32, Error> {
        let bytes = if name == TREE_NAME {
            Arc::clone(self.current())
        } else {
            Arc::default()
        };
        self.add(name, FileKind::File, bytes, facts)
    }

    /// Makes a symlink. Its number.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::ScratchFull`]; [`Error::NotPermitted`] as `tree.yaml`.
    pub(super) fn symlink(
        &mut self,
        name: &OsStr,
        target: &OsStr,
        facts: FileFacts,
    ) -> Result<u32, Error> {
        if name == TREE_NAME {
            return Err(Error::NotPermitted("tree.yaml can't be a symlink"));
        }
        let target = target.as_bytes().to_vec();
        self.add(name, FileKind::Symlink, Arc::new(target), facts)
    }

    /// Makes a file or a symlink. Its number. If the name is taken, or the limit does not allow it, nothing has changed.
    fn add(
        &mut self,
        name: &OsStr,
        kind: FileKind,
        bytes: Arc<Vec<u8>>,
        facts: FileFacts,
    ) -> Result<u32, Error> {
        if self.is_taken(name) {
            return Err(Error::Exists);
        }
        let number = self.next;
        let next = self
            .next
            .checked_add(1)
            .ok_or(Error::ScratchFull(self.room.limit()))?;
        let file = RootFile::new(kind, bytes, facts, self.text_epoch);
        self.files.insert(number, file);
        if let Err(error) = self.give_name(name, number) {
            self.files.remove(&number);
            return Err(error);
        }
        self.next = next;
        Ok(number)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`], [`Error::ScratchFull`].
    pub(super) fn link(&mut self, number: u32, name: &OsStr) -> Result<(), Error> {
        if self.is_taken(name) {
            return Err(Error::Exists);
        }
        let file = self.file_mut(number)?;
        file.names = file.names.saturating_add(1);
        let given = self.give_name(name, number);
        if given.is_err()
            && let Some(file) = self.files.get_mut(&number)
        {
            file.names = file.names.saturating_sub(1);
        }
        given
    }

    /// Gives a name to a file whose count of names has it already, if the limit allows it. Drops the file that has the name while it is
    /// free to a process.
    fn give_name(&mut self, name: &OsStr, number: u32) -> Result<(), Error> {
        self.note_tree();
        let replaced = self.names.insert(name.to_owned(), number);
        if let Err(error) = self.charge(number) {
            match replaced {
                Some(number) => self.names.insert(name.to_owned(), number),
                None => self.names.remove(name),
            };
            return Err(error);
        }
        self.note_name(number, name);
        if let Some(number) = replaced {
            self.vacancy = None;
            self.drop_name(number);
        }
        Ok(())
    }

    /// Has a process take a name away. The file is gone when it has neither a name nor a handle. If the name was `tree.yaml`, a new file
    /// has it then, with the committed text.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn unlink(&mut self, name: &OsStr, process: u32) -> Result<(), Error> {
        self.note_tree();
        let number = self.names.remove(name).ok_or(Error::NotFound)?;
        self.fill(name, process);
        self.drop_name(number);
        Ok(())
    }

    /// Counts one name of a file less; the name itself must be gone already. Drops the file if it was the last and no handle is open.
    fn drop_name(&mut self, number: u32) {
        if let Some(file) = self.files.get_mut(&number) {
            file.names = file.names.saturating_sub(1);
        }
        self.recount(number);
        self.forget_if_gone(number);
    }

    /// Drops a file that has neither a name nor a handle, and gives back the room that it took. One that stays known for a while takes none.
    fn forget_if_gone(&mut self, number: u32) {
        let (is_open, stays) = (self.is_open(number), self.stays_known(number));
        if let Some(file) = self.files.get_mut(&number)
            && file.names == 0
            && !is_open
        {
            self.room.give(std::mem::take(&mut file.charged));
            if !stays {
                self.files.remove(&number);
            }
        }
    }

    /// Has a process rename a file, over the one that has the new name. If it takes `tree.yaml` away, a new file has that name then, as
    /// after [`Texts::unlink`].
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::ScratchFull`] of `tree.yaml`, if the limit is exceeded already.
    pub(super) fn rename(&mut self, name: &OsStr, new: &OsStr, process: u32) -> Result<(), Error> {
        let number = self.lookup(name).ok_or(Error::NotFound)?;
        let replaced = self.lookup(new);
        if replaced == Some(number) {
            // for two names of one file the kernel asks only if the new one seems free to the process
            if name != new {
                self.names.remove(name);
                self.vacancy = None;
                self.drop_name(number);
            }
            return Ok(());
        }
        self.check_may_lose_name(number, replaced)?;
        self.note_tree();
        self.note_name(number, new);
        self.names.remove(name);
        self.names.insert(new.to_owned(), number);
        if new == TREE_NAME {
            self.vacancy = None;
        }
        self.fill(name, process);
        self.recount(number);
        if let Some(replaced) = replaced {
            self.drop_name(replaced);
        }
        Ok(())
    }

    /// Checks that two names may be exchanged. Call it before the file that gets the name `tree.yaml` is saved: after the save the exchange
    /// must not fail.
    ///
    /// # Errors
    /// As [`Texts::rename`].
    pub(super) fn check_exchange(&self, a: &OsStr, b: &OsStr) -> Result<(), Error> {
        for name in [a, b] {
            let number = self.lookup(name).ok_or(Error::NotFound)?;
            self.check_may_lose_name(number, None)?;
        }
        Ok(())
    }

    /// Exchanges two names.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn exchange(&mut self, a: &OsStr, b: &OsStr) -> Result<(), Error> {
        let (first, second) = (self.lookup(a), self.lookup(b));
        let (first, second) = (
            first.ok_or(Error::NotFound)?,
            second.ok_or(Error::NotFound)?,
        );
        self.note_tree();
        self.note_name(first, b);
        self.note_name(second, a);
        self.names.insert(a.to_owned(), second);
        self.names.insert(b.to_owned(), first);
        self.vacancy = None;
        self.recount(first);
        self.recount(second);
        Ok(())
    }

    /// Notes whether a block or array has got the bytes of a file, or is getting them: then the file can't be written to.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn set_taken(&mut self, number: u32, taken: bool) -> Result<(), Error> {
        self.file_mut(number)?.taken = taken;
        Ok(())
    }

    /// Notes owner, mode and times that FILE has now.
    pub(super) fn note_file(&mut self, facts: FileFacts) {
        self.of_file = facts;
    }

    /// Owner, mode and times to change.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn facts_mut(&mut self, number: u32) -> Result<&mut FileFacts, Error> {
        Ok(&mut self.file_mut(number)?.facts)
    }
}

#[cfg(test)]
mod tests;
