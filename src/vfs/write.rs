//! Operations that change names and bytes. When a change is saved is decided here; how, in `commit`.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use log::warn;

use super::attr::{FileFacts, modified};
use super::error::check_name;
use super::node::Node;
use super::process::process_of;
use super::root::{Number, TREE_NAME, TextHandle};
use super::{
    Access, Attr, Attributes, Caller, Error, Handle, Invalidation, Opened, ROOT_DIRECTORIES,
    Rename, Result, Vfs, block_number, locked,
};
use crate::error::{Error as Library, Place};
use crate::source::len_u64;

/// `fallocate(2)`: do not change the size.
const KEEP_SIZE: i32 = 1;
/// `stat(2)`: the type of a file in its mode, and that of a regular one.
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

impl Vfs {
    /// Changes attributes. A new size is a change of the bytes; owner, mode and times of files in the root are kept in memory,
    /// those of other files are accepted and follow FILE's: editors and `cp -p` complain about anything else.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotPermitted`], [`Error::NotFound`], and those of writing.
    pub fn setattr(&self, ino: u64, fh: Option<u64>, changes: &Attributes) -> Result<Attr> {
        self.check_writable()?;
        let node = Node::from_ino(ino).ok_or(Error::NotFound)?;
        match node {
            Node::Text(number) => {
                if let Some(size) = changes.size {
                    self.resize_text(number, fh, size)?;
                }
                let mut root = locked(&self.root);
                let facts = root.facts_mut(number)?;
                if let Some(mode) = changes.mode {
                    facts.perm = u16::try_from(mode & 0o777).unwrap_or(0);
                }
                facts.uid = changes.uid.unwrap_or(facts.uid);
                facts.gid = changes.gid.unwrap_or(facts.gid);
                facts.mtime = changes.mtime.unwrap_or(facts.mtime);
            }
            Node::Block(_) | Node::Array(..) => {
                if let Some(size) = changes.size {
                    self.noted(node, self.resize_data(node, fh, size))?;
                }
            }
            _ => return Err(Error::NotPermitted("this file is not yours to change")),
        }
        if changes.size.is_some() {
            self.settle();
        }
        // the kernel forgets the pages of this inode itself, and takes the size from this answer
        self.attr_now(&self.state(), node)
    }

    /// Through a handle its draft is resized; by path the text is, and saved at once if it is one.
    fn resize_text(&self, number: Number, fh: Option<u64>, size: u64) -> Result<()> {
        if let Some(handle) = fh.map(|fh| self.handles.get(fh)).transpose()?
            && let Handle::Text(text) = &*handle
        {
            return locked(&self.root).resize(&mut locked(text), size);
        }
        let mut handle = locked(&self.root).open(number, Access::default())?;
        let resized = locked(&self.root).resize(&mut handle, size);
        let handle = Mutex::new(handle);
        let saved = resized.and_then(|()| self.save_handle(&handle));
        self.close_text(&handle);
        // the kernel takes the new size from an answer, but not from a refusal
        saved.inspect_err(|_| self.tell(Invalidation::Inode(Node::Text(number).ino())))
    }

    fn close_text(&self, handle: &Mutex<TextHandle>) {
        let unfinished = locked(&self.root).unfinished(&locked(handle));
        if let Some((text, shown)) = unfinished {
            let error = unfinished_text();
            warn!("{error}");
            self.keep_refused(&text, &error, shown);
        }
        // the root's lock comes before that of a handle, here as everywhere
        let shows_another = locked(&self.root).release(&mut locked(handle));
        if let Some(number) = shows_another {
            self.tell(Invalidation::Inode(Node::Text(number).ino()));
        }
    }

    /// Makes a file; see [`Vfs::create`].
    ///
    /// # Errors
    /// As there; [`Error::NotPermitted`] for anything but a regular file.
    pub fn mknod(&self, parent: u64, name: &OsStr, mode: u32, caller: Caller) -> Result<Attr> {
        if mode & TYPE_MASK != REGULAR && mode & TYPE_MASK != 0 {
            return Err(Error::NotPermitted("only regular files can be made"));
        }
        let node = self.make(parent, name, mode, caller)?;
        self.getattr(node.ino(), None)
    }

    /// Makes a file and opens it: in the root a scratch file, or `tree.yaml` anew; in `blocks/` a new last block.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Exists`], [`Error::ScratchFull`]; [`Error::NotPermitted`] elsewhere.
    pub fn create(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        caller: Caller,
        access: Access,
    ) -> Result<(Attr, Opened)> {
        let node = self.make(parent, name, mode, caller)?;
        // a tree.yaml that is closed without a write has an empty draft, that is forgotten, and shows FILE's tree
        let truncate = matches!(node, Node::Text(_));
        let opened = self.open_node(node, Access { truncate, ..access })?;
        Ok((self.getattr(node.ino(), Some(opened.fh))?, opened))
    }

    fn make(&self, parent: u64, name: &OsStr, mode: u32, caller: Caller) -> Result<Node> {
        self.check_writable()?;
        match Node::from_ino(parent).ok_or(Error::NotFound)? {
            Node::Root => {
                check_root_name(name)?;
                let facts = new_facts(mode, caller);
                let number = locked(&self.root).create(name, facts)?;
                if name == TREE_NAME {
                    self.take_facts_of_file(number)?;
                }
                Ok(Node::Text(number))
            }
            Node::Blocks => {
                let block = block_number(name).map_or(Node::Blocks, Node::Block);
                self.noted(block, self.make_block(name))
            }
            _ => Err(Error::NotPermitted(
                "files can be made in the root and in blocks only",
            )),
        }
    }

    /// Notes that a file is `tree.yaml` now: it gets FILE's owner, group and mode instead of those of the process that made it.
    fn take_facts_of_file(&self, number: Number) -> Result<()> {
        let state = self.state();
        let mut root = locked(&self.root);
        let facts = root.facts_mut(number)?;
        *facts = state.facts(&self.options, facts.mtime);
        self.tell(Invalidation::Attributes(Node::Text(number).ino()));
        Ok(())
    }

    /// There are no directories but those that the file makes.
    pub fn mkdir(&self, _parent: u64, _name: &OsStr) -> Error {
        self.check_writable()
            .err()
            .unwrap_or(Error::NotPermitted("directories follow the tree"))
    }

    /// There are no directories to remove.
    pub fn rmdir(&self, parent: u64, name: &OsStr) -> Error {
        self.mkdir(parent, name)
    }

    /// Makes a symlink in the root.
    ///
    /// # Errors
    /// As [`Vfs::create`].
    pub fn symlink(
        &self,
        parent: u64,
        name: &OsStr,
        target: &Path,
        caller: Caller,
    ) -> Result<Attr> {
        self.check_writable()?;
        if Node::from_ino(parent) != Some(Node::Root) {
            return Err(Error::NotPermitted("links can be made in the root only"));
        }
        check_root_name(name)?;
        let facts = new_facts(0o777, caller);
        let number = locked(&self.root).symlink(name, target.as_os_str(), facts)?;
        self.getattr(Node::Text(number).ino(), None)
    }

    /// Gives a file of the root another name there.
    ///
    /// # Errors
    /// As [`Vfs::create`]; what refuses the text if the name is `tree.yaml`.
    pub fn link(&self, ino: u64, parent: u64, name: &OsStr) -> Result<Attr> {
        self.check_writable()?;
        let (Some(Node::Text(number)), Some(Node::Root)) =
            (Node::from_ino(ino), Node::from_ino(parent))
        else {
            return Err(Error::NotPermitted("links can be made in the root only"));
        };
        check_root_name(name)?;
        if locked(&self.root).is_taken(name) {
            return Err(Error::Exists);
        }
        if name == TREE_NAME {
            self.save_file(number)?;
        }
        locked(&self.root).link(number, name)?;
        if name == TREE_NAME {
            self.take_facts_of_file(number)?;
        }
        self.getattr(ino, None)
    }

    /// [`Vfs::lookup`] of a thread: to a process that has just taken `tree.yaml` away, there is none.
    ///
    /// # Errors
    /// As there.
    pub fn lookup_by(&self, parent: u64, name: &OsStr, thread: u32) -> Result<Attr> {
        let in_root = Node::from_ino(parent) == Some(Node::Root);
        if in_root && locked(&self.root).is_free_to(name, || process(thread)) {
            return Err(Error::NotFound);
        }
        self.lookup(parent, name)
    }

    /// Notes that a file shows FILE's tree in the place of one that was taken away.
    fn is_filled(&self, number: Option<Number>) -> Result<()> {
        let Some(number) = number else {
            return Ok(());
        };
        let state = self.state();
        *locked(&self.root).facts_mut(number)? = state.facts(&self.options, modified(&state.meta));
        Ok(())
    }

    /// Takes a name away: of a file in the root, or the last block.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotFound`], [`Error::NotPermitted`]; [`Error::Busy`] for a block that arrays use.
    pub fn unlink(&self, parent: u64, name: &OsStr, thread: u32) -> Result<()> {
        self.check_writable()?;
        match Node::from_ino(parent).ok_or(Error::NotFound)? {
            Node::Root if ROOT_DIRECTORIES.iter().any(|entry| name == entry.0) => {
                Err(Error::IsDirectory)
            }
            Node::Root => {
                let filled = locked(&self.root).unlink(name, process(thread))?;
                self.is_filled(filled)
            }
            Node::Blocks => {
                let block = block_number(name).map_or(Node::Blocks, Node::Block);
                self.noted(block, self.remove_block(name))
            }
            _ => Err(Error::NotPermitted("arrays and info follow the tree")),
        }
    }

    /// Renames in the root. A file that gets the name `tree.yaml` is saved first; if it is refused, both names stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotFound`], [`Error::Exists`], [`Error::NotPermitted`]; what refuses the text.
    pub fn rename(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        how: Rename,
        thread: u32,
    ) -> Result<()> {
        self.check_writable()?;
        if [from.0, to.0].map(Node::from_ino) != [Some(Node::Root); 2] {
            return Err(Error::NotPermitted("only files in the root can be renamed"));
        }
        check_root_name(from.1)?;
        check_root_name(to.1)?;
        let (first, second) = {
            let root = locked(&self.root);
            (
                root.lookup(from.1).ok_or(Error::NotFound)?,
                root.lookup(to.1)
                    .filter(|_| !root.is_free_to(to.1, || process(thread))),
            )
        };
        match how {
            Rename::NoReplace if second.is_some() => return Err(Error::Exists),
            Rename::Exchange if second.is_none() => return Err(Error::NotFound),
            Rename::Exchange => locked(&self.root).check_exchange(from.1, to.1)?,
            _ => {}
        }
        let tree = if to.1 == TREE_NAME {
            Some(first)
        } else {
            second.filter(|_| how == Rename::Exchange && from.1 == TREE_NAME)
        };
        if let Some(tree) = tree {
            self.save_file(tree)
                .inspect_err(|_| locked(&self.root).end_vacancy())?;
        }
        match how {
            Rename::Exchange => locked(&self.root).exchange(from.1, to.1)?,
            Rename::Replace | Rename::NoReplace => {
                let filled = locked(&self.root).rename(from.1, to.1, process(thread))?;
                self.is_filled(filled)?;
            }
        }
        tree.map_or(Ok(()), |tree| self.take_facts_of_file(tree))
    }

    /// Saves the bytes of a file that is about to be `tree.yaml`. The committed text again is no save; in a backup that is put
    /// back it is how an editor gives up, and what was refused stays so.
    fn save_file(&self, number: Number) -> Result<()> {
        let (text, epoch, put_back) = {
            let root = locked(&self.root);
            if root.is_tree(number) {
                return Ok(());
            }
            let text = Arc::clone(root.bytes(number)?);
            let put_back = root.is_backup(number) && text == *root.committed();
            (text, root.epoch_of(number)?, put_back)
        };
        if put_back {
            return Ok(());
        }
        self.save_text(number, &text, epoch, true)
            .inspect_err(|error| match error {
                // the names stay, but what `tree.yaml` shows is FILE's tree now
                Error::Unfinished(..) => {
                    if let Some(tree) = locked(&self.root).show_current() {
                        self.tell_tree(tree);
                    }
                }
                _ => self.keep_refused(&text, error, false),
            })
    }

    /// Writes bytes; `mapped` if they come from a map, whose places are what they are even where descriptors append.
    ///
    /// # Errors
    /// [`Error::BadHandle`], [`Error::TooBig`], [`Error::ScratchFull`], [`Error::ReadOnly`], [`Error::NotPermitted`].
    pub fn write(&self, fh: u64, offset: u64, data: &[u8], mapped: bool) -> Result<u32> {
        self.check_writable()?;
        let handle = self.handles.get(fh)?;
        match &*handle {
            Handle::Text(text) => locked(&self.root).write(&mut locked(text), offset, data)?,
            Handle::Data(open) if mapped => self
                .write_data(open, Some(offset), data)
                .inspect_err(|error| self.note_lost_page(open, error))?,
            Handle::Data(open) => {
                let done = self.write_data(open, open.place(offset), data);
                self.noted(open.node, done)?;
            }
            Handle::Fixed(_) => return Err(Error::ReadOnly("info is ours")),
            Handle::Directory(..) => return Err(Error::IsDirectory),
        }
        Ok(u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// `close(2)` of one descriptor: saves what was written through the handle since the last save.
    ///
    /// A handle may be flushed many times, by processes that merely inherited it (`{ a; b; } > tree.yaml`): half a text from one
    /// of those is no fault of it, and is left for the opener's own flush. Threads of the opener are the opener.
    ///
    /// # Errors
    /// What refuses the text, or prevents the save.
    pub fn flush(&self, fh: u64, thread: u32) -> Result<()> {
        let handle = self.handles.get(fh)?;
        let (saved, opener) = match &*handle {
            Handle::Text(text) => {
                let opener = locked(text).opener();
                (self.save_handle(text), opener)
            }
            Handle::Data(open) => (self.save_data(open), open.opener()),
            Handle::Fixed(_) | Handle::Directory(..) => return Ok(()),
        };
        match saved {
            Err(Error::Library(Library::Rejected { .. }))
                if opener != 0 && is_of_another(thread, opener) =>
            {
                Ok(())
            }
            saved => saved,
        }
    }

    /// `fsync(2)`: as a flush, but a process that inherited the descriptor is told of a refusal, too.
    ///
    /// # Errors
    /// As [`Vfs::flush`].
    pub fn fsync(&self, fh: u64) -> Result<()> {
        let handle = self.handles.get(fh)?;
        match &*handle {
            Handle::Text(text) => self.save_handle(text),
            Handle::Data(open) => self.save_data(open),
            Handle::Fixed(_) | Handle::Directory(..) => Ok(()),
        }
    }

    /// Closes a handle for good. What a map wrote after the last flush is saved now; only the log and `info/status` tell of
    /// a fault.
    ///
    /// # Errors
    /// [`Error::BadHandle`].
    pub fn release(&self, fh: u64) -> Result<()> {
        let handle = self.handles.remove(fh).ok_or(Error::BadHandle)?;
        let (node, saved) = match &*handle {
            Handle::Text(text) => {
                let unsaved = locked(&self.root).text_to_save(&locked(text));
                let refused = unsaved.is_some_and(|unsaved| locked(text).has_refused(&unsaved));
                // a text that was refused already is not refused again: a better one may have been saved meanwhile
                let saved = if refused {
                    Ok(())
                } else {
                    self.save_handle(text)
                };
                self.close_text(text);
                (Node::Text(locked(text).number()), saved)
            }
            Handle::Data(open) => (open.node, self.close_data(open)),
            Handle::Fixed(_) | Handle::Directory(..) => return Ok(()),
        };
        if let Err(error) = saved {
            let path = self.path_of(node);
            warn!("{path}: closed with unsaved bytes: {error}");
        }
        Ok(())
    }

    fn save_handle(&self, handle: &Mutex<TextHandle>) -> Result<()> {
        let (text, committed) = {
            let root = locked(&self.root);
            let text = root.text_to_save(&locked(handle));
            (text, Arc::clone(root.committed()))
        };
        let Some(text) = text else { return Ok(()) };
        if let Some(error) = locked(handle).outdated_refusal(&text, &committed) {
            // a better one has been saved since, which this must not replace as what is shown
            return Err(error.clone());
        }
        let (number, epoch) = locked(handle).origin();
        match self.save_text(number, &text, epoch, false) {
            saved @ (Ok(()) | Err(Error::Unfinished(..))) => {
                locked(&self.root).saved_through(&mut locked(handle), &text);
                saved
            }
            Err(error) => {
                self.keep_refused(&text, &error, true);
                locked(handle).note_refused(text, error.clone(), committed);
                Err(error)
            }
        }
    }

    /// Makes room in an open file, `fallocate(2)`.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for holes and the like; as [`Vfs::write`].
    pub fn fallocate(&self, fh: u64, offset: u64, len: u64, mode: i32) -> Result<()> {
        self.check_writable()?;
        let end = offset
            .checked_add(len)
            .ok_or(Error::TooBig("beyond 2^64"))?;
        if mode == KEEP_SIZE {
            return Ok(());
        }
        if mode != 0 {
            return Err(Error::NotSupported("only making a file longer"));
        }
        let handle = self.handles.get(fh)?;
        match &*handle {
            Handle::Text(text) => {
                let mut root = locked(&self.root);
                let mut text = locked(text);
                let now = len_u64(root.view(&text)?.len());
                if end > now {
                    root.resize(&mut text, end)
                } else {
                    Ok(())
                }
            }
            Handle::Data(open) => self.noted(open.node, self.extend_data(open, end)),
            Handle::Fixed(_) => Err(Error::ReadOnly("info is ours")),
            Handle::Directory(..) => Err(Error::IsDirectory),
        }
    }
}

/// Why a text in which no document has begun is refused.
fn unfinished_text() -> Error {
    Error::Library(Library::Rejected {
        at: Place::File,
        why: "no tree begins in the text: it has no line that begins with ---".to_owned(),
        advice: "write all of it, from the #ASDF line on".to_owned(),
    })
}

/// The process of a thread, or whatever tells it from others.
fn process(thread: u32) -> u32 {
    process_of(thread).unwrap_or(thread)
}

/// Of a new file: it is its maker's, who may want to change owner and mode next.
fn new_facts(mode: u32, caller: Caller) -> FileFacts {
    FileFacts {
        perm: u16::try_from(mode & 0o777).unwrap_or(0),
        uid: caller.uid,
        gid: caller.gid,
        mtime: SystemTime::now(),
    }
}

/// Whether a thread is known to be of another process than `process`.
fn is_of_another(thread: u32, process: u32) -> bool {
    thread != process && process_of(thread).is_some_and(|found| found != process)
}

/// The names of our directories are not for files, and a name has a limit.
fn check_root_name(name: &OsStr) -> Result<()> {
    check_name(name)?;
    if ROOT_DIRECTORIES.iter().any(|entry| name == entry.0) {
        return Err(Error::NotPermitted("arrays, blocks and info are ours"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
