//! A chunk of Python's framing, by the lengths before it.

use crate::codec::chunks::{ChunkStart, FoundChunk};
use crate::codec::headers::Headers;
use crate::error::{Error, Result, corrupt};

/// No LZ4 block gives more than 255 bytes for each of its own.
pub(super) const MAX_RATIO: u64 = 255;

/// Chunks of more decoded bytes are decoded piece by piece, rather than into one buffer.
pub(super) const LONG_CHUNK: u32 = 16 << 20;

/// Bytes that an LZ4 block may take beyond the decoded ones, and a 255th of these: only literals can make it longer.
const MAX_OVERHEAD: u64 = 16;

/// Length of both lengths before a chunk's LZ4 block.
const HEADER_LEN: u8 = 8;

/// A chunk, by its lengths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lz4Chunk {
    /// Where its lengths are.
    pub(super) at: ChunkStart,
    /// Length of its LZ4 block.
    pub(super) len: u32,
    /// Decoded size.
    pub(super) size: u32,
}

impl Lz4Chunk {
    /// The chunk that begins at `start`, by its lengths.
    pub(super) fn read(headers: &mut Headers, at: ChunkStart) -> Result<Self> {
        let [n0, n1, n2, n3, s0, s1, s2, s3] = headers.array(at.mark)?;
        // It counts the four bytes of the decoded size, too.
        let stored_len = u32::from_be_bytes([n0, n1, n2, n3]);
        let chunk = Self {
            at,
            len: stored_len.saturating_sub(4),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
        };
        if stored_len < 4 || chunk.next().mark > headers.len() {
            return Err(chunk.damaged(format!(
                "{stored_len} bytes, but {} follow",
                headers.len().saturating_sub(at.mark)
            )));
        }
        let longest = u64::from(chunk.size)
            .saturating_add(u64::from(chunk.size / 255))
            .saturating_add(MAX_OVERHEAD);
        if u64::from(chunk.len) > longest {
            return Err(chunk.damaged(format!(
                "no block of {} bytes gives as few as {}",
                chunk.len, chunk.size
            )));
        }
        if u64::from(chunk.size) > u64::from(chunk.len).saturating_mul(MAX_RATIO) {
            return Err(chunk.damaged(format!(
                "{} decoded bytes can't come from {}",
                chunk.size, chunk.len
            )));
        }
        Ok(chunk)
    }

    /// Offset of its LZ4 block in the payload.
    pub(super) fn block_start(&self) -> u64 {
        self.at.mark.saturating_add(HEADER_LEN.into())
    }

    /// Where the chunk behind it begins.
    pub(super) fn next(&self) -> ChunkStart {
        ChunkStart {
            start: self.at.start.saturating_add(self.size.into()),
            mark: self.block_start().saturating_add(self.len.into()),
        }
    }

    /// Whether it is decoded piece by piece.
    pub(super) fn is_long(&self) -> bool {
        self.size > LONG_CHUNK
    }

    /// As the table of the chunks has it.
    pub(super) fn found(&self) -> FoundChunk {
        // stored and decoded bytes together
        let whole = u64::from(self.size).saturating_add(self.len.into());
        FoundChunk {
            at: self.at,
            block: self.size.into(),
            next: self.next(),
            memory: if self.is_long() { 0 } else { whole },
        }
    }

    /// [`Error::Corrupt`] that names the chunk by the stored byte that it begins at.
    pub(super) fn damaged(&self, why: impl std::fmt::Display) -> Error {
        corrupt(format!("LZ4 chunk at stored byte {}: {why}", self.at.mark))
    }
}
