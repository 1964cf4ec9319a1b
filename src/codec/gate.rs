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
//! `held` and `need` are bytes that a decoder holds in all, not differences: that is the one number that a thread keeps. A decoder that
//! holds little takes nothing of what the gate has to grant: one for each reader is bearable.

/// What is admitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Gate {
    /// Decodes that may begin to run at once.
    pub(super) slots: usize,
    /// Bytes of memory that may be granted together.
    pub(super) memory: u64,
    /// A decoder that holds no more bytes than this is granted them always.
    pub(super) small: u64,
    /// Decodes running.
    pub(super) running: usize,
    /// Bytes of memory granted, to decoders between two steps too.
    pub(super) granted: u64,
    /// Readers that wait for a run slot.
    pub(super) urgent: usize,
    /// Whether a thread waits for memory. No other one is granted more meanwhile: many small decoders would keep out a large one
    /// for ever.
    pub(super) queued: bool,
}

impl Gate {
    /// Grants `need` bytes to a thread that has `held`, unless they are not free or another thread waits for memory. The thread then has
    /// the larger of the two.
    pub(super) fn grant(&mut self, held: u64, need: u64) -> bool {
        let more = self.share(need).saturating_sub(self.share(held));
        let granted = self.granted.saturating_add(more);
        let free = more == 0 || (!self.queued && granted <= self.memory);
        if free {
            self.granted = granted;
        }
        free
    }

    /// What `bytes` of one decoder take of the memory that may be granted.
    fn share(&self, bytes: u64) -> u64 {
        if bytes > self.small { bytes } else { 0 }
    }

    /// Makes a thread without memory the one that waits for it.
    pub(super) fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Grants `need` bytes to the thread that waits for memory, if they are free; it waits no more then.
    pub(super) fn grant_queued(&mut self, need: u64) -> bool {
        let granted = self.granted.saturating_add(self.share(need));
        let free = granted <= self.memory;
        if free {
            self.granted = granted;
            self.queued = false;
        }
        free
    }

    /// Takes back the memory of a thread that had `held` bytes.
    pub(super) fn give_back(&mut self, held: u64) {
        self.granted = self.granted.saturating_sub(self.share(held));
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
    use std::collections::{HashMap, HashSet};

    /// Where a thread of the model stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// A thread that decodes: what each of its steps needs, and whether a reader waits for it.
    #[derive(Debug, Clone)]
    struct Program {
        needs: &'static [u64],
        urgent: bool,
        /// Whether it finds after its first step that the thread before it decodes what it wants, and waits for that.
        follows: bool,
        /// Whether it takes the lock of the stream in each step, and waits for a server meanwhile.
        waits: bool,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct World {
        gate: Gate,
        /// Whether a thread has the lock of the stream.
        is_locked: bool,
        /// For each thread: where it stands, the step that it is at, and its memory.
        threads: Vec<(At, usize, u64)>,
    }

    impl World {
        /// What may be next.
        fn moves(&self, programs: &[Program]) -> Vec<Self> {
            (0..self.threads.len())
                .filter_map(|n| self.moves_of(n, &programs[n]))
                .collect()
        }

        fn moves_of(&self, n: usize, program: &Program) -> Option<Self> {
            let mut next = self.clone();
            let gate = &mut next.gate;
            let (at, step, held) = &mut next.threads[n];
            let need = program.needs.get(*step).copied().unwrap_or_default();
            match *at {
                At::Asking if gate.grant(*held, need) => {
                    *held = need.max(*held);
                    gate.urgent += usize::from(program.urgent);
                    *at = At::Granted;
                }
                At::Asking if program.urgent => {
                    gate.give_back(std::mem::take(held));
                    *at = At::Queueing;
                }
                // What no reader waits for is given up.
                At::Asking => {
                    gate.give_back(std::mem::take(held));
                    *at = At::Ended;
                }
                At::Queueing => {
                    gate.queue().then_some(())?;
                    *at = At::Queued;
                }
                At::Queued => {
                    gate.grant_queued(need).then_some(())?;
                    *held = need;
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
                At::Away => {
                    gate.go_on();
                    *at = At::Resumed;
                }
                At::Running | At::Resumed => {
                    next.is_locked &= *at == At::Running;
                    gate.stop();
                    *step += 1;
                    *at = At::Asking;
                    if *step == program.needs.len() || program.follows {
                        gate.give_back(std::mem::take(held));
                        *at = At::Ended;
                    }
                    if program.follows {
                        *at = At::Following;
                    }
                }
                At::Following => {
                    (self.threads[n - 1].0 == At::Ended).then_some(())?;
                    *at = At::Ended;
                }
                At::Ended => return None,
            }
            Some(next)
        }

        fn check(&self) {
            let count = |at: At| self.threads.iter().filter(|thread| thread.0 == at).count();
            let begun = count(At::Running);
            let running = begun + count(At::Resumed);
            let counts = |held: &u64| *held > self.gate.small;
            let held: u64 = self.threads.iter().map(|t| t.2).filter(counts).sum();
            assert!(running == self.gate.running && begun <= self.gate.slots);
            assert!(held == self.gate.granted && held <= self.gate.memory);
            let waiting = self.threads.iter().filter(|t| t.0 == At::Queued);
            assert_eq!(waiting.count(), usize::from(self.gate.queued));
        }
    }

    /// Goes through all orders in which the threads may move, and checks that each leads to the end of all.
    fn explore(slots: usize, small: u64, programs: &[Program]) -> usize {
        let start = World {
            gate: Gate {
                slots,
                memory: 5,
                small,
                ..Gate::default()
            },
            is_locked: false,
            threads: vec![(At::Asking, 0, 0); programs.len()],
        };
        let mut before: HashMap<World, Vec<World>> = HashMap::new();
        let mut ends = Vec::new();
        let mut open = vec![start.clone()];
        let mut seen = HashSet::from([start]);
        while let Some(world) = open.pop() {
            world.check();
            let moves = world.moves(programs);
            if moves.is_empty() {
                let ended = world.threads.iter().all(|thread| thread.0 == At::Ended);
                assert!(ended, "nothing moves any more: {world:?}");
                assert_eq!((world.gate.granted, world.gate.urgent), (0, 0));
                ends.push(world.clone());
            }
            for next in moves {
                before.entry(next.clone()).or_default().push(world.clone());
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        // Backwards from the ends: from each state some order leads there.
        let mut ending: HashSet<World> = ends.iter().cloned().collect();
        while let Some(world) = ends.pop() {
            for earlier in before.remove(&world).into_iter().flatten() {
                if ending.insert(earlier.clone()) {
                    ends.push(earlier);
                }
            }
        }
        assert_eq!(
            ending.len(),
            seen.len(),
            "a state that no order leads out of"
        );
        seen.len()
    }

    #[test]
    fn in_every_order_all_threads_come_to_their_end_within_the_bounds() {
        let needs: [&[u64]; 5] = [&[0], &[2, 3], &[4], &[1, 5, 2], &[5, 1]];
        let programs: Vec<Program> = needs
            .into_iter()
            .flat_map(|needs| {
                [(true, false), (false, false), (true, true)].map(|(urgent, follows)| Program {
                    needs,
                    urgent,
                    follows,
                    waits: needs.len() > 1 && urgent,
                })
            })
            .collect();
        let mut states = 0;
        for first in programs.iter().filter(|program| !program.follows) {
            for second in &programs {
                for third in &programs {
                    let threads = [first.clone(), second.clone(), third.clone()];
                    states += explore(1, 0, &threads);
                    states += explore(2, 0, &threads);
                    states += explore(1, 2, &threads);
                }
            }
        }
        assert!(states > 500_000, "{states} states");
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
