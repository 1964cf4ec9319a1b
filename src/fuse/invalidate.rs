//! Tells the kernel what has changed, from a thread of its own: from inside the request that changed it, that can deadlock.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Weak, mpsc};

use fuser::{INodeNo, Notifier};
use log::debug;

use crate::vfs::{Invalidation, Node, Vfs};

/// Starts the thread.
///
/// # Errors
/// If there can be no such thread.
pub(super) fn from_thread(vfs: &Arc<Vfs>, notifier: Notifier) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel();
    vfs.on_change(sender);
    let mut teller = Teller {
        notifier,
        vfs: Arc::downgrade(vfs),
        inodes: Vec::new(),
        directories: BTreeSet::new(),
    };
    let thread = std::thread::Builder::new().name("invalidate".to_owned());
    thread.spawn(move || {
        for change in receiver {
            teller.tell(&change);
        }
    })?;
    Ok(())
}

struct Teller {
    notifier: Notifier,
    vfs: Weak<Vfs>,
    /// The inodes that the kernel was to forget.
    inodes: Vec<u64>,
    /// Their directories.
    directories: BTreeSet<u64>,
}

impl Teller {
    fn tell(&mut self, change: &Invalidation) {
        let vfs = self.vfs.upgrade();
        let vfs = vfs.as_deref();
        match change {
            Invalidation::Inode(ino) => self.forget(change, *ino, 0, vfs),
            Invalidation::Attributes(ino) => self.forget(change, *ino, -1, vfs),
            Invalidation::Entry(parent, name) => {
                note(change, self.notifier.inval_entry(INodeNo(*parent), name));
            }
            Invalidation::Lookups => self.wait_for_lookups(),
        }
        if let Some(vfs) = vfs {
            vfs.told(change);
        }
    }

    fn forget(&mut self, change: &Invalidation, ino: u64, offset: i64, vfs: Option<&Vfs>) {
        let told = self.notifier.inval_inode(INodeNo(ino), offset, 0);
        let is_unknown = matches!(&told, Err(error) if error.kind() == io::ErrorKind::NotFound);
        // a rename holds the lock of the root, and is only answered when the kernel has been told of all
        let directory = vfs.and_then(|vfs| vfs.directory_of(ino));
        let waits = |directory: &u64| is_unknown || *directory != Node::Root.ino();
        self.directories.extend(directory.filter(waits));
        self.inodes.push(ino);
        note(change, told);
    }

    /// Waits until the kernel has taken in the replies to lookups that may have the attributes of before, and has it forget those.
    ///
    /// Where the kernel did not know an inode, or has dropped it since, it can't tell that such a reply is older than the
    /// notification. A lookup holds the lock of its directory until the inode is made, and other processes join it until then.
    /// Forgetting a name waits for that lock, even if there is no such name.
    fn wait_for_lookups(&mut self) {
        for directory in std::mem::take(&mut self.directories) {
            // there is no such name, and the kernel says so
            let _ = self.notifier.inval_entry(INodeNo(directory), "/".as_ref());
        }
        for ino in std::mem::take(&mut self.inodes) {
            let told = self.notifier.inval_inode(INodeNo(ino), -1, 0);
            note(&Invalidation::Attributes(ino), told);
        }
    }
}

fn note(change: &Invalidation, told: io::Result<()>) {
    if let Err(error) = told {
        debug!("{change:?}: {error}");
    }
}
