//! The one place where decoded bytes are kept, under one budget for the whole mount.
//!
//! Five kinds of memory count: segments that may be asked for again, buffers that are being filled, decoders that are parked
//! or running, what streams hold beside them (checkpoints, chunk tables), and gathered rows of arrays (see
//! [`Cache::reserve`]). When room is needed the least recently used segment or parked decoder goes. Nothing waits for room:
//! what is being filled is bounded by the [`Work`] gate instead. What streams hold can't be had anew so easily, and may take a
//! part of the budget; beyond, they give up entries.
//!
//! It knows blocks only by their key, and nothing of how segments come about; that is [`Decoded`](super::Decoded)'s.

use crate::source::len_u64;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lru::LruCache;

use super::work::Work;
use super::{Cursor, Stream};

/// Length of a segment of decoded bytes; the last one of a block is shorter.
///
/// The largest read that the kernel sends, so that a reply is one segment without a copy.
pub const SEGMENT: usize = 1 << 20;

/// What one cached segment costs beside its bytes: map entry, reference counts, allocator.
const SEGMENT_OVERHEAD: u64 = 256;

/// How many decoders stay parked for one block, whatever room there is.
const PARKED_PER_BLOCK: usize = 4;

/// When room is needed, a block that is read sequentially gives up its own oldest segments, if it has this part of the budget.
const SEQUENTIAL_SHARE: u64 = 4;

/// Bytes of a block read sequentially that are kept even if there is room: the kernel keeps what it has read, and memory
/// that is used again costs no page faults and stays in the processor's cache.
const SEQUENTIAL_WINDOW: u64 = 8 << 20;

/// What was decoded ahead of readers and not read yet may take this part of the budget.
const AHEAD_SHARE: u64 = 4;

/// What all streams hold together may take this part of the budget.
const HELD_SHARE: u64 = 4;

/// Decoded segments and parked decoders of all blocks.
pub struct Cache {
    budget: u64,
    next_key: AtomicU64,
    /// Guards all below; held for look-ups only, never while something decodes or is freed.
    state: Mutex<State>,
    work: Arc<Work>,
}

struct State {
    segments: LruCache<(u64, u64), Segment>,
    /// Decoders at rest, the least recently parked first.
    parked: Vec<Parked>,
    /// Bytes of cached segments by block.
    shares: HashMap<u64, u64>,
    /// Segments dropped while a reply was still made from them; they count until it is sent.
    lent: Vec<Arc<Vec<u8>>>,
    /// Empty buffers of [`SEGMENT`] bytes. Reused, because the allocator keeps what it gets back.
    spare: Vec<Vec<u8>>,
    /// What streams hold, by block.
    holders: HashMap<u64, Holder>,
    /// Bytes of that.
    held: u64,
    /// Everything that counts, `lent` and `spare` too.
    used: u64,
    /// Bytes of segments decoded ahead that nobody has asked for yet.
    unread: u64,
    /// Counts uses, to tell which of a segment and a decoder is the older.
    clock: u64,
}

/// The block that room is made for.
#[derive(Clone, Copy)]
pub(super) struct For {
    /// Its key.
    pub(super) key: u64,
    /// Whether it is read sequentially: room is then made at its own cost, if it has its share already.
    pub(super) streaming: bool,
}

struct Segment {
    bytes: Arc<Vec<u8>>,
    used_at: u64,
    /// Decoded ahead, and not asked for yet.
    unread: bool,
}

struct Parked {
    key: u64,
    cursor: Box<dyn Cursor>,
    held: u64,
    used_at: u64,
}

/// What is held for a block beside its segments and decoders.
struct Holder {
    bytes: u64,
    /// As many of these are not the stream's.
    beside: u64,
    stream: Weak<dyn Stream>,
    /// Nothing of it can be given up.
    fixed: bool,
}

impl Cache {
    /// An empty cache of `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            next_key: AtomicU64::new(0),
            state: Mutex::new(State {
                segments: LruCache::unbounded(),
                parked: Vec::new(),
                shares: HashMap::new(),
                lent: Vec::new(),
                spare: Vec::new(),
                holders: HashMap::new(),
                held: 0,
                used: 0,
                unread: 0,
                clock: 0,
            }),
            work: Work::new(budget),
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

    /// Drops all segments and decoders of a block, and counts nothing for its stream.
    pub fn forget(&self, key: u64) {
        let gone = {
            let state = &mut *self.lock();
            let segments: Vec<u64> = state
                .segments
                .iter()
                .filter(|((owner, _), _)| *owner == key)
                .map(|((_, index), _)| *index)
                .collect();
            for index in segments {
                state.remove((key, index));
            }
            let (gone, kept) = std::mem::take(&mut state.parked)
                .into_iter()
                .partition::<Vec<_>, _>(|parked| parked.key == key);
            state.parked = kept;
            state.let_go(key);
            for parked in &gone {
                state.release(parked.held);
            }
            gone
        };
        drop(gone);
    }

    /// Decides how many decode at once, and runs what is decoded ahead.
    pub(super) fn work(&self) -> &Arc<Work> {
        &self.work
    }

    /// A segment, if it is here.
    pub(super) fn get(&self, key: u64, index: u64) -> Option<Arc<Vec<u8>>> {
        self.lock().get((key, index))
    }

    /// Takes note that a reader has got a segment by another way than [`Cache::get`]: from whoever decoded it ahead.
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
            let state = &mut *self.lock();
            if whose.streaming && !state.has_room_ahead(self.budget) {
                state.give_up_ahead(whose.key);
            }
            let gone = state.make_room(self.budget, cost(len), whose, len == SEGMENT);
            let spare = (len == SEGMENT).then(|| state.spare.pop()).flatten();
            if spare.is_none() {
                state.used = state.used.saturating_add(cost(len));
            }
            (spare, gone)
        };
        drop(gone);
        Buffer {
            cache: self,
            bytes: spare.unwrap_or_else(|| vec![0; len]),
        }
    }

    /// Keeps a filled buffer as a segment, the most recently used; `unread` if nobody has asked for it yet.
    pub(super) fn insert(
        &self,
        key: u64,
        index: u64,
        mut buffer: Buffer<'_>,
        unread: bool,
    ) -> Arc<Vec<u8>> {
        let bytes = Arc::new(std::mem::take(&mut buffer.bytes));
        let state = &mut *self.lock();
        state.remove((key, index));
        if unread {
            state.unread = state.unread.saturating_add(cost(bytes.len()));
        }
        let share = state.shares.entry(key).or_default();
        *share = share.saturating_add(cost(bytes.len()));
        let segment = Segment {
            bytes: Arc::clone(&bytes),
            used_at: state.tick(),
            unread,
        };
        state.segments.put((key, index), segment);
        bytes
    }

    /// Keeps a decoder where it stands.
    pub(super) fn park(&self, cursor: Box<dyn Cursor>, whose: For) {
        let key = whose.key;
        let gone = {
            let state = &mut *self.lock();
            let held = cursor.held();
            let mut gone = state.make_room(self.budget, held, whose, false);
            let siblings = state.parked.iter().filter(|parked| parked.key == key);
            if siblings.count() >= PARKED_PER_BLOCK
                && let Some(oldest) = state.parked.iter().position(|parked| parked.key == key)
            {
                gone.push(state.unpark_at(oldest));
            }
            state.used = state.used.saturating_add(held);
            let used_at = state.tick();
            state.parked.push(Parked {
                key,
                cursor,
                held,
                used_at,
            });
            gone
        };
        drop(gone);
    }

    /// Takes the parked decoder of block `key` that gets to `start` soonest, of those that `fits` accepts.
    pub(super) fn unpark(
        &self,
        key: u64,
        start: u64,
        fits: impl Fn(&dyn Cursor) -> bool,
    ) -> Option<Box<dyn Cursor>> {
        let state = &mut *self.lock();
        let (best, _) = state
            .parked
            .iter()
            .enumerate()
            .filter(|(_, parked)| parked.key == key && parked.cursor.position() <= start)
            .filter(|(_, parked)| fits(parked.cursor.as_ref()))
            .max_by_key(|(_, parked)| parked.cursor.position())?;
        Some(state.unpark_at(best))
    }

    /// Makes room for `bytes` that somebody beside the decoders keeps, until the result is dropped.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Room {
        let nobody = For {
            key: u64::MAX,
            streaming: false,
        };
        self.room(bytes, nobody)
    }

    /// Makes room for `bytes` of a running decoder, until the result is dropped.
    pub(super) fn room(self: &Arc<Self>, bytes: u64, whose: For) -> Room {
        let gone = {
            let state = &mut *self.lock();
            let gone = state.make_room(self.budget, bytes, whose, false);
            state.used = state.used.saturating_add(bytes);
            gone
        };
        drop(gone);
        Room {
            cache: Arc::clone(self),
            bytes,
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
            let state = &mut *self.lock();
            let before = state.let_go(whose.key);
            let gone = state.make_room(self.budget, bytes, whose, false);
            let holder = Holder {
                bytes,
                beside,
                stream: Arc::downgrade(stream),
                fixed: before.is_some_and(|before| before.fixed && before.bytes >= bytes),
            };
            state.hold(whose.key, holder);
            gone
        };
        drop(gone);
        while let Some((key, stream)) = self.largest_holder() {
            stream.thin_out();
            let held = stream.held();
            let state = &mut *self.lock();
            if let Some(before) = state.let_go(key) {
                let bytes = held.saturating_add(before.beside);
                let holder = Holder {
                    bytes,
                    fixed: bytes >= before.bytes,
                    ..before
                };
                state.hold(key, holder);
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.work.stop();
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }

    fn get(&mut self, found: (u64, u64)) -> Option<Arc<Vec<u8>>> {
        let now = self.tick();
        let segment = self.segments.get_mut(&found)?;
        segment.used_at = now;
        let bytes = Arc::clone(&segment.bytes);
        if std::mem::take(&mut segment.unread) {
            self.unread = self.unread.saturating_sub(cost(bytes.len()));
        }
        Some(bytes)
    }

    fn has_room_ahead(&self, budget: u64) -> bool {
        let share = budget.checked_div(AHEAD_SHARE).unwrap_or(0);
        self.unread.saturating_add(cost(SEGMENT)) <= share
    }

    /// Counts the oldest segment of another block as unread no more, if it is older than all of `key`: its reader may be gone.
    fn give_up_ahead(&mut self, key: u64) {
        let mut oldest_first = self.segments.iter().rev();
        let oldest = oldest_first.find(|((owner, _), segment)| *owner == key || segment.unread);
        if let Some((&found, _)) = oldest.filter(|((owner, _), _)| *owner != key)
            && let Some(segment) = self.segments.peek_mut(&found)
        {
            segment.unread = false;
            self.unread = self.unread.saturating_sub(cost(segment.bytes.len()));
        }
    }

    fn release(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Counts what is held for a block.
    fn hold(&mut self, key: u64, holder: Holder) {
        self.used = self.used.saturating_add(holder.bytes);
        self.held = self.held.saturating_add(holder.bytes);
        self.holders.insert(key, holder);
    }

    /// Counts it no more.
    fn let_go(&mut self, key: u64) -> Option<Holder> {
        let holder = self.holders.remove(&key)?;
        self.release(holder.bytes);
        self.held = self.held.saturating_sub(holder.bytes);
        Some(holder)
    }

    /// The stream that holds most of those that can give up something, if all hold more than `share` together.
    fn largest_holder(&self, share: u64) -> Option<(u64, Arc<dyn Stream>)> {
        if self.held <= share {
            return None;
        }
        self.holders
            .iter()
            .filter(|(_, holder)| !holder.fixed)
            .filter_map(|(&key, holder)| Some((holder.bytes, key, holder.stream.upgrade()?)))
            .max_by_key(|&(bytes, key, _)| (bytes, key))
            .map(|(_, key, stream)| (key, stream))
    }

    /// Drops the oldest until `bytes` more fit or nothing is left; gives the decoders dropped, to be freed without the lock.
    ///
    /// With `or_spare`, a spare buffer is room enough.
    fn make_room(
        &mut self,
        budget: u64,
        bytes: u64,
        whose: For,
        or_spare: bool,
    ) -> Vec<Box<dyn Cursor>> {
        let mut gone = Vec::new();
        let share = budget.checked_div(SEQUENTIAL_SHARE).unwrap_or(0);
        self.reap();
        if or_spare
            && self.spare.is_empty()
            && let Some(own) = self.own_oldest(whose, SEQUENTIAL_WINDOW)
        {
            self.remove(own);
        }
        while self.used.saturating_add(bytes) > budget {
            if or_spare && !self.spare.is_empty() {
                break;
            }
            if self.spare.pop().is_some() {
                self.release(cost(SEGMENT));
                continue;
            }
            if let Some(own) = self.own_oldest(whose, share) {
                self.remove(own);
            } else if !self.evict(&mut gone) {
                break;
            }
        }
        gone
    }

    /// The segment, read already, that a sequentially read block has to give up itself, if it has more than `share` bytes.
    fn own_oldest(&self, whose: For, share: u64) -> Option<(u64, u64)> {
        if !whose.streaming || *self.shares.get(&whose.key)? <= share {
            return None;
        }
        let mut oldest_first = self.segments.iter().rev();
        oldest_first
            .find(|((owner, _), segment)| {
                *owner == whose.key && !segment.unread && Arc::strong_count(&segment.bytes) == 1
            })
            .map(|(&found, _)| found)
    }

    /// Drops the least recently used segment or decoder, if there is any. Dropping a segment in use would not make room.
    fn evict(&mut self, gone: &mut Vec<Box<dyn Cursor>>) -> bool {
        let mut oldest_first = self.segments.iter().rev();
        let segment = oldest_first
            .find(|(_, segment)| Arc::strong_count(&segment.bytes) == 1)
            .map(|(&found, segment)| (found, segment.used_at));
        let parked = self.parked.first().map(|parked| parked.used_at);
        match (segment, parked) {
            (Some((_, at)), Some(parked_at)) if parked_at < at => gone.push(self.unpark_at(0)),
            (Some((found, _)), _) => self.remove(found),
            (None, Some(_)) => gone.push(self.unpark_at(0)),
            (None, None) => return false,
        }
        true
    }

    fn unpark_at(&mut self, index: usize) -> Box<dyn Cursor> {
        let parked = self.parked.remove(index);
        self.release(parked.held);
        parked.cursor
    }

    fn remove(&mut self, found: (u64, u64)) {
        let Some(segment) = self.segments.pop(&found) else {
            return;
        };
        let bytes = cost(segment.bytes.len());
        if segment.unread {
            self.unread = self.unread.saturating_sub(bytes);
        }
        if let Some(share) = self.shares.get_mut(&found.0) {
            *share = share.saturating_sub(bytes);
            if *share == 0 {
                self.shares.remove(&found.0);
            }
        }
        match Arc::try_unwrap(segment.bytes) {
            Ok(buffer) => self.recycle(buffer),
            Err(shared) => self.lent.push(shared),
        }
    }

    /// Takes back what was lent and is no longer in use.
    fn reap(&mut self) {
        for shared in std::mem::take(&mut self.lent) {
            match Arc::try_unwrap(shared) {
                Ok(buffer) => self.recycle(buffer),
                Err(shared) => self.lent.push(shared),
            }
        }
    }

    /// Keeps a whole segment's buffer for reuse, and frees any other.
    fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.len() == SEGMENT {
            self.spare.push(buffer);
        } else {
            self.release(cost(buffer.len()));
        }
    }
}

/// What a segment of `len` bytes counts.
fn cost(len: usize) -> u64 {
    len_u64(len).saturating_add(SEGMENT_OVERHEAD)
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

/// Room in the budget that is taken for something else than segments; given back when dropped.
pub struct Room {
    cache: Arc<Cache>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.cache.lock().release(self.bytes);
    }
}

#[cfg(test)]
mod tests;
