//! The decoded segments and parked decoders of all blocks, under one budget for the whole mount.
//!
//! Five kinds of memory count, each by a [`MemoryPermit`]: segments that may be asked for again, buffers that are being filled,
//! decoders that are parked or running, what streams hold beside them (checkpoints, chunk tables), and gathered rows of arrays
//! (see [`Cache::buffer`]). When room is needed the least recently used segment or parked decoder is dropped. No thread waits
//! for room: the [`Gate`](super::gate::Gate) bounds what all decoders hold. What streams hold is slow to make again, and may take a part
//! of the budget; beyond that, streams drop entries.
//!
//! The cache knows blocks only by their key, and nothing of how segments are decoded; that is [`Decoded`](super::Decoded)'s.

mod ledger;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

use self::ledger::{CachedSegment, Holder, SEQUENTIAL_WINDOW, cost};
pub(super) use self::ledger::{Ledger, Parked};
use super::jobs::Jobs;
use super::memory_permit::{CountedBuf, MemoryPermit};
use super::{Cursor, Stream};
use crate::error::lock;
use crate::source::len_u64;

/// Length of a segment of decoded bytes; the last one of a block is shorter.
///
/// The largest read that the kernel sends, so that a reply is one segment without a copy.
pub const SEGMENT: usize = 1 << 20;

/// At most so many decoders are parked for one block.
const PARKED_PER_BLOCK: usize = 4;

/// What all streams hold together may take this part of the budget.
const HELD_SHARE: u64 = 4;

/// Decoded segments and parked decoders of all blocks, and the gate that admits decodes.
pub struct Cache {
    budget: u64,
    next_key: AtomicU64,
    /// Bytes that count, see [`MemoryPermit`].
    pub(super) used: Arc<AtomicU64>,
    /// Guards all that is kept, counted and admitted. Not held while a decoder runs or is freed.
    ledger: Mutex<Ledger>,
    /// Signalled when a decode ends or memory is given back, if a thread waits for that.
    pub(super) changed: Condvar,
    /// Tells whether the mount still needs decoded bytes. May be called with `ledger` locked.
    pub(super) wanted: RwLock<Arc<dyn Fn() -> bool + Send + Sync>>,
    jobs: Arc<Jobs>,
}

/// Which block memory is for, by its key, and who waits for it.
#[derive(Clone, Copy)]
pub(super) enum Demand {
    /// A reader, who waits for it.
    Random(u64),
    /// A sequential reader, who waits for it: once the block has its share, its own oldest segments make room.
    Sequential(u64),
    /// No reader yet: bytes are decoded ahead of a sequential reader, or for the seek index. Readers go first.
    Background(u64),
}

impl Demand {
    /// Of a reader, for no block of the cache.
    pub(super) const NONE: Self = Self::Random(u64::MAX);

    /// The key of the block.
    pub(super) fn key(self) -> u64 {
        match self {
            Self::Random(key) | Self::Sequential(key) | Self::Background(key) => key,
        }
    }

    /// Whether the bytes are decoded in order: for a reader that goes on where it ended, ahead of one, or on the way to one.
    pub(super) fn is_sequential(self) -> bool {
        !matches!(self, Self::Random(_))
    }

    /// Whether no reader waits.
    pub(super) fn is_background(self) -> bool {
        matches!(self, Self::Background(_))
    }

    /// The demand for segments that are decoded on the way to the wanted one: sequential.
    pub(super) fn on_the_way(self) -> Self {
        match self {
            Self::Random(key) => Self::Sequential(key),
            other => other,
        }
    }
}

impl Cache {
    /// An empty cache of `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            next_key: AtomicU64::new(0),
            used: Arc::default(),
            ledger: Mutex::new(Ledger::new(super::grant::gate(budget))),
            changed: Condvar::new(),
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
        let gone = {
            let ledger = &mut *self.lock();
            let segments: Vec<u64> = ledger
                .segments
                .iter()
                .filter(|((owner, _), _)| *owner == key)
                .map(|((_, index), _)| *index)
                .collect();
            for index in segments {
                ledger.remove((key, index));
            }
            let (gone, kept) = std::mem::take(&mut ledger.parked)
                .into_iter()
                .partition::<Vec<_>, _>(|parked| parked.key == key);
            ledger.parked = kept;
            ledger.holders.remove(&key);
            gone
        };
        self.free(gone);
    }

    /// The queue of jobs that decode ahead.
    pub(super) fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// A segment, if it is here. It counts as used now, and as asked for by its reader.
    pub(crate) fn get(&self, key: u64, index: u64) -> Option<Arc<CountedBuf>> {
        let ledger = &mut *self.lock();
        let now = ledger.tick();
        let segment = ledger.segments.get_mut(&(key, index))?;
        segment.used_at = now;
        let bytes = Arc::clone(&segment.bytes);
        if std::mem::take(&mut segment.unread) {
            ledger.unread = ledger.unread.saturating_sub(cost(bytes.len()));
        }
        Some(bytes)
    }

    /// Whether a segment is here; does not count as a use.
    pub(crate) fn contains(&self, key: u64, index: u64) -> bool {
        self.lock().segments.contains(&(key, index))
    }

    /// Whether one more segment may be decoded ahead of its reader.
    pub(super) fn has_room_ahead(&self) -> bool {
        self.lock().has_room_ahead(self.budget)
    }

    /// Bytes that may be fetched ahead of readers beside those that are here and not read yet.
    #[cfg(feature = "remote")]
    pub(crate) fn room_ahead(&self) -> u64 {
        self.lock().room_ahead(self.budget)
    }

    /// A buffer for `len` bytes of an object that lies far away. If room is needed, and the object has its share, its own oldest
    /// bytes make room; they are kept otherwise, because it takes long to have them again.
    #[cfg(feature = "remote")]
    pub(crate) fn fetched(&self, key: u64, len: usize) -> CountedBuf {
        let demand = Demand::Sequential(key);
        {
            let ledger = &mut *self.lock();
            if ledger.room_ahead(self.budget) == 0 {
                ledger.give_up_ahead(key);
            }
        }
        CountedBuf::new(len, self.permit(cost(len), demand))
    }

    /// A buffer of `len` bytes of any value that counts until it is dropped.
    #[must_use]
    pub fn buffer(&self, len: usize) -> CountedBuf {
        CountedBuf::new(len, self.permit(len_u64(len), Demand::NONE))
    }

    /// A buffer for a segment. If the block is read sequentially, its own oldest one is dropped and its memory used again.
    pub(super) fn segment(&self, len: usize, demand: Demand) -> CountedBuf {
        if demand.is_sequential() {
            let ledger = &mut *self.lock();
            if !ledger.has_room_ahead(self.budget) {
                ledger.give_up_ahead(demand.key());
            }
            if let Some(own) = ledger.own_oldest(demand, SEQUENTIAL_WINDOW) {
                ledger.remove(own);
            }
        }
        CountedBuf::new(len, self.permit(cost(len), demand))
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
        let ledger = &mut *self.lock();
        ledger.remove((key, index));
        if unread {
            ledger.unread = ledger.unread.saturating_add(cost(bytes.len()));
        }
        let share = ledger.shares.entry(key).or_default();
        *share = share.saturating_add(cost(bytes.len()));
        let segment = CachedSegment {
            bytes: Arc::clone(&bytes),
            used_at: ledger.tick(),
            unread,
        };
        ledger.segments.put((key, index), segment);
        bytes
    }

    /// Keeps a decoder at its position, with `memory` for what it holds. `is_granted`: whether the gate has granted that memory. It stays
    /// granted as long as the decoder exists; a thread that waits for memory has decoders dropped.
    pub(super) fn park(
        &self,
        cursor: Box<dyn Cursor>,
        mut memory: MemoryPermit,
        is_granted: bool,
        demand: Demand,
    ) {
        let key = demand.key();
        let (owned, held) = (memory.bytes(), cursor.held());
        let mut ledger = self.lock();
        let mut gone = ledger.resize(self, &mut memory, held, demand);
        let siblings = ledger.parked.iter().filter(|parked| parked.key == key);
        let most = siblings.count() >= PARKED_PER_BLOCK;
        let oldest = ledger.parked.iter().position(|parked| parked.key == key);
        let oldest = oldest.filter(|_| most);
        gone.extend(oldest.map(|at| ledger.drop_parked(at)));
        if is_granted {
            ledger.gate.rest(owned, held);
        }
        let parked = Parked {
            key,
            cursor,
            used_at: ledger.tick(),
            memory,
            granted: if is_granted { held } else { 0 },
        };
        ledger.parked.push(parked);
        self.signal(ledger);
        self.free(gone);
    }

    /// Frees decoders that were dropped, without the lock of the ledger: only then the gate may grant their memory to other threads.
    pub(super) fn free(&self, gone: Vec<Parked>) {
        let granted: Vec<u64> = gone.iter().map(|parked| parked.granted).collect();
        drop(gone);
        if granted.iter().any(|&bytes| bytes > 0) {
            let mut ledger = self.lock();
            for bytes in granted {
                ledger.gate.give_back(bytes);
            }
            self.signal(ledger);
        }
    }

    /// Takes the parked decoder of block `key` nearest before `start`, of those that `fits` accepts, with its memory. `fits` is called
    /// with the ledger locked, and must take no lock.
    pub(super) fn unpark(
        &self,
        key: u64,
        start: u64,
        fits: impl Fn(&dyn Cursor) -> bool,
    ) -> Option<Parked> {
        let ledger = &mut *self.lock();
        let (best, _) = ledger
            .parked
            .iter()
            .enumerate()
            .filter(|(_, parked)| parked.key == key && parked.cursor.position() <= start)
            .filter(|(_, parked)| fits(parked.cursor.as_ref()))
            .max_by_key(|(_, parked)| parked.cursor.position())?;
        Some(ledger.parked.remove(best))
    }

    /// A permit that counts `bytes`, for which room is made.
    pub(super) fn permit(&self, bytes: u64, demand: Demand) -> MemoryPermit {
        let mut permit = MemoryPermit::new(&self.used);
        // for no bytes, as of a stream that holds nothing, no room is made
        if bytes > 0 {
            let gone = self.lock().resize(self, &mut permit, bytes, demand);
            self.free(gone);
        }
        permit
    }

    /// Counts what a block's stream holds now. If that is too much for all streams together, those that hold most
    /// give up entries.
    pub(super) fn recount(&self, stream: &Arc<dyn Stream>, demand: Demand) {
        let bytes = stream.held();
        let before = self.lock().holders.remove(&demand.key());
        let fixed = before
            .as_ref()
            .is_some_and(|before| before.fixed && before.bytes() >= bytes);
        drop(before);
        let holder = Holder {
            memory: self.permit(bytes, demand),
            stream: Arc::downgrade(stream),
            fixed,
        };
        self.lock().holders.insert(demand.key(), holder);
        while let Some((key, stream)) = self.largest_holder() {
            stream.thin_out();
            let held = stream.held();
            if let Some(holder) = self.lock().holders.get_mut(&key) {
                holder.fixed = held >= holder.bytes();
                holder.memory.count(held);
            }
        }
    }

    /// The stream that is to give up entries, if one is. The ledger is not locked while it does.
    fn largest_holder(&self) -> Option<(u64, Arc<dyn Stream>)> {
        self.lock().largest_holder(self.held_share())
    }

    fn held_share(&self) -> u64 {
        self.budget.checked_div(HELD_SHARE).unwrap_or(0)
    }

    /// The ledger, locked. Never while a decoder runs, nor twice by one thread.
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.jobs.stop();
    }
}

#[cfg(test)]
mod tests;
