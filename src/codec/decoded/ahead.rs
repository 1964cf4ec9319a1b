//! Decoding ahead of sequential readers, and tidying the stream behind them, on the threads of the
//! [`Jobs`](super::super::jobs::Jobs).
//!
//! Bytes are decoded before a reader asks for them in three ways: by the jobs here; when a reader's own decoder has segments decoded
//! that only need to be copied (`Decoder::copy_ready`); and inside a decoder that decodes several pieces at once
//! ([`Cursor::will_decode_to`](crate::codec::Cursor::will_decode_to)). The first two go to the cache, which bounds them for all blocks
//! together (`Cache::has_room_ahead`); the jobs of one reader have a bound of their own (`sequential::MAX_AHEAD`). The third is the
//! decoder's memory, which the codec bounds.

use super::{Decoded, DecodedState, Demand, segments};
use crate::codec::grant::Grant;

/// Threads that may decode ahead in one block, if its stream can use several.
pub(super) const JOBS: usize = 2;

/// In a smaller cache, what two decoders hold would push out the segments that are about to be read.
const ROOM_FOR_JOBS: u64 = 64 << 20;

impl Decoded {
    /// Queues jobs that decode the segments sequential readers will want next.
    pub(super) fn run_ahead(&self, state: &mut DecodedState) {
        for job in 0..self.jobs() {
            let idle = state.ahead_jobs.get(job) == Some(&false);
            if idle && self.next_ahead(state, job).is_some() {
                self.queue_ahead(state, job);
            }
        }
    }

    /// How many threads decode ahead in this block.
    fn jobs(&self) -> usize {
        let several = self.stream.parallel() && self.cache.budget() >= ROOM_FOR_JOBS;
        if several { JOBS } else { 1 }
    }

    /// Queues a job that decodes ahead. The job holds no reference to the block, which may be dropped before its turn.
    fn queue_ahead(&self, state: &mut DecodedState, job: usize) {
        let block = self.this.clone();
        let queued = self.cache.jobs().later(move || {
            if let Some(block) = block.upgrade() {
                block.decode_ahead(job);
            }
        });
        if let Some(running) = state.ahead_jobs.get_mut(job) {
            *running = queued;
        }
    }

    /// Decodes what sequential readers want next until there is nothing more, an error is met, or another job waits for the thread.
    fn decode_ahead(&self, job: usize) {
        let mut state = self.lock();
        while let Some(next) = self.next_ahead(&state, job) {
            if self.must_wait(&state, next) {
                state = self.wait(state);
                continue;
            }
            let outcome = self.segment(state, next, Demand::Background(self.key));
            state = self.lock();
            if outcome.is_err() {
                // The reader gets the error when it reads the segment.
                state.readers.discourage();
            }
            if self.cache.jobs().is_asked_for() {
                return self.queue_ahead(&mut state, job);
            }
        }
        if let Some(running) = state.ahead_jobs.get_mut(job) {
            *running = false;
        }
    }

    /// The next segment that this job decodes ahead: one that no running decoder will pass, if several jobs may run. Else the
    /// first job waits for that decoder, to go on from where it stops.
    fn next_ahead(&self, state: &DecodedState, job: usize) -> Option<u64> {
        if !self.cache.has_room_ahead() {
            return None;
        }
        let missing = || {
            let wanted = state.readers.wanted(segments(self.len));
            wanted
                .filter(|&index| !self.cache.contains(self.key, index))
                .filter(|&index| !state.decodes.iter().any(|f| f.segment == Some(index)))
        };
        let free = |index: &u64| self.jobs() > 1 && !self.must_wait(state, *index);
        missing()
            .find(free)
            .or_else(|| missing().next().filter(|_| job == 0))
    }

    /// Queues a job that tidies the stream, if there is something to do.
    pub(super) fn tidy_later(&self, state: &mut DecodedState) {
        if !state.tidying && self.stream.is_untidy() {
            let block = self.this.clone();
            state.tidying = self.cache.jobs().later(move || {
                if let Some(block) = block.upgrade() {
                    block.tidy();
                }
            });
        }
    }

    /// Does the work that the stream has put off.
    fn tidy(&self) {
        let background = Demand::Background(self.key);
        let mut grant = Grant::new(&self.cache);
        while self.stream.is_untidy() && grant.admit(0, background).is_ok() {
            self.stream.tidy();
            grant.pause();
        }
        self.cache.recount(&self.stream, background);
        self.lock().tidying = false;
    }
}
