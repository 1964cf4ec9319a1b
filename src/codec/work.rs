//! Who may decode when: a gate that lets few through at once, and the threads that decode ahead of readers.
//!
//! Decoding is work for a core, so more of it at once than there are cores would only take memory. Somebody who waits for
//! the bytes goes before anything done in advance. The threads start with the first thing to do in advance, so that a
//! process that forks into the background before it reads has none; they end with the cache.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Place, Result};

/// Threads that work in advance.
const THREADS: usize = 2;

/// Jobs that may wait; a reader that finds the queue full does without.
const QUEUE_LEN: usize = 64;

/// The least number of decodes that may run at once.
const LEAST_AT_ONCE: usize = 4;

/// How often a job in advance lets others pass; somebody may be waiting for it by now.
const PATIENCE: u32 = 8;

/// A decoder that needs more memory than this, for a large window, runs only while no other such does.
const LARGE: u64 = 64 << 20;

/// Something to be done in advance.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The gate and the threads.
pub(super) struct Work {
    at_once: usize,
    /// Held by the one decoder that needs much memory.
    large: Mutex<()>,
    /// Guards all of it; never held while a job runs or a thread is joined.
    state: Mutex<State>,
    /// Signalled when the gate may open, a job comes or all ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Decodes running.
    running: usize,
    /// Readers that wait at the gate.
    waiting: usize,
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    stopped: bool,
}

/// Leave to decode, until dropped.
pub(super) struct Pass<'a>(&'a Work);

impl Work {
    pub(super) fn new() -> Arc<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self {
            at_once: cores.max(LEAST_AT_ONCE),
            large: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Waits, if a decoder needs so much memory that only one such may run at once; to be asked for before leave to decode.
    pub(super) fn alone(&self, need: u64) -> Option<MutexGuard<'_, ()>> {
        (need > LARGE).then(|| self.large.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for leave to decode. `urgent` is for somebody who waits for the bytes.
    ///
    /// Whoever has it must not ask for it again, nor wait for somebody who does.
    pub(super) fn enter(&self, urgent: bool) -> Pass<'_> {
        let mut state = self.lock();
        if urgent {
            state.waiting = state.waiting.saturating_add(1);
        }
        let mut patience = if urgent { 0 } else { PATIENCE };
        while state.running >= self.at_once || (state.waiting > 0 && patience > 0) {
            state = self.wait(state);
            patience = patience.saturating_sub(1);
        }
        if urgent {
            state.waiting = state.waiting.saturating_sub(1);
            if state.waiting == 0 {
                self.changed.notify_all();
            }
        }
        state.running = state.running.saturating_add(1);
        Pass(self)
    }

    /// Has a job done in advance, unless there is too much to do already.
    pub(super) fn later(self: &Arc<Self>, job: Job) -> bool {
        let mut state = self.lock();
        if state.stopped || state.jobs.len() >= QUEUE_LEN {
            return false;
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads.len() < THREADS {
            let work = Arc::clone(self);
            let thread = thread::Builder::new()
                .name("asdf-ahead".to_owned())
                .spawn(move || work.serve());
            match thread {
                Ok(thread) => state.threads.push(thread),
                Err(cause) if state.threads.is_empty() => {
                    log::warn!("no thread to read ahead with: {cause}");
                    state.jobs.clear();
                    return false;
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Whether jobs wait, so that a long one had better go to the end of the queue.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.lock().jobs.is_empty()
    }

    /// Ends the threads, after the jobs that run now. A thread that calls this itself ends afterwards.
    pub(super) fn stop(&self) {
        let (threads, jobs) = {
            let mut state = self.lock();
            state.stopped = true;
            (
                std::mem::take(&mut state.threads),
                std::mem::take(&mut state.jobs),
            )
        };
        self.changed.notify_all();
        drop(jobs);
        for thread in threads {
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                log::error!("a thread that reads ahead has panicked");
            }
        }
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.stopped {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else {
                state.idle = state.idle.saturating_add(1);
                state = self.wait(state);
                state.idle = state.idle.saturating_sub(1);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.0.changed.notify_all();
    }
}

/// What `work` makes of each item, in order; each is worked at by a thread of its own but for the first.
pub(super) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let Some((first, others)) = items.split_first() else {
        return Vec::new();
    };
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let mut results = vec![work(first)];
        results.extend(others.into_iter().map(|other| {
            other
                .join()
                .unwrap_or_else(|_| Err(Error::corrupt(Place::File, "a codec panicked")))
        }));
        results
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn no_more_than_allowed_pass_at_once() {
        let work = Work::new();
        let passes: Vec<_> = (0..work.at_once).map(|_| work.enter(true)).collect();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _pass = work.enter(true);
                sender.send(()).unwrap();
            });
            while work.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            drop(passes);
            receiver.recv().unwrap();
        });
        assert_eq!(work.lock().running, 0);
    }

    #[test]
    fn of_those_that_need_much_memory_one_runs_at_a_time() {
        let work = Work::new();
        let small = work.alone(LARGE);
        let first = work.alone(LARGE + 1);
        assert!(small.is_none() && first.is_some());
        assert!(work.large.try_lock().is_err());
        drop(first);
        assert!(work.alone(u64::MAX).is_some());
    }

    #[test]
    fn stopping_waits_for_the_job_that_runs_and_drops_the_rest() {
        let work = Work::new();
        assert!(work.lock().threads.is_empty(), "no thread before a job");
        let (started, has_started) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        assert!(work.later(Box::new(move || {
            started.send(()).unwrap();
            may_go.recv().unwrap();
            done.send(()).unwrap();
        })));
        has_started.recv().unwrap();
        go.send(()).unwrap();
        work.stop();
        is_done.try_recv().unwrap();
        assert!(!work.later(Box::new(|| ())));
    }
}
