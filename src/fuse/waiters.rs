//! Threads for requests that may wait for a server, so that fuser's threads, which serve the mount, do not.
//!
//! All requests but those that change something go through them: such a request is refused for a far file, which the lookup before it has
//! opened as a rule. If the file has been closed since, a thread of fuser's asks the server.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fuser::{Errno, Request};
use log::debug;

use super::Shim;
use super::pending::{Callers, PendingReply};
use crate::vfs::locked;

/// The most threads. If all of them wait for servers, further requests wait on fuser's threads.
const MOST: usize = 512;

/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);

/// The threads. One is started when all others are busy, and ends when it has nothing to do.
#[derive(Default)]
pub(super) struct Waiters {
    /// Held for moments.
    queue: Mutex<WaiterQueue>,
    /// Signalled when there is a job.
    come: Condvar,
    /// The requests that they serve. Held for moments.
    callers: Arc<Mutex<Callers>>,
}

#[derive(Default)]
struct WaiterQueue {
    jobs: VecDeque<Box<dyn FnOnce() + Send>>,
    threads: usize,
    /// Threads that have no job.
    idle: usize,
}

impl Shim {
    /// Serves a request that may wait for a server. `serve` sends the reply; if the caller is killed before, `refuse` sends it as an error.
    pub(super) fn serve<R: Send + 'static>(
        &self,
        request: &Request,
        (reply, refuse): (R, fn(R, Errno)),
        serve: impl FnOnce(&Self, &PendingReply<R>) + Send + 'static,
    ) {
        let pending = PendingReply::new(reply, refuse);
        match &self.waiters {
            None => serve(self, &pending),
            Some(waiters) => {
                let shim = self.clone();
                let pending = Arc::new(pending);
                Callers::watch(&waiters.callers, request.pid(), &pending);
                waiters.run(move || serve(&shim, &pending));
            }
        }
    }
}

impl Waiters {
    /// Has a thread of these run a job; this thread runs it if there can be no more.
    pub(super) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = locked(&self.queue);
        let has_idle = state.idle > state.jobs.len();
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
