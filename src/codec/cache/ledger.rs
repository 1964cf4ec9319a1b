//! What the cache holds and counts, and which segment or decoder it drops when room is needed.
//!
//! Nothing here waits, decodes, frees a decoder or takes another lock. The thread that drops decoders gives them to [`Cache::free`]
//! once it has unlocked the ledger.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lru::LruCache;

use super::{Cache, Demand, SEGMENT};
use crate::codec::gate::Gate;
use crate::codec::memory_permit::{CountedBuf, MemoryPermit};
use crate::codec::{Cursor, Stream};
use crate::source::len_u64;

/// What one cached segment costs beside its bytes: map entry, reference counts, allocator.
const SEGMENT_OVERHEAD: u64 = 256;

/// When room is needed, a block that is read sequentially gives up its own oldest segments, if it has this part of the budget.
const SEQUENTIAL_SHARE: u64 = 4;

/// The most bytes that are kept of a block that is read sequentially, even if there is room for more: the kernel keeps what it has
/// read, and memory that is used again costs no page faults and stays in the processor's cache.
pub(super) const SEQUENTIAL_WINDOW: u64 = 8 << 20;

/// What was decoded ahead of readers and not read yet may take this part of the budget.
const AHEAD_SHARE: u64 = 4;

/// What is kept, what it counts, and what the gate has admitted.
pub(in crate::codec) struct Ledger {
    /// Which decodes are admitted, and with how much memory. Here, and not under a lock of its own, so that a thread is given memory
    /// and has room made for it at one moment.
    pub(in crate::codec) gate: Gate,
    /// Threads that wait to be admitted.
    pub(in crate::codec) waiting: usize,
    /// Decoded segments, by the key of their block and their index in it.
    pub(super) segments: LruCache<(u64, u64), CachedSegment>,
    /// Decoders at rest, the least recently parked first.
    pub(super) parked: Vec<Parked>,
    /// Bytes of cached segments by block.
    pub(super) shares: HashMap<u64, u64>,
    /// What streams hold, by block.
    pub(super) holders: HashMap<u64, Holder>,
    /// Bytes of segments decoded ahead that no reader has asked for yet.
    pub(super) unread: u64,
    /// Counts uses, to tell which of a segment and a decoder is the older.
    clock: u64,
}

/// A cached segment.
pub(super) struct CachedSegment {
    /// It counts until the last reply from it is sent.
    pub(super) bytes: Arc<CountedBuf>,
    pub(super) used_at: u64,
    /// Decoded ahead, and not asked for yet.
    pub(super) unread: bool,
}

/// A decoder at rest, for the next thread that reads on from its position.
pub(in crate::codec) struct Parked {
    /// The key of its block.
    pub(super) key: u64,
    /// Freed without the lock of the ledger, because that may take long.
    pub(in crate::codec) cursor: Box<dyn Cursor>,
    pub(super) used_at: u64,
    /// For what it holds.
    pub(in crate::codec) memory: MemoryPermit,
    /// How many bytes the gate has granted for it: until it is freed, or the thread that takes it gives them back.
    pub(super) granted: u64,
}

/// What is held for a block beside its segments and decoders.
pub(super) struct Holder {
    /// For all of its bytes.
    pub(super) memory: MemoryPermit,
    /// The stream, which is asked to drop entries. The cache does not keep it alive.
    pub(super) stream: Weak<dyn Stream>,
    /// Whether the stream had no more entries to drop when it was asked last.
    pub(super) fixed: bool,
}

impl Holder {
    /// Bytes that count for it.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

impl Ledger {
    /// Nothing yet.
    pub(super) fn new(gate: Gate) -> Self {
        Self {
            gate,
            waiting: 0,
            segments: LruCache::unbounded(),
            parked: Vec::new(),
            shares: HashMap::new(),
            holders: HashMap::new(),
            unread: 0,
            clock: 0,
        }
    }

    /// The next moment of the clock that tells which use was the later.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }

    /// Whether one more segment may be decoded ahead of its reader.
    pub(super) fn has_room_ahead(&self, budget: u64) -> bool {
        self.room_ahead(budget) >= cost(SEGMENT)
    }

    /// Bytes that may be decoded or fetched ahead beside those that no reader has asked for yet.
    pub(super) fn room_ahead(&self, budget: u64) -> u64 {
        let share = budget.checked_div(AHEAD_SHARE).unwrap_or(0);
        share.saturating_sub(self.unread)
    }

    /// Stops counting the oldest unread segment as unread, if it is of another block than `key` and older than all segments of `key`: its
    /// reader may be gone.
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

    /// Bytes that streams hold.
    pub(super) fn held(&self) -> u64 {
        self.holders.values().map(Holder::bytes).sum()
    }

    /// The stream that holds most of those that can give up something, if all hold more than `share` together.
    pub(super) fn largest_holder(&self, share: u64) -> Option<(u64, Arc<dyn Stream>)> {
        if self.held() <= share {
            return None;
        }
        self.holders
            .iter()
            .filter(|(_, holder)| !holder.fixed)
            .filter_map(|(&key, holder)| Some((holder.bytes(), key, holder.stream.upgrade()?)))
            .max_by_key(|&(bytes, key, _)| (bytes, key))
            .map(|(_, key, stream)| (key, stream))
    }

    /// Counts `bytes` for a permit in place of those before. Drops the oldest until they fit or nothing is left; gives the decoders
    /// dropped, for [`Cache::free`].
    pub(in crate::codec) fn resize(
        &mut self,
        cache: &Cache,
        permit: &mut MemoryPermit,
        bytes: u64,
        demand: Demand,
    ) -> Vec<Parked> {
        permit.count(permit.bytes().min(bytes));
        let more = bytes.saturating_sub(permit.bytes());
        let mut gone = Vec::new();
        let share = cache.budget().checked_div(SEQUENTIAL_SHARE).unwrap_or(0);
        while cache.used().saturating_add(more) > cache.budget() {
            if let Some(own) = self.own_oldest(demand, share) {
                self.remove(own);
            } else if !self.evict(&mut gone) {
                break;
            }
        }
        permit.count(bytes);
        gone
    }

    /// The segment, read already, that a sequentially read block has to give up itself, if it has more than `share` bytes.
    pub(super) fn own_oldest(&self, demand: Demand, share: u64) -> Option<(u64, u64)> {
        if !demand.is_sequential() || *self.shares.get(&demand.key())? <= share {
            return None;
        }
        let mut oldest_first = self.segments.iter().rev();
        oldest_first
            .find(|((owner, _), segment)| {
                *owner == demand.key() && !segment.unread && Arc::strong_count(&segment.bytes) == 1
            })
            .map(|(&found, _)| found)
    }

    /// Drops the least recently used segment or decoder, if there is any. Dropping a segment in use would not make room.
    fn evict(&mut self, gone: &mut Vec<Parked>) -> bool {
        let mut oldest_first = self.segments.iter().rev();
        let segment = oldest_first
            .find(|(_, segment)| Arc::strong_count(&segment.bytes) == 1)
            .map(|(&found, segment)| (found, segment.used_at));
        let parked = self.parked.first().map(|parked| parked.used_at);
        match (segment, parked) {
            (Some((_, at)), Some(parked_at)) if parked_at < at => gone.push(self.drop_parked(0)),
            (Some((found, _)), _) => self.remove(found),
            (None, Some(_)) => gone.push(self.drop_parked(0)),
            (None, None) => return false,
        }
        true
    }

    /// Drops the decoder at that place of those at rest, and counts its memory no more.
    pub(super) fn drop_parked(&mut self, at: usize) -> Parked {
        let mut parked = self.parked.remove(at);
        parked.memory.count(0);
        parked
    }

    /// Drops the least recently parked decoder that the gate has granted memory to, if there is one, and if all such decoders make room
    /// for a thread that owns `owned` bytes and asks for `total`.
    pub(in crate::codec) fn drop_granted(&mut self, owned: u64, total: u64) -> Option<Parked> {
        let share = |parked: &Parked| self.gate.share(parked.granted);
        let at_rest = self.parked.iter().map(share).sum();
        let oldest = self.parked.iter().position(|parked| share(parked) > 0)?;
        let enough = self.gate.has_room_with(at_rest, owned, total);
        enough.then(|| self.drop_parked(oldest))
    }

    /// Drops a segment and counts it no more, if it is here.
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
    }
}

/// What a segment of `len` bytes counts.
pub(super) fn cost(len: usize) -> u64 {
    len_u64(len).saturating_add(SEGMENT_OVERHEAD)
}
