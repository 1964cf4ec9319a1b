//! What the kernel is told to forget. The thread `invalidate` tells it: a thread that serves the request which changed something could
//! deadlock with the kernel. Until the kernel has been told, the file is *stale*: the kernel's pages of it may be older than what is
//! shown.
//!
//! The page that holds the end of a file has zeros behind the end. If the kernel learnt of a larger size before it has forgotten that page,
//! programs that read on would get those zeros. So a reply about a stale file has the old attributes.
//!
//! One race is the kernel's own. It takes in the attributes of a reply without a lock that stat(2) takes: first until when they are
//! valid, then the size. A stat(2) of another process between the two gives the old size; the next one gives the new size.

mod held;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use self::held::Held;
use super::attr::VALID;
use super::node::Node;
use super::{Error, Invalidation, Result, State, locked};

/// The longest that a request waits for the kernel to forget: the kernel may hold the page until it has the reply to this very request.
const PATIENCE: Duration = Duration::from_millis(200);

/// What the kernel is to be told of one FILE. The threads that tell the kernel and that answer late are those of the mount.
pub struct Kernel {
    tell: OnceLock<Box<Tell>>,
    answers: OnceLock<Answers>,
    hand_over: OnceLock<Box<HandOver>>,
    under_way: Mutex<UnderWay>,
    /// Signalled when the kernel has been told of something.
    told: Condvar,
    patience: Duration,
}

/// Takes a change for the thread that tells the kernel; `false` when there is no such thread any more.
type Tell = dyn Fn(&Invalidation) -> bool + Send + Sync;

/// Has the kernel hand over what maps of a file have changed, and returns when it has; `false` if that can't be waited for now.
type HandOver = dyn Fn(Node) -> bool + Send + Sync;

/// Changes that the kernel has not been told of, and the directories that requests hold.
#[derive(Default)]
struct UnderWay {
    /// The files whose pages the kernel is to forget, each with the changes that it has not been told of, the oldest first.
    stale: HashMap<Node, VecDeque<FileChange>>,
    /// How many changes were announced since the start, and of how many of these the kernel has been told.
    announced: u64,
    told: u64,
    /// Directories of which the kernel holds the lock, see [`Held`]: each as often as requests do.
    held: Vec<Node>,
    /// Names in them that the kernel is to forget when they are held no more.
    held_back: Vec<Invalidation>,
    /// The directory for whose lock the thread that tells the kernel waits, if it does.
    waited_for: Option<Node>,
}

/// A change of a file.
struct FileChange {
    announced: Instant,
    /// The state by which the kernel knows the file until it has been told, if that is another one.
    before: Option<Arc<State>>,
}

/// The way to the thread `answers`, which runs what it is sent, one after the other: each waits until the kernel has been told, and
/// replies. So no thread that serves requests has to wait.
#[derive(Clone)]
pub struct Answers(Sender<Box<dyn FnOnce() + Send>>);

impl Answers {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be no such thread.
    pub fn from_thread() -> std::io::Result<Self> {
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        let answer = move || receiver.into_iter().for_each(|answer| answer());
        let thread = std::thread::Builder::new().name("answers".to_owned());
        thread.spawn(answer)?;
        Ok(Self(sender))
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            tell: OnceLock::new(),
            answers: OnceLock::new(),
            hand_over: OnceLock::new(),
            under_way: Mutex::default(),
            told: Condvar::new(),
            patience: PATIENCE,
        }
    }
}

/// Changes that are about to be made. Drop this when they are made: then the kernel is told of them. If it was told before, it would ask
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
    pub(super) fn is_stale(&self, file: Node) -> bool {
        locked(&self.under_way).stale.contains_key(&file)
    }

    /// The state whose attributes the kernel is to get of a file, if that is not the state that is shown.
    pub(super) fn before(&self, file: Node) -> Option<Arc<State>> {
        let under_way = locked(&self.under_way);
        let oldest = under_way.stale.get(&file)?.front()?;
        // a program that gets the old size for long could not read what is new
        let recent = oldest.announced.elapsed() < self.patience;
        oldest.before.clone().filter(|_| recent)
    }

    /// Waits until the kernel has forgotten the pages of a file, so that it can be told of its size.
    pub(super) fn wait_for(&self, file: Node) {
        let begun = Instant::now();
        let mut under_way = locked(&self.under_way);
        // a request waits for no longer than one change may take, however many follow
        while let Some(newest) = under_way.stale.get(&file).and_then(VecDeque::back)
            && let since = newest.announced.min(begun)
            && let Some(left) = self.patience.checked_sub(since.elapsed())
        {
            under_way = self.wait(under_way, left);
        }
    }

    /// Waits until the kernel has been told of so many changes, at most for so long from `since` on.
    fn wait_until_told(&self, count: u64, since: Instant, patience: Duration) {
        let mut under_way = locked(&self.under_way);
        while under_way.told < count
            && let Some(left) = patience.checked_sub(since.elapsed())
        {
            under_way = self.wait(under_way, left);
        }
    }

    /// Waits until the kernel has been told of something, or for so long. The lock is free meanwhile.
    fn wait<'a>(
        &self,
        under_way: MutexGuard<'a, UnderWay>,
        left: Duration,
    ) -> MutexGuard<'a, UnderWay> {
        let waited = self.told.wait_timeout(under_way, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Announces changes before they are made; see [`Announced`]. `before`: the state that is shown until then.
    pub(super) fn announce(
        &self,
        mut changes: Vec<Invalidation>,
        before: Option<&Arc<State>>,
    ) -> Announced<'_> {
        // Pages first: the kernel forgets a name only when no process looks into its directory, and such a process may wait for pages.
        changes.sort_by_key(|change| with_pages(change).is_none());
        let is_entry = |change: &Invalidation| matches!(change, Invalidation::Entry(..));
        if !changes.iter().all(is_entry) {
            changes.push(Invalidation::Lookups);
        }
        if self.tell.get().is_some() {
            let mut under_way = locked(&self.under_way);
            let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
            under_way.announced = under_way.announced.saturating_add(count);
            for file in changes.iter().filter_map(with_pages) {
                under_way
                    .stale
                    .entry(file)
                    .or_default()
                    .push_back(FileChange {
                        announced: Instant::now(),
                        before: before.map(Arc::clone),
                    });
            }
        }
        Announced {
            kernel: self,
            changes,
        }
    }

    /// Has the kernel told of a change that has been made, and that is not one of size.
    pub(super) fn tell(&self, change: Invalidation) {
        drop(self.announce(vec![change], None));
    }

    /// Sends changes that have been made to the thread that tells the kernel. A name in a directory that a request holds is kept
    /// back: to forget it, the kernel would wait for that request.
    fn send(&self, changes: Vec<Invalidation>) {
        // without a mount there is no kernel to tell
        let Some(tell) = self.tell.get() else {
            return;
        };
        for change in changes {
            let mut under_way = locked(&self.under_way);
            if under_way.holds(&change) {
                // it counts as told: no reply waits for it
                under_way.note_told(&change);
                under_way.held_back.push(change);
                self.told.notify_all();
            } else if !tell(&change) {
                under_way.note_told(&change);
                self.told.notify_all();
            }
        }
    }

    /// Notes that the kernel has been told.
    pub fn told(&self, change: &Invalidation) {
        locked(&self.under_way).note_told(change);
        self.told.notify_all();
    }

    /// Where to send what the kernel is to be told, where answers wait for that, and how it is asked for what maps of a file have changed;
    /// the first call counts.
    pub fn connect(
        &self,
        tell: impl Fn(&Invalidation) -> bool + Send + Sync + 'static,
        answers: Answers,
        hand_over: impl Fn(Node) -> bool + Send + Sync + 'static,
    ) {
        let _ = self.answers.set(answers);
        let _ = self.hand_over.set(Box::new(hand_over));
        let _ = self.tell.set(Box::new(tell));
    }

    /// Returns when all that maps of a file have changed was handed over, however much that is: a page comes with each request, so a large
    /// map takes seconds. The caller has no lock that a write to the file takes.
    ///
    /// # Errors
    /// [`Error::Busy`] if so many requests wait for maps that no thread would be left to serve the pages.
    pub(super) fn take_in_maps(&self, file: Node) -> Result<()> {
        // without a mount there are no maps
        let hand_over = self.hand_over.get();
        if hand_over.is_none_or(|hand_over| hand_over(file)) {
            return Ok(());
        }
        Err(Error::Busy(
            "too many other requests wait for what maps of files have changed: try again",
        ))
    }

    /// Whether the kernel has been told of all that has changed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.untold().is_none()
    }

    /// Waits until the kernel has forgotten what has changed so far.
    pub fn settle(&self) {
        if let Some(count) = self.untold() {
            self.wait_until_told(count, Instant::now(), self.patience);
        }
    }

    /// Runs `reply` when the kernel has forgotten what has changed so far, so that the program that saved finds the new sizes. Drops `held`,
    /// the directories that the request holds, just before.
    pub fn reply_when_settled(
        self: &Arc<Self>,
        held: Option<Held>,
        reply: impl FnOnce() + Send + 'static,
    ) {
        let is_waited_for = held.as_ref().is_some_and(Held::is_waited_for);
        let reply = move || {
            drop(held);
            reply();
        };
        let untold = self.untold().filter(|_| !is_waited_for);
        let Some((after, answers)) = untold.zip(self.answers.get()) else {
            return reply();
        };
        let (kernel, since) = (Arc::downgrade(self), Instant::now());
        let answer = move || {
            if let Some(kernel) = kernel.upgrade() {
                // after `VALID` the kernel forgets attributes by itself
                let patience = kernel.patience.max(VALID);
                kernel.wait_until_told(after, since, patience);
            }
            reply();
        };
        if let Err(unsent) = answers.0.send(Box::new(answer)) {
            (unsent.0)();
        }
    }

    /// How many changes have been announced, if the kernel has not been told of all.
    fn untold(&self) -> Option<u64> {
        let under_way = locked(&self.under_way);
        (under_way.told < under_way.announced).then_some(under_way.announced)
    }
}

impl UnderWay {
    /// Counts a change as told. Its file is stale no more if it was the last change of it.
    fn note_told(&mut self, change: &Invalidation) {
        self.told = self.told.saturating_add(1);
        if let Some(file) = with_pages(change)
            && let Entry::Occupied(mut changes) = self.stale.entry(file)
        {
            changes.get_mut().pop_front();
            if changes.get().is_empty() {
                changes.remove();
            }
        }
    }

    /// Whether a change is of a name in a directory that is held for a request.
    fn holds(&self, change: &Invalidation) -> bool {
        matches!(change, Invalidation::Entry(directory, _) if self.held.contains(directory))
    }
}

/// The file whose pages the kernel forgets by a change.
fn with_pages(change: &Invalidation) -> Option<Node> {
    match change {
        Invalidation::Pages(file) => Some(*file),
        Invalidation::Attributes(_) | Invalidation::Entry(..) | Invalidation::Lookups => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Error, Node, Vfs};

    pub(super) const FILE: Node = Node::Block(7);

    fn to(sender: Sender<Invalidation>) -> Box<Tell> {
        Box::new(move |change| sender.send(change.clone()).is_ok())
    }

    /// A kernel that is told only when the test does, however long that takes.
    pub(super) fn slow() -> (Kernel, Receiver<Invalidation>) {
        let (sender, receiver) = channel();
        let kernel = Kernel {
            patience: Duration::from_hours(1),
            ..Kernel::default()
        };
        let _ = kernel.tell.set(to(sender));
        (kernel, receiver)
    }

    #[test]
    fn an_inode_is_waited_for_until_the_kernel_has_been_told_of_all_its_changes() {
        let (kernel, changes) = slow();
        let announced = kernel.announce(vec![Invalidation::Pages(FILE); 2], None);
        assert_eq!(changes.try_recv(), Err(TryRecvError::Empty), "not made yet");
        let (went_on, waits) = channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                kernel.wait_for(Node::Block(8));
                went_on.send("another").unwrap();
                kernel.wait_for(FILE);
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
        kernel.told(&changes.recv().unwrap());
        assert_eq!(kernel.untold(), None);
    }

    #[test]
    fn pages_are_forgotten_before_names() {
        let (kernel, changes) = slow();
        let name = Invalidation::Entry(Node::Root, "x".into());
        let pages = Invalidation::Pages(FILE);
        drop(kernel.announce(vec![name.clone(), pages.clone()], None));
        assert_eq!(
            changes.try_iter().collect::<Vec<_>>(),
            [pages, name, Invalidation::Lookups]
        );
    }

    /// The file system of a streamed block that can grow, with a kernel as above.
    fn growing() -> (Vfs, Receiver<Invalidation>, impl FnMut()) {
        let sample = Sample::new().text(b"#ASDF 1.0.0\n").streamed(b"1234");
        let (dir, mut vfs) = writable(&sample);
        vfs.kernel = Arc::new(Kernel {
            patience: Duration::from_hours(1),
            ..Kernel::default()
        });
        let (sender, changes) = channel();
        let _ = vfs.kernel.tell.set(to(sender));
        let grow = move || {
            let path = dir.path().join("a.asdf");
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"56").unwrap();
        };
        (vfs, changes, grow)
    }

    #[test]
    fn a_grown_file_has_its_old_size_until_the_kernel_has_forgotten_its_end() {
        let (vfs, changes, mut grow) = growing();
        let ino = Node::Block(0);
        let size = || vfs.getattr(ino).unwrap().size;
        assert_eq!(size(), 4);
        grow();
        vfs.refresh_soon();
        assert_eq!(size(), 4, "as the kernel knows it");
        let mut changes = changes.try_iter();
        let forget = changes.find(|change| *change == Invalidation::Pages(Node::Block(0)));
        assert_eq!(size(), 4);
        vfs.kernel.told(&forget.unwrap());
        assert_eq!(size(), 6);
    }

    #[test]
    fn of_several_changes_the_kernel_is_told_one_after_the_other() {
        let (vfs, changes, mut grow) = growing();
        let ino = Node::Block(0);
        let size = || vfs.getattr(ino).unwrap().size;
        for _ in 0..2 {
            grow();
            vfs.refresh_soon();
            assert_eq!(size(), 4, "as the kernel knows it");
        }
        let forgotten: Vec<_> = changes
            .try_iter()
            .filter(|change| *change == Invalidation::Pages(Node::Block(0)))
            .collect();
        assert_eq!(forgotten.len(), 2);
        for (change, next) in forgotten.iter().zip([6, 8]) {
            vfs.kernel.told(change);
            assert_eq!(size(), next);
        }
    }

    #[test]
    fn the_request_that_notices_a_change_is_answered_by_what_was_before() {
        let (vfs, changes, mut grow) = growing();
        let size = || vfs.getattr(Node::Block(0)).unwrap().size;
        // as if the kernel forgot at once
        drop(changes);
        grow();
        vfs.refresh_soon();
        assert_eq!([size(), size()], [4, 6]);
    }

    #[test]
    fn who_opens_what_has_just_changed_is_sent_to_look_for_it_again() {
        let (vfs, changes, mut grow) = growing();
        let vfs = &vfs;
        let ino = Node::Block(0);
        grow();
        vfs.refresh_soon();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for change in changes {
                    vfs.kernel.told(&change);
                    if change == Invalidation::Lookups {
                        break;
                    }
                }
            });
            let again = vfs.open(ino, Access::default());
            assert!(matches!(again, Err(Error::NotFound)));
            let parent = Node::Blocks;
            let found = vfs.lookup(parent, "0.bin".as_ref()).unwrap();
            assert_eq!(found.size, 6);
            let opened = vfs.open(ino, Access::default()).unwrap();
            assert!(opened.keep_cache);
        });
    }

    #[test]
    fn a_reply_waits_for_what_was_announced_before_it() {
        let (vfs, changes, _grow) = growing();
        let vfs = Arc::new(vfs);
        let _ = vfs.kernel.answers.set(Answers::from_thread().unwrap());
        let (answered, replies) = channel();
        let reply = |what: &'static str| {
            let answered = answered.clone();
            vfs.kernel
                .reply_when_settled(None, move || answered.send(what).unwrap());
        };
        reply("at once");
        assert_eq!(replies.try_recv(), Ok("at once"));
        vfs.kernel.tell(Invalidation::Pages(FILE));
        reply("later");
        vfs.kernel.tell(Invalidation::Pages(FILE));
        let early = replies.recv_timeout(Duration::from_millis(100));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        for _ in 0..2 {
            assert_eq!(replies.try_recv(), Err(TryRecvError::Empty));
            vfs.kernel.told(&changes.recv().unwrap());
        }
        assert_eq!(replies.recv(), Ok("later"), "though more has changed since");
    }

    #[test]
    fn nobody_waits_for_a_kernel_that_is_not_there() {
        let (kernel, changes) = slow();
        drop(changes);
        drop(kernel.announce(vec![Invalidation::Pages(FILE)], None));
        kernel.wait_for(FILE);
        let unmounted = Kernel {
            patience: Duration::from_hours(1),
            ..Kernel::default()
        };
        drop(unmounted.announce(vec![Invalidation::Pages(FILE)], None));
        unmounted.wait_for(FILE);
        assert_eq!((kernel.untold(), unmounted.untold()), (None, None));
    }

    #[test]
    fn patience_ends() {
        let (mut kernel, _changes) = slow();
        kernel.patience = Duration::ZERO;
        drop(kernel.announce(vec![Invalidation::Pages(FILE)], None));
        kernel.wait_for(FILE);
        kernel.wait_until_told(1, Instant::now(), kernel.patience);
        assert!(kernel.is_stale(FILE));
    }
}
