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
use std::sync::Arc;

use super::chunks::{ChunkStart, Chunked, Chunks, FoundChunk};
use super::headers::{Headers, array_at};
use super::{Codec, Edited, Framed, splice};
use crate::error::{Result, corrupt, unsupported};
use crate::source::Source;
use cframe::{Cframe, is_cframe};
use chunk::{BlockDecoder, Chunk};
use encode::{BlockShape, BloscEncoder};

const PREFIXED: &str = "prefixed chunks";
const ONE_CHUNK: &str = "one chunk";
const CFRAME: &str = "contiguous frame";

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
        let chunks = BloscChunks { data_size, layout };
        Ok(Framed {
            framing,
            stream: Chunks::open(stored, data_size, chunks)?,
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

/// The chunks of a Blosc payload, whose units are their blocks.
struct BloscChunks {
    data_size: u64,
    layout: Layout,
}

impl Chunked for BloscChunks {
    type Chunk = Chunk;
    type Scratch = BlockDecoder;

    fn chunk(&self, headers: &mut Headers, place: ChunkStart) -> Result<(Chunk, FoundChunk)> {
        let ChunkStart { start, mark } = place;
        let data_room = self.data_size.saturating_sub(start);
        let (chunk, mark) = match &self.layout {
            Layout::Single if mark > 0 => {
                return Err(corrupt("Blosc chunk that ends before the data does"));
            }
            Layout::Single => (Chunk::read(headers, 0, headers.len(), data_room)?, 1),
            Layout::Prefixed => {
                let len = u64::from(u32::from_be_bytes(headers.array(mark)?));
                let at = mark.saturating_add(4);
                let room = len.min(headers.len().saturating_sub(at));
                (
                    Chunk::read(headers, at, room, data_room)?,
                    at.saturating_add(len),
                )
            }
            Layout::Frame(frame) => {
                let stored = headers.source();
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
            memory: chunk.memory(),
        };
        Ok((chunk, found))
    }

    fn place(&self, offset: u64) -> Option<ChunkStart> {
        let Layout::Frame(frame) = &self.layout else {
            return None;
        };
        let (start, mark) = frame.find(offset)?;
        Some(ChunkStart { start, mark })
    }

    fn decode(
        &self,
        stored: &dyn Source,
        chunk: &Chunk,
        n: u64,
        decoder: &mut BlockDecoder,
        out: &mut [u8],
    ) -> Result<()> {
        decoder.decode(stored, chunk, n, out)
    }

    fn scratch_held(decoder: &BlockDecoder) -> u64 {
        decoder.held()
    }

    fn held(&self) -> u64 {
        match &self.layout {
            Layout::Frame(frame) => frame.held(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
