//! Threads for requests that may take long, so that some of fuser's threads are always free for others.
//!
//! Of a mount with files on servers, all requests but those that change something go through them: such a request is refused for a far
//! file, which the lookup before it has opened as a rule. If the file has been closed since, a thread of fuser's asks the server. Of other
//! mounts, opens of `info/status` do, opens for writing of one of many files, and reads that have to decode, or to make a view, while all but
//! one of fuser's threads do the same.
//!
//! Whoever waits for such an answer can be killed: see [`pending`](super::pending). What is decoded for nobody else ends then. When a signal
//! ends the daemon, no request waits for a server any more, and none decodes for longer than [`LAST`]: its caller gets an error, and closes
//! its files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fuser::{Errno, Request};

use super::Shim;
use super::pending::{Callers, PendingReply};
use crate::codec::caller::{Wanted, while_wanted};
use crate::codec::pool::Pool;

/// The most threads. If all of them are busy, further requests are served on fuser's threads.
const MOST: usize = 512;

/// How long a request may take, that waits for no server, when the daemon is to end.
const LAST: Duration = Duration::from_secs(1);

/// What serves the requests that may take long.
pub(super) struct Waiters {
    pool: Arc<Pool>,
    /// The requests that are served. Held for moments.
    callers: Arc<Mutex<Callers>>,
    /// Whether the daemon is to end.
    is_ending: Arc<AtomicBool>,
    /// How many of fuser's threads may serve such requests themselves.
    most_here: usize,
    /// One more reference for each of them that does.
    here: Arc<()>,
}

impl Shim {
    /// Serves a request that may wait for a server; see [`Shim::serve_if`].
    pub(super) fn serve<R: Send + 'static>(
        &self,
        request: &Request,
        answer: (R, fn(R, Errno)),
        serve: impl FnOnce(&Self, &PendingReply<R>) + Send + 'static,
    ) {
        self.serve_if(self.is_far, request, answer, serve);
    }

    /// Serves a request, which may take `long` or is over at once. `serve` sends the reply; if the caller of a long one is gone before,
    /// `refuse` sends it as an error, and what is done for it ends.
    pub(super) fn serve_if<R: Send + 'static>(
        &self,
        long: bool,
        request: &Request,
        (reply, refuse): (R, fn(R, Errno)),
        serve: impl FnOnce(&Self, &PendingReply<R>) + Send + 'static,
    ) {
        let pending = PendingReply::new(reply, refuse);
        if !long {
            return serve(self, &pending);
        }
        let pending = Arc::new(pending);
        Callers::watch(&self.waiters.callers, request.pid(), &pending);
        let (shim, asked) = (self.clone(), Arc::clone(&pending));
        let (is_far, is_ending) = (self.is_far, Arc::clone(&self.waiters.is_ending));
        let begun = Instant::now();
        let is_late =
            move || is_ending.load(Ordering::Relaxed) && (is_far || begun.elapsed() > LAST);
        let wanted: Wanted = Arc::new(move || asked.is_wanted() && !is_late());
        self.waiters
            .run(move || while_wanted(Some(wanted), || serve(&shim, &pending)));
    }
}

impl Waiters {
    /// No threads yet; so many of fuser's may do their work. `is_ending` says when the daemon is to end.
    pub(super) fn new(most_here: usize, is_ending: &Arc<AtomicBool>) -> Self {
        Self {
            // none waits: each of them would keep a program waiting for the others
            pool: Pool::new("waiter", MOST, 0),
            callers: Arc::default(),
            is_ending: Arc::clone(is_ending),
            most_here,
            here: Arc::default(),
        }
    }

    /// Has a thread of the pool run a job; this thread runs it if enough of fuser's are left, or if there can be no more.
    fn run(&self, job: impl FnOnce() + Send + 'static) {
        let here = Arc::clone(&self.here);
        let others = Arc::strong_count(&here).saturating_sub(2);
        if others < self.most_here {
            return job();
        }
        drop(here);
        if let Err(job) = self.pool.run(Box::new(job)) {
            // slower for others, but never refused
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn as_many_jobs_as_there_are_wait_at_once_and_beyond_the_limit_the_caller_does() {
        let waiters = Waiters::new(0, &Arc::default());
        let all = Arc::new(Barrier::new(MOST + 1));
        for _ in 0..MOST {
            let all = Arc::clone(&all);
            waiters.run(move || {
                all.wait();
            });
        }
        let here = thread::current().id();
        let (sender, receiver) = mpsc::channel();
        waiters.run(move || sender.send(thread::current().id()).unwrap());
        assert_eq!(receiver.try_recv().unwrap(), here);
        all.wait();
    }

    #[test]
    fn the_caller_runs_a_job_as_long_as_enough_like_it_are_left() {
        let waiters = Waiters::new(1, &Arc::default());
        let (sender, receiver) = mpsc::channel();
        let tell = || {
            let sender = sender.clone();
            move || sender.send(thread::current().id()).unwrap()
        };
        let here = thread::current().id();
        for _ in 0..2 {
            waiters.run(tell());
            assert_eq!(receiver.try_recv().unwrap(), here);
        }
        let _other = Arc::clone(&waiters.here);
        waiters.run(tell());
        assert_ne!(receiver.recv().unwrap(), here);
    }
}
