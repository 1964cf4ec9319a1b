//! Renames and links. Some save a text, a block or an array, in one step with the name.

use std::ffi::OsStr;
use std::sync::Arc;

use super::block_write::import_file;
use super::node::Node;
use super::scratch::{Role, ScratchFile};
use super::stat::attr_of;
use super::write::check_root_name;
use super::{Attr, Error, FileKind, Rename, Result, TREE_NAME, Vfs};

impl Vfs {
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
}
