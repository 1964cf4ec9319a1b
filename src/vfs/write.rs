//! Operations that change bytes, and make, change and remove names. This module decides when a change is saved; `tree_save`, `block_write` and
//! `import` do it.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use log::warn;

use super::attr::WRITE;
use super::block_write::import_file;
use super::blocks::GIVEN_UP;
use super::data::DataHandle;
use super::error::check_name;
use super::node::Node;
use super::scratch::{Role, ScratchFile};
use super::stat::attr_of;
use super::tree_save::is_rejected;
use super::{
    Access, Attr, Attributes, Error, FileFacts, FileKind, Handle, Open, Opened, ROOT_DIRECTORIES,
    Rename, Result, TREE_NAME, Vfs, block_number, block_write, index, locked,
};
use crate::save::processes::{is_of_another, process_of};
use crate::source::Source;

/// `fallocate(2)`: do not change the size.
const KEEP_SIZE: i32 = 1;
/// `stat(2)`: the type of a file in its mode, and that of a regular one.
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

impl Vfs {
    /// Changes attributes. A new size is a change of the bytes.
    ///
    /// Owner and mode of the root, `tree.yaml`, blocks and arrays are FILE's, and so are changed there; those of other files stay. Scratch
    /// files have an owner and mode of their own. A time is kept for scratch files, and for `tree.yaml` while a text is being written. For
    /// other files it is ignored: `cp -p`, `rsync -a` and `tar` would complain about an error.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotPermitted`], [`Error::NotFound`], those of writing, and of [`Saves::set_facts`](super::Saves::set_facts).
    pub fn setattr(
        &self,
        node: Node,
        handle: Option<&Handle>,
        changes: &Attributes,
    ) -> Result<Attr> {
        self.saves.open_for_writing()?;
        let open = handle.map(|handle| &handle.open);
        if matches!(node, Node::Tree(_) | Node::Scratch(_)) {
            return self.set_scratch(node, open, changes);
        }
        self.saves
            .set_facts(&self.attr(&self.shown.now(), node)?, changes)?;
        if let Some(size) = changes.size {
            match node {
                Node::Block(_) | Node::Array(..) => {
                    let open = match open {
                        Some(Open::Data(open)) => Some(open),
                        _ => None,
                    };
                    self.saves
                        .noted(node, block_write::resize(&self.saves, node, open, size))?;
                }
                _ => return Err(Error::NotPermitted("this file is not yours to change")),
            }
        }
        // the kernel forgets the pages of this inode itself, and takes the size from this answer
        self.attr(&self.shown.now(), node)
    }

    /// Changes attributes of a scratch file, or of `tree.yaml`. A new length that does not come through a descriptor is saved at once.
    fn set_scratch(&self, node: Node, open: Option<&Open>, changes: &Attributes) -> Result<Attr> {
        let file = self.file_of(node)?;
        if file.role() == Role::Tree {
            self.saves
                .set_facts(&attr_of(&self.saves, &file), changes)?;
        }
        match (changes.size, open) {
            (None, _) => {}
            (Some(size), Some(_)) => file.resize(size, self.tree.epoch())?,
            (Some(size), None) => {
                // truncate(2) by name is an open, a change and a close, as for any program
                file.open(WRITE, self.tree.epoch())?;
                let resized = file.resize(size, self.tree.epoch());
                let save = |()| self.tree.save_file(&self.saves, &file, false);
                let saved = resized.and_then(save);
                self.tree.close(&self.saves, &file, true);
                saved?;
            }
        }
        file.set(changes);
        Ok(attr_of(&self.saves, &file))
    }

    /// Makes a file; see [`Vfs::create`].
    ///
    /// # Errors
    /// As there; [`Error::NotPermitted`] for anything but a regular file, and for a new block.
    pub fn mknod(&self, parent: Node, name: &OsStr, mode: u32, facts: FileFacts) -> Result<Attr> {
        // mknod(2) takes a type of 0 for a regular file
        if mode & TYPE_MASK != REGULAR && mode & TYPE_MASK != 0 {
            return Err(Error::NotPermitted("only regular files can be made"));
        }
        let node = self.make(parent, name, facts)?;
        match (node, self.attr(&self.shown.now(), node)) {
            (Node::Block(_), Err(Error::NotFound)) => Err(Error::NotPermitted(
                "open(2) makes a new block, mknod(2) none",
            )),
            (_, attr) => attr,
        }
    }

    /// Makes a file and opens it: in the root a scratch file, or `tree.yaml` anew; in `blocks/` a new last block; there and beside
    /// arrays a file that a tool makes to rename it over another one.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Exists`], [`Error::MadeMeanwhile`]; [`NoRoom`](crate::error::Error::NoRoom) beyond the limit of
    /// scratch files; [`Error::NotPermitted`] elsewhere.
    pub fn create(
        &self,
        parent: Node,
        name: &OsStr,
        facts: FileFacts,
        access: Access,
    ) -> Result<(Attr, Opened)> {
        let node = self
            .make(parent, name, facts)
            .map_err(|error| match error {
                // the kernel then looks the name up again, and opens the file if the user may
                Error::Exists if !access.exclusive => Error::MadeMeanwhile,
                error => error,
            })?;
        let blocks = self.shown.now().snapshot.layout().blocks.len();
        let is_new = matches!(node, Node::Block(n) if index(n) >= blocks);
        let opened = if is_new {
            let made = DataHandle::make_block(&self.saves, node);
            let (made, _) = self.saves.noted(node, made)?;
            Opened {
                handle: Handle {
                    opener: process_of(access.pid).unwrap_or(0),
                    open: Open::Data(made),
                },
                keep_cache: false,
                direct: false,
            }
        } else {
            // one that was taken away is written anew; if it is closed without a write, it shows FILE's bytes
            let truncate = true;
            self.open_node(&self.shown.now(), node, Access { truncate, ..access })?
        };
        let attr = self.attr(&self.shown.now(), node);
        let attr = attr.inspect_err(|_| self.release(&opened.handle))?;
        Ok((attr, opened))
    }

    /// Makes a file and gives its node. If the name was removed a moment ago, it leads to the same block, array or `tree.yaml` again. Why a
    /// file can't be made beside blocks and arrays is noted, as the process gets an errno alone.
    fn make(&self, parent: Node, name: &OsStr, facts: FileFacts) -> Result<Node> {
        self.saves.open_for_writing()?;
        let (state, is_back) = (self.shown.now(), self.scratch.unhide(parent, name));
        match (parent, self.find(&state, parent, name).ok()) {
            // mv from another file system removes the name first: the file that it makes then is the one of FILE again
            (_, Some(node)) if is_back && self.attr(&state, node).is_ok() => return Ok(node),
            (Node::Blocks, Some(block @ Node::Block(n)))
                if index(n) >= state.snapshot.layout().blocks.len() =>
            {
                return self.saves.noted(block, state.new_block(name));
            }
            (Node::Root | Node::Blocks | Node::ArrayDir(_), Some(_)) => return Err(Error::Exists),
            (Node::Root, None) => check_root_name(name)?,
            (Node::Blocks | Node::ArrayDir(_), None) => {
                self.check_beside(parent, name).inspect_err(|error| {
                    let why = format!("{}: {error}", self.path_to(Some(parent), Some(name)));
                    locked(&self.saves.news).refuse(None, None, why);
                })?;
            }
            _ => {
                return Err(Error::NotPermitted(
                    "files can be made in the root and beside blocks and arrays only",
                ));
            }
        }
        let epoch = self.tree.epoch();
        self.scratch.create(parent, name, None, facts, epoch)
    }

    /// The error for a request to make or remove a directory.
    pub fn make_directory(&self) -> Error {
        self.saves
            .open_for_writing()
            .err()
            .unwrap_or(Error::NotPermitted("directories follow the tree"))
    }

    /// Makes a symlink in the root.
    ///
    /// # Errors
    /// As [`Vfs::create`].
    pub fn symlink(
        &self,
        parent: Node,
        name: &OsStr,
        target: &Path,
        facts: FileFacts,
    ) -> Result<Attr> {
        self.saves.open_for_writing()?;
        if parent != Node::Root {
            return Err(Error::NotPermitted("links can be made in the root only"));
        }
        check_root_name(name)?;
        if name == TREE_NAME {
            return Err(Error::NotPermitted("tree.yaml can't be a symlink"));
        }
        let (target, epoch) = (Some(target.as_os_str()), self.tree.epoch());
        let node = self.scratch.create(parent, name, target, facts, epoch)?;
        self.attr(&self.shown.now(), node)
    }

    /// Takes a name away: of a scratch file or the last block, or of `tree.yaml`, an array or another block for a while.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotFound`], [`Error::NotPermitted`]; [`Error::InUse`] for a block that is being written.
    pub fn unlink(&self, parent: Node, name: &OsStr) -> Result<()> {
        self.saves.open_for_writing()?;
        // scratch files first: they have the names that programs gave them, unless a save has given one to an array since
        let found = self.find(&self.shown.now(), parent, name);
        let is_scratch = matches!(found, Ok(Node::Tree(_) | Node::Scratch(_)));
        let place = self.scratch.place(parent);
        if is_scratch && place.is_ok_and(|place| self.scratch.take(&place, name).is_ok()) {
            return Ok(());
        }
        match parent {
            Node::Root if ROOT_DIRECTORIES.iter().any(|entry| name == entry.0) => {
                Err(Error::IsDirectory)
            }
            Node::Root if name == TREE_NAME => self.tree.remove(&self.scratch),
            Node::Root => Err(Error::NotFound),
            Node::ArrayDir(_) => match self.find(&self.shown.now(), parent, name)? {
                Node::Array(..) => self.scratch.hide(parent, name),
                _ => Err(Error::NotPermitted("arrays follow the tree")),
            },
            Node::Blocks => {
                let block = block_number(name).map_or(Node::Blocks, Node::Block);
                let removed = self.saves.remove_block(&self.scratch, name);
                self.saves.noted(block, removed)
            }
            _ => Err(Error::ReadOnly("this directory follows FILE")),
        }
    }

    /// Gives a file of the root another name there.
    ///
    /// # Errors
    /// As [`Vfs::create`]; what refuses the text if the name is `tree.yaml`.
    pub fn link(&self, file: Node, parent: Node, name: &OsStr) -> Result<Attr> {
        self.saves.open_for_writing()?;
        let is_file = matches!(file, Node::Tree(_) | Node::Scratch(_));
        if !is_file || parent != Node::Root {
            return Err(Error::NotPermitted("links can be made in the root only"));
        }
        check_root_name(name)?;
        let file = self.file_of(file)?;
        if self.file_in_root(name).is_some() {
            return Err(Error::Exists);
        }
        // linkat(2) of a file that is open but has no name would bring it back
        if file.attr().nlink == 0 {
            return Err(Error::NotFound);
        }
        if name == TREE_NAME {
            self.become_tree(&file, || Ok(()))?;
        } else {
            // by this name it can outlive what it is as tree.yaml
            file.move_into(self.scratch.scratch.room())?;
            self.scratch.give(name, &file)?;
        }
        Ok(attr_of(&self.saves, &file))
    }

    /// Renames. A file that gets the name `tree.yaml`, or that of a block or array, is saved first; if it is refused, both names stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotFound`], [`Error::Exists`], [`Error::NotPermitted`]; what refuses the text.
    pub fn rename(&self, from: (Node, &OsStr), to: (Node, &OsStr), how: Rename) -> Result<()> {
        self.saves.open_for_writing()?;
        match (from.0, to.0) {
            (Node::Root, Node::Root) => self.rename_in_root(from.1, to.1, how),
            (_, Node::Root) => Err(Error::NotPermitted(
                "only files in the root can be renamed to it",
            )),
            _ => self.rename_beside(from, to, how),
        }
    }

    fn rename_in_root(&self, from: &OsStr, to: &OsStr, how: Rename) -> Result<()> {
        check_root_name(from)?;
        check_root_name(to)?;
        // an exchange is the same from both sides
        let (from, to) = if how == Rename::Exchange && from == TREE_NAME {
            (to, from)
        } else {
            (from, to)
        };
        let first = self.file_in_root(from).ok_or(Error::NotFound)?;
        let second = self.file_in_root(to);
        match (how, &second) {
            (Rename::NoReplace, Some(_)) => return Err(Error::Exists),
            (Rename::Exchange, None) => return Err(Error::NotFound),
            // rename(2): two names of one file stay both
            (_, Some(second)) if Arc::ptr_eq(&first, second) => return Ok(()),
            _ => {}
        }
        match (from == TREE_NAME, to == TREE_NAME, second) {
            (false, true, Some(tree)) if how == Rename::Exchange => {
                // after the save, the exchange must not fail
                tree.move_into(self.scratch.scratch.room())?;
                self.become_tree(&first, || self.scratch.give(from, &tree))
            }
            (false, true, _) => {
                let root = self.scratch.place(Node::Root)?;
                self.become_tree(&first, || self.scratch.take(&root, from))
            }
            (true, _, _) => {
                // the bytes of tree.yaml count for no limit; under another name they do
                first.move_into(self.scratch.scratch.room())?;
                self.scratch.give(to, &first)?;
                self.tree.remove(&self.scratch)
            }
            (false, false, _) if how == Rename::Exchange => self.scratch.exchange(from, to),
            (false, false, _) => self.scratch.rename((Node::Root, from), (Node::Root, to)),
        }
    }

    /// Renames into the directories of blocks and arrays: over the file of one, which gets the bytes and is saved, or to another name
    /// beside them.
    fn rename_beside(&self, from: (Node, &OsStr), to: (Node, &OsStr), how: Rename) -> Result<()> {
        let state = self.shown.now();
        let node = self.find(&state, from.0, from.1)?;
        let taken = self.find(&state, to.0, to.1).ok();
        let there = taken.filter(|node| self.attr(&state, *node).is_ok());
        match how {
            Rename::Exchange => {
                return Err(Error::NotPermitted("blocks and arrays can't be exchanged"));
            }
            Rename::NoReplace if there.is_some() && !self.scratch.hidden(to.0).contains(to.1) => {
                return Err(Error::Exists);
            }
            Rename::Replace | Rename::NoReplace => {}
        }
        let file = self.file_of(node).ok();
        let Some(file) = file.filter(|file| file.role() != Role::Tree) else {
            return Err(Error::NotPermitted("blocks and arrays keep their names"));
        };
        // asked before a save, which must not fail for it
        let place = self.scratch.place(from.0)?;
        match taken {
            Some(node @ (Node::Block(_) | Node::Array(..))) => {
                if file.attr().kind == FileKind::Symlink {
                    return Err(Error::Invalid("a symlink has no bytes"));
                }
                if there.is_none() {
                    state.new_block(to.1)?;
                }
                self.saves
                    .noted(node, file.check_whole().map_err(Into::into))?;
                // set before the bytes are read: a descriptor that writes on would change what is being saved
                let before = file.role();
                file.set_role(Role::Taken);
                let imported = import_file(&self.saves, node, file.source());
                let imported = imported.inspect_err(|_| file.set_role(before));
                self.saves.noted(node, imported)?;
                // a name that was removed a moment ago is made again by this rename
                self.scratch.unhide(to.0, to.1);
                self.scratch.take(&place, from.1)
            }
            Some(Node::Scratch(_)) | None
                if from.0 != Node::Root && matches!(to.0, Node::Blocks | Node::ArrayDir(_)) =>
            {
                self.check_beside(to.0, to.1)?;
                self.scratch.rename(from, to)
            }
            _ => Err(Error::NotPermitted(
                "only a block or array can be replaced here",
            )),
        }
    }

    /// Saves the bytes of a file, gives it the name `tree.yaml`, and takes its old name away by `renamed`, before any other save: that of the
    /// file which had the name must not come between. A backup of FILE's text that is put back is no save, so a text that was refused stays refused.
    fn become_tree(
        &self,
        file: &Arc<ScratchFile>,
        renamed: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let unsaved = file.becoming()?;
        let named = || {
            self.tree.give(file);
            // it is there again, if it was removed a moment ago
            self.scratch.unhide(Node::Root, TREE_NAME.as_ref());
            renamed()
        };
        if !file.is_dirty() && self.tree.is_committed(&unsaved.text) {
            return named();
        }
        self.tree.save(&self.saves, &unsaved, false, named)
    }

    /// Writes bytes, at the end of the file if no offset is given. `mapped`: whether they come from a map.
    ///
    /// # Errors
    /// [`Error::TooBig`], [`Error::ReadOnly`], [`Error::NotPermitted`]; [`NoRoom`](crate::error::Error::NoRoom) beyond the limit of
    /// scratch files.
    pub fn write(
        &self,
        handle: &Handle,
        offset: impl Into<Option<u64>>,
        data: &[u8],
        mapped: bool,
    ) -> Result<u32> {
        self.saves.open_for_writing()?;
        match &handle.open {
            Open::Scratch(file, _) => file.write(offset, data, mapped)?,
            Open::Data(open) => {
                let done = open.write(&self.saves, offset.into(), data, mapped);
                if mapped {
                    // the process that has written into the map gets no error
                    if let (Err(why), Ok(written)) = (&done, open.writes()) {
                        let saves = &self.saves;
                        saves.note_loss(written.block, open.node, why, GIVEN_UP);
                    }
                    done?;
                } else {
                    self.saves.noted(open.node, done)?;
                }
            }
            Open::Fixed(_) => return Err(Error::ReadOnly("info/ describes the mount")),
            Open::Directory(..) => return Err(Error::IsDirectory),
        }
        Ok(u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// `close(2)` of one descriptor: saves what was written to the file since the last save, through this or another descriptor.
    ///
    /// A handle may be flushed many times, also by processes that inherited it (`{ a; b; } > tree.yaml`). Such a process may leave half a
    /// text: that is no error, and the text waits for the flush of the process that opened the handle. A refused text is tried again only
    /// for the process that opened the handle: one that it has forked may close its descriptors at any later time.
    ///
    /// # Errors
    /// What refuses the text, or prevents the save.
    pub fn flush(&self, handle: &Handle, thread: u32) -> Result<()> {
        let opener = handle.opener;
        let inherited = opener != 0 && is_of_another(thread, opener);
        let saved = match &handle.open {
            Open::Scratch(file, true) => self.tree.save_file(&self.saves, file, inherited),
            // each program that the opener starts closes a copy of the descriptor: the block is not summed up for these
            Open::Data(open) => open.save(&self.saves, !inherited),
            _ => Ok(()),
        };
        // the shell's child gets no error for half a text; the opener's own close says it
        if inherited && is_rejected(&saved) {
            return Ok(());
        }
        saved
    }

    /// `fsync(2)`: as a flush, but a process that inherited the descriptor gets the error of a refusal, too.
    ///
    /// # Errors
    /// As [`Vfs::flush`].
    pub fn fsync(&self, handle: &Handle) -> Result<()> {
        match &handle.open {
            Open::Scratch(file, true) => self.tree.save_file(&self.saves, file, false),
            Open::Data(open) => open.save(&self.saves, false),
            Open::Scratch(..) | Open::Fixed(_) | Open::Directory(..) => Ok(()),
        }
    }

    /// Closes a handle for good, and saves what a map wrote after the last flush. Only the log and `info/status` tell of an error.
    pub fn release(&self, handle: &Handle) {
        let (node, saved) = match &handle.open {
            Open::Scratch(file, writes) => {
                // a refused text is not tried again: a better one may have been saved meanwhile
                let saved = match file.refusal() {
                    None => self.fsync(handle),
                    Some(_) => Ok(()),
                };
                self.tree.close(&self.saves, file, *writes);
                (file.node, saved)
            }
            Open::Data(open) => (open.node, open.close(&self.saves)),
            Open::Fixed(_) | Open::Directory(..) => return,
        };
        if let Err(error) = saved {
            let path = self.path_to(Some(node), None);
            let file = self.saves.path.display();
            warn!("{file}: {path}: closed with unsaved bytes: {error}");
        }
    }

    /// Makes room in an open file, `fallocate(2)`.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for holes and the like; as [`Vfs::write`].
    pub fn fallocate(&self, handle: &Handle, offset: u64, len: u64, mode: i32) -> Result<()> {
        self.saves.open_for_writing()?;
        let end = offset
            .checked_add(len)
            .ok_or(Error::TooBig("beyond 2^64"))?;
        // room is found when the bytes are saved, and the call promises no more on a file system without delayed room
        if mode == KEEP_SIZE {
            return Ok(());
        }
        if mode != 0 {
            return Err(Error::NotSupported("only making a file longer"));
        }
        match &handle.open {
            Open::Scratch(file, _) if file.len() >= end => Ok(()),
            Open::Scratch(file, _) => file.resize(end, self.tree.epoch()),
            Open::Data(open) => self.saves.noted(open.node, open.extend(&self.saves, end)),
            Open::Fixed(_) => Err(Error::ReadOnly("info/ describes the mount")),
            Open::Directory(..) => Err(Error::IsDirectory),
        }
    }
}

/// Checks that a file of the root may have a name: not that of a directory of the mount, and not too long.
fn check_root_name(name: &OsStr) -> Result<()> {
    check_name(name)?;
    if ROOT_DIRECTORIES.iter().any(|entry| name == entry.0) {
        return Err(Error::NotPermitted(
            "the directories of the mount keep their names",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
