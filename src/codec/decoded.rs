//! The decoded bytes of a block as a [`Source`]: decodes only what is read, and once for all readers.
//!
//! The bytes are cut into segments of fixed length. A thread that wants a segment takes it from the cache. If another thread
//! runs a decoder that will pass it, the thread waits for that one. Else it decodes the segment itself, with
//! the decoder at rest nearest before it, or with a new one at the stream's last entry before it. Segments on the way go to
//! the cache, which keeps the last of them, and the decoder comes to rest there where it stops, so that reading on never starts over.
//!
//! All threads that wait for a decode get its error, but not that of a thread whose own reader is gone. If the payload is damaged the place
//! is remembered: the segments before it stay readable, and so do those behind it that another entry leads to. A segment is returned whole
//! or not at all.

mod ahead;
mod decode;

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use self::decode::{Decoder, Run};
use super::ahead::Readers;
use super::cache::{Resting, SEGMENT};
use super::cores::caught;
use super::limit::check;
use super::{Cache, CountedBuf, Stream, misplaced};
use crate::error::{Error, Result, lock};
use crate::source::{Borrower, Loan, Source, at_most, checked_end, len_u64};

/// Damages that are remembered for a block.
const DAMAGES: usize = 64;

/// A decoded block, shared by its readers and the threads that decode ahead.
pub struct Decoded {
    pub(crate) stream: Arc<dyn Stream>,
    this: Weak<Self>,
    len: u64,
    cache: Arc<Cache>,
    /// This block's key in the cache.
    key: u64,
    /// Not held while a segment is decoded, or memory is waited for. Taken before the locks of the stream and of the cache.
    state: Mutex<DecodedState>,
    /// Signalled when a decode ends or moves on to another segment.
    moved: Condvar,
}

/// What the readers of a block and the threads that decode it know of each other.
#[derive(Default)]
struct DecodedState {
    /// The decoders that run or wait for memory, as other threads see them.
    runs: Vec<Arc<Run>>,
    /// The places that are damaged, as the runs that have ended there: no decoder gets from the start of its reach to the end of its segment.
    damages: Vec<Arc<Run>>,
    readers: Readers,
    /// Jobs that decode ahead and tidy, queued or running.
    ahead: usize,
    /// Whether the stream may have put off work since a job looked.
    is_untidy: bool,
}

/// Who wants a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// A reader, who waits for it.
    Random,
    /// A sequential reader, who waits for it.
    Sequential,
    /// No reader yet: it is decoded ahead of a sequential one.
    Ahead,
}

impl DecodedState {
    /// The decoder that is at a segment.
    fn run_of(&self, segment: u64) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.segment == segment)
    }

    /// The last decoder that gets to the decoded offset `start` no later than a new one from `entry`: it stands between the two, or has
    /// the byte at `start` decoded with its next step.
    fn nearest_run(&self, start: u64, entry: u64) -> Option<Arc<Run>> {
        let is_in_time =
            |reach: &Range<u64>| (entry..=start).contains(&reach.start) || reach.contains(&start);
        let in_time = self.runs.iter().filter(|run| is_in_time(&run.reach));
        in_time.max_by_key(|run| run.reach.start).map(Arc::clone)
    }

    /// The remembered damage that keeps any decoder of `stream` from a segment.
    fn damage_of(&self, stream: &dyn Stream, segment: u64) -> Option<Error> {
        let is_met = |run: &&Arc<Run>| {
            run.segment == segment
                || (run.segment < segment && stream.entry(start_of(segment)) <= run.reach.start)
        };
        self.damages.iter().find(is_met)?.error()
    }
}

impl Decoded {
    /// The first `len` bytes of `stream`, kept in `cache`. Decodes nothing yet.
    #[must_use]
    pub fn new(stream: Arc<dyn Stream>, len: u64, cache: &Arc<Cache>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            stream,
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
        let state = lock(&self.state);
        state.damages.iter().min_by_key(|run| run.segment)?.error()
    }
}

impl Source for Decoded {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = checked_end(offset, buf.len(), self.len)?;
        let read = segment_of(offset)..=segment_of(end.saturating_sub(1));
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (bytes, range) = self.part(offset, rest.len(), &read)?;
            let found = bytes.get(range).ok_or_else(|| misplaced(offset))?;
            let (part, behind) = rest.split_at_mut(found.len());
            part.copy_from_slice(found);
            rest = behind;
            offset = offset.saturating_add(len_u64(found.len()));
        }
        Ok(())
    }

    /// Decodes the bytes if need be: a segment is lent rather than copied.
    fn lend(&self, offset: u64, len: usize, _: Borrower) -> Result<Option<Loan>> {
        let end = checked_end(offset, len, self.len)?;
        let segment = segment_of(offset);
        if len == 0 || segment_of(end.saturating_sub(1)) != segment {
            return Ok(None);
        }
        let (bytes, range) = self.part(offset, len, &(segment..=segment))?;
        Ok((range.len() == len).then_some(Loan::Shared(bytes, range)))
    }
}

impl Decoded {
    /// The segment that holds the byte at `offset`, and where the bytes from there are in it, up to `len`, for a read of the segments
    /// `read`.
    fn part(
        &self,
        offset: u64,
        len: usize,
        read: &RangeInclusive<u64>,
    ) -> Result<(Arc<CountedBuf>, Range<usize>)> {
        let segment = segment_of(offset);
        let bytes = match self.cache.get(self.key, segment) {
            // Decoded for an earlier read: where readers go on is not asked, and only the lock of the cache is taken.
            Some((found, false)) => found,
            found => {
                let demand = self.note(read);
                match found {
                    Some((found, _)) => found,
                    None => self.missing(segment, demand)?,
                }
            }
        };
        let start = at_most(offset.saturating_sub(start_of(segment)), SEGMENT);
        let end = start.saturating_add(len).min(bytes.len());
        if start < end {
            return Ok((bytes, start..end));
        }
        Err(misplaced(offset))
    }

    /// Records a read, and starts decoding ahead if it is sequential.
    fn note(&self, read: &RangeInclusive<u64>) -> Demand {
        let mut state = lock(&self.state);
        if !state.readers.note(*read.start(), *read.end()) {
            return Demand::Random;
        }
        self.run_ahead(&mut state);
        Demand::Sequential
    }

    /// The bytes of a segment that was not in the cache: from the thread that decodes it, or decoded now.
    fn missing(&self, segment: u64, demand: Demand) -> Result<Arc<CountedBuf>> {
        let mut waited_for: Option<Arc<Run>> = None;
        let mut state = lock(&self.state);
        loop {
            // A run puts its segment into the cache before it is shown no more, so none is missed between the two.
            if let Some((found, _)) = self.cache.get(self.key, segment) {
                return Ok(found);
            }
            let run = waited_for.filter(|run| run.segment == segment);
            if let Some(outcome) = run.as_ref().and_then(|run| run.outcome.get()) {
                // an error, or the cache has no room for the segment
                return outcome.clone();
            }
            if let Some(error) = state.damage_of(&*self.stream, segment) {
                return Err(error);
            }
            match self.way(&mut state, segment) {
                Ok(decoder) => {
                    drop(state);
                    return decoder.run(segment, demand);
                }
                Err(run) => {
                    state = self.wait(state);
                    // another thread decodes on for its own readers
                    self.cache.check_wanted()?;
                    // its outcome is looked at above: an error is not in the cache
                    waited_for = Some(run);
                }
            }
        }
    }

    /// The way to a segment, of those that begin nearest before it: the decoder at rest or the new one that this thread is to run, which
    /// other threads see from now on; or the run of another thread, to wait for.
    ///
    /// A running decoder goes before one at rest or a new one at the same place, and one at rest before a new one.
    fn way(&self, state: &mut DecodedState, segment: u64) -> Result<Decoder<'_>, Arc<Run>> {
        if let Some(run) = state.run_of(segment) {
            return Err(Arc::clone(run));
        }
        let start = start_of(segment);
        let entry = self.stream.entry(start);
        let running = state.nearest_run(start, entry);
        let resting = self.cache.nearest(self.key, start, entry);
        match (resting, running) {
            (Some(resting), Some(run)) if resting.start <= run.reach.start => Err(run),
            (Some(resting), _) => Ok(Decoder::begin(self, state, resting)),
            (None, Some(run)) => Err(run),
            (None, None) => Ok(Decoder::begin(self, state, entry..entry)),
        }
    }

    /// The decoder at rest that gets soonest to the byte at `start`, or a new one if that gets there no later; with the memory that counts
    /// for it.
    fn cursor(&self, start: u64) -> Result<Resting> {
        let entry = self.stream.entry(start);
        if let Some(resting) = self.cache.take(self.key, start, entry) {
            return Ok(resting);
        }
        let cursor = caught(|| Arc::clone(&self.stream).cursor(start))?;
        let memory = self.cache.count(cursor.held());
        Ok((cursor, memory))
    }

    /// Waits until a decode of this block ends or moves on; `state` is unlocked meanwhile.
    fn wait<'a>(&self, state: MutexGuard<'a, DecodedState>) -> MutexGuard<'a, DecodedState> {
        let woken = self.moved.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        self.cache.forget(self.key);
    }
}

/// The decoded bytes of a stream, as the source of another decoder.
///
/// A thread that has a permit must not wait for another one (see [`limit`](super::limit)). So of decoders that read from each other only
/// the last, which readers see, is read as a [`Decoded`]. This reads one without waiting for another thread: it takes the decoder at rest
/// nearest before the offset, or a new one, and leaves it to the cache behind what it has read. No bytes are kept, because the decoder above
/// reads them in order, once.
pub(super) struct Beneath(pub(super) Arc<Decoded>);

impl Source for Beneath {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let block = &*self.0;
        let end = checked_end(offset, buf.len(), block.len)?;
        let (mut cursor, memory) = block.cursor(offset)?;
        let skips = cursor.position() < offset;
        // Its memory is not taken of the limit: the thread would wait. But one that could never run is refused.
        cursor.fill_from(offset, buf, |needed| {
            if skips {
                // what is wanted no more costs the decoder above its place only where the way there is long
                block.cache.check_wanted()?;
            }
            check(needed, block.cache.budget()).map(|()| true)
        })?;
        if end < block.len {
            // the decoder above goes on reading here: it does not start anew for each piece
            block.cache.rest(block.key, (cursor, memory));
        }
        // no stream gives up entries here: the decoder above may read with the lock of its own
        block.cache.recount(block.key, &block.stream, false);
        Ok(())
    }
}

/// The number of the segment that holds the byte at `offset`.
fn segment_of(offset: u64) -> u64 {
    offset.checked_div(len_u64(SEGMENT)).unwrap_or(0)
}

/// The decoded offset where a segment begins.
fn start_of(segment: u64) -> u64 {
    segment.saturating_mul(len_u64(SEGMENT))
}

/// The first segment that begins at a decoded offset or behind it.
fn segment_from(offset: u64) -> u64 {
    offset.div_ceil(len_u64(SEGMENT))
}

#[cfg(test)]
mod tests;
