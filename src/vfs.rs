//! The file system, without the kernel: names, attributes, open files, what may be done to them.
//!
//! `fuse` calls these operations and turns their answers into replies; tests call them directly. What the files hold comes from
//! the current [`Snapshot`]; each save shows a new one. A snapshot says where in FILE the bytes are. So a save that changes
//! stored bytes in place first waits until no request reads any, and open handles find their bytes anew after it.
//!
//! A [`Vfs`] serves one file, FILE. It names the files of the mount by [`Node`] and open files by [`Handle`]. `fuse` has the inode numbers
//! and the table of handles. The parts of a `Vfs` are
//!
//! - `Versions`: which files are others than they were, so that they have other inode numbers.
//! - `Shown`: the `State` that is shown, a snapshot and the names that it gives, and the states before it;
//! - [`Scratch`]: the files that are not in FILE, of all members of the mount; `MemberScratch`: those of this one; `TreeFile`: which of
//!   them is `tree.yaml`;
//! - `Blocks`: the blocks that are open for writing, and what was written into them that FILE does not have;
//! - `Saves`: FILE, what writes it, whether it can be written, and which state follows from a save or another program's change;
//!
//! A part uses only those above it. What is written goes through the types of open files: `ScratchFile` and `TreeFile` (in `tree_save`) for
//! texts, `DataHandle` and `WrittenFile` (in `block_write` and `import`) for blocks and arrays. They are given the `Saves` that they save
//! through.
//!
//! The kernel is never told of a change. It keeps pages by inode number, and a number has the same bytes for good, except for what is
//! written through that very number. The name of a file lasts no time in the kernel, so the next lookup finds the number that counts now.
//! That of a directory lasts a second: it leads to no other directory. An old number is answered as long as something can read it: by
//! `Shown`, which keeps the states of before.
//!
//! # What is out of date
//!
//! Another program may change FILE, and a save of ours changes what is shown. These questions follow from that:
//!
//! | Question | Asked by |
//! |---|---|
//! | Is FILE what is shown? | `Saves::compare`, by FILE's attributes; by its text and headers, too, where these do not tell: a state without times, other attributes than those of the bytes, a clock so coarse that it may hide a change until [`Look::settles`](crate::source::Look::settles) has passed. `Saves::look` calls it for lookups, at each one of a mount that can be written, and for reads and changes, once a second; on a server every 10 s at most; `Saves::catch_up` for each save, and when FILE has been opened for writing. While a save is under way: `Saves::look_beside_a_save`, by other threads; `save`'s `OwnWrites` around each write of a save, of which `Saves::show_saved` hears; `Writer::patch` before each write into a raw block. While FILE is closed: each request that is answered without opening it, by the member: [`ClosedFile`] says what is shown then |
//! | Can FILE be read by the places that are known? | each save, and each source that is made for reads: `Saves::check_up_to_date`; of a state from before: `State::is_sealed` |
//! | Is a file what it was when it was looked up or opened? | the kernel's number has the [`Attr::version`]: `Shown::with` finds the state of it, `State::check_version` the directory. A handle has the form: `DataHandle::state_of` compares it for reads and for opens to read, `DataHandle::check_known` for writes, and `WrittenFile::check_current` that of the written file. A save of what was written before asks whether the block is still the one: `WrittenFile::begin`; that of a text, whether FILE has the text of which it was made: `TreeFile::to_replace` |
//! | Is the source that a handle reads from the right one? | each read: `DataHandle::current_source`, by `Blocks::generation`, which counts on when contents or states change, or FILE can't be read any more |
//!
//! ## A new rule of staleness
//!
//! A rule about what tells two states of FILE apart has several places to go through, each of which knows another part of FILE:
//! `source::stat` (the attributes), `Saves::compare` (what is done about a difference), `Saves::note_out_of_date` (what is not
//! read meanwhile), `collection::closed` and `collection::members` (whether a FILE that is closed is what it was), and, of a FILE that is
//! open for writing, `save::baseline` (which bytes count) and `Writer::reload` (when they are compared). After a save of ours,
//! `Baseline::renew` and `Saves::show_saved` take over the attributes that FILE has then, so that a change of them during the save is not seen.
//!
//! A new view of arrays is described in `node`, a new codec in [`codec`](crate::codec).
//!
//! # Locks and threads
//!
//! A thread that holds a lock takes only locks below it. `try`: if another thread has the lock, this one goes on without it. What is made
//! once, in a `OnceLock` or a `Lasting`, has a lock, too: other threads that want it wait for the one that makes it.
//!
//! | Lock | Guards |
//! |---|---|
//! | `MemberSlot` (in `collection`) | a member: the first thread that wants it opens FILE |
//! | `Saves::compared` (try) | when FILE was last compared with the state; one thread compares |
//! | `WrittenFile::turn` | what was written through a file, and is not saved: a write holds it, and a save until it is over |
//! | `Saves::writer` (try in a comparison) | saves, one at a time, and what they know of FILE |
//! | `Renewed::asking`, `RemoteFile::opened`, then `Renewed::state` (in `collection`) | what a server said last, and what of it was opened; the first is held while the server is asked |
//! | `Members::table` (in `collection`) | the members that are open, and what those have left that are closed. Below it, locks of other members are taken, which are idle, and those of a member that is being opened |
//! | `Saves::stored` | read: stored bytes are read where a state says they are; write: a save changes some in place. Not reentrant |
//! | `Made::source` | a picture, or the statistics of arrays: made from stored bytes by the first thread that reads it. An encoded block has one, too, which is taken as those of a [`Snapshot`] are |
//! | `Blocks::by_block` | the files that have blocks open for writing, and how many descriptors each; lookups of blocks and arrays take it, opens, and reads after a change. Its condition variable waits 500 ms at most for the release of a file that is closed already |
//! | `State::catalogue` or those of `Views`, then `Lasting` and `OnceLock` in a [`Snapshot`] | what is made once: the names under `arrays/`, and the files of a view; the tree, its arrays, and the blocks that have been opened; to make these, FILE is read |
//! | `TreeFile::inner`, `Scratch::table` | which file is `tree.yaml`, FILE's text, and the text that was refused last; the names of scratch files, and names of something in FILE that are gone. Neither is taken under the other |
//! | `DataHandle::source`, `ScratchFile::inner`, `WrittenFile::inner`, `Shown`, `State::left`, `State::infos`, `State::numbers`, `ZarrView::lens`, `Overlay`, `Blocks::emptied`, `Detail::Outside`, `Detail::Inline` (while the elements of an array are made from its text), `Snapshot::external_blocks` and `Snapshot::chunks` (in `asdf`), the rest of `Saves`, `Many::items` (in `collection`), `Handles` of `fuse` | their own fields; nothing is taken under them |
//!
//! A state is made of the one that is shown: so who shows one has `Saves::writer`, if there is one, else `Saves::compared`.
//!
//! Threads of a mount:
//!
//! - fuser's threads, as many as `-o threads` says, call the operations. A save runs on the thread of its request.
//! - `waiter` (`fuse::waiters`) threads, as many as are needed, call the operations that may wait for a server, up to `-o timeout`, and while
//!   all but one of fuser's threads do the same, reads that decode or make a view, and opens that wait for a text or for FILE's lock. While
//!   it waits for a server, or for the lock, such a thread holds locks of the file (`Saves::compared`, what asks its server), and none of
//!   others.
//! - `killed` (`fuse::pending`) answers requests whose callers have ended or are being killed, and so ends what is decoded for them. It takes
//!   the lock of its list and that of the reply.
//! - `on-refuse` (`cli`) runs the command of `-o on-refuse`, with no lock.
//! - `tree` reads the tree once after mounting, and ends. `signals` unmounts when the process is told to end; `idle`, with `-o idle`, when
//!   nothing has been asked for so long.
//! - `processes` (`save`) looks for the programs that have a file open, for a request that waits for it one second at most.
//! - `asdf-remote` (`remote`) asks servers, for all others.
//! - `asdf-ahead` (`codec`) threads decode ahead of readers, and read the tree of the next member ahead: they open that as a request does.
//!   They decode without `Saves::stored`, so that one may read bytes while a save moves them. What it decodes then no reader gets: the
//!   state that follows has another decoder for each block that has moved or was replaced, and the cache knows segments by their decoder.
//!   The other threads of the decoder are those of one call, see [`codec`](crate::codec).

mod attr;
mod block_write;
mod blocks;
mod catalogue;
mod data;
mod error;
mod info;
mod member;
mod names;
mod node;
mod saves;
mod scratch;
mod stat;
mod state;
#[cfg(test)]
mod testing;
mod tree_file;
mod tree_save;
mod version;
mod views;
mod write;
mod zarr;

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, OnceLock};

use crate::asdf::Snapshot;
use crate::error::Error as Library;
pub(crate) use crate::error::lock as locked;
use crate::save::processes::process_of;
use crate::save::{FilePath, SaveOptions, Writer};
use crate::source::{Borrower, Memory, PooledBuf, Source, Stat};

pub use attr::{
    Access, Attr, Attributes, Bytes, FileFacts, FileKind, Reading, Rename, Show, VfsOptions, kind,
    sizes_of_disk,
};
pub use error::{Call, Error, NAME_MAX, check_name};
pub use info::Text;
pub use member::{ClosedFile, Left, Remains};
pub use names::Detail;
pub use node::{Format, Node, View};
pub use saves::Losses;
pub use scratch::{REPLACED_WITHIN, Scratch};
pub use stat::shortened;
pub use tree_file::TreeMark;
pub use version::{VERSIONS, Versions};

use blocks::Blocks;
use data::DataHandle;
use names::Names;
use node::{TREE_NAME, block_name, block_number};
use saves::Saves;
use scratch::{MemberScratch, ScratchFile};
use state::{Shown, State};
use tree_file::TreeFile;
use views::Views;

/// Result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An open file or directory.
pub struct Handle {
    /// Process that opened it; 0 if unknown.
    opener: u32,
    open: Open,
}

impl Handle {
    /// Whether to read it may take long; see [`State::takes_long`].
    #[must_use]
    pub fn takes_long(&self) -> bool {
        matches!(&self.open, Open::Data(open) if open.takes_long)
    }
}

/// What is open.
enum Open {
    /// A block, an array or a part of a FITS file.
    Data(DataHandle),
    /// Bytes that do not change: a text under `info/`, as it was when it was opened.
    Fixed(Arc<dyn Source>),
    /// A file that is not in FILE, or `tree.yaml`; whether it is open to be written to.
    Scratch(Arc<ScratchFile>, bool),
    /// A directory, with its scratch files, which are listed first.
    Directory(Node, Vec<OsString>, Names),
}

/// An opened file or directory.
pub struct Opened<H = Handle> {
    /// The handle.
    pub handle: H,
    /// Whether pages that the kernel has are still right.
    pub keep_cache: bool,
    /// Whether the kernel shall not keep pages at all.
    pub direct: bool,
}

/// The file system of one file.
pub struct Vfs {
    options: Arc<VfsOptions>,
    shown: Arc<Shown>,
    scratch: MemberScratch,
    tree: Arc<TreeFile>,
    blocks: Arc<Blocks>,
    saves: Saves,
}

/// A hash, to compare a value with one that is not kept. It is the same as long as the process lives.
fn hash_of(shown: impl Hash) -> u64 {
    static HASHER: OnceLock<RandomState> = OnceLock::new();
    HASHER.get_or_init(RandomState::new).hash_one(shown)
}

impl Vfs {
    /// The file system of a snapshot of the file at `path`, which had these attributes before it was read. `writing`: how that file is
    /// opened for writing when something is first to be changed, or why it is never. `scratch`: the files that are not in FILE, of all
    /// members of the mount.
    #[must_use]
    pub fn new(
        path: impl Into<FilePath>,
        snapshot: Snapshot,
        stat: Stat,
        writing: Result<SaveOptions, String>,
        options: VfsOptions,
        scratch: Arc<Scratch>,
    ) -> Self {
        let options = Arc::new(options);
        let mut state = State::new(Arc::new(snapshot), stat);
        state.views = Views::new(options.style).into();
        let shown = Arc::new(Shown::new(state));
        let tree = Arc::new(TreeFile::new(&shown, &options, scratch.tree_room()));
        let blocks = Arc::new(Blocks::new(Arc::clone(scratch.room())));
        let saves = Saves::new(path.into(), writing, &options, &shown, &tree, &blocks);
        let scratch = MemberScratch {
            scratch,
            member: 0,
            shown: Arc::clone(&shown),
        };
        Self {
            options,
            shown,
            scratch,
            tree,
            blocks,
            saves,
        }
    }

    /// Takes FILE as it was opened for writing, and locked, before it was mounted.
    pub fn take_writer(&mut self, writer: Writer) {
        self.saves.opened(writer);
    }

    /// Has `unlock` called, with FILE's attributes, when FILE may be locked by this mount under another name: before it is opened for writing,
    /// and before another file that has got its name is opened. The first call counts.
    pub fn unlock_with(&mut self, unlock: impl Fn(Stat) + Send + Sync + 'static) {
        let _ = self.saves.unlock.set(Box::new(unlock));
    }

    /// Reads the tree now, so that the first request that needs it does not have to. Leaves out a tree that would take hundreds of
    /// megabytes: most uses of a mount do without it. Makes no names, so that a save need not find out which names it changes.
    pub fn prepare(&self) {
        let state = self.shown.now();
        if state.snapshot.text().len() <= MAX_PREPARED {
            let _ = state.snapshot.arrays();
        }
    }

    /// Has `tell` called with the reason each time a text is refused, by the thread that saves it: it must not wait. The first call counts.
    pub fn on_refusal(&self, tell: impl Fn(Error) + Send + Sync + 'static) {
        let _ = self.tree.on_refusal.set(Box::new(tell));
    }

    /// Whether nothing can be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.saves.writing.is_err()
    }

    /// Why nothing can be written, if that is so.
    #[must_use]
    pub fn why_read_only(&self) -> Option<String> {
        self.saves.why_read_only()
    }

    /// The attributes of a name in a directory of this version; see [`VERSIONS`].
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn lookup_in(&self, directory: Node, version: u64, name: &OsStr) -> Result<Attr> {
        // each open of a file begins with this, and shows what another program has done before
        block_write::look(&self.saves, self.is_read_only());
        if self.scratch.hidden(directory).contains(name) {
            return Err(Error::NotFound);
        }
        let state = self.shown.now();
        state.check_version(directory, version)?;
        let found = self.find(&state, directory, name)?;
        self.attr(&state, found)
    }

    /// The node that a name in a directory leads to. It may not exist: [`Vfs::attr`] tells.
    fn find(&self, state: &State, directory: Node, name: &OsStr) -> Result<Node> {
        let beside = || Some(self.scratch.lookup(directory, name)?.node);
        let found = match directory {
            Node::Root => root_directories(state.is_fits(), &self.options)
                .into_iter()
                .find(|entry| name == entry.0)
                .map(|entry| entry.1)
                .or_else(|| self.file_in_root(name).map(|file| file.node)),
            Node::Info => info_files(&self.options)
                .into_iter()
                .find(|entry| name == entry.0)
                .map(|entry| entry.1),
            Node::Blocks => block_number(name).map(Node::Block).or_else(beside),
            Node::Hdus => views::find_hdu(&state.snapshot, name),
            Node::ArrayDir(number) => state.catalogue().lookup(number, name).or_else(beside),
            Node::ViewDir(view, number) => state.in_views().find(view, number, name),
            _ => return Err(Error::NotDirectory),
        };
        found.ok_or(Error::NotFound)
    }

    /// The file of a node that is one.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    fn file_of(&self, node: Node) -> Result<Arc<ScratchFile>> {
        let file = self.tree.file(node);
        file.map_or_else(|| self.scratch.file(node), Ok)
    }

    /// The file of a name in the root.
    fn file_in_root(&self, name: &OsStr) -> Option<Arc<ScratchFile>> {
        if name == TREE_NAME {
            // asked in this order: a name is hidden before its file is another one, which nobody may open yet
            let file = self.tree.current();
            let is_gone = self.scratch.hidden(Node::Root).contains(name);
            return (!is_gone).then_some(file);
        }
        self.scratch.lookup(Node::Root, name)
    }

    /// Attributes of a file, as of the state in which it has this version; see [`VERSIONS`].
    ///
    /// # Errors
    /// [`Error::NotFound`], also if there is no such state any more.
    pub fn getattr(&self, node: Node, version: u64) -> Result<Attr> {
        // `asdf-mount -u` looks at the root, and must not wait for a server
        if node != Node::Root || !self.is_far() {
            block_write::look(&self.saves, true);
        }
        let state = self.shown.with(node, version).ok_or(Error::NotFound)?;
        self.attr(&state, node)
    }

    /// Target of a symlink of this version; see [`VERSIONS`].
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] if it is none.
    pub fn readlink(&self, node: Node, version: u64) -> Result<Vec<u8>> {
        match node {
            Node::ArrayLink(number) => {
                let state = self.shown.now();
                state.check_version(node, version)?;
                state.link(number)
            }
            Node::Scratch(_) => self.file_of(node)?.target(),
            _ => Err(Error::Invalid("not a symlink")),
        }
    }

    /// Opens a file, as it is in the state in which it has this version; see [`VERSIONS`].
    ///
    /// A file whose bytes can't be had opens all the same; reading it says why not. An old number that has no bytes any more is stale.
    ///
    /// # Errors
    /// [`Error::NotFound`], also if there is no such state any more; [`Error::IsDirectory`], [`Error::ReadOnly`].
    pub fn open(&self, node: Node, version: u64, access: Access) -> Result<Opened> {
        let state = self.shown.with(node, version).ok_or(Error::NotFound)?;
        let is_shown = Arc::ptr_eq(&state, &self.shown.now());
        if !is_shown && (state.is_sealed() || self.is_far()) {
            // its bytes are gone: the kernel looks the name up again
            return Err(Error::NotFound);
        }
        self.open_node(&state, node, access)
    }

    /// Opens a file of a state.
    ///
    /// # Errors
    /// As [`Vfs::open`].
    fn open_node(&self, state: &Arc<State>, node: Node, mut access: Access) -> Result<Opened> {
        if !access.only_reads() {
            self.saves.open_for_writing()?;
            node.check_writable()?;
            access.pid = process_of(access.pid).unwrap_or(0);
            // also O_RDONLY with O_TRUNC: its close ends what it has begun
            access.write = true;
        }
        let (mut keep_cache, mut direct) = (false, false);
        let open = match node {
            Node::Tree(_) | Node::Scratch(_) => {
                let file = self.file_of(node)?;
                file.open(access, self.tree.epoch())?;
                // the bytes of a number change only through it
                keep_cache = !access.truncate;
                Open::Scratch(file, access.write)
            }
            Node::Block(_)
            | Node::Array(..)
            | Node::HduHeader(_)
            | Node::HduBin(_)
            | Node::View(..)
            | Node::StatsTsv => {
                // there may be no such file any more
                self.attr(state, node)?;
                // the kernel keeps no pages of what may grow or is being written, and none of statistics, which cost less than their pages
                direct = node == Node::StatsTsv
                    || state.is_growing(node)
                    || self.blocks.are_patched_beside(state, node);
                let opened = DataHandle::open(&self.saves, state, node, access);
                let open = Open::Data(if access.write {
                    self.saves.noted(node, opened)?
                } else {
                    opened?
                });
                // a file of this version has had these bytes ever since; but nothing tells us when another file changes
                keep_cache = !access.truncate && !state.is_elsewhere(node);
                open
            }
            Node::Status
            | Node::BlocksTsv
            | Node::ArraysTsv
            | Node::FitsTsv
            | Node::ZarrTsv
            | Node::TreeJson => {
                if node == Node::Status {
                    self.tree.wait_for_closing();
                }
                // these texts change without a save, so the kernel keeps no pages of them
                direct = true;
                let text = info::text(&self.saves, &self.scratch, state, node);
                Open::Fixed(Arc::new(Memory::new(text.into_bytes())))
            }
            Node::ArrayLink(_) => return Err(Error::Invalid("a symlink can't be opened")),
            Node::Root
            | Node::Blocks
            | Node::Info
            | Node::Hdus
            | Node::ArrayDir(_)
            | Node::ViewDir(..) => {
                return Err(Error::IsDirectory);
            }
        };
        let opener = access.pid;
        Ok(Opened {
            handle: Handle { opener, open },
            keep_cache,
            direct,
        })
    }

    /// Reads at most `len` bytes at `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// [`Error::Library`] if the bytes can't be had.
    pub fn read(&self, handle: &Handle, offset: u64, len: u32) -> Result<Bytes<'_>> {
        let open = &handle.open;
        if matches!(open, Open::Data(_)) {
            self.saves.look(true);
        }
        let (source, reading) = match open {
            Open::Scratch(file, _) => (file.source(), self.saves.reading()),
            Open::Data(open) => open.current_source(&self.saves)?,
            Open::Fixed(source) => (Arc::clone(source), self.saves.reading()),
            Open::Directory(..) => return Err(Error::IsDirectory),
        };
        let there = source.len().saturating_sub(offset);
        let len = usize::try_from(there.min(u64::from(len))).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(Bytes::Owned(PooledBuf::default()));
        }
        let bytes_of = |source: &dyn Source| {
            let mut bytes = PooledBuf::of(len);
            source.read_exact_at(&mut bytes, offset).map(|()| bytes)
        };
        let read = match source.lend(offset, len, Borrower::Kernel) {
            Ok(Some(loan)) => return Ok(Bytes::Lent(loan, reading)),
            Ok(None) => bytes_of(&*source),
            Err(error) => Err(error),
        };
        if let Err(Library::Stale { .. }) = read {
            // the server has just said that the file is another one: the next lookup asks for it
            self.saves.file.forget();
            self.saves.refresh_soon();
        }
        Ok(Bytes::Owned(read?))
    }
}

/// Longest text whose tree is read before a request needs it, in bytes. A tree takes four to ten times as much memory as its text;
/// to read one of this length takes about a second.
const MAX_PREPARED: usize = 16 << 20;

/// The directories of the root.
const ROOT_DIRECTORIES: [(&str, Node); 3] = [
    ("arrays", Node::ARRAYS),
    ("blocks", Node::Blocks),
    ("info", Node::Info),
];
/// The directories of the root that are shown: with those of the views that were asked for, and `hdus/` if FILE `is_fits`.
fn root_directories(is_fits: bool, options: &VfsOptions) -> Vec<(&'static str, Node)> {
    let mut directories = ROOT_DIRECTORIES.to_vec();
    let views = View::ALL.into_iter().filter(|view| options.shows(*view));
    directories.extend(views.map(|view| (view.name(), Node::ViewDir(view, 0))));
    if is_fits {
        directories.push((views::HDUS, Node::Hdus));
    }
    directories.retain(|(_, directory)| options.show.has(*directory));
    directories
}
/// The files that `info/` may have.
const INFO_FILES: [(&str, Node); 7] = [
    ("arrays.tsv", Node::ArraysTsv),
    ("blocks.tsv", Node::BlocksTsv),
    ("stats.tsv", Node::StatsTsv),
    ("status", Node::Status),
    ("tree.json", Node::TreeJson),
    ("fits.tsv", Node::FitsTsv),
    ("zarr.tsv", Node::ZarrTsv),
];
/// The files of `info/`.
fn info_files(options: &VfsOptions) -> Vec<(&'static str, Node)> {
    let mut files = INFO_FILES.to_vec();
    files.retain(|(_, file)| match file {
        Node::FitsTsv => options.fits,
        Node::ZarrTsv => options.zarr,
        _ => true,
    });
    files
}

/// An index into memory; `usize` has at least 32 bits where there is FUSE.
fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::source::Made;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A file far away whose server did not answer was waited for twice: to lend the bytes, and to read them.
    #[test]
    fn what_can_not_be_lent_is_not_read_too() {
        let (_dir, vfs) = testing::writable(&Sample::new());
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let made = Made::new(3, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let cause = std::io::ErrorKind::TimedOut.into();
            Err(Library::io("reading", cause))
        });
        let handle = Handle {
            opener: 0,
            open: Open::Fixed(Arc::new(made)),
        };
        assert!(vfs.read(&handle, 0, 3).is_err());
        assert_eq!(tries.load(Ordering::Relaxed), 1);
    }
}
