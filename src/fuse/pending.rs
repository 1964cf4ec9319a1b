//! Replies to requests that may wait for a server: to a program that is being killed they are sent at once, so that it can end.
//!
//! The kernel tells of this by FUSE_INTERRUPT, which fuser does not hand on. So the thread `killed` looks at the callers of the requests
//! that take long. What serves such a request goes on, as other programs may wait for the same, and has no reply to send then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use fuser::Errno;
use log::debug;

use crate::vfs::is_being_killed;

/// How long the thread waits before it looks at the callers again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A reply that is yet to be sent, and what sends it as an error.
pub(super) struct PendingReply<R> {
    reply: Mutex<Option<R>>,
    refuse: fn(R, Errno),
}

impl<R> PendingReply<R> {
    /// One that can be sent as an error by `refuse`.
    pub(super) fn new(reply: R, refuse: fn(R, Errno)) -> Self {
        Self {
            reply: Mutex::new(Some(reply)),
            refuse,
        }
    }

    /// Has it sent. Whether it was still to be sent: if not, the caller has its answer, and no use for this one.
    pub(super) fn send(&self, send: impl FnOnce(R)) -> bool {
        let reply = self.lock().take();
        let is_wanted = reply.is_some();
        if let Some(reply) = reply {
            send(reply);
        }
        is_wanted
    }

    /// Adds to it; `None` if there is nothing more to send.
    pub(super) fn add<T>(&self, add: impl FnOnce(&mut R) -> T) -> Option<T> {
        self.lock().as_mut().map(add)
    }

    fn lock(&self) -> MutexGuard<'_, Option<R>> {
        // a thread that panicked with it left the reply there, or took it
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request whose caller may be killed while it is served.
trait Interruptible: Send + Sync {
    /// Answers it with EINTR.
    fn interrupt(&self);
}

impl<R: Send> Interruptible for PendingReply<R> {
    fn interrupt(&self) {
        self.send(|reply| (self.refuse)(reply, Errno::EINTR));
    }
}

/// The requests that are being served and whose callers are looked at, by the thread `killed` as long as there are any.
#[derive(Default)]
pub(super) struct Callers(Mutex<CallerList>);

#[derive(Default)]
struct CallerList {
    /// The calling thread of each, and its reply as long as it is served.
    requests: Vec<(u32, Weak<dyn Interruptible>)>,
    /// Whether there is the thread.
    is_looked_at: bool,
}

impl Callers {
    /// Takes in a request of that thread.
    pub(super) fn watch<R: Send + 'static>(
        self: &Arc<Self>,
        caller: u32,
        reply: &Arc<PendingReply<R>>,
    ) {
        let reply = Arc::downgrade(reply);
        let mut list = self.lock();
        list.requests.push((caller, reply));
        if list.is_looked_at {
            return;
        }
        let callers = Arc::clone(self);
        let thread = thread::Builder::new().name("killed".to_owned());
        match thread.spawn(move || while callers.look() {}) {
            Ok(_) => list.is_looked_at = true,
            // then the next request tries again
            Err(error) => debug!("no thread for callers that are killed: {error}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallerList> {
        // a thread that panicked with it left the list itself whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, and answers the requests whose callers are being killed. Whether there are requests left to look at.
    fn look(&self) -> bool {
        thread::sleep(LOOK_EVERY);
        let mut list = self.lock();
        list.requests.retain(|(_, reply)| reply.strong_count() > 0);
        list.is_looked_at = !list.requests.is_empty();
        let requests = list.requests.clone();
        drop(list);
        let killed = requests
            .iter()
            .filter(|(caller, _)| is_being_killed(*caller));
        for reply in killed.filter_map(|(_, reply)| reply.upgrade()) {
            reply.interrupt();
        }
        !requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    #[test]
    fn a_reply_is_sent_once() {
        let (sent, replies) = channel();
        let refuse = |to: Sender<i32>, errno: Errno| to.send(errno.code()).unwrap();
        let pending = PendingReply::new(sent.clone(), refuse);
        assert_eq!(pending.add(|_| 5), Some(5));
        assert!(pending.send(|to| to.send(0).unwrap()));
        assert_eq!(pending.add(|_| 5), None);
        pending.interrupt();
        assert!(!pending.send(|to| to.send(0).unwrap()));
        let pending = PendingReply::new(sent, refuse);
        pending.interrupt();
        assert!(!pending.send(|to| to.send(0).unwrap()));
        drop(pending);
        assert_eq!(replies.iter().collect::<Vec<_>>(), [0, Errno::EINTR.code()]);
    }

    /// The thread ends when nothing is served any more, and another one comes with the next request.
    #[test]
    fn requests_are_looked_at_while_they_are_served() {
        let callers = Arc::<Callers>::default();
        for _ in 0..2 {
            let pending = Arc::new(PendingReply::new((), |(), _| ()));
            callers.watch(std::process::id(), &pending);
            assert!(callers.lock().is_looked_at);
            drop(pending);
            while callers.lock().is_looked_at {
                thread::yield_now();
            }
            assert!(callers.lock().requests.is_empty());
        }
    }
}
