//! What decoding leaves behind for later, of all blocks and under one budget for the whole mount: segments and decoders at rest.
//!
//! One list has both, each by the bytes that it takes, and the one that was used longest ago goes first when room is needed. Other
//! memory counts in the same budget, as [`Counted`], but is not dropped: buffers that are being filled, decoders that run, what streams
//! hold beside them (checkpoints, chunk tables), and gathered rows of arrays (see [`Cache::buffer`]). No thread waits for room: the
//! [`Limit`] bounds what the decoders that run take. What streams hold is slow to make again, and may take a part of the budget; beyond
//! that, streams drop entries.
//!
//! The cache knows blocks only by their key, and nothing of how segments are decoded; that is [`Decoded`](super::Decoded)'s.

mod counted;
mod kept;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

pub(super) use self::counted::Counted;
pub use self::counted::CountedBuf;
use self::kept::{Kept, Resting, cost};
use super::ahead::Jobs;
use super::caller;
use super::limit::Limit;
use super::{Cursor, Stream};
use crate::error::{Error, Result, lock};
use crate::source::{free_idle, len_u64};

/// Length of a segment of decoded bytes; the last one of a block is shorter.
///
/// The largest read that the kernel sends, so that a reply is one segment without a copy.
pub const SEGMENT: usize = 1 << 20;

/// What all streams hold together may take this part of the budget.
const HELD_SHARE: u64 = 4;

/// A block that is read sequentially keeps this part of the budget at most, and gives up its own oldest segments then.
const SEQUENTIAL_SHARE: u64 = 4;

/// The most bytes that it keeps even if there is room for more: the kernel keeps what it has
/// read, and memory that is used again costs no page faults and stays in the processor's cache.
const SEQUENTIAL_WINDOW: u64 = 8 << 20;

/// What was decoded ahead of readers and not read yet may take this part of the budget.
const AHEAD_SHARE: u64 = 4;

/// Segments and decoders at rest of all blocks, and the limit of the decodes that run.
pub struct Cache {
    budget: u64,
    next_key: AtomicU64,
    /// Bytes that count, see [`Counted`].
    used: Arc<AtomicU64>,
    /// Not held while a decoder runs or is freed.
    kept: Mutex<Kept>,
    pub(super) limit: Limit,
    /// Tells whether the mount still needs decoded bytes.
    wanted: RwLock<Arc<dyn Fn() -> bool + Send + Sync>>,
    jobs: Arc<Jobs>,
}

impl Cache {
    /// An empty cache of `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            next_key: AtomicU64::new(0),
            used: Arc::default(),
            kept: Mutex::default(),
            limit: Limit::new(budget),
            wanted: RwLock::new(Arc::new(|| true)),
            jobs: Arc::default(),
        })
    }

    /// Bytes that may be used.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes in use: segments, decoders, buffers, what streams hold.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A number for a block that no other block of this cache has.
    #[must_use]
    pub fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops all segments and decoders of a block, and counts nothing for its stream.
    pub fn forget(&self, key: u64) {
        let gone = self.lock().forget(key);
        drop(gone);
    }

    /// Decodes only while `wanted`: each decode ends at its next step once that returns false. It is asked often and must be
    /// quick. The last call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(wanted);
    }

    /// Checks that the mount, and who this thread works for, still need decoded bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if not.
    pub(crate) fn check_wanted(&self) -> Result<()> {
        let wanted = Arc::clone(&self.wanted.read().unwrap_or_else(PoisonError::into_inner));
        if wanted() && caller::is_wanted() {
            return Ok(());
        }
        let ended = io::ErrorKind::Interrupted.into();
        Err(Error::io("decoding after the mount has ended", ended))
    }

    /// The queue of jobs that decode ahead.
    pub(super) fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// A segment, if it is here. It counts as used now, and as asked for by its reader.
    pub(crate) fn get(&self, key: u64, index: u64) -> Option<Arc<CountedBuf>> {
        self.lock().get(key, index)
    }

    /// Whether a segment is here; does not count as a use.
    #[cfg(any(feature = "remote", test))]
    pub(crate) fn contains(&self, key: u64, index: u64) -> bool {
        self.lock().has(key, index)
    }

    /// The segments of these that are not here, if one more may be decoded ahead of its reader.
    pub(super) fn missing(&self, key: u64, wanted: impl Iterator<Item = u64>) -> Vec<u64> {
        let kept = self.lock();
        if kept.room_ahead(self.ahead_share()) < cost(SEGMENT) {
            return Vec::new();
        }
        wanted.filter(|&index| !kept.has(key, index)).collect()
    }

    /// Whether a segment is not here, and may be decoded ahead of its reader.
    pub(super) fn is_missing(&self, key: u64, index: u64) -> bool {
        !self.missing(key, std::iter::once(index)).is_empty()
    }

    /// Bytes that may be fetched ahead of readers beside those that are here and not read yet.
    #[cfg(feature = "remote")]
    pub(crate) fn room_ahead(&self) -> u64 {
        self.lock().room_ahead(self.ahead_share())
    }

    /// A buffer for `len` bytes of an object that lies far away. If room is needed, and the object has its share, its own oldest
    /// bytes make room; they are kept otherwise, because it takes long to have them again.
    #[cfg(feature = "remote")]
    pub(crate) fn fetched(&self, key: u64, len: usize) -> CountedBuf {
        let is_full = self.used().saturating_add(cost(len)) > self.budget;
        let most = if is_full {
            self.sequential_share()
        } else {
            u64::MAX
        };
        self.next_buffer(key, len, most)
    }

    /// A buffer of `len` bytes of any value that counts until it is dropped.
    #[must_use]
    pub fn buffer(&self, len: usize) -> CountedBuf {
        CountedBuf::new(len, self.count(len_u64(len)))
    }

    /// A buffer for a segment. If the block is read sequentially, its own oldest one is dropped and its memory used again.
    pub(super) fn segment(&self, key: u64, len: usize, sequential: bool) -> CountedBuf {
        if !sequential {
            return CountedBuf::new(len, self.count(cost(len)));
        }
        let most = self.sequential_share().min(SEQUENTIAL_WINDOW);
        self.next_buffer(key, len, most)
    }

    /// A buffer for the next bytes of a block that keeps no more than `most`. If no more may be decoded ahead, what other blocks have
    /// decoded ahead gives way.
    fn next_buffer(&self, key: u64, len: usize, most: u64) -> CountedBuf {
        let own = {
            let kept = &mut *self.lock();
            if kept.room_ahead(self.ahead_share()) < cost(len) {
                kept.give_up_ahead(key);
            }
            kept.take_own_oldest(key, most)
        };
        drop(own);
        CountedBuf::new(len, self.count(cost(len)))
    }

    fn sequential_share(&self) -> u64 {
        self.budget.checked_div(SEQUENTIAL_SHARE).unwrap_or(0)
    }

    /// Keeps a filled buffer as the most recently used segment; `unread` if it was decoded ahead of its reader.
    pub(crate) fn insert(
        &self,
        key: u64,
        index: u64,
        buffer: CountedBuf,
        unread: bool,
    ) -> Arc<CountedBuf> {
        let bytes = Arc::new(buffer);
        let before = self.lock().insert(key, index, Arc::clone(&bytes), unread);
        drop(before);
        bytes
    }

    /// Keeps a decoder at its position, with `memory` for what it holds.
    pub(super) fn rest(&self, cursor: Box<dyn Cursor>, mut memory: Counted, key: u64) {
        memory.count(cursor.held());
        let resting = Resting { cursor, memory };
        let gone = self.lock().rest(key, resting);
        drop(gone);
        self.make_room();
    }

    /// The position of the decoder at rest of block `key` nearest before `start`, of those that `fits` accepts, and where its next
    /// segment takes it. `fits` is called with the cache locked, and must take no lock.
    pub(super) fn nearest(
        &self,
        key: u64,
        start: u64,
        fits: impl Fn(&dyn Cursor) -> bool,
    ) -> Option<Range<u64>> {
        let kept = self.lock();
        let (_, cursor) = kept.nearest(key, start, fits)?;
        Some(cursor.position()..cursor.will_decode_to())
    }

    /// Takes that decoder, with its memory.
    pub(super) fn take(
        &self,
        key: u64,
        start: u64,
        fits: impl Fn(&dyn Cursor) -> bool,
    ) -> Option<(Box<dyn Cursor>, Counted)> {
        let kept = &mut *self.lock();
        let (place, _) = kept.nearest(key, start, fits)?;
        let Resting { cursor, memory } = kept.take(place)?;
        Some((cursor, memory))
    }

    /// No memory yet, that counts here.
    pub(super) fn counted(&self) -> Counted {
        Counted::new(&self.used)
    }

    /// Memory of so many bytes, for which room is made.
    pub(super) fn count(&self, bytes: u64) -> Counted {
        let mut counted = self.counted();
        counted.count(bytes);
        self.make_room();
        counted
    }

    /// Drops what was used longest ago until the budget is kept or nothing is left, after more memory was counted. What is dropped counts
    /// until it is freed, without the lock: that may take long.
    pub(super) fn make_room(&self) {
        if self.used() <= self.budget {
            return;
        }
        let mut gone = Vec::new();
        let mut freed = 0_u64;
        {
            let kept = &mut *self.lock();
            while self.used().saturating_sub(freed) > self.budget {
                let Some(oldest) = kept.take_oldest() else {
                    break;
                };
                freed = freed.saturating_add(oldest.cost());
                gone.push(oldest);
            }
        }
        drop(gone);
        if self.used() > self.budget {
            free_idle();
        }
    }

    /// Counts what a block's stream holds now. If that is too much for all streams together, those that hold most
    /// give up entries.
    pub(super) fn recount(&self, key: u64, stream: &Arc<dyn Stream>) {
        let share = self.budget.checked_div(HELD_SHARE).unwrap_or(0);
        let bytes = stream.held();
        let mut largest = {
            let kept = &mut *self.lock();
            kept.count_held(key, stream, bytes, self.counted());
            kept.largest_holder(share)
        };
        while let Some((key, stream)) = largest {
            stream.thin_out();
            let held = stream.held();
            let kept = &mut *self.lock();
            kept.count_thinned(key, held);
            largest = kept.largest_holder(share);
        }
        self.make_room();
    }

    fn ahead_share(&self) -> u64 {
        self.budget.checked_div(AHEAD_SHARE).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.jobs.stop();
    }
}

#[cfg(test)]
mod tests;
