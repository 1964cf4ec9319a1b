//! The decoders that run: how a thread takes one through the segments, and what other threads see of it. A thread that wants the
//! same segment waits for its run.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::{Damage, Decoded, DecodedState, Demand, is_worth_taking, start_of};
use crate::codec::caller;
use crate::codec::cores::caught;
use crate::codec::limit::Permit;
use crate::codec::{CountedBuf, Cursor, SEGMENT, misplaced};
use crate::error::{Error, Place, Result};
use crate::source::{PooledBuf, at_most, len_u64};

/// Size of the buffer used to skip from an entry to the wanted segment.
const SKIP: usize = 64 << 10;

/// A running decoder at one segment, as other threads see it.
pub(super) struct Run {
    /// The first segment that begins at its position or behind it.
    pub(super) segment: u64,
    /// From its position to the decoded offset that its next call of [`Cursor::read`] will reach.
    pub(super) reach: Range<u64>,
    /// The segment or the error, set once, for the threads that wait for it: they wake when the decoder moves on or is dropped. If
    /// there is none by then, one of them decodes the segment.
    pub(super) outcome: OnceLock<Result<Arc<CountedBuf>>>,
}

impl Run {
    fn new(reach: Range<u64>) -> Arc<Self> {
        Arc::new(Self {
            segment: reach.start.div_ceil(len_u64(SEGMENT)),
            reach,
            outcome: OnceLock::new(),
        })
    }
}

/// A decoder that this thread runs or is about to, and shows to other threads as a [`Run`] until dropped.
pub(super) struct Decoder<'a> {
    block: &'a Decoded,
    /// Another one takes its place at each segment, so that threads which wait for this keep its outcome.
    shown: Arc<Run>,
}

impl<'a> Decoder<'a> {
    /// One that is to begin at the start of `reach`.
    pub(super) fn begin(block: &'a Decoded, state: &mut DecodedState, reach: Range<u64>) -> Self {
        let shown = Run::new(reach);
        state.runs.push(Arc::clone(&shown));
        Self { block, shown }
    }

    /// Decodes all segments up to `wanted`, copies those behind it that are ready if the read is sequential, and leaves the decoder to the
    /// cache. Where memory runs short it leaves the decoder to the cache as well, and goes on with it when there is enough.
    ///
    /// # Errors
    /// Of decoding; if no reader waits for the segment, also if memory runs short.
    pub(super) fn run(mut self, wanted: u64, demand: Demand) -> Result<Arc<CountedBuf>> {
        let mut permit = Permit::none(&self.block.cache);
        let mut needed = 0;
        loop {
            match permit.admit(needed, demand != Demand::Ahead) {
                Ok(true) => {}
                Ok(false) => return Err(no_memory()),
                Err(error) => return Err(self.fail(error)),
            }
            let opened = self.cursor(wanted);
            let mut cursor = opened.map_err(|error| self.fail(error))?;
            match self.decode_to(wanted, &mut *cursor, demand, &mut permit) {
                Ok(Some(bytes)) => {
                    self.copy_ready(cursor, demand, permit);
                    return Ok(bytes);
                }
                Ok(None) => {
                    needed = cursor.needed();
                    self.leave(cursor, &mut permit);
                }
                Err(error) => {
                    drop(cursor);
                    return Err(self.fail(error));
                }
            }
        }
    }

    /// The decoder at rest nearest before a segment, or a new one.
    fn cursor(&self, wanted: u64) -> Result<Box<dyn Cursor>> {
        let start = start_of(wanted);
        let entry = self.block.stream.entry(start);
        let resting = self.block.cache.take(self.block.key, start, |cursor| {
            is_worth_taking(cursor, start, entry)
        });
        match resting {
            // the permit counts its memory from here on
            Some((cursor, _)) => Ok(cursor),
            None => caught(|| Arc::clone(&self.block.stream).cursor(start)),
        }
    }

    /// Decodes the segments from the one that `cursor` stands before to the wanted one; `None` if it pauses on the way.
    fn decode_to(
        &mut self,
        wanted: u64,
        cursor: &mut dyn Cursor,
        demand: Demand,
        permit: &mut Permit<'_>,
    ) -> Result<Option<Arc<CountedBuf>>> {
        loop {
            let segment = next_segment(cursor);
            if segment > wanted {
                return Err(misplaced(start_of(wanted)));
            }
            // what lies on the way is not what others read
            let demand = match demand {
                Demand::Random if segment < wanted => Demand::Sequential,
                other => other,
            };
            let decoded = self.decode(cursor, demand, demand == Demand::Ahead, permit)?;
            if segment == wanted || decoded.is_none() {
                return Ok(decoded);
            }
        }
    }

    /// Copies to the cache, for a sequential read, the segments behind the wanted one that the decoder has decoded already, and leaves it
    /// there. The reader does not get an error of those segments: a thread that reads one of them does.
    fn copy_ready(&mut self, mut cursor: Box<dyn Cursor>, demand: Demand, mut permit: Permit<'_>) {
        while demand != Demand::Random && self.is_ready(&*cursor) {
            match self.decode(&mut *cursor, demand, true, &mut permit) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    drop(cursor);
                    self.fail(error);
                    return;
                }
            }
        }
        self.leave(cursor, &mut permit);
    }

    /// Leaves the decoder to the cache with its memory. One that has begun the segment is dropped instead: it can't give the bytes of the
    /// segment again.
    fn leave(&self, cursor: Box<dyn Cursor>, permit: &mut Permit<'_>) {
        let has_begun = cursor.position() > start_of(self.shown.segment);
        if !has_begun || self.shown.outcome.get().is_some() {
            let block = self.block;
            block.cache.rest(cursor, permit.memory(), block.key);
        }
    }

    /// Decodes the segment that `cursor` stands before, and puts it into the cache; `None` if more memory is needed first than is free, or
    /// nobody wants the bytes any more.
    fn decode(
        &mut self,
        cursor: &mut dyn Cursor,
        demand: Demand,
        unread: bool,
        permit: &mut Permit<'_>,
    ) -> Result<Option<Arc<CountedBuf>>> {
        self.show(cursor);
        let block = self.block;
        if block.cache.check_wanted().is_err() {
            return Ok(None);
        }
        let segment = self.shown.segment;
        let Some(buffer) = self.fill(cursor, segment, demand, permit)? else {
            return Ok(None);
        };
        let bytes = block.cache.insert(block.key, segment, buffer, unread);
        block.cache.recount(block.key, &block.stream);
        let _ = self.shown.outcome.set(Ok(Arc::clone(&bytes)));
        Ok(Some(bytes))
    }

    /// Shows where the decoder is, and wakes the threads that wait for the segment before.
    fn show(&mut self, cursor: &dyn Cursor) {
        let next = Run::new(cursor.position()..cursor.will_decode_to());
        if next.segment != self.shown.segment {
            let mut state = self.block.lock();
            state.runs.retain(|other| !Arc::ptr_eq(other, &self.shown));
            state.runs.push(Arc::clone(&next));
            drop(state);
            self.shown = next;
            self.block.moved.notify_all();
        }
    }

    /// The bytes of a segment, from a decoder that stands at most one segment before it; `None` if memory runs short.
    fn fill(
        &self,
        cursor: &mut dyn Cursor,
        segment: u64,
        demand: Demand,
        permit: &mut Permit<'_>,
    ) -> Result<Option<CountedBuf>> {
        let len = self.block.segment_len(segment);
        let mut buffer = self
            .block
            .cache
            .segment(self.block.key, len, demand != Demand::Random);
        let start = start_of(segment);
        let mut filled = 0;
        while filled < buffer.len() {
            let needed = cursor.needed();
            if !permit.grow(needed) {
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
    fn is_ready(&self, cursor: &dyn Cursor) -> bool {
        let block = self.block;
        let segment = next_segment(cursor);
        let end = start_of(segment.saturating_add(1)).min(block.len);
        start_of(segment) < end
            && cursor.decoded_to() >= end
            && block.cache.is_missing(block.key, segment)
    }

    /// Ends with an error at the segment that is shown. It is remembered if it is damage.
    fn fail(&self, error: Error) -> Error {
        self.block.lock().remember(Damage {
            segment: self.shown.segment,
            from: self.shown.reach.start,
            error: error.clone(),
        });
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
        state.runs.retain(|other| !Arc::ptr_eq(other, &self.shown));
        drop(state);
        self.block.moved.notify_all();
    }
}

/// The segment that a decoder decodes next: the first one that begins at its position or behind it.
fn next_segment(cursor: &dyn Cursor) -> u64 {
    cursor.position().div_ceil(len_u64(SEGMENT))
}

fn no_memory() -> Error {
    Error::unsupported(Place::File, "no memory to decode ahead")
}
