//! Many files in one mount: directories that hold files, each of which is shown as a directory.
//!
//! # What is shown
//!
//! A [`Collection`] is one file, which is the root of the mount then, or many files: those below one directory whose names match, in
//! directories like the ones there; or a list of files, each under its own name; or what a server [lists](Listing). A file of a collection
//! is a *member*: a directory with the file's name that holds what a mount of the file alone shows. Symbolic links, other files and
//! what is mounted below the directory are not shown. `.asdf-mount` in the root tells the state of the mount; it is not listed.
//!
//! A member whose file can't be read as ASDF is a directory with `info/status`, which says why.
//!
//! # Who owns what
//!
//! A member is a [`Vfs`] and knows of no other. It gets what it shares with the others: the memory budget, and the cache with its
//! limit of decodes ([`Cache`]). The threads of the mount serve all requests. So the number of threads and the memory do not grow with the number of
//! members, and the number of descriptors grows only with that of open members.
//!
//! `fuse` calls each operation with an [`Inode`]: an item of the collection, and a node in it. An operation on a node of a member goes to
//! its `Vfs`; this module does the few that directories of the collection have. The mount of one file is a collection of one item, the
//! root, whose `Vfs` is always open: each call is passed on.
//!
//! # The life of a member
//!
//! Mounting and listing open nothing: the attributes of a member are those of its file. The kernel asks for attributes together with
//! names once it has seen that programs look at them; they are as good as those of a lookup. If each would take a request to a server,
//! only names are listed.
//!
//! - *Closed*: kept are its number, `Past`, and what is not in its file: scratch files and messages about saves (`Remains`). It has no
//!   descriptor: the bytes of files beside blocks and arrays take the mount's room for scratch files. These files are dropped when FILE is
//!   removed and no other file takes its name within some seconds. While FILE has the attributes that `Past` has, its directories are
//!   listed, and `tree.yaml` is looked up and opened for reading, by what `Past` knows (`closed`). The kernel keeps most of these listings.
//! - *Opened* by the first request for anything else in it, or while a program that goes through all members lists the arrays of the one
//!   in front of it (`ahead`). The file is read then, as when it is mounted alone, but not locked. An interrupted save is finished. The
//!   first request that changes something opens the file for writing, and locks it; if another member has locked it, under the name that
//!   the file had before, or under a second one, that member is closed for it when it is idle.
//! - *Idle* when none of its files and directories is open, no request uses it, and no refused text waits to be mended. Idle members are closed when others need their place, the one that was used longest ago first: at most
//!   `-o open` members are open, and their trees take at most some megabytes, unless more are in use at once.
//!
//! # Inode numbers
//!
//! An item gets a number when it is first listed or looked up, and a name keeps its number. In a member, a file has another inode number
//! when it shows other bytes: the number has the version of the file. A member that is opened again counts versions on from the last
//! one that any of its files had, and gives all of them other versions if FILE has changed meanwhile. So a number never comes to mean
//! another file.
//!
//! # Changes
//!
//! A name is looked up in the directory itself each time the kernel asks, at most once a second; on a server, in what the server said some
//! seconds ago. The `Vfs` of a member notices what becomes of its file, as it does when the file is mounted alone.
//!
//! # Locks
//!
//! `Renewed` keeps what a server said last of a file, or of all files below a URL. One thread holds its lock while it asks the server; a
//! thread that needs the answer, and has no earlier one, waits for that lock. It is taken under no other lock but `Saves::compared`.
//!
//! The locks of the table of members (`Members`) and of that of items are held for moments. Under the first, only those locks of a
//! `Vfs` are taken that `Vfs::is_at_rest` and `Vfs::leave` take, or `Vfs::begin_as` and `Vfs::take_up` of one that no other thread has yet;
//! the table in `vfs` has the order of all. A file is opened and closed with neither lock held: threads that want
//! the member wait for the one that opens it, and others go on. A thread that opens a file for writing, or reads it anew, holds `Saves::compared`
//! of its member, and perhaps its `Saves::writer`, when it takes the lock of the table: of a member that is in use, as that one is, no
//! lock is taken under it but that of `Shown`.
//!
//! # Security
//!
//! Files below the directory are found by openat2(2) beneath a descriptor of it, never through a link, and never where something is
//! mounted. Each file and directory has the owner and permissions of the original. The kernel checks them, directory by directory, so
//! that with `allow_other` a user reaches only what the originals allow.

mod ahead;
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
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use rustix::fs::{StatVfs, XattrFlags};

use crate::codec::Cache;
use crate::error::Error as Library;
use crate::save::FilePath;
use crate::source::PooledBuf;
use crate::vfs::{
    self, Access, Attr, Bytes, Detail, Error, Losses, Node, Opened, Result, Scratch, Vfs,
};

pub use contents::{Contents, Match};
pub use handle::Handle;
pub use item::{Inode, Item};
pub use listing::{Listable, Listed, ListedSource, Listing};
pub use report::NAME as REPORT;

use handle::NOT_OURS;
use many::Many;
use members::{Members, Resolved};

/// Opens the file of a member, or says why it can't be.
pub type Opener = dyn Fn(&FilePath) -> Result<Vfs, Unopened> + Send + Sync;

/// That the file of a member could not be opened.
pub struct Unopened {
    /// Why.
    pub why: String,
    /// The error, if it is one of the library's.
    pub cause: Option<Library>,
}

impl Unopened {
    /// Whether the system lacked descriptors or memory.
    fn is_lack(&self) -> bool {
        self.cause.as_ref().is_some_and(is_lack)
    }

    /// The error, if it tells nothing of what is in the file, which may be sound: it may not be opened, or the disk or the server has failed.
    fn outer_cause(self) -> Option<Library> {
        let is_outer =
            |error: &Library| matches!(error, Library::Io { .. } | Library::Stale { .. });
        self.cause.filter(is_outer)
    }
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
    Many(Arc<Many>),
}

impl Collection {
    /// The mount of many files. `opener` opens them, at most `open` at once unless more are in use. They share `scratch` and `cache`;
    /// `options`: what the user asked of each.
    #[must_use]
    pub fn many(
        contents: Contents,
        open: usize,
        read_only: bool,
        options: vfs::VfsOptions,
        scratch: Arc<Scratch>,
        opener: Box<Opener>,
        cache: Arc<Cache>,
    ) -> Self {
        Self::Many(Arc::new(Many {
            contents,
            members: Arc::new(Members::new(open)),
            read_only,
            options,
            scratch,
            opener,
            cache,
            items: Mutex::default(),
            table_len: AtomicU64::new(0),
            listed: AtomicU32::new(0),
        }))
    }

    /// Ends decodes as soon as `wanted` is false: a long one must not keep a file locked after the mount has ended. The last call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        match self {
            Self::One(vfs) => vfs.snapshot().cache().decode_while(wanted),
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

    /// Whether any of the files is on a server.
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

    /// What an item is, opened if it is a member.
    fn part(&self, item: Item) -> Result<Resolved> {
        match self {
            Self::One(vfs) if item == Item::ROOT => Ok(Resolved::Member(Arc::clone(vfs))),
            Self::One(_) => Err(Error::NotFound),
            Self::Many(many) => many.part(item),
        }
    }

    /// The many files; nothing of a mount of one.
    fn many_files(&self) -> Option<&Arc<Many>> {
        match self {
            Self::One(_) => None,
            Self::Many(many) => Some(many),
        }
    }

    /// The many files, if the inode is a directory of theirs or the root of a member: these are answered without opening the member.
    fn many_at_root(&self, inode: Inode) -> Option<&Arc<Many>> {
        self.many_files().filter(|_| inode.node == Node::Root)
    }

    /// The item and the attributes of a name in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`].
    pub fn lookup(&self, parent: Inode, name: &OsStr) -> Result<(Item, Attr)> {
        let Inode {
            item,
            node,
            version,
        } = parent;
        let many = self.many_files();
        if let Some(found) = many.and_then(|many| many.lookup_closed(parent, name)) {
            return Ok((item, found?));
        }
        match self.part(item)? {
            Resolved::Member(vfs) => Ok((item, vfs.lookup_in(node, version, name)?)),
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
            Resolved::Member(vfs) => vfs.getattr(inode.node, inode.version),
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
                let opened = vfs.open(inode.node, inode.version, access)?;
                Ok(Self::opened(inode.item, vfs, opened))
            }
            _ if !access.only_reads() => Err(NOT_OURS),
            part => {
                let many = many.ok_or(Error::NotFound)?;
                let text = many.text(&part, inode.node)?;
                Ok(Opened::unkept(Handle::Text(text.into_bytes())))
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
        // a tree of a closed file may have been opened since: then its handle in the member goes, too
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
    pub fn opendir(&self, inode: Inode) -> Result<Opened<Handle>> {
        let many = self.many_files();
        if let Some(opened) = many.and_then(|many| many.opendir_closed(inode)) {
            return Ok(opened);
        }
        let handle = match self.part(inode.item)? {
            Resolved::Member(vfs) => {
                if let Some(many) = many.filter(|_| inode.node == Node::ARRAYS) {
                    many.read_ahead(inode.item, &vfs);
                }
                let handle = vfs.opendir_in(inode.node, inode.version)?;
                Handle::Member(inode.item, vfs, handle)
            }
            part => many.ok_or(Error::NotFound)?.opendir(&part, inode)?,
        };
        Ok(Opened::unkept(handle))
    }

    /// Whether a directory has to be opened anew before it is listed: the kernel would keep names of before.
    #[must_use]
    pub fn is_outdated(&self, directory: &Handle) -> bool {
        let many = self.many_files();
        many.is_some_and(|many| many.is_outdated(directory))
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
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = text.get(start..).unwrap_or_default();
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let found = rest.get(..len).unwrap_or(rest);
                let mut bytes = PooledBuf::of(found.len());
                bytes.copy_from_slice(found);
                Ok(Bytes::Owned(bytes))
            }
        }
    }

    /// Lists a directory from position `offset` on, until `add` says that it is full. `add` gets the position behind the
    /// entry, its name, its item and its attributes, of which only number and kind are told if `names_only`. In a mount of many files,
    /// what takes long to find out is left for the kernel to ask.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn readdir(
        &self,
        handle: &Handle,
        offset: u64,
        names_only: bool,
        add: &mut dyn FnMut(u64, &OsStr, Item, &Attr) -> bool,
    ) -> Result<()> {
        match (self, handle) {
            (_, Handle::Member(item, vfs, handle)) => {
                let detail = match self {
                    _ if names_only => Detail::Names,
                    Self::One(_) => Detail::Full,
                    Self::Many(_) => Detail::Quick,
                };
                vfs.readdir(handle, offset, detail, &mut |at, name, attr| {
                    add(at, name, *item, attr)
                })
            }
            (Self::Many(many), Handle::Items(listed)) => {
                many.list(listed, offset, names_only, add);
                Ok(())
            }
            (
                Self::Many(many),
                Handle::Names {
                    directory, names, ..
                },
            ) => many.list_names(*directory, names, offset, names_only, add),
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

    /// The names of the extended attributes, each with a NUL behind it; of the root of a member that is not open, none.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn listxattr(&self, inode: Inode) -> Result<Vec<u8>> {
        if let Some(many) = self.many_at_root(inode)
            && many.open_member(inode.item).is_none()
        {
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
                // one text that can't be given up does not keep the others from it
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

    /// Says in the log what was not saved, when the mount has ended. Whether everything was saved.
    #[must_use]
    pub fn end(&self) -> bool {
        match self {
            Self::One(vfs) => vfs.end(),
            Self::Many(many) => many.end(),
        }
    }
}
