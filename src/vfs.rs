//! The file system, without the kernel: names, attributes, open files, what may be done to them.
//!
//! `fuse` calls these operations and turns their answers into replies; tests call them directly. What the files hold comes from
//! the [`Snapshot`] of the moment: a save publishes a new one. A snapshot says where in FILE the bytes are, so that a save that changes
//! stored bytes in place waits until no thread reads any, and open handles then look for theirs anew.
//!
//! # Locks and threads
//!
//! A thread that holds a lock takes only those below it. `try` marks those that a thread passes by if another one has them.
//!
//! | Lock | Guards |
//! |---|---|
//! | `Vfs::checked` (try) | when FILE was last compared with the state; one thread compares |
//! | `Draft::saved` | read: a change of the draft; write: its save, after which it counts no more |
//! | `Vfs::writer` (try in a comparison) | saves, one at a time, and what they know of FILE |
//! | `Vfs::stored` | read: stored bytes are read by the places of a state; write: a save changes some in place. Not reentrant |
//! | `DataHandle::rewritten`, `DataHandle::source` | how far an emptied array is written again; the source that a handle reads |
//! | `Drafts::by_block` | the drafts and how many handles write to each block; every lookup and read takes it, so it is held for moments |
//! | `Vfs::history` | what `info/status` says of saves |
//! | `Vfs::root`, then the `TextHandle` of one handle | names and files of the root; one handle's draft of a text |
//! | `Vfs::numbers` | the names under `arrays/` and their numbers |
//! | `Vfs::state` | which state is shown; readers clone the `Arc` |
//! | `Overlay`, `Spool`, `Handles`, `Elsewhere`, `Condition`, `Draft::{files, refused}` | their own fields; nothing is taken under them |
//! | `Kernel::under_way` | what the kernel has not been told yet; its condition variable waits 200 ms at most |
//!
//! Threads of a mount:
//!
//! - `-o threads` of fuser call the operations. A save runs on the thread of the `close`, `fsync` or `rename` that asks for it.
//! - `invalidate` (`fuse::invalidate`) tells the kernel what changed. The kernel may make it wait for a page or a directory
//!   that another request holds, so it takes no lock here but `Kernel::under_way` and those of a lookup in the catalogue.
//! - `answers` (`vfs::kernel`) holds back the replies to saves until the kernel has been told.
//! - `tree` reads the tree once after mounting, and ends. `signals` unmounts when the process is told to end.
//! - The decoder has threads of its own, see [`codec`](crate::codec).

mod attr;
mod catalogue;
mod commit;
mod condition;
mod drafted;
mod drafts;
mod edit;
mod elements;
mod elsewhere;
mod error;
mod format;
mod handle;
mod hdus;
mod history;
mod info;
mod kernel;
mod mounts;
mod naming;
mod node;
mod process;
mod publish;
mod refresh;
mod root;
mod stat;
mod state;
mod stored;
#[cfg(test)]
mod testing;
mod unsaved;
mod write;
mod xattr;

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use crate::asdf::Snapshot;
use crate::error::{Error as Library, Place};
use crate::save::Writer;
use crate::source::{Borrower, Memory, PooledBuf, Source, Spool, len_u64};

pub use attr::{
    Access, Attr, Attributes, Bytes, Caller, Invalidation, Kind, Opened, Options, Rename, Statfs,
};
pub use error::{Call, Error, NAME_MAX, check_name};
pub use format::Format;
pub use mounts::Mounted;
pub use node::Node;
pub use stored::Reading;

use attr::modified;
use catalogue::Numbers;
use condition::Condition;
use drafts::Drafts;
use edit::DataHandle;
use handle::Handles;
use history::History;
use kernel::Kernel;
use process::process_of;
use root::{Root, TextHandle};
use state::{Listing, Names, State};

/// Result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an open handle is.
enum Handle {
    /// A block, an array or a part of a FITS file.
    Data(DataHandle),
    /// Bytes that do not change: a text under `info/`, as it was when it was opened.
    Fixed(Arc<dyn Source>),
    /// A file of the root.
    Text(Mutex<TextHandle>),
    /// A directory.
    Directory(Listing),
}

/// The mounted file.
pub struct Vfs {
    path: PathBuf,
    options: Options,
    state: RwLock<Arc<State>>,
    numbers: Arc<Mutex<Numbers>>,
    root: Mutex<Root>,
    handles: Handles<Handle>,
    drafts: Drafts,
    /// What is written into blocks and not saved yet.
    spool: Arc<Spool>,
    /// Held for reading by threads that read stored bytes, and for writing while a save changes some in place.
    stored: RwLock<()>,
    writer: Option<Mutex<Writer>>,
    history: Mutex<History>,
    condition: Condition,
    /// When FILE was last compared with the snapshot.
    checked: Mutex<Option<Instant>>,
    kernel: Kernel,
}

/// The lock's value, whether or not a thread panicked with it: each critical section here leaves its data whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vfs {
    /// The file system of a snapshot of the file at `path`, which had these attributes before it was read; `writer` saves it,
    /// without one nothing can be written.
    #[must_use]
    pub fn new(
        path: &Path,
        snapshot: Snapshot,
        meta: Metadata,
        writer: Option<Writer>,
        options: Options,
    ) -> Self {
        let numbers = Arc::default();
        let state = State::new(Arc::new(snapshot), meta, &numbers, 0);
        let facts = state.facts(&options, modified(&state.meta));
        let root = Root::new(Arc::clone(state.snapshot.text()), facts, options.scratch);
        Self {
            path: path.to_owned(),
            options,
            state: RwLock::new(Arc::new(state)),
            numbers,
            root: Mutex::new(root),
            handles: Handles::default(),
            drafts: Drafts::default(),
            spool: Spool::new(path.parent().unwrap_or(path)),
            stored: RwLock::default(),
            writer: writer.map(Mutex::new),
            history: Mutex::default(),
            condition: Condition::default(),
            checked: Mutex::default(),
            kernel: Kernel::default(),
        }
    }

    /// Reads the tree, which otherwise the first request does that depends on it: but not a tree so large that it takes hundreds of
    /// megabytes, which most uses of a mount can do without. Makes no names: a save then need not look which of them it changes.
    pub fn prepare(&self) {
        let state = self.state();
        if state.snapshot.text().len() <= MAX_PREPARED {
            let _ = state.snapshot.arrays();
        }
    }

    /// Decodes only while `wanted`: a long decode must not keep FILE locked when the mount has ended. The first call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        self.state().snapshot.cache().decode_while(wanted);
    }

    /// Whether nothing can be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.options.read_only.is_some()
    }

    /// The snapshot of the moment.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state of the moment with the names below `arrays/`: all that follow it have names, too, so that the kernel is told of
    /// those that change while a listing goes on.
    fn named_state(&self) -> Arc<State> {
        loop {
            let state = self.state();
            state.catalogue();
            if Arc::ptr_eq(&state, &self.state()) {
                return state;
            }
        }
    }

    /// The attributes of a name in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Attr> {
        self.refresh();
        let directory = Node::from_ino(parent).ok_or(Error::NotFound)?;
        loop {
            let state = self.state();
            let found = self.find(&state, directory, name)?;
            // an `open` by name reads all of the file, so the kernel must not know its size of before
            self.kernel.wait_for(found.ino());
            if Arc::ptr_eq(&state, &self.state()) {
                return self.attr(&state, found);
            }
        }
    }

    /// The node that a name in a directory leads to. Whether it exists is known by its attributes.
    fn find(&self, state: &State, directory: Node, name: &OsStr) -> Result<Node> {
        let found = match directory {
            Node::Root => root_directories(state)
                .into_iter()
                .find(|entry| name == entry.0)
                .map(|entry| entry.1)
                .or_else(|| locked(&self.root).lookup(name).map(Node::Text)),
            Node::Info => INFO_FILES
                .into_iter()
                .find(|entry| name == entry.0)
                .map(|entry| entry.1),
            Node::Blocks => block_number(name).map(Node::Block),
            Node::Hdus => hdus::lookup(&state.snapshot, name),
            Node::ArrayDir(number) => state.catalogue().lookup(number, name),
            _ => return Err(Error::NotDirectory),
        };
        found.ok_or(Error::NotFound)
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn getattr(&self, ino: u64, fh: Option<u64>) -> Result<Attr> {
        let _ = fh;
        let node = Node::from_ino(ino).ok_or(Error::NotFound)?;
        let before = self.state();
        if self.refresh()
            && let Ok(attr) = self.attr(&before, node)
        {
            // the kernel heeds no answer to what it asked before it was told to forget
            return Ok(attr);
        }
        self.attr(&self.state(), node)
    }

    /// Target of a symlink.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] if it is none.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>> {
        match Node::from_ino(ino).ok_or(Error::NotFound)? {
            Node::ArrayLink(number) => self.state().link(number),
            Node::Text(number) => Ok(locked(&self.root).link_target(number)?.as_bytes().to_vec()),
            _ => Err(Error::Invalid("not a symlink")),
        }
    }

    /// Opens a file.
    ///
    /// A file whose bytes can't be had opens all the same; reading it says why not.
    ///
    /// # Errors
    /// [`Error::NotFound`], also if FILE has just changed; [`Error::IsDirectory`], [`Error::ReadOnly`].
    pub fn open(&self, ino: u64, access: Access) -> Result<Opened> {
        let node = Node::from_ino(ino).ok_or(Error::NotFound)?;
        if self.refresh() {
            // the kernel has the size of before: it looks the name up again now, and so gets the new one
            self.kernel.wait_for(ino);
            return Err(Error::NotFound);
        }
        self.open_node(node, access)
    }

    /// Opens a file of the state that is shown.
    fn open_node(&self, node: Node, mut access: Access) -> Result<Opened> {
        let ino = node.ino();
        self.kernel.wait_for(ino);
        let state = self.state();
        if access.write || access.truncate {
            self.check_writable()?;
            access.pid = process_of(access.pid).unwrap_or(0);
        }
        let text = match node {
            Node::Text(number) => {
                let handle = locked(&self.root).open(number, access)?;
                let fh = self.handles.insert(Handle::Text(Mutex::new(handle)));
                return Ok(Opened {
                    fh,
                    keep_cache: false,
                    direct: false,
                });
            }
            Node::Block(_) | Node::Array(..) | Node::HduHeader(_) | Node::HduBin(_) => {
                let handle = self.open_data(&state, node, access)?;
                let fh = self.handles.insert(Handle::Data(handle));
                // no notice comes of changes of other files
                let keep_cache = !access.truncate && !edit::is_elsewhere(&state, node);
                return Ok(Opened {
                    fh,
                    keep_cache: keep_cache && !self.kernel.is_stale(ino),
                    direct: false,
                });
            }
            Node::Status | Node::BlocksTsv | Node::ArraysTsv if access.write => {
                return Err(Error::ReadOnly("info is ours"));
            }
            Node::Status | Node::BlocksTsv | Node::ArraysTsv => self.info_text(&state, node),
            Node::ArrayLink(_) => return Err(Error::Invalid("a symlink can't be opened")),
            Node::Root | Node::Blocks | Node::Info | Node::Hdus | Node::ArrayDir(_) => {
                return Err(Error::IsDirectory);
            }
        };
        let text = Memory::new(text.into_bytes());
        let fh = self.handles.insert(Handle::Fixed(Arc::new(text)));
        // these texts change without a save, so that pages of them are not kept
        Ok(Opened {
            fh,
            keep_cache: false,
            direct: true,
        })
    }

    /// Reads at most `len` bytes at `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// [`Error::BadHandle`]; [`Error::Library`] if the bytes can't be had.
    pub fn read(&self, fh: u64, offset: u64, len: u32) -> Result<Bytes<'_>> {
        let handle = self.handles.get(fh)?;
        if matches!(*handle, Handle::Data(_)) {
            self.refresh();
            self.check_up_to_date()
                .map_err(|error| Library::corrupt(Place::File, error.to_string()))?;
        }
        let text = match &*handle {
            Handle::Text(text) => Some(locked(&self.root).view(&locked(text))?),
            _ => None,
        };
        let reading = self.reading();
        let source = match (&*handle, text) {
            (_, Some(text)) => Arc::new(Memory::shared(text)),
            (Handle::Data(open), _) => self.current_source(open, &reading)?,
            (Handle::Fixed(source), _) => Arc::clone(source),
            _ => return Err(Error::IsDirectory),
        };
        let there = source.len().saturating_sub(offset);
        let len = usize::try_from(there.min(u64::from(len))).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(Bytes::Owned(PooledBuf::default()));
        }
        if let Some(loan) = source.lend(offset, len, Borrower::Kernel) {
            return Ok(Bytes::Lent(loan, reading));
        }
        let mut bytes = PooledBuf::of(len);
        source.read_exact_at(&mut bytes, offset)?;
        Ok(Bytes::Owned(bytes))
    }

    /// Opens a directory. The names that it has now are those that are listed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn opendir(&self, ino: u64) -> Result<Opened> {
        let directory = Node::from_ino(ino).ok_or(Error::NotFound)?;
        let state = self.state();
        let names = match directory {
            Node::Root => {
                let own = root_directories(&state);
                let own = own.into_iter().map(|entry| entry.0.into());
                let root = locked(&self.root);
                let files = root.names().map(|entry| entry.0.to_owned());
                Names::Few(own.chain(files).collect())
            }
            Node::Hdus => {
                let units = hdus::entries(&state.snapshot).into_iter();
                Names::Few(units.map(|entry| entry.0).collect())
            }
            Node::Info => Names::Few(INFO_FILES.map(|entry| entry.0.into()).to_vec()),
            Node::Blocks => {
                let count = state.snapshot.layout().blocks.len();
                Names::Blocks(u32::try_from(count).unwrap_or(u32::MAX))
            }
            Node::ArrayDir(number) => {
                let state = self.named_state();
                let entries = state.catalogue().entries(number);
                let entries = entries.ok_or(Error::NotFound)?;
                Names::Arrays(state, entries)
            }
            _ => return Err(Error::NotDirectory),
        };
        let listing = Listing { directory, names };
        let fh = self.handles.insert(Handle::Directory(listing));
        Ok(Opened {
            fh,
            keep_cache: false,
            direct: false,
        })
    }

    /// Lists a directory from position `offset` on, until `add` says that it is full. `add` gets the position behind the
    /// entry, its name and its attributes.
    ///
    /// The kernel takes a listed name for the answer to a lookup, so each is looked up when it is listed: a name may lead to another
    /// file than when the directory was opened, or to none, and then it is passed over. The kernel changes no name of a directory,
    /// and forgets none, until it has taken in what is listed here: it holds the directory's lock.
    ///
    /// # Errors
    /// [`Error::BadHandle`], [`Error::NotDirectory`].
    pub fn readdir(
        &self,
        fh: u64,
        offset: u64,
        add: &mut dyn FnMut(u64, &OsStr, &Attr) -> bool,
    ) -> Result<()> {
        let handle = self.handles.get(fh)?;
        let Handle::Directory(listing) = &*handle else {
            return Err(Error::NotDirectory);
        };
        let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
        loop {
            let state = self.state();
            let Some((name, node)) = listing.names.next(&mut at, &state) else {
                break;
            };
            let found = node.map_or_else(|| self.find(&state, listing.directory, &name), Ok);
            if let Ok(attr) = found.and_then(|node| self.attr(&state, node))
                && add(len_u64(at), &name, &attr)
            {
                break;
            }
        }
        Ok(())
    }

    /// Numbers of FILE's file system.
    ///
    /// # Errors
    /// [`Error::Library`] if they can't be had.
    pub fn statfs(&self) -> Result<Statfs> {
        let state = self.state();
        let found = rustix::fs::fstatvfs(state.snapshot.file().file())
            .map_err(|errno| Library::io("statfs", errno.into()))?;
        let block_size = u32::try_from(found.f_frsize).unwrap_or(4096);
        let (free, available) = match self.options.read_only {
            Some(_) => (0, 0),
            None => (found.f_bfree, found.f_bavail),
        };
        Ok(Statfs {
            block_size,
            blocks: found.f_blocks,
            free,
            available,
            files: found.f_files,
            files_free: found.f_ffree,
        })
    }
}

/// Longest text whose tree is read before anything asks for it, in bytes. A tree takes four to ten times as much memory as its text,
/// and one of this length about a second to read.
const MAX_PREPARED: usize = 16 << 20;

/// The directories of the root.
const ROOT_DIRECTORIES: [(&str, Node); 3] = [
    ("arrays", Node::ARRAYS),
    ("blocks", Node::Blocks),
    ("info", Node::Info),
];
/// The directories of the root, with that of a FITS file around the ASDF file.
fn root_directories(state: &State) -> Vec<(&'static str, Node)> {
    let mut directories = ROOT_DIRECTORIES.to_vec();
    if state.snapshot.fits().is_some() {
        directories.push((hdus::NAME, Node::Hdus));
    }
    directories
}
/// The files of `info/`.
const INFO_FILES: [(&str, Node); 3] = [
    ("arrays.tsv", Node::ArraysTsv),
    ("blocks.tsv", Node::BlocksTsv),
    ("status", Node::Status),
];

/// The name of block `n`.
fn block_name(n: impl Display) -> OsString {
    format!("{n}.bin").into()
}

/// `N` of `N.bin`, spelled as it is listed.
fn block_number(name: &OsStr) -> Option<u32> {
    let digits = name.to_str()?.strip_suffix(".bin")?;
    let n = digits.parse::<u32>().ok()?;
    (n.to_string() == digits).then_some(n)
}

/// An index into memory; `usize` has at least 32 bits where there is FUSE.
fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_names_are_spelled_in_one_way() {
        for (name, want) in [
            ("0.bin", Some(0)),
            ("12.bin", Some(12)),
            ("012.bin", None),
            ("+1.bin", None),
            (".bin", None),
            ("1", None),
        ] {
            assert_eq!(block_number(name.as_ref()), want, "{name}");
        }
    }
}
