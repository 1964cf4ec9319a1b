//! Decoding ahead of sequential readers, and tidying up behind them, on the threads of [`Work`](super::super::work::Work).

use std::sync::Arc;

use super::{Demand, Shared, State, start_of};

/// Threads that may decode ahead in one block, if its stream can use several.
pub(super) const JOBS: usize = 2;

impl Shared {
    /// Has the segments decoded that sequential readers are going to want, unless that is under way.
    pub(super) fn run_ahead(self: &Arc<Self>, state: &mut State) {
        let jobs = if self.stream().parallel() { JOBS } else { 1 };
        for job in 0..jobs {
            let idle = state.ahead_jobs.get(job) == Some(&false);
            if idle && self.next_ahead(state, job).is_some() {
                self.queue_ahead(state, job);
            }
        }
        if !state.tidying && self.stream().is_untidy() {
            let shared = Arc::downgrade(self);
            state.tidying = self.cache.work().later(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.tidy();
                }
            }));
        }
    }

    fn queue_ahead(self: &Arc<Self>, state: &mut State, job: usize) {
        let shared = Arc::downgrade(self);
        let queued = self.cache.work().later(Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.decode_ahead(job);
            }
        }));
        if let Some(running) = state.ahead_jobs.get_mut(job) {
            *running = queued;
        }
    }

    fn decode_ahead(self: &Arc<Self>, job: usize) {
        let mut state = self.lock();
        while let Some(next) = self.next_ahead(&state, job) {
            if self.must_wait(&state, next) {
                state = self.wait(state);
                continue;
            }
            let outcome = self.segment_with(state, next, Demand::AHEAD);
            state = self.lock();
            if outcome.is_err() {
                // The reader will find out himself when he gets there.
                state.readers.discourage();
            }
            if self.cache.work().is_asked_for() {
                return self.queue_ahead(&mut state, job);
            }
        }
        if let Some(running) = state.ahead_jobs.get_mut(job) {
            *running = false;
        }
    }

    /// The next segment to decode ahead: one that no decoder under way is going to get to. If there is none the first job waits
    /// for such a decoder, to go on from there.
    fn next_ahead(&self, state: &State, job: usize) -> Option<u64> {
        if !self.cache.has_room_ahead() {
            return None;
        }
        let missing = || {
            let wanted = state.readers.wanted();
            wanted
                .take_while(|&index| start_of(index) < self.len)
                .filter(|&index| !self.cache.contains(self.key, index))
                .filter(|&index| !state.flights.iter().any(|f| f.segment == Some(index)))
        };
        let free = missing().find(|&index| !self.must_wait(state, index));
        free.or_else(|| missing().next().filter(|_| job == 0))
    }

    fn must_wait(&self, state: &State, index: u64) -> bool {
        let start = start_of(index);
        let entry = self.stream().entry(start);
        state
            .flights
            .iter()
            .any(|flight| flight.from <= start && (flight.from >= entry || start < flight.ahead))
    }

    /// Does what the stream has put off.
    pub(super) fn tidy(&self) {
        while self.stream().is_untidy()
            && let Ok(_pass) = self.cache.work().enter(false, 0)
        {
            self.stream().tidy();
        }
        let mut state = self.lock();
        state.tidying = false;
        self.recount(&state, self.whose(Demand::AHEAD));
    }
}
