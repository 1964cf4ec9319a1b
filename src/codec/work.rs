//! Who may decode when: a gate that lets few through at once, and the threads that decode ahead of readers.
//!
//! Decoding is work for a core, so more of it at once than there are cores would only take memory. What decoders under way need
//! is limited besides, because it can't be dropped as what is cached can. Somebody who waits for the bytes goes before anything
//! done in advance. The threads start with the first thing to do in advance, so that a
//! process that forks into the background before it reads has none; they end with the cache.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Place, Result};
use crate::source::free_idle;

/// Threads that work in advance.
const THREADS: usize = 2;

/// Jobs that may wait; a reader that finds the queue full does without.
const QUEUE_LEN: usize = 64;

/// The least number of decodes that may run at once.
const LEAST_AT_ONCE: usize = 4;

/// How long a thread waits before it looks whether the mount has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a job in advance lets others pass; somebody may be waiting for it by now.
const PATIENCE: u32 = 8;

/// Bytes of memory that decoders may need beyond the budget of the cache.
const BEYOND: u64 = 32 << 20;

/// Decoders of no more than so many bytes are not counted, and wait for nobody's memory: one for each reader is bearable.
const SMALL: u64 = 256 << 10;

/// Something to be done in advance.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The gate and the threads.
pub(super) struct Work {
    at_once: usize,
    /// The cache's, in bytes.
    budget: u64,
    /// Bytes of memory that those under way may need together.
    memory: u64,
    /// Guards all of it; never held while a job runs or a thread is joined.
    state: Mutex<State>,
    /// Signalled when the gate may open, a job comes or all ends.
    changed: Condvar,
    /// Tells whether anybody can still want what is decoded.
    wanted: OnceLock<Wanted>,
}

/// Whether what is decoded can still reach anybody.
type Wanted = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    /// Decodes running.
    running: usize,
    /// Bytes of memory that they need, and those between two steps.
    needed: u64,
    /// Readers that wait at the gate.
    waiting: usize,
    /// Those that wait for memory. Nobody passes them, as many small decoders would keep out a large one for ever.
    short: usize,
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    stopped: bool,
}

/// Leave to decode, until dropped.
pub(super) struct Pass<'a> {
    work: &'a Work,
    need: u64,
}

/// The memory of a decoder on its way, until dropped.
///
/// Whoever has one waits for nobody who may wait for memory.
pub(super) struct Claim<'a> {
    work: &'a Work,
    bytes: u64,
}

impl Work {
    /// The gate for a cache of `budget` bytes.
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

    /// Has decoders give up as soon as `wanted` says so; asked at each of their steps. The first call counts.
    pub(super) fn go_on_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        // A second one would be for the same mount.
        let _ = self.wanted.set(Box::new(wanted));
    }

    /// Waits for leave to decode with `need` bytes of memory. `urgent` is for somebody who waits for the bytes.
    ///
    /// A thread that has it must not ask for it again, nor wait for a thread that does: what a decoder reads must not come from a
    /// source that does either, but from a [`Piped`](super::Piped) one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if that is more memory than there will ever be, [`Error::Io`] if nobody wants the bytes any more.
    pub(super) fn enter(&self, urgent: bool, need: u64) -> Result<Pass<'_>> {
        self.check(need)?;
        let (mut state, mut passes) = self.wait_for_turn(self.lock(), urgent, false);
        if passes && state.needed.saturating_add(need) > self.memory {
            state.short = state.short.saturating_add(1);
            // Those that hold memory wait for nobody from now on.
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
        Ok(Pass { work: self, need })
    }

    /// A claim to nothing yet.
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            work: self,
            bytes: 0,
        }
    }

    /// Waits for leave to go on with a decoder that needs `need` bytes of memory; `None` if these can't be had at once.
    ///
    /// # Errors
    /// As [`Work::enter`].
    pub(super) fn proceed<'a>(
        &'a self,
        claim: &mut Claim<'a>,
        urgent: bool,
        need: u64,
    ) -> Result<Option<Pass<'a>>> {
        self.check(need)?;
        let mut state = self.lock();
        let more = need.saturating_sub(claim.bytes);
        if more > 0 && need > SMALL {
            let needed = state.needed.saturating_add(more);
            if state.short > 0 || needed > self.memory {
                return Ok(None);
            }
            state.needed = needed;
            claim.bytes = need;
        }
        let (state, passes) = self.wait_for_turn(state, urgent, true);
        self.run(state, urgent, passes)?;
        Ok(Some(Pass {
            work: self,
            need: 0,
        }))
    }

    /// Waits for `need` bytes of memory. What was claimed before is given back first.
    ///
    /// # Errors
    /// As [`Work::enter`].
    pub(super) fn wait_for<'a>(
        &'a self,
        claim: &mut Claim<'a>,
        urgent: bool,
        need: u64,
    ) -> Result<()> {
        *claim = self.claim();
        let mut pass = self.enter(urgent, need)?;
        claim.bytes = std::mem::take(&mut pass.need);
        Ok(())
    }

    /// Waits until one more may run, and tells whether it may; who holds a claim passes those that wait for memory.
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

    /// Waits while it `must`, and tells whether it need not any more: the mount may end before.
    fn wait_while<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        mut must: impl FnMut(&State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        while must(&state) {
            if !self.is_wanted() {
                return (state, false);
            }
            let woken = self.changed.wait_timeout(state, LOOK_EVERY);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        (state, true)
    }

    /// Counts one that has waited as one that runs, if it `passes`.
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

    /// Whether what is decoded can still reach anybody.
    fn is_wanted(&self) -> bool {
        self.wanted.get().is_none_or(|wanted| wanted())
    }

    /// Looks whether a decoder that needs so much memory may go on.
    ///
    /// # Errors
    /// As [`Work::enter`].
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

fn unwanted() -> Error {
    Error::io("decoding for nobody", io::ErrorKind::Interrupted.into())
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.work.lock();
            state.needed = state.needed.saturating_sub(self.bytes);
            drop(state);
            self.work.changed.notify_all();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.work.lock();
        state.running = state.running.saturating_sub(1);
        state.needed = state.needed.saturating_sub(self.need);
        drop(state);
        self.work.changed.notify_all();
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    /// Lets `enter` be called in another thread while `before` holds, and not return until it is dropped.
    fn passes_only_after<T>(work: &Arc<Work>, need: u64, before: T) {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _pass = work.enter(true, need).unwrap();
                sender.send(()).unwrap();
            });
            while work.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            drop(before);
            receiver.recv().unwrap();
        });
        let state = work.lock();
        assert_eq!((state.running, state.needed, state.short), (0, 0, 0));
    }

    #[test]
    fn no_more_than_allowed_pass_at_once() {
        let work = Work::new(0);
        let passes: Vec<_> = (0..work.at_once).map(|_| work.enter(true, 0)).collect();
        passes_only_after(&work, 0, passes);
    }

    #[test]
    fn no_more_memory_than_allowed_is_needed_at_once() {
        let work = Work::new(10);
        let small = work.enter(true, 11).unwrap();
        let fits = work.enter(true, BEYOND - 1).unwrap();
        drop(fits);
        passes_only_after(&work, BEYOND, small);
    }

    #[test]
    fn nobody_passes_one_that_waits_for_memory() {
        let work = Work::new(0);
        let small = work.enter(true, 1).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let enter = |need| {
                let _pass = work.enter(true, need).unwrap();
                sender.send(need).unwrap();
            };
            scope.spawn(move || enter(BEYOND));
            while work.lock().short == 0 {
                thread::yield_now();
            }
            scope.spawn(move || enter(2));
            while work.lock().waiting < 2 {
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
        let work = Work::new(0);
        let mut claim = work.claim();
        assert!(
            work.proceed(&mut claim, false, BEYOND - SMALL)
                .unwrap()
                .is_some()
        );
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut claim = work.claim();
                let need = BEYOND / 2;
                assert!(work.proceed(&mut claim, true, need).unwrap().is_none());
                work.wait_for(&mut claim, true, need).unwrap();
                work.proceed(&mut claim, true, need).unwrap().is_some()
            });
            while work.lock().short == 0 {
                thread::yield_now();
            }
            assert!(
                work.proceed(&mut claim, false, BEYOND - SMALL)
                    .unwrap()
                    .is_some()
            );
            assert!(work.proceed(&mut claim, false, BEYOND).unwrap().is_none());
            assert!(
                work.proceed(&mut work.claim(), false, SMALL)
                    .unwrap()
                    .is_some()
            );
            drop(claim);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(work.lock().needed, 0);
    }

    #[test]
    fn what_never_fits_is_refused_with_what_to_do() {
        let work = Work::new(16 << 20);
        assert!(work.enter(true, 48 << 20).is_ok());
        let error = work.enter(true, 130 << 20).err().unwrap();
        assert!(error.to_string().contains("-o cache=98M"), "{error}");
        let work = Work::new(98 << 20);
        assert!(work.enter(true, 130 << 20).is_ok());
    }

    #[test]
    fn stopping_waits_for_the_job_that_runs_and_drops_the_rest() {
        let work = Work::new(0);
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

    /// Those that waited when the kernel had ended the connection kept the mount from ending.
    #[test]
    fn waiting_ends_with_the_mount() {
        let wanted = Arc::new(AtomicBool::new(true));
        let work = Work::new(0);
        let asked = Arc::clone(&wanted);
        work.go_on_while(move || asked.load(Ordering::Relaxed));
        let memory = work.enter(true, BEYOND).unwrap();
        let (sender, outcome) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(work.enter(true, 1).map(drop)).unwrap());
            while work.lock().short == 0 {
                thread::yield_now();
            }
            scope.spawn(|| sender.send(work.enter(false, 0).map(drop)).unwrap());
            wanted.store(false, Ordering::Relaxed);
            for _ in 0..2 {
                assert!(matches!(outcome.recv().unwrap(), Err(Error::Io { .. })));
            }
        });
        drop(memory);
        let state = work.lock();
        assert_eq!(
            (state.running, state.waiting, state.needed, state.short),
            (0, 0, 0, 0)
        );
    }
}
