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

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use lru::LruCache;

pub(super) use self::counted::Counted;
pub use self::counted::CountedBuf;
use super::caller::{self, Wanted};
use super::limit::Limit;
use super::pool::Pool;
use super::{Cursor, Stream};
use crate::error::{Result, lock};
use crate::source::{free_idle, len_u64};

/// Length of a segment of decoded bytes; the last one of a block is shorter.
///
/// The largest read that the kernel sends, so that a reply is one segment without a copy.
pub const SEGMENT: usize = 1 << 20;

/// What one cached segment costs beside its bytes: map entry, reference counts, allocator.
const SEGMENT_OVERHEAD: u64 = 256;

/// At most so many decoders of one block are at rest.
const RESTING_PER_BLOCK: usize = 4;

/// The most bytes that a block which is read sequentially keeps, even if there is room for more: the kernel keeps what it has
/// read, and memory that is used again costs no page faults and stays in the processor's cache.
const SEQUENTIAL_WINDOW: u64 = 8 << 20;

/// Threads that decode ahead.
const AHEAD_THREADS: usize = 2;

/// Jobs that may wait for them; beyond, no more is decoded ahead.
const AHEAD_WAITING: usize = 64;

/// Segments and decoders at rest of all blocks, and the limit of the decodes that run.
pub struct Cache {
    budget: u64,
    next_key: AtomicU64,
    /// Bytes that count, see [`Counted`].
    used: Arc<AtomicU64>,
    /// Bytes of segments decoded ahead that no reader has asked for yet.
    unread: Arc<AtomicU64>,
    /// Not held while a decoder runs or is freed.
    kept: Mutex<Kept>,
    pub(super) limit: Limit,
    /// Tells whether the mount still needs decoded bytes.
    wanted: Mutex<Wanted>,
    /// The threads that decode ahead.
    pub(crate) ahead: Arc<Pool>,
}

/// What a cache keeps, and what is known of each block. Nothing here frees a decoder: what is taken out is given to the caller.
struct Kept {
    entries: LruCache<Place, Entry>,
    /// By key, as long as there are entries of the block.
    blocks: HashMap<u64, BlockShare>,
    /// What streams hold, by the key of their block.
    holders: HashMap<u64, Holder>,
}

/// Where an entry is: the key of its block, and which part of that.
type Place = (u64, Part);

/// A part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// The segment of this index.
    Segment(u64),
    /// The decoder at this position.
    Cursor(u64),
}

/// An entry of the list.
enum Entry {
    /// The bytes of a segment, which count until the last reply from them is sent; as `unread` ones, too, until a reader asks for them.
    Segment(Arc<CountedBuf>, Option<Counted>),
    Cursor(Resting),
}

/// A decoder at rest, for the next thread that reads on from its position, and what it holds. That counts until the decoder is freed, so it
/// is dropped behind it.
pub(super) type Resting = (Box<dyn Cursor>, Counted);

/// What the list has of a block.
#[derive(Default)]
struct BlockShare {
    /// Bytes of its segments.
    segments: u64,
    /// The positions of its decoders at rest, the one that came to rest longest ago first.
    cursors: Vec<u64>,
}

/// What the stream of a block holds.
struct Holder {
    memory: Counted,
    /// The stream, which is asked to drop entries. The cache does not keep it alive.
    stream: Weak<dyn Stream>,
}

impl Cache {
    /// An empty cache of `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            next_key: AtomicU64::new(0),
            used: Arc::default(),
            unread: Arc::default(),
            kept: Mutex::new(Kept {
                entries: LruCache::unbounded(),
                blocks: HashMap::new(),
                holders: HashMap::new(),
            }),
            limit: Limit::new(budget),
            wanted: Mutex::new(Arc::new(|| true)),
            ahead: Pool::new("asdf-ahead", AHEAD_THREADS, AHEAD_WAITING),
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
        let mut kept = lock(&self.kept);
        let places = kept.entries.iter().map(|(&place, _)| place);
        let own: Vec<_> = places.filter(|place| place.0 == key).collect();
        let gone: Vec<_> = own.iter().map(|&place| kept.remove(place)).collect();
        kept.holders.remove(&key);
        // To free a decoder may take long: no thread waits for the lock meanwhile. So it is in all functions here.
        drop(kept);
        drop(gone);
    }

    /// Decodes only while `wanted`: each decode ends at its next step once that returns false. It is asked often and must be
    /// quick. The last call counts.
    pub fn decode_while(&self, wanted: impl Fn() -> bool + Send + Sync + 'static) {
        *lock(&self.wanted) = Arc::new(wanted);
    }

    /// Checks that the mount, and who this thread works for, still need decoded bytes.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if not.
    pub(crate) fn check_wanted(&self) -> Result<()> {
        let wanted = Arc::clone(&lock(&self.wanted));
        if wanted() && caller::is_wanted() {
            return Ok(());
        }
        Err(caller::ended())
    }

    /// A segment, if it is here, and whether its reader is the first. It counts as used now, and as asked for by its reader.
    pub(crate) fn get(&self, key: u64, index: u64) -> Option<(Arc<CountedBuf>, bool)> {
        let kept = &mut *lock(&self.kept);
        // also moves the entry to the front of the list, as used last
        let Entry::Segment(bytes, unread) = kept.entries.get_mut(&(key, Part::Segment(index)))?
        else {
            return None;
        };
        // A reader has come for it: it takes no share of what is decoded ahead any more.
        Some((Arc::clone(bytes), unread.take().is_some()))
    }

    /// Whether a segment is here; does not count as a use.
    #[cfg(any(test, feature = "remote"))]
    pub(crate) fn contains(&self, key: u64, index: u64) -> bool {
        let place = (key, Part::Segment(index));
        lock(&self.kept).entries.contains(&place)
    }

    /// The segments of these that are not here, if one more may be decoded ahead of its reader. Does not count as a use.
    pub(super) fn missing(&self, key: u64, wanted: impl Iterator<Item = u64>) -> Vec<u64> {
        if self.room_ahead() < cost(SEGMENT) {
            return Vec::new();
        }
        let entries = &lock(&self.kept).entries;
        let is_missing = |n: &u64| !entries.contains(&(key, Part::Segment(*n)));
        wanted.filter(is_missing).collect()
    }

    /// Bytes that may be decoded or fetched ahead of readers beside those that are here and not read yet.
    pub(crate) fn room_ahead(&self) -> u64 {
        let unread = self.unread.load(Ordering::Relaxed);
        self.share().saturating_sub(unread)
    }

    /// A buffer for `len` bytes of an object that lies far away. If room is needed, and the object has its share, its own oldest
    /// bytes make room; they are kept otherwise, because it takes long to have them again.
    #[cfg(feature = "remote")]
    pub(crate) fn fetched(&self, key: u64, len: usize) -> CountedBuf {
        // while there is room, an object may keep more than its share: nothing else wants the memory
        let is_full = self.used().saturating_add(cost(len)) > self.budget;
        let most = if is_full { self.share() } else { u64::MAX };
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
        self.next_buffer(key, len, self.share().min(SEQUENTIAL_WINDOW))
    }

    /// A buffer for the next bytes of a block that keeps no more than `most`. If no more may be decoded ahead, what other blocks have
    /// decoded ahead gives way.
    fn next_buffer(&self, key: u64, len: usize, most: u64) -> CountedBuf {
        let mut kept = lock(&self.kept);
        if self.room_ahead() < cost(len) {
            // else what was decoded for a reader that went away would keep others from reading ahead
            kept.give_up_ahead(key);
        }
        let has_most = (kept.blocks.get(&key)).is_some_and(|share| share.segments > most);
        let is_read =
            |owner, entry: &Entry| owner == key && matches!(entry, Entry::Segment(_, None));
        let own = has_most.then(|| kept.take_oldest(is_read));
        drop(kept);
        // The pool has its memory when the new buffer asks for some.
        drop(own);
        CountedBuf::new(len, self.count(cost(len)))
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
        let place = (key, Part::Segment(index));
        let mut kept = lock(&self.kept);
        // a segment that is here already must not count twice
        let before = kept.remove(place);
        let unread = unread.then(|| Counted::new(&self.unread, bytes.counted.bytes()));
        let segment = Entry::Segment(Arc::clone(&bytes), unread);
        let share = kept.blocks.entry(key).or_default();
        share.segments = share.segments.saturating_add(bytes.counted.bytes());
        kept.entries.put(place, segment);
        drop(kept);
        drop(before);
        bytes
    }

    /// Keeps a decoder at its position, with `memory` for what it holds.
    pub(super) fn rest(&self, key: u64, (cursor, mut memory): Resting) {
        // what a decoder holds may have changed while it ran
        memory.count(cursor.held());
        let place = |position| (key, Part::Cursor(position));
        let position = cursor.position();
        let mut kept = lock(&self.kept);
        // one that another thread has left at the same place is of no more use
        let same = kept.remove(place(position));
        let cursors = &mut kept.blocks.entry(key).or_default().cursors;
        cursors.push(position);
        // One of its own goes, or a block that is read at random would push out what others keep.
        let too_many = cursors.len() > RESTING_PER_BLOCK;
        let oldest = cursors.first().copied().filter(|_| too_many);
        kept.entries
            .put(place(position), Entry::Cursor((cursor, memory)));
        let oldest = oldest.and_then(|oldest| kept.remove(place(oldest)));
        drop(kept);
        drop((same, oldest));
        self.make_room();
    }

    /// The position of the decoder at rest that gets soonest to the byte at `start`, and where its next segment takes it; `None` if a new
    /// one that begins at `entry` gets there no later.
    pub(super) fn nearest(&self, key: u64, start: u64, entry: u64) -> Option<Range<u64>> {
        let kept = lock(&self.kept);
        let cursor = kept.nearest(key, start, entry)?;
        Some(cursor.position()..cursor.will_decode_to())
    }

    /// Takes that decoder.
    pub(super) fn take(&self, key: u64, start: u64, entry: u64) -> Option<Resting> {
        let kept = &mut *lock(&self.kept);
        let position = kept.nearest(key, start, entry)?.position();
        match kept.remove((key, Part::Cursor(position)))? {
            Entry::Cursor(resting) => Some(resting),
            Entry::Segment(..) => None,
        }
    }

    /// Memory of so many bytes, for which room is made.
    pub(super) fn count(&self, bytes: u64) -> Counted {
        let counted = Counted::new(&self.used, bytes);
        self.make_room();
        counted
    }

    /// Drops what was used longest ago until the budget is kept or nothing is left, after more memory was counted.
    pub(super) fn make_room(&self) {
        while self.used() > self.budget {
            let oldest = lock(&self.kept).take_oldest(|_, _| true);
            if oldest.is_none() {
                // Memory in use passes the budget by itself: the pool gives its idle buffers to the system.
                return free_idle();
            }
        }
    }

    /// Counts what a block's stream holds now. If all streams together hold too much, the large ones give up entries, if the caller
    /// `may_thin`: then it has the lock of no stream.
    pub(super) fn recount(&self, key: u64, stream: &Arc<dyn Stream>, may_thin: bool) {
        let held = stream.held();
        let mut kept = lock(&self.kept);
        let holder = kept.holders.entry(key).or_insert_with(|| Holder {
            memory: Counted::new(&self.used, 0),
            stream: Arc::downgrade(stream),
        });
        holder.memory.count(held);
        let large = kept.large_holders(self.share());
        drop(kept);
        for (key, stream) in large.into_iter().filter(|_| may_thin) {
            stream.thin_out();
            let held = stream.held();
            // its block may be dropped meanwhile
            if let Some(holder) = lock(&self.kept).holders.get_mut(&key) {
                holder.memory.count(held);
            }
        }
        self.make_room();
    }

    /// A quarter of the budget: the most for all streams, for a block that is read sequentially, and for what no reader has read yet.
    fn share(&self) -> u64 {
        self.budget / 4
    }
}

/// What a segment of `len` bytes counts.
fn cost(len: usize) -> u64 {
    len_u64(len).saturating_add(SEGMENT_OVERHEAD)
}

impl Kept {
    /// The decoder of a block nearest before `start`, of those that are at `entry` or behind it, or have the byte at `start` decoded.
    fn nearest(&self, key: u64, start: u64, entry: u64) -> Option<&dyn Cursor> {
        let positions = self.blocks.get(&key)?.cursors.iter();
        let cursors = positions.filter_map(|&position| {
            match self.entries.peek(&(key, Part::Cursor(position)))? {
                Entry::Cursor((cursor, _)) => Some(&**cursor),
                Entry::Segment(..) => None,
            }
        });
        let is_in_time = |cursor: &&dyn Cursor| {
            let position = cursor.position();
            position <= start && (position >= entry || start < cursor.decoded_to())
        };
        let in_time = cursors.filter(is_in_time);
        in_time.max_by_key(|cursor| cursor.position())
    }

    /// Takes an entry out, if it is here.
    fn remove(&mut self, place: Place) -> Option<Entry> {
        let entry = self.entries.pop(&place)?;
        let (key, _) = place;
        let share = self.blocks.entry(key).or_default();
        match &entry {
            Entry::Segment(bytes, _) => {
                share.segments = share.segments.saturating_sub(bytes.counted.bytes());
            }
            Entry::Cursor((cursor, _)) => share.cursors.retain(|&at| at != cursor.position()),
        }
        if share.segments == 0 && share.cursors.is_empty() {
            self.blocks.remove(&key);
        }
        Some(entry)
    }

    /// Takes out the entry that was used longest ago, of those that make room and are `wanted`, by the key of their block.
    fn take_oldest(&mut self, wanted: impl Fn(u64, &Entry) -> bool) -> Option<Entry> {
        let mut oldest_first = self.entries.iter().rev();
        let is_it = |(place, entry): &(&Place, &Entry)| match entry {
            // it would make no room while a reply is sent from it
            Entry::Segment(bytes, _) if Arc::strong_count(bytes) > 1 => false,
            _ => wanted(place.0, entry),
        };
        let (&oldest, _) = oldest_first.find(is_it)?;
        self.remove(oldest)
    }

    /// Stops counting the oldest unread segment as unread, if it is of another block than `key` and older than all segments of `key`: its
    /// reader may be gone.
    fn give_up_ahead(&mut self, key: u64) {
        let mut oldest_first = self.entries.iter_mut().rev();
        let found = oldest_first.find_map(|(place, entry)| match entry {
            Entry::Segment(_, unread) if place.0 == key || unread.is_some() => {
                Some((place.0, unread))
            }
            _ => None,
        });
        if let Some((owner, unread)) = found
            && owner != key
        {
            *unread = None;
        }
    }

    /// The streams that hold more than an equal part of `share`, if all hold more than that together.
    fn large_holders(&self, share: u64) -> Vec<(u64, Arc<dyn Stream>)> {
        let all = self.holders.values().map(|holder| holder.memory.bytes());
        let is_too_much = all.sum::<u64>() > share;
        let part = share.checked_div(len_u64(self.holders.len())).unwrap_or(0);
        let large = |holder: &Holder| is_too_much && holder.memory.bytes() > part;
        let large = self.holders.iter().filter(|(_, holder)| large(holder));
        large
            .filter_map(|(&key, holder)| Some((key, holder.stream.upgrade()?)))
            .collect()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.ahead.stop();
    }
}

#[cfg(test)]
mod tests;
