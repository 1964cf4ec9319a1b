//! The thread `invalidate`, which tells the kernel what has changed: to do that while a request is served could deadlock.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};

use fuser::{INodeNo, Notifier};
use log::debug;

use crate::collection::{Collection, Inode, KernelChange};
use crate::vfs::{Invalidation, Node};

/// Starts the thread, and gives the way to send it changes.
///
/// # Errors
/// If there can be no such thread.
pub(super) fn from_thread(
    files: &Arc<Collection>,
    notifier: Notifier,
) -> io::Result<Sender<KernelChange>> {
    let (sender, receiver) = mpsc::channel();
    let mut teller = Teller {
        notifier,
        collection: Arc::downgrade(files),
        files: Vec::new(),
        directories: HashSet::new(),
    };
    let thread = std::thread::Builder::new().name("invalidate".to_owned());
    thread.spawn(move || {
        for change in receiver {
            teller.tell(&change);
        }
    })?;
    Ok(sender)
}

/// What the thread knows.
struct Teller {
    notifier: Notifier,
    collection: Weak<Collection>,
    /// The files that the kernel was told to forget since the last [`Invalidation::Lookups`], by the numbers that they had then.
    files: Vec<(Node, INodeNo)>,
    /// The directories of these files.
    directories: HashSet<Inode>,
}

impl Teller {
    /// Tells the kernel of a change, and notes that it has been told, whatever it says.
    fn tell(&mut self, change: &KernelChange) {
        let (item, what) = (change.item, &change.what);
        match what {
            Invalidation::Pages(node) => self.forget(change, *node, 0),
            Invalidation::Attributes(node) => self.forget(change, *node, -1),
            Invalidation::Entry(node, name) => {
                let parent = number(Inode { item, node: *node });
                let forget = || note(what, self.notifier.inval_entry(parent, name));
                match change.kernel.upgrade() {
                    Some(kernel) => kernel.wait_for_directory(*node, Some(what), forget),
                    None => forget(),
                }
            }
            Invalidation::Lookups => self.wait_for_lookups(),
        }
        if let Some(kernel) = change.kernel.upgrade() {
            kernel.told(what);
        }
    }

    /// Has the kernel forget the attributes of a file, and its pages from `offset` on, but none if that is negative. If FILE is on
    /// a server, does so with the file of the state before as well.
    fn forget(&mut self, change: &KernelChange, node: Node, offset: i64) {
        let item = change.item;
        let file = Inode { item, node };
        let vfs = self.collection.upgrade();
        let vfs = vfs.and_then(|files| files.open_member(item));
        let epoch = vfs.as_ref().map_or(0, |vfs| vfs.file_epoch());
        for number in numbers(file, epoch) {
            note(&change.what, self.notifier.inval_inode(number, offset, 0));
            self.files.push((node, number));
        }
        let directory = vfs.and_then(|vfs| vfs.directory_of(node));
        self.directories
            .extend(directory.map(|node| Inode { item, node }));
    }

    /// Waits until the kernel has taken in all replies to lookups that may have old attributes, and has it forget these attributes.
    ///
    /// If the kernel did not know an inode, or has dropped it since, it can't tell that such a reply is older than the notification. A
    /// lookup holds the kernel's lock of its directory until the inode is made, and other processes wait for that lookup. To forget a
    /// name waits for that lock, even if there is no such name. A request that changes names in a directory waits for all lookups there
    /// itself.
    fn wait_for_lookups(&mut self) {
        for directory in std::mem::take(&mut self.directories) {
            let files = self.collection.upgrade();
            let vfs = files.and_then(|files| files.open_member(directory.item));
            let kernel = vfs.map(|vfs| Arc::clone(vfs.kernel()));
            // there is no such name, and the kernel says so
            let wait = || drop(self.notifier.inval_entry(number(directory), "/".as_ref()));
            match kernel {
                Some(kernel) => kernel.wait_for_directory(directory.node, None, wait),
                None => wait(),
            }
        }
        for (node, number) in std::mem::take(&mut self.files) {
            let told = self.notifier.inval_inode(number, -1, 0);
            note(&Invalidation::Attributes(node), told);
        }
    }
}

pub(super) fn number(inode: Inode) -> INodeNo {
    INodeNo(inode.number())
}

/// The numbers of a file that the kernel may know: that in the state before, of which files may be open that can't be read any more, and
/// that in this one.
fn numbers(file: Inode, epoch: u64) -> impl Iterator<Item = INodeNo> {
    let epochs = epoch.saturating_sub(1)..=epoch;
    epochs.map(move |epoch| INodeNo(file.number_in(epoch)))
}

/// Logs that the kernel could not be told, which may be because it does not know the file.
fn note(change: &Invalidation, told: io::Result<()>) {
    if let Err(error) = told {
        debug!("{change:?}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Item;

    /// Behind the first change of a FILE on a server the kernel was to forget attributes of inodes that it did not know.
    #[test]
    fn a_file_has_the_numbers_of_its_states() {
        let file = Inode {
            item: Item::ROOT,
            node: Node::Status,
        };
        let numbers = |epoch| numbers(file, epoch).collect::<Vec<_>>();
        assert_eq!(numbers(0), [number(file)]);
        assert_eq!(numbers(1), [number(file), INodeNo(file.number_in(1))]);
        assert_eq!(
            numbers(7),
            [6, 7].map(|epoch| INodeNo(file.number_in(epoch)))
        );
    }
}
