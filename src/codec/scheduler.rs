//! Decides which threads decode when, and owns the threads that decode ahead of readers.
//!
//! A decode keeps a core busy, so running more decodes than there are cores would only cost memory. The memory of running
//! decoders is limited as well, because it can't be dropped as cached segments can. A reader that waits for bytes goes before
//! decoding ahead. The threads start with the first job, so that a process that forks into the background before it reads has
//! none; they end with the cache.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Place, Result};
use crate::source::free_idle;

/// Threads that decode ahead.
const THREADS: usize = 2;

/// Jobs that may wait; when the queue is full, no more is decoded ahead.
const QUEUE_LEN: usize = 64;

/// The least number of decodes that may run at once.
const LEAST_AT_ONCE: usize = 4;

/// How long a thread waits before it looks whether the mount has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a job that decodes ahead lets readers pass; after that a reader may be waiting for the job itself.
const PATIENCE: u32 = 8;

/// Bytes of memory that decoders may need beyond the budget of the cache.
const BEYOND: u64 = 32 << 20;

/// A decoder of no more than so many bytes is not counted and does not wait for memory: one for each reader is bearable.
const SMALL: u64 = 256 << 10;

/// Work for the threads that decode ahead.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Admits decodes, and runs jobs on its threads.
pub(super) struct Scheduler {
    at_once: usize,
    /// The cache's, in bytes.
    budget: u64,
    /// Bytes of memory that running decoders may need together.
    memory: u64,
    /// Guards all of it; never held while a job runs or a thread is joined.
    state: Mutex<State>,
    /// Signalled when a decode ends, memory is given back, a job comes or the scheduler stops.
    changed: Condvar,
    /// Tells whether the mount still needs decoded bytes. Called with `state` locked.
    wanted: OnceLock<Wanted>,
}

/// Tells whether the mount still needs decoded bytes.
type Wanted = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    /// Decodes running.
    running: usize,
    /// Bytes of memory granted, to decoders between two steps too.
    needed: u64,
    /// Readers that wait for a run slot.
    waiting: usize,
    /// Threads that wait for memory. No decode without memory starts before them: many small ones would keep out a large one
    /// for ever.
    short: usize,
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    stopped: bool,
}

/// One of the few decodes that run at once, until dropped.
pub(super) struct RunSlot<'a> {
    scheduler: &'a Scheduler,
    need: u64,
}

impl Scheduler {
    /// The scheduler of a cache of `budget` bytes.
    pub(super) fn new(budget: u64) -> Arc<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self {
            at_once: cores.max(LEAST_AT_ONCE),
            budget,
            memory: budget.saturating_add(BEYOND),
            state: Mutex::default(),
            changed: Condvar::new(),
            wanted: OnceLock::new(),
        })
    }

    /// Ends each decode at its next step once `wanted` returns false. Only the first call has an effect.
    pub(super) fn go_on_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        // A second one would be for the same mount.
        let _ = self.wanted.set(Box::new(wanted));
    }

    /// Waits for a run slot and `need` bytes of memory. `urgent` if a reader waits for the bytes.
    ///
    /// A thread that has a run slot must not wait for another one, nor for a thread that does. So the source that a decoder
    /// reads must not wait for one either: it is a [`Piped`](super::Piped) one if it is decoded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if that is more memory than there will ever be, [`Error::Io`] if the mount has ended.
    pub(super) fn enter(&self, urgent: bool, need: u64) -> Result<RunSlot<'_>> {
        self.check(need)?;
        let (mut state, mut passes) = self.wait_for_turn(self.lock(), urgent, false);
        if passes && state.needed.saturating_add(need) > self.memory {
            state.short = state.short.saturating_add(1);
            // Threads that hold memory go first from now on: they give it back.
            self.changed.notify_all();
            (state, passes) = self.wait_while(state, |state| {
                state.needed.saturating_add(need) > self.memory
            });
            state.short = state.short.saturating_sub(1);
        }
        if passes {
            state.needed = state.needed.saturating_add(need);
        }
        self.run(state, urgent, passes)?;
        Ok(RunSlot {
            scheduler: self,
            need,
        })
    }

    /// Waits until a decoder that needs `need` bytes of memory may run, with `admitted` bytes granted before; `None` if the
    /// rest is not free.
    ///
    /// # Errors
    /// As [`Scheduler::enter`].
    pub(super) fn proceed(
        &self,
        admitted: &mut u64,
        urgent: bool,
        need: u64,
    ) -> Result<Option<RunSlot<'_>>> {
        self.check(need)?;
        let mut state = self.lock();
        let more = need.saturating_sub(*admitted);
        if more > 0 && need > SMALL {
            let needed = state.needed.saturating_add(more);
            if state.short > 0 || needed > self.memory {
                return Ok(None);
            }
            state.needed = needed;
            *admitted = need;
        }
        let (state, passes) = self.wait_for_turn(state, urgent, true);
        self.run(state, urgent, passes)?;
        Ok(Some(RunSlot {
            scheduler: self,
            need: 0,
        }))
    }

    /// Waits until `need` bytes of memory are granted.
    ///
    /// A thread that has been granted some must not block on a thread that may be waiting for memory: that would deadlock. So it
    /// [gives them back](Scheduler::give_back) first.
    ///
    /// # Errors
    /// As [`Scheduler::enter`].
    pub(super) fn wait_for(&self, urgent: bool, need: u64) -> Result<u64> {
        let mut slot = self.enter(urgent, need)?;
        Ok(std::mem::take(&mut slot.need))
    }

    /// Frees memory that [`Scheduler::proceed`] or [`Scheduler::wait_for`] has granted.
    pub(super) fn give_back(&self, admitted: u64) {
        if admitted > 0 {
            let mut state = self.lock();
            state.needed = state.needed.saturating_sub(admitted);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until one more decode may run, and tells whether it may. A thread that `holds` memory goes before those that wait
    /// for it.
    fn wait_for_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        urgent: bool,
        holds: bool,
    ) -> (MutexGuard<'a, State>, bool) {
        if urgent {
            state.waiting = state.waiting.saturating_add(1);
        }
        let mut patience = if urgent { 0 } else { PATIENCE };
        self.wait_while(state, |state| {
            let others_first = state.waiting > 0 && patience > 0;
            patience = patience.saturating_sub(1);
            if state.short > 0 {
                return !holds || state.running >= self.at_once;
            }
            state.running >= self.at_once || others_first
        })
    }

    /// Waits until `must` returns false, and tells whether it has: the mount may end before.
    fn wait_while<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        mut must: impl FnMut(&State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        while must(&state) {
            let woken = self.changed.wait_timeout(state, LOOK_EVERY);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
            if !self.is_wanted() {
                return (state, false);
            }
        }
        (state, true)
    }

    /// Counts a decode that has waited as running, if it `passes`.
    fn run(&self, mut state: MutexGuard<'_, State>, urgent: bool, passes: bool) -> Result<()> {
        if urgent {
            state.waiting = state.waiting.saturating_sub(1);
        }
        if passes {
            state.running = state.running.saturating_add(1);
        }
        let short = state.needed > self.budget;
        drop(state);
        self.changed.notify_all();
        if !passes {
            return Err(unwanted());
        }
        if short {
            free_idle();
        }
        Ok(())
    }

    /// Whether the mount still needs decoded bytes.
    fn is_wanted(&self) -> bool {
        self.wanted.get().is_none_or(|wanted| wanted())
    }

    /// Checks that a decoder may go on that needs so much memory.
    ///
    /// # Errors
    /// As [`Scheduler::enter`].
    pub(super) fn check(&self, need: u64) -> Result<()> {
        if !self.is_wanted() {
            return Err(unwanted());
        }
        if need <= self.memory {
            return Ok(());
        }
        let cache = need.saturating_sub(BEYOND).div_ceil(1 << 20);
        let why = format!(
            "decoding takes {need} bytes of memory; mount the file with -o cache={cache}M or more"
        );
        Err(Error::unsupported(Place::File, why))
    }

    /// Queues a job; `false` if the queue is full or the scheduler has stopped.
    pub(super) fn later(self: &Arc<Self>, job: Job) -> bool {
        let mut state = self.lock();
        if state.stopped || state.jobs.len() >= QUEUE_LEN {
            return false;
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads.len() < THREADS {
            let scheduler = Arc::clone(self);
            let thread = thread::Builder::new()
                .name("asdf-ahead".to_owned())
                .spawn(move || scheduler.serve());
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

    /// Whether other jobs wait: a long one then goes to the end of the queue.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.lock().jobs.is_empty()
    }

    /// Drops the queued jobs and waits until the running ones and their threads have ended; a job that calls this runs on.
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

    /// Runs jobs until the scheduler stops.
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

fn unwanted() -> Error {
    Error::io(
        "decoding after the mount has ended",
        io::ErrorKind::Interrupted.into(),
    )
}

impl Drop for RunSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        state.running = state.running.saturating_sub(1);
        state.needed = state.needed.saturating_sub(self.need);
        drop(state);
        self.scheduler.changed.notify_all();
    }
}

/// The results of `work` for each item, in order. The calling thread takes the first item, and a new thread each other one.
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    /// Lets `enter` be called in another thread while `before` holds, and not return until it is dropped.
    fn enters_only_after<T>(scheduler: &Arc<Scheduler>, need: u64, before: T) {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _slot = scheduler.enter(true, need).unwrap();
                sender.send(()).unwrap();
            });
            while scheduler.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            drop(before);
            receiver.recv().unwrap();
        });
        let state = scheduler.lock();
        assert_eq!((state.running, state.needed, state.short), (0, 0, 0));
    }

    #[test]
    fn no_more_than_allowed_pass_at_once() {
        let scheduler = Scheduler::new(0);
        let slots: Vec<_> = (0..scheduler.at_once)
            .map(|_| scheduler.enter(true, 0))
            .collect();
        enters_only_after(&scheduler, 0, slots);
    }

    #[test]
    fn no_more_memory_than_allowed_is_needed_at_once() {
        let scheduler = Scheduler::new(10);
        let small = scheduler.enter(true, 11).unwrap();
        let fits = scheduler.enter(true, BEYOND - 1).unwrap();
        drop(fits);
        enters_only_after(&scheduler, BEYOND, small);
    }

    #[test]
    fn no_decode_overtakes_one_that_waits_for_memory() {
        let scheduler = Scheduler::new(0);
        let small = scheduler.enter(true, 1).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let enter = |need| {
                let _slot = scheduler.enter(true, need).unwrap();
                sender.send(need).unwrap();
            };
            scope.spawn(move || enter(BEYOND));
            while scheduler.lock().short == 0 {
                thread::yield_now();
            }
            scope.spawn(move || enter(2));
            while scheduler.lock().waiting < 2 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            drop(small);
            assert_eq!(receiver.recv().unwrap(), BEYOND);
            assert_eq!(receiver.recv().unwrap(), 2);
        });
    }

    #[test]
    fn who_holds_memory_goes_on_while_others_wait_for_it() {
        let scheduler = Scheduler::new(0);
        let mut admitted = 0;
        assert!(
            scheduler
                .proceed(&mut admitted, false, BEYOND - SMALL)
                .unwrap()
                .is_some()
        );
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut admitted = 0;
                let need = BEYOND / 2;
                assert!(
                    scheduler
                        .proceed(&mut admitted, true, need)
                        .unwrap()
                        .is_none()
                );
                admitted = scheduler.wait_for(true, need).unwrap();
                let may_run = scheduler.proceed(&mut admitted, true, need).unwrap();
                drop(may_run.unwrap());
                scheduler.give_back(admitted);
            });
            while scheduler.lock().short == 0 {
                thread::yield_now();
            }
            assert!(
                scheduler
                    .proceed(&mut admitted, false, BEYOND - SMALL)
                    .unwrap()
                    .is_some()
            );
            assert!(
                scheduler
                    .proceed(&mut admitted, false, BEYOND)
                    .unwrap()
                    .is_none()
            );
            assert!(scheduler.proceed(&mut 0, false, SMALL).unwrap().is_some());
            scheduler.give_back(admitted);
            waiting.join().unwrap();
        });
        assert_eq!(scheduler.lock().needed, 0);
    }

    #[test]
    fn what_never_fits_is_refused_with_what_to_do() {
        let scheduler = Scheduler::new(16 << 20);
        assert!(scheduler.enter(true, 48 << 20).is_ok());
        let error = scheduler.enter(true, 130 << 20).err().unwrap();
        assert!(error.to_string().contains("-o cache=98M"), "{error}");
        let scheduler = Scheduler::new(98 << 20);
        assert!(scheduler.enter(true, 130 << 20).is_ok());
    }

    #[test]
    fn stopping_waits_for_the_job_that_runs_and_drops_the_rest() {
        let scheduler = Scheduler::new(0);
        assert!(
            scheduler.lock().threads.is_empty(),
            "no thread before a job"
        );
        let (started, has_started) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        assert!(scheduler.later(Box::new(move || {
            started.send(()).unwrap();
            may_go.recv().unwrap();
            done.send(()).unwrap();
        })));
        has_started.recv().unwrap();
        go.send(()).unwrap();
        scheduler.stop();
        is_done.try_recv().unwrap();
        assert!(!scheduler.later(Box::new(|| ())));
    }

    /// Those that waited when the kernel had ended the connection kept the mount from ending.
    #[test]
    fn waiting_ends_with_the_mount() {
        let wanted = Arc::new(AtomicBool::new(true));
        let scheduler = Scheduler::new(0);
        let asked = Arc::clone(&wanted);
        scheduler.go_on_while(move || asked.load(Ordering::Relaxed));
        let memory = scheduler.enter(true, BEYOND).unwrap();
        let (sender, outcome) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(scheduler.enter(true, 1).map(drop)).unwrap());
            while scheduler.lock().short == 0 {
                thread::yield_now();
            }
            scope.spawn(|| sender.send(scheduler.enter(true, 0).map(drop)).unwrap());
            while scheduler.lock().waiting < 2 {
                thread::yield_now();
            }
            wanted.store(false, Ordering::Relaxed);
            for _ in 0..2 {
                assert!(matches!(outcome.recv().unwrap(), Err(Error::Io { .. })));
            }
        });
        drop(memory);
        let state = scheduler.lock();
        assert_eq!(
            (state.running, state.waiting, state.needed, state.short),
            (0, 0, 0, 0)
        );
    }
}
