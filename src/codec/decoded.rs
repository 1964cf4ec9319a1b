//! The decoded bytes of a block as a [`Source`]: decodes only what is read, and once for all readers.
//!
//! The bytes are cut into segments of fixed length. A thread that wants a segment takes it from the cache. If another thread
//! is decoding it, or runs a decoder that will pass it, the thread waits for that one. Else it decodes the segment itself, with
//! the decoder parked nearest before it, or with a new one at the stream's last entry before it. Segments on the way go to
//! the cache, which keeps the last of them, and the decoder is parked where it stops, so that reading on never starts over.
//!
//! All threads that wait for a decode get its error. If the payload is damaged the place is remembered: the segments before it
//! stay readable, and so do those behind it that another entry leads to. A segment is returned whole or not at all.

mod ahead;
mod decode;

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use self::decode::{Decode, Decoder};
use super::cache::{Demand, Parked, SEGMENT};
use super::grant::Grant;
use super::sequential::Readers;
use super::{Cache, CountedBuf, Stream, misplaced};
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
    /// Not held while a segment is decoded. Taken before the locks of the stream and `Cache::ledger`.
    state: Mutex<DecodedState>,
    /// Signalled when a decode ends or moves on to another segment.
    moved: Condvar,
}

/// What the readers of a block and the threads that decode it know of each other.
struct DecodedState {
    /// The decoders that run.
    decodes: Vec<Arc<Decode>>,
    damages: Vec<Damage>,
    readers: Readers,
    /// Which of the jobs that decode ahead are queued or running.
    ahead_jobs: [bool; ahead::JOBS],
    /// Whether a job that tidies the stream is queued or running.
    tidying: bool,
}

/// A damaged place: no decoder gets from `from` to the end of `segment`.
struct Damage {
    segment: u64,
    from: u64,
    error: Error,
}

impl DecodedState {
    /// The position of the last running decoder before the decoded offset `start` that gets there no later than a new one from `entry`.
    fn nearest_running(&self, start: u64, entry: u64) -> Option<u64> {
        let decoders = self.decodes.iter().map(|decode| &decode.reach);
        let in_time = decoders.filter(|reach| is_no_later_than_new(reach, start, entry));
        in_time.map(|reach| reach.start).max()
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
}

/// Whether a decoder gets to the byte at `start` no later than a new one that begins at `entry`. It stands at the start of `reach`, and
/// has the bytes up to its end decoded, or will have with its next step.
pub(super) fn is_no_later_than_new(reach: &Range<u64>, start: u64, entry: u64) -> bool {
    let is_between = (entry..=start).contains(&reach.start);
    is_between || reach.contains(&start)
}

impl Decoded {
    /// The first `len` bytes of `stream`, kept in `cache`. Decodes nothing yet.
    #[must_use]
    pub fn new(stream: Arc<dyn Stream>, len: u64, cache: &Arc<Cache>) -> Arc<Self> {
        let state = Mutex::new(DecodedState {
            decodes: Vec::new(),
            damages: Vec::new(),
            readers: Readers::default(),
            ahead_jobs: [false; ahead::JOBS],
            tidying: false,
        });
        Arc::new_cyclic(|this| Self {
            stream,
            this: this.clone(),
            len,
            cache: Arc::clone(cache),
            key: cache.new_key(),
            state,
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

    /// Records a read, and starts decoding ahead if it is sequential.
    fn note(&self, first: u64, last: u64) -> Demand {
        let mut state = self.lock();
        let streaming = state.readers.note(first, last);
        if streaming {
            self.run_ahead(&mut state);
        }
        if streaming {
            self.tidy_later(&mut state);
        }
        if streaming {
            Demand::Sequential(self.key)
        } else {
            Demand::Random(self.key)
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
            let segment = segment_of(offset);
            let within = within_segment(offset);
            let len = rest.len().min(SEGMENT.saturating_sub(within));
            let (part, behind) = rest.split_at_mut(len);
            let bytes = self.segment(self.lock(), segment, demand)?;
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
        let demand = self.note(segment, segment);
        let bytes = self.segment(self.lock(), segment, demand)?;
        let within = within_segment(offset);
        let range = within..within.saturating_add(len);
        let is_there = bytes.get(range.clone()).is_some();
        Ok(is_there.then_some(Loan::Shared(bytes, range)))
    }
}

impl Decoded {
    /// The bytes of a segment, from the cache, from the thread that decodes it, or decoded now. `state` is unlocked meanwhile.
    fn segment<'a>(
        &'a self,
        mut state: MutexGuard<'a, DecodedState>,
        segment: u64,
        demand: Demand,
    ) -> Result<Arc<CountedBuf>> {
        let mut grant = Grant::new(&self.cache);
        loop {
            if let Some(found) = self.cache.get(self.key, segment) {
                return Ok(found);
            }
            if let Some(error) = state.damage_of(&*self.stream, segment) {
                return Err(error);
            }
            let same = |decode: &&Arc<Decode>| decode.segment == Some(segment);
            if let Some(decode) = state.decodes.iter().find(same).map(Arc::clone) {
                grant.give_back();
                state = self.wait_for(&decode, state);
                let Some(outcome) = decode.outcome.get().cloned() else {
                    continue;
                };
                if !demand.is_background() {
                    // it was decoded ahead of this reader, who has it now
                    let _ = self.cache.get(self.key, segment);
                }
                return outcome;
            }
            let Some(decoder) = self.begin(&mut state, segment, &mut grant) else {
                grant.give_back();
                state = self.wait(state);
                continue;
            };
            drop(state);
            if let Some(bytes) = decoder.run(segment, demand, &mut grant)? {
                return Ok(bytes);
            }
            state = self.lock();
        }
    }

    /// Chooses the way to a segment that is neither cached nor being decoded, of those that begin nearest before it: a running decoder
    /// to wait for (then `None`), a parked one, or a new one. The decoder that this thread is to run is shown to other threads.
    ///
    /// A running decoder goes before a parked or new one at the same place, and a parked one before a new one. `grant` gets the memory of
    /// a parked one.
    fn begin(
        &self,
        state: &mut DecodedState,
        segment: u64,
        grant: &mut Grant<'_>,
    ) -> Option<Decoder<'_>> {
        let start = start_of(segment);
        let entry = self.stream.entry(start);
        let running = state.nearest_running(start, entry);
        let parked = self.cache.unpark(self.key, start, |cursor| {
            is_no_later_than_new(&cursor.in_hand(), start, entry)
                && running.is_none_or(|running| cursor.position() > running)
        });
        let parked = parked.map(|Parked { cursor, memory, .. }| {
            grant.take_over(memory);
            cursor
        });
        let shown = match &parked {
            Some(cursor) => Decode::of(cursor.as_ref()),
            None if running.is_some() => return None,
            None => Decode::opening(entry),
        };
        let shown = Arc::new(shown);
        state.decodes.push(Arc::clone(&shown));
        Some(Decoder {
            block: self,
            shown,
            parked,
        })
    }

    /// Whether a running decoder gets to the segment no later than a new one.
    fn must_wait(&self, state: &DecodedState, segment: u64) -> bool {
        let start = start_of(segment);
        let entry = self.stream.entry(start);
        state.nearest_running(start, entry).is_some()
    }

    /// Remembers damage of the payload; errors of the medium are not, because a later read may succeed.
    fn remember_damage(&self, decode: &Decode, segment: u64, error: &Error) {
        let is_damage = matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
        let mut state = self.lock();
        if is_damage {
            state.damages.retain(|damage| damage.segment != segment);
            if state.damages.len() >= DAMAGES {
                state.damages.remove(0);
            }
            state.damages.push(Damage {
                segment,
                from: decode.reach.start,
                error: error.clone(),
            });
        }
    }

    /// Length of a segment.
    fn segment_len(&self, segment: u64) -> usize {
        at_most(self.len.saturating_sub(start_of(segment)), SEGMENT)
    }

    fn lock(&self) -> MutexGuard<'_, DecodedState> {
        lock(&self.state)
    }

    /// Waits until a decode has its outcome or has ended without; `state` is unlocked meanwhile.
    fn wait_for<'a>(
        &self,
        decode: &Decode,
        mut state: MutexGuard<'a, DecodedState>,
    ) -> MutexGuard<'a, DecodedState> {
        while decode.outcome.get().is_none() && decode.is_running(&state) {
            state = self.wait(state);
        }
        state
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
