//! Closed members: what is asked of most of them is answered without opening them.
//!
//! A search through thousands of files lists the root of each member and reads `tree.yaml` there. Of a member that has been open
//! before, and whose file is what it was then, all that is known: which names there are, and how long the text is. The kernel may
//! even have all pages of it. So a member is opened again only when bytes of it are read that the kernel does not have, or when
//! something else of it is asked for. FILE's attributes are compared at each of these requests.

use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};

use super::handle::Handle;
use super::item::{Inode, Item};
use super::many::Many;
use crate::error::Error as Library;
use crate::source::Stat;
use crate::vfs::{self, Access, Attr, ClosedRoot, Error, Node, Opened, Result, Vfs};

/// `tree.yaml` of a closed member, open to be read. When the member is opened, for this or for anything else, so is this there: what
/// becomes of its text then is what becomes of that of any handle.
pub struct ClosedTree {
    /// The member.
    pub(super) item: Item,
    /// FILE's attributes when it was opened.
    pub(super) stat: Stat,
    /// The member, and the handle of it there. Nothing if that can't be opened any more: this is closed, or FILE has changed.
    opened: OnceLock<Option<(Arc<Vfs>, vfs::Handle)>>,
}

impl ClosedTree {
    /// The member, and the handle of it there, if it has been opened.
    pub(super) fn opened(&self) -> Option<(&Arc<Vfs>, &vfs::Handle)> {
        let opened = self.opened.get()?.as_ref();
        opened.map(|(vfs, handle)| (vfs, handle))
    }

    /// Opens it in its member, which has just been opened; but not another text than the one that the kernel may have pages of.
    pub(super) fn open_in(&self, vfs: &Arc<Vfs>) {
        let is_same = vfs.stat().is_untouched_since(&self.stat);
        let open = || vfs.open_node(ClosedRoot::TREE, Access::default()).ok();
        let opened = is_same.then(open).flatten();
        let opened = opened.map(|opened| (Arc::clone(vfs), opened.handle));
        if let Err(Some((vfs, handle))) = self.opened.set(opened) {
            // it has been closed meanwhile
            vfs.release(&handle);
        }
    }

    /// Keeps it from being opened from now on.
    pub(super) fn close(&self) {
        // if it is opened already it stays so, until its handle is released
        let _ = self.opened.set(None);
    }
}

impl Many {
    /// What the root of a member shows, with the attributes of its file, if it is closed and its file is what it was then.
    pub(super) fn closed_root(&self, item: Item) -> Option<(ClosedRoot, Stat)> {
        let (root, then) = self.members.closed_root(item)?;
        let stat = self.look_at(item).ok()?;
        stat.is_untouched_since(&then).then_some((root, stat))
    }

    /// The attributes of a name in the root of a closed member. Nothing of a directory: who looks for one goes on into it.
    pub(super) fn lookup_closed(&self, parent: Inode, name: &OsStr) -> Option<Result<Attr>> {
        let (root, stat) = self.closed_root(in_root(parent)?)?;
        let options = &self.how.options;
        let mut entries = root.entries(options).into_iter();
        match entries.find(|entry| name == entry.0) {
            Some((_, node)) if node == ClosedRoot::TREE => {
                Some(Ok(root.attr(node, &stat, options)))
            }
            Some(_) => None,
            None => Some(Err(Error::NotFound)),
        }
    }

    /// The attributes of `tree.yaml` of a closed member.
    pub(super) fn attr_closed(&self, inode: Inode) -> Option<Attr> {
        if inode.node != ClosedRoot::TREE {
            return None;
        }
        let (root, stat) = self.closed_root(inode.item)?;
        Some(root.attr(inode.node, &stat, &self.how.options))
    }

    /// Opens `tree.yaml` of a closed member to be read.
    pub(super) fn open_closed(&self, inode: Inode, access: Access) -> Option<Opened<Handle>> {
        if inode.node != ClosedRoot::TREE || access.write || access.truncate {
            return None;
        }
        let item = inode.item;
        let (_, stat) = self.closed_root(item)?;
        let tree = Arc::new(ClosedTree {
            item,
            stat,
            opened: OnceLock::new(),
        });
        let keep_cache = self.members.open_closed(&tree)?;
        Some(Opened {
            handle: Handle::Tree(tree),
            keep_cache,
            direct: false,
        })
    }

    /// Opens the root of a closed member.
    pub(super) fn opendir_closed(&self, inode: Inode) -> Option<Handle> {
        let item = in_root(inode)?;
        let (root, _) = self.closed_root(item)?;
        let entries = root.entries(&self.how.options).into_iter();
        let names = entries.map(|(name, node)| (name, Inode { item, node }));
        Some(Handle::Root(names.collect()))
    }

    /// The member that `tree.yaml` is of, opened, and the handle there.
    ///
    /// # Errors
    /// [`Library::Stale`] if FILE is no more what it was when this was opened: what is read on must not be half of each.
    pub(super) fn opened_tree<'a>(
        &self,
        tree: &'a ClosedTree,
    ) -> Result<(&'a Arc<Vfs>, &'a vfs::Handle)> {
        if tree.opened.get().is_none() {
            self.part(tree.item)?;
        }
        tree.opened().ok_or_else(|| {
            let why = "the file has changed since this was opened: open it again".to_owned();
            Library::Stale { why }.into()
        })
    }
}

/// The member whose root this is.
fn in_root(inode: Inode) -> Option<Item> {
    (inode.node == Node::Root).then_some(inode.item)
}
