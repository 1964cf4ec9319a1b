//! Names: those that a directory lists, those that a new file may have, and the paths by which messages call files, as people know no inode
//! numbers.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::error::check_name;
use super::node::{Node, View, block_name};
use super::scratch::{is_made_by_editor, is_temporary_data};
use super::stat::{described, unmeasured};
use super::state::State;
use super::views::{HDUS, hdu_entries};
use super::{
    Attr, Error, Handle, INFO_FILES, Open, Result, TREE_NAME, Vfs, block_number, index, info_files,
    root_directories,
};
use crate::asdf::names::SUFFIXES;
use crate::source::len_u64;

/// What an inode is called that is none, or whose name is gone.
const NAMELESS: &str = "a file that is gone";

/// How much of each file a listing tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its number and kind; its other attributes are not those that it has.
    Names,
    /// Its attributes, as far as the tree need not be read for them: of many files, most are listed only to go on to the next.
    Quick,
    /// All its attributes.
    Full,
}

/// The names of a directory when it was opened. Positions in it stay valid while names change.
pub(super) enum Names {
    Few(Vec<OsString>),
    /// Those of so many blocks.
    Blocks(u32),
    /// Those of these entries of the state's catalogue, or of the files that a view has of them.
    Arrays(Arc<State>, Option<View>, Range<usize>),
    /// Those of the directory of `zarr/` with this number.
    Zarr(Arc<State>, u32),
}

impl Vfs {
    /// Opens a directory of this version; see [`VERSIONS`](super::VERSIONS). The names that it has now are those that are listed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn opendir_in(&self, directory: Node, version: u64) -> Result<Handle> {
        let state = self.shown.now();
        state.check_version(directory, version)?;
        let names = match directory {
            Node::Root => {
                let own = root_directories(state.is_fits(), &self.options);
                let own = own.into_iter().map(|entry| entry.0);
                Names::Few(own.chain([TREE_NAME]).map(Into::into).collect())
            }
            Node::Hdus => {
                let units = hdu_entries(&state.snapshot).into_iter();
                Names::Few(units.map(|entry| entry.0).collect())
            }
            Node::Info => {
                let files = info_files(&self.options).into_iter();
                Names::Few(files.map(|entry| entry.0.into()).collect())
            }
            Node::Blocks => {
                let count = state.snapshot.layout().blocks.len();
                // a block that is being written for the first time is listed already
                let new = self.blocks.writer_of(&state, count).is_some();
                let count = count.saturating_add(new.into());
                Names::Blocks(u32::try_from(count).unwrap_or(u32::MAX))
            }
            Node::ViewDir(View::Zarr, number) => Names::Zarr(state, number),
            Node::ArrayDir(number) => Names::of_arrays(state, None, number)?,
            Node::ViewDir(view, number) => Names::of_arrays(state, Some(view), number)?,
            _ => return Err(Error::NotDirectory),
        };
        let scratch = self.scratch.names(directory);
        Ok(Handle {
            opener: 0,
            open: Open::Directory(directory, scratch, names),
        })
    }

    /// Lists a directory from position `offset` on, until `add` says that it is full. `add` gets the position behind the
    /// entry, its name and its attributes. The scratch files come first, then the names from when the directory was opened.
    ///
    /// The kernel takes a listed name for the answer to a lookup, so each is looked up when it is listed: a name may lead to another
    /// file than when the directory was opened, or to none, and then it is passed over. The kernel changes no name of a directory,
    /// and forgets none, until it has taken in what is listed here: it holds the directory's lock.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn readdir(
        &self,
        handle: &Handle,
        offset: u64,
        detail: Detail,
        add: &mut dyn FnMut(u64, &OsStr, &Attr) -> bool,
    ) -> Result<()> {
        let Open::Directory(directory, scratch, names) = &handle.open else {
            return Err(Error::NotDirectory);
        };
        let hidden = self.scratch.hidden(*directory);
        let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
        loop {
            let state = self.shown.now();
            names.check(&state)?;
            let next = if let Some(name) = scratch.get(at) {
                at = at.saturating_add(1);
                Some((Cow::from(name), None))
            } else {
                // positions count scratch files first, then the names of the state
                let mut behind = at.saturating_sub(scratch.len());
                let next = names.next(&mut behind, &state);
                at = behind.saturating_add(scratch.len());
                next
            };
            let Some((name, node)) = next else {
                break;
            };
            // a save may have given the name of a scratch file, which was listed then, to an array
            let is_listed = at > scratch.len() && scratch.iter().any(|listed| **listed == *name);
            if is_listed || hidden.contains(&*name) {
                continue;
            }
            // the names are from when the directory was opened; the files are those of now
            let found = node.map_or_else(|| self.find(&state, *directory, &name), Ok);
            let attr = found.and_then(|node| self.attr_in(detail, &state, node));
            if attr.is_ok_and(|attr| add(len_u64(at), &name, &attr)) {
                break;
            }
        }
        Ok(())
    }

    /// The attributes of a node, as far as a listing tells them.
    fn attr_in(&self, detail: Detail, state: &State, node: Node) -> Result<Attr> {
        let known = match detail {
            // the table of scratch files knows theirs
            _ if matches!(node, Node::Tree(_) | Node::Scratch(_)) => None,
            Detail::Names => Some(described(&self.saves, state, node, 0, 1)),
            Detail::Quick => unmeasured(&self.saves, state, node),
            Detail::Full => None,
        };
        known.map_or_else(|| self.attr(state, node), Ok)
    }

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
            Node::Hdus => Some(HDUS.to_owned()),
            Node::Block(n) => Some(format!("blocks/{n}.bin")),
            Node::Array(..) | Node::ArrayDir(_) | Node::ArrayLink(_) => self.catalogue().path(node),
            // its names need not be made for that
            Node::ViewDir(view, 0) => Some(view.name().to_owned()),
            Node::View(..) | Node::ViewDir(..) => self.in_views().path(node),
            Node::HduHeader(_) | Node::HduBin(_) => {
                let mut units = hdu_entries(&self.snapshot).into_iter();
                let found = units.find(|(_, found)| *found == node);
                found.map(|(name, _)| format!("{}/{}", HDUS, name.display()))
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

impl Names {
    /// The names in a directory of `arrays/`, or of a view.
    fn of_arrays(state: Arc<State>, view: Option<View>, directory: u32) -> Result<Self> {
        let entries = state.catalogue().entries(directory);
        if let Some(view) = view {
            let views = state.in_views();
            let planes = views.plane_names(view, directory);
            if !planes.is_empty() {
                let (entries, mut at) = (entries.unwrap_or_default(), 0);
                let next = || views.next(view, &entries, &mut at);
                let others = std::iter::from_fn(next).map(|(name, _)| name);
                return Ok(Self::Few(others.chain(planes).collect()));
            }
        }
        Ok(Self::Arrays(state, view, entries.ok_or(Error::NotFound)?))
    }

    /// Checks that the directory is the same in the state `now`.
    ///
    /// # Errors
    /// As [`State::check_version`].
    fn check(&self, now: &State) -> Result<()> {
        match self {
            Self::Zarr(state, number) => {
                let directory = Node::ViewDir(View::Zarr, *number);
                now.check_version(directory, state.version(directory))
            }
            _ => Ok(()),
        }
    }

    /// The next name from `position` on, which is moved behind it; with the node that it leads to in the state `now`, if that is known.
    fn next(
        &self,
        position: &mut usize,
        now: &Arc<State>,
    ) -> Option<(Cow<'_, OsStr>, Option<Node>)> {
        let at = *position;
        Some(match self {
            Self::Few(names) => {
                *position = at.saturating_add(1);
                (names.get(at)?.into(), None)
            }
            Self::Blocks(count) => {
                *position = at.saturating_add(1);
                let n = u32::try_from(at).ok().filter(|n| n < count)?;
                (block_name(n).into(), None)
            }
            Self::Arrays(state, view, entries) => {
                let (name, node) = match view {
                    None => state.catalogue().next(entries, position)?,
                    Some(view) => state.in_views().next(*view, entries, position)?,
                };
                // the entries are of the state that was listed first; in another one the same name may lead elsewhere
                (name.into(), Arc::ptr_eq(state, now).then_some(node))
            }
            Self::Zarr(_, directory) => {
                let (name, node) = now.in_views().zarr().next(*directory, position)?;
                (name.into(), Some(node))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use crate::asdf::sample::Sample;
    use crate::error::Error as Library;
    use crate::vfs::node::Node;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Detail, Error, FileFacts, locked};

    /// Each member of a directory that a search lists was parsed for the length of one text.
    #[test]
    fn a_quick_listing_measures_nothing_that_is_made_of_the_tree() {
        let (_dir, vfs) = writable(&Sample::new().text(b"#ASDF 1.0.0\n").block(b"abc"));
        for directory in [Node::Root, Node::Info] {
            let opened = vfs.opendir(directory).unwrap();
            let mut names = 0;
            let mut count = |_, _: &OsStr, _: &crate::vfs::Attr| {
                names += 1;
                false
            };
            vfs.readdir(&opened, 0, Detail::Quick, &mut count).unwrap();
            assert!(names > 2);
        }
        let state = vfs.shown.now();
        assert!(!state.is_named() && locked(&state.infos).is_empty());
    }

    /// Each path below `arrays/` was looked up part by part: 157,000 lookups for a walk of 3,855 files.
    #[test]
    fn the_kernel_keeps_the_name_of_a_directory_which_leads_to_nothing_once_it_is_gone() {
        let of = |key: &str| {
            let array = "{source: 0, datatype: uint8, byteorder: little, shape: [3]}";
            let line = format!("{key}: {{x: !core/ndarray-1.0.0 {array}}}\n...\n");
            let start = Sample::TREE.strip_suffix(b"...\n").unwrap();
            [start, line.as_bytes()].concat()
        };
        let (_dir, vfs) = writable(&Sample::new().text(&of("old")).block(b"abc"));
        let find = |parent, name: &str| vfs.lookup(parent, name.as_ref());
        let old = find(Node::ARRAYS, "old").unwrap();
        assert_eq!(old.entry_valid, old.attr_valid);
        assert!(find(old.node, "x.bin").is_ok());
        let access = Access {
            write: true,
            truncate: true,
            ..Access::default()
        };
        let tree = vfs.open_now(Node::TREE, access).unwrap().handle;
        vfs.write(&tree, 0, &of("new"), false).unwrap();
        vfs.flush(&tree, 0).unwrap();
        assert!(find(Node::ARRAYS, "new").is_ok());
        assert!(matches!(find(old.node, "x.bin"), Err(Error::NotFound)));
        assert!(vfs.opendir(old.node).is_err());
    }

    /// They were answered by their numbers alone, which are given anew when FILE is opened anew.
    #[test]
    fn a_directory_or_link_of_another_version_is_stale() {
        let text = [TEXT.strip_suffix(b"...\n").unwrap(), b"again: *a\n...\n"].concat();
        let (_dir, vfs) = writable(&Sample::new().text(&text).block(b"abcd"));
        let find = |name: &str| vfs.lookup(Node::ARRAYS, name.as_ref()).unwrap();
        let (directory, link) = (find("m"), find("again.bin"));
        let is_stale = |error: Option<Error>| {
            let stale = matches!(error, Some(Error::Library(Library::Stale { .. })));
            stale || error.is_some_and(|error| panic!("{error}"))
        };
        for ahead in [0, 1] {
            let version = directory.version + ahead;
            let done = [
                vfs.lookup_in(directory.node, version, "n".as_ref()).err(),
                vfs.opendir_in(directory.node, version).err(),
                vfs.readlink(link.node, link.version + ahead).err(),
            ];
            assert_eq!(done.map(is_stale), [ahead > 0; 3]);
        }
    }

    /// It was listed twice, and what was removed by the name was the scratch file, which nothing can read.
    #[test]
    fn a_name_that_a_save_gives_to_an_array_is_of_the_array_alone() {
        let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
        let find = |parent, name: &str| vfs.lookup(parent, name.as_ref()).unwrap().node;
        let directory = find(find(Node::ARRAYS, "m"), "n");
        let (name, write) = (OsStr::new("x.new.npy"), true);
        let facts = FileFacts::new(0o600, 0, 0);
        let access = Access {
            write,
            ..Access::default()
        };
        vfs.create(directory, name, facts, access).unwrap();
        let scratch = find(directory, "x.new.npy");
        let list = || {
            let (opened, mut names) = (vfs.opendir(directory).unwrap(), Vec::new());
            let mut add = |_, name: &OsStr, attr: &crate::vfs::Attr| {
                names.push((name.to_owned(), attr.node));
                false
            };
            vfs.readdir(&opened, 0, Detail::Full, &mut add).unwrap();
            names.retain(|entry| entry.0 == name);
            names
        };
        assert_eq!(list(), [(name.to_owned(), scratch)]);
        let text = String::from_utf8(TEXT.to_vec()).unwrap();
        let array = "{source: 0, datatype: uint8, byteorder: little, shape: [3]}";
        let more = format!("{array}, x.new: !core/ndarray-1.0.0 {array}");
        let text = text.replace(array, &more);
        let tree = vfs.open_now(Node::TREE, access).unwrap().handle;
        vfs.write(&tree, 0, text.as_bytes(), false).unwrap();
        vfs.flush(&tree, 0).unwrap();
        let array = find(directory, "x.new.npy");
        assert!(matches!(array, Node::Array(..)));
        assert_eq!(list(), [(name.to_owned(), array)]);
        vfs.unlink(directory, name).unwrap();
        assert!(list().is_empty(), "hidden for a while");
        assert!(vfs.scratch.file(scratch).is_ok());
    }

    const TEXT: &[u8] =
        b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        m: {n: {x: &a !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}}}\n...\n";

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
