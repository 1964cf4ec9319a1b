//! Decoders on their way, as others see them: whoever wants the same segment waits for them.

use std::ptr;
use std::sync::{Arc, OnceLock};

use super::{Demand, Shared, State, u64_of};
use crate::codec::cache::For;
use crate::codec::work::{Claim, Pass};
use crate::codec::{Cursor, Room, SEGMENT};
use crate::error::Result;

/// The memory of a decoder on its way: leave to take it, and room for it in the cache.
pub(super) struct Allotment<'a> {
    shared: &'a Shared,
    claim: Claim<'a>,
    room: Option<Room>,
    /// Bytes that there is room for.
    bytes: u64,
}

impl<'a> Allotment<'a> {
    /// None yet.
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            claim: shared.cache.work().claim(),
            room: None,
            bytes: 0,
        }
    }

    /// Waits for leave to go on with `need` bytes; `None` if there is no memory for that at once.
    pub(super) fn proceed(
        &mut self,
        need: u64,
        demand: Demand,
        whose: For,
    ) -> Result<Option<Pass<'a>>> {
        let work = self.shared.cache.work();
        let pass = work.proceed(&mut self.claim, demand.urgent, need)?;
        if pass.is_some() && need > self.bytes {
            self.make_no_room();
            self.room = Some(self.shared.cache.room(need, whose));
            self.bytes = need;
        }
        Ok(pass)
    }

    /// Waits for `need` bytes, with none in hand.
    pub(super) fn wait_for(&mut self, need: u64, demand: Demand) -> Result<()> {
        self.make_no_room();
        let work = self.shared.cache.work();
        work.wait_for(&mut self.claim, demand.urgent, need)
    }

    /// Needs no room in the cache any more, because the decoder itself is going to be there.
    pub(super) fn make_no_room(&mut self) {
        (self.room, self.bytes) = (None, 0);
    }

    /// Gives all back, as who waits for somebody else must.
    pub(super) fn give_back(&mut self) {
        self.make_no_room();
        self.claim = self.shared.cache.work().claim();
    }
}

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

    /// Whether it goes on.
    pub(super) fn is_under_way(&self, state: &State) -> bool {
        state
            .flights
            .iter()
            .any(|other| ptr::eq(&raw const **other, self))
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

/// A flight that others can see, until dropped; if it has not arrived by then, they see to the segment themselves.
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
        let mut state = self.shared.lock();
        state
            .flights
            .retain(|other| !Arc::ptr_eq(other, &self.flight));
        drop(state);
        self.shared.moved.notify_all();
    }
}
