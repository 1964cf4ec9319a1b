//! A place in a bzip2 stream that decoding can begin at.

use super::batch::Ready;

/// A place to begin at: the mark of a block, or of the end of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// Decoded bytes before it.
    pub(super) decoded: u64,
    /// Stored bits before it.
    pub(super) bit: u64,
    /// The level of its stream.
    pub(super) level: u8,
    /// Checksum of the blocks of its stream before it.
    pub(super) combined: u32,
}

impl EntryPoint {
    /// The place behind a block that begins here.
    pub(super) fn behind(self, block: &Ready) -> Self {
        Self {
            decoded: self.decoded.saturating_add(block.len()),
            bit: block.end,
            level: self.level,
            combined: self.combined.rotate_left(1) ^ block.crc,
        }
    }
}
