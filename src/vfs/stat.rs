//! What `stat(2)` says of the files of the mount.

use std::time::Duration;

use rustix::fs::StatVfs;

use super::attr::sizes_of_disk;
use super::node::Node;
use super::state::State;
use super::{Attr, Error, FileKind, Result, Vfs, View, hdus, locked, root_directories};
use crate::source::{Source, len_u64};

impl Vfs {
    /// Sizes of FILE's file system; `None` if FILE is on a server, as they are not known then.
    ///
    /// # Errors
    /// [`Error::Library`] if the system does not tell them.
    pub fn statfs(&self) -> Result<Option<StatVfs>> {
        let state = self.shown.now();
        let file = state.snapshot.file().map(|file| file.file());
        let sizes = file.map(|file| sizes_of_disk(file, self.is_read_only()));
        sizes.transpose()
    }

    /// The attributes of a node in a state.
    pub(super) fn attr(&self, state: &State, node: Node) -> Result<Attr> {
        let attr = match node {
            Node::Tree(_) | Node::Scratch(_) => self.attr_of(&*self.file_of(node)?),
            _ => {
                let (size, names) = (self.size(state, node)?, self.names(state, node)?);
                self.described(state, node, size, names)
            }
        };
        let grows = state.is_growing(node);
        Ok(Attr {
            version: state.version(node),
            // the file keeps its number at all lengths, so a length that the kernel keeps may be one of before
            attr_valid: if grows {
                Duration::ZERO
            } else {
                attr.attr_valid
            },
            ..attr
        })
    }

    /// The attributes of something with that size and so many names.
    fn described(&self, state: &State, node: Node, size: u64, names: u32) -> Attr {
        let attr = Attr::of_file(node, size, &state.stat, self.is_read_only(), &self.options);
        let time = self.blocks.patched_time(state, node).or(state.time(node));
        Attr {
            nlink: names,
            version: state.version(node),
            mtime: time.unwrap_or(attr.mtime),
            ctime: time.unwrap_or(attr.ctime),
            ..attr
        }
    }

    /// Attributes, without reading the tree, of a node that can't be measured without it; nothing for other nodes. A directory whose names
    /// have not been made has the link count 1, which says that directories in it are not counted. A text under `info/` has its last
    /// length, if it was made before. The kernel asks again before it tells this length to a program, and keeps no pages that would be cut
    /// off there.
    pub(super) fn unmeasured(&self, state: &State, node: Node) -> Option<Attr> {
        let made = match node {
            Node::ARRAYS => state.is_named(),
            Node::ViewDir(view, _) => state.views.has_made(view),
            text if text.is_info() => {
                let known = locked(&state.info_lens).get(&node).copied();
                let attr = self.described(state, node, known.unwrap_or(0), 1);
                let attr_valid = Duration::ZERO;
                return Some(Attr { attr_valid, ..attr });
            }
            _ => true,
        };
        (!made).then(|| self.described(state, node, 0, 1))
    }

    /// The bytes of a node.
    pub(super) fn size(&self, state: &State, node: Node) -> Result<u64> {
        Ok(match node {
            Node::Root
            | Node::Blocks
            | Node::Info
            | Node::Hdus
            | Node::ArrayDir(_)
            | Node::ViewDir(..) => 0,
            Node::Status
            | Node::BlocksTsv
            | Node::ArraysTsv
            | Node::FitsTsv
            | Node::ZarrTsv
            | Node::TreeJson => self.info_len(state, node),
            Node::StatsTsv => state.stats_len(),
            Node::View(view, number) => state.view_len(view, number)?,
            Node::Block(_) | Node::Array(..) => self.blocks.size(state, node)?,
            Node::ArrayLink(number) => len_u64(state.link(number)?.len()),
            Node::HduHeader(_) | Node::HduBin(_) => hdus::source(&state.snapshot, node)?.len(),
            Node::Tree(_) | Node::Scratch(_) => self.file_of(node)?.len(),
        })
    }

    /// The link count of a node; that of a directory counts its own `.` and the `..` of each directory in it.
    fn names(&self, state: &State, node: Node) -> Result<u32> {
        let directories = match node {
            Node::Root => u32::try_from(root_directories(state.is_fits(), &self.options).len())
                .unwrap_or(u32::MAX),
            // directories of planes are not counted, which the link count 1 says
            Node::ViewDir(view @ View::Previews, number) => {
                let is_there = state.catalogue().subdirectories(number).is_some()
                    || state.planes_in(view, number).is_some();
                return is_there.then_some(1).ok_or(Error::NotFound);
            }
            // as those of a directory whose names have not been made: directories in it are not counted
            Node::ViewDir(View::Zarr, number) => {
                let there = state.has_zarr_directory(number);
                return there.then_some(1).ok_or(Error::NotFound);
            }
            Node::ArrayDir(number) | Node::ViewDir(_, number) => {
                let held = state.catalogue().subdirectories(number);
                u32::try_from(held.ok_or(Error::NotFound)?).unwrap_or(u32::MAX)
            }
            Node::Blocks | Node::Info | Node::Hdus => 0,
            _ => return Ok(1),
        };
        Ok(directories.saturating_add(2))
    }
}

/// The kind of a file; of those in the root, of what is no symlink.
#[must_use]
pub fn kind(node: Node) -> FileKind {
    match node {
        Node::Root
        | Node::Blocks
        | Node::Info
        | Node::Hdus
        | Node::ArrayDir(_)
        | Node::ViewDir(..) => FileKind::Directory,
        Node::ArrayLink(_) => FileKind::Symlink,
        _ => FileKind::File,
    }
}
