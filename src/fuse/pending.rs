//! Replies to requests that may take long. If the caller is being killed, it gets an error at once, so that it can end.
//!
//! The kernel tells of a kill by FUSE_INTERRUPT, which fuser does not pass on, and of no program that has ended while pages are read for it.
//! So the thread `killed` looks at the callers of requests that take long. What is done for such a request then ends at its next step; what
//! other programs wait for, they begin again.

use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use fuser::Errno;
use log::debug;

use crate::save::processes::is_ending;
use crate::vfs::locked;

/// How long the thread waits before it looks at the callers again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A reply that is yet to be sent, and a function that sends it as an error.
pub(super) struct PendingReply<R> {
    reply: Mutex<Option<R>>,
    refuse: fn(R, Errno),
}

impl<R> PendingReply<R> {
    /// A reply that `refuse` can send as an error.
    pub(super) fn new(reply: R, refuse: fn(R, Errno)) -> Self {
        Self {
            reply: Mutex::new(Some(reply)),
            refuse,
        }
    }

    /// Has the reply sent, unless that was done before. Whether it has.
    pub(super) fn send(&self, send: impl FnOnce(R)) -> bool {
        let reply = locked(&self.reply).take();
        let is_wanted = reply.is_some();
        if let Some(reply) = reply {
            send(reply);
        }
        is_wanted
    }

    /// Whether the reply is still to be sent.
    pub(super) fn is_wanted(&self) -> bool {
        locked(&self.reply).is_some()
    }

    /// Adds something to the reply; `None` if the reply was sent before.
    pub(super) fn add<T>(&self, add: impl FnOnce(&mut R) -> T) -> Option<T> {
        locked(&self.reply).as_mut().map(add)
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

/// The requests that are being served, at whose callers the thread `killed` looks as long as there are any.
#[derive(Default)]
pub(super) struct Callers {
    /// The calling thread of each, and its reply as long as it is served.
    requests: Vec<(u32, Weak<dyn Interruptible>)>,
    /// Whether the thread `killed` is there.
    are_looked_at: bool,
}

impl Callers {
    /// Adds a request, and starts the thread `killed` if it is not there. `caller`: the thread that made the request.
    pub(super) fn watch<R: Send + 'static>(
        callers: &Arc<Mutex<Self>>,
        caller: u32,
        reply: &Arc<PendingReply<R>>,
    ) {
        let reply = Arc::downgrade(reply);
        let mut list = locked(callers);
        list.requests.push((caller, reply));
        if list.are_looked_at {
            return;
        }
        let callers = Arc::clone(callers);
        let thread = thread::Builder::new().name("killed".to_owned());
        match thread.spawn(move || while Self::look(&callers) {}) {
            Ok(_) => list.are_looked_at = true,
            // then the next request tries again
            Err(error) => debug!("no thread for callers that are killed: {error}"),
        }
    }

    /// Waits a moment, then answers the requests whose callers are being killed. Whether requests are left.
    fn look(callers: &Mutex<Self>) -> bool {
        thread::sleep(LOOK_EVERY);
        let mut list = locked(callers);
        list.requests.retain(|(_, reply)| reply.strong_count() > 0);
        // decided with the list locked: a request that comes now starts a thread if this one is about to end
        list.are_looked_at = !list.requests.is_empty();
        // `/proc` is read without the lock, as a look at a process may block
        let requests = list.requests.clone();
        drop(list);
        let killed = requests.iter().filter(|(caller, _)| is_ending(*caller));
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
        let callers = Arc::<Mutex<Callers>>::default();
        for _ in 0..2 {
            let pending = Arc::new(PendingReply::new((), |(), _| ()));
            Callers::watch(&callers, std::process::id(), &pending);
            assert!(locked(&callers).are_looked_at);
            drop(pending);
            while locked(&callers).are_looked_at {
                thread::yield_now();
            }
            assert!(locked(&callers).requests.is_empty());
        }
    }
}
