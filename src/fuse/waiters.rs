//! Threads for requests that may take long, so that some of fuser's threads are always free for others.
//!
//! Of a mount with files on servers, all requests but those that change something go through them: such a request is refused for a far
//! file, which the lookup before it has opened as a rule. If the file has been closed since, a thread of fuser's asks the server. Of other
//! mounts, reads do that have to decode, or to make a view, while all but one of fuser's threads do the same.
//!
//! Whoever waits for such an answer can be killed: see [`pending`](super::pending). What is decoded for nobody else ends then. When a signal
//! ends the daemon, no request waits for a server any more, and none decodes for longer than [`LAST`]: its caller gets an error, and closes
//! its files.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Errno, Request};
use log::debug;

use super::Shim;
use super::pending::{Callers, PendingReply};
use crate::codec::caller::{Wanted, while_wanted};
use crate::vfs::locked;

/// The most threads. If all of them are busy, further requests are served on fuser's threads.
const MOST: usize = 512;

/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);

/// How long a request may take, that waits for no server, when the daemon is to end.
const LAST: Duration = Duration::from_secs(1);

/// The threads. One is started when all others are busy, and ends when it has nothing to do.
#[derive(Default)]
pub(super) struct Waiters {
    /// Held for moments.
    queue: Mutex<WaiterQueue>,
    /// Signalled when there is a job.
    come: Condvar,
    /// The requests that they serve. Held for moments.
    callers: Arc<Mutex<Callers>>,
    /// Whether the daemon is to end.
    is_ending: Arc<AtomicBool>,
    /// How many of fuser's threads may serve such requests themselves.
    most_here: usize,
    /// How many do.
    here: AtomicUsize,
}

/// While this lives, a thread of fuser's serves a request that may take long.
struct Here<'a>(&'a AtomicUsize);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct WaiterQueue {
    jobs: VecDeque<Box<dyn FnOnce() + Send>>,
    threads: usize,
    /// Threads that have no job.
    idle: usize,
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
    /// None yet; so many of fuser's threads may do their work. `is_ending` says when the daemon is to end.
    pub(super) fn new(most_here: usize, is_ending: &Arc<AtomicBool>) -> Self {
        Self {
            is_ending: Arc::clone(is_ending),
            most_here,
            ..Self::default()
        }
    }

    /// Whether this thread of fuser's may do the work, as long as what is given lives.
    fn serves_here(&self) -> Option<Here<'_>> {
        let here = Here(&self.here);
        let others = self.here.fetch_add(1, Ordering::Relaxed);
        (others < self.most_here).then_some(here)
    }

    /// Has a thread of these run a job; this thread runs it if enough of fuser's are left, or if there can be no more.
    pub(super) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        if let Some(_here) = self.serves_here() {
            return job();
        }
        let mut state = locked(&self.queue);
        // each waiting job will take an idle thread: only one more than these is free
        let has_idle = state.idle > state.jobs.len();
        // a thread of fuser's serves it: slower for others, but never refused
        if !has_idle && state.threads >= MOST {
            drop(state);
            return job();
        }
        state.jobs.push_back(Box::new(job));
        if has_idle {
            drop(state);
            return self.come.notify_one();
        }
        state.threads = state.threads.saturating_add(1);
        drop(state);
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("waiter".to_owned());
        if let Err(error) = thread.spawn(move || shared.work()) {
            debug!("no more threads: {error}");
            let mut state = locked(&self.queue);
            state.threads = state.threads.saturating_sub(1);
            // another thread may have taken the job
            let job = state.jobs.pop_back();
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }

    /// Runs jobs until none has come for a while, and the thread is to end.
    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    /// Waits for the next job; `None` if none has come for so long that the thread is to end.
    fn next(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut state = locked(&self.queue);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state.idle = state.idle.saturating_add(1);
            let woken = self.come.wait_timeout(state, IDLE);
            let (mut now, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            now.idle = now.idle.saturating_sub(1);
            if timeout.timed_out() && now.jobs.is_empty() {
                now.threads = now.threads.saturating_sub(1);
                return None;
            }
            state = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc;

    #[test]
    fn as_many_jobs_as_there_are_wait_at_once_and_beyond_the_limit_the_caller_does() {
        let waiters = Arc::<Waiters>::default();
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
    fn a_thread_that_has_nothing_to_do_takes_the_next_job() {
        let waiters = Arc::<Waiters>::default();
        let (sender, receiver) = mpsc::channel();
        for n in 0..50 {
            let sender = sender.clone();
            waiters.run(move || sender.send(n).unwrap());
            assert_eq!(receiver.recv().unwrap(), n);
            // it may not have become idle again yet
            while locked(&waiters.queue).idle == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(locked(&waiters.queue).threads, 1);
    }
}
