//! What the cache holds and counts, and which segment or decoder it drops when room is needed.
//!
//! Nothing here waits, decodes, frees a decoder or takes another lock.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lru::LruCache;

use super::{For, SEGMENT};
use crate::codec::{Cursor, Stream};
use crate::source::len_u64;

/// What one cached segment costs beside its bytes: map entry, reference counts, allocator.
const SEGMENT_OVERHEAD: u64 = 256;

/// When room is needed, a block that is read sequentially gives up its own oldest segments, if it has this part of the budget.
const SEQUENTIAL_SHARE: u64 = 4;

/// Bytes of a block read sequentially that are kept even if there is room: the kernel keeps what it has read, and memory
/// that is used again costs no page faults and stays in the processor's cache.
pub(super) const SEQUENTIAL_WINDOW: u64 = 8 << 20;

/// What was decoded ahead of readers and not read yet may take this part of the budget.
const AHEAD_SHARE: u64 = 4;

/// What is kept, and what it counts.
pub(super) struct Ledger {
    pub(super) segments: LruCache<(u64, u64), Segment>,
    /// Decoders at rest, the least recently parked first.
    pub(super) parked: Vec<Parked>,
    /// Bytes of cached segments by block.
    pub(super) shares: HashMap<u64, u64>,
    /// Segments dropped while a reply was still made from them; they count until it is sent.
    lent: Vec<Arc<Vec<u8>>>,
    /// Empty buffers of [`SEGMENT`] bytes. Reused, because the allocator keeps what it gets back.
    pub(super) spare: Vec<Vec<u8>>,
    /// What streams hold, by block.
    pub(super) holders: HashMap<u64, Holder>,
    /// Bytes of that.
    pub(super) held: u64,
    /// Everything that counts, `lent` and `spare` too.
    pub(super) used: u64,
    /// Bytes of segments decoded ahead that no reader has asked for yet.
    pub(super) unread: u64,
    /// Counts uses, to tell which of a segment and a decoder is the older.
    clock: u64,
}

pub(super) struct Segment {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) used_at: u64,
    /// Decoded ahead, and not asked for yet.
    pub(super) unread: bool,
}

pub(super) struct Parked {
    pub(super) key: u64,
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) held: u64,
    pub(super) used_at: u64,
}

/// What is held for a block beside its segments and decoders.
pub(super) struct Holder {
    pub(super) bytes: u64,
    /// As many of these are not the stream's.
    pub(super) beside: u64,
    pub(super) stream: Weak<dyn Stream>,
    /// Nothing of it can be given up.
    pub(super) fixed: bool,
}

impl Ledger {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
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
        }
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }

    pub(super) fn get(&mut self, found: (u64, u64)) -> Option<Arc<Vec<u8>>> {
        let now = self.tick();
        let segment = self.segments.get_mut(&found)?;
        segment.used_at = now;
        let bytes = Arc::clone(&segment.bytes);
        if std::mem::take(&mut segment.unread) {
            self.unread = self.unread.saturating_sub(cost(bytes.len()));
        }
        Some(bytes)
    }

    pub(super) fn has_room_ahead(&self, budget: u64) -> bool {
        let share = budget.checked_div(AHEAD_SHARE).unwrap_or(0);
        self.unread.saturating_add(cost(SEGMENT)) <= share
    }

    /// Counts the oldest segment of another block as unread no more, if it is older than all of `key`: its reader may be gone.
    pub(super) fn give_up_ahead(&mut self, key: u64) {
        let mut oldest_first = self.segments.iter().rev();
        let oldest = oldest_first.find(|((owner, _), segment)| *owner == key || segment.unread);
        if let Some((&found, _)) = oldest.filter(|((owner, _), _)| *owner != key)
            && let Some(segment) = self.segments.peek_mut(&found)
        {
            segment.unread = false;
            self.unread = self.unread.saturating_sub(cost(segment.bytes.len()));
        }
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Counts what is held for a block.
    pub(super) fn hold(&mut self, key: u64, holder: Holder) {
        self.used = self.used.saturating_add(holder.bytes);
        self.held = self.held.saturating_add(holder.bytes);
        self.holders.insert(key, holder);
    }

    /// Counts it no more.
    pub(super) fn let_go(&mut self, key: u64) -> Option<Holder> {
        let holder = self.holders.remove(&key)?;
        self.release(holder.bytes);
        self.held = self.held.saturating_sub(holder.bytes);
        Some(holder)
    }

    /// The stream that holds most of those that can give up something, if all hold more than `share` together.
    pub(super) fn largest_holder(&self, share: u64) -> Option<(u64, Arc<dyn Stream>)> {
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
    pub(super) fn make_room(
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

    pub(super) fn unpark_at(&mut self, index: usize) -> Box<dyn Cursor> {
        let parked = self.parked.remove(index);
        self.release(parked.held);
        parked.cursor
    }

    pub(super) fn remove(&mut self, found: (u64, u64)) {
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
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.len() == SEGMENT {
            self.spare.push(buffer);
        } else {
            self.release(cost(buffer.len()));
        }
    }
}

/// What a segment of `len` bytes counts.
pub(super) fn cost(len: usize) -> u64 {
    len_u64(len).saturating_add(SEGMENT_OVERHEAD)
}
