//! What the kernel is told to forget. It is told from another thread, because from inside the request that changed something it
//! could not be answered; until then an inode is stale: its pages may be older than what is shown.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use super::{Invalidation, Vfs, locked};

/// The longest that a save waits for the kernel to forget what it has changed.
const SETTLING: Duration = Duration::from_millis(200);

/// What is on its way to the kernel.
#[derive(Default)]
pub(super) struct Kernel {
    changes: OnceLock<Mutex<Sender<Invalidation>>>,
    /// Stale inodes, with how often the kernel is going to be told of each.
    stale: Mutex<HashMap<u64, usize>>,
    /// Signalled when there are none.
    settled: Condvar,
}

impl Kernel {
    /// Whether the kernel's pages of a file may be older than what is shown.
    pub(super) fn is_stale(&self, ino: u64) -> bool {
        locked(&self.stale).contains_key(&ino)
    }
}

impl Vfs {
    /// Whoever tells the kernel what changed; the first call counts.
    pub fn on_change(&self, sender: Sender<Invalidation>) {
        let _ = self.kernel.changes.set(Mutex::new(sender));
    }

    /// Has the kernel told.
    pub(super) fn tell(&self, change: Invalidation) {
        // without a kernel there is nobody to tell
        let Some(sender) = self.kernel.changes.get() else {
            return;
        };
        if let Invalidation::Inode(ino) = change {
            let mut stale = locked(&self.kernel.stale);
            let times = stale.entry(ino).or_default();
            *times = times.saturating_add(1);
        }
        let _ = locked(sender).send(change);
    }

    /// Waits until the kernel has forgotten what has changed so far, so that whoever has saved sees what he has saved: its size, too.
    ///
    /// Not for long: what the kernel waits for with a page may be the answer to the request that waits here.
    pub fn settle(&self) {
        let wait =
            self.kernel
                .settled
                .wait_timeout_while(locked(&self.kernel.stale), SETTLING, |stale| {
                    !stale.is_empty()
                });
        drop(wait);
    }

    /// Notes that the kernel has been told.
    pub fn told(&self, change: &Invalidation) {
        if let Invalidation::Inode(ino) = change {
            let mut stale = locked(&self.kernel.stale);
            let left = stale.get(ino).map_or(0, |times| times.saturating_sub(1));
            if left == 0 {
                stale.remove(ino);
                if stale.is_empty() {
                    self.kernel.settled.notify_all();
                }
            } else {
                stale.insert(*ino, left);
            }
        }
    }
}
