//! The decoders that run: how a thread takes one through the segments, and what other threads see of it. A thread that wants the
//! same segment waits for its run.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::{DAMAGES, Decoded, DecodedState, Demand, SKIP, segment_from, start_of};
use crate::codec::caller;
use crate::codec::cores::caught;
use crate::codec::limit::Permit;
use crate::codec::{CountedBuf, Cursor, SEGMENT, misplaced};
use crate::error::{Error, Result, lock, unsupported};
use crate::source::{PooledBuf, at_most, len_u64};

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
            segment: segment_from(reach.start),
            reach,
            outcome: OnceLock::new(),
        })
    }

    /// The error that it has ended with.
    pub(super) fn error(&self) -> Option<Error> {
        self.outcome.get()?.as_ref().err().cloned()
    }
}

/// A decoder that this thread runs or is about to, and shows to other threads as a [`Run`] until dropped.
pub(super) struct Decoder<'a> {
    block: &'a Decoded,
    /// Another one takes its place at each segment, so that threads which wait for this keep its outcome.
    shown: Arc<Run>,
    permit: Permit<'a>,
}

impl<'a> Decoder<'a> {
    /// One that is to begin at the start of `reach`.
    pub(super) fn begin(block: &'a Decoded, state: &mut DecodedState, reach: Range<u64>) -> Self {
        let shown = Run::new(reach);
        state.runs.push(Arc::clone(&shown));
        let permit = Permit::none(&block.cache);
        Self {
            block,
            shown,
            permit,
        }
    }

    /// Decodes all segments up to `wanted`, and leaves the decoder to the cache. So it does where memory runs short, and goes on with it when
    /// there is enough.
    ///
    /// # Errors
    /// Of decoding; if no reader waits for the segment, also if memory runs short.
    pub(super) fn run(mut self, wanted: u64, demand: Demand) -> Result<Arc<CountedBuf>> {
        let mut needed = 0;
        loop {
            let admitted = self.permit.admit(needed, demand != Demand::Ahead);
            if !admitted.map_err(|error| self.fail(error))? {
                // Not the outcome of the run: the readers that wait for it decode the segment themselves.
                return Err(unsupported("no memory to decode ahead"));
            }
            let found = self.block.cursor(start_of(wanted));
            // The permit counts its memory from here on.
            let (mut cursor, _) = found.map_err(|error| self.fail(error))?;
            match self.decode_to(wanted, &mut *cursor, demand) {
                Ok(decoded) => {
                    needed = cursor.needed();
                    self.leave(cursor);
                    if let Some(bytes) = decoded {
                        return Ok(bytes);
                    }
                }
                Err(error) => {
                    // Freed before other threads hear of the error and decode, perhaps with as much memory.
                    drop(cursor);
                    return Err(self.fail(error));
                }
            }
        }
    }

    /// Decodes the segments from the one that `cursor` stands before to the wanted one, and puts them into the cache; `None` if it stops on
    /// the way, because more memory is needed than is free, or nobody wants the bytes any more.
    fn decode_to(
        &mut self,
        wanted: u64,
        cursor: &mut dyn Cursor,
        demand: Demand,
    ) -> Result<Option<Arc<CountedBuf>>> {
        let Decoded { cache, key, .. } = self.block;
        loop {
            let segment = segment_from(cursor.position());
            if segment > wanted {
                return Err(misplaced(start_of(wanted)));
            }
            self.show(Some(Run::new(cursor.position()..cursor.will_decode_to())));
            if cache.check_wanted().is_err() {
                return Ok(None);
            }
            // What lies on the way is not what others read: its memory is used again, as that of sequential reads.
            let sequential = demand != Demand::Random || segment < wanted;
            let Some(buffer) = self.fill(cursor, segment, sequential)? else {
                return Ok(None);
            };
            let bytes = cache.insert(*key, segment, buffer, demand == Demand::Ahead);
            cache.recount(*key, &self.block.stream);
            // Set before the run is shown no more: the threads that wake then find it, even if the cache had no room.
            let _ = self.shown.outcome.set(Ok(Arc::clone(&bytes)));
            if segment == wanted {
                return Ok(Some(bytes));
            }
        }
    }

    /// Leaves the decoder to the cache with its memory. One that has begun the segment is dropped instead: it can't give the bytes of the
    /// segment again.
    fn leave(&mut self, cursor: Box<dyn Cursor>) {
        let has_begun = cursor.position() > start_of(self.shown.segment);
        if !has_begun || self.shown.outcome.get().is_some() {
            let resting = (cursor, self.permit.memory());
            self.block.cache.rest(self.block.key, resting);
        }
    }

    /// Shows `next`, if that is another segment, in place of the run before, and wakes the threads that wait.
    fn show(&mut self, next: Option<Arc<Run>>) {
        if next.as_ref().map(|next| next.segment) == Some(self.shown.segment) {
            return;
        }
        let mut state = lock(&self.block.state);
        state.runs.retain(|other| !Arc::ptr_eq(other, &self.shown));
        // As a rule no thread waits, and waking none costs a system call.
        let is_waited_for = state.waiting > 0;
        if let Some(next) = next {
            state.runs.push(Arc::clone(&next));
            self.shown = next;
        }
        drop(state);
        if is_waited_for {
            self.block.moved.notify_all();
        }
    }

    /// The bytes of a segment, from a decoder that stands at most one segment before it; `None` if memory runs short.
    fn fill(
        &mut self,
        cursor: &mut dyn Cursor,
        segment: u64,
        sequential: bool,
    ) -> Result<Option<CountedBuf>> {
        let Decoded {
            cache, key, len, ..
        } = self.block;
        let start = start_of(segment);
        let len = at_most(len.saturating_sub(start), SEGMENT);
        let mut buffer = cache.segment(*key, len, sequential);
        let mut filled = 0;
        while filled < buffer.len() {
            let needed = cursor.needed();
            if !self.permit.grow(needed) {
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
            // A decoder that neither moves nor asks for more memory would be called for ever.
            if cursor.position() == before && cursor.needed() <= needed {
                return Err(misplaced(before));
            }
        }
        Ok(Some(buffer))
    }

    /// Ends with an error at the segment that is shown. Damage of the payload is remembered; errors of the medium are not, because a later
    /// read may succeed.
    fn fail(&self, error: Error) -> Error {
        let is_damage = matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
        // Others that wait for the segment decode it themselves if this thread's reader is gone.
        if is_damage || caller::is_wanted() {
            let _ = self.shown.outcome.set(Err(error.clone()));
        }
        if is_damage {
            let damages = &mut lock(&self.block.state).damages;
            damages.retain(|other| other.segment != self.shown.segment);
            if damages.len() >= DAMAGES {
                damages.remove(0);
            }
            damages.push(Arc::clone(&self.shown));
        }
        error
    }
}

impl Drop for Decoder<'_> {
    fn drop(&mut self) {
        // Before others look for a way, so that they find the memory free.
        self.permit.give_back();
        self.show(None);
    }
}
