//! Many files in one mount: directories that hold files, each of which is shown as a directory.
//!
//! # What is shown
//!
//! A [`Collection`] is one file, which is the root of the mount then, or many: the directories of one directory, mirrored, with
//! the files whose names match; or a list of files, each under its own name; or what a server [lists](Listing). A file of a collection is a *member*: a directory of
//! the file's name that holds what a mount of the file alone shows. Symbolic links, other files and what is mounted below the
//! directory are not shown. `.asdf-mount` in the root says how it all stands; a listing leaves it out.
//!
//! A member whose file can't be read as ASDF is a directory with `info/status`, which says why.
//!
//! # Who owns what
//!
//! A member is a [`Vfs`] and knows of no other. What it needs of the mount is handed to it: the budget of memory, the cache and
//! the gate that admits decodes ([`Cache`]), and its [`Kernel`], by which changes go to the one thread that tells the kernel and the one
//! that gives delayed answers. Requests are served by the threads of the mount. So threads and memory do not grow with the number of
//! members, and descriptors only with those that are open.
//!
//! `fuse` calls each operation by [`Inode`]: an item of the collection, and a node in it. An operation on a node of a member goes to
//! its `Vfs`; those few that directories of the collection have are done here. The mount of one file is a collection of one item, the
//! root, whose `Vfs` is there from the beginning: then each call is passed on as it is.
//!
//! # The life of a member
//!
//! Mounting and listing open nothing: the attributes of a member are those of its file, and a listing needs no more than these. The
//! kernel asks for them with the names once it has seen that they are looked up; they are as true then as those of a lookup, and as
//! long. Where each would be a request to a server, names are listed alone.
//!
//! - *Closed*: nothing is kept but its number, what `Past` has, and what it has left that is not in its file: scratch files, and what
//!   there is to tell of saves (`Remains`). So no descriptor: the bytes of files beside blocks and arrays are in one spool for all
//!   members. The files go when FILE is removed, and no other one has taken its name within some seconds. Its directories are
//!   listed, and `tree.yaml` looked up and opened to be read, by what `Past` has of it, if FILE's attributes are those of then (`closed`).
//! - *Opened* by the first request for anything else inside of it. The file is read then, as when it is mounted alone, but not locked; what
//!   an interrupted save has left is finished. It is opened for writing, and locked, by the first request that changes something.
//! - *Idle*, when no file or directory of it is open, no request is served, no text waits to be mended, and the
//!   kernel has been told of all changes. Members that are idle are closed when others want their place, the one that
//!   was not used for the longest time first: at most `-o open` are open, and their trees take no more than some
//!   megabytes, unless more are in use at once.
//!
//! # Inode numbers
//!
//! They last as long as the mount, though members are closed and opened again. Items are numbered when they are first listed or looked
//! up, and a name keeps its number. The number of a block is its own. Numbers under `arrays/` come from the order of the names in
//! the tree: if FILE is unchanged when it is opened again, it gives the same, and its names are made before they change, so that the
//! kernel is told. If FILE has changed, or a save had brought names in that now stand in another order, they are numbered from behind
//! the last number that it had. The kernel is told that a file of before is gone (`ESTALE`), looks its name up again, and finds the new one. A
//! number never comes to mean another array.
//!
//! # Changes
//!
//! Names are looked up in the directory itself each time the kernel asks, which it does once a second at most; far away, in what was said
//! some seconds ago. What becomes of a
//! member's file is noticed by its `Vfs`, as it is when it is mounted alone.
//!
//! # Locks
//!
//! What a server said last of a file, or of all files below a URL, is known under a lock that one thread holds while it asks; others that
//! want to know the same wait for it. No other lock is taken under it, and it is taken under none but that of a comparison (`Saver::compared`).
//!
//! The table of members (`Members`) and that of items are held for moments; of the locks of a `Vfs`, only those are taken under the
//! first that `Vfs::is_at_rest` and `Vfs::leave` take. A member is opened without either: threads that want it meanwhile wait for
//! that one, and for no other. A member is closed without them, too.
//!
//! # Security
//!
//! What is below the directory is found by openat2(2) beneath a descriptor of it, never through a link, and not where something is
//! mounted. Owner and permissions are those of each file and directory. The kernel checks them, directory by directory, so that
//! with `allow_other` no user reaches what is closed to them there.

mod closed;
mod contents;
#[cfg(feature = "remote")]
pub mod far;
mod handle;
mod item;
mod listing;
mod many;
mod members;
mod renewed;
mod report;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::fs::{StatVfs, XattrFlags};

use crate::codec::Cache;
use crate::error::Error as Library;
use crate::save::FilePath;
use crate::source::PooledBuf;
use crate::vfs::{
    self, Access, Answers, Attr, Bytes, Error, FileKind, Invalidation, Kernel, Losses, Node,
    Opened, Result, Vfs,
};

pub use contents::{Contents, Match};
pub use handle::Handle;
pub use item::{EPOCHS, Inode, Item};
pub use listing::{Listable, Listed, Listing};
pub use report::NAME as REPORT;

use handle::NOT_OURS;
use many::Many;
use members::{Members, Resolved};

/// Opens the file of a member, or says why it can't be.
pub type Opener = dyn Fn(&FilePath, Arc<Kernel>) -> Result<Vfs, Unopened> + Send + Sync;

/// That the file of a member could not be opened.
pub struct Unopened {
    /// Why.
    pub why: String,
    /// Whether there were no descriptors left, or no memory, which says nothing of the file.
    pub lacking: bool,
}

/// Whether an error says that there are no descriptors left, for this process or all, or no memory.
#[must_use]
pub fn is_lack(error: &Library) -> bool {
    matches!(error, Library::Io { cause, .. } if many::is_lack(cause))
}

/// One file, or many.
pub enum Collection {
    /// One, which is the root.
    One(Arc<Vfs>),
    /// Many, below the root.
    Many(Box<Many>),
}

/// A change that the kernel is to be told of.
pub struct KernelChange {
    /// The item that it is of.
    pub item: Item,
    /// What waits for it to be told.
    pub kernel: Weak<Kernel>,
    /// What has changed.
    pub what: Invalidation,
}

impl Collection {
    /// The mount of many files, which `opener` opens: no more than `open` at once, if no more are in use. They share `cache`, and what the
    /// user asked of each are `options`.
    #[must_use]
    pub fn many(
        contents: Contents,
        open: usize,
        read_only: bool,
        options: vfs::VfsOptions,
        opener: Box<Opener>,
        cache: Arc<Cache>,
    ) -> Self {
        Self::Many(Box::new(Many {
            contents,
            members: Members::new(open),
            read_only,
            options,
            opener,
            cache,
            items: Mutex::default(),
            wire: OnceLock::new(),
            table_len: AtomicU64::new(0),
        }))
    }

    /// Sends what the kernel is to be told to `changes`, and delayed answers through `answers`; the first call counts.
    pub fn connect(&self, changes: Sender<KernelChange>, answers: Answers) {
        match self {
            Self::One(vfs) => connect(Item::ROOT, vfs.kernel(), changes, answers),
            Self::Many(many) => drop(many.wire.set((changes, answers))),
        }
    }

    /// Decodes only while `wanted`: a long decode must not keep a file locked when the mount has ended. The last call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        match self {
            Self::One(vfs) => vfs.decode_while(wanted),
            Self::Many(many) => many.cache.decode_while(wanted),
        }
    }

    /// Whether nothing can be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::One(vfs) => vfs.is_read_only(),
            Self::Many(many) => many.read_only,
        }
    }

    /// Whether any of the files lies far away.
    #[must_use]
    pub fn has_far(&self) -> bool {
        match self {
            Self::One(vfs) => vfs.is_far(),
            Self::Many(many) => many.contents.has_far(),
        }
    }

    /// Whether there are many files.
    #[must_use]
    pub fn is_many(&self) -> bool {
        self.many_files().is_some()
    }

    /// Whether a listing comes without attributes: a server would have to be asked for those of each file.
    #[must_use]
    pub fn lists_names_only(&self) -> bool {
        self.many_files()
            .is_some_and(|many| many.contents.asks_for_each())
    }

    /// The member that an inode is of, opened if it is not.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is of none, or of one that can't be read; [`Error::NotFound`].
    pub fn member(&self, inode: Inode) -> Result<Arc<Vfs>> {
        match self.part(inode.item)? {
            Resolved::Member(vfs) => Ok(vfs),
            _ => Err(NOT_OURS),
        }
    }

    /// The member of an item, if it is open.
    #[must_use]
    pub fn open_member(&self, item: Item) -> Option<Arc<Vfs>> {
        match self {
            Self::One(vfs) => (item == Item::ROOT).then(|| Arc::clone(vfs)),
            Self::Many(many) => many.open_member(item),
        }
    }

    /// What an item is, opened if it is a member.
    fn part(&self, item: Item) -> Result<Resolved> {
        match self {
            Self::One(vfs) if item == Item::ROOT => Ok(Resolved::Member(Arc::clone(vfs))),
            Self::One(_) => Err(Error::NotFound),
            Self::Many(many) => many.part(item),
        }
    }

    /// The many files; nothing of a mount of one.
    fn many_files(&self) -> Option<&Many> {
        match self {
            Self::One(_) => None,
            Self::Many(many) => Some(many),
        }
    }

    /// The many files, if the inode is a directory of theirs or the root of a member: these are answered without opening the member.
    fn many_at_root(&self, inode: Inode) -> Option<&Many> {
        self.many_files().filter(|_| inode.node == Node::Root)
    }

    /// The item and the attributes of a name in a directory, for a thread.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn lookup(&self, parent: Inode, name: &OsStr, thread: u32) -> Result<(Item, Attr)> {
        let Inode { item, node } = parent;
        let many = self.many_files();
        if let Some(found) = many.and_then(|many| many.lookup_closed(parent, name)) {
            return Ok((item, found?));
        }
        match self.part(item)? {
            Resolved::Member(vfs) => Ok((item, vfs.lookup_by(node, name, thread)?)),
            part => many.ok_or(Error::NotFound)?.lookup(&part, parent, name),
        }
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn getattr(&self, inode: Inode) -> Result<Attr> {
        if let Some(many) = self.many_at_root(inode) {
            return many.attr_of_item(inode.item);
        }
        let many = self.many_files();
        if let Some(attr) = many.and_then(|many| many.attr_closed(inode)) {
            return Ok(attr);
        }
        match self.part(inode.item)? {
            Resolved::Member(vfs) => vfs.getattr(inode.node),
            part => many.ok_or(Error::NotFound)?.attr(&part, inode.node),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Vfs::open`].
    pub fn open(&self, inode: Inode, access: Access) -> Result<Opened<Handle>> {
        let many = self.many_files();
        if let Some(opened) = many.and_then(|many| many.open_closed(inode, access)) {
            return Ok(opened);
        }
        match self.part(inode.item)? {
            Resolved::Member(vfs) => {
                let opened = vfs.open(inode.node, access)?;
                Ok(Self::opened(inode.item, vfs, opened))
            }
            _ if !access.only_reads() => Err(NOT_OURS),
            part => {
                let many = many.ok_or(Error::NotFound)?;
                let text = many.text(&part, inode.node)?;
                Ok(Opened {
                    handle: Handle::Text(text.into_bytes()),
                    keep_cache: false,
                    direct: true,
                })
            }
        }
    }

    /// What a member has opened.
    #[must_use]
    pub fn opened(item: Item, vfs: Arc<Vfs>, opened: Opened) -> Opened<Handle> {
        Opened {
            handle: Handle::Member(item, vfs, opened.handle),
            keep_cache: opened.keep_cache,
            direct: opened.direct,
        }
    }

    /// Forgets an open file or directory.
    pub fn release(&self, handle: &Handle) {
        if let (Self::Many(many), Handle::Tree(tree)) = (self, handle) {
            many.members.release_closed(tree);
            tree.close();
        }
        if let Ok((vfs, handle)) = handle.member() {
            vfs.release(handle);
        }
    }

    /// Opens a directory. The names that it has now are those that are listed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn opendir(&self, inode: Inode) -> Result<Handle> {
        let many = self.many_files();
        if let Some(handle) = many.and_then(|many| many.opendir_closed(inode)) {
            return Ok(handle);
        }
        match self.part(inode.item)? {
            Resolved::Member(vfs) => {
                let handle = vfs.opendir(inode.node)?;
                Ok(Handle::Member(inode.item, vfs, handle))
            }
            part => many.ok_or(Error::NotFound)?.opendir(&part, inode),
        }
    }

    /// Reads at most `len` bytes at `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// As [`Vfs::read`].
    pub fn read<'a>(&self, handle: &'a Handle, offset: u64, len: u32) -> Result<Bytes<'a>> {
        match handle {
            Handle::Member(_, vfs, handle) => vfs.read(handle, offset, len),
            Handle::Tree(tree) => {
                let many = self.many_files().ok_or(Error::BadHandle)?;
                if let Some(bytes) = many.read_closed(tree, offset, len) {
                    return Ok(Bytes::Owned(bytes));
                }
                let (vfs, handle) = many.opened_tree(tree)?;
                vfs.read(handle, offset, len)
            }
            Handle::Items(_) | Handle::Names { .. } => Err(Error::IsDirectory),
            Handle::Text(text) => {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(text.len());
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let end = start.saturating_add(len).min(text.len());
                let found = text.get(start..end).unwrap_or_default();
                let mut bytes = PooledBuf::of(found.len());
                bytes.copy_from_slice(found);
                Ok(Bytes::Owned(bytes))
            }
        }
    }

    /// Lists a directory as [`Collection::list`] does, but `add` gets the item and the attributes of each name. Of many members, the
    /// kernel is to ask for what takes long to find out.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn readdir(
        &self,
        handle: &Handle,
        offset: u64,
        add: &mut dyn FnMut(u64, &OsStr, Item, &Attr) -> bool,
    ) -> Result<()> {
        match (self, handle) {
            (_, Handle::Member(item, vfs, handle)) => {
                vfs.readdir(handle, offset, self.is_many(), &mut |at, name, attr| {
                    add(at, name, *item, attr)
                })
            }
            (Self::Many(many), Handle::Items(listed)) => {
                many.list_attrs(listed, offset, add);
                Ok(())
            }
            (
                Self::Many(many),
                Handle::Names {
                    directory, names, ..
                },
            ) => many.list_names(*directory, names, offset, add),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Lists a directory from position `offset` on, until `add` says that it is full. `add` gets the position behind the
    /// entry, its name, its inode number and its kind.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn list(
        &self,
        handle: &Handle,
        offset: u64,
        add: &mut dyn FnMut(u64, &OsStr, u64, FileKind) -> bool,
    ) -> Result<()> {
        match (self, handle) {
            (_, Handle::Member(item, vfs, handle)) => {
                let (item, epoch) = (*item, vfs.file_epoch());
                vfs.list(handle, offset, &mut |at, name, node, kind| {
                    let inode = Inode { item, node };
                    let number = match kind {
                        FileKind::File => inode.number_in(epoch),
                        _ => inode.number(),
                    };
                    add(at, name, number, kind)
                })
            }
            (Self::Many(many), Handle::Items(listed)) => {
                many.list(listed, offset, add);
                Ok(())
            }
            (
                _,
                Handle::Names {
                    directory, names, ..
                },
            ) => {
                let item = directory.item;
                for ((name, node), at) in many::behind(names, offset) {
                    let number = Inode { item, node: *node }.number();
                    if add(at, name, number, vfs::kind(*node)) {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(Error::NotDirectory),
        }
    }

    /// Sizes of the file system that the files are on; `None` if they are on servers.
    ///
    /// # Errors
    /// [`Error::Library`] if the system does not tell them.
    pub fn statfs(&self) -> Result<Option<StatVfs>> {
        match self {
            Self::One(vfs) => vfs.statfs(),
            Self::Many(many) => many.statfs(),
        }
    }

    /// The value of an extended attribute, for a user.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], [`Error::NotFound`]; [`Error::NotSupported`] of access lists, labels and the like.
    pub fn getxattr(&self, inode: Inode, name: &OsStr, user: u32) -> Result<Vec<u8>> {
        if !name.as_bytes().starts_with(b"user.") {
            // `ls -l` asks for access lists and labels of each file until it is told that there are none on this file system
            return Err(Error::NotSupported("there are no attributes but user.asdf"));
        }
        let many = self.many_at_root(inode);
        if let Some(value) = many.and_then(|many| many.attribute(inode.item, name, user)) {
            return value;
        }
        match self.part(inode.item)? {
            Resolved::Member(vfs) => vfs.getxattr(inode.node, name),
            _ => Err(Error::NoAttribute),
        }
    }

    /// The names of the extended attributes, each with a NUL behind it; of a member that is not open, those that are known without
    /// opening it.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn listxattr(&self, inode: Inode) -> Result<Vec<u8>> {
        if self.many_at_root(inode).is_some() && self.open_member(inode.item).is_none() {
            return Ok(Vec::new());
        }
        match self.part(inode.item)? {
            Resolved::Member(vfs) => vfs.listxattr(inode.node),
            _ => Ok(Vec::new()),
        }
    }

    /// Sets an extended attribute, as [`Vfs::setxattr`] does. On the root of many files, or on [`REPORT`] in it, which is writable where
    /// the root is not, `user.asdf.revert` is set on all that are open: any text that was refused is of one of those.
    ///
    /// # Errors
    /// As there.
    pub fn setxattr(
        &self,
        inode: Inode,
        name: &OsStr,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        match self {
            Self::Many(many)
                if [Item::ROOT, Item::REPORT].contains(&inode.item)
                    && name == "user.asdf.revert" =>
            {
                let open = many.open_by_path().into_iter();
                let each = open.map(|(_, vfs)| vfs.setxattr(Node::Root, name, value, flags));
                // one that can't be given up keeps none of the others
                each.fold(Ok(()), Result::and)
            }
            _ => self.member(inode)?.setxattr(inode.node, name, value, flags),
        }
    }

    /// The path of a file, or of a name in a directory, below the mountpoint: for people.
    #[must_use]
    pub fn path_of(&self, inode: Option<Inode>, name: Option<&OsStr>) -> String {
        match self {
            Self::One(vfs) => vfs.path_to(inode.map(|inode| inode.node), name),
            Self::Many(many) => many.path_of(inode, name),
        }
    }

    /// What the end of the mount would lose.
    #[must_use]
    pub fn losses(&self) -> Losses {
        match self {
            Self::One(vfs) => vfs.losses(),
            Self::Many(many) => many.losses(),
        }
    }

    /// To be called when the mount has ended: says in the log what was not saved. Whether that is nothing.
    #[must_use]
    pub fn end(&self) -> bool {
        match self {
            Self::One(vfs) => vfs.end(),
            Self::Many(many) => many.end(),
        }
    }
}

/// Has what a member changes sent to the thread that tells the kernel.
fn connect(item: Item, kernel: &Arc<Kernel>, changes: Sender<KernelChange>, answers: Answers) {
    let waiting = Arc::downgrade(kernel);
    let tell = move |what: &Invalidation| {
        let change = KernelChange {
            item,
            kernel: Weak::clone(&waiting),
            what: what.clone(),
        };
        changes.send(change).is_ok()
    };
    kernel.connect(tell, answers);
}
