//! The directories and files of a collection, by number, and the inode numbers that follow.
//!
//! An inode number is `item << 42 | version << 32 | node ^ item`: 22 bits for the directory or file of the collection, 10 bits for the
//! version of the file in it, and 32 bits for that file as [`Node::ino`] has it. The low bits are mixed with the item because Linux finds inodes by a hash of which the high bits of the
//! number decide next to nothing: the roots of 100,000 members would be in a few chains, and each lookup would walk one of them. The
//! mount of one file is item 0, so its inode numbers are those of its nodes at first.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::source::Stat;
use crate::vfs::{Node, VERSIONS};

/// How far the version is shifted in an inode number.
const VERSION_SHIFT: u32 = 32;
/// How far the item is shifted.
const SHIFT: u32 = VERSION_SHIFT + VERSIONS.trailing_zeros();
/// The number of items that there can be.
pub(super) const MAX: u32 = 1 << (u64::BITS - SHIFT);

/// A directory or a file of the collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item(u32);

impl Item {
    /// The root of the mount: its top directory, or its only file.
    pub const ROOT: Self = Self(0);
    /// The directory with what there is to say of the collection.
    pub const REPORT: Self = Self(1);

    /// What tells it from others.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// What the kernel knows a file of the mount by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inode {
    /// Of which item.
    pub item: Item,
    /// Which file in it.
    pub node: Node,
    /// The remainder of its version, see [`VERSIONS`].
    pub version: u64,
}

impl Inode {
    /// A file of an item that has this version.
    #[must_use]
    pub fn new(item: Item, node: Node, version: u64) -> Self {
        let version = version % VERSIONS;
        Self {
            item,
            node,
            version,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u64 {
        let item = u64::from(self.item.0);
        (item << SHIFT) | (self.version << VERSION_SHIFT) | (self.node.ino() ^ item)
    }

    /// The inode with that number, whether it exists or not.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let item = number >> SHIFT;
        let node = Node::from_ino((number ^ item) & ((1 << VERSION_SHIFT) - 1))?;
        let version = number >> VERSION_SHIFT;
        let item = Item(u32::try_from(item).ok()?);
        Some(Self::new(item, node, version))
    }
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ItemKind {
    /// A directory of the collection.
    Directory,
    /// A file, which is shown as a directory.
    Member,
}

impl ItemKind {
    /// The kind of a directory or file of the collection with these attributes.
    pub(super) fn of(stat: &Stat) -> Self {
        if stat.is_directory() {
            Self::Directory
        } else {
            Self::Member
        }
    }
}

/// The items that something has asked for, or that were listed. A name keeps its number for the life of the mount, also while
/// there is no such file.
#[derive(Debug)]
pub(super) struct Items {
    known: Vec<NamedItem>,
    /// By directory and kind, then by name.
    numbers: HashMap<(Item, ItemKind), HashMap<Arc<OsStr>, Item>>,
}

#[derive(Debug)]
struct NamedItem {
    parent: Item,
    kind: ItemKind,
    name: Arc<OsStr>,
}

impl Default for Items {
    fn default() -> Self {
        let own = || NamedItem {
            parent: Item::ROOT,
            kind: ItemKind::Directory,
            name: Arc::from(OsStr::new("")),
        };
        Self {
            known: vec![own(), own()],
            numbers: HashMap::new(),
        }
    }
}

impl Items {
    /// The item of that name and kind in a directory; nothing when there are [`MAX`].
    pub(super) fn of(&mut self, parent: Item, kind: ItemKind, name: &OsStr) -> Option<Item> {
        let names = self.numbers.entry((parent, kind)).or_default();
        if let Some(item) = names.get(name) {
            return Some(*item);
        }
        let number = u32::try_from(self.known.len()).ok();
        let item = Item(number.filter(|number| *number < MAX)?);
        let name: Arc<OsStr> = Arc::from(name);
        names.insert(Arc::clone(&name), item);
        self.known.push(NamedItem { parent, kind, name });
        Some(item)
    }

    /// The items of these names in a directory; none of those for which there is no number left.
    pub(super) fn of_all<'a>(
        &mut self,
        parent: Item,
        entries: impl Iterator<Item = (&'a OsStr, ItemKind)>,
    ) -> Vec<Item> {
        let mut out: Vec<Item> = Vec::with_capacity(entries.size_hint().0);
        for (name, kind) in entries {
            // most directories are read in the order in which they were numbered
            let next = out.last().map(|last| Item(last.0.saturating_add(1)));
            let next = next.filter(|next| {
                let known = self.get(*next);
                known.is_some_and(|known| {
                    known.parent == parent && known.kind == kind && *known.name == *name
                })
            });
            out.extend(next.or_else(|| self.of(parent, kind, name)));
        }
        out
    }

    /// The item of that name and kind in a directory, if it has been numbered.
    pub(super) fn find(&self, parent: Item, kind: ItemKind, name: &OsStr) -> Option<Item> {
        self.numbers.get(&(parent, kind))?.get(name).copied()
    }

    /// What an item is; nothing if there is none of that number.
    pub(super) fn kind(&self, item: Item) -> Option<ItemKind> {
        Some(self.get(item)?.kind)
    }

    /// The member behind this one in the same directory, if one was numbered there: listings number members in their order.
    pub(super) fn behind(&self, item: Item) -> Option<Item> {
        let next = Item(item.0.checked_add(1)?);
        let (here, there) = (self.get(item)?, self.get(next)?);
        let follows = there.parent == here.parent && there.kind == ItemKind::Member;
        follows.then_some(next)
    }

    /// Of what is in a directory, the item itself, or the directory that it lies below.
    pub(super) fn within(&self, directory: Item, item: Item) -> Option<Item> {
        let mut at = item;
        while at != Item::ROOT {
            let parent = self.get(at)?.parent;
            if parent == directory {
                return Some(at);
            }
            at = parent;
        }
        None
    }

    /// The name of an item in its directory.
    pub(super) fn name(&self, item: Item) -> Option<&OsStr> {
        Some(&self.get(item)?.name)
    }

    /// The way to an item from the root.
    pub(super) fn path(&self, item: Item) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = item;
        while at != Item::ROOT {
            let known = self.get(at)?;
            names.push(&*known.name);
            at = known.parent;
        }
        Some(names.into_iter().rev().collect())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    fn get(&self, item: Item) -> Option<&NamedItem> {
        self.known.get(usize::try_from(item.0).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_inode_is_found_by_its_number(item in 0..MAX, n in 0_u32..1 << 28, version: u64) {
            for node in [Node::Root, Node::Status, Node::Block(n), Node::ArrayDir(n), Node::Tree(n)] {
                let inode = Inode::new(Item(item), node, version);
                prop_assert_eq!(Inode::from_number(inode.number()), Some(inode));
                let next = Inode::new(Item(item), node, version.wrapping_add(1));
                prop_assert_ne!(next.number(), inode.number());
            }
        }

        #[test]
        fn any_number_is_an_inode_or_none(number: u64) {
            if let Some(inode) = Inode::from_number(number) {
                prop_assert_eq!(inode.number(), number);
            }
        }
    }

    /// With the same low bits, `ls -l` of 100,000 files took a minute.
    #[test]
    fn the_roots_of_items_differ_in_the_low_bits() {
        let low = |item| {
            let node = Node::Root;
            let item = Item(item);
            Inode::new(item, node, 0).number() & 0xffff
        };
        let all: std::collections::HashSet<_> = (0..1 << 16).map(low).collect();
        assert_eq!(all.len(), 1 << 16);
    }

    #[test]
    fn the_only_file_of_a_mount_has_the_numbers_of_its_nodes() {
        let node = Node::Block(7);
        assert_eq!(Inode::new(Item::ROOT, node, 0).number(), node.ino());
    }

    #[test]
    fn a_name_keeps_its_number_and_has_another_as_another_kind() {
        let mut items = Items::default();
        let mut of = |parent, kind, name: &str| items.of(parent, kind, name.as_ref()).unwrap();
        let sub = of(Item::ROOT, ItemKind::Directory, "sub");
        let file = of(sub, ItemKind::Member, "a.asdf");
        assert_eq!(of(sub, ItemKind::Member, "a.asdf"), file);
        assert_ne!(of(sub, ItemKind::Directory, "a.asdf"), file);
        assert_ne!(of(Item::ROOT, ItemKind::Member, "a.asdf"), file);
        assert_eq!(items.path(file), Some(PathBuf::from("sub/a.asdf")));
        assert_eq!(items.path(Item::ROOT), Some(PathBuf::new()));
        let within = |directory, item| items.within(directory, item);
        assert_eq!(within(sub, file), Some(file));
        assert_eq!(within(Item::ROOT, file), Some(sub));
        assert_eq!(within(file, sub).or(within(file, file)), None);
        assert_eq!(items.kind(sub), Some(ItemKind::Directory));
        assert_eq!(items.path(Item(99)), None);
        let name = |name: &'static str| (OsStr::new(name), ItemKind::Member);
        let known = items.len();
        let again = ["a.asdf", "b.asdf", "c.asdf"].map(name);
        let first = items.of_all(sub, again.into_iter());
        assert_eq!((first[0], items.len()), (file, known + 2));
        // the number behind that of "c" is that of "d" in another directory
        let other = items.of(Item::ROOT, ItemKind::Member, OsStr::new("d.asdf"));
        assert_eq!(other, Some(Item(first[2].0 + 1)));
        let changed = ["c.asdf", "d.asdf", "b.asdf", "a.asdf"].map(name);
        let second = items.of_all(sub, changed.into_iter());
        assert_eq!(
            [second[0], second[2], second[3]],
            [first[2], first[1], first[0]]
        );
        assert_eq!(items.path(second[1]), Some(PathBuf::from("sub/d.asdf")));
        assert_eq!(items.name(second[1]), Some(OsStr::new("d.asdf")));
    }
}
