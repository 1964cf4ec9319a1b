//! Closed members: most requests are answered without opening them.
//!
//! A search through thousands of files lists all directories of each member and reads `tree.yaml` there. If a member was open before and
//! its file has not changed since, the names and the length of the text are known. The kernel may even have all pages of the text; those
//! that it has dropped are read from FILE. So a member is opened again only when a request needs anything else of it. Each of these
//! requests first compares FILE's attributes.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::handle::Handle;
use super::item::{Inode, Item};
use super::many::{Many, behind};
use super::members::Resolved;
use crate::error::Error as Library;
use crate::source::{PooledBuf, Source, Stat};
use crate::vfs::{self, Access, Attr, ClosedFile, Error, Node, Opened, Result, VERSIONS, Vfs};

/// `tree.yaml` of a closed member, open for reading. When the member is opened, for this file or for another reason, this becomes a handle
/// of the member like any other.
pub struct ClosedTree {
    /// The member.
    pub(super) item: Item,
    /// What the member shows until it is opened next.
    pub(super) closed: Arc<ClosedFile>,
    /// The member and its handle, once the member is open. `None` in it if there can't be a handle: this was closed, or FILE has another
    /// text.
    opened: OnceLock<Option<(Arc<Vfs>, vfs::Handle)>>,
}

impl ClosedTree {
    /// The member and its handle, if the member has been opened.
    pub(super) fn opened(&self) -> Option<(&Arc<Vfs>, &vfs::Handle)> {
        let opened = self.opened.get()?.as_ref();
        opened.map(|(vfs, handle)| (vfs, handle))
    }

    /// Opens it in its member, which has just been opened; but not if FILE has another text, as the kernel may have pages of the old one.
    pub(super) fn open_in(&self, vfs: &Arc<Vfs>) {
        // the program has a file open with a certain text: under another text it must not read on
        let is_same = vfs.text_hash() == Some(self.closed.text_hash);
        // no text has another version than 0: it gets another node
        let open = || vfs.open(self.closed.tree.node, 0, Access::default()).ok();
        let opened = is_same.then(open).flatten();
        let opened = opened.map(|opened| (Arc::clone(vfs), opened.handle));
        if let Err(Some((vfs, handle))) = self.opened.set(opened) {
            // this has been closed meanwhile
            vfs.release(&handle);
        }
    }

    /// Keeps it from being opened from now on.
    pub(super) fn close(&self) {
        // if its member has opened it already, the handle there is released instead
        let _ = self.opened.set(None);
    }
}

impl Many {
    /// What a member shows, and the attributes of its file, if the member is closed and the file has not changed since.
    fn closed(&self, item: Item) -> Option<(Arc<ClosedFile>, Stat)> {
        let (closed, then) = self.members.closed(item)?;
        let stat = self.look_at(item).ok()?;
        stat.is_untouched_since(&then).then_some((closed, stat))
    }

    /// The same, if a directory of the member is still the one with that inode number; else the member says when it is open that it is not.
    fn closed_with(&self, directory: Inode) -> Option<(Arc<ClosedFile>, Stat)> {
        let closed = self.closed(directory.item);
        closed.filter(|(closed, _)| closed.has(directory.node, directory.version))
    }

    /// The attributes of a name in a directory of a closed member.
    pub(super) fn lookup_closed(&self, parent: Inode, name: &OsStr) -> Option<Result<Attr>> {
        let (closed, stat) = self.closed_with(parent)?;
        let options = &self.options;
        match closed.lookup(parent.node, name, options)? {
            Ok(node) => closed.attr(node, &stat, options).filter(lasts).map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    /// The attributes of what is in a closed member.
    pub(super) fn attr_closed(&self, inode: Inode) -> Option<Attr> {
        let (closed, stat) = self.closed(inode.item)?;
        let attr = closed.attr(inode.node, &stat, &self.options);
        attr.filter(|attr| lasts(attr) && attr.version % VERSIONS == inode.version)
    }

    /// Opens `tree.yaml` of a closed member to be read.
    pub(super) fn open_closed(&self, inode: Inode, access: Access) -> Option<Opened<Handle>> {
        if !access.only_reads() {
            return None;
        }
        let item = inode.item;
        let (closed, _) = self.closed(item)?;
        if inode.node != closed.tree.node {
            return None;
        }
        let tree = Arc::new(ClosedTree {
            item,
            closed,
            opened: OnceLock::new(),
        });
        let opened = self.members.open_closed(&tree);
        opened.then(|| Opened {
            handle: Handle::Tree(tree),
            keep_cache: true,
            direct: false,
        })
    }

    /// Opens a directory of a closed member.
    ///
    /// The kernel may keep the listing, but then it looks up each name that a program uses. A program that searches uses all names of
    /// the root, so that one is listed anew, with attributes. The kernel never drops an empty listing, so it must not keep one.
    pub(super) fn opendir_closed(&self, inode: Inode) -> Option<Opened<Handle>> {
        let (closed, _) = self.closed_with(inode)?;
        let names = closed.entries(inode.node, &self.options)?;
        // a list that the kernel keeps has to be right for as long as it is kept; that of the root changes with scratch files
        let direct = names.is_empty() || inode.node == Node::Root && names.len() > 1;
        let keep_cache = !direct && self.members.keep_listing(inode, &closed);
        let handle = Handle::Names {
            directory: inode,
            names,
            kept: (!direct).then_some(closed),
        };
        Some(Opened {
            handle,
            keep_cache,
            direct,
        })
    }

    /// Whether the names of a directory that was opened before are no longer those to list. The kernel would keep them as the names of now.
    pub(super) fn is_outdated(&self, directory: &Handle) -> bool {
        let Handle::Names {
            directory,
            kept: Some(then),
            ..
        } = directory
        else {
            return false;
        };
        let now = self.closed(directory.item);
        now.is_none_or(|(now, _)| !Arc::ptr_eq(&now, then))
    }

    /// Lists names in a directory from a position on, with the attributes that are known now, unless `names_only`.
    pub(super) fn list_names(
        &self,
        directory: Inode,
        names: &[(Cow<'static, OsStr>, Node)],
        offset: u64,
        names_only: bool,
        add: &mut dyn FnMut(u64, &OsStr, Item, &Attr) -> bool,
    ) -> Result<()> {
        let Inode {
            item,
            node,
            version,
        } = directory;
        if behind(names, offset).next().is_none() {
            return Ok(());
        }
        let closed = self.closed_with(directory);
        for ((name, inside), at) in behind(names, offset) {
            let attr = match &closed {
                _ if names_only => Some(self.unknown(*inside)),
                Some((closed, stat)) => closed.attr(*inside, stat, &self.options),
                None => match self.part(item)? {
                    // it has been opened since
                    Resolved::Member(vfs) => vfs.lookup_in(node, version, name).ok(),
                    part => match self.attr(&part, *inside) {
                        Err(Error::NotFound) => None,
                        attr => Some(attr.unwrap_or_else(|_| self.unknown(*inside))),
                    },
                },
            };
            if attr.is_some_and(|attr| add(at, name, item, &attr)) {
                break;
            }
        }
        Ok(())
    }

    /// Reads bytes of `tree.yaml` that the kernel has dropped from its pages; `None` if the member has to be opened for that.
    pub(super) fn read_closed(
        &self,
        tree: &ClosedTree,
        offset: u64,
        len: u32,
    ) -> Option<PooledBuf<u8>> {
        let (closed, then) = self.members.closed(tree.item)?;
        // the member was opened since, and this with it: its handle there is read
        if !Arc::ptr_eq(&closed, &tree.closed) {
            return None;
        }
        let there = closed.first_bytes()?.saturating_sub(offset);
        let len = usize::try_from(there.min(len.into())).ok()?;
        // the text is the beginning of FILE, so that it is read without parsing anything
        let file = self.contents.file(self.way(tree.item).ok()?).ok()?;
        let file = file.open().ok()?.local?;
        let mut bytes = PooledBuf::of(len);
        file.read_exact_at(&mut bytes, offset).ok()?;
        // if the file is changed while it is read, the bytes may be of both states
        let now = Stat::from(&file.file().metadata().ok()?);
        now.is_untouched_since(&then).then_some(bytes)
    }

    /// The member of that `tree.yaml`, opened, and its handle there.
    ///
    /// # Errors
    /// [`Library::Stale`] if FILE has got another text since `tree` was opened: a program must not read half of each.
    pub(super) fn opened_tree<'a>(
        &self,
        tree: &'a ClosedTree,
    ) -> Result<(&'a Arc<Vfs>, &'a vfs::Handle)> {
        if tree.opened.get().is_none()
            && let Resolved::Unreadable {
                cause: Some(cause), ..
            } = self.part(tree.item)?
        {
            return Err(cause.into());
        }
        tree.opened().ok_or_else(|| {
            let why = "the file has changed since this was opened: open it again".to_owned();
            Library::Stale { why }.into()
        })
    }
}

/// Whether the kernel may keep these attributes: those that may not be kept are not complete.
fn lasts(attr: &Attr) -> bool {
    attr.attr_valid > Duration::ZERO
}
