//! The files in the mount's root: the name `tree.yaml`, drafts of the text, and scratch files of editors.
//!
//! Pure bookkeeping in memory; committing a text is `commit`'s. Three ideas, from what editors do to save a file:
//!
//! - The committed text belongs to FILE, not to the name `tree.yaml`. An editor may rename it away, unlink it, make it anew
//!   or move a backup back: whatever file has the name when it is flushed is the text to save. The name is never gone, see
//!   [`vacancy`].
//! - Each handle that writes to `tree.yaml` has a draft of its own, made at its first change, so that two writers at once
//!   do not mix; the draft written last is what the file shows. PooledBuf files are written directly, like any file.
//! - A draft that is empty, or begins with a line of comment and has no document yet (no `---`), is nothing to save: shells
//!   close a file between writes to it. When its handle is gone, a blank one is forgotten, and the file shows the committed text
//!   again; any other is refused then.

mod editors;
mod file;
mod limit;
mod open;
mod refused;
mod vacancy;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::SystemTime;

use self::file::{Content, File, Shown};
use self::open::Draft;
pub(super) use self::open::TextHandle;
use self::refused::Pending;
use self::vacancy::Vacancy;
use super::attr::{Access, FileFacts};
use super::error::Error;
use crate::asdf::text::TEXT_LIMIT;
use crate::source::len_u64;

/// The name of the text of the file.
pub(super) const TREE_NAME: &str = "tree.yaml";
/// Number of a file in the root.
pub(super) type Number = u32;

/// The names and files of the root.
#[derive(Debug)]
pub(super) struct Root {
    names: BTreeMap<OsString, Number>,
    files: HashMap<Number, File>,
    next: Number,
    used: u64,
    limit: u64,
    committed: Arc<Vec<u8>>,
    /// The text that was refused last and is still shown.
    pending: Option<Pending>,
    /// How many other texts FILE has got from other programs.
    epoch: u64,
    /// To whom the name `tree.yaml` is free, though it shows FILE's tree to all others.
    vacancy: Option<Vacancy>,
}

impl Root {
    /// A root with only `tree.yaml`. `limit` is for all scratch files together, in bytes.
    #[must_use]
    pub(super) fn new(text: Arc<Vec<u8>>, facts: FileFacts, limit: u64) -> Self {
        let tree = File::new(Content::Bytes(Arc::clone(&text)), facts, 0);
        Self {
            names: BTreeMap::from([(TREE_NAME.into(), 0)]),
            files: HashMap::from([(0, tree)]),
            next: 1,
            used: 0,
            limit,
            committed: text,
            pending: None,
            epoch: 0,
            vacancy: None,
        }
    }

    /// The file of that name.
    #[must_use]
    pub(super) fn lookup(&self, name: &OsStr) -> Option<Number> {
        self.names.get(name).copied()
    }

    /// All names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = (&OsStr, Number)> {
        self.names
            .iter()
            .map(|(name, &number)| (name.as_os_str(), number))
    }

    /// Whether that file is `tree.yaml` now.
    #[must_use]
    pub(super) fn is_tree(&self, number: Number) -> bool {
        self.lookup(TREE_NAME.as_ref()) == Some(number)
    }

    /// Whether what is written to that file is the text of FILE, rather than of a scratch file.
    fn is_text(&self, number: Number) -> bool {
        self.is_tree(number) || self.file(number).is_ok_and(|file| file.superseded)
    }

    /// The committed text.
    #[must_use]
    pub(super) fn committed(&self) -> &Arc<Vec<u8>> {
        &self.committed
    }

    /// Whether FILE has got another text from another program since `epoch`, so that what was made of the one before is not saved.
    #[must_use]
    pub(super) fn is_outdated(&self, epoch: u64) -> bool {
        epoch != self.epoch
    }

    /// The epoch of a file.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn epoch_of(&self, number: Number) -> Result<u64, Error> {
        Ok(self.file(number)?.epoch)
    }

    fn file(&self, number: Number) -> Result<&File, Error> {
        self.files.get(&number).ok_or(Error::NotFound)
    }

    fn file_mut(&mut self, number: Number) -> Result<&mut File, Error> {
        self.files.get_mut(&number).ok_or(Error::NotFound)
    }

    /// What the attributes of that file are.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn shown(&self, number: Number) -> Result<Shown, Error> {
        let file = self.file(number)?;
        let (len, link) = match &file.content {
            Content::Bytes(bytes) => (bytes.len(), false),
            Content::Link(target) => (target.len(), true),
        };
        let len = len_u64(len);
        Ok(Shown {
            len,
            link,
            facts: file.facts.clone(),
            names: file.names,
        })
    }

    /// The bytes that every reader of that file sees.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for a symlink.
    pub(super) fn bytes(&self, number: Number) -> Result<&Arc<Vec<u8>>, Error> {
        match &self.file(number)?.content {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Link(_) => Err(Error::Invalid("a symlink has no bytes")),
        }
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] if it is none.
    pub(super) fn link_target(&self, number: Number) -> Result<&OsStr, Error> {
        match &self.file(number)?.content {
            Content::Link(target) => Ok(target),
            Content::Bytes(_) => Err(Error::Invalid("not a symlink")),
        }
    }

    /// Makes an empty file. Its number.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::ScratchFull`].
    pub(super) fn create(&mut self, name: &OsStr, facts: FileFacts) -> Result<Number, Error> {
        self.add(name, Content::Bytes(Arc::default()), facts)
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
    ) -> Result<Number, Error> {
        if name == TREE_NAME {
            return Err(Error::NotPermitted("tree.yaml can't be a symlink"));
        }
        self.add(name, Content::Link(target.to_owned()), facts)
    }

    fn add(&mut self, name: &OsStr, content: Content, facts: FileFacts) -> Result<Number, Error> {
        if self.is_taken(name) {
            return Err(Error::Exists);
        }
        let number = self.next;
        let next = self
            .next
            .checked_add(1)
            .ok_or(Error::ScratchFull(self.limit))?;
        self.files
            .insert(number, File::new(content, facts, self.epoch));
        let replaced = self.names.insert(name.to_owned(), number);
        if let Err(error) = self.charge(number) {
            self.put_back(name, replaced);
            self.files.remove(&number);
            return Err(error);
        }
        self.next = next;
        self.has_replaced(replaced);
        Ok(number)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`], [`Error::ScratchFull`].
    pub(super) fn link(&mut self, number: Number, name: &OsStr) -> Result<(), Error> {
        if self.is_taken(name) {
            return Err(Error::Exists);
        }
        let file = self.file_mut(number)?;
        file.names = file.names.saturating_add(1);
        let replaced = self.names.insert(name.to_owned(), number);
        let charged = self.charge(number);
        if charged.is_ok() {
            self.has_replaced(replaced);
        } else {
            self.put_back(name, replaced);
            if let Some(file) = self.files.get_mut(&number) {
                file.names = file.names.saturating_sub(1);
            }
        }
        charged
    }

    /// Has a process take a name away. The file goes with its last name and handle; the committed text stays what it is, and is in
    /// the file whose number is given back, if the name was `tree.yaml`.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn unlink(&mut self, name: &OsStr, process: u32) -> Result<Option<Number>, Error> {
        let number = self.names.remove(name).ok_or(Error::NotFound)?;
        let filled = self.fill(name, process, number);
        self.drop_name(number);
        Ok(filled)
    }

    fn drop_name(&mut self, number: Number) {
        if let Some(file) = self.files.get_mut(&number) {
            file.names = file.names.saturating_sub(1);
        }
        self.recount(number);
        self.forget_if_gone(number);
    }

    fn forget_if_gone(&mut self, number: Number) {
        if let Some(file) = self.files.get(&number)
            && file.names == 0
            && file.handles == 0
        {
            self.used = self.used.saturating_sub(file.charged);
            self.files.remove(&number);
        }
    }

    /// Has a process rename over whatever has the new name. If it takes `tree.yaml` away, that is given a file as by
    /// [`Root::unlink`].
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::ScratchFull`] of `tree.yaml`, if the limit is exceeded already.
    pub(super) fn rename(
        &mut self,
        name: &OsStr,
        new: &OsStr,
        process: u32,
    ) -> Result<Option<Number>, Error> {
        let number = self.lookup(name).ok_or(Error::NotFound)?;
        let replaced = self.lookup(new);
        if replaced == Some(number) {
            // the kernel asks for two names of one file only where it takes the new one for free
            if name != new {
                self.names.remove(name);
                self.vacancy = None;
                self.drop_name(number);
            }
            return Ok(None);
        }
        self.check_may_lose_name(number, replaced)?;
        self.note_backup(number, new);
        self.names.remove(name);
        self.names.insert(new.to_owned(), number);
        if new == TREE_NAME {
            self.vacancy = None;
        }
        let filled = self.fill(name, process, number);
        self.recount(number);
        if let Some(replaced) = replaced {
            self.drop_name(replaced);
        }
        Ok(filled)
    }

    /// That two names may be exchanged. To be asked before the file that gets the name `tree.yaml` is saved: what is saved then can't
    /// be refused its name.
    ///
    /// # Errors
    /// As [`Root::rename`].
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
        self.note_backup(first, b);
        self.note_backup(second, a);
        self.names.insert(a.to_owned(), second);
        self.names.insert(b.to_owned(), first);
        self.vacancy = None;
        self.recount(first);
        self.recount(second);
        Ok(())
    }

    /// Opens a file; emptied, with an empty draft, or, for a scratch file, with its bytes cut.
    ///
    /// # Errors
    /// [`Error::NotFound`], also for a file that was `tree.yaml` before another program changed FILE, and has no other name.
    pub(super) fn open(&mut self, number: Number, access: Access) -> Result<TextHandle, Error> {
        let file = self.file(number)?;
        if file.superseded && file.names == 0 {
            return Err(Error::NotFound);
        }
        let shown = self.pending.as_ref().filter(|_| self.is_tree(number));
        let epoch = shown.map_or(self.epoch, |pending| pending.epoch);
        if access.write && self.is_tree(number) {
            // what is written there is not to be replaced by what another process makes anew
            self.vacancy = None;
        }
        let file = self.file_mut(number)?;
        file.handles = file.handles.saturating_add(1);
        let mut handle = TextHandle::new(number, access, epoch);
        if access.truncate
            && let Err(error) = self.change(&mut handle, 0, |_| ())
        {
            self.release(&mut handle);
            return Err(error);
        }
        Ok(handle)
    }

    /// The bytes that this handle sees: its own draft, or what the file shows.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn view(&self, handle: &TextHandle) -> Result<Arc<Vec<u8>>, Error> {
        match &handle.draft {
            Some(draft) if draft.touched => Ok(Arc::clone(&draft.bytes)),
            _ => self.bytes(handle.number).cloned(),
        }
    }

    /// Writes at an offset, filling a hole with zeros; or behind all that is shown, by any handle, if the file was opened
    /// for that.
    ///
    /// # Errors
    /// [`Error::TooBig`], [`Error::ScratchFull`].
    pub(super) fn write(
        &mut self,
        handle: &mut TextHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Error> {
        let start = if handle.appends {
            self.bytes(handle.number)?.len()
        } else {
            self.checked_len(offset)?
        };
        let end = start
            .checked_add(data.len())
            .ok_or(Error::TooBig("beyond the limit of a tree"))?;
        self.checked_len(len_u64(end))?;
        if handle.appends
            && let Some(draft) = &mut handle.draft
        {
            draft.bytes = Arc::clone(self.bytes(handle.number)?);
        }
        let len = self.own(handle)?.len().max(end);
        self.change(handle, len, |bytes| {
            if let Some(place) = bytes.get_mut(start..end) {
                place.copy_from_slice(data);
            }
        })
    }

    /// Sets the length, filling with zeros.
    ///
    /// # Errors
    /// [`Error::TooBig`], [`Error::ScratchFull`].
    pub(super) fn resize(&mut self, handle: &mut TextHandle, len: u64) -> Result<(), Error> {
        let len = self.checked_len(len)?;
        self.change(handle, len, |_| ())
    }

    fn checked_len(&self, len: u64) -> Result<usize, Error> {
        if len > TEXT_LIMIT.max(self.limit) {
            return Err(Error::TooBig("beyond the limit of a tree"));
        }
        usize::try_from(len).map_err(|_| Error::TooBig("beyond the address space"))
    }

    /// The bytes that a change through this handle starts from.
    fn own<'a>(&'a self, handle: &'a TextHandle) -> Result<&'a Arc<Vec<u8>>, Error> {
        let shown = self.bytes(handle.number)?;
        let draft = handle.draft.as_ref().map(|draft| &draft.bytes);
        Ok(draft
            .filter(|_| self.is_text(handle.number))
            .unwrap_or(shown))
    }

    /// Makes the bytes `len` long, then has them edited. If the limit does not allow that, nothing changes.
    fn change(
        &mut self,
        handle: &mut TextHandle,
        len: usize,
        edit: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let number = handle.number;
        let is_text = self.is_text(number);
        let mut bytes = Arc::clone(self.own(handle)?);
        self.check_room(number, len_u64(len))?;
        handle.refused = None;
        handle.draft = None;
        self.file_mut(number)?.backup &= is_text;
        self.show(number, Arc::default())?; // so that the bytes have no other owner, and are not copied
        let owned = Arc::make_mut(&mut bytes);
        let shorter = len < owned.len();
        owned.resize(len, 0);
        if shorter {
            owned.shrink_to_fit();
        }
        edit(owned);
        handle.draft = is_text.then(|| Draft {
            bytes: Arc::clone(&bytes),
            touched: true,
        });
        self.show(number, bytes)?;
        self.recount(number);
        Ok(())
    }

    fn show(&mut self, number: Number, bytes: Arc<Vec<u8>>) -> Result<(), Error> {
        let file = self.file_mut(number)?;
        file.content = Content::Bytes(bytes);
        file.facts.mtime = SystemTime::now();
        Ok(())
    }

    /// The text that a flush of this handle would save: `None` if nothing was written since the last save, if no document has
    /// begun, or if the file is not `tree.yaml`.
    #[must_use]
    pub(super) fn text_to_save(&self, handle: &TextHandle) -> Option<Arc<Vec<u8>>> {
        let draft = handle.draft.as_ref().filter(|draft| draft.touched)?;
        (self.is_text(handle.number) && !draft.is_beginning()).then(|| Arc::clone(&draft.bytes))
    }

    /// Notes that `text` is now the text of FILE: what was `written` to a file, perhaps with something put back. Then the file
    /// shows that, unless something else was written to it since.
    pub(super) fn saved(&mut self, number: Number, written: &Arc<Vec<u8>>, text: &Arc<Vec<u8>>) {
        self.committed = Arc::clone(text);
        self.pending = None;
        let shown = self
            .bytes(number)
            .is_ok_and(|shown| Arc::ptr_eq(shown, written));
        if shown && !Arc::ptr_eq(written, text) {
            // the file is there: `bytes` has just found it
            let _ = self.show(number, Arc::clone(text));
        }
    }

    /// Notes what FILE is after another program has changed it. The number of the file that shows its text now: another one, if that
    /// of before is open. A refused text is no longer shown, unless there is no other copy of it.
    pub(super) fn reloaded(&mut self, text: Arc<Vec<u8>>, facts: FileFacts) -> Option<Number> {
        let mut number = self.lookup(TREE_NAME.as_ref())?;
        if *text != *self.committed {
            self.committed = text;
            self.epoch = self.epoch.saturating_add(1);
            self.pending.take_if(|pending| pending.kept);
            number = self.show_current()?;
        }
        self.file_mut(number).ok()?.facts = facts;
        Some(number)
    }

    /// Notes that what this handle had written is FILE's text now, unless it has written more since. If something was put back, it
    /// goes on writing to what it knows, at the places that things have there.
    pub(super) fn saved_through(&self, handle: &mut TextHandle, written: &Arc<Vec<u8>>) {
        let draft = handle.draft.as_mut();
        if let Some(draft) = draft.filter(|draft| draft.bytes == *written) {
            draft.touched = false;
            if *written == self.committed {
                handle.draft = None;
            }
        }
    }

    /// Closes a handle. A draft in which no document has begun is forgotten with it, unless it was refused. Gives the number of
    /// `tree.yaml` if that shows another text now.
    pub(super) fn release(&mut self, handle: &mut TextHandle) -> Option<Number> {
        let number = handle.number;
        let draft = handle.draft.take();
        let forgotten = draft.is_some_and(|draft| {
            let shown = self.bytes(number);
            draft.is_beginning() && shown.is_ok_and(|shown| Arc::ptr_eq(shown, &draft.bytes))
        });
        let shows_another = forgotten && self.is_tree(number);
        if shows_another {
            let text = Arc::clone(self.current());
            // the file is there: `bytes` has just found it
            let _ = self.show(number, text);
        }
        let file = self.files.get_mut(&number)?;
        file.handles = file.handles.saturating_sub(1);
        self.forget_if_gone(number);
        shows_another.then_some(number)
    }

    /// Owner, mode and times to change.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn facts_mut(&mut self, number: Number) -> Result<&mut FileFacts, Error> {
        Ok(&mut self.file_mut(number)?.facts)
    }
}

#[cfg(test)]
mod tests;
