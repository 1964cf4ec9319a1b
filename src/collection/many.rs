//! Many files: looking names up, and opening members.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::contents::{Contents, unanswered};
use super::item::{Inode, Item, ItemKind, Items};
use super::members::{MemberSlot, Members, Resolved};
use super::{Handle, Opener, Unopened, report};
use log::warn;
use rustix::fs::StatVfs;

use crate::codec::Cache;
use crate::error::{Error as Library, printable};
use crate::save::FilePath;
use crate::source::{Look, Stat};
use crate::vfs::{
    self, Attr, ClosedFile, Error, FileKind, Losses, Node, Result, Scratch, Vfs, VfsOptions, locked,
};

/// A file that could not be read is tried again after so long at the earliest,
const RETRY: Duration = Duration::from_secs(1);
/// and after so many times the time that the attempt took: a server that does not answer must not be waited for at each use.
const RETRY_PAUSE: u32 = 2;

/// When a file that could not be read is tried again, if the attempt has begun then.
fn retry_after(begun: Instant) -> Instant {
    let pause = begun.elapsed().saturating_mul(RETRY_PAUSE).max(RETRY);
    let now = Instant::now();
    now.checked_add(pause).unwrap_or(now)
}

/// Many files.
pub struct Many {
    /// The directory, list or bucket whose files are shown.
    pub(super) contents: Contents,
    pub(super) read_only: bool,
    /// What the user asked of each file.
    pub(super) options: VfsOptions,
    /// The files that are in no file of a member.
    pub(super) scratch: Arc<Scratch>,
    pub(super) opener: Box<Opener>,
    /// What all members decode with.
    pub(super) cache: Arc<Cache>,
    pub(super) items: Mutex<Items>,
    /// The members that are open, and what closed ones have left.
    pub(super) members: Arc<Members>,
    /// How long the table of all files was when it was made last, in bytes.
    pub(super) table_len: AtomicU64,
    /// The number of the member whose arrays were listed last.
    pub(super) listed: AtomicU32,
}

impl Many {
    /// The table of names that were looked up, locked. No lock of a member is taken meanwhile.
    pub(super) fn items(&self) -> MutexGuard<'_, Items> {
        locked(&self.items)
    }

    /// What an item is, opened if it is a member.
    pub(super) fn part(&self, item: Item) -> Result<Resolved> {
        if item == Item::REPORT {
            return Ok(Resolved::Report);
        }
        let kind = self.items().kind(item);
        match kind.ok_or(Error::NotFound)? {
            ItemKind::Directory => Ok(Resolved::Directory),
            ItemKind::Member => self.opened(item),
        }
    }

    /// The member of an item, if it is open.
    pub(super) fn open_member(&self, item: Item) -> Option<Arc<Vfs>> {
        match self.members.open(item)? {
            Resolved::Member(vfs) => Some(vfs),
            _ => None,
        }
    }

    /// A member, opened if it is not, or if its file may be readable now.
    fn opened(&self, item: Item) -> Result<Resolved> {
        let (slot, opened) = self.in_table(item);
        match opened? {
            Resolved::Member(vfs) if vfs.is_out_of_date() => {
                // its file can no longer be read: close it, unless it is in use or has something unsaved
                drop((slot, vfs));
                self.members.close(item);
            }
            // the reason may be gone although the file is the same, such as a lack of descriptors
            Resolved::Unreadable { stat, until, .. }
                if !self.look_at(item)?.is_untouched_since(&stat) || Instant::now() > until =>
            {
                self.members.forget(item, &slot);
            }
            opened => return Ok(opened),
        }
        self.in_table(item).1
    }

    /// A member as it is in the table, opened if it is not there.
    fn in_table(&self, item: Item) -> (Arc<MemberSlot>, Result<Resolved>) {
        let slot = self.members.slot(item);
        // other threads that want the same file wait here, and get what the first one has opened
        let opened = slot.get_or_init(|| self.open(item)).clone();
        if opened.is_err() {
            self.members.forget(item, &slot);
        }
        (slot, opened)
    }

    /// Opens the file of a member.
    fn open(&self, item: Item) -> Result<Resolved> {
        let stat = self.look_at(item)?;
        // a file that was renamed in DIR is still open, and locked, under its old name
        self.members.close_others_of(item, &stat);
        let way = self.way(item)?;
        let path = self.contents.file(way.clone());
        let path = path.map_err(|error| failed(&way, error))?;
        let begun = Instant::now();
        let mut opened = (self.opener)(&path);
        if opened.as_ref().is_err_and(Unopened::is_lack) {
            self.members.close_idle();
            opened = (self.opener)(&path);
        }
        let mut vfs = match opened {
            Ok(vfs) => vfs,
            Err(unopened) if unopened.is_lack() => {
                let place = path.whole().display().to_string();
                return Err(Library::io(place, rustix::io::Errno::MFILE.into()).into());
            }
            Err(unopened) => {
                // perhaps because it is gone
                self.look_at(item)?;
                let until = retry_after(begun);
                let why: Arc<str> = unopened.why.as_str().into();
                let mut look = Look::now(stat, None);
                if path.is_far() {
                    // by its validator, which hides nothing
                    look.settles = None;
                }
                self.members.note_problem(item, look, Arc::clone(&why));
                let told = path.told().into_iter();
                return Ok(Resolved::Unreadable {
                    why,
                    told: told.filter(|(name, _)| *name != "error").collect(),
                    stat,
                    cause: unopened.outer_cause(),
                    until,
                });
            }
        };
        let trees = self.members.begin(item, &mut vfs);
        // weak: the file is one of the members, which would else never be dropped
        let members = Arc::downgrade(&self.members);
        vfs.unlock_with(move |stat| {
            if let Some(members) = members.upgrade() {
                members.close_others_of(item, &stat);
            }
        });
        let vfs = Arc::new(vfs);
        for tree in trees {
            tree.open_in(&vfs);
        }
        Ok(Resolved::Member(vfs))
    }

    /// The way to an item from the root.
    pub(super) fn way(&self, item: Item) -> Result<PathBuf> {
        self.items().path(item).ok_or(Error::NotFound)
    }

    /// The way to an item from the root, and what it is.
    fn known(&self, item: Item) -> Result<(PathBuf, ItemKind)> {
        let items = self.items();
        let known = items.path(item).zip(items.kind(item));
        known.ok_or(Error::NotFound)
    }

    /// The attributes that the file or directory of an item has now.
    pub(super) fn look_at(&self, item: Item) -> Result<Stat> {
        let (way, kind) = self.known(item)?;
        let looked = self.with_descriptors(|| self.contents.look_at(&way));
        let stat = looked.map_err(|error| failed(&way, error))?;
        // the name may be that of a directory by now
        let is_of_kind = ItemKind::of(&stat) == kind;
        is_of_kind.then_some(stat).ok_or(Error::NotFound)
    }

    /// The attributes of an item.
    pub(super) fn attr_of_item(&self, item: Item) -> Result<Attr> {
        if item == Item::REPORT {
            return self.attr(&Resolved::Report, Node::Root);
        }
        Ok(self.item_attr(&self.look_at(item)?))
    }

    /// The attributes of an item with that file or directory.
    ///
    /// Those of a member are the same whether it is open or not. How many directories are in it is not known without opening it:
    /// then a directory has one name.
    fn item_attr(&self, stat: &Stat) -> Attr {
        let options = &self.options;
        let mut attr = Attr::of_file(Node::Root, 0, stat, true, options);
        if stat.is_directory() {
            let perm = stat.permissions(options.allow_other) & 0o555 & !options.umask;
            attr.perm = u16::try_from(perm).unwrap_or(0);
        }
        attr
    }

    /// The attributes of a file or directory of an item that can't be looked at. They allow nothing and may not be kept, so that the kernel
    /// asks again at the next use, and gets the error.
    pub(super) fn unknown(&self, node: Node) -> Attr {
        Attr {
            perm: 0,
            attr_valid: Duration::ZERO,
            entry_valid: Duration::ZERO,
            ..Attr::of_file(node, 0, &unanswered(), true, &self.options)
        }
    }

    /// The item of a name in a directory that is no member, or the file in one that can't be read.
    pub(super) fn lookup(
        &self,
        part: &Resolved,
        parent: Inode,
        name: &OsStr,
    ) -> Result<(Item, Attr)> {
        let Inode { item, node, .. } = parent;
        if !matches!(part, Resolved::Directory) {
            let node = report::find(part, node, name)?;
            return Ok((item, self.attr(part, node)?));
        }
        if report::takes(item, name) {
            return Ok((Item::REPORT, self.attr(&Resolved::Report, Node::Root)?));
        }
        let way = self.way(item)?.join(name);
        match self.with_descriptors(|| self.contents.look_at(&way)) {
            Ok(stat) => {
                let found = self.items().of(item, ItemKind::of(&stat), name);
                let found = found.ok_or(Error::TooBig("a mount has at most 2^22 names"))?;
                self.members.note_there(found);
                Ok((found, self.item_attr(&stat)))
            }
            Err(error) => {
                let error = failed(&way, error);
                let known = self.items().find(item, ItemKind::Member, name);
                // closes the file, so that its space on the disk becomes free
                if let (Some(known), Error::NotFound) = (known, &error) {
                    self.note_gone(known);
                }
                Err(error)
            }
        }
    }

    /// Opens a directory that is no member, or is in one that can't be read.
    pub(super) fn opendir(&self, part: &Resolved, inode: Inode) -> Result<Handle> {
        let Inode { item, node, .. } = inode;
        if !matches!(part, Resolved::Directory) {
            let names = report::names(part, node)?.into_iter();
            let names = names.map(|(name, node)| (OsStr::new(name).into(), node));
            return Ok(Handle::Names {
                directory: inode,
                names: names.collect(),
                kept: None,
            });
        }
        let way = self.way(item)?;
        let entries = self.with_descriptors(|| self.contents.entries(&way));
        let entries = entries.map_err(|error| failed(&way, error))?;
        // taken before the entries are looked at: a member that is opened meanwhile cannot be missing
        let open = self.members.items();
        // the report has that name, where it is looked up
        let shown = entries.iter().filter(|entry| !report::takes(item, entry.0));
        let mut items = self.items();
        let listed = items.of_all(item, shown);
        let below = |member| Some((member, items.within(item, member)?));
        let below: Vec<(Item, Item)> = open.into_iter().filter_map(below).collect();
        drop(items);
        // a small set: a hundred thousand names may be listed
        let known: HashSet<Item> = below.iter().map(|(_, found)| *found).collect();
        let there = listed.iter().filter(|item| known.contains(item));
        let there: HashSet<&Item> = there.collect();
        for (member, found) in below {
            match (there.contains(&found), member == found) {
                (true, true) => self.members.note_there(member),
                // of what lies deeper, nothing is known
                (true, false) => {}
                (false, true) => self.note_gone(member),
                // its directory may be hidden only, or be there again soon: what is in the mount only stays
                (false, false) => self.members.close(member),
            }
        }
        Ok(Handle::Items(listed))
    }

    /// Lists items with the attributes that they have now. Leaves out those that are gone; for one that can't be looked at, the kernel has
    /// to ask. If `names_only`, none is looked at.
    pub(super) fn list(
        &self,
        listed: &[Item],
        offset: u64,
        names_only: bool,
        add: &mut dyn FnMut(u64, &OsStr, Item, &Attr) -> bool,
    ) {
        for (item, at) in behind(listed, offset) {
            let looked = (!names_only).then(|| self.look_at(*item));
            let attr = match looked {
                Some(Ok(stat)) => self.item_attr(&stat),
                Some(Err(Error::NotFound)) => continue,
                Some(Err(_)) | None => self.unknown(Node::Root),
            };
            // nothing is taken under the lock of the items: `add` takes that of the reply
            let name = self.items().name(*item).map(OsStr::to_owned);
            if name.is_some_and(|name| add(at, &name, *item, &attr)) {
                break;
            }
        }
    }

    /// Closes idle members whose files are gone, so that their space on the disk becomes free. What lies far away takes none, and
    /// `asdf-mount -u` must not wait for a server.
    pub(super) fn close_missing(&self) {
        if self.contents.is_far() {
            return;
        }
        for item in self.members.items() {
            let file = self.way(item).map(|way| self.contents.file(way));
            if matches!(file, Ok(Ok(file)) if file.is_far()) {
                continue;
            }
            match self.look_at(item) {
                Ok(_) => self.members.note_there(item),
                Err(Error::NotFound) => self.note_gone(item),
                Err(_) => {}
            }
        }
    }

    /// Closes a member whose file is gone, and says what goes with it.
    fn note_gone(&self, item: Item) {
        let lost = self.members.note_gone(item);
        let Ok(way) = self.way(item) else { return };
        for file in lost {
            warn!(
                "{}: removed; {file} existed only in the mount and is lost",
                way.display()
            );
        }
    }

    /// Runs `find`; if it lacks descriptors, closes idle members and runs it again.
    pub(super) fn with_descriptors<T>(&self, find: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match find() {
            Err(error) if is_lack(&error) => {
                self.members.close_idle();
                find()
            }
            found => found,
        }
    }

    /// Sizes of the disk that the files are on; `None` if they are on servers.
    pub(super) fn statfs(&self) -> Result<Option<StatVfs>> {
        let directory = self.contents.any_directory();
        let directory = directory.map_err(|cause| Library::io("statfs", cause))?;
        let sizes = directory.map(|directory| vfs::sizes_of_disk(directory, self.read_only));
        sizes.transpose()
    }

    /// The attributes of a node of the report, or of a member that can't be read.
    pub(super) fn attr(&self, part: &Resolved, node: Node) -> Result<Attr> {
        report::check(part, node)?;
        let kind = vfs::kind(node);
        let stat = match part {
            Resolved::Unreadable { stat, .. } => *stat,
            _ => self.look_at(Item::ROOT)?,
        };
        let size = match kind {
            FileKind::Directory => 0,
            _ => self.text_len(part, node)?,
        };
        let mut attr = Attr::of_file(node, size, &stat, true, &self.options);
        if matches!(part, Resolved::Unreadable { .. }) && node == Node::TREE {
            // it has another length as soon as it can be read: the kernel has to ask before it takes this for the end
            (attr.attr_valid, attr.entry_valid) = (Duration::ZERO, Duration::ZERO);
        }
        if let Resolved::Report = part {
            // the report names files that other users may not see, so only the user who mounted this may read it
            attr.uid = rustix::process::geteuid().as_raw();
            attr.gid = rustix::process::getegid().as_raw();
            attr.perm = match kind {
                // so that its owner may set an attribute, as the root is not to be written
                FileKind::Directory => 0o700,
                _ => 0o400,
            };
        }
        Ok(attr)
    }

    /// What the end of the mount would lose of each member, with its name.
    pub(super) fn losses(&self) -> Losses {
        let known = self.members.known().into_iter();
        let known = known.filter_map(|(item, known)| {
            let losses = known.map_or_else(|left| left, |vfs| vfs.losses());
            Some((self.items().path(item)?, losses))
        });
        let known: BTreeMap<_, _> = known.collect();
        let mut all = Losses::default();
        for (path, Losses { unsaved, scratch }) in known {
            let path = printable(&path.display().to_string());
            let named = |line: String| format!("{path}: {line}");
            all.unsaved.extend(unsaved.into_iter().map(named));
            all.scratch.extend(scratch.into_iter().map(named));
        }
        all
    }

    /// The members that are open and can be read.
    pub(super) fn open_by_path(&self) -> Vec<(PathBuf, Arc<Vfs>)> {
        let known = self.members.known();
        let items = self.items();
        let open = known.into_iter();
        open.filter_map(|(item, known)| Some((items.path(item)?, known.ok()?)))
            .collect()
    }

    /// Ends all members. Whether everything that was written is saved.
    pub(super) fn end(&self) -> bool {
        // each says what is lost
        let open = self.open_by_path().into_iter().map(|(_, vfs)| vfs.end());
        // a job may be opening one ahead: what an earlier one has left is lost all the same
        let closed = self.members.known().into_iter();
        let closed = closed.filter_map(|(item, known)| {
            let losses = known.err()?;
            let way = self.way(item).ok()?;
            let file = self.contents.file(way.clone()).ok();
            let path = file.as_ref().map_or(&*way, FilePath::whole);
            Some(losses.say(&path.display()))
        });
        open.chain(closed).filter(|saved| !saved).count() == 0
    }

    /// What a file is called in messages.
    pub(super) fn path_of(&self, inode: Option<Inode>, name: Option<&OsStr>) -> String {
        let way = inode.and_then(|inode| Some((self.items().path(inode.item)?, inode)));
        let Some((mut path, inode)) = way else {
            return "a file that is gone".to_owned();
        };
        if inode.item == Item::REPORT {
            path.push(report::NAME);
        }
        if inode.node != Node::Root {
            match self.open_member(inode.item) {
                Some(vfs) => path.push(vfs.path_to(Some(inode.node), None)),
                None if matches!(inode.node, Node::Tree(_)) => path.push(ClosedFile::TREE_NAME),
                None => path.push(format!("{:?}", inode.node)),
            }
        }
        path.extend(name);
        path.display().to_string()
    }
}

/// The elements of a list from a position on, each with the position behind it.
pub(super) fn behind<T>(listed: &[T], offset: u64) -> impl Iterator<Item = (&T, u64)> {
    let first = usize::try_from(offset).unwrap_or(usize::MAX);
    listed.iter().skip(first).zip(offset.saturating_add(1)..)
}

/// Whether a user has mounted this, or is root.
pub(super) fn is_owner(user: u32) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&user)
}

/// Whether an error says that there are no descriptors left, for this process or all, or no memory.
pub(super) fn is_lack(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM)
    )
}

/// Why a file of the collection can't be had.
pub(super) fn failed(way: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NotFound,
        _ => Library::io(way.display().to_string(), error).into(),
    }
}
