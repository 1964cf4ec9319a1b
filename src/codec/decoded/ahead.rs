//! Decoding ahead of sequential readers, and tidying the stream behind them, on the threads of a [`Pool`](crate::codec::pool::Pool).
//!
//! Bytes are decoded before a reader asks for them in two ways: by the jobs here, which put them into the cache, and inside a decoder that
//! decodes several pieces at once ([`Cursor::will_decode_to`](crate::codec::Cursor::will_decode_to)). The cache bounds the former for
//! all blocks together (`Cache::missing`), and `ahead::MAX_AHEAD` for one reader; the latter is the decoder's memory, which the codec bounds.

use super::{Decoded, DecodedState, Demand, MutexGuard, segment_from, start_of};
use crate::codec::cores::caught;
use crate::error::lock;

/// Threads that may decode ahead in one block, if its stream can use several.
const JOBS: usize = 2;

/// In a smaller cache, what two decoders hold would push out the segments that are about to be read.
const ROOM_FOR_JOBS: u64 = 64 << 20;

impl Decoded {
    /// Queues jobs that decode the segments sequential readers will want next, or tidy the stream.
    pub(super) fn run_ahead(&self, state: &mut DecodedState) {
        while state.ahead < self.most_jobs()
            && ((state.ahead == 0 && state.is_untidy)
                || self.next_ahead(state, state.ahead).is_some())
            && self.queue()
        {
            state.ahead = state.ahead.saturating_add(1);
        }
    }

    /// How many threads decode ahead in this block.
    fn most_jobs(&self) -> usize {
        let several = self.stream.parallel() && self.cache.budget() >= ROOM_FOR_JOBS;
        if several { JOBS } else { 1 }
    }

    /// Queues a job; `false` if too many wait. It holds no reference to the block, which may be dropped before its turn.
    fn queue(&self) -> bool {
        let block = self.this.clone();
        let job = move || {
            if let Some(block) = block.upgrade() {
                block.decode_ahead();
            }
        };
        // reading ahead is a favour: a reader never waits for room in the queue
        self.cache.ahead.run(Box::new(job)).is_ok()
    }

    /// Decodes what sequential readers want next. If that is nothing now, does some of the work that the stream has put off. Goes on until
    /// there is neither, or another job waits for the thread.
    fn decode_ahead(&self) {
        let mut state = lock(&self.state);
        loop {
            match self.next_ahead(&state, state.ahead.saturating_sub(1)) {
                Some(next) if state.damage_of(&*self.stream, next).is_some() => {
                    // The reader gets the error when it reads the segment.
                    state.readers.discourage();
                }
                Some(next) => match self.way(&mut state, next) {
                    // When that goes on, the reader may have passed by: another segment is the next one then.
                    Err(_) => state = self.wait(state),
                    Ok(decoder) => {
                        drop(state);
                        let outcome = decoder.run(next, Demand::Ahead);
                        // a reader that is faster than this leaves no other time for it
                        state = self.tidy();
                        if outcome.is_err() {
                            state.readers.discourage();
                        }
                    }
                },
                None if state.is_untidy => {
                    drop(state);
                    state = self.tidy();
                }
                None => break,
            }
            // To the end of the queue, so that blocks read at the same time have the threads by turns. `ahead` counts it still.
            if self.cache.ahead.is_asked_for() && self.queue() {
                return;
            }
        }
        state.ahead = state.ahead.saturating_sub(1);
    }

    /// Does a piece of the work that the stream has put off, if there is any and decoded bytes are still wanted. The state tells of more.
    fn tidy(&self) -> MutexGuard<'_, DecodedState> {
        // a panic costs that piece: the job has to end as it began
        let tidied = caught(|| self.cache.check_wanted().map(|()| self.stream.tidy()));
        let is_less = tidied.unwrap_or(false);
        if is_less {
            self.cache.recount(self.key, &self.stream, true);
        }
        let mut state = lock(&self.state);
        state.is_untidy = is_less;
        state
    }

    /// The next segment that a job decodes ahead, beside so many `others`: one that no running decoder will pass, if several jobs may
    /// run. Else one job waits for that decoder, to go on from where it stops.
    fn next_ahead(&self, state: &DecodedState, others: usize) -> Option<u64> {
        let wanted = state.readers.wanted(segment_from(self.len));
        let idle = wanted.filter(|&index| state.run_of(index).is_none());
        let missing = self.cache.missing(self.key, idle);
        // A second decoder is of use only where the first will not come by.
        let is_free = |index: &&u64| {
            let start = start_of(**index);
            let run = state.nearest_run(start, self.stream.entry(start));
            self.most_jobs() > 1 && run.is_none()
        };
        let free = missing.iter().find(is_free);
        // One job waits for a decoder that comes by: two would wake for one segment.
        let first = missing.first().filter(|_| others == 0);
        free.or(first).copied()
    }
}
