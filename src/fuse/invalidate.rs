//! Tells the kernel what has changed, from a thread of its own: from inside the request that changed it, that can deadlock.

use std::collections::HashSet;
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
    vfs.kernel().on_change(sender);
    let mut teller = Teller {
        notifier,
        vfs: Arc::downgrade(vfs),
        files: Vec::new(),
        directories: HashSet::new(),
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
    /// The files that the kernel was to forget.
    files: Vec<Node>,
    /// Their directories.
    directories: HashSet<Node>,
}

impl Teller {
    fn tell(&mut self, change: &Invalidation) {
        let vfs = self.vfs.upgrade();
        let vfs = vfs.as_deref();
        match change {
            Invalidation::Pages(file) => self.forget(change, *file, 0, vfs),
            Invalidation::Attributes(file) => self.forget(change, *file, -1, vfs),
            Invalidation::Entry(parent, name) => {
                note(
                    change,
                    self.notifier.inval_entry(INodeNo(parent.ino()), name),
                );
            }
            Invalidation::Lookups => self.wait_for_lookups(),
        }
        if let Some(vfs) = vfs {
            vfs.kernel().told(change);
        }
    }

    fn forget(&mut self, change: &Invalidation, file: Node, offset: i64, vfs: Option<&Vfs>) {
        let told = self.notifier.inval_inode(INodeNo(file.ino()), offset, 0);
        let is_unknown = matches!(&told, Err(error) if error.kind() == io::ErrorKind::NotFound);
        // a rename holds the lock of the root, and is only answered when the kernel has been told of all
        let directory = vfs.and_then(|vfs| vfs.directory_of(file));
        let waits = |directory: &Node| is_unknown || *directory != Node::Root;
        self.directories.extend(directory.filter(waits));
        self.files.push(file);
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
            let _ = self
                .notifier
                .inval_entry(INodeNo(directory.ino()), "/".as_ref());
        }
        for file in std::mem::take(&mut self.files) {
            let told = self.notifier.inval_inode(INodeNo(file.ino()), -1, 0);
            note(&Invalidation::Attributes(file), told);
        }
    }
}

fn note(change: &Invalidation, told: io::Result<()>) {
    if let Err(error) = told {
        debug!("{change:?}: {error}");
    }
}
