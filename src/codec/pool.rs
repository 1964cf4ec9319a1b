//! Threads for work that its caller does not wait for: decoding ahead of readers, and the requests of a mount that may take long.
//!
//! A thread starts when a job comes and all others are busy, so that a process that forks into the background before its first job has none.
//! It ends when it has had nothing to do for a while.

use std::collections::VecDeque;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::lock;

/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);

/// What a thread is to do.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads, and the jobs that they run.
pub(crate) struct Pool {
    /// What the threads are called.
    name: &'static str,
    /// The most threads.
    most: usize,
    /// The most jobs that wait for a thread when all are busy.
    most_waiting: usize,
    /// Not held while a job runs or a thread is joined.
    state: Mutex<PoolState>,
    /// Signalled when a job comes or the threads are to stop.
    called: Condvar,
}

#[derive(Default)]
struct PoolState {
    queued: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that run a job.
    busy: usize,
    stopped: bool,
}

impl Pool {
    /// No threads yet.
    pub(crate) fn new(name: &'static str, most: usize, most_waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            most,
            most_waiting,
            state: Mutex::default(),
            called: Condvar::new(),
        })
    }

    /// Has a thread run a job. Gives it back if too many wait already, if no thread can be started, or if the threads have stopped.
    pub(crate) fn run(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = lock(&self.state);
        if state.stopped {
            return Err(job);
        }
        // Each job that waits takes a thread that is not busy.
        let taken = state.busy.saturating_add(state.queued.len());
        if taken >= state.threads.len() && state.threads.len() < self.most {
            let pool = Arc::clone(self);
            let thread = thread::Builder::new().name(self.name.to_owned());
            match thread.spawn(move || pool.serve()) {
                Ok(thread) => state.threads.push(thread),
                Err(cause) => log::debug!("no more threads {}: {cause}", self.name),
            }
        }
        let has_thread = taken < state.threads.len();
        let may_wait = !state.threads.is_empty() && state.queued.len() < self.most_waiting;
        if !has_thread && !may_wait {
            return Err(job);
        }
        state.queued.push_back(job);
        drop(state);
        self.called.notify_one();
        Ok(())
    }

    /// Whether jobs wait: a long one then goes to the end of the queue.
    pub(super) fn is_asked_for(&self) -> bool {
        !lock(&self.state).queued.is_empty()
    }

    /// Drops the queued jobs and waits until the running ones and their threads have ended; a job that calls this runs on.
    pub(super) fn stop(&self) {
        let (threads, jobs) = {
            let mut state = lock(&self.state);
            state.stopped = true;
            (take(&mut state.threads), take(&mut state.queued))
        };
        self.called.notify_all();
        // outside of the lock: a job may hold the last reference to a block, whose end takes the lock of the cache
        drop(jobs);
        for thread in threads {
            // The job that drops the last reference to a cache runs on one of them, and a thread cannot join itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }

    /// Runs jobs until none has come for a while, or the threads are to stop. A job that panics leaves its thread to the others.
    fn serve(&self) {
        let mut state = lock(&self.state);
        while !state.stopped {
            if let Some(job) = state.queued.pop_front() {
                state.busy = state.busy.saturating_add(1);
                drop(state);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    log::error!("a job of a thread {} has panicked", self.name);
                }
                state = lock(&self.state);
                state.busy = state.busy.saturating_sub(1);
                continue;
            }
            let woken = self.called.wait_timeout(state, IDLE);
            let (now, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() && state.queued.is_empty() {
                break;
            }
        }
        let own = thread::current().id();
        state.threads.retain(|thread| thread.thread().id() != own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    #[test]
    fn stopping_waits_for_the_job_that_runs_and_drops_the_rest() {
        let all = Pool::new("test", 2, 64);
        assert!(
            lock(&all.state).threads.is_empty(),
            "no thread before a job"
        );
        let (started, has_started) = channel();
        let (go, may_go) = channel::<()>();
        let (done, is_done) = channel();
        let job = move || {
            started.send(()).unwrap();
            may_go.recv().unwrap();
            done.send(()).unwrap();
        };
        assert!(all.run(Box::new(job)).is_ok());
        has_started.recv().unwrap();
        go.send(()).unwrap();
        all.stop();
        is_done.try_recv().unwrap();
        assert!(all.run(Box::new(|| ())).is_err());
    }

    /// Each took a thread with it, and without threads no job was ever run again.
    #[test]
    fn jobs_that_panic_do_not_keep_others_from_running() {
        let all = Pool::new("test", 2, 64);
        for _ in 0..4 {
            assert!(all.run(Box::new(|| panic!("of a test"))).is_ok());
        }
        let (done, is_done) = channel();
        assert!(all.run(Box::new(move || done.send(()).unwrap())).is_ok());
        is_done.recv_timeout(Duration::from_secs(20)).unwrap();
        all.stop();
    }

    #[test]
    fn as_many_jobs_as_may_run_and_wait_are_taken_and_no_more() {
        let all = Pool::new("test", 100, 3);
        let [begun, end] = [0, 1].map(|_| Arc::new(Barrier::new(101)));
        for _ in 0..100 {
            let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
            let job = move || {
                begun.wait();
                end.wait();
            };
            assert!(all.run(Box::new(job)).is_ok());
        }
        begun.wait();
        let (done, is_done) = channel();
        for n in 0..4 {
            let done = done.clone();
            let taken = all.run(Box::new(move || done.send(n).unwrap()));
            assert_eq!(taken.is_ok(), n < 3);
            assert!(all.is_asked_for());
        }
        drop(done);
        end.wait();
        let mut done: Vec<_> = is_done.iter().collect();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2]);
        all.stop();
    }

    #[test]
    fn a_thread_that_has_nothing_to_do_takes_the_next_job() {
        let all = Pool::new("test", 100, 0);
        let (done, is_done) = channel();
        for n in 0..50 {
            let done = done.clone();
            assert!(all.run(Box::new(move || done.send(n).unwrap())).is_ok());
            assert_eq!(is_done.recv().unwrap(), n);
            // it may not have become idle again yet
            while lock(&all.state).busy > 0 {
                thread::yield_now();
            }
        }
        assert_eq!(lock(&all.state).threads.len(), 1);
        all.stop();
    }
}
