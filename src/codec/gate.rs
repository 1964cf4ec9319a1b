//! The rule that admits decodes: how many run at once, and how much memory they are granted together.
//!
//! Nothing here waits. A thread that is not admitted asks again when something has changed (see [`Grant`](super::grant::Grant)),
//! so that a test can try every order in which threads may ask.
//!
//! A thread asks for memory first and for a run slot then. It never waits for memory while it has a run slot or memory. A thread with a
//! run slot waits for nothing but the lock of a stream, and the thread with that lock never waits to be admitted: so the threads that
//! are admitted always come to their end. Before a thread waits for a server it gives its run slot back. Afterwards it goes on at once,
//! even if all slots are taken: it may have the lock that the threads with these slots wait for. It keeps its memory meanwhile.
//!
//! A thread keeps one number: how many bytes it has been granted in all, `owned`. It asks for another number of bytes in all, `total`,
//! never for a difference. A decoder of few bytes takes nothing of what the gate has to grant: one for each reader is bearable.
//!
//! What a decoder holds stays granted as long as it exists. While it rests no thread owns that memory, so a thread that is not granted
//! what it asks for drops decoders at rest, the oldest first, if all of them make enough room. It gives their memory back when it has
//! freed them.

/// What is admitted.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate {
    /// Decodes that may begin to run at once.
    pub(super) slots: usize,
    /// Bytes of memory that may be granted together.
    pub(super) memory: u64,
    /// A decoder of no more bytes than this is granted them always.
    pub(super) small: u64,
    /// Decodes running.
    pub(super) running: usize,
    /// Bytes of memory granted: to decoders that run, are between two steps, rest, or are being freed.
    pub(super) granted: u64,
    /// Readers that wait for a run slot.
    pub(super) urgent: usize,
    /// Whether a thread waits for memory. No other one is granted more meanwhile: many small decoders would keep out a large one
    /// for ever.
    pub(super) queued: bool,
}

impl Gate {
    /// Grants `total` bytes to a thread that owns `owned`, unless they are not free or another thread waits for memory. The thread then
    /// owns the larger of the two.
    pub(super) fn grant(&mut self, owned: u64, total: u64) -> bool {
        let more = self.share(total).saturating_sub(self.share(owned));
        let granted = self.granted.saturating_add(more);
        let free = more == 0 || (!self.queued && granted <= self.memory);
        if free {
            self.granted = granted;
        }
        free
    }

    /// Whether a thread that owns `owned` bytes could be granted `total` if decoders at rest were freed that have been granted `at_rest`
    /// together.
    pub(super) fn has_room_with(&self, at_rest: u64, owned: u64, total: u64) -> bool {
        let more = self.share(total).saturating_sub(self.share(owned));
        let granted = self.granted.saturating_sub(at_rest);
        granted.saturating_add(more) <= self.memory
    }

    /// What `bytes` of one decoder take of the memory that may be granted.
    pub(super) fn share(&self, bytes: u64) -> u64 {
        if bytes > self.small { bytes } else { 0 }
    }

    /// Makes a thread without memory the one that waits for it.
    pub(super) fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Grants `total` bytes to the thread that waits for memory, if they are free; it waits no more then.
    pub(super) fn grant_queued(&mut self, total: u64) -> bool {
        let granted = self.granted.saturating_add(self.share(total));
        let free = granted <= self.memory;
        if free {
            self.granted = granted;
            self.queued = false;
        }
        free
    }

    /// Has the decoder of a thread that owns `owned` bytes rest. The `held` bytes that it holds stay granted until it is freed, or taken by
    /// a thread, which owns them then.
    pub(super) fn rest(&mut self, owned: u64, held: u64) {
        self.give_back(owned);
        self.granted = self.granted.saturating_add(self.share(held));
    }

    /// Takes back all `owned` bytes of a thread.
    pub(super) fn give_back(&mut self, owned: u64) {
        self.granted = self.granted.saturating_sub(self.share(owned));
    }

    /// Gives a run slot, if one is free; to a thread that `yields`, not while a reader waits for one.
    pub(super) fn run(&mut self, yields: bool) -> bool {
        let free = self.running < self.slots && !(yields && self.urgent > 0);
        if free {
            self.running = self.running.saturating_add(1);
        }
        free
    }

    /// Lets a thread that has waited for a server run again.
    #[cfg(any(feature = "remote", test))]
    pub(super) fn go_on(&mut self) {
        self.running = self.running.saturating_add(1);
    }

    /// Takes a run slot back.
    pub(super) fn stop(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::mem::take;

    /// Where a thread of the model stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum At {
        /// It asks for the memory of its step.
        Asking,
        /// It has given back its memory, and asks to be the one that waits for it.
        Queueing,
        Queued,
        /// It has its memory, and asks for a run slot.
        Granted,
        Running,
        /// It waits for a server, with the lock of the stream and without a run slot.
        Away,
        /// It runs again.
        Resumed,
        /// It waits for the end of the thread before it, without memory.
        Following,
        Ended,
    }

    /// A thread that decodes.
    #[derive(Debug, Clone, Copy)]
    struct Program {
        /// The bytes that its decoder takes in each of its steps.
        totals: &'static [u64],
        /// Whether a reader waits for it.
        urgent: bool,
        /// Whether it finds after its first step that the thread before it decodes what it wants, and waits for that. If not, it begins with
        /// a decoder at rest, if there is one, and its own rests in the end.
        follows: bool,
        /// Whether it takes the lock of the stream in each step, and waits for a server meanwhile.
        waits: bool,
    }

    impl Program {
        /// Where the thread stands when it has taken so many steps.
        fn place_after(&self, steps: usize) -> At {
            if self.follows {
                At::Following
            } else if steps == self.totals.len() {
                At::Ended
            } else {
                At::Asking
            }
        }
    }

    /// A rule that the threads break, to show that the model would find it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Breach {
        /// A thread keeps its memory while it waits for more.
        KeepsMemory,
        /// A thread waits for a run slot while it has the lock of the stream.
        WaitsWithLock,
    }

    #[derive(Debug, Clone)]
    struct World {
        gate: Gate,
        /// Whether a thread has the lock of the stream.
        is_locked: bool,
        /// For each thread: where it stands, the step that it is at, and the bytes that it owns.
        threads: [(At, usize, u64); 3],
        /// The bytes of the decoder at rest that each thread has left.
        at_rest: [u64; 3],
        /// The bytes of the dropped decoder that each thread is freeing.
        freeing: [u64; 3],
    }

    impl World {
        /// Has thread `n` take a decoder at rest to begin with, drop one for the memory that it is not granted, or free the one that it has
        /// dropped. Whether it does one of these.
        fn deals_with_rest(&mut self, n: usize, program: &Program) -> bool {
            let gate = &mut self.gate;
            if self.freeing[n] > 0 {
                gate.give_back(take(&mut self.freeing[n]));
                return true;
            }
            let (at, step, owned) = &mut self.threads[n];
            let total = program.totals.get(*step).copied().unwrap_or_default();
            let counted = self.at_rest.iter().filter(|held| **held > gate.small);
            let at_rest = counted.sum();
            let Some(held) = self.at_rest.iter_mut().find(|held| **held > gate.small) else {
                return false;
            };
            let may_take = *at == At::Asking && *step == 0 && *owned == 0;
            if may_take && !program.follows {
                *owned = take(held);
                return true;
            }
            let is_refused = match *at {
                At::Asking => !gate.queued && !gate.clone().grant(*owned, total),
                At::Queued => !gate.clone().grant_queued(total),
                _ => false,
            };
            let owned = if *at == At::Queued { 0 } else { *owned };
            let drops = is_refused && gate.has_room_with(at_rest, owned, total);
            if drops {
                self.freeing[n] = take(held);
            }
            drops
        }

        /// Has thread `n` leave its memory with its decoder, which rests in the end, or give it back, if it has not to decode on.
        fn leave_memory(&mut self, n: usize, program: &Program) {
            let (at, _, owned) = &mut self.threads[n];
            if *at == At::Ended && !program.follows {
                self.gate.rest(*owned, *owned);
                self.at_rest[n] = take(owned);
            } else if *at != At::Asking {
                self.gate.give_back(take(owned));
            }
        }

        /// The world once thread `n` has moved; `None` if it can't.
        fn moved(&self, n: usize, program: &Program, breach: Option<Breach>) -> Option<Self> {
            let mut next = self.clone();
            if next.deals_with_rest(n, program) {
                return Some(next);
            }
            let gate = &mut next.gate;
            let (at, step, owned) = &mut next.threads[n];
            let total = program.totals.get(*step).copied().unwrap_or_default();
            match *at {
                At::Asking if gate.grant(*owned, total) => {
                    *owned = total.max(*owned);
                    gate.urgent += usize::from(program.urgent);
                    *at = At::Granted;
                }
                At::Asking if program.urgent => {
                    if breach != Some(Breach::KeepsMemory) {
                        gate.give_back(take(owned));
                    }
                    *at = At::Queueing;
                }
                // What no reader waits for is given up.
                At::Asking => {
                    gate.give_back(take(owned));
                    *at = At::Ended;
                }
                At::Queueing => {
                    gate.queue().then_some(())?;
                    *at = At::Queued;
                }
                At::Queued => {
                    gate.grant_queued(total).then_some(())?;
                    gate.give_back(*owned);
                    *owned = total;
                    *at = At::Asking;
                }
                // One that yields does so a few times only, so what it may do is what one may do that does not.
                At::Granted => {
                    gate.run(false).then_some(())?;
                    gate.urgent -= usize::from(program.urgent);
                    *at = At::Running;
                }
                At::Running if program.waits => {
                    (!self.is_locked).then_some(())?;
                    next.is_locked = true;
                    gate.stop();
                    *at = At::Away;
                }
                At::Away if breach == Some(Breach::WaitsWithLock) => {
                    gate.run(false).then_some(())?;
                    *at = At::Resumed;
                }
                At::Away => {
                    gate.go_on();
                    *at = At::Resumed;
                }
                At::Running | At::Resumed => {
                    next.is_locked &= *at == At::Running;
                    gate.stop();
                    *step += 1;
                    *at = program.place_after(*step);
                    next.leave_memory(n, program);
                }
                At::Following => {
                    (self.threads[n - 1].0 == At::Ended).then_some(())?;
                    *at = At::Ended;
                }
                At::Ended => return None,
            }
            Some(next)
        }

        /// How far thread `n` is, and how many decoders at rest are gone: the first number that changes grows with each of its moves.
        fn progress(&self, n: usize, program: &Program) -> (usize, usize) {
            let gone = self.at_rest.iter().filter(|&&held| held == 0).count();
            let freed = self.freeing.iter().filter(|&&held| held == 0).count();
            let (at, step, owned) = self.threads[n];
            let total = program.totals.get(step).copied().unwrap_or_default();
            let place = match at {
                At::Asking if owned < total => 0,
                At::Queueing => 1,
                At::Queued => 2,
                // It has been granted the memory in the queue, or had as much in the step before.
                At::Asking => 3,
                _ => at as usize + 1,
            };
            (step * 16 + place, 2 * gone + freed)
        }

        fn check(&self) {
            let count = |at: At| self.threads.iter().filter(|thread| thread.0 == at).count();
            let begun = count(At::Running);
            let running = begun + count(At::Resumed);
            let counts = |owned: &u64| *owned > self.gate.small;
            let owned = self.threads.iter().map(|thread| &thread.2);
            let left = self.at_rest.iter().chain(&self.freeing);
            let owned: u64 = owned.chain(left).filter(|bytes| counts(bytes)).sum();
            assert!(running == self.gate.running && begun <= self.gate.slots);
            assert!(owned == self.gate.granted && owned <= self.gate.memory);
            assert_eq!(count(At::Queued), usize::from(self.gate.queued));
        }

        /// All that may differ between two worlds of the same programs, as one number.
        fn packed(&self) -> u64 {
            let mut packed = 0;
            let mut put = |value: u64, bits: u32| {
                assert!(value < 1 << bits);
                packed = packed << bits | value;
            };
            put(self.gate.running as u64, 2);
            put(self.gate.granted, 3);
            put(self.gate.urgent as u64, 2);
            put(self.gate.queued.into(), 1);
            put(self.is_locked.into(), 1);
            for (at, step, owned) in self.threads {
                put(at as u64, 4);
                put(step as u64, 2);
                put(owned, 3);
            }
            for held in self.at_rest.into_iter().chain(self.freeing) {
                put(held, 3);
            }
            packed
        }
    }

    /// Goes through all orders in which the threads may move, and gives the number of worlds; else the world that nothing leads out of,
    /// though not all threads have ended.
    ///
    /// A move brings the thread that moves further, or frees one of the decoders at rest, of which each thread leaves one at most; it
    /// leaves the other threads where they are. So each order has an end, and that is the end of all threads if no other world is without
    /// a move.
    fn explore(
        slots: usize,
        small: u64,
        programs: &[Program; 3],
        breach: Option<Breach>,
    ) -> Result<usize, Box<World>> {
        let start = World {
            gate: Gate {
                slots,
                memory: 5,
                small,
                ..Gate::default()
            },
            is_locked: false,
            threads: [(At::Asking, 0, 0); 3],
            at_rest: [0; 3],
            freeing: [0; 3],
        };
        let mut seen = HashSet::from([start.packed()]);
        let mut open = vec![start];
        while let Some(world) = open.pop() {
            world.check();
            let mut moves = false;
            for (n, program) in programs.iter().enumerate() {
                let Some(next) = world.moved(n, program, breach) else {
                    continue;
                };
                moves = true;
                let [before, after] = [&world, &next].map(|world| world.progress(n, program));
                assert!(before < after, "thread {n} went back: {world:?}");
                if seen.insert(next.packed()) {
                    open.push(next);
                }
            }
            if !moves {
                if world.threads.iter().any(|thread| thread.0 != At::Ended) {
                    return Err(Box::new(world));
                }
                let left = world.at_rest.iter().filter(|held| **held > small).sum();
                assert_eq!((world.gate.granted, world.gate.urgent), (left, 0));
            }
        }
        Ok(seen.len())
    }

    /// The numbers of worlds of all sets of three threads, with few slots and with small decoders; else where one does not end.
    fn explore_all(breach: Option<Breach>) -> Result<usize, Box<World>> {
        let totals: [&[u64]; 5] = [&[0], &[2, 3], &[4], &[1, 5, 2], &[5, 1]];
        let programs: Vec<Program> = totals
            .into_iter()
            .flat_map(|totals| {
                [(true, false), (false, false), (true, true)].map(|(urgent, follows)| Program {
                    totals,
                    urgent,
                    follows,
                    waits: totals.len() > 1 && urgent,
                })
            })
            .collect();
        let mut worlds = 0;
        for &first in programs.iter().filter(|program| !program.follows) {
            for &second in &programs {
                for &third in &programs {
                    let threads = [first, second, third];
                    worlds += explore(1, 0, &threads, breach)?;
                    worlds += explore(2, 0, &threads, breach)?;
                    worlds += explore(1, 2, &threads, breach)?;
                }
            }
        }
        Ok(worlds)
    }

    #[test]
    fn in_every_order_all_threads_come_to_their_end_within_the_bounds() {
        let worlds = explore_all(None).unwrap();
        assert!(worlds > 500_000, "{worlds} worlds");
    }

    #[test]
    fn threads_that_break_a_rule_are_found_to_wait_for_each_other() {
        let stuck = explore_all(Some(Breach::KeepsMemory)).unwrap_err();
        assert!(stuck.gate.queued && stuck.gate.granted > 0, "{stuck:?}");
        let stuck = explore_all(Some(Breach::WaitsWithLock)).unwrap_err();
        let places = stuck.threads.map(|thread| thread.0);
        assert!(
            places.contains(&At::Away) && places.contains(&At::Running),
            "{stuck:?}"
        );
    }

    #[test]
    fn no_thread_overtakes_one_that_waits_for_memory() {
        let mut gate = Gate {
            slots: 4,
            memory: 10,
            ..Gate::default()
        };
        assert!(gate.grant(0, 6));
        assert!(gate.queue() && !gate.queue());
        assert!(!gate.grant_queued(10));
        assert!(!gate.grant(0, 1), "it would keep out the other one");
        assert!(gate.grant(6, 6), "it has its memory already");
        gate.give_back(6);
        assert!(gate.grant_queued(10));
        assert!(!gate.grant(0, 1) && gate.queue());
    }

    #[test]
    fn a_small_decoder_is_granted_its_memory_always_and_all_of_it_once_it_grows() {
        let mut gate = Gate {
            memory: 10,
            small: 3,
            ..Gate::default()
        };
        assert!(gate.grant(0, 9) && gate.queue());
        assert!(gate.grant(0, 3) && gate.granted == 9);
        assert!(!gate.grant(3, 4), "it counts now, and another one waits");
        gate.give_back(9);
        assert!(gate.grant_queued(2) && gate.granted == 0);
        assert!(gate.grant(3, 4) && gate.granted == 4, "all four, not one");
        assert!(gate.grant(4, 2) && gate.granted == 4);
        gate.give_back(4);
        assert_eq!(gate.granted, 0);
    }

    #[test]
    fn readers_go_before_decoding_ahead() {
        let mut gate = Gate {
            slots: 1,
            urgent: 1,
            ..Gate::default()
        };
        assert!(!gate.run(true));
        assert!(gate.run(false) && !gate.run(false));
        gate.stop();
        gate.urgent = 0;
        assert!(gate.run(true));
    }
}
