//! The decoders that run: how a thread takes one through the segments, and what other threads see of it. A thread that wants the
//! same segment waits for its decode.

use std::ops::Range;
use std::ptr;
use std::sync::{Arc, OnceLock};

use super::{Decoded, DecodedState, start_of};
use crate::codec::cache::Demand;
use crate::codec::caller;
use crate::codec::grant::Grant;
use crate::codec::jobs::caught;
use crate::codec::{CountedBuf, Cursor, SEGMENT, misplaced};
use crate::error::{Error, Place, Result};
use crate::source::{PooledBuf, at_most, len_u64};

/// Size of the buffer used to skip from an entry to the wanted segment.
const SKIP: usize = 64 << 10;

/// A running decoder, as other threads see it.
pub(super) struct Decode {
    /// The segment it is decoding; `None` while it is being opened.
    pub(super) segment: Option<u64>,
    /// From its position to the decoded offset that its next call of [`Cursor::read`] will reach.
    pub(super) reach: Range<u64>,
    /// The segment or the error, set once, for the threads that wait for it: they wake when the decoder moves on or is dropped. If
    /// there is none by then, one of them decodes the segment.
    pub(super) outcome: OnceLock<Result<Arc<CountedBuf>>>,
}

impl Decode {
    /// What `cursor` is about to decode: the first segment that begins at its position or behind it.
    pub(super) fn of(cursor: &dyn Cursor) -> Self {
        Self {
            segment: Some(next_segment(cursor)),
            reach: cursor.position()..cursor.will_decode_to(),
            outcome: OnceLock::new(),
        }
    }

    /// A decoder that is being opened at the decoded offset `entry`.
    pub(super) fn opening(entry: u64) -> Self {
        Self {
            segment: None,
            reach: entry..entry,
            outcome: OnceLock::new(),
        }
    }

    /// Whether it still runs.
    pub(super) fn is_running(&self, state: &DecodedState) -> bool {
        state
            .decodes
            .iter()
            .any(|other| ptr::eq(&raw const **other, self))
    }
}

/// A decoder that this thread runs, and shows to other threads as a [`Decode`] until dropped.
pub(super) struct Decoder<'a> {
    pub(super) block: &'a Decoded,
    /// Another one takes its place at each segment, so that threads which wait for this keep its outcome.
    pub(super) shown: Arc<Decode>,
    /// Where it goes on from; `None` for one that is yet to be opened.
    pub(super) parked: Option<Box<dyn Cursor>>,
}

impl Decoder<'_> {
    /// Decodes all segments up to `wanted`, copies those behind it that are ready if the read is sequential, and parks the decoder.
    ///
    /// `None` if the thread is to look at the block again, because memory ran short: the decoder is parked on the way, and `grant` has
    /// the memory by now.
    pub(super) fn run(
        mut self,
        wanted: u64,
        demand: Demand,
        grant: &mut Grant<'_>,
    ) -> Result<Option<Arc<CountedBuf>>> {
        let opened = match self.parked.take() {
            Some(parked) => Ok(parked),
            None => self.open(wanted, demand, grant),
        };
        let mut cursor = match opened {
            Ok(cursor) => cursor,
            Err(error) => return Err(self.fail(wanted, error)),
        };
        loop {
            let segment = next_segment(&*cursor);
            if segment > wanted {
                return Err(self.fail(wanted, misplaced(start_of(wanted))));
            }
            let demand = if segment < wanted {
                demand.on_the_way()
            } else {
                demand
            };
            let unread = demand.is_background();
            match self.decode(&mut *cursor, segment, demand, unread, grant) {
                Ok(Some(bytes)) if segment == wanted => {
                    self.copy_ready(cursor, demand, grant);
                    return Ok(Some(bytes));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.wait_for_memory(cursor, segment, demand, grant)?;
                    return Ok(None);
                }
                Err(error) => {
                    drop(cursor);
                    return Err(self.fail(segment, error));
                }
            }
        }
    }

    /// Opens it, for which it may read and decode a little.
    fn open(&self, wanted: u64, demand: Demand, grant: &mut Grant<'_>) -> Result<Box<dyn Cursor>> {
        grant.admit(0, demand)?;
        let stream = Arc::clone(&self.block.stream);
        let opened = caught(|| stream.cursor(start_of(wanted)));
        grant.pause();
        opened
    }

    /// Copies to the cache, for a sequential read, the segments behind the wanted one that the decoder has decoded already, and parks
    /// it. The reader does not get an error of those segments: a thread that reads one of them does.
    fn copy_ready(&mut self, mut cursor: Box<dyn Cursor>, demand: Demand, grant: &mut Grant<'_>) {
        loop {
            let segment = next_segment(&*cursor);
            if !demand.is_sequential() || !self.is_ready(&*cursor, segment) {
                return grant.park(cursor, demand);
            }
            match self.decode(&mut *cursor, segment, demand, true, grant) {
                Ok(Some(_)) => {}
                Ok(None) => return park_before(segment, cursor, demand, grant),
                Err(error) => {
                    drop(cursor);
                    self.fail(segment, error);
                    return;
                }
            }
        }
    }

    /// Parks the decoder, whose next step takes more memory than is free, and waits for that memory. It is shown no more meanwhile:
    /// other threads may have to decode first, even with this decoder.
    ///
    /// # Errors
    /// If no reader waits for the segment, at once; else as of [`Grant::wait_for`].
    fn wait_for_memory(
        self,
        cursor: Box<dyn Cursor>,
        segment: u64,
        demand: Demand,
        grant: &mut Grant<'_>,
    ) -> Result<()> {
        let needed = cursor.needed();
        park_before(segment, cursor, demand, grant);
        if demand.is_background() {
            return Err(no_memory());
        }
        drop(self);
        grant.wait_for(needed)
    }

    /// Decodes the segment that `cursor` stands before, and puts it into the cache; `None` if memory runs short.
    fn decode(
        &mut self,
        cursor: &mut dyn Cursor,
        segment: u64,
        demand: Demand,
        unread: bool,
        grant: &mut Grant<'_>,
    ) -> Result<Option<Arc<CountedBuf>>> {
        self.move_on(segment, cursor);
        let buffer = self.fill(cursor, segment, demand, grant);
        grant.pause();
        let Some(buffer) = buffer? else {
            return Ok(None);
        };
        let block = self.block;
        let bytes = block.cache.insert(block.key, segment, buffer, unread);
        block.cache.recount(&block.stream, demand);
        let _ = self.shown.outcome.set(Ok(Arc::clone(&bytes)));
        Ok(Some(bytes))
    }

    /// Shows that it goes on to the next segment, and wakes the threads that wait for the one before.
    fn move_on(&mut self, segment: u64, cursor: &dyn Cursor) {
        if self.shown.segment == Some(segment) {
            return;
        }
        let next = Arc::new(Decode::of(cursor));
        let mut state = self.block.lock();
        state
            .decodes
            .retain(|other| !Arc::ptr_eq(other, &self.shown));
        state.decodes.push(Arc::clone(&next));
        self.shown = next;
        drop(state);
        self.block.moved.notify_all();
    }

    /// The bytes of a segment, from a decoder that stands at most one segment before it; `None` if memory runs short.
    fn fill(
        &self,
        cursor: &mut dyn Cursor,
        segment: u64,
        demand: Demand,
        grant: &mut Grant<'_>,
    ) -> Result<Option<CountedBuf>> {
        let len = self.block.segment_len(segment);
        let mut buffer = self.block.cache.segment(len, demand);
        let start = start_of(segment);
        let mut filled = 0;
        while filled < buffer.len() {
            let needed = cursor.needed();
            if !grant.admit(needed, demand)? {
                return Ok(None);
            }
            let before = cursor.position();
            if before < start {
                let left = start.saturating_sub(before);
                caught(|| cursor.read(&mut PooledBuf::of(at_most(left, SKIP))))?;
            } else if before == start.saturating_add(len_u64(filled)) {
                let rest = buffer.get_mut(filled..).unwrap_or_default();
                let given = caught(|| cursor.read(rest))?;
                filled = filled.saturating_add(given);
            } else {
                return Err(misplaced(start));
            }
            if cursor.position() == before && cursor.needed() <= needed {
                return Err(misplaced(before));
            }
        }
        Ok(Some(buffer))
    }

    /// Whether a decoder has decoded the segment already that it stands before, and the cache has room for it but not the segment.
    fn is_ready(&self, cursor: &dyn Cursor, segment: u64) -> bool {
        let block = self.block;
        let end = start_of(segment.saturating_add(1)).min(block.len);
        start_of(segment) < end
            && cursor.decoded_to() >= end
            && block.cache.has_room_ahead()
            && !block.cache.contains(block.key, segment)
    }

    /// Ends with an error at a segment, which is remembered if it is damage.
    fn fail(&self, segment: u64, error: Error) -> Error {
        self.block.remember_damage(&self.shown, segment, &error);
        // others that wait for the segment decode it themselves if this thread's reader is gone
        if caller::is_wanted() {
            let _ = self.shown.outcome.set(Err(error.clone()));
        }
        error
    }
}

impl Drop for Decoder<'_> {
    fn drop(&mut self) {
        let mut state = self.block.lock();
        state
            .decodes
            .retain(|other| !Arc::ptr_eq(other, &self.shown));
        drop(state);
        self.block.moved.notify_all();
    }
}

/// Parks a decoder that memory ran short for while it decoded the segment. One that has begun it is dropped instead: it can't give
/// the bytes of the segment again.
fn park_before(segment: u64, cursor: Box<dyn Cursor>, demand: Demand, grant: &mut Grant<'_>) {
    if cursor.position() <= start_of(segment) {
        grant.park(cursor, demand);
    }
}

/// The segment that a decoder decodes next: the first one that begins at its position or behind it.
fn next_segment(cursor: &dyn Cursor) -> u64 {
    cursor.position().div_ceil(len_u64(SEGMENT))
}

fn no_memory() -> Error {
    Error::unsupported(Place::File, "no memory to decode ahead")
}
