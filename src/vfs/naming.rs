//! Which names a new file may have. In messages, files are called by their paths in the mount, as people know no inode numbers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::error::check_name;
use super::node::Node;
use super::scratch::{is_made_by_editor, is_temporary_data};
use super::state::State;
use super::{Error, INFO_FILES, Result, TREE_NAME, Vfs, block_number, hdus, index};
use crate::asdf::names::SUFFIXES;

/// What an inode is called that is none, or whose name is gone.
const NAMELESS: &str = "a file that is gone";

impl Vfs {
    /// The path of a file, or of a name in a directory, below the mountpoint: for people.
    #[must_use]
    pub fn path_to(&self, node: Option<Node>, name: Option<&OsStr>) -> String {
        let path = match node {
            Some(node @ (Node::Tree(_) | Node::Scratch(_))) => {
                let is_tree = self.tree.current().node == node;
                let tree = is_tree.then(|| TREE_NAME.to_owned());
                tree.or_else(|| self.scratch.path_of(node))
            }
            node => node.map(|node| self.shown.now().path(node)),
        };
        let path = path.unwrap_or_else(|| NAMELESS.to_owned());
        match name {
            Some(name) if node == Some(Node::Root) => name.display().to_string(),
            Some(name) => format!("{path}/{}", name.display()),
            None => path,
        }
    }

    /// Checks that a file of that name may be made in a directory of blocks or arrays: tools make such names, or it is named after a file
    /// there, as `x.npy.part`, `x.new.npy` and `x_tmp.npy` are after `x.npy`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::NameTooLong`].
    pub(super) fn check_beside(&self, directory: Node, name: &OsStr) -> Result<()> {
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

impl State {
    /// The path below the mountpoint of a file that is not in the table of scratch files.
    pub(super) fn path(&self, node: Node) -> String {
        let known = match node {
            Node::Root => Some(".".to_owned()),
            Node::Blocks => Some("blocks".to_owned()),
            Node::Info => Some("info".to_owned()),
            Node::Hdus => Some(hdus::NAME.to_owned()),
            Node::Block(n) => Some(format!("blocks/{n}.bin")),
            Node::Array(..) | Node::ArrayDir(_) | Node::ArrayLink(_) => self.catalogue().path(node),
            // its names need not be made for that
            Node::ViewDir(view, 0) => Some(view.name().to_owned()),
            Node::View(..) | Node::ViewDir(..) => self.in_views().path(node),
            Node::HduHeader(_) | Node::HduBin(_) => {
                let mut units = hdus::entries(&self.snapshot).into_iter();
                let found = units.find(|(_, found)| *found == node);
                found.map(|(name, _)| format!("{}/{}", hdus::NAME, name.display()))
            }
            _ => {
                let mut files = INFO_FILES.into_iter();
                let found = files.find(|(_, found)| *found == node);
                found.map(|(name, _)| format!("info/{name}"))
            }
        };
        known.unwrap_or_else(|| NAMELESS.to_owned())
    }

    /// The node of a block that is to be made.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it would not be the next one.
    pub(super) fn new_block(&self, name: &OsStr) -> Result<Node> {
        let layout = self.snapshot.layout();
        let next = block_number(name).filter(|&n| index(n) == layout.blocks.len());
        let next = next.ok_or(Error::NotPermitted(
            "a new block gets the next free number, and nothing else can be made here",
        ))?;
        if layout.streamed() {
            return Err(Error::NotPermitted("nothing can follow a streamed block"));
        }
        Ok(Node::Block(next))
    }

    /// The error if a block is written through another file.
    pub(super) fn in_use(&self, other: Node) -> Error {
        Error::InUse(self.path(other))
    }
}

#[cfg(test)]
mod tests {
    use crate::asdf::sample::Sample;
    use crate::vfs::node::Node;
    use crate::vfs::testing::writable;

    const TEXT: &[u8] =
        b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        m: {n: {x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}}}\n...\n";

    #[test]
    fn a_file_is_called_by_its_path() {
        let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
        let path_of = |node| vfs.path_to(Some(node), None);
        let mut directory = Node::ARRAYS;
        let mut path = "arrays".to_owned();
        for name in ["m", "n", "x.npy"] {
            assert_eq!(path_of(directory), path);
            directory = vfs.lookup(directory, name.as_ref()).unwrap().node;
            path = format!("{path}/{name}");
        }
        assert_eq!(path_of(directory), path);
        for (node, path) in [
            (Node::TREE, "tree.yaml"),
            (Node::Block(0), "blocks/0.bin"),
            (Node::Status, "info/status"),
            (Node::Tree(7), super::NAMELESS),
            (Node::Scratch(7), super::NAMELESS),
            (
                Node::Array(1 << 20, crate::vfs::Format::Bin),
                super::NAMELESS,
            ),
        ] {
            assert_eq!(path_of(node), path);
        }
    }
}
