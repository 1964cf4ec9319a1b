//! Where the chunks of Python's framing are: found by their lengths, as far as anybody has asked.

use crate::error::{Error, Place, Result};
use crate::source::Source;

/// No LZ4 block gives more than 255 bytes for each of its own.
pub(super) const MAX_RATIO: u64 = 255;

/// Rows of the table of chunks; a table that grows beyond forgets every second row.
pub(super) const TABLE_ROWS: usize = 1 << 15;

/// How much is read at once in search of chunks, which may be smaller than that.
const HEADERS_LEN: usize = 512;

/// Length of both lengths before a chunk's LZ4 block.
const HEADER_LEN: u64 = 8;

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
    pub(super) fn read(stored: &dyn Source, headers: &mut Headers, start: Row) -> Result<Self> {
        let [n0, n1, n2, n3, s0, s1, s2, s3] = headers.read(stored, start.stored)?;
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
        if u64::from(chunk.size) > u64::from(chunk.len).saturating_mul(MAX_RATIO) {
            return Err(chunk.damaged(format!(
                "{} decoded bytes can't come from {}",
                chunk.size, chunk.len
            )));
        }
        Ok(chunk)
    }

    pub(super) fn block_start(&self) -> u64 {
        self.start.stored.saturating_add(HEADER_LEN)
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
    headers: Headers,
}

/// Stored bytes read in search of the lengths of small chunks.
#[derive(Default)]
pub(super) struct Headers {
    bytes: Vec<u8>,
    start: u64,
}

impl Table {
    /// A table of nothing yet.
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            stride: 1,
            next: Row::default(),
            count: 0,
            headers: Headers::default(),
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

impl Headers {
    /// Eight stored bytes.
    fn read(&mut self, stored: &dyn Source, at: u64) -> Result<[u8; 8]> {
        if let Some(found) = self.find(at) {
            return Ok(found);
        }
        let len = usize::try_from(stored.len().saturating_sub(at))
            .map_or(HEADERS_LEN, |left| left.min(HEADERS_LEN));
        self.start = at;
        self.bytes.resize(len, 0);
        let outcome = stored.read_exact_at(&mut self.bytes, at);
        if outcome.is_err() {
            self.bytes.clear();
        }
        outcome?;
        self.find(at).ok_or_else(|| {
            Error::corrupt(
                Place::File,
                format!("{len} bytes left at stored byte {at}, where a chunk should begin"),
            )
        })
    }

    fn find(&self, at: u64) -> Option<[u8; 8]> {
        let within = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(within..)?.first_chunk().copied()
    }
}
