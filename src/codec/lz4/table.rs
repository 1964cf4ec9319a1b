//! Where the chunks of Python's framing are: found by their lengths, as far as a reader has asked.

use crate::codec::entries::Entries;
use crate::error::{Error, Place, Result};
use crate::source::{Peek, Source};

/// No LZ4 block gives more than 255 bytes for each of its own.
pub(super) const MAX_RATIO: u64 = 255;

/// Bytes that an LZ4 block may take beyond the decoded ones, and a 255th of these: only literals can make it longer.
const MAX_OVERHEAD: u64 = 16;

/// Length of both lengths before a chunk's LZ4 block.
const HEADER_LEN: u8 = 8;

/// Where a chunk begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Offset of its first byte among the decoded.
    pub(super) decoded: u64,
    /// Offset of its lengths among the stored.
    pub(super) stored: u64,
}

/// A chunk, by its lengths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) start: Row,
    /// Length of its LZ4 block.
    pub(super) len: u32,
    /// Decoded size.
    pub(super) size: u32,
}

impl Chunk {
    /// The chunk that begins at `start`, by its lengths.
    pub(super) fn read(stored: &dyn Source, headers: &mut Peek, start: Row) -> Result<Self> {
        let lengths = headers.read(stored, start.stored, HEADER_LEN.into())?;
        let &[n0, n1, n2, n3, s0, s1, s2, s3] = lengths else {
            let why = format!(
                "{} bytes left at stored byte {}, where a chunk should begin",
                lengths.len(),
                start.stored
            );
            return Err(Error::corrupt(Place::File, why));
        };
        let stored_len = u32::from_be_bytes([n0, n1, n2, n3]);
        let chunk = Self {
            start,
            len: stored_len.saturating_sub(4),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
        };
        if stored_len < 4 || chunk.next().stored > stored.len() {
            return Err(chunk.damaged(format!(
                "{stored_len} bytes, but {} follow",
                stored.len().saturating_sub(start.stored)
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

    pub(super) fn block_start(&self) -> u64 {
        self.start.stored.saturating_add(HEADER_LEN.into())
    }

    pub(super) fn next(&self) -> Row {
        Row {
            decoded: self.start.decoded.saturating_add(self.size.into()),
            stored: self.block_start().saturating_add(self.len.into()),
        }
    }

    pub(super) fn damaged(&self, why: impl std::fmt::Display) -> Error {
        Error::corrupt(
            Place::File,
            format!("LZ4 chunk at stored byte {}: {why}", self.start.stored),
        )
    }
}

/// The chunks whose lengths have been read.
pub(super) struct Table {
    /// Where chunks begin among the stored bytes.
    chunks: Entries<u64>,
    /// The first chunk not looked at yet.
    next: Row,
    headers: Peek,
}

impl Table {
    /// The table of a payload of which no length has been read.
    pub(super) fn new(data_size: u64) -> Self {
        Self {
            chunks: Entries::new(data_size, 0),
            next: Row::default(),
            headers: Peek::default(),
        }
    }

    /// The start of the chunk that decoded byte `offset` is in, or of the damaged one that keeps it from being found.
    pub(super) fn locate(&mut self, stored: &dyn Source, offset: u64) -> Row {
        while self.next.decoded <= offset
            && let Ok(chunk) = Chunk::read(stored, &mut self.headers, self.next)
        {
            self.chunks.add(self.next.decoded, self.next.stored);
            self.next = chunk.next();
        }
        let (decoded, at) = self.chunks.at(offset);
        let mut row = Row {
            decoded,
            stored: at,
        };
        while let Ok(chunk) = Chunk::read(stored, &mut self.headers, row)
            && chunk.next().decoded <= offset
        {
            row = chunk.next();
        }
        row
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        self.chunks.held()
    }
}
