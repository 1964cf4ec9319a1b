//! Scratch files by the directories and names of one member.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{Directory, Role, ScratchFile, is_made_by_editor, is_temporary_data};
use crate::asdf::names::SUFFIXES;
use crate::vfs::error::check_name;
use crate::vfs::{Attr, Error, FileFacts, Node, Result, TREE_NAME, Vfs};

impl Vfs {
    /// The file of a node that is one.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(in crate::vfs) fn file_of(&self, node: Node) -> Result<Arc<ScratchFile>> {
        match (self.tree.file(node), node) {
            (Some(file), _) => Ok(file),
            (None, Node::Scratch(number)) => self.options.scratch.file(number),
            // one that was `tree.yaml` before FILE was closed
            _ => self.options.scratch.named(self.member, node),
        }
    }

    /// The attributes of a scratch file, or of `tree.yaml`, which has FILE's owner and mode.
    pub(in crate::vfs) fn attr_of(&self, file: &ScratchFile) -> Attr {
        let mut attr = file.attr();
        if file.role() == Role::Tree {
            let of_file = FileFacts::of(&self.shown.now().stat, &self.options);
            (attr.perm, attr.uid, attr.gid) = (of_file.perm, of_file.uid, of_file.gid);
        }
        if self.is_read_only() {
            // no name changes
            attr.entry_valid = attr.attr_valid;
        }
        attr
    }

    /// The root, as the table of scratch files knows it.
    pub(in crate::vfs) fn root(&self) -> Directory {
        Directory::root(self.member)
    }

    /// A directory, as the table of scratch files knows it; `None` if it never has any.
    pub(in crate::vfs) fn place(&self, directory: Node) -> Option<Directory> {
        let path = match directory {
            Node::Root => String::new(),
            Node::Blocks => "blocks".to_owned(),
            Node::ArrayDir(_) => self.shown.now().catalogue().path(directory)?,
            _ => return None,
        };
        let member = self.member;
        Some(Directory { member, path })
    }

    /// The file of a name in the root.
    pub(in crate::vfs) fn file_in_root(&self, name: &OsStr) -> Option<Arc<ScratchFile>> {
        if name == TREE_NAME {
            return self.tree.current();
        }
        self.options.scratch.lookup(&self.root(), name)
    }

    /// The scratch file of a name in a directory.
    pub(in crate::vfs) fn file_beside(&self, directory: Node, name: &OsStr) -> Option<Node> {
        let place = self.place_if_any(directory)?;
        let file = self.options.scratch.lookup(&place, name);
        file.map(|file| file.node)
    }

    /// The names of scratch files in a directory.
    pub(in crate::vfs) fn names_beside(&self, directory: Node) -> Vec<OsString> {
        let place = self.place_if_any(directory);
        place.map_or_else(Vec::new, |place| self.options.scratch.names(&place))
    }

    /// The names of files of arrays that are gone from a directory.
    pub(in crate::vfs) fn hidden(&self, directory: Node) -> HashSet<OsString> {
        let place = self.place_if_any(directory);
        place.map_or_else(HashSet::new, |place| self.options.scratch.hidden(&place))
    }

    /// Makes the name of an array's file again. Whether it was gone.
    pub(in crate::vfs) fn unhide(&self, directory: Node, name: &OsStr) -> bool {
        let place = self.place_if_any(directory);
        place.is_some_and(|place| self.options.scratch.unhide(&place, name))
    }

    /// The directory, if there is anything in the table at all: its path takes a while to find.
    fn place_if_any(&self, directory: Node) -> Option<Directory> {
        let any = !self.options.scratch.is_empty();
        any.then(|| self.place(directory)).flatten()
    }

    /// The path of a scratch file, or of `tree.yaml`.
    pub(in crate::vfs) fn path_of_scratch(&self, node: Node) -> Option<String> {
        let file = self.file_of(node).ok()?;
        let is_tree = self.tree.current().is_some_and(|tree| tree.node == node);
        if is_tree {
            return Some(TREE_NAME.to_owned());
        }
        let (directory, name) = self.options.scratch.name_of(&file)?;
        Some(directory.path_of(&name))
    }

    /// Checks that a file of that name may be made in a directory of blocks or arrays: tools make such names, or it is named after a file
    /// there, as `x.npy.part`, `x.new.npy` and `x_tmp.npy` are after `x.npy`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::NameTooLong`].
    pub(in crate::vfs) fn check_beside(&self, directory: Node, name: &OsStr) -> Result<()> {
        check_name(name)?;
        let state = self.shown.now();
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
        let why = if directory == Node::Blocks {
            "a new block must have the next number, as 3.bin after 2.bin; any other new name must be hidden, end in .tmp, or be named \
             after a block, as 0.bin.new is"
        } else {
            "arrays follow the tree: to add one, add it to tree.yaml; any other new name must be hidden, end in .tmp, or be named after \
             an array, as x.new.npy is after x.npy"
        };
        Err(Error::NotPermitted(why))
    }
}
