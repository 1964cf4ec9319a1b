//! Payloads of chunks that stand one behind the other and know nothing of each other.
//!
//! A codec of such a payload says where a chunk is and what it decodes to, as [`Chunked`]; [`Chunks`] makes a [`Stream`] of that. The
//! chunks are found along their headers as far as readers have asked. What was found is kept in [`Entries`], so that most questions for an
//! entry cost no read.

use std::sync::{Arc, Mutex};

use super::caller::Steps;
use super::entries::Entries;
use super::headers::Headers;
use super::input::{MAX_IDLE, Pending};
use super::{Cursor, SEGMENT, Stream, misplaced};
use crate::error::{Result, corrupt, lock};
use crate::source::{Source, at_most, checked_end, len_u64};

/// A payload of chunks: no position and no state. A chunk is decoded in units, each for itself.
pub(super) trait Chunked: Send + Sync + Sized + 'static {
    /// A chunk, by its header.
    type Chunk: Send;

    /// Buffers that are used again from one unit to the next.
    type Scratch: Default + Send;

    /// The chunk at a place, even if it has no data.
    ///
    /// # Errors
    /// Of reading its header.
    fn chunk(&self, headers: &mut Headers, at: ChunkStart) -> Result<(Self::Chunk, FoundChunk)>;

    /// The place of the chunk that holds the byte at `offset`, if it is known without a look at the chunks before.
    fn place(&self, offset: u64) -> Option<ChunkStart> {
        let _ = offset;
        None
    }

    /// Decodes unit `n` of a chunk into `out`, which is as long as the unit.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if it is damaged.
    fn decode(
        &self,
        stored: &dyn Source,
        chunk: &Self::Chunk,
        n: u64,
        scratch: &mut Self::Scratch,
        out: &mut [u8],
    ) -> Result<()>;

    /// What decodes a chunk, if it is a unit too long for memory.
    fn in_pieces(&self, stored: &Arc<dyn Source>, chunk: &Self::Chunk) -> Option<Box<dyn Pieces>> {
        let _ = (stored, chunk);
        None
    }

    /// Bytes of memory that buffers hold.
    fn scratch_held(scratch: &Self::Scratch) -> u64 {
        let _ = scratch;
        0
    }

    /// Bytes of memory held.
    fn held(&self) -> u64 {
        0
    }
}

/// A chunk that is decoded piece by piece.
pub(super) trait Pieces: Send {
    /// Decoded bytes to come.
    fn left(&self) -> usize;

    /// Fills `buf`, which is at most as long as what is left.
    ///
    /// # Errors
    /// As of [`Chunked::decode`].
    fn read(&mut self, buf: &mut [u8]) -> Result<()>;

    /// Bytes of memory held.
    fn held(&self) -> u64;
}

/// The decoded bytes of a payload of chunks.
pub(super) struct Chunks<C> {
    stored: Arc<dyn Source>,
    data_size: u64,
    codec: C,
    walk: Mutex<ChunkWalk>,
}

impl<C: Chunked> Chunks<C> {
    /// The chunks of `stored`. If there is to be data, the header of the first is read.
    ///
    /// # Errors
    /// Of reading it.
    pub(super) fn open(stored: Arc<dyn Source>, data_size: u64, codec: C) -> Result<Arc<Self>> {
        let chunks = Self {
            stored,
            data_size,
            codec,
            walk: Mutex::new(ChunkWalk::new(data_size)),
        };
        if data_size > 0 {
            chunks.locate(0)?;
        }
        Ok(Arc::new(chunks))
    }

    /// The chunk at a place, or the first behind it that has data.
    fn chunk_at(
        &self,
        headers: &mut Headers,
        mut place: ChunkStart,
    ) -> Result<(C::Chunk, FoundChunk)> {
        for _ in 0..MAX_IDLE {
            let (chunk, found) = self.codec.chunk(headers, place)?;
            if found.next.start > found.at.start {
                return Ok((chunk, found));
            }
            // the position must grow, or a reader would wait for ever: a chunk without data is passed by
            place = found.next;
        }
        Err(corrupt(format!("more than {MAX_IDLE} chunks without data")))
    }

    /// The chunk that holds the byte at `offset`.
    fn locate(&self, offset: u64) -> Result<FoundChunk> {
        let mut headers = Headers::new(self.stored.as_ref());
        let mut read = |place| Ok(self.chunk_at(&mut headers, place)?.1);
        // A table in the payload knows the place: no walk, and no lock.
        match self.codec.place(offset) {
            Some(place) => read(place),
            None => lock(&self.walk).locate(offset, read),
        }
    }
}

impl<C: Chunked> Stream for Chunks<C> {
    fn entry(&self, offset: u64) -> u64 {
        match (self.locate(offset), self.codec.place(offset)) {
            (Ok(found), _) => found.entry(offset),
            // Damage: the entry is where it begins, and a cursor there is an error.
            (Err(_), Some(place)) => place.start,
            (Err(_), None) => lock(&self.walk).reached(offset).start,
        }
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let mut cursor = ChunkCursor {
            position: self.entry(offset),
            current: None,
            memory: 0,
            scratch: C::Scratch::default(),
            pending: Pending::default(),
            pieces: None,
            chunks: self,
        };
        // the header says how much memory the first unit takes, and the caller counts that before it reads
        if offset < cursor.chunks.data_size {
            let here = cursor.chunk_here()?;
            cursor.memory = here.1.memory;
            cursor.current = Some(here);
        }
        Ok(Box::new(cursor))
    }

    fn held(&self) -> u64 {
        lock(&self.walk)
            .found
            .held()
            .saturating_add(self.codec.held())
    }

    fn thin_out(&self) {
        lock(&self.walk).found.thin_out();
    }
}

/// A decoder that runs through the units.
struct ChunkCursor<C: Chunked> {
    chunks: Arc<Chunks<C>>,
    position: u64,
    /// The chunk that it is in or has just left, and where that is.
    current: Option<(C::Chunk, FoundChunk)>,
    /// The most bytes of memory that decoding a unit takes, of the chunks that it has met.
    memory: u64,
    scratch: C::Scratch,
    /// The rest of a unit.
    pending: Pending,
    /// The rest of a chunk that is decoded in pieces.
    pieces: Option<Box<dyn Pieces>>,
}

impl<C: Chunked> ChunkCursor<C> {
    /// The chunk at the position, which is the current one or the next.
    fn chunk_here(&mut self) -> Result<(C::Chunk, FoundChunk)> {
        let place = match self.current.take() {
            Some((chunk, found)) if self.position < found.next.start => return Ok((chunk, found)),
            Some((_, passed)) => passed.next,
            None => self.chunks.locate(self.position)?.at,
        };
        let mut headers = Headers::new(self.chunks.stored.as_ref());
        self.chunks.chunk_at(&mut headers, place)
    }

    /// Decodes the unit that begins at the position, or the first piece of it; gives how much of `buf` it has filled: nothing if that takes
    /// more memory than was `announced`.
    fn decode(&mut self, buf: &mut [u8], announced: u64) -> Result<usize> {
        // A whole unit was left behind, so the position is the start of one.
        let here = self.chunk_here()?;
        let (chunk, found) = &*self.current.insert(here);
        self.memory = self.memory.max(found.memory);
        // Not yet: the caller counts that memory first.
        if self.memory > announced {
            return Ok(0);
        }
        let chunks = &self.chunks;
        if let Some(pieces) = chunks.codec.in_pieces(&chunks.stored, chunk) {
            self.pieces = Some(pieces);
            return self.next_piece(buf);
        }
        let within = self.position.saturating_sub(found.at.start);
        let n = within
            .checked_div(found.block)
            .ok_or_else(|| misplaced(self.position))?;
        let left = found.next.start.saturating_sub(self.position);
        let len = at_most(left.min(found.block), usize::MAX);
        let scratch = &mut self.scratch;
        let stored = chunks.stored.as_ref();
        self.pending.decode(buf, len, |out| {
            chunks.codec.decode(stored, chunk, n, scratch, out)
        })
    }

    /// Decodes on in a chunk that is decoded in pieces; gives how much of `buf` that has filled.
    fn next_piece(&mut self, buf: &mut [u8]) -> Result<usize> {
        let Some(pieces) = &mut self.pieces else {
            return Ok(0);
        };
        let len = pieces.left().min(buf.len());
        pieces.read(buf.get_mut(..len).unwrap_or_default())?;
        if pieces.left() == 0 {
            self.pieces = None;
        }
        Ok(len)
    }
}

impl<C: Chunked> Cursor for ChunkCursor<C> {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        checked_end(self.position, buf.len(), self.chunks.data_size)?;
        let announced = self.needed();
        let given = if self.pieces.is_some() {
            self.next_piece(buf)?
        } else if self.pending.len() == 0 {
            self.decode(buf, announced)?
        } else {
            self.pending.take(buf)
        };
        if self.pending.len() == 0 {
            // its memory may be wanted elsewhere before the next unit
            self.pending = Pending::default();
        }
        self.position = self.position.saturating_add(len_u64(given));
        Ok(given)
    }

    fn held(&self) -> u64 {
        let pieces = self.pieces.as_ref().map_or(0, |pieces| pieces.held());
        let buffers = C::scratch_held(&self.scratch).saturating_add(self.pending.held());
        buffers.saturating_add(pieces)
    }

    /// What a unit takes, unless the next segment is decoded already.
    fn needed(&self) -> u64 {
        if self.pending.len() >= SEGMENT {
            return self.held();
        }
        self.memory.max(self.held())
    }

    fn decoded_to(&self) -> u64 {
        self.position.saturating_add(len_u64(self.pending.len()))
    }
}

/// Where a chunk begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkStart {
    /// Its decoded offset.
    pub(super) start: u64,
    /// What its header is found by: its offset in the payload, or its number.
    pub(super) mark: u64,
}

/// A chunk that was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FoundChunk {
    /// Where it begins.
    pub(super) at: ChunkStart,
    /// Decoded bytes of a unit: each begins with an entry.
    pub(super) block: u64,
    /// Where the chunk behind it begins.
    pub(super) next: ChunkStart,
    /// Bytes of memory that decoding a unit of it takes.
    pub(super) memory: u64,
}

impl FoundChunk {
    /// The last entry in it at or before `offset`.
    fn entry(&self, offset: u64) -> u64 {
        let within = offset.saturating_sub(self.at.start);
        let rest = within.checked_rem(self.block).unwrap_or(within);
        self.at.start.saturating_add(within.saturating_sub(rest))
    }
}

/// The chunks found so far.
struct ChunkWalk {
    found: Entries<FoundChunk>,
    /// The first place not looked at yet.
    frontier: ChunkStart,
}

impl ChunkWalk {
    /// No chunks yet, of a payload with so many decoded bytes.
    fn new(data_size: u64) -> Self {
        Self {
            found: Entries::new(data_size, FoundChunk::default()),
            frontier: ChunkStart::default(),
        }
    }

    /// The chunk that holds the byte at `offset`. Those on the way there are read by `read`, which gives the chunk at a place, or
    /// the first behind it that has data.
    ///
    /// # Errors
    /// Of `read`, and [`Steps::check`]; the walk goes on there when it is asked again.
    fn locate(
        &mut self,
        offset: u64,
        mut read: impl FnMut(ChunkStart) -> Result<FoundChunk>,
    ) -> Result<FoundChunk> {
        let mut found = self.near(offset);
        let mut steps = Steps::default();
        // headers alone are read: nothing is decoded on the way
        while found.next.start <= offset {
            steps.check()?;
            found = read(found.next)?;
            self.found.add(found.at.start, found);
            self.frontier = self.frontier.max(found.next);
        }
        Ok(found)
    }

    /// The chunk that holds `offset` if it is kept, else one that ends before it.
    fn near(&self, offset: u64) -> FoundChunk {
        let (_, near) = self.found.at(offset);
        // The table keeps chunks apart: behind the one that it has others were met, and the walk has got further.
        if near.next.start <= offset && self.frontier.start <= offset && self.frontier > near.next {
            return FoundChunk {
                at: self.frontier,
                next: self.frontier,
                ..FoundChunk::default()
            };
        }
        near
    }

    /// The last place at or before `offset` that the walk has reached, after [`ChunkWalk::locate`] has failed.
    fn reached(&self, offset: u64) -> ChunkStart {
        let near = self.near(offset);
        if near.next.start <= offset {
            near.next
        } else {
            near.at
        }
    }
}
