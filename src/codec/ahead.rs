//! Ahead of readers: the threads that decode, and which readers it is done for.
//!
//! The threads start with the first job, so that a process that forks into the background before it reads has none; they end with the
//! cache. What a block has them do is in [`Decoded`](super::Decoded).

mod readers;

use std::collections::VecDeque;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

#[cfg(feature = "remote")]
pub(crate) use self::readers::Reader;
pub(crate) use self::readers::Readers;
use crate::error::lock;

/// Threads that decode ahead.
const THREADS: usize = 2;

/// Jobs that may wait; when the queue is full, no more is decoded ahead.
const QUEUE_LEN: usize = 64;

/// The jobs of a cache, and the threads that run them.
#[derive(Default)]
pub(super) struct Jobs {
    /// Not held while a job runs or a thread is joined.
    state: Mutex<JobsState>,
    /// Signalled when a job comes or the threads are to stop.
    called: Condvar,
}

/// What the threads have to do.
#[derive(Default)]
struct JobsState {
    queued: VecDeque<Box<dyn FnOnce() + Send>>,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Jobs {
    /// Queues a job; `false` if the queue is full or the threads have stopped.
    pub(super) fn later(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.lock();
        if state.stopped || state.queued.len() >= QUEUE_LEN {
            return false;
        }
        while state.threads.len() < THREADS {
            let jobs = Arc::clone(self);
            let thread = thread::Builder::new().name("asdf-ahead".to_owned());
            match thread.spawn(move || jobs.serve()) {
                Ok(thread) => state.threads.push(thread),
                Err(cause) if state.threads.is_empty() => {
                    log::warn!("no thread to read ahead with: {cause}");
                    return false;
                }
                Err(_) => break,
            }
        }
        state.queued.push_back(Box::new(job));
        drop(state);
        self.called.notify_one();
        true
    }

    /// Whether other jobs wait: a long one then goes to the end of the queue.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.lock().queued.is_empty()
    }

    /// Drops the queued jobs and waits until the running ones and their threads have ended; a job that calls this runs on.
    pub(super) fn stop(&self) {
        let (threads, jobs) = {
            let mut state = self.lock();
            state.stopped = true;
            (take(&mut state.threads), take(&mut state.queued))
        };
        self.called.notify_all();
        drop(jobs);
        for thread in threads {
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    /// Runs jobs until it is told to stop. One that panics leaves the thread to the others.
    fn serve(&self) {
        let mut state = self.lock();
        while !state.stopped {
            if let Some(job) = state.queued.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    log::error!("a job that reads ahead has panicked");
                }
                state = self.lock();
            } else {
                let woken = self.called.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, JobsState> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn stopping_waits_for_the_job_that_runs_and_drops_the_rest() {
        let all = Arc::new(Jobs::default());
        assert!(all.lock().threads.is_empty(), "no thread before a job");
        let (started, has_started) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        assert!(all.later(move || {
            started.send(()).unwrap();
            may_go.recv().unwrap();
            done.send(()).unwrap();
        }));
        has_started.recv().unwrap();
        go.send(()).unwrap();
        all.stop();
        is_done.try_recv().unwrap();
        assert!(!all.later(|| ()));
    }

    /// Each took a thread with it, and without threads no job was ever run again.
    #[test]
    fn jobs_that_panic_do_not_keep_others_from_running() {
        let all = Arc::new(Jobs::default());
        for _ in 0..2 * THREADS {
            assert!(all.later(|| panic!("of a test")));
        }
        let (done, is_done) = mpsc::channel();
        assert!(all.later(move || done.send(()).unwrap()));
        is_done
            .recv_timeout(std::time::Duration::from_secs(20))
            .unwrap();
        all.stop();
    }
}
