use super::*;
use crate::error::Error;
use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

const MIB: u64 = 1 << 20;

/// Where a thread of the model stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    /// It looks for a way to its segment.
    Looking,
    /// It waits until another thread shows something else than this segment.
    Waiting(usize, u8),
    /// It shows what it is about to decode, and asks for this weight.
    Asking(u64),
    /// It waits for this weight.
    Queued(u64),
    /// It has its weight, and takes a decoder.
    Taking,
    /// It has a decoder, which stands before the segment that it shows.
    Running,
    Ended,
}

/// A thread that reads one segment of a block.
#[derive(Debug, Clone, Copy)]
struct Program {
    block: usize,
    wanted: u8,
    /// Whether a reader waits for it.
    urgent: bool,
    /// Whether that reader may be gone at any time.
    dies: bool,
}

/// A rule that the threads break, to show that the model would find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breach {
    /// A thread keeps what it has while it waits for more.
    Keeps,
    /// A thread does not show what it is about to decode before it has its weight.
    Hides,
}

/// What a decoder needs for each segment.
type Needs = [u64; 3];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    queue: Queue,
    /// Where each thread stands, the segment that it shows, and the weight that it has.
    threads: [(At, Option<u8>, u64); 3],
    /// Where a decoder of each block rests.
    resting: [Option<u8>; 2],
    /// How often room may yet be made by dropping one.
    drops: u8,
    /// How often each segment of each block was decoded. The cache keeps all of them.
    decoded: [[u8; 3]; 2],
}

impl World {
    /// Has the reader of thread `n` be gone.
    fn dies(&self, n: usize, block: usize) -> Option<Self> {
        let mut next = self.clone();
        let (at, shown, held) = &mut next.threads[n];
        match at {
            At::Queued(_) => next.queue.leave(n as u64),
            At::Asking(_) => {}
            // a decoder that stands before a segment is left to the others
            At::Running => next.resting[block] = *shown,
            _ => return None,
        }
        next.queue.give_back(*held);
        (*at, *shown, *held) = (At::Ended, None, 0);
        Some(next)
    }

    /// Where the decoder is that a thread takes.
    fn begins_at(&self, program: &Program) -> u8 {
        let resting = self.resting[program.block];
        resting.filter(|&at| at <= program.wanted).unwrap_or(0)
    }

    /// Has thread `n` look for a way to its segment.
    fn look(&mut self, n: usize, programs: &[Program; 3], breach: Option<Breach>) {
        let program = &programs[n];
        let begins_at = self.begins_at(program);
        let others = (0..3).filter(|&other| other != n && programs[other].block == program.block);
        let runs = others.filter_map(|other| Some((other, self.threads[other].1?)));
        let passing = runs.filter(|&(_, place)| (begins_at..=program.wanted).contains(&place));
        let run = passing.max_by_key(|&(_, place)| place);
        let (at, shown, _) = &mut self.threads[n];
        if self.decoded[program.block][usize::from(program.wanted)] > 0 {
            *at = At::Ended;
        } else if let Some((other, place)) = run {
            *at = At::Waiting(other, place);
        } else {
            *shown = Some(begins_at).filter(|_| breach != Some(Breach::Hides));
            *at = At::Asking(1);
        }
    }

    /// Has thread `n` decode the segment that it shows, or leave its decoder if there is no memory for it.
    fn decode(&mut self, n: usize, program: &Program, needs: &Needs, breach: Option<Breach>) {
        let (at, shown, held) = &mut self.threads[n];
        let place = shown.unwrap_or_default();
        let needed = needs[usize::from(place)];
        let resting = &mut self.resting[program.block];
        if !self.queue.grow(*held, needed) {
            *resting = Some(place);
            if breach != Some(Breach::Keeps) {
                self.queue.give_back(take(held));
            }
            *at = At::Asking(needed);
            return;
        }
        *held = needed.max(*held);
        self.decoded[program.block][usize::from(place)] += 1;
        *shown = Some(place + 1);
        if place == program.wanted {
            self.queue.give_back(take(held));
            (*at, *shown) = (At::Ended, None);
            *resting = Some(place + 1);
        }
    }

    /// The world once thread `n` has moved; `None` if it can't.
    fn moved(
        &self,
        n: usize,
        programs: &[Program; 3],
        needs: &Needs,
        breach: Option<Breach>,
    ) -> Option<Self> {
        let mut next = self.clone();
        let program = &programs[n];
        let begins_at = self.begins_at(program);
        let queue = &mut next.queue;
        let (at, shown, held) = &mut next.threads[n];
        match *at {
            At::Looking => next.look(n, programs, breach),
            At::Waiting(other, place) => {
                (self.threads[other].1 != Some(place)).then_some(())?;
                *at = At::Looking;
            }
            At::Asking(weight) if queue.grow(*held, weight) => (*at, *held) = (At::Taking, weight),
            At::Asking(weight) if program.urgent => {
                if breach != Some(Breach::Keeps) {
                    queue.give_back(take(held));
                }
                queue.next_ticket = n as u64;
                queue.enter();
                *at = At::Queued(weight);
            }
            At::Asking(_) => {
                queue.give_back(take(held));
                (*at, *shown) = (At::Ended, None);
            }
            At::Queued(weight) => {
                queue.serve(n as u64, weight).then_some(())?;
                queue.give_back(std::mem::replace(held, weight));
                *at = At::Taking;
            }
            At::Taking => {
                (*at, *shown) = (At::Running, Some(begins_at));
                let resting = &mut next.resting[program.block];
                *resting = resting.filter(|&at| at > program.wanted);
            }
            At::Running => next.decode(n, program, needs, breach),
            At::Ended => return None,
        }
        next.queue.next_ticket = 0;
        Some(next)
    }

    /// All worlds that may come next.
    fn next(&self, programs: &[Program; 3], needs: &Needs, breach: Option<Breach>) -> Vec<Self> {
        let moved = (0..3).filter_map(|n| self.moved(n, programs, needs, breach));
        let dying = (0..3).filter(|&n| programs[n].dies);
        let drops = (0..2).filter(|&block| self.resting[block].is_some() && self.drops > 0);
        let dropped = drops.map(|block| {
            let mut next = self.clone();
            next.resting[block] = None;
            next.drops -= 1;
            next
        });
        let died = dying.filter_map(|n| self.dies(n, programs[n].block));
        moved.chain(died).chain(dropped).collect()
    }

    fn check(
        &self,
        programs: &[Program; 3],
        drops: u8,
        breach: Option<Breach>,
    ) -> Result<(), &'static str> {
        let held = self.threads.iter().map(|thread| self.queue.share(thread.2));
        if held.sum::<u64>() != self.queue.taken || self.queue.taken > self.queue.most {
            return Err("the weights");
        }
        let waits = |at: At| {
            matches!(
                at,
                At::Queued(_) | At::Waiting(..) | At::Looking | At::Ended
            )
        };
        let mut waiting = self.threads.iter().filter(|thread| waits(thread.0));
        if breach.is_none() && waiting.any(|thread| thread.2 > 0) {
            return Err("who waits has something");
        }
        // what goes on where another stopped is decoded once, unless that has been dropped
        let undisturbed = drops == 0 && programs.iter().all(|program| !program.dies);
        if undisturbed && self.decoded.as_flattened().iter().any(|&times| times > 1) {
            return Err("decoded twice");
        }
        Ok(())
    }
}

/// Goes through all orders in which the threads may move, and gives the number of worlds; else what went wrong in one.
fn explore(
    most: u64,
    needs: &Needs,
    programs: &[Program; 3],
    drops: u8,
    breach: Option<Breach>,
) -> Result<usize, String> {
    let start = World {
        queue: Queue {
            most,
            ..Queue::default()
        },
        threads: [(At::Looking, None, 0); 3],
        resting: [None; 2],
        drops,
        decoded: [[0; 3]; 2],
    };
    // of each world whether all that may follow has been seen: one that is met before that leads back to itself
    let mut seen = HashMap::from([(start.clone(), false)]);
    let mut path = vec![(start.clone(), start.next(programs, needs, breach))];
    while let Some((world, open)) = path.last_mut() {
        let Some(next) = open.pop() else {
            seen.insert(world.clone(), true);
            path.pop();
            continue;
        };
        match seen.get(&next) {
            Some(true) => continue,
            Some(false) => return Err(format!("goes in a circle: {next:?}")),
            None => {}
        }
        next.check(programs, drops, breach)
            .map_err(|what| format!("{what}: {next:?}"))?;
        let follow = next.next(programs, needs, breach);
        let ended = next.threads.iter().all(|thread| thread.0 == At::Ended);
        if follow.is_empty() && !ended {
            return Err(format!("does not end: {next:?}"));
        }
        if ended && next.queue.taken > 0 {
            return Err(format!("something is left: {next:?}"));
        }
        seen.insert(next.clone(), false);
        path.push((next, follow));
    }
    Ok(seen.len())
}

/// The number of worlds of all sets of three threads.
fn explore_all(breach: Option<Breach>) -> Result<usize, String> {
    let kinds = [(true, false), (true, true), (false, false)];
    let programs: Vec<Program> = [0, 2]
        .into_iter()
        .flat_map(|wanted| {
            kinds.map(|(urgent, dies)| Program {
                block: 0,
                wanted,
                urgent,
                dies,
            })
        })
        .collect();
    let mut worlds = 0;
    // the last one weighs more than all of the limit
    for needs in [[1, 1, 1], [1, 3, 2], [3, 1, 9]] {
        for (n, &first) in programs.iter().enumerate() {
            for &second in programs.iter().skip(n) {
                for &third in &programs {
                    for (block, drops) in [(0, 0), (1, 0), (1, 1)] {
                        let threads = [first, second, Program { block, ..third }];
                        worlds += explore(4, &needs, &threads, drops, breach)?;
                    }
                }
            }
        }
    }
    Ok(worlds)
}

#[test]
fn in_every_order_all_threads_come_to_their_end_within_the_limit() {
    let worlds = explore_all(None).unwrap();
    assert!(worlds > 100_000, "{worlds} worlds");
}

#[test]
fn threads_that_break_a_rule_are_found() {
    let found = explore_all(Some(Breach::Keeps)).unwrap_err();
    assert!(found.starts_with("does not end"), "{found}");
    let found = explore_all(Some(Breach::Hides)).unwrap_err();
    assert!(found.starts_with("decoded twice"), "{found}");
}

#[test]
fn no_thread_overtakes_one_that_waits() {
    let mut queue = Queue {
        most: 10,
        ..Queue::default()
    };
    assert!(queue.grow(0, 6));
    let [first, second] = [queue.enter(), queue.enter()];
    assert!(!queue.serve(first, 10) && !queue.serve(second, 1));
    assert!(!queue.grow(0, 1), "it would keep out the others");
    assert!(queue.grow(6, 6) && !queue.grow(6, 7));
    queue.give_back(6);
    assert!(!queue.serve(second, 1) && queue.serve(first, 10));
    queue.give_back(10);
    queue.leave(second);
    assert!(queue.grow(0, 1));
}

#[test]
fn a_decode_of_more_than_all_runs_alone() {
    let mut queue = Queue {
        most: 10,
        ..Queue::default()
    };
    assert!(queue.grow(0, 3));
    let large = queue.enter();
    assert!(!queue.serve(large, 25));
    queue.give_back(3);
    assert!(queue.serve(large, 25));
    assert!(queue.grow(25, 30) && !queue.grow(0, 1));
    queue.give_back(30);
    assert_eq!(queue.taken, 0);
}

fn admit(permit: &mut Permit<'_>, needed: u64) -> Result<bool> {
    permit.admit(needed, true)
}

#[test]
fn who_holds_something_goes_on_while_others_wait() {
    let cache = Cache::new(0);
    let mut first = Permit::none(&cache);
    assert!(admit(&mut first, BEYOND - 2 * MIB).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut permit = Permit::none(&cache);
            assert!(!permit.grow(BEYOND / 2));
            assert!(admit(&mut permit, BEYOND / 2).unwrap());
        });
        while cache.limit.waiting() == 0 {
            thread::yield_now();
        }
        assert!(first.grow(BEYOND - 2 * MIB));
        assert!(!first.grow(BEYOND));
        let mut ahead = Permit::none(&cache);
        assert!(!ahead.admit(0, false).unwrap());
        first.give_back();
        waiting.join().unwrap();
    });
    assert_eq!((cache.limit.taken(), cache.used()), (0, 0));
}

#[test]
fn what_never_fits_is_refused_with_what_to_do() {
    let cache = Cache::new(16 * MIB);
    let mut permit = Permit::none(&cache);
    assert!(admit(&mut permit, 48 * MIB).unwrap());
    let text = admit(&mut permit, 130 * MIB).unwrap_err().to_string();
    assert!(text.contains("-o cache=98M"), "{text}");
    let cache = Cache::new(98 * MIB);
    assert!(admit(&mut Permit::none(&cache), 130 * MIB).unwrap());
}

/// Those that waited when the kernel had ended the connection kept the mount from ending.
#[test]
fn waiting_ends_with_the_mount() {
    let wanted = Arc::new(AtomicBool::new(true));
    let cache = Cache::new(0);
    let asked = Arc::clone(&wanted);
    cache.decode_while(move || asked.load(Ordering::Relaxed));
    let mut all = Permit::none(&cache);
    assert!(admit(&mut all, BEYOND).unwrap());
    let (sender, outcome) = mpsc::channel();
    thread::scope(|scope| {
        for needed in [0, 5 * MIB, BEYOND] {
            let (cache, sender) = (&cache, sender.clone());
            scope.spawn(move || {
                let outcome = admit(&mut Permit::none(cache), needed);
                sender.send(outcome).unwrap();
            });
        }
        while cache.limit.waiting() < 3 {
            thread::yield_now();
        }
        wanted.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(matches!(outcome.recv().unwrap(), Err(Error::Io { .. })));
        }
    });
    drop(all);
    assert_eq!((cache.limit.taken(), cache.used()), (0, 0));
}
