//! Renames and links. Some save a text, a block or an array, in one step with the name.

use std::ffi::OsStr;
use std::sync::Arc;

use super::edit::block_of;
use super::node::Node;
use super::process::process;
use super::texts::{TREE_NAME, Texts};
use super::write::{check_root_name, copy};
use super::{Access, Attr, Error, Open, Rename, Result, Vfs, locked};
use crate::source::{Memory, Source};

impl Vfs {
    /// Gives a file of the root another name there.
    ///
    /// # Errors
    /// As [`Vfs::create`]; what refuses the text if the name is `tree.yaml`.
    pub fn link(&self, file: Node, parent: Node, name: &OsStr) -> Result<Attr> {
        self.open_for_writing()?;
        let (Node::Text(number), Node::Root) = (file, parent) else {
            return Err(Error::NotPermitted("links can be made in the root only"));
        };
        check_root_name(name)?;
        if locked(&self.texts).is_taken(name) {
            return Err(Error::Exists);
        }
        if name == TREE_NAME {
            self.become_tree(number, |texts| texts.link(number, name))?;
        } else {
            locked(&self.texts).link(number, name)?;
        }
        self.attr(&self.state(), file)
    }

    /// Renames in the root. A file that gets the name `tree.yaml` is saved first; if it is refused, both names stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotFound`], [`Error::Exists`], [`Error::NotPermitted`]; what refuses the text.
    pub fn rename(
        &self,
        from: (Node, &OsStr),
        to: (Node, &OsStr),
        how: Rename,
        thread: u32,
    ) -> Result<()> {
        self.open_for_writing()?;
        if to.0 != Node::Root {
            return self.rename_beside(from, to, how, thread);
        }
        if from.0 != Node::Root {
            return Err(Error::NotPermitted(
                "only files in the root can be renamed to it",
            ));
        }
        check_root_name(from.1)?;
        check_root_name(to.1)?;
        let (first, second) = {
            let texts = locked(&self.texts);
            (
                texts.lookup(from.1).ok_or(Error::NotFound)?,
                texts
                    .lookup(to.1)
                    .filter(|_| !texts.is_free_to(to.1, || process(thread))),
            )
        };
        match how {
            Rename::NoReplace if second.is_some() => return Err(Error::Exists),
            Rename::Exchange if second.is_none() => return Err(Error::NotFound),
            Rename::Exchange => locked(&self.texts).check_exchange(from.1, to.1)?,
            _ => {}
        }
        let tree = if to.1 == TREE_NAME {
            Some(first)
        } else {
            second.filter(|_| how == Rename::Exchange && from.1 == TREE_NAME)
        };
        let name = |texts: &mut Texts| match how {
            Rename::Exchange => texts.exchange(from.1, to.1),
            Rename::Replace | Rename::NoReplace => texts.rename(from.1, to.1, process(thread)),
        };
        match tree {
            Some(tree) => self
                .become_tree(tree, name)
                .inspect_err(|_| locked(&self.texts).end_vacancy()),
            None => name(&mut locked(&self.texts)),
        }
    }

    /// Renames into the directories of blocks and arrays: over the file of one, which gets the bytes and is saved, or to another name
    /// beside them.
    fn rename_beside(
        &self,
        from: (Node, &OsStr),
        to: (Node, &OsStr),
        how: Rename,
        thread: u32,
    ) -> Result<()> {
        let state = self.state();
        let file = self.find(&state, from.0, from.1)?;
        let taken = self.find(&state, to.0, to.1).ok();
        let there = taken.filter(|node| self.attr(&state, *node).is_ok());
        match how {
            Rename::Exchange => return Err(Error::NotPermitted("files of data are not exchanged")),
            Rename::NoReplace
                if there.is_some()
                    && !locked(&self.beside).is_free_to(to.0, to.1, || process(thread)) =>
            {
                return Err(Error::Exists);
            }
            Rename::Replace | Rename::NoReplace => {}
        }
        if !self.is_scratch(file) {
            return Err(Error::NotPermitted("blocks and arrays keep their names"));
        }
        match (taken, file) {
            (Some(node @ (Node::Block(_) | Node::Array(..))), _) => {
                if there.is_none() {
                    self.make_block(to.1)?;
                }
                self.noted(node, self.take_over(node, file, thread))?;
                locked(&self.beside).end_vacancy(to.0, to.1);
            }
            (Some(Node::Beside(_)) | None, Node::Beside(_))
                if matches!(to.0, Node::Blocks | Node::ArrayDir(_)) =>
            {
                self.check_beside(to.0, to.1)?;
                return locked(&self.beside).rename(from, to);
            }
            _ => {
                return Err(Error::NotPermitted(
                    "only a block or array can be replaced here",
                ));
            }
        }
        match file {
            Node::Beside(_) => locked(&self.beside).unlink(from.0, from.1),
            _ => locked(&self.texts).unlink(from.1, process(thread)),
        }
    }

    /// Whether it is a file that a user or tool has made.
    fn is_scratch(&self, file: Node) -> bool {
        match file {
            Node::Beside(_) => true,
            Node::Text(number) => !locked(&self.texts).is_tree(number),
            _ => false,
        }
    }

    /// Gives a block or array the bytes of a file. The file can't be written to after that.
    fn take_over(&self, node: Node, file: Node, thread: u32) -> Result<()> {
        self.set_taken(file, true)?;
        let bytes: Arc<dyn Source> = match file {
            Node::Beside(number) => locked(&self.beside).file(number)?.bytes.clone(),
            Node::Text(number) => {
                let bytes = Arc::clone(locked(&self.texts).bytes(number)?);
                Arc::new(Memory::shared(bytes))
            }
            _ => return Err(Error::NotFound),
        };
        let replaced = self.replace_data(node, &*bytes, thread);
        replaced.or_else(|error| self.set_taken(file, false).and(Err(error)))
    }

    /// Notes whether a block or array has got the bytes of a file, or is getting them: then the file can't be written to.
    fn set_taken(&self, file: Node, taken: bool) -> Result<()> {
        match file {
            Node::Beside(number) => {
                let file = locked(&self.beside).file(number)?;
                file.set_taken(taken);
                Ok(())
            }
            Node::Text(number) => locked(&self.texts).set_taken(number, taken),
            _ => Err(Error::NotFound),
        }
    }

    /// Writes all of a block or array anew, and saves it.
    fn replace_data(&self, node: Node, bytes: &dyn Source, thread: u32) -> Result<()> {
        if bytes.is_empty() && !matches!(node, Node::Block(_)) {
            return Err(Error::NotPermitted("an empty file is no array"));
        }
        let block = block_of(&self.state(), node);
        if let Some(block) = block {
            self.check_room_for(block, bytes.len())?;
            let draft = self.edits.get(block);
            if draft.is_some_and(|draft| draft.is_touched()) || self.edits.is_rewritten(node) {
                return Err(Error::Busy("its block is being edited"));
            }
        }
        let access = Access {
            write: true,
            truncate: matches!(node, Node::Array(..)),
            pid: thread,
        };
        let handle = self.open_node(&self.state(), node, access)?.handle;
        let replaced = match (node, block) {
            (Node::Block(_), Some(block)) => self.replace_block(node, block, bytes),
            _ => copy(bytes, |at, chunk| {
                self.write(&handle, at, chunk, false).map(drop)
            })
            .and_then(|()| self.fsync(&handle)),
        };
        if let (Err(_), Open::Data(open)) = (&replaced, &handle.open) {
            // nothing is lost: the file that was to be renamed keeps its bytes and its name
            open.rewriting.forget();
        }
        self.release(&handle);
        replaced
    }

    /// Writes all of a block anew, and saves it. No other thread changes the block meanwhile.
    fn replace_block(&self, node: Node, block: usize, bytes: &dyn Source) -> Result<()> {
        self.alone(block, |draft, saved| {
            if draft.is_touched() {
                return Err(Error::Busy("it is being edited"));
            }
            draft.overlay.resize(0);
            let copied = copy(bytes, |at, chunk| Ok(draft.overlay.write(at, chunk)?));
            draft.touch(node);
            let saved_now = copied.and_then(|()| self.save_held(draft, saved));
            if saved_now.is_err() && !**saved {
                // no other handle has written into the draft, and the file that was to be renamed keeps its bytes and its name
                self.end_draft(draft, saved, None);
            }
            saved_now
        })
    }

    /// Saves the bytes of a file, and runs `named`, which gives it the name `tree.yaml`, before any other save: that of the file which had
    /// the name must not come between.
    fn become_tree(&self, number: u32, named: impl FnOnce(&mut Texts) -> Result<()>) -> Result<()> {
        let mut texts = locked(&self.texts);
        match texts.begin_becoming(number)? {
            None => named(&mut texts)?,
            Some(unsaved) => {
                drop(texts);
                self.save_text(&unsaved, named)?;
            }
        }
        Ok(())
    }
}
