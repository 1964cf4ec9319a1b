//! How much memory the decodes that run take together: one semaphore, weighted in bytes.
//!
//! A decode weighs what its decoder needs, and the segment that it fills. A thread takes that weight first and the decoder then. If the
//! decoder needs more on its way, the thread asks for more, but does not wait for it: it leaves the decoder to the cache, gives back all
//! that it holds, and waits for the whole. So a thread that waits holds nothing, and the threads that hold something come to their end.
//! They wait for nothing but servers, and the lock of a stream, whose owner never waits here.
//!
//! Waiting threads are served in the order in which they have come, and no other thread passes them: many small decoders would keep out
//! a large one for ever. A decode that weighs more than all of the limit runs alone. One that is ahead of its reader never waits.
//!
//! The rule is in [`Queue`], which waits for nothing and takes no lock, so that a test can try every order in which threads may ask.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::cache::{Cache, SEGMENT};
use crate::error::{Result, lock, unsupported};
use crate::source::len_u64;

/// Bytes that one decoder may take beyond the budget of the cache.
const BEYOND: u64 = 32 << 20;

/// How long a thread waits before it looks whether somebody still wants what it is to decode.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The limit of a cache.
pub(super) struct Limit {
    /// Held for moments.
    queue: Mutex<Queue>,
    /// Signalled when the queue has moved on.
    moved: Condvar,
}

/// What is taken, and who waits.
#[derive(Debug, Clone, Default)]
#[cfg_attr(test, derive(PartialEq, Eq, Hash))]
struct Queue {
    /// The most bytes that several threads take together.
    most: u64,
    taken: u64,
    /// The tickets of the threads that wait, the next one first.
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

impl Queue {
    /// What a decode of this weight takes.
    fn share(&self, weight: u64) -> u64 {
        weight.min(self.most)
    }

    /// Makes the weight of a thread that has `held` the greater one, `weight`; `false` if that is not free, or another thread waits.
    fn grow(&mut self, held: u64, weight: u64) -> bool {
        // counted in shares, since a weight beyond the limit takes all of it and no more
        let more = self.share(weight).saturating_sub(self.share(held));
        // Not past a thread that waits: many small decoders would keep out a large one for ever.
        more == 0 || (self.waiting.is_empty() && self.take(more))
    }

    /// A ticket for a thread that is to wait, and holds nothing.
    fn enter(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        self.waiting.push_back(ticket);
        ticket
    }

    /// Gives a waiting thread its weight if that is free and it is the next one.
    fn serve(&mut self, ticket: u64, weight: u64) -> bool {
        // first come, first served: else small decoders would pass a large one for ever
        let served = self.waiting.front() == Some(&ticket) && self.take(self.share(weight));
        if served {
            self.leave(ticket);
        }
        served
    }

    /// Takes a thread off the queue.
    fn leave(&mut self, ticket: u64) {
        self.waiting.retain(|&other| other != ticket);
    }

    /// Takes back the weight of a thread.
    fn give_back(&mut self, held: u64) {
        self.taken = self.taken.saturating_sub(self.share(held));
    }

    fn take(&mut self, bytes: u64) -> bool {
        let taken = self.taken.saturating_add(bytes);
        let free = taken <= self.most;
        if free {
            self.taken = taken;
        }
        free
    }
}

impl Limit {
    /// The limit of a cache of `budget` bytes.
    pub(super) fn new(budget: u64) -> Self {
        let queue = Queue {
            most: budget.max(BEYOND),
            ..Queue::default()
        };
        Self {
            queue: Mutex::new(queue),
            moved: Condvar::new(),
        }
    }

    /// Threads that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.queue).waiting.len()
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        lock(&self.queue).taken
    }
}

/// What a thread has taken of the limit, until dropped.
pub(super) struct Permit<'a> {
    cache: &'a Cache,
    /// Bytes taken of the limit; 0 for none.
    weight: u64,
}

impl<'a> Permit<'a> {
    /// Nothing yet.
    pub(super) fn none(cache: &'a Cache) -> Self {
        Self { cache, weight: 0 }
    }

    /// Takes what a decoder of `needed` bytes weighs. If that is not free, gives back what it holds, and waits; `false` if it is not to wait.
    ///
    /// # Errors
    /// [`Unsupported`](crate::error::Error::Unsupported) if that is more memory than there will ever be,
    /// [`Io`](crate::error::Error::Io) if nobody wants the bytes any more.
    pub(super) fn admit(&mut self, needed: u64, waits: bool) -> Result<bool> {
        self.cache.check_wanted()?;
        if self.grow(needed) {
            return Ok(true);
        }
        // A thread that waits holds nothing: two would wait for what the other has.
        self.give_back();
        if !waits {
            return Ok(false);
        }
        check(needed, self.cache.budget())?;
        let limit = &self.cache.limit;
        let weight = weight_of(needed);
        let mut queue = lock(&limit.queue);
        let ticket = queue.enter();
        while !queue.serve(ticket, weight) {
            let woken = limit.moved.wait_timeout(queue, LOOK_EVERY);
            (queue, _) = woken.unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = self.cache.check_wanted() {
                queue.leave(ticket);
                limit.moved.notify_all();
                return Err(error);
            }
        }
        // The next one that waits may have come to the front.
        limit.moved.notify_all();
        drop(queue);
        self.weight = weight;
        Ok(true)
    }

    /// Takes more, if the decoder needs more now; `false` if that is not free. It does not wait.
    pub(super) fn grow(&mut self, needed: u64) -> bool {
        let weight = weight_of(needed);
        // a decoder that needs less than before gives nothing back before its end
        if weight <= self.weight {
            return true;
        }
        // What can never fit is refused by `admit`, which says why.
        let is_possible = check(needed, self.cache.budget()).is_ok();
        let free = is_possible && lock(&self.cache.limit.queue).grow(self.weight, weight);
        if free {
            self.weight = weight;
        }
        free
    }

    /// Gives back all.
    pub(super) fn give_back(&mut self) {
        if self.weight > 0 {
            let limit = &self.cache.limit;
            lock(&limit.queue).give_back(std::mem::take(&mut self.weight));
            limit.moved.notify_all();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// What a decode weighs whose decoder needs so many bytes.
fn weight_of(needed: u64) -> u64 {
    needed.saturating_add(len_u64(SEGMENT))
}

/// Checks that a decoder of `needed` bytes can ever run in a cache of `budget` bytes.
pub(super) fn check(needed: u64, budget: u64) -> Result<()> {
    if needed <= budget.saturating_add(BEYOND) {
        return Ok(());
    }
    let cache = needed.saturating_sub(BEYOND).div_ceil(1 << 20);
    let why = format!(
        "decoding takes {needed} bytes of memory; mount the file with -o cache={cache}M or more"
    );
    Err(unsupported(why))
}

#[cfg(test)]
mod tests;
