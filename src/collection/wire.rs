//! The ways from all members to the kernel.

use std::sync::mpsc::Sender;
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
    /// Has the kernel hand over what maps of a file have changed, and returns when it has; `false` if that can't be waited for now.
    pub maps: Arc<dyn Fn(Inode) -> bool + Send + Sync>,
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
        let hand_over = move |node| maps(Inode { item, node });
        kernel.connect(tell, self.answers.clone(), hand_over);
    }
}
