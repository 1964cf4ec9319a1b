//! The directories of which the kernel holds the lock for a request.

use std::sync::Arc;

use super::{Invalidation, Kernel, Node, locked};

/// Directories that the kernel keeps locked until it has the reply to a request that changes names in them, or sets an attribute of one.
/// Drop this just before that reply.
///
/// The kernel forgets a name under the lock of its directory. If the thread `invalidate` waited for that lock while the request waits for
/// `invalidate`, the reply would come only when patience ends; and if the daemon were killed meanwhile, neither wait would ever end. So
/// `invalidate` leaves names in such a directory for later. If it waits for the lock already, because the kernel took it before the
/// request came here, the reply does not wait for `invalidate`.
pub struct Held {
    kernel: Arc<Kernel>,
    directories: Vec<Node>,
}

impl Held {
    /// Whether the thread `invalidate` waits for one of these directories, and so for the reply.
    pub(super) fn is_waited_for(&self) -> bool {
        let waited_for = locked(&self.kernel.under_way).waited_for;
        waited_for.is_some_and(|directory| self.directories.contains(&directory))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut under_way = locked(&self.kernel.under_way);
        for directory in &self.directories {
            if let Some(at) = under_way.held.iter().position(|it| it == directory) {
                under_way.held.swap_remove(at);
            }
        }
        let names = std::mem::take(&mut under_way.held_back);
        let (still, free) = names.into_iter().partition(|name| under_way.holds(name));
        under_way.held_back = still;
        drop(under_way);
        drop(self.kernel.announce(free, None));
    }
}

impl Kernel {
    /// Notes that the kernel keeps these directories locked for a request.
    #[must_use]
    pub fn hold(self: &Arc<Self>, directories: &[Node]) -> Held {
        locked(&self.under_way).held.extend(directories);
        Held {
            kernel: Arc::clone(self),
            directories: directories.to_vec(),
        }
    }

    /// Runs `wait`, which waits for the kernel's lock of a directory; for the thread `invalidate`. If a request holds the directory, `wait`
    /// is not run: no reply to a lookup in it can be under way then, and the kernel is told of `later` when the directory is free.
    pub fn wait_for_directory(
        &self,
        directory: Node,
        later: Option<&Invalidation>,
        wait: impl FnOnce(),
    ) {
        let mut under_way = locked(&self.under_way);
        if under_way.held.contains(&directory) {
            under_way.held_back.extend(later.cloned());
            return;
        }
        under_way.waited_for = Some(directory);
        drop(under_way);
        wait();
        locked(&self.under_way).waited_for = None;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::tests::{FILE, slow};
    use super::*;
    use crate::vfs::Answers;

    #[test]
    fn a_directory_is_held_until_the_last_request_lets_go_of_it() {
        let kernel = Arc::new(Kernel::default());
        let rename = kernel.hold(&[Node::Root, Node::Root]);
        let link = kernel.hold(&[Node::Root, Node::Blocks]);
        drop(rename);
        let is_waited_for = |directory| {
            let waited_for = Cell::new(false);
            kernel.wait_for_directory(directory, None, || waited_for.set(true));
            waited_for.get()
        };
        assert!(!is_waited_for(Node::Root) && !is_waited_for(Node::Blocks));
        drop(link);
        assert!(is_waited_for(Node::Root) && is_waited_for(Node::Blocks));
    }

    #[test]
    fn a_request_does_not_wait_for_names_in_the_directory_that_it_holds() {
        let (kernel, changes) = slow();
        let kernel = Arc::new(kernel);
        let name = |directory| Invalidation::Entry(directory, "x".into());
        let held = kernel.hold(&[Node::Blocks]);
        kernel.tell(name(Node::Blocks));
        kernel.settle();
        kernel.tell(name(Node::Root));
        assert_eq!(changes.try_iter().collect::<Vec<_>>(), [name(Node::Root)]);
        drop(held);
        assert_eq!(changes.try_iter().collect::<Vec<_>>(), [name(Node::Blocks)]);
    }

    /// The kernel takes the lock of a directory, looks into it, and then sends the rename: the thread may wait for the lock by then. The
    /// reply was as late as patience lasts.
    #[test]
    fn a_reply_does_not_wait_for_the_thread_that_waits_for_it() {
        let (kernel, changes) = slow();
        let _ = kernel.answers.set(Answers::from_thread().unwrap());
        let kernel = Arc::new(kernel);
        let (waiting, waits) = channel();
        let (replied, answer) = channel();
        let teller = Arc::clone(&kernel);
        let teller = std::thread::spawn(move || {
            teller.wait_for_directory(Node::Root, None, || {
                waiting.send(()).unwrap();
                answer.recv_timeout(Duration::from_mins(1)).unwrap();
            });
        });
        waits.recv().unwrap();
        kernel.tell(Invalidation::Pages(FILE));
        let held = kernel.hold(&[Node::Root]);
        kernel.reply_when_settled(Some(held), move || replied.send(()).unwrap());
        teller.join().unwrap();
        assert!(changes.try_iter().next().is_some());
    }
}
