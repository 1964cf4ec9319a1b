//! Decides which threads decode when, and owns the threads that decode ahead of readers.
//!
//! A decode keeps a core busy, so running more decodes than there are cores would only cost memory. The memory of running
//! decoders is limited as well, because it can't be dropped as cached segments can. A reader that waits for bytes goes before
//! decoding ahead. The threads start with the first job, so that a process that forks into the background before it reads has
//! none; they end with the cache.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::gate::Gate;
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

/// Admits decodes by the rule of its [`Gate`], and runs jobs on its threads.
pub(super) struct Scheduler {
    /// The cache's, in bytes.
    budget: u64,
    /// Bytes that count in the cache, see [`MemoryPermit`](super::MemoryPermit).
    pub(super) used: AtomicU64,
    /// Guards all of it; never held while a job runs or a thread is joined.
    state: Mutex<SchedulerState>,
    /// Signalled when a decode ends or memory is given back, if a thread waits for that.
    changed: Condvar,
    /// Signalled when a job comes or the scheduler stops.
    called: Condvar,
    /// Tells whether the mount still needs decoded bytes. Called with `state` locked.
    wanted: RwLock<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// What is admitted, and what the threads that decode ahead have to do.
#[derive(Default)]
struct SchedulerState {
    gate: Gate,
    /// Threads that wait to be admitted.
    waiting: usize,
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    stopped: bool,
}

/// One of the few decodes that run at once, until dropped. It stays on its thread.
pub(super) struct RunSlot<'a>(&'a Scheduler, PhantomData<*const ()>);

thread_local! {
    /// The address of the scheduler that has given this thread a run slot; 0 if it has none.
    static HAS_SLOT_OF: Cell<usize> = const { Cell::new(0) };
}

impl Scheduler {
    /// The scheduler of a cache of `budget` bytes.
    pub(super) fn new(budget: u64) -> Arc<Self> {
        let gate = Gate {
            slots: cores().max(LEAST_AT_ONCE),
            memory: budget.saturating_add(BEYOND),
            ..Gate::default()
        };
        Arc::new(Self {
            budget,
            used: AtomicU64::new(0),
            state: Mutex::new(SchedulerState {
                gate,
                ..SchedulerState::default()
            }),
            changed: Condvar::new(),
            called: Condvar::new(),
            wanted: RwLock::new(Arc::new(|| true)),
        })
    }

    /// Ends each decode at its next step once `wanted` returns false. The last call counts.
    pub(super) fn go_on_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(wanted);
    }

    /// Waits for a run slot for a decoder that needs `need` bytes of memory, with `granted` bytes granted before; `None` if the
    /// rest is not free. `urgent` if a reader waits for the bytes.
    ///
    /// A thread that has a run slot must not wait for another one, nor for a thread that does. So the source that a decoder
    /// reads must not wait for one either: it is a [`Piped`](super::Piped) one if it is decoded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if that is more memory than there will ever be, [`Error::Io`] if the mount has ended.
    pub(super) fn proceed(
        &self,
        granted: &mut u64,
        urgent: bool,
        need: u64,
    ) -> Result<Option<RunSlot<'_>>> {
        self.check(need)?;
        let mut state = self.lock();
        if need > SMALL && !state.gate.grant(granted, need) {
            return Ok(None);
        }
        let reader = usize::from(urgent);
        state.gate.urgent = state.gate.urgent.saturating_add(reader);
        let mut patience = if urgent { 0 } else { PATIENCE };
        let (mut state, runs) = self.wait_until(state, |gate| {
            let yields = patience > 0;
            patience = patience.saturating_sub(1);
            gate.run(yields)
        });
        state.gate.urgent = state.gate.urgent.saturating_sub(reader);
        let short = state.gate.granted > self.budget;
        if urgent {
            self.signal(state);
        } else {
            drop(state);
        }
        if !runs {
            return Err(unwanted());
        }
        if short {
            free_idle();
        }
        HAS_SLOT_OF.set(self.address());
        Ok(Some(RunSlot(self, PhantomData)))
    }

    /// Runs `wait`, which waits for what is no work of this process, as a server's answer. If the thread has a run slot, it gives
    /// it back meanwhile, and then waits for one as a reader does; it keeps its memory.
    ///
    /// # Errors
    /// [`Error::Io`] if the mount has ended before it has one.
    #[cfg(any(feature = "remote", test))]
    pub(super) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> Result<T> {
        if HAS_SLOT_OF.get() != self.address() {
            return Ok(wait());
        }
        HAS_SLOT_OF.set(0);
        self.stop_running();
        let outcome = wait();
        let mut state = self.lock();
        state.gate.urgent = state.gate.urgent.saturating_add(1);
        let (mut state, runs) = self.wait_until(state, |gate| gate.run(false));
        state.gate.urgent = state.gate.urgent.saturating_sub(1);
        if !runs {
            // the slot that it is going to give back
            state.gate.running = state.gate.running.saturating_add(1);
        }
        self.signal(state);
        HAS_SLOT_OF.set(self.address());
        if runs { Ok(outcome) } else { Err(unwanted()) }
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Gives a run slot back.
    fn stop_running(&self) {
        let mut state = self.lock();
        state.gate.stop();
        self.signal(state);
    }

    /// Waits until `need` bytes of memory are granted to a thread that has none, and gives `need`.
    ///
    /// # Errors
    /// As [`Scheduler::proceed`].
    pub(super) fn wait_for(&self, need: u64) -> Result<u64> {
        self.check(need)?;
        let (mut state, mut granted) = self.wait_until(self.lock(), Gate::queue);
        if granted {
            (state, granted) = self.wait_until(state, |gate| gate.grant_queued(need));
            state.gate.queued = false;
        }
        self.signal(state);
        if granted { Ok(need) } else { Err(unwanted()) }
    }

    /// Takes back memory that [`Scheduler::proceed`] or [`Scheduler::wait_for`] has granted.
    pub(super) fn give_back(&self, granted: u64) {
        if granted > 0 {
            let mut state = self.lock();
            state.gate.give_back(granted);
            self.signal(state);
        }
    }

    /// Waits until the gate admits the thread, and tells whether it has: the mount may end before.
    fn wait_until<'a>(
        &self,
        mut state: MutexGuard<'a, SchedulerState>,
        mut admits: impl FnMut(&mut Gate) -> bool,
    ) -> (MutexGuard<'a, SchedulerState>, bool) {
        while !admits(&mut state.gate) {
            state.waiting = state.waiting.saturating_add(1);
            let woken = self.changed.wait_timeout(state, LOOK_EVERY);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting = state.waiting.saturating_sub(1);
            if !self.is_wanted() {
                return (state, false);
            }
        }
        (state, true)
    }

    /// Wakes the threads that wait to be admitted. There is none as a rule, and waking none costs a system call.
    fn signal(&self, state: MutexGuard<'_, SchedulerState>) {
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Whether the mount still needs decoded bytes.
    fn is_wanted(&self) -> bool {
        let wanted = Arc::clone(&self.wanted.read().unwrap_or_else(PoisonError::into_inner));
        wanted()
    }

    /// Checks that a decoder may go on that needs so much memory.
    ///
    /// # Errors
    /// As [`Scheduler::proceed`].
    pub(super) fn check(&self, need: u64) -> Result<()> {
        if !self.is_wanted() {
            return Err(unwanted());
        }
        if need <= self.budget.saturating_add(BEYOND) {
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
        self.called.notify_one();
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
        self.called.notify_all();
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
                let woken = self.called.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.idle = state.idle.saturating_sub(1);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        HAS_SLOT_OF.set(0);
        self.0.stop_running();
    }
}

/// Threads that can run at the same moment; one, if the system does not say.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
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

    fn slot(scheduler: &Scheduler) -> RunSlot<'_> {
        scheduler.proceed(&mut 0, true, 0).unwrap().unwrap()
    }

    #[test]
    fn no_more_than_allowed_run_at_once() {
        let scheduler = Scheduler::new(0);
        let most = scheduler.lock().gate.slots;
        let slots: Vec<_> = (0..most).map(|_| slot(&scheduler)).collect();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _slot = slot(&scheduler);
                sender.send(()).unwrap();
            });
            while scheduler.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            drop(slots);
            receiver.recv().unwrap();
        });
        let state = scheduler.lock();
        assert_eq!(
            (state.gate.running, state.gate.urgent, state.waiting),
            (0, 0, 0)
        );
    }

    /// A server that did not answer kept all files from being decoded.
    #[test]
    fn a_thread_that_waits_for_a_server_leaves_its_slot_to_others() {
        let scheduler = Scheduler::new(0);
        let most = scheduler.lock().gate.slots;
        let (sender, answer) = mpsc::channel::<()>();
        let answer = Mutex::new(answer);
        thread::scope(|scope| {
            for _ in 0..most {
                scope.spawn(|| {
                    let _slot = slot(&scheduler);
                    let waits = || answer.lock().unwrap().recv().unwrap();
                    scheduler.while_waiting(waits).unwrap();
                    assert!(scheduler.lock().gate.running > 0);
                });
            }
            for _ in 0..2 * most {
                drop(slot(&scheduler));
            }
            for _ in 0..most {
                sender.send(()).unwrap();
            }
        });
        let state = scheduler.lock();
        assert_eq!((state.gate.running, state.gate.urgent), (0, 0));
        drop(state);
        assert_eq!(scheduler.while_waiting(|| 7).unwrap(), 7, "without a slot");
        assert_eq!(scheduler.lock().gate.running, 0);
    }

    #[test]
    fn who_holds_memory_goes_on_while_others_wait_for_it() {
        let scheduler = Scheduler::new(0);
        let mut granted = 0;
        let proceed =
            |granted: &mut u64, need| scheduler.proceed(granted, true, need).unwrap().is_some();
        assert!(proceed(&mut granted, BEYOND - SMALL));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let need = BEYOND / 2;
                assert!(!proceed(&mut 0, need));
                let mut granted = scheduler.wait_for(need).unwrap();
                assert!(proceed(&mut granted, need));
                scheduler.give_back(granted);
            });
            while !scheduler.lock().gate.queued {
                thread::yield_now();
            }
            assert!(proceed(&mut granted, BEYOND - SMALL));
            assert!(!proceed(&mut granted, BEYOND));
            assert!(proceed(&mut 0, SMALL), "so little is not counted");
            scheduler.give_back(granted);
            waiting.join().unwrap();
        });
        assert_eq!(scheduler.lock().gate.granted, 0);
    }

    #[test]
    fn what_never_fits_is_refused_with_what_to_do() {
        let scheduler = Scheduler::new(16 << 20);
        assert!(scheduler.proceed(&mut 0, true, 48 << 20).is_ok());
        for error in [
            scheduler.proceed(&mut 0, true, 130 << 20).err(),
            scheduler.wait_for(130 << 20).err(),
        ] {
            let text = error.unwrap().to_string();
            assert!(text.contains("-o cache=98M"), "{text}");
        }
        let scheduler = Scheduler::new(98 << 20);
        assert!(scheduler.proceed(&mut 0, true, 130 << 20).is_ok());
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
        let memory = scheduler.wait_for(BEYOND).unwrap();
        let most = scheduler.lock().gate.slots;
        let slots: Vec<_> = (0..most).map(|_| slot(&scheduler)).collect();
        let (sender, outcome) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| sender.send(scheduler.wait_for(1).map(drop)).unwrap());
            }
            scope.spawn(|| {
                let outcome = scheduler.proceed(&mut 0, true, 0);
                sender.send(outcome.map(drop)).unwrap();
            });
            while scheduler.lock().waiting < 3 {
                thread::yield_now();
            }
            wanted.store(false, Ordering::Relaxed);
            for _ in 0..3 {
                assert!(matches!(outcome.recv().unwrap(), Err(Error::Io { .. })));
            }
        });
        drop(slots);
        scheduler.give_back(memory);
        let gate = scheduler.lock().gate.clone();
        assert_eq!(
            (gate.running, gate.urgent, gate.granted, gate.queued),
            (0, 0, 0, false)
        );
    }
}
