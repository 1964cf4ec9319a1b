//! What a thread that decodes is admitted with: memory, and a run slot.
//!
//! A decode keeps a core busy, so running more decodes than there are cores would only cost memory. The memory of running
//! decoders is limited as well, because it can't be dropped as cached segments can. [`Grant::admit`] is the one place where a
//! thread is given either: it asks the [`Gate`], waits for a run slot, and has the cache make room, all under the lock of
//! the ledger. A reader that waits for bytes goes before decoding ahead.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::{replace, take};
use std::ptr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::Cursor;
use super::cache::{Cache, Demand, Ledger};
use super::caller;
use super::gate::Gate;
use super::jobs::cores;
use super::memory_permit::MemoryPermit;
use crate::error::{Error, Place, Result};
use crate::source::free_idle;

/// The least number of decodes that may run at once.
const LEAST_AT_ONCE: usize = 4;

/// How long a thread waits before it looks whether the mount has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a job that decodes ahead lets readers pass; after that a reader may be waiting for the job itself.
const PATIENCE: u32 = 8;

/// Bytes of memory that decoders may take beyond the budget of the cache.
const BEYOND: u64 = 32 << 20;

/// A decoder of no more than so many bytes does not wait for memory: one for each reader is bearable.
const SMALL: u64 = 256 << 10;

/// The gate of a cache of `budget` bytes.
pub(super) fn gate(budget: u64) -> Gate {
    Gate {
        slots: cores().max(LEAST_AT_ONCE),
        memory: budget.saturating_add(BEYOND),
        small: SMALL,
        ..Gate::default()
    }
}

/// What the [`Gate`] has granted a thread, until dropped: the memory of the decoder that it runs, which counts in the cache as any
/// other, and while it decodes a run slot, one of a few. The memory goes with the decoder when it is parked, and comes with one that is
/// taken.
///
/// A thread must give all of it back before it waits for another decoder, because that one may be waiting for this memory.
pub(super) struct Grant<'a> {
    cache: &'a Cache,
    memory: MemoryPermit,
    has_slot: bool,
    /// Keeps a grant on its thread, to which [`HAS_SLOT_OF`] belongs.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    /// The address of the cache that has given this thread a run slot; 0 if it has none.
    static HAS_SLOT_OF: Cell<usize> = const { Cell::new(0) };
}

impl<'a> Grant<'a> {
    /// Nothing yet.
    pub(super) fn new(cache: &'a Cache) -> Self {
        Self {
            cache,
            memory: MemoryPermit::new(&cache.used),
            has_slot: false,
            _thread: PhantomData,
        }
    }

    /// Waits for a run slot for a decoder that takes `total` bytes of memory in all, and makes room for them; `false` if that memory
    /// would not be free without all parked decoders either, and then it has no slot. One that has a slot and so much memory goes on.
    ///
    /// A thread that has a run slot must not wait for another one, nor for a thread that does. So the source that a decoder
    /// reads must not wait for one either: it is a [`Piped`](super::Piped) one if it is decoded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if that is more memory than there will ever be, [`Error::Io`] if the mount has ended.
    pub(super) fn admit(&mut self, total: u64, demand: Demand) -> Result<bool> {
        if self.has_slot && total <= self.memory.bytes() {
            return Ok(true);
        }
        self.pause();
        let cache = self.cache;
        let urgent = !demand.is_background();
        cache.check(total)?;
        let mut ledger = cache.lock();
        let owned = self.memory.bytes();
        while !ledger.gate.grant(owned, total) {
            // what is freed now is for the thread that waits, if there is one
            let may_drop = Some(&mut *ledger).filter(|ledger| !ledger.gate.queued);
            let oldest = may_drop.and_then(|ledger| ledger.drop_granted(owned, total));
            let Some(oldest) = oldest else {
                return Ok(false);
            };
            drop(ledger);
            cache.free(vec![oldest]);
            ledger = cache.lock();
        }
        let patience = if urgent { 0 } else { PATIENCE };
        let (mut ledger, runs) = cache.wait_to_run(ledger, urgent, patience);
        let bytes = total.max(self.memory.bytes());
        let gone = ledger.resize(cache, &mut self.memory, bytes, demand);
        let short = ledger.gate.granted > cache.budget();
        if urgent {
            cache.signal(ledger);
        } else {
            drop(ledger);
        }
        cache.free(gone);
        if !runs {
            return Err(unwanted());
        }
        if short {
            free_idle();
        }
        HAS_SLOT_OF.set(cache.address());
        self.has_slot = true;
        Ok(true)
    }

    /// Gives back the run slot, and keeps the memory: the decoder is between two steps.
    pub(super) fn pause(&mut self) {
        if take(&mut self.has_slot) {
            HAS_SLOT_OF.set(0);
            self.cache.stop_running();
        }
    }

    /// Gives back all, then waits until `total` bytes of memory are granted.
    ///
    /// # Errors
    /// As of [`Grant::admit`].
    pub(super) fn wait_for(&mut self, total: u64) -> Result<()> {
        self.give_back();
        let cache = self.cache;
        cache.check(total)?;
        let (mut ledger, is_next) = cache.wait_until(cache.lock(), Gate::queue);
        if !is_next {
            return Err(unwanted());
        }
        let mut is_wanted = true;
        while is_wanted && !ledger.gate.grant_queued(total) {
            if let Some(oldest) = ledger.drop_granted(0, total) {
                drop(ledger);
                cache.free(vec![oldest]);
                ledger = cache.lock();
            } else {
                (ledger, is_wanted) = cache.wait(ledger);
            }
        }
        ledger.gate.queued = false;
        if is_wanted {
            self.memory.count(total);
        }
        cache.signal(ledger);
        if is_wanted { Ok(()) } else { Err(unwanted()) }
    }

    /// Takes over the memory that was granted for a decoder which this thread takes, and gives back what it had been granted before, or of
    /// both the smaller.
    pub(super) fn take_over(&mut self, memory: MemoryPermit) {
        let smaller = if memory.bytes() > self.memory.bytes() {
            replace(&mut self.memory, memory)
        } else {
            memory
        };
        let owned = smaller.bytes();
        drop(smaller);
        self.cache.return_memory(owned);
    }

    /// Gives back the run slot, and parks the decoder where it stands, with its memory.
    pub(super) fn park(&mut self, cursor: Box<dyn Cursor>, demand: Demand) {
        self.pause();
        let memory = self.memory.take();
        self.cache.park(cursor, memory, true, demand);
    }

    /// Gives back all.
    pub(super) fn give_back(&mut self) {
        self.pause();
        let owned = self.memory.bytes();
        self.memory.count(0);
        self.cache.return_memory(owned);
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Cache {
    /// Decodes only while `wanted`: each decode ends at its next step once that returns false. It is asked often and must be
    /// quick. The last call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(wanted);
    }

    /// Checks that the mount has not ended, for work that takes long.
    ///
    /// # Errors
    /// [`Error::Io`] if [`Cache::decode_while`] says that nothing is wanted any more.
    pub(crate) fn check_wanted(&self) -> Result<()> {
        self.check(0)
    }

    /// Runs `wait`, which waits for something outside of this process, such as a server's answer. A thread with a run slot gives it back
    /// before, and goes on afterwards even if all slots are taken: it may have a lock that the threads with slots wait for. It keeps its
    /// memory.
    #[cfg(any(feature = "remote", test))]
    pub(crate) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        if HAS_SLOT_OF.get() != self.address() {
            return wait();
        }
        HAS_SLOT_OF.set(0);
        self.stop_running();
        let outcome = wait();
        self.lock().gate.go_on();
        HAS_SLOT_OF.set(self.address());
        outcome
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Gives back all `owned` bytes of a thread.
    fn return_memory(&self, owned: u64) {
        if owned > 0 {
            let mut ledger = self.lock();
            ledger.gate.give_back(owned);
            self.signal(ledger);
        }
    }

    /// Gives a run slot back.
    fn stop_running(&self) {
        let mut ledger = self.lock();
        ledger.gate.stop();
        self.signal(ledger);
    }

    /// Waits for a run slot, and tells whether the thread has one. If it is not `urgent`, it lets those that are go first, as often as
    /// its `patience` lasts.
    fn wait_to_run<'a>(
        &self,
        mut ledger: MutexGuard<'a, Ledger>,
        urgent: bool,
        mut patience: u32,
    ) -> (MutexGuard<'a, Ledger>, bool) {
        let reader = usize::from(urgent);
        ledger.gate.urgent = ledger.gate.urgent.saturating_add(reader);
        let (mut ledger, runs) = self.wait_until(ledger, |gate| {
            let yields = patience > 0;
            patience = patience.saturating_sub(1);
            gate.run(yields)
        });
        ledger.gate.urgent = ledger.gate.urgent.saturating_sub(reader);
        (ledger, runs)
    }

    /// Waits until the gate admits the thread, and tells whether it has: the mount may end before.
    fn wait_until<'a>(
        &self,
        mut ledger: MutexGuard<'a, Ledger>,
        mut admits: impl FnMut(&mut Gate) -> bool,
    ) -> (MutexGuard<'a, Ledger>, bool) {
        let mut is_wanted = true;
        while is_wanted && !admits(&mut ledger.gate) {
            (ledger, is_wanted) = self.wait(ledger);
        }
        (ledger, is_wanted)
    }

    /// Waits until something may have changed, and tells whether the mount has not ended meanwhile.
    fn wait<'a>(&self, mut ledger: MutexGuard<'a, Ledger>) -> (MutexGuard<'a, Ledger>, bool) {
        ledger.waiting = ledger.waiting.saturating_add(1);
        let woken = self.changed.wait_timeout(ledger, LOOK_EVERY);
        (ledger, _) = woken.unwrap_or_else(PoisonError::into_inner);
        ledger.waiting = ledger.waiting.saturating_sub(1);
        (ledger, self.is_wanted())
    }

    /// Wakes the threads that wait to be admitted. There is none as a rule, and waking none costs a system call.
    pub(super) fn signal(&self, ledger: MutexGuard<'_, Ledger>) {
        let waiting = ledger.waiting > 0;
        drop(ledger);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Whether the mount, and who this thread works for, still need decoded bytes.
    fn is_wanted(&self) -> bool {
        let wanted = Arc::clone(&self.wanted.read().unwrap_or_else(PoisonError::into_inner));
        wanted() && caller::is_wanted()
    }

    /// Checks that a decoder may go on that takes `total` bytes of memory.
    ///
    /// # Errors
    /// As of [`Grant::admit`].
    fn check(&self, total: u64) -> Result<()> {
        if !self.is_wanted() {
            return Err(unwanted());
        }
        if total <= self.budget().saturating_add(BEYOND) {
            return Ok(());
        }
        let cache = total.saturating_sub(BEYOND).div_ceil(1 << 20);
        let why = format!(
            "decoding takes {total} bytes of memory; mount the file with -o cache={cache}M or more"
        );
        Err(Error::unsupported(Place::File, why))
    }
}

fn unwanted() -> Error {
    Error::io(
        "decoding after the mount has ended",
        io::ErrorKind::Interrupted.into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    fn slot(cache: &Cache) -> Grant<'_> {
        let mut grant = Grant::new(cache);
        assert!(admit(&mut grant, 0).unwrap());
        grant
    }

    fn admit(grant: &mut Grant<'_>, total: u64) -> Result<bool> {
        grant.admit(total, Demand::NONE)
    }

    fn state(cache: &Cache) -> (usize, usize, u64, bool, usize) {
        let ledger = cache.lock();
        let gate = &ledger.gate;
        let waiting = ledger.waiting;
        (
            gate.running,
            gate.urgent,
            gate.granted,
            gate.queued,
            waiting,
        )
    }

    const NOTHING: (usize, usize, u64, bool, usize) = (0, 0, 0, false, 0);

    #[test]
    fn no_more_than_allowed_run_at_once() {
        let cache = Cache::new(0);
        let most = cache.lock().gate.slots;
        let slots: Vec<_> = (0..most).map(|_| slot(&cache)).collect();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _slot = slot(&cache);
                sender.send(()).unwrap();
            });
            while cache.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err());
            drop(slots);
            receiver.recv().unwrap();
        });
        assert_eq!(state(&cache), NOTHING);
    }

    /// A server that did not answer kept all files from being decoded.
    #[test]
    fn a_thread_that_waits_for_a_server_leaves_its_slot_to_others() {
        let cache = Cache::new(0);
        let most = cache.lock().gate.slots;
        let (sender, answer) = mpsc::channel::<()>();
        let answer = Mutex::new(answer);
        thread::scope(|scope| {
            for _ in 0..most {
                scope.spawn(|| {
                    let _slot = slot(&cache);
                    let waits = || answer.lock().unwrap().recv().unwrap();
                    cache.while_waiting(waits);
                    assert!(cache.lock().gate.running > 0);
                });
            }
            for _ in 0..2 * most {
                drop(slot(&cache));
            }
            for _ in 0..most {
                sender.send(()).unwrap();
            }
        });
        assert_eq!(state(&cache), NOTHING);
        assert_eq!(cache.while_waiting(|| 7), 7, "without a slot");
        assert_eq!(cache.lock().gate.running, 0);
    }

    #[test]
    fn who_holds_memory_goes_on_while_others_wait_for_it() {
        let cache = Cache::new(0);
        let proceed = |grant: &mut Grant<'_>, total| {
            let admitted = admit(grant, total).unwrap();
            assert_eq!(grant.has_slot, admitted);
            grant.pause();
            admitted
        };
        let mut first = Grant::new(&cache);
        assert!(proceed(&mut first, BEYOND - SMALL));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let total = BEYOND / 2;
                let mut grant = Grant::new(&cache);
                assert!(!proceed(&mut grant, total));
                grant.wait_for(total).unwrap();
                assert!(proceed(&mut grant, total));
            });
            while !cache.lock().gate.queued {
                thread::yield_now();
            }
            assert!(proceed(&mut first, BEYOND - SMALL));
            assert!(!proceed(&mut first, BEYOND));
            let mut small = Grant::new(&cache);
            assert!(proceed(&mut small, SMALL), "so little is not granted");
            assert_eq!(cache.used(), BEYOND, "it counts all the same");
            drop(small);
            drop(first);
            waiting.join().unwrap();
        });
        assert_eq!((state(&cache), cache.used()), (NOTHING, 0));
    }

    /// A decoder that only holds memory. Notes what is granted while it is freed.
    struct Resting(u64, Arc<AtomicU64>, Arc<Cache>);

    impl Cursor for Resting {
        fn position(&self) -> u64 {
            0
        }

        fn read(&mut self, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }

        fn held(&self) -> u64 {
            self.0
        }
    }

    impl Drop for Resting {
        fn drop(&mut self) {
            self.1.store(self.2.lock().gate.granted, Ordering::Relaxed);
        }
    }

    /// What is granted and what counts were two numbers of a permit once. A decoder that rested or was being freed was granted nothing,
    /// and then more decoders were in memory than the gate allows.
    #[test]
    fn what_is_granted_counts_until_the_decoder_is_freed() {
        let cache = Cache::new(64 << 20);
        let granted = || cache.lock().gate.granted;
        let key = Demand::NONE.key();
        let granted_last = Arc::<AtomicU64>::default();
        let resting = |held| Box::new(Resting(held, granted_last.clone(), cache.clone()));
        let mut grant = Grant::new(&cache);
        for (total, held) in [(SMALL, 0), (9 << 20, 9 << 20), (1 << 20, 9 << 20)] {
            assert!(admit(&mut grant, total).unwrap());
            assert_eq!(granted(), held);
            assert_eq!(cache.used(), held.max(total), "the most that it needed");
        }
        grant.park(resting(7 << 20), Demand::NONE);
        assert_eq!((granted(), cache.used()), (7 << 20, 7 << 20));
        grant.wait_for(5 << 20).unwrap();
        assert_eq!((granted(), cache.used()), (12 << 20, 12 << 20));
        let taken = cache.unpark(key, 0, |_| true).unwrap();
        assert_eq!((granted(), cache.used()), (12 << 20, 12 << 20));
        grant.take_over(taken.memory);
        assert_eq!((granted(), cache.used()), (7 << 20, 7 << 20), "the larger");
        grant.park(taken.cursor, Demand::NONE);
        let most = cache.lock().gate.memory;
        grant.wait_for(most).unwrap();
        assert_eq!((granted(), cache.used()), (most, most));
        assert_eq!(granted_last.load(Ordering::Relaxed), 7 << 20);
        grant.park(resting(8 << 20), Demand::NONE);
        let mut other = Grant::new(&cache);
        assert!(admit(&mut other, most - 1).unwrap(), "no thread decodes");
        assert_eq!(granted_last.load(Ordering::Relaxed), 8 << 20);
        drop(other);
        assert_eq!((granted(), cache.used()), (0, 0));
    }

    /// Decoding ahead dropped one after the other, and then gave up all the same.
    #[test]
    fn decoders_rest_on_where_all_of_them_make_no_room() {
        let cache = Cache::new(64 << 20);
        let mut grant = Grant::new(&cache);
        for key in 0..3 {
            assert!(admit(&mut grant, 8 << 20).unwrap());
            let cursor = Resting(8 << 20, Arc::default(), cache.clone());
            grant.park(Box::new(cursor), Demand::Random(key));
        }
        let mut running = slot(&cache);
        assert!(admit(&mut running, 40 << 20).unwrap());
        assert!(!grant.admit(57 << 20, Demand::Background(7)).unwrap());
        assert_eq!(cache.used(), 64 << 20);
    }

    /// A thread that has waited for memory counts it before room is made for it: that must not be forgotten.
    #[test]
    fn room_is_made_for_memory_that_a_thread_has_waited_for() {
        let cache = Cache::new(8 << 20);
        let demand = Demand::NONE;
        let fill = |index| {
            let buffer = cache.segment(1 << 20, demand);
            cache.insert(demand.key(), index, buffer, false);
        };
        (0..7).for_each(fill);
        let mut grant = Grant::new(&cache);
        grant.wait_for(6 << 20).unwrap();
        assert!(cache.used() > cache.budget());
        assert!(
            cache.contains(demand.key(), 0),
            "what is parked may be among it"
        );
        assert!(admit(&mut grant, 6 << 20).unwrap());
        assert!(cache.used() <= cache.budget(), "{} bytes", cache.used());
    }

    #[test]
    fn what_never_fits_is_refused_with_what_to_do() {
        let cache = Cache::new(16 << 20);
        let mut grant = Grant::new(&cache);
        assert!(admit(&mut grant, 48 << 20).is_ok());
        for error in [
            admit(&mut grant, 130 << 20).err(),
            grant.wait_for(130 << 20).err(),
        ] {
            let text = error.unwrap().to_string();
            assert!(text.contains("-o cache=98M"), "{text}");
        }
        let cache = Cache::new(98 << 20);
        assert!(admit(&mut Grant::new(&cache), 130 << 20).is_ok());
    }

    /// Those that waited when the kernel had ended the connection kept the mount from ending.
    #[test]
    fn waiting_ends_with_the_mount() {
        let wanted = Arc::new(AtomicBool::new(true));
        let cache = Cache::new(0);
        let asked = Arc::clone(&wanted);
        cache.decode_while(move || asked.load(Ordering::Relaxed));
        let mut all = Grant::new(&cache);
        all.wait_for(BEYOND).unwrap();
        let most = cache.lock().gate.slots;
        let slots: Vec<_> = (0..most).map(|_| slot(&cache)).collect();
        let (sender, outcome) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let outcome = Grant::new(&cache).wait_for(SMALL + 1);
                    sender.send(outcome).unwrap();
                });
            }
            scope.spawn(|| {
                let mut small = Grant::new(&cache);
                let outcome = admit(&mut small, SMALL).map(drop);
                sender.send(outcome).unwrap();
            });
            while cache.lock().waiting < 3 {
                thread::yield_now();
            }
            wanted.store(false, Ordering::Relaxed);
            for _ in 0..3 {
                assert!(matches!(outcome.recv().unwrap(), Err(Error::Io { .. })));
            }
        });
        drop(slots);
        drop(all);
        assert_eq!((state(&cache), cache.used()), (NOTHING, 0));
    }
}
