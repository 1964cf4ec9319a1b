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
mod beneath;
mod decode;

use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

pub(super) use self::beneath::Beneath;
use self::decode::{Decoder, Run};
use super::ahead::Readers;
use super::cache::SEGMENT;
use super::{Cache, CountedBuf, Cursor, Stream, misplaced};
use crate::error::{Error, Result, lock};
use crate::source::{Borrower, Loan, Source, at_most, checked_end, len_u64};

/// Damages that are remembered for a block.
const DAMAGES: usize = 64;

/// A decoded block, shared by its readers and the threads that decode ahead.
pub struct Decoded {
    stream: Arc<dyn Stream>,
    this: Weak<Self>,
    len: u64,
    cache: Arc<Cache>,
    /// This block's key in the cache.
    key: u64,
    /// The segment that was read last, if its reader is known to have got there.
    last: AtomicU64,
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
    damages: Vec<Damage>,
    readers: Readers,
    /// Jobs that decode ahead, queued or running.
    ahead: usize,
    /// Whether a job that tidies the stream is queued or running.
    tidying: bool,
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

/// A damaged place: no decoder gets from `from` to the end of `segment`.
struct Damage {
    segment: u64,
    from: u64,
    error: Error,
}

/// How a thread gets a segment that is not in the cache.
enum Way<'a> {
    /// Not at all.
    Damaged(Error),
    /// By waiting for another thread.
    Wait(Arc<Run>),
    /// By decoding it. Other threads see that from now on.
    Decode(Decoder<'a>),
}

impl DecodedState {
    /// The decoder that is at a segment.
    fn run_of(&self, segment: u64) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.segment == segment)
    }

    /// The last decoder that gets to the decoded offset `start` no later than a new one from `entry`.
    fn nearest_run(&self, start: u64, entry: u64) -> Option<Arc<Run>> {
        let runs = self.runs.iter();
        let in_time = runs.filter(|run| is_no_later_than_new(&run.reach, start, entry));
        in_time.max_by_key(|run| run.reach.start).map(Arc::clone)
    }

    /// The remembered damage that keeps any decoder of `stream` from a segment.
    fn damage_of(&self, stream: &dyn Stream, segment: u64) -> Option<Error> {
        let is_met = |damage: &&Damage| {
            damage.segment == segment
                || (damage.segment < segment && stream.entry(start_of(segment)) <= damage.from)
        };
        let met = self.damages.iter().find(is_met);
        met.map(|damage| damage.error.clone())
    }

    /// Remembers damage of the payload; errors of the medium are not, because a later read may succeed.
    fn remember(&mut self, damage: Damage) {
        if matches!(
            damage.error,
            Error::Corrupt { .. } | Error::Unsupported { .. }
        ) {
            self.damages.retain(|other| other.segment != damage.segment);
            if self.damages.len() >= DAMAGES {
                self.damages.remove(0);
            }
            self.damages.push(damage);
        }
    }
}

/// Whether a decoder gets to the byte at `start` no later than a new one that begins at `entry`. It stands at the start of `reach`, and
/// has the bytes up to its end decoded, or will have with its next step.
fn is_no_later_than_new(reach: &Range<u64>, start: u64, entry: u64) -> bool {
    let is_between = (entry..=start).contains(&reach.start);
    is_between || reach.contains(&start)
}

/// Whether a decoder at rest gets to the byte at `start` no later than a new one that begins at `entry`.
fn is_worth_taking(cursor: &dyn Cursor, start: u64, entry: u64) -> bool {
    is_no_later_than_new(&(cursor.position()..cursor.decoded_to()), start, entry)
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
            last: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    /// The remembered damage with the lowest offset.
    #[must_use]
    pub fn damage(&self) -> Option<Error> {
        let state = self.lock();
        let first = state.damages.iter().min_by_key(|damage| damage.segment);
        first.map(|damage| damage.error.clone())
    }

    /// The stream for another length, as [`Stream::resized`].
    pub(super) fn resized(&self, len: u64) -> Option<Arc<dyn Stream>> {
        self.stream.resized(len)
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
        let read = segment_of(offset)..=segment_of(end.saturating_sub(1));
        let mut offset = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let segment = segment_of(offset);
            let within = within_segment(offset);
            let len = rest.len().min(SEGMENT.saturating_sub(within));
            let (part, behind) = rest.split_at_mut(len);
            let bytes = self.segment(segment, &read)?;
            let found = bytes
                .get(within..within.saturating_add(len))
                .ok_or_else(|| misplaced(start_of(segment)))?;
            part.copy_from_slice(found);
            rest = behind;
            offset = offset.saturating_add(len_u64(len));
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
        let bytes = self.segment(segment, &(segment..=segment))?;
        let within = within_segment(offset);
        let range = within..within.saturating_add(len);
        let is_there = bytes.get(range.clone()).is_some();
        Ok(is_there.then_some(Loan::Shared(bytes, range)))
    }
}

impl Decoded {
    /// The bytes of a segment, for a read of those of `read`.
    fn segment(&self, segment: u64, read: &RangeInclusive<u64>) -> Result<Arc<CountedBuf>> {
        let found = self.cache.get(self.key, segment);
        let is_last =
            *read == (segment..=segment) && self.last.swap(segment, Ordering::Relaxed) == segment;
        match found {
            Some(found) if is_last => Ok(found),
            Some(found) => {
                self.note(read);
                Ok(found)
            }
            None => self.missing(segment, self.note(read)),
        }
    }

    /// Records a read, and starts decoding ahead if it is sequential.
    fn note(&self, read: &RangeInclusive<u64>) -> Demand {
        let mut state = self.lock();
        if !state.readers.note(*read.start(), *read.end()) {
            return Demand::Random;
        }
        self.run_ahead(&mut state);
        self.tidy_later(&mut state);
        Demand::Sequential
    }

    /// The bytes of a segment that was not in the cache: from the thread that decodes it, or decoded now.
    fn missing(&self, segment: u64, demand: Demand) -> Result<Arc<CountedBuf>> {
        let mut waited_for: Option<Arc<Run>> = None;
        let mut state = self.lock();
        loop {
            if let Some(found) = self.cache.get(self.key, segment) {
                return Ok(found);
            }
            let run = waited_for.filter(|run| run.segment == segment);
            if let Some(outcome) = run.as_ref().and_then(|run| run.outcome.get()) {
                // an error, or the cache has no room for the segment
                return outcome.clone();
            }
            match self.way(&mut state, segment) {
                Way::Damaged(error) => return Err(error),
                Way::Wait(run) => {
                    state = self.wait(state);
                    waited_for = Some(run);
                }
                Way::Decode(decoder) => {
                    drop(state);
                    return decoder.run(segment, demand);
                }
            }
        }
    }

    /// The way to a segment, of those that begin nearest before it: with a decoder that runs, with one at rest, or with a new one.
    ///
    /// A running decoder goes before one at rest or a new one at the same place, and one at rest before a new one.
    fn way(&self, state: &mut DecodedState, segment: u64) -> Way<'_> {
        if let Some(error) = state.damage_of(&*self.stream, segment) {
            return Way::Damaged(error);
        }
        if let Some(run) = state.run_of(segment) {
            return Way::Wait(Arc::clone(run));
        }
        let start = start_of(segment);
        let entry = self.stream.entry(start);
        let running = state.nearest_run(start, entry);
        let resting = self.cache.nearest(self.key, start, |cursor| {
            is_worth_taking(cursor, start, entry)
        });
        let reach = match (resting, running) {
            (Some(resting), Some(run)) if resting.start <= run.reach.start => {
                return Way::Wait(run);
            }
            (Some(resting), _) => resting,
            (None, Some(run)) => return Way::Wait(run),
            (None, None) => entry..entry,
        };
        Way::Decode(Decoder::begin(self, state, reach))
    }

    /// Length of a segment.
    fn segment_len(&self, segment: u64) -> usize {
        at_most(self.len.saturating_sub(start_of(segment)), SEGMENT)
    }

    fn lock(&self) -> MutexGuard<'_, DecodedState> {
        lock(&self.state)
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

/// The number of the segment that holds the byte at `offset`.
fn segment_of(offset: u64) -> u64 {
    offset.checked_div(len_u64(SEGMENT)).unwrap_or(0)
}

/// The decoded offset where a segment begins.
fn start_of(segment: u64) -> u64 {
    segment.saturating_mul(len_u64(SEGMENT))
}

/// How many segments so many decoded bytes have.
fn segments(len: u64) -> u64 {
    len.div_ceil(len_u64(SEGMENT))
}

/// How far the byte at `offset` is from the start of its segment.
fn within_segment(offset: u64) -> usize {
    usize::try_from(offset.checked_rem(len_u64(SEGMENT)).unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
