//! The decoders that run: how a thread takes one through the segments, and what other threads see of it. A thread that wants the
//! same segment waits for its run.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::{DAMAGES, Decoded, DecodedState, Demand, segment_from, start_of};
use crate::codec::cache::Resting;
use crate::codec::caller;
use crate::codec::cores::caught;
use crate::codec::limit::Permit;
use crate::codec::{CountedBuf, SEGMENT, misplaced};
use crate::error::{Error, Result, lock, unsupported};
use crate::source::at_most;

/// A running decoder at one segment, as other threads see it.
pub(super) struct Run {
    /// The first segment that begins at its position or behind it.
    pub(super) segment: u64,
    /// From its position to the decoded offset that its next call of [`read`](crate::codec::Cursor::read) will reach.
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
        state.is_untidy = true;
        Self {
            block,
            shown,
            permit: Permit::none(&block.cache),
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
            let decoded = self.decode_to(wanted, demand, &mut needed);
            // After an error the decoder is freed by now: other threads that hear of it decode, perhaps with as much memory.
            if let Some(bytes) = decoded.map_err(|error| self.fail(error))? {
                return Ok(bytes);
            }
        }
    }

    /// Decodes the segments from the one that the decoder stands before to the wanted one, and puts them into the cache; `None` if it stops
    /// on the way, because more memory is `needed` than is free, or nobody wants the bytes any more. Then leaves the decoder to the cache.
    fn decode_to(
        &mut self,
        wanted: u64,
        demand: Demand,
        needed: &mut u64,
    ) -> Result<Option<Arc<CountedBuf>>> {
        let Decoded { cache, key, .. } = self.block;
        let mut resting = self.block.cursor(start_of(wanted))?;
        let decoded = loop {
            let cursor = &resting.0;
            let segment = segment_from(cursor.position());
            if segment > wanted {
                return Err(misplaced(start_of(wanted)));
            }
            self.show(Some(Run::new(cursor.position()..cursor.will_decode_to())));
            if cache.check_wanted().is_err() {
                break None;
            }
            // What lies on the way is not what others read: its memory is used again, as that of sequential reads.
            let sequential = demand != Demand::Random || segment < wanted;
            let Some(buffer) = self.fill(&mut resting, segment, sequential)? else {
                break None;
            };
            let bytes = cache.insert(*key, segment, buffer, demand == Demand::Ahead);
            cache.recount(*key, &self.block.stream, true);
            // Set before the run is shown no more: the threads that wake then find it, even if the cache had no room.
            let _ = self.shown.outcome.set(Ok(Arc::clone(&bytes)));
            if segment == wanted {
                break Some(bytes);
            }
        };
        *needed = resting.0.needed();
        // One that has begun a segment can't give the bytes of the segment again.
        let has_begun = resting.0.position() > start_of(self.shown.segment);
        if !has_begun || decoded.is_some() {
            cache.rest(*key, resting);
        }
        Ok(decoded)
    }

    /// Shows `next`, if that is another segment, in place of the run before, and wakes the threads that wait.
    fn show(&mut self, next: Option<Arc<Run>>) {
        if next.as_ref().map(|next| next.segment) == Some(self.shown.segment) {
            return;
        }
        let mut state = lock(&self.block.state);
        state.runs.retain(|other| !Arc::ptr_eq(other, &self.shown));
        if let Some(next) = next {
            state.runs.push(Arc::clone(&next));
            self.shown = next;
        }
        drop(state);
        self.block.moved.notify_all();
    }

    /// The bytes of a segment, from a decoder that stands at most one segment before it; `None` if memory runs short.
    fn fill(
        &mut self,
        (cursor, memory): &mut Resting,
        segment: u64,
        sequential: bool,
    ) -> Result<Option<CountedBuf>> {
        let Decoded {
            cache, key, len, ..
        } = self.block;
        let start = start_of(segment);
        let len = at_most(len.saturating_sub(start), SEGMENT);
        let mut buffer = cache.segment(*key, len, sequential);
        let take = |needed| {
            let is_free = self.permit.grow(needed);
            if is_free && needed > memory.bytes() {
                memory.count(needed);
                cache.make_room();
            }
            Ok(is_free)
        };
        let is_full = caught(|| cursor.fill_from(start, &mut buffer, take))?;
        Ok(is_full.then_some(buffer))
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
