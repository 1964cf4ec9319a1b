//! What a mount of many files asks of one of them: it is closed while none of it is used, and opened again later. As long as FILE does not
//! change meanwhile, most of what it shows is known without opening it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use log::warn;

use super::attr::{Attr, FileFacts, VfsOptions};
use super::catalogue::Catalogue;
use super::error::Error;
use super::node::{Node, View};
use super::saves::{Losses, News};
use super::tree_file::Refused;
use super::version::{Shows, VERSIONS, Versions, shown};
use super::{
    Result, Scratch, TREE_NAME, TreeMark, Vfs, block_name, hash_of, index, info_files, locked,
    root_directories,
};
use crate::asdf::Snapshot;
use crate::source::{Look, Stat, len_u64};

/// What a [`Vfs`] leaves when it is closed and FILE does not hold: that there are files in the mount only, and what `info/status` tells. The
/// next [`Vfs`] of FILE takes it up.
pub struct Remains {
    /// The files that are in the mount only, if it has any: they stay in the table of the mount.
    files: Option<(Arc<Scratch>, u32)>,
    news: News,
}

impl Remains {
    /// What of it is lost when the mount ends.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let described = |(scratch, member): &(Arc<Scratch>, u32)| scratch.described(*member);
        Losses {
            unsaved: self.news.unsaved(),
            scratch: self.files.as_ref().map_or_else(Vec::new, described),
        }
    }

    /// Whether it has files that are in the mount only, of users or of tools.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Drops the files that are in the mount only, as FILE is gone. Gives a line for each that a user has made.
    pub fn drop_files(&mut self) -> Vec<String> {
        let lost = self.losses().scratch;
        if let Some((scratch, member)) = self.files.take() {
            scratch.drop_all(member);
        }
        lost
    }
}

/// What is known when a [`Vfs`] is closed: what is shown of FILE until it is opened again, and what the next [`Vfs`] of FILE goes on from.
pub struct Left {
    /// The look at FILE by which it is shown, if its times tell whether it has changed since.
    pub look: Option<Look>,
    /// The versions of its files, if FILE is as it was.
    pub versions: Versions,
    /// What `tree.yaml` begins with.
    pub tree: TreeMark,
    /// What is shown if FILE stays as it is. `None` if FILE's attributes would not tell of a change, or if there are scratch files.
    pub closed: Option<ClosedFile>,
    /// What FILE does not hold, if there is anything.
    pub remains: Option<Remains>,
}

/// What FILE showed when it was closed.
#[derive(Debug, Clone)]
pub struct ClosedFile {
    /// Length of `tree.yaml`, in bytes.
    text_len: u64,
    /// A hash of that text.
    pub text_hash: u64,
    is_fits: bool,
    /// The versions of its files.
    versions: Versions,
    /// What `tree.yaml` is.
    pub tree: TreeMark,
    /// How many bytes at the beginning of FILE are that text; `None` if FILE does not begin with it.
    in_file: Option<u64>,
    /// Lengths of the blocks, in bytes, if there was room for them.
    blocks: Option<Arc<[u64]>>,
    /// The names under `arrays/`, if they had been made and there was room for them.
    names: Option<Arc<Catalogue>>,
    /// The memory that names and lengths take, in bytes, as estimated when FILE was closed: more names may get numbers later.
    weight: usize,
    /// Whether nothing could be written.
    is_read_only: bool,
}

impl ClosedFile {
    /// The name of its text.
    pub const TREE_NAME: &str = TREE_NAME;

    /// What is shown from now on, if FILE is closed now and stays as it is. Has names and lengths if these take `room` bytes at most. `None`
    /// if FILE's attributes would not tell of a change.
    fn of(vfs: &Vfs, room: usize) -> Option<Self> {
        let state = vfs.shown.now();
        // a later stat(2) could not tell whether FILE has changed since
        if vfs.is_far() || vfs.timed_look()?.settles.is_some() {
            return None;
        }
        let (text, tree) = vfs.tree.at_rest()?;
        let (text_len, text_hash) = (len_u64(text.len()), hash_of(&*text));
        let is_plain = state.snapshot.plain_file().is_some();
        // an array in another file may change while FILE stays as it is, and nobody would notice
        let names = state.made_names().filter(|names| names.is_of_one_file());
        let (names, blocks) = (names.cloned(), vfs.blocks.lens(&state));
        let of_names = names.as_ref().map_or(0, |names| names.weight());
        let of_blocks = blocks.as_ref().map_or(0, |lens| size_of_val(&**lens));
        let weight = of_names.saturating_add(of_blocks);
        let fits = weight <= room;
        Some(Self {
            text_len,
            text_hash,
            is_fits: state.is_fits(),
            versions: state.versions.clone(),
            tree,
            in_file: is_plain.then_some(text_len),
            blocks: blocks.filter(|_| fits),
            names: names.filter(|_| fits),
            weight: if fits { weight } else { 0 },
            is_read_only: vfs.is_read_only(),
        })
    }

    /// The memory that it takes, in bytes, as estimated.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Length of `tree.yaml`, in bytes, if these are the first ones of FILE.
    #[must_use]
    pub fn first_bytes(&self) -> Option<u64> {
        self.in_file
    }

    /// The version of a file.
    fn version(&self, file: Node) -> u64 {
        self.versions.of(file, self.shown_by(file))
    }

    /// Whether a directory has the version with this remainder: in another one its number may mean another directory.
    #[must_use]
    pub fn has(&self, directory: Node, version: u64) -> bool {
        self.version(directory) % VERSIONS == version
    }

    /// The blocks that a file shows, as far as that is known.
    fn shown_by(&self, file: Node) -> Shows {
        let names = self.names.as_ref();
        shown(file, |number| Some(names?.array(number)?.1.origin()))
    }

    /// The names in a directory, in the order in which [`Vfs`] lists them; nothing if FILE has to be opened for them.
    #[must_use]
    pub fn entries(
        &self,
        directory: Node,
        options: &VfsOptions,
    ) -> Option<Vec<(Cow<'static, OsStr>, Node)>> {
        let own = |(name, node): (&'static str, Node)| (Cow::from(OsStr::new(name)), node);
        match directory {
            Node::Root => {
                let directories = root_directories(self.is_fits, options).into_iter();
                let tree = [(TREE_NAME, self.tree.node)];
                Some(directories.chain(tree).map(own).collect())
            }
            Node::Info => Some(info_files(options).into_iter().map(own).collect()),
            Node::Blocks => {
                let count = u32::try_from(self.blocks.as_ref()?.len()).unwrap_or(u32::MAX);
                let block = |n| (Cow::from(block_name(n)), Node::Block(n));
                Some((0..count).map(block).collect())
            }
            Node::ArrayDir(number) => {
                let names = self.names.as_ref()?;
                let (entries, mut position) = (names.entries(number)?, 0);
                let next = || names.next(&entries, &mut position);
                let listed = std::iter::from_fn(next);
                Some(listed.map(|(name, node)| (Cow::from(name), node)).collect())
            }
            _ => None,
        }
    }

    /// What a name in a directory leads to; nothing if FILE has to be opened to tell.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    #[must_use]
    pub fn lookup(
        &self,
        directory: Node,
        name: &OsStr,
        options: &VfsOptions,
    ) -> Option<Result<Node>> {
        let found = match directory {
            Node::Root | Node::Blocks | Node::Info => {
                let mut entries = self.entries(directory, options)?.into_iter();
                entries.find(|entry| entry.0 == name).map(|entry| entry.1)
            }
            Node::ArrayDir(number) => self.names.as_ref()?.lookup(number, name),
            _ => return None,
        };
        Some(found.ok_or(Error::NotFound))
    }

    /// The attributes of a node, for a FILE with these attributes; nothing if FILE has to be opened to tell. Where the tree would have to
    /// be read they are those of [`unmeasured`](super::stat::unmeasured).
    #[must_use]
    pub fn attr(&self, node: Node, file: &Stat, options: &VfsOptions) -> Option<Attr> {
        if node == self.tree.node {
            let mut attr = FileFacts::of(file, options).attr(node, self.text_len);
            if self.is_read_only {
                attr.entry_valid = attr.attr_valid;
            }
            return Some(attr);
        }
        let mut attr = Attr::of_file(node, 0, file, self.is_read_only, options);
        attr.version = self.version(node);
        if let Some(time) = self.versions.time(node, self.shown_by(node)) {
            (attr.mtime, attr.ctime) = (time, time);
        }
        match (node, &self.names) {
            (Node::ArrayDir(number), Some(names)) => {
                let held = u32::try_from(names.subdirectories(number)?).unwrap_or(u32::MAX);
                attr.nlink = held.saturating_add(2);
            }
            (Node::ARRAYS | Node::ViewDir(_, 0), _) => {}
            (Node::Blocks | Node::Info | Node::Hdus, _) => attr.nlink = 2,
            (Node::Block(n), _) => attr.size = *self.blocks.as_ref()?.get(index(n))?,
            (Node::Array(number, format), Some(names)) => {
                attr.size = format.len(names.array(number)?.1);
            }
            (Node::ArrayLink(number), Some(names)) => {
                attr.size = len_u64(names.target(number)?.len());
            }
            (text, _) if text.is_info() => attr.attr_valid = Duration::ZERO,
            _ => return None,
        }
        attr.size = attr.size.min(i64::MAX.unsigned_abs());
        Some(attr)
    }
}

impl Vfs {
    /// Says in the log what was not saved, when the mount has ended. Whether everything was saved.
    #[must_use]
    pub fn end(&self) -> bool {
        let path = self.saves.path.display();
        let why = "the mount has ended before it was closed";
        self.tree.cut_short(&self.saves, why);
        if let Err(error) = self.tree.rescue(&self.saves) {
            warn!("{path}: the tree that was refused is lost: {error}");
        }
        for written in self.blocks.written() {
            if let Some(fate) = self.saves.fate_of(&written) {
                self.saves
                    .note_loss(written.block, written.file, &why, fate);
            }
        }
        self.losses().say(&path)
    }

    /// What the end of the mount would lose.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let text = self.tree.refusal(Refused::at_unmount);
        let edits = locked(&self.saves.news).unsaved();
        let scratch = self.scratch.scratch.described(self.scratch.member);
        Losses {
            unsaved: text.into_iter().chain(edits).collect(),
            scratch,
        }
    }

    /// Takes out what this leaves when it is closed. `room`: the memory that names and lengths may take, in bytes; if they take more, only
    /// the root is known while FILE is closed. Call it only if [`Vfs::is_at_rest`], and nothing after it.
    #[must_use]
    pub fn leave(&self, room: usize) -> Left {
        let (scratch, member) = (&self.scratch.scratch, self.scratch.member);
        let files = scratch.has_any(member);
        let files = files.then(|| (Arc::clone(scratch), member));
        let mut closed = files
            .is_none()
            .then(|| ClosedFile::of(self, room))
            .flatten();
        let state = self.shown.now();
        let mut versions = state.versions.clone();
        let keeps_names = closed.as_ref().is_some_and(|closed| closed.names.is_some());
        // planes are numbered as they are looked up
        let may_differ = !versions.are_unchanged() || state.views.has_made(View::Previews);
        if !keeps_names && may_differ && !locked(&state.numbers).is_empty() {
            // the next Vfs may number the names otherwise: a save may have brought in a name, or a longer block an array
            versions = versions.renewed();
        }
        if let Some(closed) = &mut closed {
            closed.versions = versions.clone();
        }
        let news = std::mem::take(&mut *locked(&self.saves.news));
        let anything = files.is_some() || !news.is_empty();
        Left {
            look: self.timed_look(),
            versions,
            tree: self.tree.mark(),
            closed,
            remains: anything.then_some(Remains { files, news }),
        }
    }

    /// Takes up what an earlier [`Vfs`] of FILE has left. Call it before this is used.
    pub fn take_up(&mut self, remains: Remains) {
        *locked(&self.saves.news) = remains.news;
    }

    /// Makes this the `Vfs` of a member of the mount, and goes on from the last one of FILE: with its `tree`, with the versions of its
    /// files, and with the names under `arrays/`, if it knew them when it was `closed` and FILE still has them. Call it before this is
    /// used.
    pub fn begin_as(
        &mut self,
        member: u32,
        tree: TreeMark,
        mut versions: Versions,
        closed: Option<&ClosedFile>,
    ) {
        self.scratch.member = member;
        self.tree.begin(tree);
        self.shown.begin(|state| {
            versions.begin(state.stat.modified());
            state.versions = versions;
            if let Some(names) = closed.and_then(|closed| closed.names.as_ref()) {
                state.take_names(Arc::clone(names));
            }
        });
    }

    /// FILE's attributes from before the state that is shown was read.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.shown.now().stat
    }

    /// The look at FILE by which it is shown, if its times tell whether it has changed since.
    #[must_use]
    pub fn timed_look(&self) -> Option<Look> {
        let state = self.shown.now();
        Some(Look {
            stat: state.left()?,
            settles: state.settles,
        })
    }

    /// The hash of FILE's text, as in [`ClosedFile::text_hash`], if `tree.yaml` shows it.
    #[must_use]
    pub fn text_hash(&self) -> Option<u64> {
        self.tree.at_rest().map(|(text, _)| hash_of(&*text))
    }

    /// The snapshot that is shown.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shown.now().snapshot)
    }

    /// Whether FILE has become something that can't be shown. Looks at FILE, if it is near and the last look is a while ago.
    #[must_use]
    pub fn is_out_of_date(&self) -> bool {
        if !self.is_far() {
            self.saves.look(true);
        }
        self.saves.check_up_to_date().is_err()
    }

    /// Whether FILE is on a server.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.saves.file.is_far()
    }

    /// Whether this can be closed, and be made again later from FILE and what it [leaves](Vfs::leave): no block is being edited, and no
    /// refused text waits to be mended. The caller must know whether any file is open.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.blocks.is_empty() && self.tree.is_at_rest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;
    use crate::vfs::{Detail, FileKind};

    const TEXT: &[u8] = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\nmeta: {flux: &a !core/ndarray-1.0.0 \
        {source: 0, datatype: uint8, byteorder: little, shape: [4]}}\nagain: *a\n...\n";

    fn closed(vfs: &Vfs) -> ClosedFile {
        let state = vfs.shown.now();
        ClosedFile {
            text_len: len_u64(TEXT.len()),
            text_hash: hash_of(TEXT),
            is_fits: false,
            versions: Versions::default(),
            tree: vfs.tree.mark(),
            in_file: None,
            blocks: vfs.blocks.lens(&state),
            names: state.made_names().cloned(),
            weight: 0,
            is_read_only: vfs.is_read_only(),
        }
    }

    #[test]
    fn a_closed_file_lists_what_it_lists_when_it_is_open() {
        let sample = Sample::new().text(TEXT).block(b"abcd");
        let (_dir, before) = writable(&sample);
        let unread = closed(&before).entries(Node::ARRAYS, &before.options);
        assert!(unread.is_none(), "the tree was not read");
        before.shown.now().catalogue();
        let closed = closed(&before);
        // opened again, it needs the tree no more than that
        let (_dir, mut vfs) = writable(&sample);
        vfs.begin_as(0, closed.tree, Versions::default(), Some(&closed));
        let (stat, mut directories) = (vfs.stat(), vec![Node::Root]);
        let mut count = 0;
        while let Some(directory) = directories.pop() {
            let mut told = closed.entries(directory, &vfs.options).unwrap().into_iter();
            let opened = vfs.opendir(directory).unwrap();
            let mut compare = |_, name: &OsStr, own: &Attr| {
                let (known, node) = told.next().unwrap();
                let attr = closed.attr(node, &stat, &vfs.options).unwrap();
                let said = format!("{attr:?}");
                assert_eq!((&*known, said), (name, format!("{own:?}")));
                if attr.kind == FileKind::Directory {
                    directories.push(node);
                }
                count += 1;
                false
            };
            vfs.readdir(&opened, 0, Detail::Quick, &mut compare)
                .unwrap();
            assert!(told.next().is_none());
        }
        assert!(vfs.snapshot().is_unread());
        assert_eq!(
            count,
            4 + 3 + 2 + 1 + 5,
            "in / arrays/ arrays/meta/ blocks/ info/"
        );
    }
}
