//! What the kernel is told to forget. It is told from another thread, because from inside the request that changed something it
//! could not be answered; until then an inode is stale: its pages may be older than what is shown.
//!
//! A page that holds the end of a file has zeros behind it. If the kernel learnt of a larger size before it has forgotten that page,
//! it would give those zeros to whoever reads on there. So the attributes of a stale inode are not told.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{Invalidation, Vfs, locked};

/// The longest that anything waits for the kernel to forget: what the kernel waits for with a page may be the answer to the very
/// request that waits here.
const PATIENCE: Duration = Duration::from_millis(200);

/// What is on its way to the kernel.
pub(super) struct Kernel {
    changes: OnceLock<Mutex<Sender<Invalidation>>>,
    stale: Mutex<HashMap<u64, Stale>>,
    /// Signalled when an inode is stale no more.
    forgotten: Condvar,
    patience: Duration,
}

/// An inode that the kernel must be told of.
struct Stale {
    /// How often it is going to be told.
    times: usize,
    since: Instant,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            changes: OnceLock::new(),
            stale: Mutex::default(),
            forgotten: Condvar::new(),
            patience: PATIENCE,
        }
    }
}

/// Changes that are going to be made. The kernel is told of them when this is dropped: not before they are made, or it would ask
/// for the old bytes again.
pub(super) struct Announced<'a> {
    kernel: &'a Kernel,
    changes: Vec<Invalidation>,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.kernel.send(changes);
    }
}

impl Kernel {
    /// Whether the kernel's pages of a file may be older than what is shown.
    pub(super) fn is_stale(&self, ino: u64) -> bool {
        locked(&self.stale).contains_key(&ino)
    }

    /// Waits until the kernel has forgotten the pages of a file, so that it can be told of its size.
    pub(super) fn wait_for(&self, ino: u64) {
        let mut stale = locked(&self.stale);
        while let Some(since) = stale.get(&ino).map(|inode| inode.since)
            && let Some(left) = self.patience.checked_sub(since.elapsed())
        {
            stale = self.wait(stale, left);
        }
    }

    /// Waits until nothing is stale.
    fn wait_for_all(&self) {
        let begun = Instant::now();
        let mut stale = locked(&self.stale);
        while !stale.is_empty()
            && let Some(left) = self.patience.checked_sub(begun.elapsed())
        {
            stale = self.wait(stale, left);
        }
    }

    fn wait<'a>(
        &self,
        stale: MutexGuard<'a, HashMap<u64, Stale>>,
        left: Duration,
    ) -> MutexGuard<'a, HashMap<u64, Stale>> {
        let waited = self.forgotten.wait_timeout(stale, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn announce(&self, changes: Vec<Invalidation>) -> Announced<'_> {
        if self.changes.get().is_some() {
            let mut stale = locked(&self.stale);
            for ino in changes.iter().filter_map(with_pages) {
                let inode = stale.entry(ino).or_insert_with(|| Stale {
                    times: 0,
                    since: Instant::now(),
                });
                inode.times = inode.times.saturating_add(1);
            }
        }
        Announced {
            kernel: self,
            changes,
        }
    }

    fn send(&self, changes: Vec<Invalidation>) {
        // without a kernel there is nobody to tell
        let Some(sender) = self.changes.get() else {
            return;
        };
        let sender = locked(sender);
        for change in changes {
            if let Err(unsent) = sender.send(change) {
                self.told(&unsent.0);
            }
        }
    }

    fn told(&self, change: &Invalidation) {
        let Some(ino) = with_pages(change) else {
            return;
        };
        let mut stale = locked(&self.stale);
        if let Some(inode) = stale.get_mut(&ino) {
            inode.times = inode.times.saturating_sub(1);
            if inode.times == 0 {
                stale.remove(&ino);
                self.forgotten.notify_all();
            }
        }
    }
}

/// The inode whose pages are forgotten.
fn with_pages(change: &Invalidation) -> Option<u64> {
    match change {
        Invalidation::Inode(ino) => Some(*ino),
        Invalidation::Attributes(_) | Invalidation::Entry(..) => None,
    }
}

impl Vfs {
    /// Whoever tells the kernel what changed; the first call counts.
    pub fn on_change(&self, sender: Sender<Invalidation>) {
        let _ = self.kernel.changes.set(Mutex::new(sender));
    }

    /// To be called before something changes and dropped after it.
    pub(super) fn announce(&self, changes: Vec<Invalidation>) -> Announced<'_> {
        self.kernel.announce(changes)
    }

    /// Has the kernel told of something that has changed, but not in its size.
    pub(super) fn tell(&self, change: Invalidation) {
        drop(self.announce(vec![change]));
    }

    /// Waits until the kernel has forgotten what has changed so far, so that whoever has saved sees what he has saved: its size, too.
    pub fn settle(&self) {
        self.kernel.wait_for_all();
    }

    /// Notes that the kernel has been told.
    pub fn told(&self, change: &Invalidation) {
        self.kernel.told(change);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};

    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::Node;
    use crate::vfs::testing::writable;

    const INO: u64 = 7;

    /// A kernel that is told only when the test does, however long that takes.
    fn slow() -> (Kernel, std::sync::mpsc::Receiver<Invalidation>) {
        let (sender, receiver) = channel();
        let kernel = Kernel {
            patience: Duration::from_hours(1),
            ..Kernel::default()
        };
        let _ = kernel.changes.set(Mutex::new(sender));
        (kernel, receiver)
    }

    #[test]
    fn nothing_is_told_of_an_inode_before_the_kernel_has_forgotten_all_of_its_changes() {
        let (kernel, changes) = slow();
        let announced = kernel.announce(vec![Invalidation::Inode(INO); 2]);
        assert_eq!(changes.try_recv(), Err(TryRecvError::Empty), "not made yet");
        let (went_on, waits) = channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                kernel.wait_for(INO + 1);
                went_on.send("another").unwrap();
                kernel.wait_for(INO);
                went_on.send("this").unwrap();
            });
            assert_eq!(waits.recv(), Ok("another"));
            drop(announced);
            for _ in 0..2 {
                assert_eq!(waits.try_recv(), Err(TryRecvError::Empty));
                kernel.told(&changes.recv().unwrap());
            }
            waiting.join().unwrap();
        });
        assert_eq!(waits.recv(), Ok("this"));
        kernel.wait_for_all();
    }

    #[test]
    fn a_grown_file_has_its_old_size_until_the_kernel_has_forgotten_its_end() {
        let sample = Sample::new().text(b"#ASDF 1.0.0\n").streamed(b"1234");
        let (dir, mut vfs) = writable(&sample);
        vfs.kernel.patience = Duration::from_hours(1);
        let (sender, changes) = channel();
        vfs.on_change(sender);
        let ino = Node::Block(0).ino();
        assert_eq!(vfs.getattr(ino, None).unwrap().size, 4);
        let path = dir.path().join("a.asdf");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"56").unwrap();
        vfs.refresh_soon();
        let (answered, answers) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| answered.send(vfs.getattr(ino, None).unwrap().size));
            let mut changes = changes.iter();
            let forget = changes.find(|change| *change == Invalidation::Inode(ino));
            let early = answers.recv_timeout(Duration::from_millis(100));
            assert_eq!(early, Err(RecvTimeoutError::Timeout));
            vfs.told(&forget.unwrap());
            assert_eq!(answers.recv(), Ok(6));
        });
    }

    #[test]
    fn nobody_waits_for_a_kernel_that_is_not_there() {
        let (kernel, changes) = slow();
        drop(changes);
        drop(kernel.announce(vec![Invalidation::Inode(INO)]));
        kernel.wait_for(INO);
        let unmounted = Kernel {
            patience: Duration::from_hours(1),
            ..Kernel::default()
        };
        drop(unmounted.announce(vec![Invalidation::Inode(INO)]));
        unmounted.wait_for(INO);
    }

    #[test]
    fn patience_ends() {
        let (mut kernel, _changes) = slow();
        kernel.patience = Duration::ZERO;
        drop(kernel.announce(vec![Invalidation::Inode(INO)]));
        kernel.wait_for(INO);
        kernel.wait_for_all();
        assert!(kernel.is_stale(INO));
    }
}
