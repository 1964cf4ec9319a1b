//! Many files: looking names up, and opening members.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::contents::Contents;
use super::item::{Inode, Item, Items, Kind};
use super::members::{Members, Opened, Past, Slot, Unreadable, stamp};
use super::{Change, How, Opener, connect, report};
use crate::codec::Cache;
use crate::error::Error as Library;
use crate::vfs::{self, Answers, Attr, Error, Kernel, Node, Result, Statfs, Vfs};

/// A file that could not be read is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);

/// Many files.
pub struct Many {
    pub(super) contents: Contents,
    pub(super) how: How,
    opener: Box<Opener>,
    cache: Arc<Cache>,
    items: Mutex<Items>,
    pub(super) members: Members,
    /// What members tell the kernel through.
    wire: OnceLock<(Sender<Change>, Answers)>,
    /// How long the table of all files was when it was made last, in bytes.
    pub(super) table_len: AtomicU64,
}

/// What an item is.
pub(super) enum Part {
    /// A member.
    Member(Arc<Vfs>),
    /// A member whose file can't be read.
    Unreadable(Arc<Unreadable>),
    /// A directory of the collection.
    Directory,
    /// What there is to say of the collection.
    Report,
}

impl Many {
    pub(super) fn new(
        contents: Contents,
        how: How,
        opener: Box<Opener>,
        cache: Arc<Cache>,
    ) -> Self {
        Self {
            contents,
            members: Members::new(how.open),
            how,
            opener,
            cache,
            items: Mutex::default(),
            wire: OnceLock::new(),
            table_len: AtomicU64::new(0),
        }
    }

    pub(super) fn connect(&self, changes: Sender<Change>, answers: Answers) {
        let _ = self.wire.set((changes, answers));
    }

    pub(super) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.how.read_only
    }

    pub(super) fn items(&self) -> MutexGuard<'_, Items> {
        // a thread that panicked with it left the table itself whole
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an item is, opened if it is a member.
    pub(super) fn part(&self, item: Item) -> Result<Part> {
        if item == Item::REPORT {
            return Ok(Part::Report);
        }
        let kind = self.items().kind(item);
        match kind.ok_or(Error::NotFound)? {
            Kind::Directory => Ok(Part::Directory),
            Kind::Member => Ok(match self.opened(item)? {
                Opened::Vfs(vfs) => Part::Member(vfs),
                Opened::Unreadable(why) => Part::Unreadable(why),
            }),
        }
    }

    /// The member of an item, if it is open.
    pub(super) fn open_member(&self, item: Item) -> Option<Arc<Vfs>> {
        match self.members.open(item)? {
            Opened::Vfs(vfs) => Some(vfs),
            Opened::Unreadable(_) => None,
        }
    }

    fn opened(&self, item: Item) -> Result<Opened> {
        let (slot, opened) = self.in_table(item);
        match opened? {
            Opened::Vfs(vfs) if vfs.is_out_of_date() => {
                // its file can no longer be read; but what is in use or not saved stays
                drop((slot, vfs));
                self.members.close(item);
            }
            // what prevented it may have passed although the file is the same, as a lack of descriptors does
            Opened::Unreadable(then)
                if self.has_changed(item, &then)? || then.since.elapsed() > RETRY =>
            {
                self.members.forget(item, &slot);
            }
            opened => return Ok(opened),
        }
        self.in_table(item).1
    }

    /// A member as it is in the table, opened if it is not there.
    fn in_table(&self, item: Item) -> (Arc<Slot>, Result<Opened>) {
        let slot = self.members.slot(item);
        let opened = slot.get_or_init(|| self.open(item)).clone();
        if opened.is_err() {
            self.members.forget(item, &slot);
        }
        (slot, opened)
    }

    /// Whether the file of a member is another one than that which could not be read.
    fn has_changed(&self, item: Item, then: &Arc<Unreadable>) -> Result<bool> {
        let now = self.look_at(item);
        if now.is_err() {
            self.members.close(item);
        }
        Ok(stamp(&now?) != stamp(&then.meta))
    }

    /// Opens the file of a member.
    fn open(&self, item: Item) -> Result<Opened> {
        let meta = self.look_at(item)?;
        self.members.close_others_of(item, &meta);
        let kernel = Arc::<Kernel>::default();
        if let Some((changes, answers)) = self.wire.get() {
            connect(item, &kernel, changes.clone(), answers.clone());
        }
        let vfs = match (self.opener)(&self.contents.file(self.way(item)?), kernel) {
            Ok(vfs) => vfs,
            // perhaps because it is gone
            Err(why) => {
                self.look_at(item)?;
                let since = Instant::now();
                return Ok(Opened::Unreadable(Arc::new(Unreadable {
                    why,
                    meta,
                    since,
                })));
            }
        };
        let stamp = stamp(&vfs.metadata());
        let before = self.members.past(item);
        let last = before.map_or(0, |past| past.last);
        let unchanged = before.filter(|past| past.stamp == stamp);
        let past = unchanged.unwrap_or(Past {
            stamp,
            base: last,
            last,
        });
        vfs.number_behind(past.base, past.last);
        if before.is_some() && unchanged.is_none() {
            vfs.tell_all();
        }
        self.members.remember(item, past);
        Ok(Opened::Vfs(Arc::new(vfs)))
    }

    /// The way to an item from the root.
    pub(super) fn way(&self, item: Item) -> Result<PathBuf> {
        self.items().path(item).ok_or(Error::NotFound)
    }

    /// The attributes that the file or directory of an item has now.
    fn look_at(&self, item: Item) -> Result<Metadata> {
        let (way, kind) = {
            let items = self.items();
            (items.path(item), items.kind(item))
        };
        let way = way.ok_or(Error::NotFound)?;
        let looked = self.contents.look_at(&way);
        let (found, meta) = looked.map_err(|error| failed(&way, error))?;
        (Some(found) == kind).then_some(meta).ok_or(Error::NotFound)
    }

    /// The attributes of an item.
    pub(super) fn attr_of_item(&self, item: Item) -> Result<Attr> {
        if item == Item::REPORT {
            return self.attr(&Part::Report, Node::Root);
        }
        let kind = self.items().kind(item).ok_or(Error::NotFound)?;
        Ok(self.item_attr(kind, &self.look_at(item)?))
    }

    /// The attributes of an item with that file or directory.
    ///
    /// Those of a member are the same whether it is open or not. How many directories are in it is not known without opening it:
    /// then a directory has one name.
    fn item_attr(&self, kind: Kind, meta: &Metadata) -> Attr {
        use std::os::unix::fs::MetadataExt;
        let options = &self.how.options;
        let mut attr = Attr::of_file(Node::Root, vfs::Kind::Directory, 0, meta, options);
        if kind == Kind::Directory {
            let perm = meta.mode() & 0o555 & !options.umask;
            attr.perm = u16::try_from(perm).unwrap_or(0);
        }
        attr
    }

    /// The item of a name in a directory that is no member, or the file in one that can't be read.
    pub(super) fn lookup(&self, part: &Part, parent: Inode, name: &OsStr) -> Result<(Item, Attr)> {
        let Inode { item, node } = parent;
        if !matches!(part, Part::Directory) {
            let node = report::find(part, node, name)?;
            return Ok((item, self.attr(part, node)?));
        }
        if report::takes(item, name) {
            return Ok((Item::REPORT, self.attr(&Part::Report, Node::Root)?));
        }
        let way = self.way(item)?.join(name);
        match self.contents.look_at(&way) {
            Ok((kind, meta)) => {
                let found = self.items().of(item, kind, name);
                let found = found.ok_or(Error::TooBig("2^24 names are known"))?;
                Ok((found, self.item_attr(kind, &meta)))
            }
            Err(error) => {
                let known = self.items().find(item, Kind::Member, name);
                // so that the space of a file that was removed becomes free
                if let Some(known) = known {
                    self.members.close(known);
                }
                Err(failed(&way, error))
            }
        }
    }

    /// The names in a directory that is no member, or in one that can't be read.
    pub(super) fn names(&self, part: &Part, inode: Inode) -> Result<Vec<(OsString, Inode)>> {
        let Inode { item, node } = inode;
        if !matches!(part, Part::Directory) {
            let names = report::names(part, node)?;
            let names = names.into_iter();
            return Ok(names
                .map(|(name, node)| (name.into(), Inode { item, node }))
                .collect());
        }
        let way = self.way(item)?;
        let entries = self.contents.entries(&way);
        let entries = entries.map_err(|error| failed(&way, error))?;
        let mut items = self.items();
        // the report has that name, where it is looked up
        let entries = entries.into_iter();
        let entries = entries.filter(|entry| !report::takes(item, &entry.name));
        let entries = entries.filter_map(|entry| {
            let inode = Inode {
                item: items.of(item, entry.kind, &entry.name)?,
                node: Node::Root,
            };
            Some((entry.name, inode))
        });
        Ok(entries.collect())
    }

    pub(super) fn statfs(&self) -> Result<Statfs> {
        let file = self.contents.any_file();
        let file = file.map_err(|cause| Library::io("statfs", cause))?;
        Statfs::of(&file, self.how.read_only)
    }

    /// The attributes of an own part of the collection that is not an item.
    pub(super) fn attr(&self, part: &Part, node: Node) -> Result<Attr> {
        if !report::has(part, node) {
            return Err(Error::NotFound);
        }
        let kind = report::kind(node);
        let meta = match part {
            Part::Unreadable(unreadable) => unreadable.meta.clone(),
            _ => self.look_at(Item::ROOT)?,
        };
        let size = match kind {
            vfs::Kind::Directory => 0,
            _ => self.text_len(part, node)?,
        };
        let mut attr = Attr::of_file(node, kind, size, &meta, &self.how.options);
        if let Part::Report = part {
            // it names what may be closed to other users: it is for the one who mounted it
            attr.uid = rustix::process::geteuid().as_raw();
            attr.gid = rustix::process::getegid().as_raw();
            attr.perm = match kind {
                vfs::Kind::Directory => 0o500,
                _ => 0o400,
            };
        }
        Ok(attr)
    }

    /// Lines of each member that is open, with its name.
    pub(super) fn of_members(&self, lines: impl Fn(&Vfs) -> Vec<String>) -> Vec<String> {
        let mut all = self.open_by_path();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let lines = all.into_iter().flat_map(|(path, vfs)| {
            let lines = lines(&vfs).into_iter();
            lines
                .map(|line| format!("{}: {line}", path.display()))
                .collect::<Vec<_>>()
        });
        lines.collect()
    }

    /// The members that are open and can be read.
    pub(super) fn open_by_path(&self) -> Vec<(PathBuf, Arc<Vfs>)> {
        let all = self.members.all();
        let items = self.items();
        let open = all.into_iter().filter_map(|(item, opened)| match opened {
            Opened::Vfs(vfs) => Some((items.path(item)?, vfs)),
            Opened::Unreadable(_) => None,
        });
        open.collect()
    }

    pub(super) fn end(&self) -> bool {
        // each says what is lost
        let ends = self.open_by_path().into_iter().map(|(_, vfs)| vfs.end());
        ends.filter(|ended| !ended).count() == 0
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
                Some(vfs) => path.push(vfs.path_of(inode.node)),
                None => path.push(format!("{:?}", inode.node)),
            }
        }
        path.extend(name);
        path.display().to_string()
    }
}

/// Why a file of the collection can't be had.
fn failed(way: &std::path::Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NotFound,
        _ => Library::io(way.display().to_string(), error).into(),
    }
}
