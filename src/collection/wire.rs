//! The ways from all members to the kernel.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};

use super::{Inode, Item};
use crate::vfs::{Answers, Invalidation, Kernel};

/// A change that the kernel is to be told of.
pub struct KernelChange {
    /// The item that it is of.
    pub item: Item,
    /// The kernel's record of the member, which notes that the change has been told.
    pub kernel: Weak<Kernel>,
    /// What has changed.
    pub what: Invalidation,
}

/// How members tell the kernel of changes, ask it for what maps have changed, and answer late.
#[derive(Clone)]
pub struct Wire {
    /// To the thread `invalidate`.
    pub changes: Sender<KernelChange>,
    /// To the thread `answers`.
    pub answers: Answers,
    /// Has the kernel hand over what maps of a file have changed. The sender of what this gives is dropped when it has.
    pub maps: Arc<dyn Fn(Inode) -> io::Result<Receiver<()>> + Send + Sync>,
}

impl Wire {
    /// Connects a member's record of the kernel.
    pub(super) fn connect(&self, item: Item, kernel: &Arc<Kernel>) {
        let (waiting, changes) = (Arc::downgrade(kernel), self.changes.clone());
        let tell = move |what: &Invalidation| {
            let change = KernelChange {
                item,
                kernel: Weak::clone(&waiting),
                what: what.clone(),
            };
            changes.send(change).is_ok()
        };
        let maps = Arc::clone(&self.maps);
        kernel.ask_for_maps(move |node| maps(Inode { item, node }));
        kernel.connect(tell, self.answers.clone());
    }
}
