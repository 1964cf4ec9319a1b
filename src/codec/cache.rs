//! The decoded segments and parked decoders of all blocks, under one budget for the whole mount.
//!
//! Five kinds of memory count: segments that may be asked for again, buffers that are being filled, decoders that are parked
//! or running, what streams hold beside them (checkpoints, chunk tables), and gathered rows of arrays (see
//! [`Cache::reserve`]). When room is needed the least recently used segment or parked decoder is dropped. No thread waits for
//! room: the [`Scheduler`] bounds what running decoders need. What streams hold is slow to make again, and may take a part of
//! the budget; beyond that, streams drop entries.
//!
//! The cache knows blocks only by their key, and nothing of how segments are decoded; that is [`Decoded`](super::Decoded)'s.

mod ledger;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::ledger::{Holder, Ledger, Parked, Segment, cost};
use super::scheduler::Scheduler;
use super::{Cursor, MemoryPermit, Stream};

/// Length of a segment of decoded bytes; the last one of a block is shorter.
///
/// The largest read that the kernel sends, so that a reply is one segment without a copy.
pub const SEGMENT: usize = 1 << 20;

/// How many decoders stay parked for one block, whatever room there is.
const PARKED_PER_BLOCK: usize = 4;

/// What all streams hold together may take this part of the budget.
const HELD_SHARE: u64 = 4;

/// Decoded segments and parked decoders of all blocks.
pub struct Cache {
    budget: u64,
    next_key: AtomicU64,
    /// Guards all that is kept and counted. Not held while a decoder runs or is freed; under it no other lock is taken.
    ledger: Mutex<Ledger>,
    scheduler: Arc<Scheduler>,
}

/// For which block room is made.
#[derive(Clone, Copy)]
pub(super) struct For {
    /// Its key.
    pub(super) key: u64,
    /// Whether it is read sequentially: once it has its share, its own oldest segments make room.
    pub(super) streaming: bool,
}

impl Cache {
    /// An empty cache of `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            next_key: AtomicU64::new(0),
            ledger: Mutex::new(Ledger::new()),
            scheduler: Scheduler::new(budget),
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
        self.lock().used
    }

    /// A number for a block that no other block of this cache has.
    #[must_use]
    pub fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Decodes only while `wanted`; it is asked often and must be quick. The first call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        self.scheduler.go_on_while(wanted);
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
            ledger.let_go(key);
            for parked in &gone {
                ledger.release(parked.held);
            }
            gone
        };
        drop(gone);
    }

    /// Decides how many decode at once, and runs what is decoded ahead.
    pub(super) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// A segment, if it is here.
    pub(super) fn get(&self, key: u64, index: u64) -> Option<Arc<Vec<u8>>> {
        self.lock().get((key, index))
    }

    /// Records that a reader has got a segment from the thread that decoded it ahead, and not by [`Cache::get`].
    pub(super) fn was_read(&self, key: u64, index: u64) {
        self.lock().get((key, index));
    }

    /// Whether a segment is here; does not count as a use.
    pub(super) fn contains(&self, key: u64, index: u64) -> bool {
        self.lock().segments.contains(&(key, index))
    }

    /// Whether one more segment may be decoded ahead of its reader.
    pub(super) fn has_room_ahead(&self) -> bool {
        self.lock().has_room_ahead(self.budget)
    }

    /// A buffer of `len` bytes of unspecified content for a segment.
    pub(super) fn buffer(&self, len: usize, whose: For) -> Buffer<'_> {
        let (spare, gone) = {
            let ledger = &mut *self.lock();
            if whose.streaming && !ledger.has_room_ahead(self.budget) {
                ledger.give_up_ahead(whose.key);
            }
            let gone = ledger.make_room(self.budget, cost(len), whose, len == SEGMENT);
            let spare = (len == SEGMENT).then(|| ledger.spare.pop()).flatten();
            if spare.is_none() {
                ledger.used = ledger.used.saturating_add(cost(len));
            }
            (spare, gone)
        };
        drop(gone);
        Buffer {
            cache: self,
            bytes: spare.unwrap_or_else(|| vec![0; len]),
        }
    }

    /// Keeps a filled buffer as the most recently used segment; `unread` if it was decoded ahead of its reader.
    pub(super) fn insert(
        &self,
        key: u64,
        index: u64,
        mut buffer: Buffer<'_>,
        unread: bool,
    ) -> Arc<Vec<u8>> {
        let bytes = Arc::new(std::mem::take(&mut buffer.bytes));
        let ledger = &mut *self.lock();
        ledger.remove((key, index));
        if unread {
            ledger.unread = ledger.unread.saturating_add(cost(bytes.len()));
        }
        let share = ledger.shares.entry(key).or_default();
        *share = share.saturating_add(cost(bytes.len()));
        let segment = Segment {
            bytes: Arc::clone(&bytes),
            used_at: ledger.tick(),
            unread,
        };
        ledger.segments.put((key, index), segment);
        bytes
    }

    /// Keeps a decoder at its position.
    pub(super) fn park(&self, cursor: Box<dyn Cursor>, whose: For) {
        let key = whose.key;
        let gone = {
            let ledger = &mut *self.lock();
            let held = cursor.held();
            let mut gone = ledger.make_room(self.budget, held, whose, false);
            let siblings = ledger.parked.iter().filter(|parked| parked.key == key);
            if siblings.count() >= PARKED_PER_BLOCK
                && let Some(oldest) = ledger.parked.iter().position(|parked| parked.key == key)
            {
                gone.push(ledger.unpark_at(oldest));
            }
            ledger.used = ledger.used.saturating_add(held);
            let used_at = ledger.tick();
            ledger.parked.push(Parked {
                key,
                cursor,
                held,
                used_at,
            });
            gone
        };
        drop(gone);
    }

    /// Takes the parked decoder of block `key` nearest before `start`, of those that `fits` accepts; called with `ledger` locked.
    pub(super) fn unpark(
        &self,
        key: u64,
        start: u64,
        fits: impl Fn(&dyn Cursor) -> bool,
    ) -> Option<Box<dyn Cursor>> {
        let ledger = &mut *self.lock();
        let (best, _) = ledger
            .parked
            .iter()
            .enumerate()
            .filter(|(_, parked)| parked.key == key && parked.cursor.position() <= start)
            .filter(|(_, parked)| fits(parked.cursor.as_ref()))
            .max_by_key(|(_, parked)| parked.cursor.position())?;
        Some(ledger.unpark_at(best))
    }

    /// Counts `bytes` that are kept beside segments and decoders, and makes room for them, until the permit is dropped.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> MemoryPermit {
        let none = For {
            key: u64::MAX,
            streaming: false,
        };
        MemoryPermit::counted(self, bytes, none)
    }

    /// Counts `bytes`, and makes room for them.
    pub(super) fn count(&self, bytes: u64, whose: For) {
        let gone = {
            let ledger = &mut *self.lock();
            let gone = ledger.make_room(self.budget, bytes, whose, false);
            ledger.used = ledger.used.saturating_add(bytes);
            gone
        };
        drop(gone);
    }

    /// Counts `bytes` less.
    pub(super) fn uncount(&self, bytes: u64) {
        if bytes > 0 {
            self.lock().release(bytes);
        }
    }

    /// Whether streams may hold so many bytes more.
    pub(super) fn may_hold(&self, bytes: u64) -> bool {
        self.lock().held.saturating_add(bytes) <= self.held_share()
    }

    /// Counts what a block's stream holds now, and `beside`. If that is too much for all streams together, those that hold most
    /// give up entries.
    pub(super) fn recount(&self, stream: &Arc<dyn Stream>, beside: u64, whose: For) {
        let bytes = stream.held().saturating_add(beside);
        let gone = {
            let ledger = &mut *self.lock();
            let before = ledger.let_go(whose.key);
            let gone = ledger.make_room(self.budget, bytes, whose, false);
            let holder = Holder {
                bytes,
                beside,
                stream: Arc::downgrade(stream),
                fixed: before.is_some_and(|before| before.fixed && before.bytes >= bytes),
            };
            ledger.hold(whose.key, holder);
            gone
        };
        drop(gone);
        while let Some((key, stream)) = self.largest_holder() {
            stream.thin_out();
            let held = stream.held();
            let ledger = &mut *self.lock();
            if let Some(before) = ledger.let_go(key) {
                let bytes = held.saturating_add(before.beside);
                let holder = Holder {
                    bytes,
                    fixed: bytes >= before.bytes,
                    ..before
                };
                ledger.hold(key, holder);
            }
        }
    }

    /// The stream that is to give up entries, if one is.
    fn largest_holder(&self) -> Option<(u64, Arc<dyn Stream>)> {
        self.lock().largest_holder(self.held_share())
    }

    fn held_share(&self) -> u64 {
        self.budget.checked_div(HELD_SHARE).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.scheduler.stop();
    }
}

/// A segment's bytes while they are being decoded; counted from its making on.
pub(super) struct Buffer<'a> {
    cache: &'a Cache,
    bytes: Vec<u8>,
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            self.cache.lock().recycle(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
