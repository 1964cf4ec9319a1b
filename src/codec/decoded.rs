//! The decoded bytes of a block as a [`Source`]: decodes only what is read, and once for all readers.
//!
//! The bytes are cut into segments of fixed length. A thread that wants a segment takes it from the cache. If another thread
//! is decoding it, or runs a decoder that will pass it, the thread waits for that one. Else it decodes the segment itself, with
//! the decoder parked nearest before it, or with a new one at the stream's last entry before it. All segments on the way go to
//! the cache, and the decoder is parked where it stops, so that reading on never starts over.
//!
//! All threads that wait for a decode get its error. If the payload is damaged the place is remembered: the segments before it
//! stay readable, and so do those behind it that another entry leads to. A segment is returned whole or not at all.

mod ahead;
mod decode;
mod segment_sums;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use self::decode::{Decode, DecodeGuard};
use self::segment_sums::SegmentSums;
use super::cache::{Demand, SEGMENT};
use super::deflate::crc32;
use super::grant::Grant;
use super::index_store::IndexSlot;
use super::sequential::Readers;
use super::{Cache, CountedBuf, Cursor, Stream, misplaced};
use crate::error::{Error, Place, Result};
use crate::source::{Borrower, Loan, PooledBuf, Source, at_most, checked_end, len_u64};

/// Damages that are remembered for a block.
const FAILURES: usize = 64;

/// Size of the buffer used to skip from an entry to the wanted segment.
const SKIP: usize = 64 << 10;

/// A decoded block, shared by its readers and the threads that decode ahead.
pub struct Decoded {
    /// The stream as it was opened.
    first: Arc<dyn Stream>,
    /// Where the index is stored, if the block has one.
    slot: Option<IndexSlot>,
    /// Set when the index has been loaded, or there was none.
    index_loaded: OnceLock<()>,
    this: Weak<Self>,
    len: u64,
    cache: Arc<Cache>,
    /// This block's key in the cache.
    key: u64,
    /// Not held while a segment is decoded. Taken before the locks of the stream and `Cache::ledger`.
    state: Mutex<DecodedState>,
    /// Signalled when a decode ends or moves on to another segment.
    moved: Condvar,
}

/// What the readers of a block and the threads that decode it know of each other.
#[derive(Default)]
struct DecodedState {
    /// The stream with entries that a loaded index gave, until they prove wrong.
    imported: Option<Arc<dyn Stream>>,
    /// The decoders that run.
    decodes: Vec<Arc<Decode>>,
    failures: Vec<Damage>,
    readers: Readers,
    /// Which of the jobs that decode ahead are queued or running.
    ahead_jobs: [bool; ahead::JOBS],
    /// Whether a job that tidies the stream, and stores its index, is queued or running.
    tidying: bool,
    sums: SegmentSums,
}

/// A damaged place: no decoder gets from `from` to the end of `segment`.
struct Damage {
    segment: u64,
    from: u64,
    error: Error,
}

impl DecodedState {
    /// Where the running decoder began that gets to the decoded offset `start` first, if one gets there no later than a new one
    /// would from `entry`.
    fn nearest(&self, start: u64, entry: u64) -> Option<u64> {
        let decodes = self.decodes.iter();
        let leading =
            decodes.filter(|decode| leads((decode.from, decode.will_decode_to), start, entry));
        leading.map(|decode| decode.from).max()
    }
}

/// Whether a decoder that stands at `from`, and has the bytes up to `to` or will have them when its step ends, gets to `start` no
/// later than a new one from `entry`.
fn leads((from, to): (u64, u64), start: u64, entry: u64) -> bool {
    from <= start && (from >= entry || start < to)
}

/// How a decode ended, if not in an error.
enum Outcome {
    /// With the segment.
    Done(Arc<CountedBuf>),
    /// It needs so many bytes of memory, which are not free now.
    Short(u64),
}

impl Decoded {
    /// The first `len` bytes of `stream`, kept in `cache`. Decodes nothing yet. If the stream is worth one, its seek index is loaded
    /// from `slot` at the first read, and stored there once the block is decoded.
    #[must_use]
    pub fn new(
        stream: Arc<dyn Stream>,
        len: u64,
        cache: &Arc<Cache>,
        slot: Option<IndexSlot>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            slot: slot.filter(|_| segment_sums::is_worth_indexing(stream.as_ref(), len)),
            first: stream,
            index_loaded: OnceLock::new(),
            this: this.clone(),
            len,
            cache: Arc::clone(cache),
            key: cache.new_key(),
            state: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    /// The remembered damage with the lowest offset.
    #[must_use]
    pub fn damage(&self) -> Option<Error> {
        let state = self.lock();
        let first = state.failures.iter().min_by_key(|failure| failure.segment);
        first.map(|failure| failure.error.clone())
    }

    /// Appends the entries that are known as bytes, as [`Stream::export`].
    pub(super) fn export(&self, entries: &mut Vec<u8>) -> Option<()> {
        self.stream(&self.lock()).export(entries)
    }

    /// Records a read, and starts decoding ahead if it is sequential.
    fn note(&self, first: u64, last: u64) -> Demand {
        self.index_loaded.get_or_init(|| self.load_index());
        let mut state = self.lock();
        let streaming = state.readers.note(first, last);
        if streaming {
            self.run_ahead(&mut state);
        }
        self.tidy_later(&mut state, streaming);
        Demand {
            streaming,
            ..Demand::of(self.key)
        }
    }
}

impl Source for Decoded {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = checked_end(offset, buf.len(), self.len)?;
        if buf.is_empty() {
            return Ok(());
        }
        let demand = self.note(segment_of(offset), segment_of(end.saturating_sub(1)));
        let mut offset = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let index = segment_of(offset);
            let within = within_segment(offset);
            let len = rest.len().min(SEGMENT.saturating_sub(within));
            let (part, behind) = rest.split_at_mut(len);
            let segment = self.segment(self.lock(), index, demand)?;
            let found = segment
                .get(within..within.saturating_add(len))
                .ok_or_else(|| misplaced(start_of(index)))?;
            part.copy_from_slice(found);
            rest = behind;
            offset = offset.saturating_add(len_u64(len));
        }
        Ok(())
    }

    /// Decodes the bytes if need be: a segment is lent rather than copied.
    fn lend(&self, offset: u64, len: usize, _: Borrower) -> Result<Option<Loan>> {
        let end = checked_end(offset, len, self.len)?;
        let index = segment_of(offset);
        if len == 0 || segment_of(end.saturating_sub(1)) != index {
            return Ok(None);
        }
        let demand = self.note(index, index);
        let segment = self.segment(self.lock(), index, demand)?;
        let within = within_segment(offset);
        let range = within..within.saturating_add(len);
        let is_there = segment.get(range.clone()).is_some();
        Ok(is_there.then_some(Loan::Shared(segment, range)))
    }
}

impl Decoded {
    /// The bytes of a segment, from the cache, from the thread that decodes it, or decoded now. `state` is unlocked meanwhile.
    fn segment<'a>(
        &'a self,
        mut state: MutexGuard<'a, DecodedState>,
        index: u64,
        demand: Demand,
    ) -> Result<Arc<CountedBuf>> {
        let mut grant = Grant::new(&self.cache);
        loop {
            if let Some(found) = self.cache.get(self.key, index) {
                return Ok(found);
            }
            if let Some(error) = self.failure(&state, index) {
                return Err(error);
            }
            let same = |decode: &&Arc<Decode>| decode.segment == Some(index);
            if let Some(decode) = state.decodes.iter().find(same).map(Arc::clone) {
                grant.give_back();
                while decode.outcome.get().is_none() && decode.is_running(&state) {
                    state = self.wait(state);
                }
                let Some(outcome) = decode.outcome.get().cloned() else {
                    continue;
                };
                if outcome.is_err() && decode.was_misled(&state) {
                    continue;
                }
                if demand.urgent {
                    // it was decoded ahead of this reader, who has it now
                    let _ = self.cache.get(self.key, index);
                }
                return outcome;
            }
            let Some((guard, cursor)) = self.begin(&mut state, index) else {
                grant.give_back();
                state = self.wait(state);
                continue;
            };
            let decode = Arc::clone(&guard.decode);
            drop(state);
            match self.run(guard, cursor, index, demand, &mut grant) {
                Ok(Outcome::Done(bytes)) => return Ok(bytes),
                Ok(Outcome::Short(_)) if !demand.urgent => return Err(no_memory()),
                Ok(Outcome::Short(need)) => {
                    grant.wait_for(need)?;
                    state = self.lock();
                }
                Err(error) => {
                    state = self.lock();
                    if !decode.was_misled(&state) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Chooses the cheapest way to a segment that is neither cached nor being decoded, and shows it to other threads: a parked
    /// decoder, or one that is yet to be opened. `None` if a running decoder will pass nearer to the segment than these begin.
    fn begin(
        &self,
        state: &mut DecodedState,
        index: u64,
    ) -> Option<(DecodeGuard<'_>, Option<Box<dyn Cursor>>)> {
        let start = start_of(index);
        let entry = self.stream(state).entry(start);
        let nearest = state.nearest(start, entry);
        let parked = self.cache.unpark(self.key, start, |cursor| {
            leads((cursor.position(), cursor.decoded_to()), start, entry)
                && nearest.is_none_or(|running| cursor.position() > running)
        });
        if parked.is_none() && nearest.is_some() {
            return None;
        }
        let decode = Decode::new(parked.as_deref(), entry, state.imported.is_some());
        let decode = Arc::new(decode);
        state.decodes.push(Arc::clone(&decode));
        let block = self;
        Some((DecodeGuard { block, decode }, parked))
    }

    /// Decodes all segments up to `index`, and parks the decoder behind it; before it, if memory runs short. If the read is sequential,
    /// segments that the decoder has decoded already go to the cache first: what fails there is not this reader's.
    fn run(
        &self,
        mut guard: DecodeGuard<'_>,
        cursor: Option<Box<dyn Cursor>>,
        index: u64,
        demand: Demand,
        grant: &mut Grant<'_>,
    ) -> Result<Outcome> {
        let imported = guard.decode.imported;
        let mut cursor = if let Some(parked) = cursor {
            parked
        } else {
            // opening it may read and decode a little
            let slot = grant.admit(0, demand);
            let stream = self.stream(&self.lock());
            let opened = slot.and_then(|_slot| stream.cursor(start_of(index)));
            opened.inspect_err(|error| self.remember(index, guard.decode.from, error, imported))?
        };
        let mut found = None;
        loop {
            let from = cursor.position();
            let segment = from.div_ceil(len_u64(SEGMENT));
            if found.is_none() && segment > index {
                return Err(misplaced(start_of(index)));
            }
            if let Some(bytes) = &found
                && !(demand.streaming && self.is_ready(cursor.as_ref(), segment))
            {
                let bytes = Arc::clone(bytes);
                self.park(&guard, cursor, demand, grant);
                return Ok(Outcome::Done(bytes));
            }
            guard.move_on(segment, cursor.as_ref());
            let demand = Demand {
                streaming: demand.streaming || segment < index,
                unread: demand.unread || segment > index,
                ..demand
            };
            match self.step(cursor.as_mut(), segment, demand, imported, grant) {
                Ok(Outcome::Done(bytes)) => {
                    let _ = guard.decode.outcome.set(Ok(Arc::clone(&bytes)));
                    if segment == index {
                        found = Some(bytes);
                    }
                }
                Ok(Outcome::Short(need)) => {
                    if cursor.position() <= start_of(segment) {
                        self.park(&guard, cursor, demand, grant);
                    }
                    return Ok(found.map_or(Outcome::Short(need), Outcome::Done));
                }
                Err(error) => {
                    drop(cursor);
                    self.remember(segment, from, &error, imported);
                    let _ = guard.decode.outcome.set(Err(error.clone()));
                    return found.map(Outcome::Done).ok_or(error);
                }
            }
        }
    }

    /// Whether a decoder has decoded the segment already that it stands before, and the cache has room for it but not the segment.
    fn is_ready(&self, cursor: &dyn Cursor, segment: u64) -> bool {
        let end = start_of(segment.saturating_add(1)).min(self.len);
        start_of(segment) < end
            && cursor.decoded_to() >= end
            && self.cache.has_room_ahead()
            && !self.cache.contains(self.key, segment)
    }

    /// Parks a decoder where it stands; drops it if its index has proved wrong.
    fn park(
        &self,
        guard: &DecodeGuard<'_>,
        cursor: Box<dyn Cursor>,
        demand: Demand,
        grant: &mut Grant<'_>,
    ) {
        let state = self.lock();
        if !guard.decode.was_misled(&state) {
            self.cache.park(cursor, grant.at_rest(), demand);
        }
    }

    /// Decodes one segment with a decoder that stands at most one segment before it.
    fn step(
        &self,
        cursor: &mut dyn Cursor,
        segment: u64,
        demand: Demand,
        imported: bool,
        grant: &mut Grant<'_>,
    ) -> Result<Outcome> {
        let mut buffer = self.cache.segment(self.segment_len(segment), demand);
        let start = start_of(segment);
        let mut filled = 0;
        let mut admitted = 0;
        let mut slot = None;
        while filled < buffer.len() {
            let need = cursor.held().saturating_add(cursor.scratch());
            if slot.is_none() || need > admitted {
                drop(slot.take());
                slot = grant.admit(need, demand)?;
                if slot.is_none() {
                    return Ok(Outcome::Short(need));
                }
                admitted = need;
            }
            let before = cursor.position();
            if before < start {
                let left = start.saturating_sub(before);
                cursor.read(&mut PooledBuf::of(at_most(left, SKIP)))?;
            } else if before == start.saturating_add(len_u64(filled)) {
                let given = cursor.read(buffer.get_mut(filled..).unwrap_or_default())?;
                filled = filled.saturating_add(given);
            } else {
                return Err(misplaced(start));
            }
            let wanted = cursor.held().saturating_add(cursor.scratch());
            if cursor.position() == before && wanted <= need {
                return Err(misplaced(before));
            }
        }
        drop(slot);
        self.keep(segment, buffer, demand, imported)
            .map(Outcome::Done)
    }

    /// Puts a decoded segment into the cache, once its checksum does not contradict a loaded index.
    fn keep(
        &self,
        segment: u64,
        buffer: CountedBuf,
        demand: Demand,
        imported: bool,
    ) -> Result<Arc<CountedBuf>> {
        let sum = self.slot.as_ref().map(|_| crc32(0, &buffer));
        let mut state = self.lock();
        if let Some(sum) = sum {
            state.note_sum(segment, sum, imported)?;
            self.tidy_later(&mut state, false);
        }
        let bytes = self.cache.insert(self.key, segment, buffer, demand.unread);
        self.recount(&state, demand);
        Ok(bytes)
    }

    /// Remembers damage of the payload. Errors of the medium are not remembered, because a later read may succeed.
    ///
    /// Where the decoder was `imported`, the index may be to blame: it is dropped, and nothing is remembered.
    fn remember(&self, segment: u64, from: u64, error: &Error, imported: bool) {
        if !matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. }) {
            return;
        }
        let mut state = self.lock();
        if imported {
            self.drop_index(&mut state);
            return;
        }
        state.failures.retain(|failure| failure.segment != segment);
        if state.failures.len() >= FAILURES {
            state.failures.remove(0);
        }
        state.failures.push(Damage {
            segment,
            from,
            error: error.clone(),
        });
    }

    /// The remembered damage that keeps any decoder from a segment.
    fn failure(&self, state: &DecodedState, index: u64) -> Option<Error> {
        let mut failures = state.failures.iter();
        failures
            .find(|failure| {
                failure.segment == index
                    || (failure.segment < index
                        && self.stream(state).entry(start_of(index)) <= failure.from)
            })
            .map(|failure| failure.error.clone())
    }

    /// Length of a segment.
    fn segment_len(&self, index: u64) -> usize {
        at_most(self.len.saturating_sub(start_of(index)), SEGMENT)
    }

    /// Counts what the stream holds now.
    fn recount(&self, state: &DecodedState, demand: Demand) {
        let stream = self.stream(state);
        self.cache.recount(&stream, state.sums.held(), demand);
    }

    fn lock(&self) -> MutexGuard<'_, DecodedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a decode of this block ends or moves on; `state` is unlocked meanwhile.
    fn wait<'a>(&self, state: MutexGuard<'a, DecodedState>) -> MutexGuard<'a, DecodedState> {
        self.moved
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        self.cache.forget(self.key);
    }
}

fn no_memory() -> Error {
    Error::unsupported(Place::File, "no memory to decode ahead")
}

/// The index of the segment that holds the byte at `offset`.
fn segment_of(offset: u64) -> u64 {
    offset.checked_div(len_u64(SEGMENT)).unwrap_or(0)
}

/// The decoded offset where a segment begins.
fn start_of(index: u64) -> u64 {
    index.saturating_mul(len_u64(SEGMENT))
}

/// How far the byte at `offset` is from the start of its segment.
fn within_segment(offset: u64) -> usize {
    usize::try_from(offset.checked_rem(len_u64(SEGMENT)).unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
