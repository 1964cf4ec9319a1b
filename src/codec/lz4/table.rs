//! Where the chunks of Python's framing are: found by their lengths, as far as anybody has asked.

use crate::error::{Error, Place, Result};
use crate::source::{Peek, Source};

/// No LZ4 block gives more than 255 bytes for each of its own.
pub(super) const MAX_RATIO: u64 = 255;

/// Bytes that an LZ4 block may take beyond the decoded ones, and a 255th of these: only literals can make it longer.
const MAX_OVERHEAD: u64 = 16;

/// Rows of the table of chunks; a table that grows beyond forgets every second row.
pub(super) const TABLE_ROWS: usize = 1 << 15;

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

/// What is known of where the chunks are.
pub(super) struct Table {
    /// Each `stride`th chunk, up to `next`.
    rows: Vec<Row>,
    stride: u64,
    /// The first chunk not looked at yet.
    next: Row,
    /// Its number.
    count: u64,
    headers: Peek,
}

impl Table {
    /// A table of nothing yet.
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            stride: 1,
            next: Row::default(),
            count: 0,
            headers: Peek::default(),
        }
    }

    /// The start of the chunk that decoded byte `offset` is in, or of the damaged one that keeps it from being found.
    pub(super) fn locate(&mut self, stored: &dyn Source, offset: u64) -> Row {
        while self.next.decoded <= offset
            && let Ok(chunk) = Chunk::read(stored, &mut self.headers, self.next)
        {
            self.advance(chunk.next());
        }
        let behind = self.rows.partition_point(|row| row.decoded <= offset);
        let mut row = behind
            .checked_sub(1)
            .and_then(|last| self.rows.get(last))
            .copied()
            .unwrap_or_default();
        while let Ok(chunk) = Chunk::read(stored, &mut self.headers, row)
            && chunk.next().decoded <= offset
        {
            row = chunk.next();
        }
        row
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.rows.capacity().saturating_mul(size_of::<Row>())
    }

    /// Appends `next`, and goes on to the chunk after it.
    fn advance(&mut self, next: Row) {
        if self.count.checked_rem(self.stride) == Some(0) {
            if self.rows.len() >= TABLE_ROWS {
                let mut keep = false;
                self.rows.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride = self.stride.saturating_mul(2);
            }
            if self.count.checked_rem(self.stride) == Some(0) {
                self.rows.push(self.next);
            }
        }
        self.count = self.count.saturating_add(1);
        self.next = next;
    }
}
