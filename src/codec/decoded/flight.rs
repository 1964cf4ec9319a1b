//! Decoders on their way, as others see them: whoever wants the same segment waits for them.

use std::sync::{Arc, OnceLock};

use super::{Shared, State, misplaced, u64_of};
use crate::codec::{Cursor, SEGMENT};
use crate::error::Result;

/// A decoder on its way.
pub(super) struct Flight {
    /// The segment it is decoding; `None` while it is being opened.
    pub(super) segment: Option<u64>,
    /// Its position.
    pub(super) from: u64,
    /// How far what it does now will reach.
    pub(super) ahead: u64,
    /// Whether it began with an index of another mount.
    pub(super) imported: bool,
    pub(super) outcome: OnceLock<Result<Arc<Vec<u8>>>>,
}

impl Flight {
    /// The flight of a decoder to the end of the segment that it stands in or before.
    pub(super) fn of(cursor: &dyn Cursor, imported: bool) -> Self {
        let from = cursor.position();
        Self {
            segment: Some(from.div_ceil(u64_of(SEGMENT))),
            from,
            ahead: cursor.ahead(),
            imported,
            outcome: OnceLock::new(),
        }
    }

    /// Whether it began with an index that has turned out to be wrong: its error says nothing of the block.
    pub(super) fn was_misled(&self, state: &State) -> bool {
        self.imported && !state.learnt.imported
    }

    pub(super) fn opening(from: u64, imported: bool) -> Self {
        Self {
            segment: None,
            from,
            ahead: from,
            imported,
            outcome: OnceLock::new(),
        }
    }
}

/// A flight that others can see, until dropped; whatever happens, they do not wait for ever.
pub(super) struct Trip<'a> {
    shared: &'a Shared,
    pub(super) flight: Arc<Flight>,
}

impl<'a> Trip<'a> {
    pub(super) fn new(shared: &'a Shared, state: &mut State, flight: Flight) -> Self {
        let flight = Arc::new(flight);
        state.flights.push(Arc::clone(&flight));
        Self { shared, flight }
    }

    /// Sets what those who wait for this segment get. They wake when the trip goes on or ends.
    pub(super) fn arrive(&self, outcome: Result<Arc<Vec<u8>>>) {
        // It was not set before: each flight arrives once.
        let _ = self.flight.outcome.set(outcome);
    }

    /// Goes on to the next segment. Whoever waits for the one before has his outcome already.
    pub(super) fn move_on(&mut self, segment: u64, cursor: &dyn Cursor) {
        if self.flight.segment == Some(segment) {
            return;
        }
        let flight = Arc::new(Flight::of(cursor, self.flight.imported));
        let mut state = self.shared.lock();
        state
            .flights
            .retain(|other| !Arc::ptr_eq(other, &self.flight));
        state.flights.push(Arc::clone(&flight));
        self.flight = flight;
        drop(state);
        self.shared.moved.notify_all();
    }
}

impl Drop for Trip<'_> {
    fn drop(&mut self) {
        let _ = self.flight.outcome.set(Err(misplaced(self.flight.from)));
        let mut state = self.shared.lock();
        state
            .flights
            .retain(|other| !Arc::ptr_eq(other, &self.flight));
        drop(state);
        self.shared.moved.notify_all();
    }
}
