//! The list of what a cache keeps, and what is known of each block. Nothing here waits, decodes, or frees a decoder: what is taken out is
//! given to the caller, who drops it without the lock.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lru::LruCache;

use super::{Counted, CountedBuf};
use crate::codec::{Cursor, Stream};
use crate::source::len_u64;

/// What one cached segment costs beside its bytes: map entry, reference counts, allocator.
const SEGMENT_OVERHEAD: u64 = 256;

/// At most so many decoders of one block are at rest.
const RESTING_PER_BLOCK: usize = 4;

/// What is kept.
pub(super) struct Kept {
    entries: LruCache<Place, Entry>,
    /// By key, as long as there is something of the block.
    blocks: HashMap<u64, BlockShare>,
    /// Bytes of segments decoded ahead that no reader has asked for yet.
    unread: u64,
    next_cursor: u64,
}

/// What an entry is, by the key of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The segment of this index.
    Segment(u64, u64),
    /// A decoder, by a number of its own.
    Cursor(u64, u64),
}

/// An entry of the list.
pub(super) enum Entry {
    Segment {
        /// They count until the last reply from them is sent.
        bytes: Arc<CountedBuf>,
        /// Decoded ahead, and not asked for yet.
        unread: bool,
    },
    Cursor(Resting),
}

/// A decoder at rest, for the next thread that reads on from its position.
pub(super) struct Resting {
    pub(super) cursor: Box<dyn Cursor>,
    /// What it holds. It counts until the decoder is freed, so it is dropped behind it.
    pub(super) memory: Counted,
}

/// What there is of a block.
#[derive(Default)]
struct BlockShare {
    /// Bytes of its segments.
    segments: u64,
    /// The numbers of its decoders at rest, the one that came to rest longest ago first.
    cursors: Vec<u64>,
    /// What its stream holds, if that was counted.
    holder: Option<Holder>,
}

/// What is held for a block beside its segments and decoders.
struct Holder {
    memory: Counted,
    /// The stream, which is asked to drop entries. The cache does not keep it alive.
    stream: Weak<dyn Stream>,
    /// Whether the stream had no more entries to drop when it was asked last.
    fixed: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            entries: LruCache::unbounded(),
            blocks: HashMap::new(),
            unread: 0,
            next_cursor: 0,
        }
    }
}

impl Entry {
    /// Bytes that it counts.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::Segment { bytes, .. } => bytes.cost(),
            Self::Cursor(resting) => resting.memory.bytes(),
        }
    }

    /// Whether dropping it makes room: not if a reply is being sent from it.
    fn makes_room(&self) -> bool {
        match self {
            Self::Segment { bytes, .. } => Arc::strong_count(bytes) == 1,
            Self::Cursor(_) => true,
        }
    }
}

impl Kept {
    pub(super) fn get(&mut self, key: u64, index: u64) -> Option<Arc<CountedBuf>> {
        let entry = self.entries.get_mut(&Place::Segment(key, index));
        let Some(Entry::Segment { bytes, unread }) = entry else {
            return None;
        };
        let bytes = Arc::clone(bytes);
        if std::mem::take(unread) {
            self.unread = self.unread.saturating_sub(bytes.cost());
        }
        Some(bytes)
    }

    pub(super) fn has(&self, key: u64, index: u64) -> bool {
        self.entries.contains(&Place::Segment(key, index))
    }

    /// Keeps a segment, and gives the one that was there.
    pub(super) fn insert(
        &mut self,
        key: u64,
        index: u64,
        bytes: Arc<CountedBuf>,
        unread: bool,
    ) -> Option<Entry> {
        let place = Place::Segment(key, index);
        let before = self.remove(place);
        if unread {
            self.unread = self.unread.saturating_add(bytes.cost());
        }
        let share = self.blocks.entry(key).or_default();
        share.segments = share.segments.saturating_add(bytes.cost());
        self.entries.put(place, Entry::Segment { bytes, unread });
        before
    }

    /// Keeps a decoder, and gives the one that has to go if there are too many of its block.
    pub(super) fn rest(&mut self, key: u64, resting: Resting) -> Option<Entry> {
        let number = self.next_cursor;
        self.next_cursor = number.wrapping_add(1);
        let cursors = &mut self.blocks.entry(key).or_default().cursors;
        cursors.push(number);
        let most = cursors.len() > RESTING_PER_BLOCK;
        let oldest = cursors.first().copied().filter(|_| most);
        self.entries
            .put(Place::Cursor(key, number), Entry::Cursor(resting));
        self.remove(Place::Cursor(key, oldest?))
    }

    /// The decoder of a block nearest before `start`, of those that `fits` accepts.
    pub(super) fn nearest(
        &self,
        key: u64,
        start: u64,
        fits: impl Fn(&dyn Cursor) -> bool,
    ) -> Option<(Place, &dyn Cursor)> {
        let cursors = self.blocks.get(&key)?.cursors.iter();
        cursors
            .filter_map(|&number| {
                let place = Place::Cursor(key, number);
                match self.entries.peek(&place)? {
                    Entry::Cursor(resting) => Some((place, &*resting.cursor)),
                    Entry::Segment { .. } => None,
                }
            })
            .filter(|(_, cursor)| cursor.position() <= start && fits(*cursor))
            .max_by_key(|(_, cursor)| cursor.position())
    }

    /// Takes a decoder out.
    pub(super) fn take(&mut self, place: Place) -> Option<Resting> {
        match self.remove(place)? {
            Entry::Cursor(resting) => Some(resting),
            Entry::Segment { .. } => None,
        }
    }

    /// Takes out the entry that was used longest ago, of those that make room.
    pub(super) fn take_oldest(&mut self) -> Option<Entry> {
        let mut oldest_first = self.entries.iter().rev();
        let (&oldest, _) = oldest_first.find(|(_, entry)| entry.makes_room())?;
        self.remove(oldest)
    }

    /// Takes out the oldest segment of a block that was read already, if the block has more than `most` bytes.
    pub(super) fn take_own_oldest(&mut self, key: u64, most: u64) -> Option<Entry> {
        self.blocks
            .get(&key)
            .filter(|share| share.segments > most)?;
        let mut oldest_first = self.entries.iter().rev();
        let is_own = |(place, entry): &(&Place, &Entry)| {
            matches!(place, Place::Segment(owner, _) if *owner == key)
                && matches!(entry, Entry::Segment { unread: false, .. })
                && entry.makes_room()
        };
        let (&oldest, _) = oldest_first.find(is_own)?;
        self.remove(oldest)
    }

    /// Takes out all that there is of a block.
    pub(super) fn forget(&mut self, key: u64) -> Vec<Entry> {
        let places = self.entries.iter().map(|(&place, _)| place);
        let own = |place: &Place| {
            let (Place::Segment(owner, _) | Place::Cursor(owner, _)) = place;
            *owner == key
        };
        let own: Vec<Place> = places.filter(own).collect();
        let gone = own.into_iter().filter_map(|place| self.remove(place));
        let gone = gone.collect();
        self.blocks.remove(&key);
        gone
    }

    /// Takes an entry out, if it is here.
    fn remove(&mut self, place: Place) -> Option<Entry> {
        let entry = self.entries.pop(&place)?;
        let (Place::Segment(key, _) | Place::Cursor(key, _)) = place;
        if matches!(entry, Entry::Segment { unread: true, .. }) {
            self.unread = self.unread.saturating_sub(entry.cost());
        }
        let share = self.blocks.entry(key).or_default();
        match place {
            Place::Segment(..) => share.segments = share.segments.saturating_sub(entry.cost()),
            Place::Cursor(_, number) => share.cursors.retain(|&other| other != number),
        }
        if share.segments == 0 && share.cursors.is_empty() && share.holder.is_none() {
            self.blocks.remove(&key);
        }
        Some(entry)
    }

    /// Bytes that may be decoded or fetched ahead beside those that no reader has asked for yet, if all take no more than `share`.
    pub(super) fn room_ahead(&self, share: u64) -> u64 {
        share.saturating_sub(self.unread)
    }

    /// Stops counting the oldest unread segment as unread, if it is of another block than `key` and older than all segments of `key`: its
    /// reader may be gone.
    pub(super) fn give_up_ahead(&mut self, key: u64) {
        let mut oldest_first = self.entries.iter_mut().rev();
        let found = oldest_first.find_map(|(place, entry)| match (place, entry) {
            (Place::Segment(owner, _), Entry::Segment { bytes, unread })
                if *owner == key || *unread =>
            {
                Some((*owner, bytes.cost(), unread))
            }
            _ => None,
        });
        if let Some((owner, cost, unread)) = found
            && owner != key
        {
            *unread = false;
            self.unread = self.unread.saturating_sub(cost);
        }
    }

    /// Counts what the stream of a block holds now.
    pub(super) fn count_held(
        &mut self,
        key: u64,
        stream: &Arc<dyn Stream>,
        bytes: u64,
        memory: Counted,
    ) {
        let holder = &mut self.blocks.entry(key).or_default().holder;
        let holder = holder.get_or_insert_with(|| Holder {
            memory,
            stream: Arc::downgrade(stream),
            fixed: false,
        });
        holder.fixed &= holder.memory.bytes() >= bytes;
        holder.memory.count(bytes);
    }

    /// Counts what a stream holds that was asked to drop entries.
    pub(super) fn count_thinned(&mut self, key: u64, bytes: u64) {
        let share = self.blocks.get_mut(&key);
        if let Some(holder) = share.and_then(|share| share.holder.as_mut()) {
            holder.fixed = bytes >= holder.memory.bytes();
            holder.memory.count(bytes);
        }
    }

    /// The stream that holds most of those that can give up something, if all hold more than `share` together.
    pub(super) fn largest_holder(&self, share: u64) -> Option<(u64, Arc<dyn Stream>)> {
        let blocks = self.blocks.iter();
        let holders = blocks.filter_map(|(&key, block)| Some((key, block.holder.as_ref()?)));
        let held: u64 = holders
            .clone()
            .map(|(_, holder)| holder.memory.bytes())
            .sum();
        if held <= share {
            return None;
        }
        let (_, key, stream) = holders
            .filter(|(_, holder)| !holder.fixed)
            .filter_map(|(key, holder)| {
                Some((holder.memory.bytes(), key, holder.stream.upgrade()?))
            })
            .max_by_key(|&(bytes, key, _)| (bytes, key))?;
        Some((key, stream))
    }

    /// Bytes that were decoded ahead and not asked for.
    #[cfg(test)]
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }
}

/// What a segment of `len` bytes counts.
pub(super) fn cost(len: usize) -> u64 {
    len_u64(len).saturating_add(SEGMENT_OVERHEAD)
}
