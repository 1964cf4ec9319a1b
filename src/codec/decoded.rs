//! The decoded bytes of a block as a [`Source`]: decodes only what is read, once, whoever reads.
//!
//! The bytes are seen as segments of fixed length. A segment that is wanted is in the cache, or somebody decodes it and one
//! waits for him, or one decodes it oneself: with the decoder parked nearest before it, or a new one at the stream's last
//! entry before it. Somebody whose decoder is on its way to the segment is waited for, too. What a decoder passes on its way
//! goes to the cache, and where it stops it is parked, so that reading on never starts over.
//!
//! A failed decode is told to all who wait for it. If the payload is damaged the place is remembered: the segments before it
//! stay readable, and so do those behind it that can be reached by another entry. A segment is had whole or not at all.

mod ahead;
mod flight;
mod learnt;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use self::flight::{Allotment, Flight, Trip};
use self::learnt::Learnt;
use super::cache::{Buffer, For, SEGMENT};
use super::inflate::crc32;
use super::kept::Slot;
use super::readers::Readers;
use super::{Cache, Cursor, Stream, misplaced};
use crate::error::{Error, Place, Result};
use crate::source::{Borrower, Loan, Source, checked_end, len_u64};

/// Damages that are remembered for a block.
const FAILURES: usize = 64;

/// The least length in which bytes that nobody wants are decoded, on the way from an entry to a segment.
const SKIP: usize = 64 << 10;

/// A decoded block.
pub struct Decoded {
    shared: Arc<Shared>,
}

/// What the threads that decode ahead see of a block, too.
struct Shared {
    /// The stream as it was opened.
    first: Arc<dyn Stream>,
    /// The same with entries of another mount, while they are believed. Guards itself only; taken last.
    imported: RwLock<Option<Arc<dyn Stream>>>,
    /// Where the entries are kept, if they are.
    slot: Option<Slot>,
    /// Set when entries have been taken from there, if there were some.
    recalled: OnceLock<()>,
    this: Weak<Self>,
    len: u64,
    cache: Arc<Cache>,
    /// This block's key in the cache.
    key: u64,
    /// Never held while something decodes. Taken before the locks of the cache and of the stream.
    state: Mutex<State>,
    /// Signalled when a flight ends or moves on to another segment.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    flights: Vec<Arc<Flight>>,
    failures: Vec<Failure>,
    readers: Readers,
    /// Which of the jobs that decode ahead are queued or running.
    ahead_jobs: [bool; ahead::JOBS],
    /// Whether a job tidies the stream, or is going to.
    tidying: bool,
    learnt: Learnt,
}

/// A damage: no decoder gets from `from` to the end of `segment`.
struct Failure {
    segment: u64,
    from: u64,
    error: Error,
}

/// Why a segment is decoded.
#[derive(Clone, Copy)]
struct Demand {
    /// Somebody waits for it.
    urgent: bool,
    /// It will be asked for again, by somebody who reads the block sequentially.
    unread: bool,
    /// The block is being read sequentially.
    streaming: bool,
}

impl Demand {
    /// Nobody waits for it yet, but a sequential reader will.
    const AHEAD: Self = Self {
        urgent: false,
        unread: true,
        streaming: true,
    };
}

/// What became of a decode.
enum Outcome {
    /// Here it is.
    Done(Arc<Vec<u8>>),
    /// So much memory is needed, which can't be had at once.
    Short(u64),
}

/// What to do to get a segment.
enum Way {
    /// Wait until some flight has moved.
    Wait,
    /// Go on with this decoder, or open one.
    Fly(Option<Box<dyn Cursor>>),
}

impl Decoded {
    /// The first `len` bytes of `stream`, kept in `cache`. Decodes nothing yet.
    #[must_use]
    pub fn new(stream: Arc<dyn Stream>, len: u64, cache: &Arc<Cache>) -> Self {
        Self::indexed(stream, len, cache, None)
    }

    /// As [`Decoded::new`]; what is learnt of the stream's entries is kept in `slot`, and taken from there at the first read.
    #[must_use]
    pub fn indexed(
        stream: Arc<dyn Stream>,
        len: u64,
        cache: &Arc<Cache>,
        slot: Option<Slot>,
    ) -> Self {
        Self {
            shared: Arc::new_cyclic(|this| Shared {
                slot: Shared::worth_keeping(slot, stream.as_ref(), len),
                first: stream,
                imported: RwLock::default(),
                recalled: OnceLock::new(),
                this: this.clone(),
                len,
                cache: Arc::clone(cache),
                key: cache.new_key(),
                state: Mutex::default(),
                moved: Condvar::new(),
            }),
        }
    }

    /// The first damage of those that reads have met and that are remembered.
    #[must_use]
    pub fn damage(&self) -> Option<Error> {
        let state = self.shared.lock();
        let first = state.failures.iter().min_by_key(|failure| failure.segment);
        first.map(|failure| failure.error.clone())
    }

    /// Has what is learnt kept anew, after the file has been changed around the block.
    pub fn keep_anew(&self) {
        self.shared.keep_anew();
    }

    /// Takes note of a read, and has decoded ahead what it leads to; tells whether it is sequential.
    fn note(&self, first: u64, last: u64) -> bool {
        self.shared.recall();
        let mut state = self.shared.lock();
        self.shared.keep_learnt(&mut state);
        let streaming = state.readers.note(first, last);
        if streaming {
            self.shared.run_ahead(&mut state);
        }
        streaming
    }
}

impl Source for Decoded {
    fn len(&self) -> u64 {
        self.shared.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = checked_end(offset, buf.len(), self.shared.len)?;
        if buf.is_empty() {
            return Ok(());
        }
        let streaming = self.note(segment_of(offset), segment_of(end.saturating_sub(1)));
        let demand = Demand {
            urgent: true,
            unread: false,
            streaming,
        };
        let mut offset = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let index = segment_of(offset);
            let within = within_segment(offset);
            let len = rest.len().min(SEGMENT.saturating_sub(within));
            let (part, behind) = rest.split_at_mut(len);
            let segment = self.shared.segment(index, demand)?;
            let found = segment
                .get(within..within.saturating_add(len))
                .ok_or_else(|| misplaced(start_of(index)))?;
            part.copy_from_slice(found);
            rest = behind;
            offset = offset.saturating_add(u64_of(len));
        }
        Ok(())
    }

    /// Decodes the bytes if need be: a segment is lent rather than copied.
    fn lend(&self, offset: u64, len: usize, _: Borrower) -> Option<Loan> {
        let end = checked_end(offset, len, self.shared.len).ok()?;
        let index = segment_of(offset);
        if len == 0 || segment_of(end.saturating_sub(1)) != index {
            return None;
        }
        let demand = Demand {
            urgent: true,
            unread: false,
            streaming: self.note(index, index),
        };
        let segment = self.shared.segment(index, demand).ok()?;
        let within = within_segment(offset);
        let range = within..within.checked_add(len)?;
        segment.get(range.clone())?;
        Some(Loan::Shared(segment, range))
    }
}

impl Shared {
    /// The bytes of a segment; fewer than it has if it is damaged.
    fn segment(&self, index: u64, demand: Demand) -> Result<Arc<Vec<u8>>> {
        self.segment_with(self.lock(), index, demand)
    }

    /// The same, begun in a state that the caller has looked at.
    fn segment_with<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: u64,
        demand: Demand,
    ) -> Result<Arc<Vec<u8>>> {
        let mut memory = Allotment::new(self);
        loop {
            if let Some(found) = self.cache.get(self.key, index) {
                return Ok(found);
            }
            if let Some(error) = self.failure(&state, index) {
                return Err(error);
            }
            let same = |flight: &&Arc<Flight>| flight.segment == Some(index);
            if let Some(flight) = state.flights.iter().find(same).map(Arc::clone) {
                memory.give_back();
                while flight.outcome.get().is_none() && flight.is_under_way(&state) {
                    state = self.wait(state);
                }
                let Some(outcome) = flight.outcome.get().cloned() else {
                    continue;
                };
                if outcome.is_err() && flight.was_misled(&state) {
                    continue;
                }
                if demand.urgent {
                    self.cache.was_read(self.key, index);
                }
                return outcome;
            }
            match self.way(&state, index) {
                Way::Wait => {
                    memory.give_back();
                    state = self.wait(state);
                }
                Way::Fly(cursor) => {
                    let imported = state.learnt.imported;
                    let flight = match &cursor {
                        Some(cursor) => Flight::of(cursor.as_ref(), imported),
                        None => Flight::opening(self.stream().entry(start_of(index)), imported),
                    };
                    let trip = Trip::new(self, &mut state, flight);
                    let flight = Arc::clone(&trip.flight);
                    drop(state);
                    match self.fly(trip, cursor, index, demand, &mut memory) {
                        Ok(Outcome::Done(bytes)) => return Ok(bytes),
                        Ok(Outcome::Short(_)) if !demand.urgent => return Err(no_memory()),
                        Ok(Outcome::Short(need)) => {
                            memory.wait_for(need, demand)?;
                            state = self.lock();
                        }
                        Err(error) => {
                            state = self.lock();
                            if !flight.was_misled(&state) {
                                return Err(error);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The cheapest way to a segment that is neither cached nor being decoded.
    fn way(&self, state: &State, index: u64) -> Way {
        let start = start_of(index);
        let entry = self.stream().entry(start);
        let leads = |from: u64, ahead: u64| from <= start && (from >= entry || start < ahead);
        let nearest = state
            .flights
            .iter()
            .filter(|flight| leads(flight.from, flight.ahead))
            .map(|flight| flight.from)
            .max();
        let parked = self.cache.unpark(self.key, start, |cursor| {
            leads(cursor.position(), cursor.ready())
                && nearest.is_none_or(|flying| cursor.position() > flying)
        });
        match (parked, nearest) {
            (None, Some(_)) => Way::Wait,
            (cursor, _) => Way::Fly(cursor),
        }
    }

    /// Decodes up to segment `index`, all in between too, and parks the decoder there: or before, if it is short of memory.
    fn fly<'a>(
        &'a self,
        mut trip: Trip<'_>,
        cursor: Option<Box<dyn Cursor>>,
        index: u64,
        demand: Demand,
        memory: &mut Allotment<'a>,
    ) -> Result<Outcome> {
        let start = start_of(index);
        let imported = trip.flight.imported;
        let mut cursor = match cursor {
            Some(cursor) => cursor,
            None => self.open(start, demand, memory).inspect_err(|error| {
                self.remember(index, self.stream().entry(start), error, imported);
            })?,
        };
        loop {
            let from = cursor.position();
            let segment = from.div_ceil(u64_of(SEGMENT));
            if segment > index {
                return Err(misplaced(start));
            }
            trip.move_on(segment, cursor.as_ref());
            let demand = Demand {
                streaming: demand.streaming || segment < index,
                ..demand
            };
            match self.step(cursor.as_mut(), segment, demand, imported, memory) {
                Ok(Outcome::Done(bytes)) => {
                    trip.arrive(Ok(Arc::clone(&bytes)));
                    if segment == index {
                        self.land(trip, cursor, segment, demand, memory);
                        return Ok(Outcome::Done(bytes));
                    }
                }
                Ok(Outcome::Short(need)) => {
                    if cursor.position() <= start_of(segment) {
                        self.park(&trip, cursor, demand, memory);
                    }
                    return Ok(Outcome::Short(need));
                }
                Err(error) => {
                    drop(cursor);
                    self.remember(segment, from, &error, imported);
                    trip.arrive(Err(error.clone()));
                    return Err(error);
                }
            }
        }
    }

    /// Parks a decoder, after keeping what it has decoded beyond `segment` already, if a sequential reader will want it.
    fn land<'a>(
        &'a self,
        mut trip: Trip<'_>,
        mut cursor: Box<dyn Cursor>,
        segment: u64,
        demand: Demand,
        memory: &mut Allotment<'a>,
    ) {
        let demand = Demand {
            unread: true,
            ..demand
        };
        let imported = trip.flight.imported;
        let mut next = segment.saturating_add(1);
        while demand.streaming
            && start_of(next) < self.len
            && cursor.ready() >= start_of(next.saturating_add(1)).min(self.len)
            && self.cache.has_room_ahead()
            && !self.cache.contains(self.key, next)
        {
            trip.move_on(next, cursor.as_ref());
            match self.step(cursor.as_mut(), next, demand, imported, memory) {
                Ok(Outcome::Done(bytes)) => trip.arrive(Ok(bytes)),
                Ok(Outcome::Short(_)) if cursor.position() > start_of(next) => return,
                Ok(Outcome::Short(_)) => break,
                Err(error) => {
                    if imported {
                        self.remember(next, start_of(next), &error, imported);
                    }
                    trip.arrive(Err(error));
                    return;
                }
            }
            next = next.saturating_add(1);
        }
        self.park(&trip, cursor, demand, memory);
    }

    /// Leaves a decoder where it stands, unless it began with a wrong index.
    fn park(
        &self,
        trip: &Trip<'_>,
        cursor: Box<dyn Cursor>,
        demand: Demand,
        memory: &mut Allotment<'_>,
    ) {
        memory.make_no_room();
        let state = self.lock();
        if !trip.flight.was_misled(&state) {
            self.cache.park(cursor, self.whose(demand));
        }
    }

    fn open<'a>(
        &'a self,
        start: u64,
        demand: Demand,
        memory: &mut Allotment<'a>,
    ) -> Result<Box<dyn Cursor>> {
        let _pass = memory.proceed(0, demand, self.whose(demand))?;
        self.stream().cursor(start)
    }

    /// Decodes one segment with a decoder that stands at most one segment before it.
    fn step<'a>(
        &'a self,
        cursor: &mut dyn Cursor,
        segment: u64,
        demand: Demand,
        imported: bool,
        memory: &mut Allotment<'a>,
    ) -> Result<Outcome> {
        let whose = self.whose(demand);
        let mut buffer = self.cache.buffer(self.segment_len(segment), whose);
        let mut filled = 0;
        while filled < buffer.len() {
            let need = cursor.held().saturating_add(cursor.scratch());
            let Some(_pass) = memory.proceed(need, demand, whose)? else {
                return Ok(Outcome::Short(need));
            };
            filled = fill(cursor, start_of(segment), &mut buffer, filled)?;
        }
        self.keep(segment, buffer, demand, imported)
            .map(Outcome::Done)
    }

    fn keep(
        &self,
        segment: u64,
        buffer: Buffer<'_>,
        demand: Demand,
        imported: bool,
    ) -> Result<Arc<Vec<u8>>> {
        let sum = self.slot.as_ref().map(|_| crc32(0, &buffer));
        let mut state = self.lock();
        if let Some(sum) = sum {
            self.learn(&mut state, segment, sum, imported)?;
        }
        let bytes = self.cache.insert(self.key, segment, buffer, demand.unread);
        self.recount(&state, self.whose(demand));
        Ok(bytes)
    }

    /// Remembers a damage, and only that: what the medium refuses now it may give later.
    ///
    /// With an index of another mount it is no damage yet, but the end of that index.
    fn remember(&self, segment: u64, from: u64, error: &Error, imported: bool) {
        if !matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. }) {
            return;
        }
        let mut state = self.lock();
        if imported {
            self.unlearn(&mut state);
            return;
        }
        state.failures.retain(|failure| failure.segment != segment);
        if state.failures.len() >= FAILURES {
            state.failures.remove(0);
        }
        state.failures.push(Failure {
            segment,
            from,
            error: error.clone(),
        });
    }

    /// The damage that is known to stand before any byte of a segment.
    fn failure(&self, state: &State, index: u64) -> Option<Error> {
        let mut failures = state.failures.iter();
        failures
            .find(|failure| {
                failure.segment == index
                    || (failure.segment < index
                        && self.stream().entry(start_of(index)) <= failure.from)
            })
            .map(|failure| failure.error.clone())
    }

    /// Length of a segment.
    fn segment_len(&self, index: u64) -> usize {
        usize::try_from(self.len.saturating_sub(start_of(index)))
            .map_or(SEGMENT, |len| len.min(SEGMENT))
    }

    /// Counts what the stream holds now.
    fn recount(&self, state: &State, whose: For) {
        self.cache
            .recount(&self.stream(), state.learnt.held(), whose);
    }

    fn whose(&self, demand: Demand) -> For {
        For {
            key: self.key,
            streaming: demand.streaming,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.moved
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cache.forget(self.key);
    }
}

/// Decodes up to `start`, for nobody, and from there on into `buf`, which has been filled up to `filled`, as far as the memory
/// that was asked for allows; gives how far.
fn fill(cursor: &mut dyn Cursor, start: u64, buf: &mut [u8], filled: usize) -> Result<usize> {
    let mut left = start.saturating_sub(cursor.position());
    if left > 0 {
        let mut nowhere = vec![0; SKIP];
        while left > 0 {
            let len = usize::try_from(left).map_or(SKIP, |left| left.min(SKIP));
            let given = cursor.read_within(nowhere.get_mut(..len).unwrap_or_default())?;
            if given < len {
                return Ok(filled);
            }
            left = left.saturating_sub(u64_of(len));
        }
    }
    if cursor.position() != start.saturating_add(u64_of(filled)) {
        return Err(misplaced(start));
    }
    let given = cursor.read_within(buf.get_mut(filled..).unwrap_or_default())?;
    Ok(filled.saturating_add(given))
}

fn no_memory() -> Error {
    Error::unsupported(Place::File, "no memory to decode ahead")
}

fn segment_of(offset: u64) -> u64 {
    offset.checked_div(u64_of(SEGMENT)).unwrap_or(0)
}

fn start_of(index: u64) -> u64 {
    index.saturating_mul(u64_of(SEGMENT))
}

fn within_segment(offset: u64) -> usize {
    usize::try_from(offset.checked_rem(u64_of(SEGMENT)).unwrap_or(0)).unwrap_or(0)
}

fn u64_of(len: usize) -> u64 {
    len_u64(len)
}

#[cfg(test)]
mod tests;
