//! Blosc: codes `blsc`, `bls2` and `bsc2`.
//!
//! | framing | code | who writes it |
//! |---|---|---|
//! | `prefixed chunks` | `blsc` | abacusutils: again and again a big-endian length and a Blosc1 chunk of 4 MiB |
//! | `one chunk` | `blsc`, `bls2` | asdf-compression, asdf-cxx, ASDF.jl: a bare chunk |
//! | `contiguous frame` | `bls2`, `bsc2` | asdf-cxx, abacusutils: chunks with a table of their offsets |
//!
//! Prefixed chunks are tried first: the length in front of them is also the size in the header of the first chunk. No bare chunk
//! looks like that, while some real payloads of prefixed chunks have four bytes that could be the size of a bare chunk.
//!
//! Every block of every chunk is an entry (see [`chunk`]). Prefixed chunks are found along their headers, up to the offset that is
//! asked for; only where they begin is kept in memory.

mod blosclz;
mod cframe;
mod chunk;
mod encode;
mod filters;
mod frame;
mod inner;
mod single;

use std::io::Write;
use std::sync::{Arc, Mutex};

use super::chunked::{Headers, array_at};
use super::input::Pending;
use super::walk::{ChunkStart, ChunkWalk, FoundChunk};
use super::{Codec, Cursor, Edited, Framed, Stream, splice};
use crate::error::{Result, corrupt, lock, unsupported};
use crate::source::{Source, checked_end, len_u64};
use cframe::{Cframe, is_cframe};
use chunk::{BlockDecoder, Chunk};
use encode::{BlockShape, BloscEncoder};

const PREFIXED: &str = "prefixed chunks";
const ONE_CHUNK: &str = "one chunk";
const CFRAME: &str = "contiguous frame";

/// Chunks without data are skipped, but not without end.
const MAX_IDLE: u32 = 1024;

/// The Blosc codecs, by code.
pub(super) struct Blosc(pub(super) [u8; 4]);

impl Codec for Blosc {
    fn code(&self) -> [u8; 4] {
        self.0
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        let source = stored.as_ref();
        let (framing, layout) = if is_cframe(source)? {
            let frame = Cframe::open(source, data_size)?;
            (CFRAME, Layout::Frame(Box::new(frame)))
        } else if is_prefixed(source)? {
            (PREFIXED, Layout::Prefixed)
        } else if stored.is_empty() {
            // what an edit of it becomes
            (self.common_framing(), Layout::Prefixed)
        } else {
            (ONE_CHUNK, Layout::Single)
        };
        let stream = BloscStream {
            stored,
            data_size,
            layout,
            walk: Mutex::new(ChunkWalk::new(data_size)),
        };
        if data_size > 0 {
            // A payload without a chunk is refused now, not at the first read.
            stream.locate(0)?;
        }
        Ok(Framed {
            framing,
            stream: Arc::new(stream),
        })
    }

    fn writes(&self, framing: Option<&str>) -> bool {
        let several = if self.is_blosc1() { PREFIXED } else { CFRAME };
        framing.is_none_or(|framing| [several, ONE_CHUNK].contains(&framing))
    }

    fn named_framings(&self) -> &'static [(&'static str, &'static str)] {
        match &self.0 {
            b"bls2" => &[("frame", CFRAME)],
            _ => &[("chunk", ONE_CHUNK)],
        }
    }

    fn encode(
        &self,
        framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        if !self.writes(framing) {
            return Err(unsupported(format!(
                "writing {} as {}",
                super::code_text(self.0),
                framing.unwrap_or("Blosc2")
            )));
        }
        let mut encoder = BloscEncoder::new()?;
        match framing.unwrap_or(self.common_framing()) {
            ONE_CHUNK => single::encode(&mut encoder, self.shape(), decoded, out),
            CFRAME => frame::encode(&mut encoder, decoded, out),
            _ => splice::encode(&mut encoder, decoded, out),
        }
    }

    fn reencode(&self, edited: &Edited, out: &mut dyn Write) -> Result<()> {
        match edited.framing {
            PREFIXED => splice::reencode(&mut BloscEncoder::new()?, edited, out),
            ONE_CHUNK => {
                let source = edited.stored.as_ref();
                let shape = if self.is_blosc1() {
                    array_at(source, 0).ok().and_then(BlockShape::of)
                } else {
                    array_at(source, 0).ok().and_then(BlockShape::of_header_2)
                };
                let shape = shape.unwrap_or_else(|| self.shape());
                single::encode(&mut BloscEncoder::new()?, shape, edited.decoded, out)
            }
            CFRAME if self.writes(Some(CFRAME)) => {
                frame::reencode(&mut BloscEncoder::new()?, edited, out)
            }
            other => self.encode(Some(other), edited.decoded, out),
        }
    }
}

impl Blosc {
    fn is_blosc1(&self) -> bool {
        &self.0 == b"blsc"
    }

    /// The framing that others write under this code: abacusutils under `blsc` and `bsc2`, asdf-compression under `bls2`.
    fn common_framing(&self) -> &'static str {
        match &self.0 {
            b"blsc" => PREFIXED,
            b"bls2" => ONE_CHUNK,
            _ => CFRAME,
        }
    }

    /// The shape of a new chunk.
    fn shape(&self) -> BlockShape {
        if self.is_blosc1() {
            BlockShape::default()
        } else {
            BlockShape::of_blosc2(1)
        }
    }
}

/// Whether the payload begins with a length that is also the size of the chunk behind it.
fn is_prefixed(stored: &dyn Source) -> Result<bool> {
    if stored.len() < 20 {
        return Ok(false);
    }
    let mut headers = Headers::new(stored);
    let len = u32::from_be_bytes(headers.array(0)?);
    let size = u32::from_le_bytes(headers.array(16)?);
    Ok(len == size && u64::from(len).saturating_add(4) <= stored.len())
}

/// How the chunks of a payload are found.
enum Layout {
    Prefixed,
    Single,
    Frame(Box<Cframe>),
}

/// The decoded bytes of a Blosc payload.
struct BloscStream {
    stored: Arc<dyn Source>,
    data_size: u64,
    layout: Layout,
    walk: Mutex<ChunkWalk>,
}

impl BloscStream {
    /// Reads the header of the chunk at a place, or of the first chunk behind it that has data. Gives the chunk, and where it is.
    fn chunk_at(
        &self,
        headers: &mut Headers,
        mut place: ChunkStart,
    ) -> Result<(Chunk, FoundChunk)> {
        for _ in 0..MAX_IDLE {
            let (chunk, found) = self.any_chunk_at(headers, place)?;
            if chunk.size > 0 {
                return Ok((chunk, found));
            }
            place = found.next;
        }
        Err(corrupt(format!(
            "more than {MAX_IDLE} Blosc chunks without data"
        )))
    }

    /// Reads the header of the chunk at a place, even if the chunk has no data.
    fn any_chunk_at(
        &self,
        headers: &mut Headers,
        place: ChunkStart,
    ) -> Result<(Chunk, FoundChunk)> {
        let ChunkStart { start, mark } = place;
        let data_room = self.data_size.saturating_sub(start);
        let (chunk, mark) = match &self.layout {
            Layout::Single if mark > 0 => {
                return Err(corrupt("Blosc chunk that ends before the data does"));
            }
            Layout::Single => (Chunk::read(headers, 0, self.stored.len(), data_room)?, 1),
            Layout::Prefixed => {
                let len = u64::from(u32::from_be_bytes(headers.array(mark)?));
                let at = mark.saturating_add(4);
                let room = len.min(self.stored.len().saturating_sub(at));
                (
                    Chunk::read(headers, at, room, data_room)?,
                    at.saturating_add(len),
                )
            }
            Layout::Frame(frame) => {
                let stored = self.stored.as_ref();
                (
                    frame.chunk(headers, stored, start, mark)?,
                    mark.saturating_add(1),
                )
            }
        };
        let next = ChunkStart {
            start: start.saturating_add(chunk.size),
            mark,
        };
        let found = FoundChunk {
            at: place,
            block: chunk.block,
            next,
        };
        Ok((chunk, found))
    }

    /// The chunk that holds the byte at `offset`.
    fn locate(&self, offset: u64) -> Result<FoundChunk> {
        let mut headers = Headers::new(self.stored.as_ref());
        let mut read = |place| Ok(self.chunk_at(&mut headers, place)?.1);
        match self.known(offset) {
            Some(place) => read(place),
            None => lock(&self.walk).locate(offset, read),
        }
    }

    /// The place of the chunk that holds `offset`, if the frame has chunks of one size.
    fn known(&self, offset: u64) -> Option<ChunkStart> {
        let Layout::Frame(frame) = &self.layout else {
            return None;
        };
        let (start, mark) = frame.find(offset)?;
        Some(ChunkStart { start, mark })
    }
}

impl Stream for BloscStream {
    fn entry(&self, offset: u64) -> u64 {
        match self.locate(offset) {
            Ok(found) => found.entry(offset),
            // Damage: the entry is where it begins, and a cursor there is an error.
            Err(_) => match self.known(offset) {
                Some(place) => place.start,
                None => lock(&self.walk).reached(offset).start,
            },
        }
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let (position, current) = if offset >= self.data_size {
            (self.entry(offset), None)
        } else {
            let found = self.locate(offset)?;
            let mut headers = Headers::new(self.stored.as_ref());
            let current = self.chunk_at(&mut headers, found.at)?;
            (found.entry(offset), Some(current))
        };
        Ok(Box::new(BloscCursor {
            stream: self,
            position,
            largest: current.as_ref().map_or(0, |(chunk, _)| chunk.memory()),
            current,
            decoder: BlockDecoder::default(),
            pending: Pending::default(),
        }))
    }

    fn parallel(&self) -> bool {
        true
    }

    fn thin_out(&self) {
        lock(&self.walk).thin_out();
        if let Layout::Frame(frame) = &self.layout {
            frame.thin_out();
        }
    }

    fn held(&self) -> u64 {
        let entries = lock(&self.walk).held();
        match &self.layout {
            Layout::Frame(frame) => entries.saturating_add(frame.held()),
            _ => entries,
        }
    }
}

/// A decoder that runs through the blocks.
struct BloscCursor {
    stream: Arc<BloscStream>,
    position: u64,
    /// The chunk that it is in or has just left, and where that is.
    current: Option<(Chunk, FoundChunk)>,
    /// The most bytes of memory that decoding a block takes, of the chunks that it has met.
    largest: u64,
    decoder: BlockDecoder,
    pending: Pending,
}

impl Cursor for BloscCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        checked_end(self.position, buf.len(), self.stream.data_size)?;
        let announced = self.needed();
        let mut given = self.pending.take(buf);
        if given == 0 {
            // A whole block was left behind, so the position is the start of one.
            let here = self.chunk_here()?;
            let (chunk, found) = &*self.current.insert(here);
            let within = self.position.saturating_sub(found.at.start);
            let n = within
                .checked_div(chunk.block)
                .ok_or_else(|| corrupt("Blosc chunk without blocks"))?;
            self.largest = self.largest.max(chunk.memory());
            if self.largest > announced {
                return Ok(0);
            }
            let stored = self.stream.stored.as_ref();
            let decode = |out: &mut [u8]| self.decoder.decode(stored, chunk, n, out);
            given = self.pending.decode(buf, chunk.block_len(n), decode)?;
        }
        self.position = self.position.saturating_add(len_u64(given));
        Ok(given)
    }

    fn held(&self) -> u64 {
        self.pending.held().saturating_add(self.decoder.held())
    }

    fn needed(&self) -> u64 {
        self.largest.max(self.held())
    }
}

impl BloscCursor {
    /// The chunk at the position, which is the current one or the next.
    fn chunk_here(&mut self) -> Result<(Chunk, FoundChunk)> {
        let place = match self.current.take() {
            Some((chunk, found)) if self.position < found.next.start => return Ok((chunk, found)),
            Some((_, passed)) => passed.next,
            None => self.stream.locate(self.position)?.at,
        };
        let mut headers = Headers::new(self.stream.stored.as_ref());
        self.stream.chunk_at(&mut headers, place)
    }
}

#[cfg(test)]
mod tests;
