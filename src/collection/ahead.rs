//! Ahead of a program that lists the arrays of one member after the other: the tree of the next member is read on another core.
//!
//! A search through many files (`grep -r`, `find`) waits for the tree of each. Listings number members in their order, which is the order
//! in which programs go through them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::item::Item;
use super::many::Many;
use super::members::Resolved;
use crate::vfs::Vfs;

impl Many {
    /// Called when a program lists the arrays of a member. If the last program that did so listed those of the member in front of it, a thread
    /// that decodes ahead opens the next member, and reads its tree.
    pub(super) fn read_ahead(self: &Arc<Self>, item: Item, vfs: &Vfs) {
        let last = self.listed.swap(item.number(), Ordering::Relaxed);
        let goes_on = last.checked_add(1) == Some(item.number());
        if !goes_on || !self.members.has_room_beside(vfs) {
            return;
        }
        let Some(next) = self.items().behind(item) else {
            return;
        };
        // weak: a job that waits keeps no files open after the mount
        let many = Arc::downgrade(self);
        let job = move || {
            if let Some(many) = many.upgrade() {
                many.prepare(next);
            }
        };
        // if too many jobs wait, the tree is read when it is asked for
        let _ = self.cache.ahead.run(Box::new(job));
    }

    /// Opens a member and reads its tree, unless it is on a server, which would have to send its whole text.
    fn prepare(&self, item: Item) {
        let file = self.way(item).map(|way| self.contents.file(way));
        if matches!(file, Ok(Ok(file)) if !file.is_far())
            && let Ok(Resolved::Member(vfs)) = self.part(item)
            && self.members.has_room_beside(&vfs)
        {
            vfs.prepare();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::asdf::{OpenOptions, Snapshot};
    use crate::codec::Cache;
    use crate::collection::{Collection, Contents, Handle, Inode, Match};
    use crate::save::{Beneath, FilePath};
    use crate::vfs::{Node, Scratch, VfsOptions};
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    /// Five members, so many of which may be open, and their items.
    fn five(root: &Path, open: usize) -> (Collection, Vec<Item>) {
        for name in ["a", "b", "c", "d", "e"] {
            let path = root.join(name).with_extension("asdf");
            std::fs::write(path, Sample::new().bytes()).unwrap();
        }
        let scratch = Scratch::new(0, root);
        let of_each = Arc::clone(&scratch);
        let opener = move |path: &FilePath| {
            let file = path.open().unwrap();
            let (cache, options) = (Cache::new(1 << 20), OpenOptions::default());
            let read = Snapshot::read(file.local, file.bytes, cache, options).unwrap();
            let why = Err("a test".to_owned());
            let (options, scratch) = (VfsOptions::default(), Arc::clone(&of_each));
            Ok(Vfs::new(
                path.clone(),
                read,
                file.stat,
                why,
                options,
                scratch,
            ))
        };
        let files = Collection::many(
            Contents::Mirror(
                Arc::new(Beneath::new(root, false).unwrap()),
                Match::default(),
            ),
            open,
            true,
            VfsOptions::default(),
            scratch,
            Box::new(opener),
            Cache::new(1 << 20),
        );
        let top = files.opendir(Inode::new(Item::ROOT, Node::Root, 0));
        let Handle::Items(items) = top.unwrap().handle else {
            panic!("no directory of members");
        };
        (files, items)
    }

    #[test]
    fn the_tree_behind_two_members_that_were_listed_in_order_is_read() {
        let place = tempfile::TempDir::new().unwrap();
        for (open, ahead) in [(8, true), (1, false)] {
            let (files, items) = five(place.path(), open);
            let Collection::Many(many) = &files else {
                panic!("one file");
            };
            let list = |at: usize| {
                let arrays = Inode::new(items[at], Node::ARRAYS, 0);
                files.opendir(arrays).unwrap();
            };
            for at in [0, 2, 1, 1] {
                list(at);
            }
            assert_eq!(many.members.count(), open.min(3), "out of order");
            list(2);
            let is_read = |at: usize| {
                let opened = many.members.open(items[at]);
                matches!(opened, Some(Resolved::Member(vfs)) if !vfs.snapshot().is_unread())
            };
            let end = Instant::now() + Duration::from_secs(20);
            while ahead && !is_read(3) {
                assert!(Instant::now() < end, "not read ahead");
                thread::yield_now();
            }
            assert_eq!(many.members.count(), if ahead { 4 } else { 1 });
        }
    }
}
