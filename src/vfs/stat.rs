//! What `stat(2)` says of the files of the mount, and changes of owner and mode, which are those of FILE.

use std::time::Duration;

use rustix::fs::StatVfs;

use super::attr::sizes_of_disk;
use super::node::{Node, View};
use super::scratch::{Role, ScratchFile};
use super::state::State;
use super::views::hdu_source;
use super::{
    Attr, Attributes, Error, FileFacts, Result, Saves, Vfs, VfsOptions, info, locked,
    root_directories,
};
use crate::save::store::Facts;
use crate::source::len_u64;

/// The permission bits of a mode, with set-id and sticky bits.
const MODE_MASK: u32 = 0o7777;
/// Of them, those by which a file is a program, or a directory is searched.
const EXECUTE_BITS: u32 = 0o111;
/// The number of the user who may change any file.
const ROOT: u32 = 0;

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
        let size = match node {
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
            | Node::TreeJson => info::len(&self.saves, &self.scratch, state, node),
            Node::StatsTsv => state.stats_len(),
            Node::View(view, number) => state.in_views().len(view, number)?,
            Node::Block(_) | Node::Array(..) => self.blocks.size(state, node)?,
            Node::ArrayLink(number) => len_u64(state.link(number)?.len()),
            Node::HduHeader(_) | Node::HduBin(_) => hdu_source(&state.snapshot, node)?.len(),
            Node::Tree(_) | Node::Scratch(_) => {
                return Ok(attr_of(&self.saves, &*self.file_of(node)?));
            }
        };
        let links = state.links(node, &self.options)?;
        let mut attr = described(&self.saves, state, node, size, links);
        if state.is_growing(node) {
            // the file keeps its number at all lengths, so a length that the kernel keeps may be one of before
            attr.attr_valid = Duration::ZERO;
        }
        Ok(attr)
    }
}

/// The attributes of a scratch file, or of `tree.yaml`, which has FILE's owner and mode.
pub(super) fn attr_of(saves: &Saves, file: &ScratchFile) -> Attr {
    let mut attr = file.attr();
    if file.role() == Role::Tree {
        let of_file = FileFacts::of(&saves.shown.now().stat, &saves.options);
        (attr.perm, attr.uid, attr.gid) = (of_file.perm, of_file.uid, of_file.gid);
    }
    if saves.writing.is_err() {
        // no name changes
        attr.entry_valid = attr.attr_valid;
    }
    attr
}

/// Attributes, without reading the tree, of a node that can't be measured without it; nothing for other nodes. A directory whose names
/// have not been made has the link count 1, which says that directories in it are not counted. A text under `info/` has its last
/// length, if it was made before. The kernel asks again before it tells this length to a program, and keeps no pages that would be cut
/// off there.
pub(super) fn unmeasured(saves: &Saves, state: &State, node: Node) -> Option<Attr> {
    let made = match node {
        Node::ARRAYS => state.is_named(),
        Node::ViewDir(view, _) => state.views.has_made(view),
        text if text.is_info() => {
            let known = locked(&state.infos).get(&node).map_or(0, |info| info.0);
            let attr = described(saves, state, node, known, 1);
            let attr_valid = Duration::ZERO;
            return Some(Attr { attr_valid, ..attr });
        }
        _ => true,
    };
    (!made).then(|| described(saves, state, node, 0, 1))
}

/// The attributes of something with that size and so many names.
pub(super) fn described(saves: &Saves, state: &State, node: Node, size: u64, links: u32) -> Attr {
    let is_read_only = saves.writing.is_err();
    let attr = Attr::of_file(node, size, &state.stat, is_read_only, &saves.options);
    let time = saves.blocks.patched_time(state, node).or(state.time(node));
    Attr {
        nlink: links,
        version: state.version(node),
        mtime: time.unwrap_or(attr.mtime),
        ctime: time.unwrap_or(attr.ctime),
        ..attr
    }
}

impl State {
    /// The link count of a node; that of a directory counts its own `.` and the `..` of each directory in it.
    fn links(&self, node: Node, options: &VfsOptions) -> Result<u32> {
        let directories = match node {
            Node::Root => {
                u32::try_from(root_directories(self.is_fits(), options).len()).unwrap_or(u32::MAX)
            }
            // directories of planes are not counted, which the link count 1 says
            Node::ViewDir(view @ View::Previews, number) => {
                let is_there = self.catalogue().subdirectories(number).is_some()
                    || self.in_views().planes_in(view, number).is_some();
                return is_there.then_some(1).ok_or(Error::NotFound);
            }
            // as those of a directory whose names have not been made: directories in it are not counted
            Node::ViewDir(View::Zarr, number) => {
                let there = self.in_views().zarr().has_directory(number);
                return there.then_some(1).ok_or(Error::NotFound);
            }
            Node::ArrayDir(number) | Node::ViewDir(_, number) => {
                let held = self.catalogue().subdirectories(number);
                u32::try_from(held.ok_or(Error::NotFound)?).unwrap_or(u32::MAX)
            }
            Node::Blocks | Node::Info | Node::Hdus => 0,
            _ => return Ok(1),
        };
        Ok(directories.saturating_add(2))
    }
}

impl Saves {
    /// Gives FILE the owner and the mode that a file of the mount is to have, which has these attributes now. What it has already is no
    /// change. The kernel has checked by then that the user may change those of the file that it knows, by the owner that is shown. The
    /// daemon may be root, and the owner that is shown an option's: so it is asked here who FILE belongs to.
    ///
    /// Execute bits are ignored, as files of the mount never show any, and `install` sets them on all; so are bits that `umask=` hides.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the file has an owner and mode of its own, or shows those that options give; if the user may not do
    /// that to FILE; for set-id and sticky bits. [`Error::Library`] if FILE is another by now, or the system refuses.
    pub(super) fn set_facts(&self, now: &Attr, changes: &Attributes) -> Result<()> {
        let bits = MODE_MASK & !(EXECUTE_BITS | self.options.umask);
        let mode = changes.mode.map(|mode| mode & bits);
        let mode = mode.filter(|mode| *mode != u32::from(now.perm) & bits);
        let uid = changes.uid.filter(|uid| *uid != now.uid);
        let gid = changes.gid.filter(|gid| *gid != now.gid);
        if mode.is_none() && uid.is_none() && gid.is_none() {
            return Ok(());
        }
        // of these files they are FILE's
        let is_of_file = matches!(
            now.node,
            Node::Root | Node::Tree(_) | Node::Scratch(_) | Node::Block(_) | Node::Array(..)
        );
        if !is_of_file {
            return Err(Error::NotPermitted(
                "owner and mode of this file are not yours to change",
            ));
        }
        if mode.is_some_and(|mode| mode & !0o666 != 0) {
            return Err(Error::NotPermitted("FILE gets no set-id and sticky bits"));
        }
        if (uid.is_some() && self.options.uid.is_some())
            || (gid.is_some() && self.options.gid.is_some())
        {
            return Err(Error::NotPermitted(
                "-o uid or -o gid sets the owner that is shown",
            ));
        }
        let mut writer = self.writer()?;
        self.catch_up(Some(&mut writer));
        let state = self.shown.now();
        let may = changes
            .by
            .is_some_and(|user| user == ROOT || (user == state.stat.uid && uid.is_none()));
        if !may {
            return Err(Error::NotPermitted(
                "only the owner of FILE and root change its owner and mode",
            ));
        }
        // bits that are not shown stay
        let mode = mode.map(|mode| mode | (state.stat.mode & MODE_MASK & !bits & 0o777));
        let stat = writer.set_facts(Facts { uid, gid, mode })?;
        if state.is_of(&stat) {
            self.show_times(&state, Some(stat));
        }
        // else another program has changed FILE at the same time, which the next look finds
        Ok(())
    }
}
