//! The scratch files of one member, by its directories and their names.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

use super::{Directory, MAX_FILES, Named, Scratch, ScratchFile, Table};
use crate::error::Error as Library;
use crate::vfs::attr::FileKind;
use crate::vfs::node::NUMBERS;
use crate::vfs::state::Shown;
use crate::vfs::{Error, FileFacts, Node, Result, locked};

/// The scratch files of one member, and the names of `tree.yaml`, blocks and arrays that are gone.
pub(in crate::vfs) struct MemberScratch {
    pub(in crate::vfs) scratch: Arc<Scratch>,
    /// Which member of the mount it is.
    pub(in crate::vfs) member: u32,
    pub(in crate::vfs) shown: Arc<Shown>,
}

impl MemberScratch {
    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.scratch.table)
    }

    /// A directory, as the table knows it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is gone, or never has scratch files.
    pub(in crate::vfs) fn place(&self, directory: Node) -> Result<Directory> {
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
    pub(in crate::vfs) fn lookup(&self, directory: Node, name: &OsStr) -> Option<Arc<ScratchFile>> {
        let place = self.place_if_any(directory)?;
        let table = self.table();
        table.get(&place, name).map(|named| Arc::clone(&named.file))
    }

    /// The file of a node.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(in crate::vfs) fn file(&self, node: Node) -> Result<Arc<ScratchFile>> {
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
    pub(in crate::vfs) fn path_of(&self, node: Node) -> Option<String> {
        let table = self.table();
        let (directory, name, _) = table.named(self.member, node)?;
        Some(directory.path_of(name))
    }

    /// The names in a directory.
    pub(in crate::vfs) fn names(&self, directory: Node) -> Vec<OsString> {
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
    pub(in crate::vfs) fn create(
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
    pub(in crate::vfs) fn give(&self, name: &OsStr, file: &Arc<ScratchFile>) -> Result<()> {
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
    pub(in crate::vfs) fn take(&self, place: &Directory, name: &OsStr) -> Result<()> {
        let taken = self.table().remove(place, name);
        taken.map(drop).ok_or(Error::NotFound)
    }

    /// Gives a file another name instead of its own; it replaces one that has that name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(in crate::vfs) fn rename(&self, from: (Node, &OsStr), to: (Node, &OsStr)) -> Result<()> {
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
    pub(in crate::vfs) fn exchange(&self, a: &OsStr, b: &OsStr) -> Result<()> {
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
    pub(in crate::vfs) fn hide(&self, directory: Node, name: &OsStr) -> Result<()> {
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
    pub(in crate::vfs) fn hidden(&self, directory: Node) -> HashSet<OsString> {
        let Some(place) = self.place_if_any(directory) else {
            return HashSet::new();
        };
        let mut table = self.table();
        let hidden = table.hidden().keys().filter(|(of, _)| *of == place);
        hidden.map(|(_, name)| name.clone()).collect()
    }

    /// Shows the name of a thing in FILE again. Whether it was removed a moment ago.
    pub(in crate::vfs) fn unhide(&self, directory: Node, name: &OsStr) -> bool {
        let Some(place) = self.place_if_any(directory) else {
            return false;
        };
        let mut table = self.table();
        table.hidden().remove(&(place, name.to_owned())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::attr::WRITE;
    use crate::vfs::scratch::REPLACED_WITHIN;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Rename, TREE_NAME};

    /// It could not be removed again: its name was taken for that of FILE's tree.
    #[test]
    fn a_file_beside_an_array_may_be_called_like_the_tree() {
        let text =
            b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            tree: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";
        let (_dir, vfs) = writable(&Sample::new().text(text).block(b"abc"));
        let (name, facts) = (TREE_NAME.as_ref(), FileFacts::new(0o600, 0, 0));
        let made = vfs.create(Node::ARRAYS, name, facts, WRITE).unwrap();
        vfs.release(&made.1.handle);
        vfs.unlink(Node::ARRAYS, name).unwrap();
        let gone = vfs.unlink(Node::ARRAYS, name);
        assert!(matches!(gone, Err(Error::NotFound)), "{gone:?}");
    }

    #[test]
    fn a_tree_that_is_removed_is_gone_for_two_seconds_or_until_it_is_made_again() {
        let (_dir, vfs) = writable(&Sample::new());
        let (root, name) = (Node::Root, TREE_NAME.as_ref());
        let make = || vfs.mknod(root, name, 0o100_600, FileFacts::new(0o600, 0, 0));
        let find = || vfs.lookup(root, name);
        let text = || Arc::clone(vfs.snapshot().text());
        let (before, old) = (text(), vfs.open_now(Node::TREE, WRITE).unwrap().handle);
        vfs.unlink(root, name).unwrap();
        assert!(matches!(find(), Err(Error::NotFound)));
        assert!(matches!(vfs.unlink(root, name), Err(Error::NotFound)));
        vfs.write(&old, None, b"# more\n", false).unwrap();
        vfs.flush(&old, 0).unwrap();
        assert_eq!(text(), before, "it has no name");
        assert_eq!(make().unwrap().node, Node::Tree(1));
        assert!(matches!(make(), Err(Error::Exists)));
        assert_eq!(vfs.tree.current().bytes().unwrap(), before);
        vfs.unlink(root, name).unwrap();
        for removed in vfs.scratch.table().hidden.values_mut() {
            *removed = removed.checked_sub(REPLACED_WITHIN).unwrap();
        }
        assert_eq!(find().unwrap().node, Node::Tree(2));
        assert!(matches!(make(), Err(Error::Exists)));
        assert_eq!(vfs.tree.current().bytes().unwrap(), before);
    }

    /// It was not found for two seconds, as the array had been removed whose name it had.
    #[test]
    fn a_file_that_is_made_is_there_even_if_the_tree_has_lost_what_was_gone() {
        let text = |key: &str| {
            let array =
                "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}";
            let start = Sample::TREE.strip_suffix(b"...\n").unwrap();
            let line = format!("a: {array}\n{key}: {array}\n...\n");
            [start, line.as_bytes()].concat()
        };
        let (_dir, vfs) = writable(&Sample::new().text(&text("x.tmp")).block(b"abc"));
        let (name, facts) = ("x.tmp.npy".as_ref(), FileFacts::new(0o600, 0, 0));
        vfs.unlink(Node::ARRAYS, name).unwrap();
        let truncate = true;
        let tree = vfs.open_now(Node::TREE, Access { truncate, ..WRITE });
        let tree = tree.unwrap().handle;
        vfs.write(&tree, 0, &text("y"), false).unwrap();
        vfs.flush(&tree, 0).unwrap();
        let made = vfs.mknod(Node::ARRAYS, name, 0o100_600, facts).unwrap();
        assert!(matches!(made.node, Node::Scratch(_)));
        assert!(vfs.lookup(Node::ARRAYS, name).is_ok());
    }

    /// The target of the link became the bytes of the block.
    #[test]
    fn a_symlink_is_not_renamed_over_a_block() {
        let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
        let (link, facts) = ("link".as_ref(), FileFacts::new(0o777, 0, 0));
        vfs.symlink(Node::Root, link, "far".as_ref(), facts)
            .unwrap();
        for block in ["0.bin", "1.bin"] {
            let to = (Node::Blocks, block.as_ref());
            let refused = vfs.rename((Node::Root, link), to, Rename::Replace);
            let is_refused = matches!(refused, Err(Error::Invalid(_)));
            assert!(is_refused, "{refused:?}");
        }
        assert!(vfs.lookup(Node::Root, link).is_ok());
        assert!(vfs.blocks.is_empty() && vfs.snapshot().layout().blocks.len() == 1);
    }

    /// In a message it could have the name that the first `tree.yaml` of another member has now.
    #[test]
    fn a_file_is_called_by_a_name_in_its_own_member() {
        let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
        let (tree, old) = (TREE_NAME.as_ref(), "old".as_ref());
        let renamed = vfs.rename((Node::Root, tree), (Node::Root, old), Rename::Replace);
        renamed.unwrap();
        let other = MemberScratch {
            scratch: Arc::clone(&vfs.scratch.scratch),
            member: 1,
            shown: Arc::clone(&vfs.shown),
        };
        assert_eq!(vfs.scratch.path_of(Node::TREE).as_deref(), Some("old"));
        assert_eq!(other.path_of(Node::TREE), None);
    }
}
